// SPDX-FileCopyrightText: The Skyhook authors
// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/spf13/cobra"
	appsv1 "k8s.io/api/apps/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/skyhook-k8s/skyhook/internal/migrate"
	"github.com/skyhook-k8s/skyhook/internal/output"
)

func newMigrateKuredCommand(f *factory) *cobra.Command {
	return &cobra.Command{
		Use:   "kured",
		Short: "Print manifests that do the same as kured",
		Long: "Print a DeploymentPolicy and a NodeOp for each DaemonSet of kured in the cluster, from its flags and environment. What has\n" +
			"no counterpart is a comment, and a warning on standard error. Nothing is changed.",
		Example: "  kubectl skyhook migrate kured\n" +
			"  kubectl skyhook migrate kured -o json",
		Args: output.Args(),
		RunE: func(cmd *cobra.Command, _ []string) error { return printMigrated(cmd.Context(), f, convertKured) },
	}
}

func newMigratePlansCommand(f *factory) *cobra.Command {
	return &cobra.Command{
		Use:   "system-upgrade-controller",
		Short: "Print manifests that do the same as Plans",
		Long: "Print a NodeOp for each Plan of system-upgrade-controller in the cluster, and a DeploymentPolicy if it needs one. What has\n" +
			"no counterpart is a comment, and a warning on standard error. Nothing is changed.",
		Aliases: []string{"suc"},
		Example: "  kubectl skyhook migrate system-upgrade-controller\n" +
			"  kubectl skyhook migrate system-upgrade-controller -o name",
		Args: output.Args(),
		RunE: func(cmd *cobra.Command, _ []string) error { return printMigrated(cmd.Context(), f, convertPlans) },
	}
}

// printMigrated prints the manifests for what convert finds in the cluster.
func printMigrated(ctx context.Context, f *factory, convert func(context.Context, *factory, client.Client) ([]*migrate.Manifests, error)) error {
	c, err := f.newMigrationClient()
	if err != nil {
		return err
	}
	found, err := convert(ctx, f, c)
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
		if m.Policy != nil {
			names = append(names, output.WithKind("deploymentpolicy", m.Policy.Name)...)
		}
		names = append(names, output.WithKind("nodeop", m.NodeOp.Name)...)
	}
	all := strings.Join(texts, "---\n")
	if format, _ := f.CheckFormat(); format == output.YAML { // with the comments
		_, err := fmt.Fprint(f.Out, all)
		return err
	}
	return f.Print(output.Answer{Value: found, Names: names, Text: func(bool) string { return all }})
}

func convertKured(ctx context.Context, f *factory, c client.Client) ([]*migrate.Manifests, error) {
	f.Note("listing the daemonsets of all namespaces")
	list := &appsv1.DaemonSetList{}
	if err := c.List(ctx, list); err != nil {
		return nil, fmt.Errorf("listing daemonsets: %w", err)
	}
	var out []*migrate.Manifests
	for i := range list.Items {
		if migrate.FindKured(&list.Items[i]) == nil {
			continue
		}
		m, err := migrate.FromKured(&list.Items[i])
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

func convertPlans(ctx context.Context, f *factory, c client.Client) ([]*migrate.Manifests, error) {
	f.Note("listing the plans of all namespaces")
	list := &unstructured.UnstructuredList{}
	list.SetGroupVersionKind(migrate.PlanGVK.GroupVersion().WithKind(migrate.PlanGVK.Kind + "List"))
	if err := c.List(ctx, list); err != nil {
		if isUnknownKind(err) {
			return nil, errors.New("this cluster does not know Plans of system-upgrade-controller: choose another --context")
		}
		return nil, fmt.Errorf("listing plans: %w", err)
	}
	if len(list.Items) == 0 {
		return nil, errors.New("there are no Plans of system-upgrade-controller in this cluster")
	}
	var out []*migrate.Manifests
	for i := range list.Items {
		m, err := migrate.FromPlan(&list.Items[i])
		if err != nil {
			return nil, err
		}
		out = append(out, m)
	}
	return out, nil
}
