// SPDX-FileCopyrightText: The Skyhook authors
// SPDX-License-Identifier: Apache-2.0

package skyhook

import (
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"

	"github.com/skyhook-k8s/skyhook/api/skyhook/v1alpha1"
	"github.com/skyhook-k8s/skyhook/internal/node"
	"github.com/skyhook-k8s/skyhook/internal/skyhook/podstate"
)

// checkNodes checks what holds after every pass.
func (l *randomRun) checkNodes() {
	names := map[string]bool{}
	for _, p := range l.pods {
		if names[p.Name] {
			l.t.Errorf("two pods are called %s", p.Name)
		}
		names[p.Name] = true
	}
	for _, n := range l.nodes {
		on := node.Parse(n.DeepCopy(), nil).Skyhook("demo")
		if l.damaged[n.Name] != "" {
			continue
		}
		if on.Problem != "" {
			l.t.Fatal(on.Problem)
		}
		rec := on.Record.Effective(string(n.UID), string(l.s.UID), on.StateHash, on.State)
		for key, p := range rec.Packages {
			if p.At != node.Position(on.State[key]) {
				l.t.Errorf("%s: the record of %s is for %s, the state says %s", n.Name, key, p.At, node.Position(on.State[key]))
			}
			if p.Goal == "" && (p.Interrupt != "" || p.By != "" || p.Effect != nil) {
				l.t.Errorf("%s: %s is finished and keeps %+v", n.Name, key, p)
			}
		}
	}
}

// checkAdmission checks the budget: a node counts while it is in flight, and while it is held or has a pod, whatever its
// annotations say. One that failed for good does not count while it is not held; when it is fixed later there may be one
// node in flight too many.
func (l *randomRun) checkAdmission(nodeName string) {
	var busy []string
	for _, n := range l.nodes {
		on := node.Parse(n.DeepCopy(), nil).Skyhook("demo")
		rec := on.Record.Effective(string(n.UID), string(l.s.UID), on.StateHash, on.State)
		final := false
		for _, p := range on.Record.Packages {
			final = final || p.Attempts >= 3 && !on.Cordoned
		}
		isBusy := rec.Admitted || on.Cordoned || l.runsPod(n.Name)
		if isBusy && !final && n.Name != nodeName {
			busy = append(busy, n.Name)
		}
	}
	if len(busy) >= l.budget {
		l.t.Fatalf("%s is admitted beside %v\n%s", nodeName, busy, strings.Join(l.tail(60), "\n"))
	}
}

// checkRest runs passes while some pods that are deleted do not go, and checks that the plan becomes empty.
func (l *randomRun) checkRest() {
	for pass := 0; ; pass++ {
		isMoving := l.pass()
		c := l.compile(l.s)
		if c.Removed || !isMoving && len(l.decide(c).Actions) == 0 {
			return
		}
		if pass > 300 {
			l.t.Fatalf("the plan does not become empty: %+v\n%s", l.decide(c).Actions, strings.Join(l.tail(20), "\n"))
		}
	}
}

// runsPod reports whether a pod whose work has not ended is on a node.
func (l *randomRun) runsPod(nodeName string) bool {
	return slices.ContainsFunc(l.pods, func(p *corev1.Pod) bool {
		return p.Spec.NodeName == nodeName && podstate.Read(p).State != podstate.Succeeded
	})
}

func (l *randomRun) isAtRest() bool {
	c := l.compile(l.s)
	for _, t := range c.Rollout.Targets {
		if len(t.Tasks) > 0 && t.Blocked == nil || t.Visit.Admitted || len(t.Objects.Orphans) > 0 {
			return false
		}
	}
	return len(c.Adopt) == 0
}

// checkConverged checks that every node has what the spec wants.
func (l *randomRun) checkConverged() {
	c := l.compile(l.s)
	for _, n := range l.nodes {
		on := node.Parse(n.DeepCopy(), nil).Skyhook("demo")
		for name, d := range c.facts.Packages {
			e, ok := on.State[d.Key()]
			stuck := c.target(n.Name).Stuck != nil
			switch {
			case c.facts.Uninstalls(name) && ok:
				l.t.Errorf("%s still has %s", n.Name, name)
			case !c.facts.Uninstalls(name) && !ok && !stuck:
				l.t.Errorf("%s lacks %s: %s\n%s", n.Name, name, on.StateText, strings.Join(l.tail(30), "\n"))
			case ok && e.State != v1alpha1.StateComplete && !stuck:
				l.t.Errorf("%s: %s is %s", n.Name, name, node.Position(e))
			}
			if p := on.Record.Packages[d.Key()]; ok && !stuck && (p == nil || p.Config != d.Config) {
				l.t.Errorf("%s: %s has another config than the spec: %+v", n.Name, name, p)
			}
		}
		for key, e := range on.State {
			if c.target(n.Name).Stuck == nil && (c.facts.Packages[e.Name] == nil || c.facts.Packages[e.Name].Key() != key) {
				l.t.Errorf("%s keeps %s: %s %s\n%s", n.Name, key, on.StateText, on.RecordText, strings.Join(l.logOf(n.Name), "\n"))
			}
		}
		if n.Spec.Unschedulable || on.Cordoned {
			l.t.Errorf("%s is left cordoned", n.Name)
		}
	}
	if len(l.pods) > 0 {
		l.t.Errorf("%d pods are left", len(l.pods))
	}
}

// logOf returns the log of one node.
func (l *randomRun) logOf(node string) []string {
	var out []string
	for _, line := range l.log {
		if line == "edit" || strings.HasPrefix(line, node+" ") || strings.HasPrefix(line, "lost") && strings.Contains(line, "-"+node+"-") {
			out = append(out, line)
		}
	}
	return out
}
