// SPDX-FileCopyrightText: The Skyhook authors
// SPDX-License-Identifier: Apache-2.0

package session

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/google/go-containerregistry/pkg/name"
	appsv1 "k8s.io/api/apps/v1"
	coordinationv1 "k8s.io/api/coordination/v1"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/skyhook-k8s/skyhook/internal/dump"
	"github.com/skyhook-k8s/skyhook/internal/options"
)

// labelVersion is the recommended label with the version of an application.
const labelVersion = "app.kubernetes.io/version"

// Namespace returns the namespace of the operator and its pods: --operator-namespace, or where one leads, or where its Deployment is. -n
// chooses among several, and counts when none is found: it named this namespace before it named those of NodeOps.
func (f *Factory) Namespace(ctx context.Context) string {
	if f.OperatorNamespace == "" {
		found := f.findNamespaces(ctx)
		f.OperatorNamespace = cmp.Or(*f.KubeFlags.Namespace, DefaultNamespace)
		if len(found) > 0 && !slices.Contains(found, f.OperatorNamespace) {
			f.OperatorNamespace = found[0]
		}
	}
	return f.OperatorNamespace
}

// findNamespaces lists the namespaces in which an operator leads, or without one those of their Deployments. Whoever may not list
// them finds none.
func (f *Factory) findNamespaces(ctx context.Context) (found []string) {
	c, err := f.NewClient()
	if err != nil {
		return nil // the command fails with it, too
	}
	f.Note("looking for the operator in all namespaces")
	for _, l := range f.listLeaders(ctx, c) {
		found = append(found, l.Namespace)
	}
	list := &appsv1.DeploymentList{}
	if len(found) == 0 {
		if err := c.List(ctx, list, client.MatchingLabels{"control-plane": "controller-manager"}); err != nil {
			f.Note("%v", err)
		}
	}
	for i := range list.Items {
		if len(OperatorImages(&list.Items[i])) > 0 {
			found = append(found, list.Items[i].Namespace)
		}
	}
	return found
}

// listLeaders lists the leases of operators that lead.
func (f *Factory) listLeaders(ctx context.Context, c client.Reader) []coordinationv1.Lease {
	leases := &coordinationv1.LeaseList{}
	if err := c.List(ctx, leases, client.MatchingFields{"metadata.name": options.LeaseName}); err != nil {
		f.Note("%v", err)
	}
	return slices.DeleteFunc(leases.Items, func(l coordinationv1.Lease) bool { return !isHeld(&l, time.Now()) })
}

// isHeld reports whether a lease has a holder that renewed it lately. The clocks of nodes differ, so twice its term counts.
func isHeld(l *coordinationv1.Lease, now time.Time) bool {
	return ptr.Deref(l.Spec.HolderIdentity, "") != "" && l.Spec.RenewTime != nil && l.Spec.RenewTime.Add(2*options.LeaseTerm(l.Spec)).After(now)
}

// startFindingOtherLeaders finds, in the background, the operators of other namespaces that lead, so that the one of this namespace
// waits. The function it returns gives their leases.
func (f *Factory) startFindingOtherLeaders(ctx context.Context, c client.Reader, namespace string) func() []coordinationv1.Lease {
	found := make(chan []coordinationv1.Lease, 1)
	go func() {
		leaders := f.listLeaders(ctx, c)
		if slices.ContainsFunc(leaders, func(l coordinationv1.Lease) bool { return l.Namespace == namespace }) {
			leaders = nil
		}
		found <- leaders
	}()
	return func() []coordinationv1.Lease { return <-found }
}

// NodeOpNamespace returns the namespace in which a command creates a NodeOp: that of -n, or the operator's.
func (f *Factory) NodeOpNamespace(ctx context.Context) string {
	return cmp.Or(*f.KubeFlags.Namespace, f.Namespace(ctx))
}

// FindOperatorVersion finds the operator among the Deployments of its namespace.
func FindOperatorVersion(ctx context.Context, f *Factory, c client.Reader) (string, error) {
	operators, err := ListOperators(ctx, f, c)
	if err != nil {
		return "", err
	}
	for i := range operators {
		if v := operators[i].Labels[labelVersion]; v != "" {
			return v, nil
		}
		for _, image := range OperatorImages(&operators[i]) {
			image, _, _ = strings.Cut(image, "@")
			if tag, err := name.NewTag(image); err == nil && tag.TagStr() != name.DefaultTag {
				return tag.TagStr(), nil
			}
		}
	}
	if len(operators) > 0 {
		return "", fmt.Errorf("the operator's deployment in namespace %s tells no version", f.Namespace(ctx))
	}
	return "", errors.New("no operator in namespace " + f.Namespace(ctx) + ": name its namespace with --operator-namespace")
}

// ListOperators lists the Deployments of operators.
func ListOperators(ctx context.Context, f *Factory, c client.Reader) ([]appsv1.Deployment, error) {
	f.Note("listing the deployments of namespace %s", f.Namespace(ctx))
	list := &appsv1.DeploymentList{}
	if err := c.List(ctx, list, client.InNamespace(f.Namespace(ctx))); err != nil {
		return nil, fmt.Errorf("listing deployments in namespace %s: %w", f.Namespace(ctx), err)
	}
	var operators []appsv1.Deployment
	for _, d := range list.Items {
		if len(OperatorImages(&d)) > 0 {
			operators = append(operators, d)
		}
	}
	return operators, nil
}

// ReadOperatorSettings reads the settings of the operator from its Deployment.
func ReadOperatorSettings(ctx context.Context, f *Factory, c client.Reader) (*options.Options, error) {
	cluster, err := dump.New(c, time.Now())
	if err != nil {
		return nil, err
	}
	f.Note("reading the settings of the operator in namespace %s", f.Namespace(ctx))
	err = cluster.FindOperator(ctx, f.Namespace(ctx), func(d *appsv1.Deployment) bool { return len(OperatorImages(d)) > 0 })
	if errors.Is(err, dump.ErrNoOperator) {
		err = fmt.Errorf("%w: name its namespace with --operator-namespace", err)
	}
	return &cluster.Operator.Options, err
}

// OperatorImages returns the images of an operator's Deployment; none when it is not an operator.
func OperatorImages(d *appsv1.Deployment) []string {
	isOperator := false
	for key, value := range d.Labels {
		isOperator = isOperator || strings.Contains(key+"="+value, "skyhook")
	}
	var images []string
	for _, c := range d.Spec.Template.Spec.Containers {
		isOperator = isOperator || strings.Contains(c.Image, "skyhook")
		images = append(images, c.Image)
	}
	if !isOperator {
		return nil
	}
	return images
}
