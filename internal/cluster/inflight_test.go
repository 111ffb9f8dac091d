// SPDX-FileCopyrightText: The Skyhook authors
// SPDX-License-Identifier: Apache-2.0

package cluster

import (
	"context"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/skyhook-k8s/skyhook/api/skyhook/v1alpha1"
	"github.com/skyhook-k8s/skyhook/internal/rollout"
	"github.com/skyhook-k8s/skyhook/internal/skyhook/plan"
)

// blockingTransport blocks requests of one method to some paths until it is unblocked or their context ends.
type blockingTransport struct {
	next   http.RoundTripper
	method string
	blocks func(path string) bool
	open   chan struct{}

	mu      sync.Mutex
	waiting int
}

func (g *blockingTransport) RoundTrip(q *http.Request) (*http.Response, error) {
	if q.Method == g.method && g.blocks(q.URL.Path) {
		g.mu.Lock()
		g.waiting++
		g.mu.Unlock()
		select {
		case <-g.open:
		case <-q.Context().Done():
			return nil, q.Context().Err()
		}
	}
	return g.next.RoundTrip(q)
}

// endsWith is for paths with a suffix.
func endsWith(suffix string) func(path string) bool {
	return func(path string) bool { return strings.HasSuffix(path, suffix) }
}

func (g *blockingTransport) countWaiting() int {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.waiting
}

// newSlowScenario is a scenario whose Cluster does not wait for what it sends, with some of its patches blocked.
func newSlowScenario(t *testing.T, nodes int, ends string) (*scenario, *blockingTransport) {
	t.Helper()
	s := newScenario(t, nodes)
	g := &blockingTransport{method: http.MethodPatch, blocks: endsWith(ends), open: make(chan struct{})}
	s.wrapRequests(func(next http.RoundTripper) http.RoundTripper {
		g.next = next
		return g
	})
	s.cluster.options.OnComplete = func(string) {}
	t.Cleanup(func() {
		g.unblock()
		s.cluster.WaitForInFlight()
	})
	return s, g
}

// unblock lets all requests through.
func (g *blockingTransport) unblock() {
	select {
	case <-g.open:
	default:
		close(g.open)
	}
}

// waitUntilComplete waits until nothing is in flight but these nodes, and statuses and deletions while they are blocked: what is in
// flight reads the clock.
func (s *scenario) waitUntilComplete(nodes ...string) {
	s.Helper()
	s.Eventually("all but one node have landed", func() bool {
		now := s.cluster.inFlight.view()
		for _, n := range nodes {
			delete(now.nodes, n)
		}
		return len(now.nodes) == 0 && (len(now.deleting) == 0 || s.deletionsHang) && (len(now.statuses) == 0 || s.statusesHang)
	})
}

// passWithout is a pass while requests to some nodes are blocked.
func (s *scenario) passWithout(nodes ...string) {
	s.Helper()
	o, plan := s.decide(s.cluster)
	for _, a := range plan.Actions {
		if slices.Contains(nodes, a.Node) && s.cluster.IsInFlight(a.Node) {
			s.Errorf("%s of %s is planned though something is being sent there", a.Verb, a.Node)
		}
	}
	_, err := s.cluster.Apply(context.Background(), o, plan)
	s.Must(err)
	s.updateStatuses(o, plan)
	s.waitUntilComplete(nodes...)
	s.now = s.now.Add(time.Second)
	s.SettlePods()
}

// TestSlowNode shows that a request without an answer delays its own node only, and that nothing is sent there twice.
func TestSlowNode(t *testing.T) {
	s, g := newSlowScenario(t, 3, "/nodes/n1")
	s.Apply(demo)
	for range 12 {
		s.passWithout("n1")
	}
	for _, n := range []string{"n2", "n3"} {
		if got := s.GetNode(n).Annotations[v1alpha1.Group+"/status_demo"]; got != string(v1alpha1.StatusComplete) {
			t.Errorf("while n1 is slow %s is %q", n, got)
		}
	}
	if g.countWaiting() != 1 {
		t.Errorf("%d requests were sent to a node that answers none", g.countWaiting())
	}
	for _, p := range s.ListPods() {
		if p.Spec.NodeName == "n1" {
			t.Errorf("pod %s runs on a node that does not record it", p.Name)
		}
	}
	g.unblock()
	s.waitUntilComplete()
	for range 12 {
		s.passWithout()
	}
	if got := s.GetNode("n1").Annotations[v1alpha1.Group+"/status_demo"]; got != string(v1alpha1.StatusComplete) {
		t.Errorf("when n1 answers again it becomes %q", got)
	}
}

// TestSlowAnnotations shows that the stages of a node do not wait while other nodes, which wait for it, get their annotations: these are
// sent to a few of them at a time, and no more than maxStatusOnlyNodes are in flight.
func TestSlowAnnotations(t *testing.T) {
	s, g := newSlowScenario(t, maxStatusOnlyNodes+20, "")
	g.blocks = func(path string) bool {
		return strings.Contains(path, "/nodes/") && !strings.Contains(path+"/", "/nodes/n1/")
	}
	s.Apply(strings.Replace(demo, "spec:", "spec:\n  interruptionBudget: {count: 1}", 1))
	var others []string
	for i := 2; i <= maxStatusOnlyNodes+20; i++ {
		others = append(others, fmt.Sprintf("n%d", i))
	}
	for range 12 {
		s.passWithout(others...)
	}
	if got := s.GetNode("n1").Annotations[v1alpha1.Group+"/status_demo"]; got != string(v1alpha1.StatusComplete) {
		t.Errorf("while annotations of other nodes wait n1 is %q", got)
	}
	const next = 1 // node that was admitted after n1
	if got, want := g.countWaiting(), s.cluster.options.Parallel/4+next; got != want {
		t.Errorf("%d nodes are being written to, want %d", got, want)
	}
	if got, want := len(s.cluster.inFlight.view().nodes), maxStatusOnlyNodes+next; got != want {
		t.Errorf("%d nodes are in flight, want %d", got, want)
	}
}

// TestLatePlan shows that nothing is begun of a plan whose time is nearly over, and that the next pass does it.
func TestLatePlan(t *testing.T) {
	s := newScenario(t, 1)
	s.cluster.options.ApplyTimeout = time.Minute
	s.Apply(demo)
	apply := func(age time.Duration) Outcome {
		o, plan := s.decide(s.cluster)
		o.Objects.observedAt = o.Objects.observedAt.Add(-age)
		outcome, err := s.cluster.Apply(context.Background(), o, plan)
		s.Must(err)
		return outcome
	}
	if done := apply(0).AllActions(); len(done) == 0 {
		t.Fatal("nothing begins")
	}
	s.SettlePods()
	late := apply(50 * time.Second)
	if done := late.AllActions(); len(done) > 0 || late.RetryAt.IsZero() {
		t.Errorf("ten seconds before its time is over %d actions of a plan are begun, and the next pass is at %s", len(done), late.RetryAt)
	}
	if done := apply(0).AllActions(); len(done) == 0 {
		t.Error("what was left is not done by the next pass")
	}
}

// TestSlowDeletions shows that no stage waits for the deletion of the pod before, and that each pod is deleted once.
func TestSlowDeletions(t *testing.T) {
	s, g := newSlowScenario(t, 1, "")
	g.method, s.deletionsHang = http.MethodDelete, true
	s.Apply(demo)
	for range 12 {
		s.passWithout()
	}
	if got := s.GetNode("n1").Annotations[v1alpha1.Group+"/status_demo"]; got != string(v1alpha1.StatusComplete) {
		t.Errorf("while nothing can be deleted n1 is %q", got)
	}
	pods := s.podNames()
	if waiting := g.countWaiting(); len(pods) < 2 || waiting != len(pods) {
		t.Errorf("%d deletions were sent for the pods %v", waiting, pods)
	}
	if !s.cluster.inFlight.await(plan.Ref("demo")) {
		t.Error("nothing is known to be in flight for the Skyhook")
	}
	g.unblock()
	s.deletionsHang = false
	s.cluster.WaitForInFlight()
	s.passWithout()
	if got := s.podNames(); len(got) > 0 {
		t.Errorf("the pods %v are left", got)
	}
}

// TestSlowAdmission shows that an admission in flight counts in the budget, whatever the Skyhook becomes meanwhile; its
// definition stays, and the ledger is written once for it.
func TestSlowAdmission(t *testing.T) {
	s, g := newSlowScenario(t, 2, "/nodes/n1")
	s.Apply(strings.Replace(demo, "spec:", "spec:\n  interruptionBudget: {count: 1}", 1))
	s.passWithout("n1")
	s.Eventually("the admission of n1 is on its way", func() bool { return g.countWaiting() == 1 })
	s.Apply(strings.Replace(strings.Replace(demo, "spec:", "spec:\n  interruptionBudget: {count: 1}", 1), "echo hello", "echo another", 1))
	for range 5 {
		s.passWithout("n1")
	}
	if got := s.podNames(); len(got) > 0 {
		t.Errorf("with a budget of one node, on its way, there are pods %v", got)
	}
	seats := s.GetSkyhook("demo").Status.Internal.Admission
	if seats == nil || seats.Epoch != 1 || len(seats.Seats) != 1 {
		t.Errorf("the ledger is %+v, want it written once", seats)
	}
	g.unblock()
	s.waitUntilComplete()
	for range 25 {
		s.passWithout()
	}
	for _, n := range []string{"n1", "n2"} {
		if got := s.GetNode(n).Annotations[v1alpha1.Group+"/status_demo"]; got != string(v1alpha1.StatusComplete) {
			t.Errorf("in the end %s is %q", n, got)
		}
	}
}

// TestStopsInFlight shows that what is in flight is canceled when the leader stops, and that nothing is sent afterwards.
func TestStopsInFlight(t *testing.T) {
	s, g := newSlowScenario(t, 3, "/nodes/n1")
	s.Apply(demo)
	ctx, stop := context.WithCancel(context.Background())
	defer stop()
	o, plan := s.decide(s.cluster)
	_, err := s.cluster.Apply(ctx, o, plan)
	s.Must(err)
	s.Eventually("the request to n1 hangs", func() bool { return g.countWaiting() == 1 })
	s.waitUntilComplete("n1")
	stop()
	s.cluster.WaitForInFlight()
	if s.cluster.IsInFlight("n1") {
		t.Error("something is still being sent")
	}
	before := len(s.requests.list())
	g.unblock()
	next := s.newCluster(s.requests)
	if got := s.requests.list(); len(got) != before {
		t.Errorf("after the end were sent %v", got[before:])
	}
	s.cluster = next
	s.finish()
	runs := 0
	for _, q := range s.requests.list() {
		if strings.HasPrefix(q, http.MethodPost+" pods") {
			runs++
		}
	}
	if runs != 6 {
		t.Errorf("two stages on three nodes took %d pods", runs)
	}
}

// TestOverdue shows that a request past its deadline is an error with a backoff, and a canceled one is not.
func TestOverdue(t *testing.T) {
	now := time.Unix(1000, 0)
	hangs := func(ctx context.Context, _ *nodeWork) error {
		<-ctx.Done()
		return ctx.Err()
	}
	for _, c := range []struct {
		name  string
		ctx   func() (context.Context, context.CancelFunc)
		later time.Duration
	}{
		{"overdue", func() (context.Context, context.CancelFunc) {
			return context.WithTimeout(t.Context(), time.Millisecond)
		}, minNodeBackoff},
		{"canceled", func() (context.Context, context.CancelFunc) {
			ctx, cancel := context.WithCancel(t.Context())
			time.AfterFunc(time.Millisecond, cancel)
			return ctx, cancel
		}, 0},
	} {
		p := New(Options{Clock: func() time.Time { return now }}).newPass(&Compiled{Objects: &Objects{}})
		ctx, cancel := c.ctx()
		went := p.attempt(ctx, &nodeWork{node: "n1", actions: []rollout.Action{{Rollout: rollout.ParseRef("Skyhook/demo")}}}, hangs)
		cancel()
		out, err := p.inFlight.takeOutcome()
		if went || (err != nil) != (c.later > 0) || (out.Errors[rollout.ParseRef("Skyhook/demo")] != "") != (c.later > 0) || out.RetryAt.Sub(now) != c.later {
			t.Errorf("%s: went on: %v, error %v, errors %v, retry after %s", c.name, went, err, out.Errors, out.RetryAt.Sub(now))
		}
	}
}

// TestSlowStatus shows that a status without an answer delays no node, and is not written twice at the same time.
func TestSlowStatus(t *testing.T) {
	s, g := newSlowScenario(t, 2, "/nowhere")
	s.Apply(demo)
	for len(s.podNames()) < 2 {
		s.passWithout()
	}
	g.blocks, s.statusesHang = endsWith("/skyhooks/demo/status"), true
	for range 12 {
		s.passWithout()
	}
	for _, n := range []string{"n1", "n2"} {
		if got := s.GetNode(n).Annotations[v1alpha1.Group+"/status_demo"]; got != string(v1alpha1.StatusComplete) {
			t.Errorf("while the status is on its way %s is %q", n, got)
		}
	}
	if g.countWaiting() != 1 {
		t.Errorf("%d statuses were sent though none was answered", g.countWaiting())
	}
	g.unblock()
	s.statusesHang = false
	for range 3 {
		s.passWithout()
	}
	if got := s.GetSkyhook("demo").Status.Status; got != v1alpha1.StatusComplete {
		t.Errorf("in the end the status is %q", got)
	}
}

// TestSlowLedger shows that other nodes go on to their end while an admission is being written to the ledger, that the admission waits for it,
// and that the last status follows it.
func TestSlowLedger(t *testing.T) {
	s, g := newSlowScenario(t, 3, "/nowhere")
	budget := func(n string) string {
		return strings.Replace(demo, "spec:", "spec:\n  interruptionBudget: {count: "+n+"}", 1)
	}
	s.Apply(budget("2"))
	for len(s.podNames()) < 2 {
		s.passWithout()
	}
	before := s.podNames()
	s.Apply(budget("3"))
	s.SettlePods()
	o, plan := s.decide(s.cluster)
	if len(plan.Ledgers) != 1 {
		t.Fatalf("with a budget of three the ledgers are %v", plan.Ledgers)
	}
	g.blocks, s.statusesHang = endsWith("/skyhooks/demo/status"), true
	_, err := s.cluster.Apply(context.Background(), o, plan)
	s.Must(err)
	s.updateStatuses(o, plan)
	s.Eventually("the next stage begins on n1 and n2", func() bool {
		return len(slices.DeleteFunc(s.podNames(), func(n string) bool { return slices.Contains(before, n) })) == 2
	})
	for range 12 {
		s.passWithout("n3")
	}
	for _, n := range []string{"n1", "n2"} {
		if got := s.GetNode(n).Annotations[v1alpha1.Group+"/status_demo"]; got != string(v1alpha1.StatusComplete) {
			t.Errorf("while the ledger is being written %s is %q", n, got)
		}
	}
	if isAdmitted := s.GetNode("n3").Annotations[v1alpha1.PrefixRecord+"demo"] != ""; isAdmitted || !s.cluster.IsInFlight("n3") {
		t.Errorf("n3 does not wait for the ledger: admitted %v", isAdmitted)
	}
	if g.countWaiting() != 1 {
		t.Errorf("%d requests change the status of the Skyhook at the same time", g.countWaiting())
	}
	g.unblock()
	s.statusesHang = false
	s.waitUntilComplete()
	if got := s.GetSkyhook("demo").Status.CompleteNodes; got != "2/3" {
		t.Errorf("after the ledger the status says %q and not what was true meanwhile", got)
	}
	for range 25 {
		s.passWithout()
	}
	for _, n := range []string{"n1", "n2", "n3"} {
		if got := s.GetNode(n).Annotations[v1alpha1.Group+"/status_demo"]; got != string(v1alpha1.StatusComplete) {
			t.Errorf("in the end %s is %q", n, got)
		}
	}
}

// TestAwait: what is awaited requests a pass when it completes. Checks for drift are not awaited, unless they are not all that happens.
func TestAwait(t *testing.T) {
	demo := plan.Ref("demo")
	for name, c := range map[string]struct {
		actions []rollout.Action
		want    bool
	}{
		"a check begins":        {[]rollout.Action{{Verb: rollout.VerbVerify}}, false},
		"a check ended":         {[]rollout.Action{{Verb: rollout.VerbNote, Object: "check"}, {Verb: rollout.VerbSweep, Object: "check"}}, false},
		"another object":        {[]rollout.Action{{Verb: rollout.VerbNote, Object: "check"}, {Verb: rollout.VerbSweep, Object: "pod"}}, true},
		"a check is in the way": {[]rollout.Action{{Verb: rollout.VerbSweep, Object: "check"}}, true},
		"a stage begins too":    {[]rollout.Action{{Verb: rollout.VerbVerify}, {Verb: rollout.VerbRun}}, true},
		"nothing is done":       {nil, true},
	} {
		f := newInFlight(1)
		w := &nodeWork{node: "n1", actions: c.actions, rollouts: map[rollout.Ref]int{demo: 0}}
		if startsOrEndsChecks(c.actions) {
			w.kind = workChecks
		}
		f.add([]*nodeWork{w})
		if f.await(plan.Ref("other")) {
			t.Errorf("%s: another rollout awaits it", name)
		}
		if got := f.await(demo); got != c.want {
			t.Errorf("%s: it is awaited: %v, want %v", name, got, c.want)
		}
		if got := f.complete(w, nil); got != c.want {
			t.Errorf("%s: it requests a pass: %v, want %v", name, got, c.want)
		}
	}
}
