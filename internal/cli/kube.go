// SPDX-FileCopyrightText: The Skyhook authors
// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"net/url"

	appsv1 "k8s.io/api/apps/v1"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	corev1client "k8s.io/client-go/kubernetes/typed/core/v1"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/util/retry"
	"sigs.k8s.io/controller-runtime/pkg/client"

	nodeopv1 "github.com/skyhook-k8s/skyhook/api/nodeop/v1alpha1"
	"github.com/skyhook-k8s/skyhook/api/skyhook/v1alpha1"
	"github.com/skyhook-k8s/skyhook/internal/cli/dump"
)

// defaultNamespace is where the operator and its pods are unless somebody says otherwise.
const defaultNamespace = "skyhook"

// policyBinding is read by its name only.
var policyBinding = schema.GroupVersionKind{Group: "admissionregistration.k8s.io", Version: "v1", Kind: "ValidatingAdmissionPolicyBinding"}

// supportedKinds are the kinds that are read and written, with their scope: asking the server for them would cost more calls
// than the work itself.
func supportedKinds() (*runtime.Scheme, meta.RESTMapper, error) {
	scheme, err := dump.Scheme()
	if err != nil {
		return nil, nil, err
	}
	mapper := meta.NewDefaultRESTMapper(nil)
	mapper.Add(corev1.SchemeGroupVersion.WithKind("Node"), meta.RESTScopeRoot)
	for _, kind := range []schema.GroupVersionKind{
		corev1.SchemeGroupVersion.WithKind("Pod"), corev1.SchemeGroupVersion.WithKind("ConfigMap"), corev1.SchemeGroupVersion.WithKind("Event"),
		appsv1.SchemeGroupVersion.WithKind("Deployment"), batchv1.SchemeGroupVersion.WithKind("Job"),
		policyv1.SchemeGroupVersion.WithKind("PodDisruptionBudget"),
		nodeopv1.GroupVersion.WithKind("NodeOp"), nodeopv1.GroupVersion.WithKind("NodeOpUpgrade"),
	} {
		mapper.Add(kind, meta.RESTScopeNamespace)
	}
	mapper.Add(policyBinding, meta.RESTScopeRoot)
	mapper.Add(v1alpha1.GroupVersion.WithKind("Skyhook"), meta.RESTScopeRoot)
	mapper.AddSpecific(v1alpha1.GroupVersion.WithKind("DeploymentPolicy"), v1alpha1.GroupVersion.WithResource("deploymentpolicies"),
		v1alpha1.GroupVersion.WithResource("deploymentpolicy"), meta.RESTScopeRoot)
	return scheme, mapper, nil
}

func (a *factory) restConfig() (*rest.Config, error) {
	c, err := a.kubeFlags.ToRESTConfig()
	if err != nil {
		return nil, fmt.Errorf("finding the cluster: %w", err)
	}
	c.DisableCompression = c.DisableCompression || isLocal(c.Host)
	return c, nil
}

// isLocal says that a server is on this machine: to it nothing is gained by packing answers, and packing takes longer than
// everything else.
func isLocal(server string) bool {
	u, err := url.Parse(server)
	if err != nil {
		return false
	}
	address := net.ParseIP(u.Hostname())
	return u.Hostname() == "localhost" || address != nil && address.IsLoopback()
}

func (a *factory) namespace() string { return *a.kubeFlags.Namespace }

// newClient is the API server.
func (a *factory) newClient() (client.Client, error) {
	config, err := a.restConfig()
	if err != nil {
		return nil, err
	}
	scheme, mapper, err := supportedKinds()
	if err != nil {
		return nil, err
	}
	c, err := client.New(config, client.Options{Scheme: scheme, Mapper: mapper})
	if err != nil {
		return nil, fmt.Errorf("finding the cluster: %w", err)
	}
	core, err := corev1client.NewForConfig(config)
	if err != nil {
		return nil, fmt.Errorf("finding the cluster: %w", err)
	}
	return trimmedNodes{c, core.RESTClient()}, nil
}

// errNotInstalled says that the server does not know the kind at all.
var errNotInstalled = errors.New("this cluster does not know Skyhooks: install the operator with its CRDs first, or choose another --context")

// errNoNodeOps says that the server knows no NodeOps.
var errNoNodeOps = errors.New("this cluster does not know NodeOps, by which this is done: install the CRDs of the chart, or choose another --context")

// getSkyhook reads one Skyhook; the error IsNotFound when there is none.
func (a *factory) getSkyhook(ctx context.Context, c client.Client, name string) (*v1alpha1.Skyhook, error) {
	s := &v1alpha1.Skyhook{}
	a.Note("reading Skyhook %s", name)
	err := c.Get(ctx, client.ObjectKey{Name: name}, s)
	switch {
	case err == nil:
		return s, nil
	case isUnknownKind(err):
		return nil, errNotInstalled
	}
	return nil, fmt.Errorf("reading Skyhook %s: %w", name, err)
}

// isUnknownKind tells a server that lacks the CRD from one that lacks the object.
func isUnknownKind(err error) bool {
	return apierrors.IsNotFound(err) && apierrors.HasStatusCause(err, metav1.CauseTypeUnexpectedServerResponse)
}

// patchAnnotation sets or, with nil, removes one annotation of a Skyhook. Nobody else writes it, so nothing is compared.
func (a *factory) patchAnnotation(ctx context.Context, c client.Client, s *v1alpha1.Skyhook, key string, value *string) error {
	raw, err := json.Marshal(map[string]any{"metadata": map[string]any{"annotations": map[string]*string{key: value}}})
	if err != nil {
		return fmt.Errorf("writing Skyhook %s: %w", s.Name, err)
	}
	a.Note("patching Skyhook %s: %s", s.Name, raw)
	if err := c.Patch(ctx, s, client.RawPatch(types.MergePatchType, raw)); err != nil {
		return fmt.Errorf("writing Skyhook %s: %w", s.Name, err)
	}
	return nil
}

// onConflict does something again, a few times, when somebody else was faster.
func onConflict(f func() error) error { return retry.RetryOnConflict(retry.DefaultBackoff, f) }
