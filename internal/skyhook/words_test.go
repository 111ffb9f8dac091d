// SPDX-FileCopyrightText: The Skyhook authors
// SPDX-License-Identifier: Apache-2.0

package skyhook

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/skyhook-k8s/skyhook/api/skyhook/v1alpha1"
	"github.com/skyhook-k8s/skyhook/internal/node"
	"github.com/skyhook-k8s/skyhook/internal/rollout"
	"github.com/skyhook-k8s/skyhook/internal/skyhook/record"
	"github.com/skyhook-k8s/skyhook/internal/skyhook/report"
)

// TestNodeConditions checks that conditions appear with the work, change with its outcome, and disappear with the Skyhook.
func TestNodeConditions(t *testing.T) {
	w := newTestCluster(t)
	s := w.apply(simple)
	w.addNode("n1")
	say := func(phase rollout.Phase) node.Edit {
		c := w.compile(s)
		e := c.Words(c.clusterNodes[0], rollout.Verdict{Node: "n1", Phase: phase})
		w.write("n1", e)
		if again := c.Words(node.Parse(w.node("n1"), nil), rollout.Verdict{Node: "n1", Phase: phase}); !again.Empty() {
			t.Errorf("%s is said twice: %+v", phase, again)
		}
		return e
	}
	shows := func(want string) {
		t.Helper()
		var got []string
		for _, cond := range w.node("n1").Status.Conditions[1:] {
			got = append(got, strings.TrimPrefix(string(cond.Type), "skyhook.nvidia.com/demo/")+"="+string(cond.Status)+" "+cond.Reason)
		}
		slices.Sort(got)
		if strings.Join(got, ", ") != want {
			t.Errorf("conditions %v, want %s", got, want)
		}
	}
	if e := say(rollout.PhaseWaiting); e.TouchesStatus() || w.node("n1").Labels["skyhook.nvidia.com/status_demo"] != "waiting" {
		t.Errorf("a node that waits gets %+v", e)
	}
	isQuiet := func() bool {
		c, v := w.compile(s), &rollout.Verdict{Node: "n1", Phase: rollout.PhaseInFlight}
		c.NoteQuiet(c.clusterNodes[0], v)
		return c.IsQuiet(0, v)
	}
	if isQuiet() {
		t.Error("a node in progress without conditions is not asked about again, but it gets them when it takes long")
	}
	say(rollout.PhaseInFlight)
	shows("Erroring=False Not Erroring, NotReady=True Incomplete")
	if !isQuiet() {
		t.Error("a node in progress with its conditions is asked about in each pass")
	}
	w.fails["tuning|1.0.0/apply"] = 2
	w.drive(s)
	say(rollout.PhaseFailing)
	shows("Erroring=True Package(s) Erroring or Unknown, NotReady=True Incomplete")
	w.fails = map[string]int{}
	w.drive(s)
	say(rollout.PhaseFinished)
	shows("Erroring=False Not Erroring, NotReady=False Complete")
	now := metav1.NewTime(w.now)
	s.DeletionTimestamp = &now
	w.drive(s)
	shows("")
	if got := w.state("n1"); strings.Contains(got, "status_") || !strings.Contains(got, "nodeState_demo=") {
		t.Errorf("the node keeps\n%s", got)
	}
	if !w.compile(s).Removed {
		t.Error("the finalizer stays")
	}
}

// TestStatusOfUnselectedNodeIsRemoved removes the status marks of a node that is no longer selected, though nothing ran there.
func TestStatusOfUnselectedNodeIsRemoved(t *testing.T) {
	w := newTestCluster(t)
	s := w.apply(`{metadata: {name: demo}, spec: {nodeSelectors: {matchLabels: {pool: gpu}}, packages: {tuning: {version: 1.0.0, image: example.org/p}}}}`)
	n := w.addNode("n1")
	n.Labels["pool"] = "gpu"
	c := w.compile(s)
	w.write("n1", c.Words(c.clusterNodes[0], rollout.Verdict{Node: "n1", Phase: rollout.PhaseBlocked}))
	if w.state("n1") == "" || len(n.Status.Conditions) != 3 {
		t.Fatal("nothing was said")
	}
	delete(n.Labels, "pool")
	w.bumpVersion(n)
	w.compile(s)
	if w.state("n1") != "" || len(n.Status.Conditions) != 1 || n.Labels["skyhook.nvidia.com/status_demo"] != "" {
		t.Errorf("it still says\n%s%v", w.state("n1"), n.Status.Conditions)
	}
}

// TestTaint checks that the taint comes with an annotation that marks it, and makes the node known.
func TestTaint(t *testing.T) {
	w := newTestCluster(t)
	s := w.apply(`{metadata: {name: demo}, spec: {runtimeRequired: true, autoTaintNewNodes: true, packages: {}}}`)
	w.addNode("n1")
	c := w.compile(s)
	if c.clusterNodes[0].IsKnown() {
		t.Error("a fresh node is known")
	}
	w.applyAction(c, rollout.Action{Verb: rollout.VerbTaint, Node: "n1"})
	n := node.Parse(w.node("n1"), nil)
	if !n.HasTaint(w.config.RuntimeTaint) || !n.IsKnown() || n.Annotations["skyhook.nvidia.com/autoTaint_skyhook.nvidia.com"] != "true" {
		t.Errorf("it carries %v %v", n.Taints, n.Annotations)
	}
	if c := w.compile(s); c.Rollout.Targets[0].Blocked != nil {
		t.Errorf("who is to remove the taint does not tolerate it: %v", c.Rollout.Targets[0].Blocked)
	}
	other := w.apply(`{metadata: {name: other}, spec: {packages: {}}}`)
	if c := w.compile(other); c.Rollout.Targets[0].Blocked == nil {
		t.Error("who does not remove it tolerates it")
	}
	w.applyAction(w.compile(s), rollout.Action{Verb: rollout.VerbUntaint, Node: "n1"})
	n = node.Parse(w.node("n1"), nil)
	if n.HasTaint(w.config.RuntimeTaint) || !n.IsKnown() || n.Annotations["skyhook.nvidia.com/autoTaint_skyhook.nvidia.com"] == "true" {
		t.Errorf("the taint or its mark stays, or the node is new again: %v %v", n.Taints, n.Annotations)
	}
	if key := record.AutoTaintKey(corev1.Taint{Key: "example.com/" + strings.Repeat("x", 80)}); len(key) > len(v1alpha1.Group)+64 || strings.Count(key, "/") != 1 {
		t.Errorf("the mark of a taint with a domain is %s", key)
	}
}

// TestCordonAfter checks that a node is cordoned in the same edit that removes the taint, that the cordon survives an interrupt
// and the deletion of the Skyhook, and that the annotation goes when somebody makes the node schedulable.
func TestCordonAfter(t *testing.T) {
	const mark = "skyhook.nvidia.com/runtimeRequiredCordon"
	w := newTestCluster(t)
	s := w.apply(`{metadata: {name: demo}, spec: {runtimeRequired: true, runtimeRequiredCordonAfter: true, packages: {}}}`)
	if c := w.compile(s); !c.Rollout.Taint.CordonAfter || len(c.Problems) > 0 {
		t.Errorf("compiled to %+v with the problems %v", c.Rollout, c.Problems)
	}
	w.addNode("n1")
	w.applyAction(w.compile(s), rollout.Action{Verb: rollout.VerbTaint, Node: "n1"})
	w.applyAction(w.compile(s), rollout.Action{Verb: rollout.VerbUntaint, Node: "n1", Cordon: true})
	requireCordoned := func(when string) {
		t.Helper()
		n := node.Parse(w.node("n1"), nil)
		if n.HasTaint(w.config.RuntimeTaint) || !n.Unschedulable || n.Annotations[mark] != "true" {
			t.Errorf("%s the node has unschedulable %v, %v %v", when, n.Unschedulable, n.Taints, n.Annotations)
		}
	}
	requireCordoned("without the taint")
	for _, verb := range []rollout.Verb{rollout.VerbAdmit, rollout.VerbHold, rollout.VerbRelease} {
		w.applyAction(w.compile(s), rollout.Action{Verb: verb, Node: "n1"})
	}
	requireCordoned("after a hold")
	w.applyAction(w.compile(s), rollout.Action{Verb: rollout.VerbRetire, Node: "n1", Wipe: true})
	requireCordoned("after the deletion")
	w.node("n1").Spec.Unschedulable = false
	w.bumpVersion(w.node("n1"))
	w.compile(s)
	if n := node.Parse(w.node("n1"), nil); n.Unschedulable || n.Annotations[mark] != "" {
		t.Errorf("somebody made the node schedulable, and it has %v %v", n.Unschedulable, n.Annotations)
	}
	without := w.apply(`{metadata: {name: without}, spec: {runtimeRequiredCordonAfter: true, packages: {}}}`)
	if c := w.compile(without); c.Rollout.Taint.CordonAfter || len(c.Problems) != 1 || c.Problems[0].Refuses {
		t.Errorf("without runtimeRequired it has the problems %v", c.Problems)
	}
}

// TestReleaseWithUnreadableRecord checks that a node stays cordoned when nobody can tell whether it was cordoned before.
func TestReleaseWithUnreadableRecord(t *testing.T) {
	for record, want := range map[string]bool{`{"node":`: true, "": false} {
		w := newTestCluster(t)
		s := w.apply(`{metadata: {name: demo}, spec: {packages: {}}}`)
		w.addNode("n1")
		n := w.node("n1")
		n.Annotations = map[string]string{v1alpha1.PrefixCordon + "demo": "true"}
		if record != "" {
			n.Annotations[v1alpha1.PrefixRecord+"demo"] = record
		}
		n.Spec.Unschedulable = true
		w.bumpVersion(n)
		w.applyAction(w.compile(s), rollout.Action{Verb: rollout.VerbRelease, Node: "n1"})
		if got := w.node("n1").Spec.Unschedulable; got != want {
			t.Errorf("released with the record %q, the node has unschedulable %v", record, got)
		}
	}
}

// TestStatusIsBounded checks that a status of 10,000 nodes fits, worst nodes first.
func TestStatusIsBounded(t *testing.T) {
	w := newTestCluster(t)
	s := w.apply(simple)
	for i := range 10000 {
		w.addNode(fmt.Sprintf("a-node-with-a-rather-long-name-in-some-cloud-%05d.compute.internal", i))
	}
	c := w.compile(s)
	r := rollout.Report{}
	for i, t := range c.Rollout.Targets {
		v := rollout.Verdict{Node: t.Node, Phase: rollout.PhaseWaiting, Why: rollout.Why{Text: strings.Repeat("why ", 200)}}
		if i%100 == 0 {
			v.Phase = rollout.PhaseFailing
		}
		r.Verdicts = append(r.Verdicts, v)
	}
	status := c.Status(r, nil)
	if size := len(node.EncodeJSON(status)); size > 256<<10 {
		t.Errorf("the status has %d bytes", size)
	}
	if len(status.NodeStatus) != 200 || status.NodeCounts[v1alpha1.StatusErroring] != 100 || status.NodesTotal != 10000 {
		t.Errorf("%d nodes are shown, counts are %v", len(status.NodeStatus), status.NodeCounts)
	}
	shown := 0
	for _, s := range status.NodeStatus {
		if s == v1alpha1.StatusErroring {
			shown++
		}
	}
	if shown != 100 {
		t.Errorf("%d of 100 erroring nodes are shown", shown)
	}
}

// TestReadyHasEveryReason checks that the message of Ready has the whole sentence of each reason, up to its limit.
func TestReadyHasEveryReason(t *testing.T) {
	w := newTestCluster(t)
	s := w.apply(simple)
	w.addNode("n1")
	c := w.compile(s)
	for _, reason := range rollout.WaitReasons() {
		v := rollout.Verdict{Node: "n1", Phase: rollout.PhaseWaiting, Why: rollout.Why{Reason: reason, Text: "it waits for Pod shop/" + string(reason), Since: w.now}}
		if reason == rollout.ReasonSoak || reason == rollout.ReasonHealthGate {
			v.Phase = rollout.PhaseFinished
		}
		status := c.Status(rollout.Report{Verdicts: []rollout.Verdict{v}}, nil)
		ready := meta.FindStatusCondition(status.Conditions, v1alpha1.ConditionReady)
		if ready == nil || !strings.HasSuffix(ready.Message, "; n1: "+v.Sentence("demo")) {
			t.Errorf("%s: the status says %+v", reason, ready)
		}
	}
	r := rollout.Report{}
	for i, reason := range rollout.WaitReasons() {
		name := fmt.Sprintf("m%02d", i)
		w.addNode(name)
		r.Verdicts = append(r.Verdicts, rollout.Verdict{Node: name, Phase: rollout.PhaseBlocked, Why: rollout.Why{Reason: reason, Text: strings.Repeat("long ", 80)}})
	}
	message := meta.FindStatusCondition(w.compile(s).Status(r, nil).Conditions, v1alpha1.ConditionReady).Message
	if !strings.Contains(message, fmt.Sprintf("; and %d more reasons", len(r.Verdicts)-report.MostReasons)) || len(message) > 2000 {
		t.Errorf("%d bytes: %s", len(message), message)
	}
}

// TestUnchangedNodeIsParsedOnce checks that parsing an unchanged node returns the same value, and that edits combine like patches.
func TestUnchangedNodeIsParsedOnce(t *testing.T) {
	w := newTestCluster(t)
	s := w.apply(simple)
	w.addNode("n1")
	w.drive(s)
	n := node.Parse(w.node("n1"), nil)
	if node.Parse(w.node("n1"), n) != n {
		t.Error("the same version is parsed again")
	}
	w.bumpVersion(w.node("n1"))
	next := node.Parse(w.node("n1"), n)
	if next == n || next.Skyhook("demo").Record.Packages["tuning|1.0.0"] != n.Skyhook("demo").Record.Packages["tuning|1.0.0"] {
		t.Error("a heartbeat makes the record be parsed again")
	}
	yes, no, x := true, false, "x"
	a := node.Edit{Annotations: map[string]*string{"a": &x, "b": &x}, Unschedulable: &yes, AddTaints: []corev1.Taint{{Key: "t"}}, SetConditions: []corev1.NodeCondition{{Type: "c"}}}
	b := node.Edit{Annotations: map[string]*string{"a": nil}, Unschedulable: &no, RemoveTaints: []corev1.Taint{{Key: "t"}}, RemoveConditions: []corev1.NodeConditionType{"c"}}
	one, two := n.With(a).With(b), n.With(a.Plus(b))
	if node.EncodeJSON(one.Annotations) != node.EncodeJSON(two.Annotations) || one.Unschedulable != two.Unschedulable || len(one.Taints) != len(two.Taints) || len(one.Conditions) != len(two.Conditions) {
		t.Errorf("two edits one after the other give %+v, as one %+v", one, two)
	}
	if (node.Edit{}).TouchesNode() || !a.TouchesNode() || !a.TouchesStatus() || !(node.Edit{}).Empty() || a.Empty() {
		t.Error("an edit does not know what it touches")
	}
}

// TestIgnoredTag checks that a tag other than the version is reported by Accepted and by one event, and that records, status and
// pods have the repository.
func TestIgnoredTag(t *testing.T) {
	w := newTestCluster(t)
	s := w.apply(`{metadata: {name: demo}, spec: {packages: {tuning: {version: 1.0.0, image: "example.org:5000/p:latest"}}}}`)
	w.addNode("n1")
	c := w.compile(s)
	if c.Rollout.Broken != nil {
		t.Fatalf("the Skyhook is not accepted: %v", c.Rollout.Broken)
	}
	is := c.Status(rollout.Report{}, nil)
	const text = `image of package tuning has the tag "latest", which is ignored: example.org:5000/p:1.0.0 is pulled; remove the tag`
	accepted := meta.FindStatusCondition(is.Conditions, v1alpha1.ConditionAccepted)
	if accepted.Status != metav1.ConditionTrue || accepted.Message != "the spec can be carried out; "+text {
		t.Errorf("Accepted is %s with the message %q", accepted.Status, accepted.Message)
	}
	events := c.Events(nil, v1alpha1.SkyhookStatus{}, is)
	want := []report.Event{{OnSkyhook: true, Type: corev1.EventTypeWarning, Reason: "FieldIgnored", Message: text}}
	if !slices.Equal(events, want) {
		t.Errorf("events are %+v, want %+v", events, want)
	}
	if again := c.Events(nil, is, is); len(again) > 0 {
		t.Errorf("an event is repeated: %+v", again)
	}
	w.drive(s)
	c = w.compile(s)
	if got := c.Status(rollout.Report{}, nil).NodeState["n1"]["tuning|1.0.0"].Image; got != "example.org:5000/p" {
		t.Errorf("the status has the image %q", got)
	}
	s.Spec.Packages["tuning"] = v1alpha1.Package{Version: "1.0.0", Image: "example.org:5000/p"}
	c = w.compile(s)
	if len(c.Problems) > 0 || len(c.Rollout.Targets[0].Tasks) > 0 {
		t.Errorf("without the tag there are problems %v and tasks %v", c.Problems, c.Rollout.Targets[0].Tasks)
	}
	if events := c.Events(nil, is, c.Status(rollout.Report{}, nil)); len(events) > 0 {
		t.Errorf("the removal of the tag has events: %+v", events)
	}
}

// TestEvents checks which events are per node and which are aggregated.
func TestEvents(t *testing.T) {
	w := newTestCluster(t)
	s := w.apply(`{metadata: {name: demo}, spec: {packages: {tuning: {version: 1.0.0, image: example.org/p, interrupt: {type: service, services: [cron]}}}}}`)
	for _, name := range []string{"n1", "n2", "n3"} {
		w.addNode(name)
	}
	c := w.compile(s)
	act := func(verb rollout.Verb, node, stage string) rollout.Action {
		return rollout.Action{Verb: verb, Rollout: rollout.ParseRef("Skyhook/demo"), Node: node, Task: "tuning|1.0.0/" + stage}
	}
	fail := act(rollout.VerbRecord, "n2", "apply")
	fail.State, fail.Attempts, fail.Why = rollout.StateFailing, 2, rollout.Why{Text: "no such file"}
	stranger := act(rollout.VerbAdmit, "n1", "")
	stranger.Rollout = rollout.ParseRef("Skyhook/other")
	events := c.Events([]rollout.Action{
		act(rollout.VerbAdmit, "n1", ""), act(rollout.VerbRun, "n1", "apply"), act(rollout.VerbRun, "n2", "apply"), act(rollout.VerbRun, "n3", "interrupt"),
		fail, act(rollout.VerbRetire, "n3", ""), act(rollout.VerbSweep, "n1", "apply"), stranger,
	}, v1alpha1.SkyhookStatus{Status: v1alpha1.StatusWaiting}, v1alpha1.SkyhookStatus{Status: v1alpha1.StatusInProgress})
	var got []string
	for _, e := range events {
		got = append(got, fmt.Sprintf("%s/%v %s %s: %s", e.Node, e.OnSkyhook, e.Type, e.Reason, e.Message))
	}
	want := []string{
		"n1/false Normal Apply: Skyhook demo begins to work on the node",
		"n3/true Normal Interrupt: Skyhook demo interrupts the node for package tuning: a restart of cron",
		"n2/false Warning State: package tuning 1.0.0 fails at stage apply, attempt 2: no such file",
		"n3/false Normal State: Skyhook demo is complete on the node",
		"/true Normal Apply: started stage apply of package tuning 1.0.0 on 2 nodes",
		"/true Normal State: status changed from waiting to in_progress",
	}
	if !slices.Equal(got, want) {
		t.Errorf("events are\n%s\nwant\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
	}
}

// TestDrainConditions checks which pods block a drain, and that an uninstalled dependency stays the reason of Blocked.
func TestDrainConditions(t *testing.T) {
	const refusal = "Cannot evict pod as it would violate the pod's disruption budget."
	for _, c := range []struct {
		name string
		pods []rollout.Pod
		want map[string]string // condition to reason and a part of the message
	}{
		{"evictable", []rollout.Pod{{Namespace: "default", Name: "web"}}, nil},
		{"budget", []rollout.Pod{{Namespace: "default", Name: "web", Refused: refusal}},
			map[string]string{"DrainBlocked": "PodDisruptionBudget 1 of 1 draining node cannot be drained: n1 (pod default/web: " + refusal + ")"}},
		{"unmanaged", []rollout.Pod{{Namespace: "default", Name: "bare", Keep: rollout.KeepUnmanaged}, {Namespace: "default", Name: "bare-2", Keep: rollout.KeepUnmanaged}},
			map[string]string{"DrainBlocked": "UnmanagedPod 1 of 1 draining node cannot be drained: n1 (pod default/bare: " + rollout.KeepUnmanaged + ", and 1 pod more)"}},
		{"several", []rollout.Pod{{Namespace: "default", Name: "data", Keep: rollout.KeepEmptyDir}, {Namespace: "default", Name: "web", Refused: refusal}},
			map[string]string{"DrainBlocked": "MultipleCauses 1 of 1 draining node cannot be drained: n1 (pod default/data: " + rollout.KeepEmptyDir + ", and 1 pod more)"}},
		{"protected by an annotation", []rollout.Pod{{Namespace: "default", Name: "training", Wait: true, Protection: rollout.ProtectedByAnnotation}},
			map[string]string{"Blocked": "NonInterruptPodsRunning pods that the annotation skyhook.nvidia.com/do-not-interrupt protects run on [n1]: the drain begins when they have ended"}},
		{"protected", []rollout.Pod{{Namespace: "default", Name: "training", Wait: true, Protection: rollout.ProtectedByLabels}},
			map[string]string{"Blocked": "NonInterruptPodsRunning pods that podNonInterruptLabels protects run on [n1]: the drain begins when they have ended"}},
	} {
		t.Run(c.name, func(t *testing.T) {
			w := newTestCluster(t)
			s := w.apply("{metadata: {name: demo}, spec: {packages: {tuning: {version: 1.0.0, image: example.org/p, interrupt: {type: reboot}}}}}")
			w.addNode("n1")
			w.hangs["tuning|1.0.0/apply"] = true
			w.drive(s)
			compiled := w.compile(s)
			compiled.Rollout.Targets[0].Drain.Pods, compiled.Rollout.Targets[0].Drain.PodsSeen = c.pods, true
			status := compiled.Status(verdicts(compiled, nil), nil)
			for _, kind := range []string{"DrainBlocked", "Blocked"} {
				got := ""
				if cond := meta.FindStatusCondition(status.Conditions, kind); cond != nil {
					got = cond.Reason + " " + cond.Message
				}
				if got != c.want[kind] {
					t.Errorf("%s is %q, want %q", kind, got, c.want[kind])
				}
			}
		})
	}
}
