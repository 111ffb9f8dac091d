// SPDX-FileCopyrightText: The Skyhook authors
// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/go-logr/logr"
	admissionv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	toolscache "k8s.io/client-go/tools/cache"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"

	opv1 "github.com/skyhook-k8s/skyhook/api/nodeop/v1alpha1"
	"github.com/skyhook-k8s/skyhook/api/skyhook/v1alpha1"
)

// partOf selects what an installation consists of.
const partOf = "skyhook-operator"

// guardInterval is how often the policies are applied again, because nobody says when somebody deletes or changes them: the operator may
// not watch the policies of others.
const guardInterval = time.Minute

// removalGuard has the API server refuse to delete the operator while something needs it. `kubectl delete -k` deletes the
// operator, its roles and the CRDs at the same moment: objects with a finalizer of ours would then never go. For Skyhooks,
// the policy itself looks for one. NodeOps are namespaced, which such a policy cannot look up for cluster-scoped objects,
// so a policy of their own is bound as long as one of them runs. The chart cannot contain the policies: no such policy can guard
// another one, so a refused `kubectl delete -k` would delete the guard, and the next one everything.
type removalGuard struct {
	cached    client.Reader
	client    client.Client
	namespace string
	requests  chan struct{}
	bound     *bool // whether the policy for NodeOps is bound; nil when unknown
}

// configureRemovalGuard guards the removal of the operator, or deletes the policies that an earlier operator made for that.
// The operator also runs without the rights for it.
func configureRemovalGuard(ctx context.Context, c client.Client, informers cache.Cache, o Options) {
	var err error
	if o.GuardRemoval {
		err = runRemovalGuard(ctx, c, informers, o.Skyhook.Namespace, o.Log)
	} else {
		err = deleteRemovalGuard(ctx, c)
	}
	if err != nil && ctx.Err() == nil {
		o.Log.Error(err, "cannot update the policies that guard the removal of the operator")
	}
}

// runRemovalGuard keeps the policies up to date until the context ends.
func runRemovalGuard(ctx context.Context, c client.Client, informers cache.Cache, namespace string, log logr.Logger) error {
	g := &removalGuard{cached: informers, client: c, namespace: namespace, requests: make(chan struct{}, 1)}
	informer, err := informers.GetInformer(ctx, &opv1.NodeOp{})
	if err != nil {
		return fmt.Errorf("watching NodeOps: %w", err)
	}
	if _, err := informer.AddEventHandler(toolscache.ResourceEventHandlerFuncs{
		AddFunc: func(any) { g.requestSync() }, UpdateFunc: func(_, _ any) { g.requestSync() }, DeleteFunc: func(any) { g.requestSync() },
	}); err != nil {
		return fmt.Errorf("watching NodeOps: %w", err)
	}
	again := time.NewTicker(guardInterval)
	defer again.Stop()
	g.run(ctx, again.C, log)
	return nil
}

// run updates the policies when it is requested, and applies all of them at each tick.
func (g *removalGuard) run(ctx context.Context, again <-chan time.Time, log logr.Logger) {
	for {
		if err := g.syncPolicies(ctx); err != nil && ctx.Err() == nil {
			log.Error(err, "cannot update the policies that guard the removal of the operator")
			if !sleep(ctx, 5*time.Second) {
				return
			}
			continue
		}
		select {
		case <-ctx.Done():
			return
		case <-g.requests:
		case <-again:
			g.bound = nil
		}
	}
}

func (g *removalGuard) requestSync() { signal(g.requests) }

// syncPolicies applies the policies once, and binds the one for NodeOps while one of them needs the operator.
func (g *removalGuard) syncPolicies(ctx context.Context) error {
	ops := &opv1.NodeOpList{}
	if err := g.cached.List(ctx, ops); err != nil {
		return fmt.Errorf("listing NodeOps: %w", err)
	}
	needed := slices.ContainsFunc(ops.Items, func(o opv1.NodeOp) bool { return slices.Contains(o.Finalizers, opv1.FinalizerNodeOp) })
	if g.bound == nil {
		if err := g.applyPolicies(ctx); err != nil {
			return err
		}
	} else if *g.bound == needed {
		return nil
	}
	var err error
	if needed {
		err = g.applyBinding(ctx, v1alpha1.InUseByNodeOps, nil)
	} else {
		err = client.IgnoreNotFound(g.client.Delete(ctx, &admissionv1.ValidatingAdmissionPolicyBinding{ObjectMeta: metav1.ObjectMeta{Name: v1alpha1.InUseByNodeOps}}))
	}
	if err != nil {
		return fmt.Errorf("binding the policy for NodeOps: %w", err)
	}
	g.bound = &needed
	return nil
}

// deleteRemovalGuard deletes the policies of an operator that guarded its removal.
func deleteRemovalGuard(ctx context.Context, c client.Writer) error {
	var errs []error
	for _, name := range []string{v1alpha1.InUse, v1alpha1.InUseByNodeOps} {
		at := metav1.ObjectMeta{Name: name}
		errs = append(errs, client.IgnoreNotFound(c.Delete(ctx, &admissionv1.ValidatingAdmissionPolicyBinding{ObjectMeta: at})),
			client.IgnoreNotFound(c.Delete(ctx, &admissionv1.ValidatingAdmissionPolicy{ObjectMeta: at})))
	}
	return errors.Join(errs...)
}

// applyPolicies applies both policies, and binds the one for Skyhooks.
func (g *removalGuard) applyPolicies(ctx context.Context) error {
	skyhooks := &admissionv1.ParamKind{APIVersion: v1alpha1.GroupVersion.String(), Kind: "Skyhook"}
	const last = "Delete these first and wait until they are gone: without the operator nobody finishes them"
	if err := g.applyPolicy(ctx, v1alpha1.InUse, skyhooks, "'Skyhook ' + params.metadata.name + ' needs the operator. "+last+"'"); err != nil {
		return err
	}
	if err := g.applyPolicy(ctx, v1alpha1.InUseByNodeOps, nil, "'NodeOps that are under way need the operator. "+last+"'"); err != nil {
		return err
	}
	allow := admissionv1.AllowAction
	return g.applyBinding(ctx, v1alpha1.InUse, &admissionv1.ParamRef{Selector: &metav1.LabelSelector{}, ParameterNotFoundAction: &allow})
}

// applyPolicy applies a policy that, where it is bound, refuses to delete any object of the operator. When the CRD of the
// kind is gone, nothing is refused.
func (g *removalGuard) applyPolicy(ctx context.Context, name string, of *admissionv1.ParamKind, message string) error {
	owned, err := g.newMetadata(ctx, name)
	if err != nil {
		return err
	}
	ignore := admissionv1.Ignore
	deletes := func(group string, resources ...string) admissionv1.NamedRuleWithOperations {
		return admissionv1.NamedRuleWithOperations{RuleWithOperations: admissionv1.RuleWithOperations{
			Operations: []admissionv1.OperationType{admissionv1.Delete},
			Rule:       admissionv1.Rule{APIGroups: []string{group}, APIVersions: []string{"*"}, Resources: resources},
		}}
	}
	return g.applyObject(ctx, &admissionv1.ValidatingAdmissionPolicy{
		TypeMeta: metav1.TypeMeta{APIVersion: "admissionregistration.k8s.io/v1", Kind: "ValidatingAdmissionPolicy"}, ObjectMeta: owned,
		Spec: admissionv1.ValidatingAdmissionPolicySpec{
			FailurePolicy: &ignore,
			ParamKind:     of,
			MatchConstraints: &admissionv1.MatchResources{
				ObjectSelector: &metav1.LabelSelector{MatchLabels: map[string]string{"app.kubernetes.io/part-of": partOf}},
				ResourceRules: []admissionv1.NamedRuleWithOperations{
					deletes("", "namespaces", "serviceaccounts", "services", "limitranges"), deletes("apps", "deployments"),
					deletes("apiextensions.k8s.io", "customresourcedefinitions"), deletes("policy", "poddisruptionbudgets"), deletes("networking.k8s.io", "networkpolicies"),
					deletes("rbac.authorization.k8s.io", "roles", "rolebindings", "clusterroles", "clusterrolebindings"),
				},
			},
			Validations: []admissionv1.Validation{{Expression: "false", MessageExpression: message}},
		},
	})
}

func (g *removalGuard) applyBinding(ctx context.Context, name string, params *admissionv1.ParamRef) error {
	owned, err := g.newMetadata(ctx, name)
	if err != nil {
		return err
	}
	return g.applyObject(ctx, &admissionv1.ValidatingAdmissionPolicyBinding{
		TypeMeta: metav1.TypeMeta{APIVersion: "admissionregistration.k8s.io/v1", Kind: "ValidatingAdmissionPolicyBinding"}, ObjectMeta: owned,
		Spec: admissionv1.ValidatingAdmissionPolicyBindingSpec{PolicyName: name, ParamRef: params, ValidationActions: []admissionv1.ValidationAction{admissionv1.Deny}},
	})
}

// newMetadata is the metadata of a policy and its binding. The operator's namespace owns them, so that they go with it.
func (g *removalGuard) newMetadata(ctx context.Context, name string) (metav1.ObjectMeta, error) {
	home := &corev1.Namespace{}
	if err := g.client.Get(ctx, client.ObjectKey{Name: g.namespace}, home); err != nil {
		return metav1.ObjectMeta{}, fmt.Errorf("reading namespace %s: %w", g.namespace, err)
	}
	return metav1.ObjectMeta{Name: name, OwnerReferences: []metav1.OwnerReference{{APIVersion: "v1", Kind: "Namespace", Name: home.Name, UID: home.UID}}}, nil
}

// applyObject creates or updates an object by server-side apply.
func (g *removalGuard) applyObject(ctx context.Context, o client.Object) error {
	raw, err := json.Marshal(o)
	if err != nil {
		return fmt.Errorf("writing %T: %w", o, err)
	}
	if err := g.client.Patch(ctx, o, client.RawPatch(types.ApplyPatchType, raw), client.FieldOwner(eventComponent), client.ForceOwnership); err != nil {
		return fmt.Errorf("applying %T %s: %w", o, o.GetName(), err)
	}
	return nil
}
