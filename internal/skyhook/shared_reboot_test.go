// SPDX-FileCopyrightText: The Skyhook authors
// SPDX-License-Identifier: Apache-2.0

package skyhook

import (
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/skyhook-k8s/skyhook/api/skyhook/v1alpha1"
	"github.com/skyhook-k8s/skyhook/internal/node"
	"github.com/skyhook-k8s/skyhook/internal/rollout"
	"github.com/skyhook-k8s/skyhook/internal/rollout/engine"
	"github.com/skyhook-k8s/skyhook/internal/skyhook/plan"
)

const (
	kernelSkyhook = `{metadata: {name: kernel}, spec: {shareReboots: true, packages: {plain: {version: 1.0.0, image: example.org/p},
		kernel: {version: 1.0.0, image: example.org/p, interrupt: {type: reboot}}, agent: {version: 1.0.0, image: example.org/p, interrupt: {type: service, services: [a]}}}}}`
	firmwareSkyhook = `{metadata: {name: firmware}, spec: {shareReboots: true, packages: {firmware: {version: 1.0.0, image: example.org/p, interrupt: {type: reboot}}}}}`
)

// pass carries out one plan for all Skyhooks; pods end before the next. It returns whether something changed.
func (w *testCluster) pass(loses func(rollout.Action) bool) bool {
	w.t.Helper()
	snap := rollout.Snapshot{Now: w.now}
	var all []*Compiled
	for _, s := range w.skyhooks {
		all = append(all, w.compile(s))
	}
	moved := false
	for i, c := range all {
		for _, t := range c.Rollout.Targets {
			for j := range t.Tasks {
				moved = t.Tasks[j].State == rollout.StateRunning && w.advancePod(w.skyhooks[i], t.Node, &t.Tasks[j]) || moved
			}
		}
		all[i] = w.compile(w.skyhooks[i])
	}
	for i, c := range all {
		snap.Rollouts, snap.Groups, snap.Ledgers = append(snap.Rollouts, c.Rollout), append(snap.Groups, c.Groups...), append(snap.Ledgers, c.Ledger)
		for j := range snap.Rollouts[i].Targets {
			snap.Rollouts[i].CopyTarget(j).Drain.PodsSeen = true
		}
	}
	for _, n := range all[0].clusterNodes {
		snap.Nodes = append(snap.Nodes, rollout.Node{Name: n.Name, UID: n.UID, Created: n.Created, Ready: n.Ready, Cordoned: n.Unschedulable,
			BootID: n.BootID, Holds: n.Holds(nil), Known: n.IsKnown()})
	}
	plan := engine.Decide(snap)
	for _, a := range plan.Actions {
		i := slices.IndexFunc(all, func(c *Compiled) bool { return c.Rollout.Ref == a.Rollout })
		if loses != nil && loses(a) {
			return true // the operator crashes before this write
		}
		w.applyAction(all[i], a)
		all[i] = w.compile(w.skyhooks[i])
	}
	for i, s := range w.skyhooks {
		s.Status.NodeOrderOffset = int32(plan.Reports[i].NextOrder)
	}
	return moved || len(plan.Actions) > 0
}

func (w *testCluster) passUntilRest(loses func(rollout.Action) bool) {
	w.t.Helper()
	for pass := 0; w.pass(loses); pass++ {
		if pass == 200 {
			w.t.Fatalf("no end after %d passes:\n%s", pass, strings.Join(w.log, "\n"))
		}
	}
}

// TestSharedReboot: two Skyhooks reboot a node once, in whatever write the operator crashes. The reboot counts for all packages that
// awaited it, also for one with a weaker interrupt, and none is applied again because of it.
func TestSharedReboot(t *testing.T) {
	crashes := 0
	for crashAt := -1; crashAt < 60; crashAt++ {
		w := newTestCluster(t)
		w.config.ReapplyOnReboot = true
		w.addNode("n1")
		w.apply(kernelSkyhook)
		w.apply(firmwareSkyhook)
		writes, hasCrashed := 0, false
		w.passUntilRest(func(rollout.Action) bool {
			writes++
			if hasCrashed || writes != crashAt {
				return false
			}
			hasCrashed, crashes = true, crashes+1
			return true
		})
		if boot := w.node("n1").Status.NodeInfo.BootID; boot != "boot-2" {
			t.Fatalf("crash before write %d: the node is in %s, want boot-2\n%s", crashAt, boot, strings.Join(w.log, "\n"))
		}
		interrupts := 0
		for i, line := range w.log {
			if strings.Contains(line, "/interrupt") {
				interrupts++
			}
			if again := slices.Index(w.log, line); again != i {
				t.Errorf("crash before write %d: %s ran twice", crashAt, line)
			}
		}
		if interrupts != 1 {
			t.Errorf("crash before write %d: %d interrupts ran, want 1\n%s", crashAt, interrupts, strings.Join(w.log, "\n"))
		}
		for _, s := range w.skyhooks {
			on := w.parsed["n1"].Skyhook(s.Name)
			for key, e := range on.State {
				isDone := e.State == v1alpha1.StateComplete && (e.Stage == v1alpha1.StagePostInterrupt || e.Name == "plain")
				if !isDone || on.Record.Packages[key].Boot != "boot-2" {
					t.Errorf("crash before write %d: %s is %s %s, finished in %s", crashAt, key, e.Stage, e.State, on.Record.Packages[key].Boot)
				}
			}
			if on.Record.Reboot != nil || on.Record.Admitted || on.Cordoned {
				t.Errorf("crash before write %d: Skyhook %s left %+v", crashAt, s.Name, on.Record)
			}
		}
		if w.node("n1").Spec.Unschedulable {
			t.Errorf("crash before write %d: the node is still cordoned", crashAt)
		}
	}
	if crashes < 30 {
		t.Errorf("only %d crashes", crashes)
	}
}

// TestCrashBeforeSharedReboot: a node crashes before the last stage has ended, and reports its new boot after it is recorded. That boot is
// the shared reboot only if the agent does not say in which boot the stage ended.
func TestCrashBeforeSharedReboot(t *testing.T) {
	for said, want := range map[string]string{"boot-2": "boot-3", "": "boot-2"} {
		w := newTestCluster(t)
		w.addNode("n1")
		w.apply(kernelSkyhook)
		w.apply(firmwareSkyhook)
		w.endsIn = map[string]string{"firmware|1.0.0/config": said, "kernel|1.0.0/config": said, "agent|1.0.0/config": said}
		hasCrashed := false
		w.passUntilRest(func(a rollout.Action) bool {
			isLast := a.Verb == rollout.VerbRun && strings.Contains(a.Task, "/interrupt") && !hasCrashed
			if isLast {
				n := w.node("n1")
				n.Status.NodeInfo.BootID = "boot-2"
				w.bumpVersion(n)
				hasCrashed = true
			}
			return isLast
		})
		if boot := w.node("n1").Status.NodeInfo.BootID; !hasCrashed || boot != want {
			t.Errorf("the stages ended in %q: the node is in %s, want %s\n%s", said, boot, want, strings.Join(w.log, "\n"))
		}
	}
}

// TestRebootsAreNotShared: without shareReboots each Skyhook reboots the node for itself, and nothing about reboots is recorded.
func TestRebootsAreNotShared(t *testing.T) {
	w := newTestCluster(t)
	w.addNode("n1")
	w.apply(strings.Replace(kernelSkyhook, "shareReboots: true, ", "", 1))
	w.apply(firmwareSkyhook)
	w.passUntilRest(func(a rollout.Action) bool {
		if a.Verb == rollout.VerbJoin {
			t.Errorf("Skyhook %s awaits a shared reboot", a.Rollout.Name)
		}
		return false
	})
	if boot := w.node("n1").Status.NodeInfo.BootID; boot != "boot-3" {
		t.Errorf("the node is in %s, want boot-3", boot)
	}
}

// TestBootsBefore checks which boots cannot be those that a reboot led to: not that of a package whose last stage began after the interrupt,
// because it may have gone on after the same reboot.
func TestBootsBefore(t *testing.T) {
	began := time.Date(2026, 1, 5, 8, 0, 0, 0, time.UTC)
	finished := func(boot string, at time.Duration) *node.PackageRecord {
		return &node.PackageRecord{Boot: boot, Done: []rollout.StageTime{{Stage: "config", At: began.Add(at)}}}
	}
	rec := node.PackageRecord{Boot: "boot-2", Since: &began, Goal: "install"}
	w := &plan.Diff{Rec: node.SkyhookRecord{Packages: map[string]*node.PackageRecord{
		"kernel|1": &rec, "early|1": finished("boot-1", -time.Minute), "late|1": finished("boot-3", time.Minute),
	}}}
	got := bootsBefore(w, &rec)
	slices.Sort(got)
	if want := []string{"boot-1", "boot-2"}; !slices.Equal(got, want) {
		t.Errorf("%v, want %v", got, want)
	}
}

// TestReapplyAfterCrash: with REAPPLY_ON_REBOOT a package is applied again because of a crash if its last stage had ended before, whenever
// the node reports its boot. Without a word of the agent the boot counts that the node reported.
func TestReapplyAfterCrash(t *testing.T) {
	for _, c := range []struct {
		said, seen string
		again      bool // once the node reports boot-2
	}{
		{"boot-2", "boot-1", false},
		{"boot-1", "boot-1", true},
		{"boot-1", "boot-2", true},
		{"boot-2", "boot-2", false},
		{"boot-9", "boot-2", false}, // a host whose boot ids are none of its node's
		{"", "boot-1", true},
		{"", "boot-2", false},
	} {
		w := newTestCluster(t)
		w.config.ReapplyOnReboot = true
		n := w.addNode("n1")
		report := func(boot string) {
			n.Status.NodeInfo.BootID = boot
			w.bumpVersion(n)
		}
		s := w.apply(simple)
		w.applyAction(w.compile(s), rollout.Action{Verb: rollout.VerbAdmit, Node: "n1"})
		report(c.seen)
		w.endsIn = map[string]string{"tuning|1.0.0/config": c.said}
		log := w.drive(s)
		report("boot-2")
		log += "\n" + w.drive(s)
		if again := strings.Count(log, "/config") > 1; again != c.again {
			t.Errorf("it ended in %q, and the node reported %s: applied again is %v\n%s", c.said, c.seen, again, log)
		}
		rec := w.parsed["n1"].Skyhook("demo").Record.Clone()
		plan.MarkRebooted(&rec, "boot-2", "boot-3")
		if boot := rec.Packages["tuning|1.0.0"].Boot; boot != "boot-3" {
			t.Errorf("it ended in %q, and the node reported %s: after an interrupt it is of %s", c.said, c.seen, boot)
		}
		report("boot-3")
		if log := w.drive(s); !strings.Contains(log, "tuning") {
			t.Errorf("it ended in %q, and the node reported %s: another reboot applies nothing\n%s", c.said, c.seen, log)
		}
	}
}
