// SPDX-FileCopyrightText: The Skyhook authors
// SPDX-License-Identifier: Apache-2.0

package cluster

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/skyhook-k8s/skyhook/api/skyhook/v1alpha1"
	"github.com/skyhook-k8s/skyhook/internal/node"
	"github.com/skyhook-k8s/skyhook/internal/rollout"
)

// refusingTransport answers some requests as an admission policy or a webhook does.
type refusingTransport struct {
	next     http.RoundTripper
	refuses  func(verbAndPath, body string) bool
	conflict bool // it answers 409 instead of 403
	refused  int
}

func (g *refusingTransport) RoundTrip(q *http.Request) (*http.Response, error) {
	var body []byte
	if q.Body != nil {
		var err error
		if body, err = io.ReadAll(q.Body); err != nil {
			return nil, err
		}
		q.Body = io.NopCloser(bytes.NewReader(body))
	}
	if !g.refuses(q.Method+" "+q.URL.Path, string(body)) {
		return g.next.RoundTrip(q)
	}
	g.refused++
	status := metav1.Status{
		TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "Status"}, Status: metav1.StatusFailure, Code: http.StatusForbidden, Reason: metav1.StatusReasonForbidden,
		Message: "exceeded quota: team, requested: 1, limited: 0.",
	}
	if g.conflict {
		status.Code, status.Reason, status.Message = http.StatusConflict, metav1.StatusReasonConflict, "admission webhook denied the request: not now"
	}
	answer, err := json.Marshal(status)
	if err != nil {
		return nil, err
	}
	return &http.Response{
		StatusCode: int(status.Code), Status: http.StatusText(int(status.Code)), Header: http.Header{"Content-Type": {"application/json"}},
		Body: io.NopCloser(bytes.NewReader(answer)), Request: q,
	}, nil
}

// newRefusingScenario is a scenario in which some requests are refused.
func newRefusingScenario(t *testing.T, nodes int, refuses func(verbAndPath, body string) bool) (*scenario, *refusingTransport) {
	t.Helper()
	s := newScenario(t, nodes)
	g := &refusingTransport{refuses: refuses}
	s.wrapRequests(func(next http.RoundTripper) http.RoundTripper {
		g.next = next
		return g
	})
	return s, g
}

const twoPackages = `
apiVersion: skyhook.nvidia.com/v1alpha1
kind: Skyhook
metadata: {name: demo}
spec:
  nodeSelectors: {matchLabels: {pool: gpu}}
  packages:
    able: {version: 1.0.0, image: registry.example/packages/able}
    barred: {version: 1.0.0, image: registry.example/packages/barred}
`

// step makes one pass, lets time go by and ends the pods that run.
func (s *scenario) step(wait time.Duration) Outcome {
	s.Helper()
	out := s.pass()
	s.now = s.now.Add(wait)
	s.SettlePods()
	return out
}

// entryOf is what a node records of a package of the Skyhook demo.
func (s *scenario) entryOf(nodeName, key string) v1alpha1.PackageStatus {
	s.Helper()
	n := s.GetNode(nodeName)
	return node.Parse(n, nil).Skyhook("demo").State[key]
}

// readyMessage is the message of the condition Ready of the Skyhook demo.
func (s *scenario) readyMessage() string {
	s.Helper()
	return meta.FindStatusCondition(s.GetSkyhook("demo").Status.Conditions, v1alpha1.ConditionReady).Message
}

// TestRefusedPod shows that a pod that is refused is a failed attempt with the text of the API server, retried with a back-off,
// and that it stops neither the other package of the node nor another node.
func TestRefusedPod(t *testing.T) {
	isOpen := false
	s, g := newRefusingScenario(t, 2, func(request, body string) bool {
		return !isOpen && strings.HasPrefix(request, "POST ") && strings.HasSuffix(request, "/pods") &&
			strings.Contains(body, "packages/barred") && strings.Contains(body, "n1")
	})
	s.Apply(twoPackages)
	s.pass()
	if n1 := s.countPodsOn("n1"); n1 != 1 {
		t.Errorf("%d pods run on n1 while one of two is refused", n1)
	}
	if n2 := s.countPodsOn("n2"); n2 != 2 {
		t.Errorf("%d pods run on n2, where nothing is refused", n2)
	}
	for range 12 {
		s.step(time.Second)
	}
	if got := s.entryOf("n1", "able|1.0.0"); got.State != v1alpha1.StateComplete {
		t.Errorf("the other package of n1 is %s %s", got.Stage, got.State)
	}
	if got := s.GetNode("n2").Annotations[v1alpha1.PrefixStatus+"demo"]; got != string(v1alpha1.StatusComplete) {
		t.Errorf("n2 is %s", got)
	}
	if got := s.entryOf("n1", "barred|1.0.0"); got.State != v1alpha1.StateErroring || got.Restarts < 1 || got.Restarts > 2 {
		t.Errorf("the refused package is %s after %d attempts", got.State, got.Restarts)
	}
	if got := s.readyMessage(); !strings.Contains(got, "exceeded quota: team") || !strings.Contains(got, rollout.Why{Reason: rollout.ReasonRefused}.Remedy("", "", "")) {
		t.Errorf("Ready says %q", got)
	}
	few := g.refused
	for range 20 {
		s.step(time.Second)
	}
	if g.refused > few+2 {
		t.Errorf("%d requests in 20 seconds after %d", g.refused-few, few)
	}
	if got := s.GetSkyhook("demo").Status.Status; got != v1alpha1.StatusErroring && got != v1alpha1.StatusInProgress {
		t.Errorf("the Skyhook is %s", got)
	}
	isOpen = true
	s.now = s.now.Add(10 * time.Minute)
	s.finish()
	if got := s.GetSkyhook("demo").Status.Status; got != v1alpha1.StatusComplete {
		t.Errorf("when nothing is refused any more it is %s", got)
	}
}

func (s *scenario) countPodsOn(nodeName string) int {
	s.Helper()
	count := 0
	for _, name := range s.podNodes() {
		if name == nodeName {
			count++
		}
	}
	return count
}

// TestRefusedNodeMetadata shows that a quota for ConfigMaps stops the stages that mount the metadata of their node, as failed attempts.
func TestRefusedNodeMetadata(t *testing.T) {
	isOpen := false
	s, _ := newRefusingScenario(t, 1, func(request, _ string) bool {
		return !isOpen && strings.HasPrefix(request, "PATCH ") && strings.Contains(request, "/configmaps/")
	})
	s.Apply(demo)
	for range 4 {
		s.step(time.Second)
	}
	if got := s.entryOf("n1", "tuning|1.1.0"); got.State != v1alpha1.StateErroring || got.Restarts != 1 {
		t.Errorf("the package is %s after %d attempts", got.State, got.Restarts)
	}
	if got := s.podNames(); len(got) > 0 {
		t.Errorf("pods run without their metadata: %v", got)
	}
	isOpen = true
	s.now = s.now.Add(10 * time.Minute)
	s.finish()
}

// TestRefusedConfigMap shows that a ConfigMap that a quota denies is the reason why nothing begins, and that it is asked for with a
// back-off and at once after an edit.
func TestRefusedConfigMap(t *testing.T) {
	isOpen := true
	s, g := newRefusingScenario(t, 1, func(request, _ string) bool {
		return !isOpen && (strings.HasPrefix(request, "POST ") || strings.HasPrefix(request, "PUT ")) && strings.Contains(request, "/configmaps")
	})
	s.Apply(demo)
	s.finish()
	s.pass()
	isOpen = false
	s.Apply(strings.ReplaceAll(demo, "echo hello", "echo another"))
	for range 8 {
		s.step(time.Second)
	}
	if g.refused != 2 { // the documented one and the frozen one
		t.Errorf("%d requests were made within eight seconds", g.refused)
	}
	h := s.GetSkyhook("demo")
	ready, accepted := meta.FindStatusCondition(h.Status.Conditions, v1alpha1.ConditionReady), meta.FindStatusCondition(h.Status.Conditions, v1alpha1.ConditionAccepted)
	if h.Status.Status != v1alpha1.StatusBlocked || ready.Status != metav1.ConditionFalse || ready.ObservedGeneration != h.Generation || !strings.Contains(ready.Message, "exceeded quota: team") {
		t.Errorf("the Skyhook is %s; Ready is %v", h.Status.Status, ready)
	}
	if accepted.Status != metav1.ConditionFalse || accepted.Reason != string(rollout.ReasonRefused) {
		t.Errorf("Accepted is %v", accepted)
	}
	s.now = s.now.Add(5 * time.Second)
	s.step(time.Second)
	s.step(time.Second)
	if got := s.readyMessage(); g.refused != 4 || !strings.Contains(got, "exceeded quota") {
		t.Errorf("%d requests were made after the back-off, and Ready says %q", g.refused, got)
	}
	isOpen = true
	s.Apply(strings.ReplaceAll(demo, "echo hello", "echo a third"))
	s.step(time.Second)
	if got := s.podNames(); len(got) != 1 {
		t.Errorf("after an edit pods run: %v", got)
	}
	s.finish()
}

// TestRefusedNode shows that a node that an admission policy protects takes no place in the budget from another one.
func TestRefusedNode(t *testing.T) {
	isOpen := false
	s, g := newRefusingScenario(t, 2, func(request, _ string) bool {
		return !isOpen && strings.HasPrefix(request, "PATCH ") && strings.HasSuffix(request, "/nodes/n1")
	})
	s.Apply(strings.Replace(demo, "spec:", "spec:\n  interruptionBudget: {count: 1}", 1))
	for range 40 {
		s.step(time.Second)
	}
	if g.refused > 3 {
		t.Errorf("the node was written to %d times in 40 seconds", g.refused)
	}
	if got := s.readyMessage(); !strings.Contains(got, "n1: the node cannot be changed: patching the node: exceeded quota") {
		t.Errorf("Ready says %q", got)
	}
	s.now = s.now.Add(rollout.ReservationTerm)
	for range 10 {
		s.step(time.Second)
	}
	if got := s.GetNode("n2").Annotations[v1alpha1.PrefixStatus+"demo"]; got != string(v1alpha1.StatusComplete) {
		t.Errorf("n2 is %q", got)
	}
	isOpen = true
	s.now = s.now.Add(10 * time.Minute)
	s.finish()
}

// TestRefusedTaint shows that a new node that must not be tainted is named with the reason, and prepared when it may be.
func TestRefusedTaint(t *testing.T) {
	isOpen := false
	s, _ := newRefusingScenario(t, 1, func(request, body string) bool {
		return !isOpen && strings.HasPrefix(request, "PATCH ") && strings.HasSuffix(request, "/nodes/n1") && strings.Contains(body, `"taints"`)
	})
	s.Apply(strings.Replace(demo, "spec:", "spec:\n  runtimeRequired: true\n  autoTaintNewNodes: true", 1))
	text := ""
	for range 10 {
		text += s.step(time.Second).Untainted["n1"]
	}
	if !strings.Contains(text, "exceeded quota") {
		t.Errorf("the outcome says of n1: %q", text)
	}
	isOpen = true
	s.now = s.now.Add(10 * time.Minute)
	s.finish()
}

// TestRefusedEviction shows that one pod whose eviction an admission policy denies does not keep the others from being asked.
func TestRefusedEviction(t *testing.T) {
	s, g := newRefusingScenario(t, 1, func(request, _ string) bool {
		return strings.HasPrefix(request, "POST ") && strings.HasSuffix(request, "/pods/app-1/eviction")
	})
	for _, name := range []string{"app-1", "app-2", "app-3"} {
		s.Apply(workload(name, "n1"))
	}
	s.SettlePods()
	s.Apply(driver)
	for range 4 {
		s.step(time.Second)
	}
	pods := &corev1.PodList{}
	s.Must(s.Client.List(t.Context(), pods))
	var left []string
	for _, p := range pods.Items {
		if p.Namespace == "default" {
			left = append(left, p.Name)
		}
	}
	if !slices.Equal(left, []string{"app-1"}) || g.refused != 1 {
		t.Errorf("pods %v are left after %d refusals", left, g.refused)
	}
	why := meta.FindStatusCondition(s.GetSkyhook("driver").Status.Conditions, v1alpha1.ConditionReady).Message
	if !strings.Contains(why, "pod default/app-1 cannot be evicted: exceeded quota") {
		t.Errorf("Ready says %q", why)
	}
}

// TestRefusedDeletion shows that a pod whose deletion is refused does not stop the node, and is asked for with a back-off.
func TestRefusedDeletion(t *testing.T) {
	isOpen := false
	s, g := newRefusingScenario(t, 1, func(request, _ string) bool {
		return !isOpen && strings.HasPrefix(request, "DELETE ") && strings.Contains(request, "/pods/demo-able-1-0-0-apply")
	})
	s.Apply(twoPackages)
	for range 12 {
		s.step(500 * time.Millisecond)
	}
	if g.refused != 1 {
		t.Errorf("%d deletions in six seconds", g.refused)
	}
	if got := s.entryOf("n1", "barred|1.0.0"); got.State != v1alpha1.StateComplete || got.Stage != v1alpha1.StageConfig {
		t.Errorf("the other package is %s %s", got.Stage, got.State)
	}
	isOpen = true
	s.now = s.now.Add(10 * time.Minute)
	s.finish()
}

// TestDryRun shows that an object that the API server would refuse keeps its rollout from touching a node, and says why.
func TestDryRun(t *testing.T) {
	s := newScenario(t, 2)
	s.Apply(strings.Replace(demo, "spec:", "spec:\n  additionalTolerations: [{key: not/a/key, operator: Exists}]", 1))
	for range 3 {
		s.step(time.Second)
	}
	h := s.GetSkyhook("demo")
	accepted := meta.FindStatusCondition(h.Status.Conditions, v1alpha1.ConditionAccepted)
	if accepted.Status != metav1.ConditionFalse || accepted.Reason != string(rollout.ReasonRefused) || !strings.Contains(accepted.Message, "spec.tolerations[") {
		t.Errorf("Accepted is %v", accepted)
	}
	if n := s.GetNode("n1"); len(n.Annotations[v1alpha1.PrefixRecord+"demo"]) > 0 || h.Status.Status != v1alpha1.StatusBlocked {
		t.Errorf("the Skyhook is %s; the node has %v", h.Status.Status, n.Annotations)
	}
	if got := s.verdictOfReader("Skyhook/demo"); got.Why.Reason != rollout.ReasonRefused || !strings.Contains(got.Why.Text, "spec.tolerations[") {
		t.Errorf("another observer says %+v", got)
	}
	s.Apply(strings.Replace(demo, "spec:", "spec:\n  additionalTolerations: [{key: is/one, operator: Exists}]", 1))
	if got := s.verdictOfReader("Skyhook/demo"); got.Why.Reason == rollout.ReasonRefused {
		t.Errorf("after the edit another observer says %+v", got)
	}
	s.finish()
}

// verdictOfReader is what somebody who only reads, such as kubectl skyhook, says of a rollout on the node n1.
func (s *scenario) verdictOfReader(name string) rollout.Verdict {
	s.Helper()
	o := *s.cluster.options
	o.Client = nil
	_, plan := s.decide(New(o))
	for _, r := range plan.Reports {
		for _, v := range r.Verdicts {
			if r.Rollout == rollout.ParseRef(name) && v.Node == "n1" {
				return v
			}
		}
	}
	s.Fatalf("nothing is said of %s on n1", name)
	return rollout.Verdict{}
}

// TestDryRunOfNodeOp shows the same for a NodeOp.
func TestDryRunOfNodeOp(t *testing.T) {
	s := newScenario(t, 1)
	s.createNodeOp("up", "resources: {limits: {hugepages-2Mi: 2Mi}}")
	s.nodeOpPasses(3, time.Second)
	ready := meta.FindStatusCondition(s.getNodeOp("up").Status.Conditions, "Ready")
	if ready == nil || !strings.Contains(ready.Message, "HugePages") || len(s.listJobs()) > 0 {
		t.Errorf("Ready is %v", ready)
	}
	if n := s.GetNode("n1"); len(n.Annotations) > 0 {
		t.Errorf("the node has %v", n.Annotations)
	}
	if got := s.verdictOfReader("NodeOp/default/up"); got.Why.Reason != rollout.ReasonRefused {
		t.Errorf("another observer says %+v", got)
	}
	s.createNodeOp("patient", "preflight: {command: [id], activeDeadlineSeconds: 2147483647}")
	s.nodeOpPasses(3, time.Second)
	if pods := s.podNames(); len(s.getNodeOp("patient").Status.NodeStatuses) == 0 {
		t.Errorf("a check with the longest deadline is refused: %+v, pods %v", s.getNodeOp("patient").Status, pods)
	}
}

// TestPackageNamedLikeVolume runs packages whose names are those of other volumes of their pods.
func TestPackageNamedLikeVolume(t *testing.T) {
	s := newScenario(t, 1)
	s.Apply(strings.ReplaceAll(demo, "tuning", "root-mount"))
	s.finish()
	if got := s.GetSkyhook("demo").Status.Status; got != v1alpha1.StatusComplete {
		t.Errorf("the Skyhook is %s", got)
	}
}

// TestTooLargeIsRefused checks that an object that etcd does not take is refused, which the API server answers as an error of its own.
func TestTooLargeIsRefused(t *testing.T) {
	for message, want := range map[string]bool{
		"etcdserver: request is too large": true, "rpc error: code = ResourceExhausted desc = trying to send message larger than max (2100000 vs. 2097152)": true,
		"etcdserver: request timed out": false, `failed calling webhook "a": connection refused`: false,
	} {
		err := fmt.Errorf("creating pod: %w", &apierrors.StatusError{ErrStatus: metav1.Status{Code: http.StatusInternalServerError, Message: message}})
		if isRefused(err) != want {
			t.Errorf("%q is refused: %v", message, !want)
		}
	}
}
