// SPDX-FileCopyrightText: The Skyhook authors
// SPDX-License-Identifier: Apache-2.0

// Package migrate has the commands that move objects, nodes and manifests from and to other operators.
package migrate

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/spf13/cobra"
	admissionv1 "k8s.io/api/admissionregistration/v1"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/skyhook-k8s/skyhook/internal/cli/session"
	"github.com/skyhook-k8s/skyhook/internal/migrate"
	"github.com/skyhook-k8s/skyhook/internal/output"
)

// NewMigrateCommand returns the command `migrate`.
func NewMigrateCommand(f *session.Factory) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "migrate",
		Short: "Move from another operator to this one",
		Long: "Move from another operator to this one: from NodeWright v0.18 to v0.20, which has objects and keys of its own, and from\n" +
			"kured. NVIDIA Skyhook and older releases of NodeWright need no migration: an upgrade takes them over in place.",
		RunE: session.RunGroup,
	}
	cmd.AddCommand(newMigrateNodeWrightCommand(f), newMigrateKuredCommand(f))
	return cmd
}

// newMigrationClient returns a client for the kinds of other operators too.
func newMigrationClient(f *session.Factory) (client.Client, error) {
	config, err := f.RestConfig()
	if err != nil {
		return nil, err
	}
	scheme, mapper, err := session.SupportedKinds()
	if err != nil {
		return nil, err
	}
	if err := admissionv1.AddToScheme(scheme); err != nil {
		return nil, fmt.Errorf("preparing to read the cluster: %w", err)
	}
	kinds, ok := mapper.(*meta.DefaultRESTMapper)
	if !ok {
		return nil, fmt.Errorf("the kinds of the cluster are a %T", mapper)
	}
	side := migrate.NodeWright
	kinds.Add(side.GVK(), meta.RESTScopeRoot)
	kinds.AddSpecific(side.PolicyGVK(), side.PolicyGVK().GroupVersion().WithResource("deploymentpolicies"),
		side.PolicyGVK().GroupVersion().WithResource("deploymentpolicy"), meta.RESTScopeRoot)
	kinds.Add(admissionv1.SchemeGroupVersion.WithKind("ValidatingWebhookConfiguration"), meta.RESTScopeRoot)
	kinds.Add(admissionv1.SchemeGroupVersion.WithKind("MutatingWebhookConfiguration"), meta.RESTScopeRoot)
	kinds.Add(appsv1.SchemeGroupVersion.WithKind("DaemonSet"), meta.RESTScopeNamespace)
	c, err := client.New(config, client.Options{Scheme: scheme, Mapper: mapper})
	if err != nil {
		return nil, fmt.Errorf("finding the cluster: %w", err)
	}
	return f.LimitClient(c)
}

func newMigrateKuredCommand(f *session.Factory) *cobra.Command {
	return &cobra.Command{
		Use:   "kured",
		Short: "Print manifests that do the same as kured",
		Long: "Print a DeploymentPolicy and a NodeOp for each DaemonSet of kured in the cluster, from its flags and environment. What has\n" +
			"no counterpart is a comment, and a warning on standard error. Nothing is changed.",
		Example: "  kubectl skyhook migrate kured\n" +
			"  kubectl skyhook migrate kured -o json",
		Args: output.Args(),
		RunE: func(cmd *cobra.Command, _ []string) error { return printMigrated(cmd.Context(), f) },
	}
}

// printMigrated prints the manifests for each DaemonSet of kured in the cluster.
func printMigrated(ctx context.Context, f *session.Factory) error {
	c, err := newMigrationClient(f)
	if err != nil {
		return err
	}
	found, err := convertKured(ctx, f, c)
	if err != nil {
		return err
	}
	var texts, names []string
	for _, m := range found {
		for _, g := range m.Gaps {
			f.Warn("%s", g)
		}
		text, err := m.Text()
		if err != nil {
			return err
		}
		texts = append(texts, text)
		names = append(names, output.WithKind("deploymentpolicy", m.Policy.Name)...)
		names = append(names, output.WithKind("nodeop", m.NodeOp.Name)...)
	}
	all := strings.Join(texts, "---\n")
	if format, _ := f.CheckFormat(); format == output.YAML { // with the comments
		_, err := fmt.Fprint(f.Out, all)
		return err
	}
	return f.Print(output.Answer{Value: found, Names: names, Text: func(bool) string { return all }})
}

func convertKured(ctx context.Context, f *session.Factory, c client.Client) ([]*migrate.Manifests, error) {
	f.Note("listing the nodes, and the daemonsets of all namespaces")
	list, nodes := &appsv1.DaemonSetList{}, &corev1.NodeList{}
	if err := errors.Join(c.List(ctx, list), c.List(ctx, nodes)); err != nil {
		return nil, fmt.Errorf("listing daemonsets and nodes: %w", err)
	}
	var out []*migrate.Manifests
	for i := range list.Items {
		if migrate.FindKured(&list.Items[i]) == nil {
			continue
		}
		m, err := migrate.FromKured(&list.Items[i], nodes.Items)
		if err != nil {
			return nil, err
		}
		out = append(out, m)
	}
	if len(out) == 0 {
		return nil, errors.New("no DaemonSet runs an image called kured in this cluster: choose another --context")
	}
	return out, nil
}
