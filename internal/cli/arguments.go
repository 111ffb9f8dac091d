// SPDX-FileCopyrightText: The Skyhook authors
// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"github.com/spf13/cobra"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/skyhook-k8s/skyhook/api/skyhook/v1alpha1"
)

// complete gives the names of all objects of a kind to the shell. What goes wrong only means that nothing is offered.
func (a *factory) complete(cmd *cobra.Command, list schema.GroupVersionKind) ([]string, cobra.ShellCompDirective) {
	c, err := a.newClient()
	if err != nil {
		return nil, cobra.ShellCompDirectiveNoFileComp
	}
	all := &metav1.PartialObjectMetadataList{}
	all.SetGroupVersionKind(list)
	if err := c.List(cmd.Context(), all); err != nil {
		return nil, cobra.ShellCompDirectiveNoFileComp
	}
	var out []string
	for _, item := range all.Items {
		out = append(out, item.Name)
	}
	return out, cobra.ShellCompDirectiveNoFileComp
}

func (a *factory) completeSkyhooks(cmd *cobra.Command, args []string, _ string) ([]string, cobra.ShellCompDirective) {
	if len(args) > 0 {
		return nil, cobra.ShellCompDirectiveNoFileComp
	}
	return a.complete(cmd, v1alpha1.GroupVersion.WithKind("SkyhookList"))
}

func (a *factory) completeNodes(cmd *cobra.Command, _ []string, _ string) ([]string, cobra.ShellCompDirective) {
	return a.complete(cmd, corev1.SchemeGroupVersion.WithKind("NodeList"))
}

// skyhookFlag adds --skyhook.
func (a *factory) skyhookFlag(cmd *cobra.Command, name *string, required bool) {
	usage := "the `Skyhook`"
	if required {
		usage += "; required"
	}
	cmd.Flags().StringVar(name, "skyhook", "", usage)
	_ = cmd.RegisterFlagCompletionFunc("skyhook", func(cmd *cobra.Command, _ []string, _ string) ([]string, cobra.ShellCompDirective) {
		return a.completeSkyhooks(cmd, nil, "")
	})
	if required {
		_ = cmd.MarkFlagRequired("skyhook")
	}
}

// nodeFlag adds --node, which may be given several times.
func (a *factory) nodeFlag(cmd *cobra.Command, nodes *[]string, usage string) {
	cmd.Flags().StringArrayVar(nodes, "node", nil, usage)
	_ = cmd.RegisterFlagCompletionFunc("node", a.completeNodes)
}
