// SPDX-FileCopyrightText: The Skyhook authors
// SPDX-License-Identifier: Apache-2.0

package skyhook

import (
	"reflect"
	"testing"

	"github.com/skyhook-k8s/skyhook/api/skyhook/v1alpha1"
	"github.com/skyhook-k8s/skyhook/internal/node"
	"github.com/skyhook-k8s/skyhook/internal/rollout"
	"github.com/skyhook-k8s/skyhook/internal/rollout/engine"
	"github.com/skyhook-k8s/skyhook/internal/skyhook/plan"
)

// With two spellings of one version on a node the inherited record must not depend on the order of a map.
func TestInheritedRecordIsTheSameEveryTime(t *testing.T) {
	w := newTestCluster(t)
	s := w.apply("{metadata: {name: demo}, spec: {packages: {tuning: {version: 1.2.0, image: example.org/p}}}}")
	w.addNode("n1")
	c := w.compile(s)
	st := &plan.Step{Key: "tuning|1.2.0", Name: "tuning", Version: "1.2.0", Stage: v1alpha1.StageApply, Work: plan.Work{Goal: node.GoalInstall}, Definition: c.facts.Packages["tuning"]}
	for range 50 {
		state, rec := v1alpha1.NodeState{}, &node.SkyhookRecord{Packages: map[string]*node.PackageRecord{}}
		for _, version := range []string{"v1.2.0", "1.2", "v1.2"} {
			state["tuning|"+version] = v1alpha1.PackageStatus{Name: "tuning", Version: version, Stage: v1alpha1.StageApply, State: v1alpha1.StateInProgress}
			rec.Packages["tuning|"+version] = &node.PackageRecord{Goal: node.GoalInstall, Run: "run of " + version, Generation: 1}
		}
		if got := c.facts.BeginStage(st, state, rec, c.clusterNodes[0]).Run; got != "run of 1.2" {
			t.Fatalf("inherited is the %s", got)
		}
	}
}

func TestControlPlaneGoesFirst(t *testing.T) {
	for _, role := range []string{"control-plane", "master"} {
		w := newTestCluster(t)
		s := w.apply("{metadata: {name: demo}, spec: {interruptionBudget: {count: 1}, packages: {tuning: {version: 1.0.0, image: example.org/p}}}}")
		w.addNode("n1")
		w.addNode("n2").Labels["node-role.kubernetes.io/"+role] = ""
		w.addNode("n3")
		c := w.compile(s)
		snap := rollout.Snapshot{Now: w.now, Groups: c.Groups, Ledgers: []rollout.Ledger{c.Ledger}, Rollouts: []rollout.Rollout{c.Rollout}}
		for _, n := range c.clusterNodes {
			snap.Nodes = append(snap.Nodes, rollout.Node{Name: n.Name, UID: n.UID, Created: n.Created, Ready: n.Ready, BootID: n.BootID, Known: true})
		}
		var admitted []string
		for _, a := range engine.Decide(snap).Actions {
			if a.Verb == rollout.VerbAdmit {
				admitted = append(admitted, a.Node)
			}
		}
		if len(admitted) != 1 || admitted[0] != "n2" {
			t.Errorf("%s: %v are admitted first, want n2", role, admitted)
		}
	}
}

// Nodes that have only their status, or nothing, have the same tasks, which are compiled once. A reset one is compiled by itself.
func TestNodesThatWaitShareTheirTasks(t *testing.T) {
	w := newTestCluster(t)
	s := w.apply("{metadata: {name: demo}, spec: {packages: {tuning: {version: 1.0.0, image: example.org/p}}}}")
	w.addNode("new")
	for _, name := range []string{"first", "second", "reset"} {
		n := w.addNode(name)
		n.Annotations = map[string]string{v1alpha1.PrefixStatus + "demo": "waiting"}
		if name == "reset" {
			n.Annotations[v1alpha1.PrefixRecord+"demo"] = node.SkyhookRecord{Node: string(n.UID), Skyhook: string(s.UID), State: node.HashState("{}"), Visit: node.Visit{Admission: 1}}.String()
		}
	}
	tasks := map[string][]rollout.Task{}
	for _, target := range w.compile(s).Rollout.Targets {
		tasks[target.Node] = target.Tasks
	}
	isShared := func(a, b string) bool { return &tasks[a][0] == &tasks[b][0] }
	if !isShared("first", "second") || isShared("first", "reset") {
		t.Errorf("both that wait: %v, with the reset one: %v", isShared("first", "second"), isShared("first", "reset"))
	}
	if !reflect.DeepEqual(tasks["new"], tasks["first"]) {
		t.Errorf("the status changes the tasks:\n%+v\n%+v", tasks["new"], tasks["first"])
	}
}
