// SPDX-FileCopyrightText: The Skyhook authors
// SPDX-License-Identifier: Apache-2.0

package skyhook

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/skyhook-k8s/skyhook/api/skyhook/v1alpha1"
	"github.com/skyhook-k8s/skyhook/internal/node"
	"github.com/skyhook-k8s/skyhook/internal/pack"
	"github.com/skyhook-k8s/skyhook/internal/rollout"
	"github.com/skyhook-k8s/skyhook/internal/skyhook/plan"
	"github.com/skyhook-k8s/skyhook/internal/skyhook/podstate"
	"github.com/skyhook-k8s/skyhook/internal/skyhook/report"
	"github.com/skyhook-k8s/skyhook/test/kubelet"
)

const checkedHook = `
apiVersion: skyhook.nvidia.com/v1alpha1
kind: Skyhook
metadata: {name: demo}
spec:
  nodeSelectors: {matchLabels: {kubernetes.io/hostname: n1}}
  drift: {every: 10m, mode: Repair}
  packages: {tuning: {version: 1.0.0, image: registry.example/tuning, configMap: {a: "1"}}, shell: {version: 2.0.0, image: registry.example/shell}}
`

// newCheckedCluster has a node on which the packages of a Skyhook that checks for drift are complete.
func newCheckedCluster(t *testing.T) (*testCluster, *v1alpha1.Skyhook) {
	w := newTestCluster(t)
	s := w.apply(checkedHook)
	w.addNode("n1")
	w.drive(s)
	return w, s
}

func (w *testCluster) driftTarget(s *v1alpha1.Skyhook) *rollout.Check {
	w.t.Helper()
	c := w.compile(s)
	if len(c.Rollout.Targets) != 1 || c.Rollout.Targets[0].Check == nil {
		w.t.Fatalf("the targets are %+v", c.Rollout.Targets)
	}
	return c.Rollout.Targets[0].Check
}

func (w *testCluster) driftRecord() node.DriftRecord {
	w.t.Helper()
	rec, err := node.ParseDriftRecord(w.node("n1").Annotations[v1alpha1.PrefixDrift+"demo"])
	if err != nil {
		w.t.Fatal(err)
	}
	return rec
}

// checkDrift checks the node: each package has the message that is given, or one that nothing drifted. It returns the event.
func (w *testCluster) checkDrift(s *v1alpha1.Skyhook, found map[string]pack.Message) *report.Event {
	w.t.Helper()
	w.now = w.now.Add(10 * time.Minute)
	pod := w.compile(s).CheckPod(node.Parse(w.node("n1").DeepCopy(), nil))
	if pod == nil {
		w.t.Fatal("nothing is checked")
	}
	w.create(pod)
	kubelet.Create(pod)
	for i, c := range pod.Spec.Containers {
		name := strings.SplitN(c.Name, "-", 2)[0]
		m := pack.Message{Mode: pack.ModeDrift, Outcome: pack.Succeeded, Package: name, Drift: &pack.Drift{}}
		if is, isGiven := found[name]; isGiven {
			m.Drift, m.Reason, m.Lines = is.Drift, is.Reason, is.Lines
		}
		kubelet.End(pod, i, 0, string(m.Encode()), w.now)
	}
	event := w.noteDrift(s, pod)
	for _, old := range w.driftTarget(s).Old {
		w.deletePod(old)
	}
	return event
}

func (w *testCluster) noteDrift(s *v1alpha1.Skyhook, pod *corev1.Pod) *report.Event {
	w.t.Helper()
	c := w.compile(s)
	note := rollout.Action{Verb: rollout.VerbNote, Rollout: c.Rollout.Ref, Node: "n1", Object: pod.Name}
	events := slices.DeleteFunc(c.Events([]rollout.Action{note}, s.Status, s.Status), func(e report.Event) bool { return e.Reason != v1alpha1.EventDrift })
	e, err := c.Change(note, node.Parse(w.node("n1").DeepCopy(), nil), nil)
	if err != nil {
		w.t.Fatal(err)
	}
	w.write("n1", e)
	if len(events) == 0 {
		return nil
	}
	return &events[0]
}

func failedCheck(mode pack.Mode) map[string]pack.Message {
	return map[string]pack.Message{"tuning": {Reason: "step x exited with 1.", Lines: []string{"a", "b", "c", "d"}, Drift: &pack.Drift{Checks: []pack.Mode{mode}, Ran: []pack.Mode{mode}}}}
}

// TestDriftDue: nodes are checked after 80 to 100 % of the interval, the first time after 10 to 100 %, each at its own time, and at the
// same one whoever asks.
func TestDriftDue(t *testing.T) {
	every := 500 * time.Minute // a slot is a minute
	s := &v1alpha1.Skyhook{ObjectMeta: metav1.ObjectMeta{UID: "s"}, Spec: v1alpha1.SkyhookSpec{Drift: &v1alpha1.Drift{Every: &metav1.Duration{Duration: every}}}}
	now := time.Date(2026, 5, 1, 12, 0, 0, 0, time.UTC)
	for _, c := range []struct {
		name     string
		checked  time.Time
		finished *time.Time
		from     time.Time
		least    float64
	}{
		{"after a check", now, nil, now, 0.8},
		{"after a check of finished work", now, new(now.Add(-time.Hour)), now, 0.8},
		{"after work", time.Time{}, &now, now, 0.1},
		{"after work that followed a check", now.Add(-time.Hour), &now, now, 0.1},
	} {
		slots, early, late := map[time.Time]int{}, 0, 0
		const nodes = 1000
		for i := range nodes {
			compiled := &nodeCompiler{facts: &plan.Facts{Skyhook: s, Now: now}}
			target := &plan.Target{Node: &node.Node{Name: fmt.Sprint("n", i), UID: fmt.Sprint("uid-", i)}}
			target.Record.FinishedAt = c.finished
			rec := node.DriftRecord{CheckedAt: c.checked}
			due := compiled.driftDue(target, rec)
			if again := compiled.driftDue(target, rec); !again.Equal(due) {
				t.Fatalf("%s: it is due at %s, and at %s", c.name, due, again)
			}
			after := due.Sub(c.from)
			if after < time.Duration(c.least*float64(every))-time.Minute || after > every || !due.Equal(due.Truncate(time.Minute)) {
				t.Fatalf("%s: a node is due after %s", c.name, after)
			}
			slots[due]++
			if share := (float64(after)/float64(every) - c.least) / (1 - c.least); share < 0.5 {
				early++
			} else {
				late++
			}
		}
		if most := slices.Max(sortedCounts(slots)); most > nodes/20 || early < nodes*4/10 || late < nodes*4/10 {
			t.Errorf("%s: %d of %d nodes are due in the same minute, %d in the first half, %d in the second one", c.name, most, nodes, early, late)
		}
	}
	target := &plan.Target{Node: &node.Node{Name: "n1", UID: "u"}}
	refused := &nodeCompiler{facts: &plan.Facts{Skyhook: s, Now: now}, refused: map[string]node.Refusal{node.TaskCheck: {Count: 1, At: now.Add(24 * time.Hour)}}}
	if got := refused.driftDue(target, node.DriftRecord{CheckedAt: now}); !got.After(now.Add(24 * time.Hour)) {
		t.Errorf("after a refusal it is due at %s", got)
	}
	if limit, interval := checkLimit(s), plan.DriftInterval(&v1alpha1.Skyhook{Spec: v1alpha1.SkyhookSpec{Drift: &v1alpha1.Drift{}}}); limit != 10 || interval != 6*time.Hour {
		t.Errorf("the defaults are %d and %s", limit, interval)
	}
	if checkLimit(&v1alpha1.Skyhook{}) != 0 {
		t.Error("a Skyhook without drift checks nodes")
	}
}

func sortedCounts(of map[time.Time]int) (out []int) {
	for _, n := range of {
		out = append(out, n)
	}
	return out
}

// TestDriftObjects: the pod of the present check, those of earlier ones, and those that are going.
func TestDriftObjects(t *testing.T) {
	w, s := newCheckedCluster(t)
	if d := w.driftTarget(s); d.Object != "" || d.Going || len(d.Old) > 0 || d.Limit != plan.DriftPodTimeout {
		t.Errorf("without a pod: %+v", d)
	}
	pod := w.compile(s).CheckPod(node.Parse(w.node("n1").DeepCopy(), nil))
	w.create(pod)
	if d := w.driftTarget(s); d.Object != pod.Name || d.Ended || d.Going || d.Keep {
		t.Errorf("while it runs: %+v", d)
	}
	pod.DeletionTimestamp = new(metav1.NewTime(w.now))
	if d := w.driftTarget(s); d.Object != "" || !d.Going || len(d.Old) > 0 || d.GoneBy.Sub(w.now) != plan.DriftPodTimeout {
		t.Errorf("while it is deleted: %+v", d)
	}
	pod.Status.Phase = corev1.PodFailed
	if d := w.driftTarget(s); d.Going {
		t.Errorf("when it has ended and is deleted: %+v", d)
	}
	pod.DeletionTimestamp = nil
	if d := w.driftTarget(s); d.Object != pod.Name || !d.Ended {
		t.Errorf("when it has ended: %+v", d)
	}
	w.noteDrift(s, pod) // its containers never started, which is no drift
	if d := w.driftTarget(s); d.Object != "" || !slices.Equal(d.Old, []string{pod.Name}) || d.Going {
		t.Errorf("when it is noted: %+v", d)
	}
	pod.Status.Phase = corev1.PodRunning
	if d := w.driftTarget(s); !d.Going || len(d.Old) != 1 {
		t.Errorf("when it is noted and runs on: %+v", d)
	}
	// What a pod says of a Skyhook that checks nothing is a stray.
	s.Spec.Drift = nil
	c := w.compile(s)
	if got := c.Rollout.Targets[0]; got.Check != nil || !slices.Contains(got.Objects.Orphans, pod.Name) {
		t.Errorf("without drift: %+v, strays %v", got.Check, got.Objects.Orphans)
	}
	if _, isThere := w.node("n1").Annotations[v1alpha1.PrefixDrift+"demo"]; isThere {
		t.Error("without drift the annotation stays")
	}
}

// TestDriftFound: what is recorded of a check, and which stage runs again.
func TestDriftFound(t *testing.T) {
	file := func(path string, isConfig bool) *pack.Drift {
		return &pack.Drift{Files: []pack.DriftFile{{Path: path, What: pack.DriftChanged, Config: isConfig}}, Total: 7}
	}
	for _, c := range []struct {
		name         string
		found        *pack.Drift
		text, repair string
		notCheckable bool
	}{
		{"apply-check", &pack.Drift{Checks: []pack.Mode{pack.ModeApplyCheck}}, "apply-check failed: step x exited with 1; last output: b | c | d", "apply", false},
		{"config-check", &pack.Drift{Checks: []pack.Mode{pack.ModeConfigCheck}}, "config-check failed: step x", "config", false},
		{"both", &pack.Drift{Checks: []pack.Mode{pack.ModeApplyCheck, pack.ModeConfigCheck}}, "apply-check and config-check failed", "apply", false},
		{"post-interrupt-check", &pack.Drift{Checks: []pack.Mode{pack.ModePostInterruptCheck}}, "post-interrupt-check failed", "post-interrupt", false},
		{"a file of the package", file("/etc/a", false), "delivered files differ: /etc/a (changed) and 6 more", "apply", false},
		{"a file of the configMap", file("/etc/b", true), "delivered files differ: /etc/b (changed)", "config", false},
		{"its own check", &pack.Drift{Wrote: []pack.DriftWrite{{Path: "/etc/a", Check: pack.ModeApplyCheck, Step: "check.sh"}, {Path: "/copy"}}},
			"step check.sh of its own apply-check changed /etc/a, one of its own checks changed /copy", "", false},
		{"nothing known", &pack.Drift{NotCheckable: "the host has no record"}, "the host has no record", "", true},
	} {
		w, s := newCheckedCluster(t)
		event := w.checkDrift(s, map[string]pack.Message{"tuning": {Reason: "step x exited with 1.", Lines: []string{"a", "b", "c", "d"}, Drift: c.found}})
		rec := w.driftRecord()
		got := rec.Packages["tuning|1.0.0"]
		if !strings.HasPrefix(got.Text, c.text) || got.Repair != c.repair || got.NotCheckable != c.notCheckable || len(rec.Packages) != 1 {
			t.Errorf("%s: %+v", c.name, rec)
		}
		if hasPod := rec.Pod != ""; hasPod == c.notCheckable || (event == nil) != c.notCheckable {
			t.Errorf("%s: the pod is %q, the event %+v", c.name, rec.Pod, event)
		}
		ran := w.drive(s)
		want := map[string]string{"": "", "apply": "n1 tuning|1.0.0/apply\nn1 tuning|1.0.0/config", "config": "n1 tuning|1.0.0/config", "post-interrupt": ""}[c.repair]
		if c.repair != "post-interrupt" && ran != want {
			t.Errorf("%s: it ran %q, want %q", c.name, ran, want)
		}
	}
}

// TestDriftMode: with mode Report nothing runs again, and neither on a node that went back.
func TestDriftMode(t *testing.T) {
	w, s := newCheckedCluster(t)
	s.Spec.Drift.Mode = v1alpha1.DriftReport
	w.checkDrift(s, failedCheck(pack.ModeConfigCheck))
	if rec := w.driftRecord(); rec.Packages["tuning|1.0.0"].Repair != "" || len(rec.Repairs) > 0 || w.drive(s) != "" {
		t.Errorf("with mode Report: %+v", rec)
	}
	w, s = newCheckedCluster(t)
	rec, err := node.ParseSkyhookRecord(w.node("n1").Annotations[v1alpha1.PrefixRecord+"demo"])
	if err != nil {
		t.Fatal(err)
	}
	rec.Complete = map[string]string{"tuning": rec.Packages["tuning|1.0.0"].Hash}
	rec.Rollback = &node.Rollback{Of: w.compile(s).facts.Key}
	w.node("n1").Annotations[v1alpha1.PrefixRecord+"demo"] = rec.String()
	w.checkDrift(s, failedCheck(pack.ModeConfigCheck))
	if drift := w.driftRecord(); len(drift.Drifted()) != 1 || drift.Packages["tuning|1.0.0"].Repair != "" || w.drive(s) != "" {
		t.Errorf("on a node that went back: %+v", drift)
	}
}

// TestDriftIsRepairing: a repair that is requested is shown until it is done.
func TestDriftIsRepairing(t *testing.T) {
	w, s := newCheckedCluster(t)
	w.checkDrift(s, failedCheck(pack.ModeConfigCheck))
	if rec := w.compile(s).DriftOf("n1"); len(rec.Drifted()) != 1 || rec.Packages["tuning|1.0.0"].Repair != "config" {
		t.Errorf("while it waits: %+v", rec)
	}
	w.drive(s)
	if rec := w.compile(s).DriftOf("n1"); len(rec.Drifted()) != 0 {
		t.Errorf("when it is done: %+v", rec)
	}
}

// TestDriftRepairsOfADay: a package is repaired three times a day; then it is reported, and that is said.
func TestDriftRepairsOfADay(t *testing.T) {
	w, s := newCheckedCluster(t)
	for i := range 4 {
		w.checkDrift(s, failedCheck(pack.ModeConfigCheck))
		ran, text := w.drive(s), w.driftRecord().Packages["tuning|1.0.0"].Text
		if isRepaired := ran != ""; isRepaired != (i < 3) || isRepaired == strings.Contains(text, "is only reported") {
			t.Errorf("time %d: it ran %q, and says %q", i+1, ran, text)
		}
	}
	w.now = w.now.Add(24 * time.Hour)
	if w.checkDrift(s, failedCheck(pack.ModeConfigCheck)); w.drive(s) == "" {
		t.Error("a day later it is not repaired")
	}
}

// TestDriftEvent: something that drifted newly, and all that is as it was left again, are events; nothing else is.
func TestDriftEvent(t *testing.T) {
	w, s := newCheckedCluster(t)
	s.Spec.Drift.Mode = v1alpha1.DriftReport
	if e := w.checkDrift(s, nil); e != nil {
		t.Errorf("nothing drifted: %+v", e)
	}
	tuning := failedCheck(pack.ModeApplyCheck)
	e := w.checkDrift(s, tuning)
	if e == nil || e.Node != "n1" || !e.OnSkyhook || e.Type != corev1.EventTypeWarning || !strings.HasPrefix(e.Message, "the node is not as Skyhook demo left it: package tuning 1.0.0: apply-check failed") {
		t.Errorf("the event is %+v", e)
	}
	if strings.Contains(e.Message, "it runs again") {
		t.Errorf("nothing runs again, and the event is %q", e.Message)
	}
	since := w.driftRecord().Packages["tuning|1.0.0"].Since
	isKept := func(p *corev1.Pod) bool { return p.Name == w.driftRecord().Pod }
	if !slices.ContainsFunc(w.pods, isKept) {
		t.Errorf("the log of what drifted does not stay: %+v", w.driftTarget(s))
	}
	if e := w.checkDrift(s, tuning); e != nil {
		t.Errorf("it drifted before: %+v", e)
	}
	if got := w.driftRecord().Packages["tuning|1.0.0"].Since; !got.Equal(since) {
		t.Errorf("it drifted since %s, now since %s", since, got)
	}
	both := map[string]pack.Message{"tuning": tuning["tuning"], "shell": {Drift: &pack.Drift{Files: []pack.DriftFile{{Path: "/etc/b", What: pack.DriftMissing}}, Total: 1}}}
	if e := w.checkDrift(s, both); e == nil || !strings.Contains(e.Message, "package shell 2.0.0: delivered files differ: /etc/b (missing)") || strings.Contains(e.Message, "tuning") {
		t.Errorf("one more drifted, and the event is %+v", e)
	}
	if got, want := w.compile(s).DriftedNodes(), map[string]int{"tuning": 1, "shell": 1}; fmt.Sprint(got) != fmt.Sprint(want) {
		t.Errorf("drifted are %v", got)
	}
	shell := s.Spec.Packages["shell"]
	delete(s.Spec.Packages, "shell")
	if got, want := w.compile(s).DriftedNodes(), map[string]int{"tuning": 1}; fmt.Sprint(got) != fmt.Sprint(want) {
		t.Errorf("when a package was removed from the spec, drifted are %v", got)
	}
	s.Spec.Packages["shell"] = shell
	if e := w.checkDrift(s, tuning); e != nil {
		t.Errorf("one of two is as it was left again: %+v", e)
	}
	if e := w.checkDrift(s, map[string]pack.Message{"tuning": {Drift: &pack.Drift{NotCheckable: "no record"}}}); e != nil {
		t.Errorf("nothing is known any more: %+v", e)
	}
	w.checkDrift(s, tuning)
	if e := w.checkDrift(s, nil); e == nil || e.Type != corev1.EventTypeNormal || e.OnSkyhook || e.Message != "the node is as Skyhook demo left it again" {
		t.Errorf("all is as it was left again, and the event is %+v", e)
	}
	if rec := w.driftRecord(); len(rec.Packages) > 0 || rec.Pod != "" {
		t.Errorf("the record is %+v", rec)
	}
}

// TestDriftOfOthers: what was found counts for the definition that is installed, and until other work is done.
func TestDriftOfOthers(t *testing.T) {
	w, s := newCheckedCluster(t)
	s.Spec.Drift.Mode = v1alpha1.DriftReport
	w.checkDrift(s, failedCheck(pack.ModeApplyCheck))
	if got := w.compile(s).DriftOf("n1").Drifted(); len(got) != 1 {
		t.Errorf("drifted are %v", got)
	}
	w.node("n1").UID = types.UID("another")
	if got := w.compile(s).DriftOf("n1").Drifted(); len(got) != 0 {
		t.Errorf("on another node of this name drifted are %v", got)
	}
	w.node("n1").UID = "node-n1"
	if got := w.compile(s).DriftOf("nosuch").Drifted(); got != nil {
		t.Errorf("on no node drifted are %v", got)
	}
	s.Spec.Packages["tuning"] = func() v1alpha1.Package {
		p := s.Spec.Packages["tuning"]
		p.ConfigMap = map[string]v1alpha1.ConfigData{"a": "2"}
		return p
	}()
	s.Generation++
	w.drive(s)
	if got := w.compile(s).DriftOf("n1").Drifted(); len(got) != 0 {
		t.Errorf("after an update drifted are %v", got)
	}
}

// TestDriftContainer: a container that did not say what it found says nothing about the package.
func TestDriftContainer(t *testing.T) {
	status := func(state corev1.ContainerState) corev1.PodStatus {
		return corev1.PodStatus{ContainerStatuses: []corev1.ContainerStatus{{Name: "c", State: state}}}
	}
	ended := func(exit int32, message string) corev1.PodStatus {
		return status(corev1.ContainerState{Terminated: &corev1.ContainerStateTerminated{ExitCode: exit, Message: message}})
	}
	fault := pack.Message{Mode: pack.ModeDrift, Outcome: pack.Failed, Class: pack.BadUsage, Reason: "SKYHOOK_RESOURCE_ID is not set", Package: "tuning"}
	for _, c := range []struct {
		name   string
		status corev1.PodStatus
		want   string
	}{
		{"no status", corev1.PodStatus{Reason: "Evicted", Message: "the node is full"}, "the check did not start: Evicted the node is full"},
		{"waiting", status(corev1.ContainerState{Waiting: &corev1.ContainerStateWaiting{Reason: "ErrImagePull", Message: "not found"}}), "the check did not start: ErrImagePull not found"},
		{"running", status(corev1.ContainerState{Running: &corev1.ContainerStateRunning{}}), "the check did not end in time"},
		{"an earlier agent", ended(0, "done"), "the agent of the package is of a version that cannot check for drift"},
		{"an earlier agent that fails", ended(1, "panic"), "container c ended with exit code 1"},
		{"a fault", ended(2, string(fault.Encode())), "SKYHOOK_RESOURCE_ID is not set"},
	} {
		got := podstate.ReadDriftContainer(&corev1.Pod{Status: c.status}, "c")
		if !got.NotCheckable || !strings.Contains(got.Text, c.want) {
			t.Errorf("%s: %+v", c.name, got)
		}
	}
	fine := pack.Message{Mode: pack.ModeDrift, Outcome: pack.Succeeded, Package: "tuning", Drift: &pack.Drift{}}
	if got := podstate.ReadDriftContainer(&corev1.Pod{Status: ended(0, string(fine.Encode()))}, "c"); got.Text != "" || got.NotCheckable {
		t.Errorf("nothing drifted: %+v", got)
	}
}
