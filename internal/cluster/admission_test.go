// SPDX-FileCopyrightText: The Skyhook authors
// SPDX-License-Identifier: Apache-2.0

package cluster

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	admissionv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/skyhook-k8s/skyhook/api/skyhook/v1alpha1"
	"github.com/skyhook-k8s/skyhook/internal/rollout"
)

// deny has the API server refuse what an expression matches, as administrators do, until the function that it returns is called.
func (s *scenario) deny(operation admissionv1.OperationType, resourceName, expression string) (allow func()) {
	s.Helper()
	ctx := context.Background()
	name := strings.ToLower(fmt.Sprintf("%s-%s", s.Namespace, strings.ReplaceAll(resourceName, "/", "-")))
	fail := admissionv1.Fail
	policy := &admissionv1.ValidatingAdmissionPolicy{ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: admissionv1.ValidatingAdmissionPolicySpec{
		FailurePolicy: &fail,
		MatchConstraints: &admissionv1.MatchResources{ResourceRules: []admissionv1.NamedRuleWithOperations{{RuleWithOperations: admissionv1.RuleWithOperations{
			Operations: []admissionv1.OperationType{operation},
			Rule:       admissionv1.Rule{APIGroups: []string{"", "policy"}, APIVersions: []string{"*"}, Resources: []string{resourceName}},
		}}}},
		Validations: []admissionv1.Validation{{Expression: "!(" + expression + ")", Message: "the security team does not allow it"}},
	}}
	binding := &admissionv1.ValidatingAdmissionPolicyBinding{ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: admissionv1.ValidatingAdmissionPolicyBindingSpec{
		PolicyName: name, ValidationActions: []admissionv1.ValidationAction{admissionv1.Deny},
	}}
	remove := func() {
		s.Must(client.IgnoreNotFound(s.Client.Delete(ctx, binding)))
		s.Must(client.IgnoreNotFound(s.Client.Delete(ctx, policy)))
	}
	s.Must(s.Client.Create(ctx, policy))
	s.Must(s.Client.Create(ctx, binding))
	s.Cleanup(remove)
	return remove
}

// isDenied reports whether a request is refused by such a policy; it is made as a dry run.
func isDenied(err error) bool {
	return err != nil && strings.Contains(err.Error(), "the security team does not allow it")
}

// TestAdmissionPolicy shows that no node is touched for a Skyhook whose pods an admission policy refuses, that the other Skyhook goes
// on, and that the first one is carried out when nothing refuses it.
func TestAdmissionPolicy(t *testing.T) {
	s := newScenario(t, 2)
	barred := func() error {
		return s.Client.Create(context.Background(), &corev1.Pod{
			ObjectMeta: metav1.ObjectMeta{Namespace: s.Namespace, Name: "probe"},
			Spec:       corev1.PodSpec{Containers: []corev1.Container{{Name: "c", Image: "registry.example/packages/barred:1"}}},
		}, client.DryRunAll)
	}
	const expression = `object.spec.containers.exists(c, c.image.contains('barred')) || has(object.spec.initContainers) && object.spec.initContainers.exists(c, c.image.contains('barred'))`
	allow := s.deny(admissionv1.Create, "pods", expression)
	s.Eventually("the policy refuses pods", func() bool { return isDenied(barred()) })

	s.Apply(strings.ReplaceAll(twoPackages, "name: demo", "name: refused"))
	s.Apply(demo)
	for range 12 {
		s.step(time.Second)
	}
	accepted := meta.FindStatusCondition(s.GetSkyhook("refused").Status.Conditions, v1alpha1.ConditionAccepted)
	if accepted.Reason != string(rollout.ReasonRefused) || !strings.Contains(accepted.Message, "the security team does not allow it") {
		t.Errorf("Accepted is %v", accepted)
	}
	if n := s.GetNode("n1"); n.Annotations[v1alpha1.PrefixRecord+"refused"] != "" {
		t.Errorf("the node was touched: %v", n.Annotations)
	}
	if got := s.GetSkyhook("demo").Status.Status; got != v1alpha1.StatusComplete {
		t.Errorf("the other Skyhook is %s", got)
	}

	allow()
	s.Eventually("the policy refuses nothing", func() bool { return !isDenied(barred()) })
	s.now = s.now.Add(10 * time.Minute)
	s.finish()
	if got := s.GetSkyhook("refused").Status.Status; got != v1alpha1.StatusComplete {
		t.Errorf("when it was allowed it became %s", got)
	}
}

// TestDeletionIsRefused shows that a Skyhook is deleted though a policy refuses the pods that would uninstall it, whichever operator leads:
// the attempts fail, and the deletion goes on without the node.
func TestDeletionIsRefused(t *testing.T) {
	s := newScenario(t, 1)
	s.Apply(strings.Replace(demo, "image: ", "uninstall: {enabled: true}\n      image: ", 1))
	s.finish()
	ctx, own := context.Background(), s.GetSkyhook("demo")
	probe := func() error {
		return s.Client.Create(ctx, &corev1.Pod{
			ObjectMeta: metav1.ObjectMeta{Namespace: s.Namespace, Name: "probe"}, Spec: corev1.PodSpec{Containers: []corev1.Container{{Name: "c", Image: "i"}}},
		}, client.DryRunAll)
	}
	allow := s.deny(admissionv1.Create, "pods", "true")
	defer func() {
		allow()
		s.Eventually("the policy refuses nothing", func() bool { return !isDenied(probe()) })
	}()
	s.Eventually("the policy refuses pods", func() bool { return isDenied(probe()) })
	s.Must(s.Client.Delete(ctx, own))
	s.cluster = s.newCluster(s.requests)
	for range 60 {
		s.step(30 * time.Second)
		if err := s.Client.Get(ctx, client.ObjectKeyFromObject(own), own); err != nil {
			s.Must(client.IgnoreNotFound(err))
			return
		}
		if blocked := meta.FindStatusCondition(own.Status.Conditions, v1alpha1.ConditionDeletionBlocked); blocked != nil && blocked.Status == metav1.ConditionTrue {
			t.Fatalf("DeletionBlocked says %q", blocked.Message)
		}
	}
	t.Errorf("it is still there: %+v", own.Status)
}

// TestEvictionPolicy shows that a pod that an admission policy protects from eviction does not keep the others from being asked.
func TestEvictionPolicy(t *testing.T) {
	s := newScenario(t, 1)
	for _, name := range []string{"app-1", "app-2"} {
		s.Apply(workload(name, "n1"))
	}
	s.SettlePods()
	allow := s.deny(admissionv1.Create, "pods/eviction", "object.metadata.name == 'app-1'")
	evict := func() error {
		return s.Client.SubResource("eviction").Create(context.Background(), s.pod("app-1"), &policyv1.Eviction{}, client.DryRunAll)
	}
	s.Eventually("the policy refuses evictions", func() bool { return isDenied(evict()) })
	s.Apply(driver)
	for range 6 {
		s.step(time.Second)
	}
	if !s.podExists("app-1") || s.podExists("app-2") {
		t.Errorf("app-1 is left: %v; app-2 is left: %v", s.podExists("app-1"), s.podExists("app-2"))
	}
	ready := meta.FindStatusCondition(s.GetSkyhook("driver").Status.Conditions, v1alpha1.ConditionReady).Message
	if !strings.Contains(ready, "app-1 cannot be evicted") || !strings.Contains(ready, "the security team does not allow it") {
		t.Errorf("Ready says %q", ready)
	}
	allow()
	s.Eventually("the policy refuses nothing", func() bool { return !isDenied(evict()) })
	s.now = s.now.Add(10 * time.Minute)
	for range 6 {
		s.step(time.Second)
	}
	if s.podExists("app-1") {
		t.Error("the pod is not evicted though nothing refuses that")
	}
}

// TestQuota shows that a quota that is used up is reported, and that the stage runs when there is room.
func TestQuota(t *testing.T) {
	s := newScenario(t, 1)
	hard := corev1.ResourceList{"pods": resource.MustParse("0")}
	quota := &corev1.ResourceQuota{ObjectMeta: metav1.ObjectMeta{Namespace: s.Namespace, Name: "few"}, Spec: corev1.ResourceQuotaSpec{Hard: hard}}
	s.Must(s.Client.Create(context.Background(), quota))
	s.Cleanup(func() { s.Must(client.IgnoreNotFound(s.Client.Delete(context.Background(), quota))) })
	quota.Status = corev1.ResourceQuotaStatus{Hard: hard, Used: hard} // as its controller does
	s.Must(s.Client.Status().Update(context.Background(), quota))
	create := func() error {
		return s.Client.Create(context.Background(), &corev1.Pod{
			ObjectMeta: metav1.ObjectMeta{Namespace: s.Namespace, Name: "probe"},
			Spec:       corev1.PodSpec{Containers: []corev1.Container{{Name: "c", Image: "i"}}},
		}, client.DryRunAll)
	}
	isFull := func() bool {
		err := create()
		return err != nil && strings.Contains(err.Error(), "exceeded quota: few")
	}
	s.Eventually("the quota is enforced", isFull)
	s.Apply(demo)
	for range 6 {
		s.step(time.Second)
	}
	if got := s.entryOf("n1", "tuning|1.1.0"); got.State != v1alpha1.StateErroring || got.Restarts == 0 {
		t.Errorf("the package is %s after %d attempts", got.State, got.Restarts)
	}
	if got := s.readyMessage(); !strings.Contains(got, "exceeded quota: few") {
		t.Errorf("Ready says %q", got)
	}
	s.Must(s.Client.Delete(context.Background(), quota))
	s.Eventually("the quota is gone", func() bool { return !isFull() })
	s.now = s.now.Add(10 * time.Minute)
	s.finish()
	if got := s.GetSkyhook("demo").Status.Status; got != v1alpha1.StatusComplete {
		t.Errorf("with room the Skyhook is %s", got)
	}
}
