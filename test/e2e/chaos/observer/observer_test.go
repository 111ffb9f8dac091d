// SPDX-FileCopyrightText: The Skyhook authors
// SPDX-License-Identifier: Apache-2.0

package observer

import (
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
)

var start = time.Date(2026, 11, 23, 7, 0, 0, 0, time.UTC)

func at(seconds int) time.Time { return start.Add(time.Duration(seconds) * time.Second) }

// newNode is a node that is ready, held by these Skyhooks.
func newNode(name string, holders ...string) *corev1.Node {
	n := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name, Annotations: map[string]string{}}}
	for _, h := range holders {
		n.Spec.Unschedulable = true
		n.Annotations["skyhook.nvidia.com/cordon_"+h] = "true"
	}
	n.Status.Conditions = []corev1.NodeCondition{{Type: corev1.NodeReady, Status: corev1.ConditionTrue}}
	return n
}

func newDownNode(name string, holders ...string) *corev1.Node {
	n := newNode(name, holders...)
	n.Status.Conditions[0].Status = corev1.ConditionUnknown
	return n
}

func newPod(name, node string, change func(*corev1.Pod)) *corev1.Pod {
	p := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "work", Name: name, UID: types.UID("uid-" + name), Labels: map[string]string{}}}
	p.Spec.NodeName = node
	if change != nil {
		change(p)
	}
	return p
}

func newObserver() *Observer {
	return New(Setup{
		Groups:     []Group{{Name: "pool", Limit: 1, Nodes: []string{"n1", "n2"}}, {Name: "rest", Limit: 2, Nodes: []string{"n3", "n4", "n5"}}},
		Protected:  []string{"work/training"},
		Protecting: []string{"kernel"},
		Compact:    []string{"compact"},
		Guarded:    "web",
		MinReady:   2,
	})
}

// require checks the violations: none, or one of this rule with this text.
func (o *Observer) require(t *testing.T, rule, text string) {
	t.Helper()
	got := o.Violations()
	if rule == "" {
		if len(got) > 0 {
			t.Errorf("violations: %v", got)
		}
		return
	}
	if len(got) != 1 || got[0].Rule != rule || !strings.Contains(got[0].Text, text) {
		t.Errorf("violations: %v\nwant one of the rule %q with %q", got, rule, text)
	}
}

// replayNodes tells an observer the states of nodes, one each second.
func replayNodes(nodes ...*corev1.Node) *Observer {
	o := newObserver()
	for i, n := range nodes {
		o.NodeChanged(at(i), n)
	}
	return o
}

func TestLimit(t *testing.T) {
	foreign := newNode("n2")
	foreign.Spec.Unschedulable = true
	operation := newNode("n2")
	operation.Spec.Unschedulable, operation.Annotations["operator.kairos.io/cordoned-by"] = true, "default/update@4711"
	for _, c := range []struct {
		name  string
		nodes []*corev1.Node
		rule  string
		text  string
	}{
		{"one after the other", []*corev1.Node{newNode("n1", "kernel"), newNode("n1"), newNode("n2", "kernel")}, "", ""},
		{"two holders of one node", []*corev1.Node{newNode("n1", "kernel"), newNode("n1", "kernel", "services")}, "", ""},
		{"two groups", []*corev1.Node{newNode("n1", "kernel"), newNode("n3", "kernel"), newNode("n4", "kernel")}, "", ""},
		{"a cordon of somebody else", []*corev1.Node{newNode("n1", "kernel"), foreign}, "", ""},
		{"two nodes of a pair", []*corev1.Node{newNode("n1", "kernel"), newNode("n2", "services")}, RuleLimit, "group pool with limit 1: n1 by Skyhook kernel; n2 by Skyhook services"},
		{"a Skyhook and a NodeOp", []*corev1.Node{newNode("n1", "kernel"), operation}, RuleLimit, "n2 by NodeOp default/update"},
		{"three of a group of two", []*corev1.Node{newNode("n3", "kernel"), newNode("n4", "kernel"), newNode("n5", "kernel")}, RuleLimit, "group rest"},
	} {
		t.Run(c.name, func(t *testing.T) { replayNodes(c.nodes...).require(t, c.rule, c.text) })
	}
}

// TestDown: a node that is down uses up the limit once the operator must know that.
func TestDown(t *testing.T) {
	for _, c := range []struct {
		name    string
		seconds int
		rule    string
	}{{"just now", 10, ""}, {"for long", 60, RuleDown}} {
		t.Run(c.name, func(t *testing.T) {
			o := replayNodes(newNode("n1"), newDownNode("n2"))
			o.NodeChanged(at(5), newDownNode("n2")) // another change of it
			o.NodeChanged(at(c.seconds), newNode("n1", "kernel"))
			o.require(t, c.rule, "n2 down for")
		})
	}
	t.Run("held before it went down", func(t *testing.T) {
		o := replayNodes(newNode("n1", "kernel"), newDownNode("n1", "kernel"), newNode("n2"))
		o.NodeChanged(at(100), newNode("n1", "kernel"))
		o.require(t, "", "")
	})
}

func TestProtected(t *testing.T) {
	dying := func(p *corev1.Pod) { p.DeletionTimestamp = &metav1.Time{Time: start} }
	for _, c := range []struct {
		name     string
		released bool
		pod      *corev1.Pod
		deleted  bool
		rule     string
	}{
		{"it runs", false, newPod("training", "n1", nil), false, ""},
		{"it is being deleted", false, newPod("training", "n1", dying), false, RuleProtected},
		{"it is gone", false, newPod("training", "n1", nil), true, RuleProtected},
		{"it may end", true, newPod("training", "n1", dying), false, ""},
		{"another pod", false, newPod("other", "n1", dying), true, ""},
	} {
		t.Run(c.name, func(t *testing.T) {
			o := newObserver()
			if c.released {
				o.Release("work/training")
			}
			o.PodChanged(at(1), c.pod, c.deleted)
			o.require(t, c.rule, "work/training")
		})
	}
}

func TestInterruptBesideProtectedPod(t *testing.T) {
	interrupt := func(name string) func(*corev1.Pod) {
		return func(p *corev1.Pod) {
			p.Labels = map[string]string{"skyhook.nvidia.com/interrupt": "True", "skyhook.nvidia.com/name": name}
		}
	}
	for _, c := range []struct {
		name, node, skyhook, rule string
		released                  bool
	}{
		{"on its node", "n1", "kernel", RuleInterrupt, false},
		{"on another node", "n2", "kernel", "", false},
		{"of a Skyhook that protects nothing", "n1", "other", "", false},
		{"after its end", "n1", "kernel", "", true},
	} {
		t.Run(c.name, func(t *testing.T) {
			o := newObserver()
			o.PodChanged(at(1), newPod("training", "n1", nil), false)
			if c.released {
				o.Release("work/training")
			}
			o.PodChanged(at(2), newPod("reboot", c.node, interrupt(c.skyhook)), false)
			o.require(t, c.rule, "pod reboot interrupts n1, where work/training runs")
		})
	}
}

// TestVanished: what a watch did not show of the end of a pod is not held against anybody, unless the pod must not end at all.
func TestVanished(t *testing.T) {
	web := newPod("web-1", "n1", func(p *corev1.Pod) { p.Labels["app"] = "web" })
	o := newObserver()
	o.PodChanged(at(1), web, false)
	o.PodVanished(at(2), web)
	o.require(t, "", "")
	o = newObserver()
	o.PodChanged(at(1), newPod("training", "n1", nil), false)
	o.PodVanished(at(2), newPod("training", "n1", nil))
	o.require(t, RuleProtected, "work/training")
}

func TestEvicted(t *testing.T) {
	dying := func(p *corev1.Pod) {
		p.Labels["app"], p.DeletionTimestamp = "web", &metav1.Time{Time: start}
	}
	evicted := func(p *corev1.Pod) {
		dying(p)
		p.Status.Conditions = []corev1.PodCondition{{Type: corev1.DisruptionTarget, Status: corev1.ConditionTrue, Reason: "EvictionByEvictionAPI"}}
	}
	for _, c := range []struct {
		name    string
		pod     *corev1.Pod
		excused bool
		rule    string
	}{
		{"evicted", newPod("web-1", "n1", evicted), false, ""},
		{"deleted", newPod("web-1", "n1", dying), false, RuleEvicted},
		{"deleted by somebody else", newPod("web-1", "n1", dying), true, ""},
		{"never started", newPod("web-1", "", dying), false, ""},
	} {
		t.Run(c.name, func(t *testing.T) {
			o := newObserver()
			if c.excused {
				o.Excuse("uid-web-1")
			}
			o.PodChanged(at(1), c.pod, false)
			o.PodChanged(at(2), c.pod, true) // said once
			o.require(t, c.rule, "work/web-1")
		})
	}
}

// TestBudget: two of three pods must be ready.
func TestBudget(t *testing.T) {
	web := func(name string, isReady, isEvicted bool) *corev1.Pod {
		return newPod(name, "n1", func(p *corev1.Pod) {
			p.Labels["app"] = "web"
			if isReady {
				p.Status.Conditions = []corev1.PodCondition{{Type: corev1.PodReady, Status: corev1.ConditionTrue}}
			}
			if isEvicted {
				p.DeletionTimestamp = &metav1.Time{Time: start}
				p.Status.Conditions = append(p.Status.Conditions, corev1.PodCondition{Type: corev1.DisruptionTarget, Status: corev1.ConditionTrue, Reason: "EvictionByEvictionAPI"})
			}
		})
	}
	for _, c := range []struct {
		name  string
		after map[int]*corev1.Pod // seconds after all are ready
		rule  string
	}{
		{"one is evicted", map[int]*corev1.Pod{1: web("web-1", true, true)}, ""},
		{"another one too", map[int]*corev1.Pod{1: web("web-1", true, true), 2: web("web-2", true, true)}, RuleBudget},
		{"another one too, after its successor is ready", map[int]*corev1.Pod{1: web("web-1", true, true), 2: web("web-4", true, false), 3: web("web-2", true, true)}, ""},
		{"one was lost just now", map[int]*corev1.Pod{1: web("web-1", false, false), 2: web("web-2", true, true)}, ""},
		{"one was lost long ago", map[int]*corev1.Pod{1: web("web-1", false, false), 100: web("web-2", true, true)}, RuleBudget},
		{"one that is not ready is evicted", map[int]*corev1.Pod{1: web("web-1", false, false), 2: web("web-1", false, true), 100: web("web-1", false, true)}, ""},
	} {
		t.Run(c.name, func(t *testing.T) {
			o := newObserver()
			for _, name := range []string{"web-1", "web-2", "web-3"} {
				o.PodChanged(at(0), web(name, true, false), false)
			}
			for _, s := range slices.Sorted(maps.Keys(c.after)) {
				o.PodChanged(at(s), c.after[s], false)
			}
			o.require(t, c.rule, "leaves 1 of 2")
		})
	}
}

func TestAtRest(t *testing.T) {
	o := newObserver()
	o.AtRest(at(1), []corev1.Node{*newNode("n1"), *newNode("n2", "kernel")})
	o.require(t, RuleCordon, "node n2 is cordoned; holders: [Skyhook kernel]")
	o = newObserver()
	o.Left(at(1), "Skyhook kernel has the finalizer skyhook.nvidia.com/skyhook")
	o.require(t, RuleFinalizer, "Skyhook kernel")
}
