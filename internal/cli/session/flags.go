// SPDX-FileCopyrightText: The Skyhook authors
// SPDX-License-Identifier: Apache-2.0

package session

import (
	"fmt"
	"slices"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/skyhook-k8s/skyhook/api/skyhook/v1alpha1"
	"github.com/skyhook-k8s/skyhook/internal/output"
)

// visibleKubeFlags are kubectl's flags that every help shows; "options" lists the others, as in kubectl.
var visibleKubeFlags = []string{"context", "kubeconfig", "namespace"}

// AddGlobalFlags adds the flags of all commands: kubectl's and our own.
func (f *Factory) AddGlobalFlags(root *cobra.Command) {
	all := root.PersistentFlags()
	kube := pflag.NewFlagSet("", pflag.ContinueOnError)
	f.KubeFlags.AddFlags(kube)
	kube.Lookup("namespace").Usage = "the namespace whose NodeOps are shown, or where one is created"
	kube.VisitAll(func(flag *pflag.Flag) { flag.Hidden = !slices.Contains(visibleKubeFlags, flag.Name) })
	all.AddFlagSet(kube)
	all.StringVarP(&f.Format, "output", "o", output.Table, "output format: "+output.Formats)
	all.Lookup("output").DefValue = "" // help does not name the format for people
	all.BoolVarP(&f.allNamespaces, "all-namespaces", "A", false, "show the NodeOps of all namespaces, as without -n")
	all.StringVar(&f.OperatorNamespace, "operator-namespace", "", "the namespace of the operator, if it is not found by itself")
	f.AddDryRunFlag(all)
	all.BoolVarP(&f.Verbose, "verbose", "v", false, "print requests to the API server to standard error")
	for flag, complete := range map[string]cobra.CompletionFunc{
		"namespace": f.completeNamespaces, "operator-namespace": f.completeNamespaces,
		"output":  cobra.FixedCompletions([]string{output.JSON, output.YAML, output.Name, output.Wide, "jsonpath=", "custom-columns="}, cobra.ShellCompDirectiveNoSpace),
		"dry-run": cobra.FixedCompletions([]string{"client", "server"}, cobra.ShellCompDirectiveNoFileComp),
	} {
		_ = root.RegisterFlagCompletionFunc(flag, complete)
	}
}

// NewOptionsCommand returns the command `options`.
func NewOptionsCommand(f *Factory) *cobra.Command {
	return &cobra.Command{
		Use:   "options",
		Short: "List the flags of all commands",
		Long:  "List the flags of all commands, including kubectl's flags for the cluster and the user.",
		Args:  output.Args(),
		RunE: func(cmd *cobra.Command, _ []string) error {
			_, err := fmt.Fprint(f.Out, GlobalFlags(cmd.Root()))
			return err
		},
	}
}

// GlobalFlags describes the flags of all commands.
func GlobalFlags(root *cobra.Command) string {
	shown := pflag.NewFlagSet("", pflag.ContinueOnError)
	root.PersistentFlags().VisitAll(func(flag *pflag.Flag) {
		visible := *flag
		visible.Hidden = false
		shown.AddFlag(&visible)
	})
	return shown.FlagUsages()
}

// AddSkyhookFlag adds --skyhook.
func (f *Factory) AddSkyhookFlag(cmd *cobra.Command, name *string, required bool) {
	usage := "name of the `Skyhook`"
	if required {
		usage += " (required)"
	}
	cmd.Flags().StringVar(name, "skyhook", "", usage)
	_ = cmd.RegisterFlagCompletionFunc("skyhook", func(cmd *cobra.Command, _ []string, _ string) ([]string, cobra.ShellCompDirective) {
		return f.CompleteSkyhooks(cmd, nil, "")
	})
	if required {
		_ = cmd.MarkFlagRequired("skyhook")
	}
}

// AddNodeFlag adds --node, which may be repeated.
func (f *Factory) AddNodeFlag(cmd *cobra.Command, nodes *[]string, usage string) {
	cmd.Flags().StringArrayVar(nodes, "node", nil, usage)
	_ = cmd.RegisterFlagCompletionFunc("node", f.CompleteNodes)
}

// Confirmation holds the flags that answer the question before a change.
type Confirmation struct{ Given bool }

// AddFlags adds the flags that answer the question before it is asked.
func (c *Confirmation) AddFlags(flags *pflag.FlagSet) {
	flags.BoolVarP(&c.Given, "confirm", "y", false, "change without asking")
	flags.BoolVar(&c.Given, "yes", false, "same as --confirm")
}

// AddIgnoredConfirmation accepts the flags of a confirmation in a command that does not ask, for scripts that set them.
func AddIgnoredConfirmation(flags *pflag.FlagSet) {
	(&Confirmation{}).AddFlags(flags)
	for _, name := range []string{"confirm", "yes"} {
		_ = flags.MarkHidden(name)
	}
}

// complete lists the names of all objects of a kind for the shell. After an error there are no suggestions.
func (f *Factory) complete(cmd *cobra.Command, listKind schema.GroupVersionKind) ([]string, cobra.ShellCompDirective) {
	c, err := f.NewClient()
	if err != nil {
		return nil, cobra.ShellCompDirectiveNoFileComp
	}
	list := &metav1.PartialObjectMetadataList{}
	list.SetGroupVersionKind(listKind)
	if err := c.List(cmd.Context(), list); err != nil {
		return nil, cobra.ShellCompDirectiveNoFileComp
	}
	var names []string
	for _, item := range list.Items {
		names = append(names, item.Name)
	}
	return names, cobra.ShellCompDirectiveNoFileComp
}

// CompleteSkyhooks completes the name of a Skyhook.
func (f *Factory) CompleteSkyhooks(cmd *cobra.Command, args []string, _ string) ([]string, cobra.ShellCompDirective) {
	if len(args) > 0 {
		return nil, cobra.ShellCompDirectiveNoFileComp
	}
	return f.complete(cmd, v1alpha1.GroupVersion.WithKind("SkyhookList"))
}

// CompleteNodes completes names of nodes.
func (f *Factory) CompleteNodes(cmd *cobra.Command, _ []string, _ string) ([]string, cobra.ShellCompDirective) {
	return f.complete(cmd, corev1.SchemeGroupVersion.WithKind("NodeList"))
}

func (f *Factory) completeNamespaces(cmd *cobra.Command, _ []string, _ string) ([]string, cobra.ShellCompDirective) {
	return f.complete(cmd, corev1.SchemeGroupVersion.WithKind("NamespaceList"))
}
