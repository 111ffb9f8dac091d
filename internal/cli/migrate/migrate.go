// SPDX-FileCopyrightText: The Skyhook authors
// SPDX-License-Identifier: Apache-2.0

// Package migrate has the commands that move objects, nodes and manifests from and to other operators.
package migrate

import (
	"fmt"

	"github.com/spf13/cobra"
	admissionv1 "k8s.io/api/admissionregistration/v1"
	appsv1 "k8s.io/api/apps/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/skyhook-k8s/skyhook/internal/cli/session"
	"github.com/skyhook-k8s/skyhook/internal/migrate"
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
	if _, err := f.CheckFormat(); err != nil {
		return nil, err
	}
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
	return f.TrimNodes(c)
}
