// SPDX-FileCopyrightText: The Skyhook authors
// SPDX-License-Identifier: Apache-2.0

package cluster

import (
	"context"
	"fmt"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/skyhook-k8s/skyhook/api/skyhook/v1alpha1"
	"github.com/skyhook-k8s/skyhook/internal/cluster/gates"
	"github.com/skyhook-k8s/skyhook/internal/policy"
	"github.com/skyhook-k8s/skyhook/internal/rollout"
	"github.com/skyhook-k8s/skyhook/internal/skyhook/plan"
)

// policyYAML is a policy that allows one node at a time; more is added to its spec.
func policyYAML(more string) string {
	return `
apiVersion: skyhook.nvidia.com/v1alpha1
kind: DeploymentPolicy
metadata: {name: careful}
spec:
  default: {budget: {count: 1}, strategy: {fixed: {}}}
` + more
}

func withPolicy(hook string) string {
	return strings.Replace(hook, "  packages:", "  deploymentPolicy: careful\n  packages:", 1)
}

// verdict is the engine's verdict on a node, after the name of its reason.
func (s *scenario) verdict(hook, node string) string {
	s.Helper()
	_, decided := s.decide(s.cluster)
	for _, r := range decided.Reports {
		for _, v := range r.Verdicts {
			if r.Rollout == plan.Ref(hook) && v.Node == node {
				return string(v.Why.Reason) + ": " + v.Why.Text
			}
		}
	}
	return ""
}

// passes makes so many passes, with kubelets in between.
func (s *scenario) passes(n int) {
	s.Helper()
	for range n {
		s.pass()
		s.now = s.now.Add(time.Second)
		s.SettlePods()
	}
}

// passUntilComplete makes passes until a Skyhook is complete.
func (s *scenario) passUntilComplete(name string) {
	s.Helper()
	for range 80 {
		s.passes(1)
		if s.GetSkyhook(name).Status.Status == v1alpha1.StatusComplete {
			return
		}
	}
	s.Errorf("after 80 passes %s is %s; the verdicts are %q and %q", name, s.GetSkyhook(name).Status.Status, s.verdict(name, "n1"), s.verdict(name, "n2"))
}

func (s *scenario) getPolicy() *v1alpha1.DeploymentPolicy {
	s.Helper()
	p := &v1alpha1.DeploymentPolicy{}
	s.Must(client.IgnoreNotFound(s.Client.Get(context.Background(), client.ObjectKey{Name: "careful"}, p)))
	return p
}

// TestPolicyComesAndGoes shows that a missing policy blocks with a reason until it is created. While a policy is used it
// cannot be deleted, and names its users.
func TestPolicyComesAndGoes(t *testing.T) {
	s := newScenario(t, 1)
	s.Apply(withPolicy(demo))
	s.passes(3)
	if got := s.verdict("demo", "n1"); got != "PolicyMissing: DeploymentPolicy careful does not exist: create it, or correct deploymentPolicy" {
		t.Errorf("without its policy the verdict is %q", got)
	}
	hook := s.GetSkyhook("demo")
	if hook.Status.Status != v1alpha1.StatusBlocked || !meta.IsStatusConditionTrue(hook.Status.Conditions, v1alpha1.ConditionDeploymentPolicyNotFound) {
		t.Errorf("without its policy it is %s: %v", hook.Status.Status, hook.Status.Conditions)
	}
	s.Apply(policyYAML(""))
	s.passUntilComplete("demo")
	s.Must(s.Client.Delete(context.Background(), s.getPolicy()))
	s.passes(3)
	p := s.getPolicy()
	if p.UID == "" || !slices.Contains(p.Finalizers, v1alpha1.FinalizerDeploymentPolicy) {
		t.Fatalf("it was deleted though it is used: %v", p.Finalizers)
	}
	o, plan := s.decide(s.cluster)
	status := policy.BuildStatus(o.Objects.Policies[0], o.Objects.PolicyUsers(plan)["careful"], plan.Groups, s.now)
	blocked := meta.FindStatusCondition(status.Conditions, v1alpha1.ConditionDeletionBlocked)
	if blocked == nil || blocked.Message != "used by Skyhook/demo: delete them, or have them name another policy, to let the deletion continue" {
		t.Errorf("its deletion reports %v", blocked)
	}
	if status.Users != 1 || status.NodesTotal != 1 || status.CompleteNodes != "1/1" || !meta.IsStatusConditionTrue(status.Conditions, v1alpha1.ConditionReady) {
		t.Errorf("its status is %+v", status)
	}
	s.Must(s.Client.Delete(context.Background(), s.GetSkyhook("demo")))
	s.passes(6)
	if p := s.getPolicy(); p.UID != "" {
		t.Errorf("it is unused, and stays: %v", p.Finalizers)
	}
}

// TestDefaultPolicy shows that the operator's default applies to Skyhooks that name no policy and have no budget.
func TestDefaultPolicy(t *testing.T) {
	s := newScenario(t, 2)
	s.cluster.options.Config.DefaultPolicy = "careful"
	s.Apply(demo)
	s.passes(2)
	if got := s.verdict("demo", "n1"); !strings.HasPrefix(got, "PolicyMissing: DeploymentPolicy careful, which the operator's --default-deployment-policy names, does not exist") {
		t.Errorf("without the default the verdict is %q", got)
	}
	s.Apply(policyYAML(""))
	s.passes(3)
	if got := s.verdict("demo", "n2"); !strings.HasPrefix(got, "Batch: ") && !strings.HasPrefix(got, "Budget: ") {
		t.Errorf("with the default the verdict on n2 is %q", got)
	}
	s.Apply(strings.Replace(demo, "  packages:", "  interruptionBudget: {percent: 100}\n  packages:", 1))
	s.passes(2)
	if got := s.verdict("demo", "n2"); strings.HasPrefix(got, "Batch: ") || strings.HasPrefix(got, "Budget: ") {
		t.Errorf("with a budget of its own the verdict on n2 is %q", got)
	}
	s.passUntilComplete("demo")
}

// TestWindowsInPolicy shows that a closed window is reported with its next opening, and that an invalid one is refused.
func TestWindowsInPolicy(t *testing.T) {
	s := newScenario(t, 1)
	s.now = time.Date(2030, 5, 3, 12, 0, 0, 0, time.UTC) // a Friday
	s.Apply(policyYAML(`  windows: {timeZone: Europe/Berlin, open: [{schedule: 0 8 * * 6, duration: 10h}]}`))
	s.Apply(withPolicy(demo))
	s.passes(3)
	if got := s.verdict("demo", "n1"); got != "Window: every window of DeploymentPolicy careful is closed, the next opens 2030-05-04 08:00 CEST" {
		t.Errorf("on Friday the verdict is %q", got)
	}
	_, plan := s.decide(s.cluster)
	if want := time.Date(2030, 5, 4, 6, 0, 0, 0, time.UTC); !plan.Next.Equal(want) {
		t.Errorf("the next pass is at %s, want %s", plan.Next, want)
	}
	if c := s.GetSkyhook("demo").Status.CompartmentStatuses[v1alpha1.DefaultCompartment]; c.Reason != "Window" || !strings.Contains(c.Message, "2030-05-04 08:00") {
		t.Errorf("the compartment reports %q: %q", c.Reason, c.Message)
	}
	s.Apply(policyYAML(`  windows: {open: [{schedule: 0 0 30 2 *, duration: 1h}]}`))
	s.passes(2)
	if got := s.verdict("demo", "n1"); got != "InvalidSpec: windows of DeploymentPolicy careful cannot be used: window 1 never opens: correct its schedule, or the blackouts that cover it" {
		t.Errorf("with a window that never opens the verdict is %q", got)
	}
	s.Apply(policyYAML("  windows: null\n  paused: true"))
	s.passes(2)
	if got := s.verdict("demo", "n1"); got != "Paused: DeploymentPolicy careful is paused" {
		t.Errorf("paused the verdict is %q", got)
	}
	s.Apply(policyYAML("  paused: false"))
	s.passUntilComplete("demo")
}

// TestPrometheusGate shows that a query is made only while nodes wait, and that none is admitted before it passes.
func TestPrometheusGate(t *testing.T) {
	var value, asked atomic.Int64
	value.Store(7)
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		asked.Add(1)
		fmt.Fprintf(w, `{"status":"success","data":{"resultType":"vector","result":[{"metric":{"job":"web"},"value":[0,"%d"]}]}}`, value.Load())
	}))
	defer server.Close()
	s := newScenario(t, 1)
	s.Apply(policyYAML(fmt.Sprintf(`  health: {prometheus: [{name: errors, url: %q, query: errors, atMost: "5"}]}`, server.URL)))
	s.passes(2)
	if asked.Load() != 0 {
		t.Error("a query was made though the policy is unused")
	}
	s.Apply(withPolicy(demo))
	s.passes(4)
	if got := s.verdict("demo", "n1"); got != `HealthGate: gate errors: the query gives 7 for {job="web"}, and must give at most 5` {
		t.Errorf("the verdict is %q", got)
	}
	value.Store(5)
	s.now = s.now.Add(gates.AnswerLifetime)
	s.passUntilComplete("demo")
	before := asked.Load()
	s.now = s.now.Add(gates.AnswerLifetime)
	s.passes(3)
	if asked.Load() != before {
		t.Error("a query was made though no node waits")
	}
}

// setNodeHealth makes a node report a device and a condition.
func (s *scenario) setNodeHealth(node, gpus string, deadlock corev1.ConditionStatus) {
	s.Helper()
	n := s.GetNode(node)
	changed := n.DeepCopy()
	changed.Status.Capacity = corev1.ResourceList{"nvidia.com/gpu": resource.MustParse("8")}
	changed.Status.Allocatable = corev1.ResourceList{"nvidia.com/gpu": resource.MustParse(gpus)}
	changed.Status.Conditions = append(slices.DeleteFunc(changed.Status.Conditions, func(c corev1.NodeCondition) bool { return c.Type == "KernelDeadlock" }),
		corev1.NodeCondition{Type: "KernelDeadlock", Status: deadlock})
	s.Must(s.Client.Status().Patch(context.Background(), changed, client.MergeFrom(n)))
}

// TestLedgerAfterScopeChange: admissions that are written to the status of a policy count when its users have their own
// budgets again, or name it no more, and the policy is kept until they cannot be on their way any more.
func TestLedgerAfterScopeChange(t *testing.T) {
	for name, change := range map[string]func(*scenario){
		"scope": func(s *scenario) { s.Patch(s.getPolicy(), `{"spec":{"scope":"Skyhook"}}`) },
		"dropped": func(s *scenario) {
			s.Patch(s.GetSkyhook("demo"), `{"spec":{"deploymentPolicy":null,"interruptionBudget":{"count":1}}}`)
			s.Must(s.Client.Delete(context.Background(), s.getPolicy()))
		},
	} {
		t.Run(name, func(t *testing.T) {
			s := newScenario(t, 2)
			s.Apply(policyYAML("  scope: Policy\n"))
			s.Apply(withPolicy(demo))
			s.pass()
			seats := fmt.Sprintf(
				`{"status":{"internal":{"admission":{"epoch":9,"seats":[{"rollout":"Skyhook/demo","node":"n2","batch":9,"since":%q}]}}}}`, s.now.UTC().Format(time.RFC3339))
			s.Must(s.Client.Status().Patch(context.Background(), s.getPolicy(), client.RawPatch(types.MergePatchType, []byte(seats))))
			change(s)
			for range 4 {
				s.pass()
			}
			if o, plan := s.decide(s.cluster); s.CountAdmitted() > 0 {
				t.Errorf("a node is admitted beside the one that the policy names: %v, %v", o.Objects.Policies, plan.Actions)
			}
			if p := s.getPolicy(); p.UID == "" || len(p.Finalizers) == 0 {
				t.Error("the policy is gone before its admissions have expired")
			}
			s.now = s.now.Add(rollout.ReservationTerm + time.Second)
			for range 4 {
				s.pass()
			}
			if n := s.CountAdmitted(); n != 1 {
				t.Errorf("%d nodes are admitted after the admissions have expired", n)
			}
			if p := s.getPolicy(); name == "dropped" && p.UID != "" {
				t.Errorf("the policy is still there: %v", p.Finalizers)
			}
		})
	}
}

// TestDeletedPolicyWithFutureAdmission: an operator with a wrong clock wrote an admission. Nobody waits until that time comes.
func TestDeletedPolicyWithFutureAdmission(t *testing.T) {
	s := newScenario(t, 1)
	s.Apply(policyYAML("  scope: Policy\n"))
	s.Apply(withPolicy(demo))
	s.pass()
	seats := fmt.Sprintf(`{"status":{"internal":{"admission":{"epoch":9,"seats":[{"rollout":"Skyhook/gone","node":"n1","batch":9,"since":%q}]}}}}`,
		s.now.Add(3*time.Hour).UTC().Format(time.RFC3339))
	s.Must(s.Client.Status().Patch(context.Background(), s.getPolicy(), client.RawPatch(types.MergePatchType, []byte(seats))))
	s.Patch(s.GetSkyhook("demo"), `{"spec":{"deploymentPolicy":null,"interruptionBudget":{"count":1}}}`)
	s.Must(s.Client.Delete(context.Background(), s.getPolicy()))
	for range 4 {
		s.pass()
	}
	if p := s.getPolicy(); p.UID != "" {
		t.Errorf("the policy waits for an admission that nobody is making: %v", p.Finalizers)
	}
}
