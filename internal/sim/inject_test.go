// SPDX-FileCopyrightText: The Skyhook authors
// SPDX-License-Identifier: Apache-2.0

package sim_test

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/skyhook-k8s/skyhook/internal/rollout"
)

func (s *faultTest) addNode(name string) {
	s.cluster.State.Nodes = append(s.cluster.State.Nodes, rollout.Node{
		Name: name, UID: s.newUID(), BootID: s.newUID(), Ready: true, Created: s.cluster.State.Now, Known: s.chance(50), Self: name == "n1",
	})
}

// injectFaults changes the cluster as faults, users and workloads do.
func (s *faultTest) injectFaults() {
	for i := range s.cluster.State.Nodes {
		s.injectNodeFault(&s.cluster.State.Nodes[i])
	}
	if s.chance(s.rates.vanish) && len(s.cluster.State.Nodes) > 1 {
		s.loseNode()
	}
	if s.chance(s.rates.edit) {
		s.editRollout()
	}
	if s.chance(s.rates.forge) {
		s.forgeTimes()
	}
	if s.chance(s.rates.steer) {
		s.changeControls()
	}
	s.injectDamage()
	s.injectDrift()
	for i := range s.cluster.State.Rollouts {
		for j := range s.cluster.State.Rollouts[i].Targets {
			s.runTarget(s.cluster.State.Rollouts[i].Targets[j])
		}
	}
}

// injectDamage damages records of nodes, and repairs damaged ones.
func (s *faultTest) injectDamage() {
	for i := range s.cluster.State.Rollouts {
		r := &s.cluster.State.Rollouts[i]
		for j := range r.Targets {
			switch t := r.Targets[j]; {
			case s.chance(s.rates.damage):
				s.damageRecord(r, t)
			case len(s.damaged) > 0 && s.chance(20):
				s.repairRecord(r, t)
			}
		}
	}
}

func (s *faultTest) injectNodeFault(n *rollout.Node) {
	if s.chance(s.rates.unproven) {
		s.unproven[n.Name] = !s.unproven[n.Name]
		s.cluster.TouchNode(n.Name)
	}
	if s.notReady[n.Name] > 0 {
		if s.notReady[n.Name]--; s.notReady[n.Name] == 0 {
			n.Ready, n.ReadyAt = true, s.cluster.State.Now
			s.cluster.TouchNode(n.Name)
		}
	}
	if s.chance(s.rates.sick) {
		s.makeNotReady(n, 1+s.random.Intn(5))
	}
	if s.chance(s.rates.boot) {
		s.logf("%s boots", n.Name)
		n.BootID = s.newUID()
		s.makeNotReady(n, 2)
	}
	if s.chance(s.rates.cordon) {
		s.changeCordon(n)
	}
	pods := s.cluster.Workloads[n.Name]
	for _, p := range slices.Clone(pods) {
		if p.Leaving && s.chance(50) || p.Wait && s.chance(15) {
			s.cluster.RemovePod(n.Name, p.UID)
		}
	}
	if !n.Cordoned && s.chance(s.rates.arrive) {
		p := rollout.Pod{Namespace: "work", Name: s.newUID(), Wait: s.chance(20)}
		if !p.Wait && s.chance(5) {
			p.Keep = "nothing recreates it"
		}
		p.Priority, p.Stays = int32(s.random.Intn(3)), p.Wait && s.chance(20)
		p.UID = p.Name
		s.cluster.Workloads[n.Name] = append(s.cluster.Workloads[n.Name], p)
	}
	s.noteProtected(n.Name)
}

func (s *faultTest) makeNotReady(n *rollout.Node, ticks int) {
	n.Ready = false
	s.notReady[n.Name] = max(s.notReady[n.Name], ticks)
	s.cluster.TouchNode(n.Name)
}

// changeCordon cordons or uncordons a node, as a user does.
func (s *faultTest) changeCordon(n *rollout.Node) {
	s.cluster.TouchNode(n.Name)
	if n.Cordoned {
		n.Cordoned, s.cordoned[n.Name] = false, false
		s.logf("a user uncordons %s", n.Name)
		return
	}
	n.Cordoned, s.cordoned[n.Name] = true, true
	s.unclear[n.Name] = len(n.Holds) > 0
	s.logf("a user cordons %s", n.Name)
}

// loseNode deletes a node, and often adds another of the same name.
func (s *faultTest) loseNode() {
	i := s.random.Intn(len(s.cluster.State.Nodes))
	name := s.cluster.State.Nodes[i].Name
	s.logf("node %s is deleted", name)
	s.cluster.State.Nodes = slices.Delete(s.cluster.State.Nodes, i, i+1)
	delete(s.cluster.Workloads, name)
	delete(s.cordoned, name)
	delete(s.unclear, name)
	s.notReady[name] = 0
	s.cluster.TouchNode(name)
	if s.chance(70) {
		s.addNode(name)
	}
}

// editRollout changes the desired state.
func (s *faultTest) editRollout() {
	w := s.desired[s.random.Intn(len(s.desired))]
	name := fmt.Sprintf("p%d", s.random.Intn(3))
	p, there := w.packages[name]
	switch s.random.Intn(6) {
	case 0:
		p.version++
	case 1:
		p.version = max(1, p.version-1)
	case 2:
		p.config++
	case 3:
		p.interrupt = s.random.Intn(3)
	case 4:
		if there && len(w.packages) > 1 {
			delete(w.packages, name)
			s.logf("%s drops %s", w.name, name)
			return
		}
	default:
		for _, n := range s.cluster.State.Nodes {
			if s.chance(20) {
				w.nodes[n.Name] = !w.nodes[n.Name]
			}
		}
		s.logf("%s selects %v", w.name, w.nodes)
		return
	}
	if !there {
		p = s.newPackage(int(name[1] - '0'))
	}
	if dep, ok := w.packages[p.after]; ok && dep.after == name {
		p.after = ""
	}
	w.packages[name] = p
	if hasCycle(w.packages, name) {
		p.after = ""
		w.packages[name] = p
	}
	s.logf("%s wants %s %+v", w.name, name, p)
	s.releaseSkipped(w.name)
}

// releaseSkipped lets targets be retried that were given up, as a changed definition does.
func (s *faultTest) releaseSkipped(name rollout.Ref) {
	r := s.cluster.FindRollout(name)
	if r == nil {
		return
	}
	for i := range r.Targets {
		r.Targets[i].Visit.Skipped = false
	}
}

func hasCycle(packages map[string]desiredPackage, from string) bool {
	for at, steps := packages[from].after, 0; at != ""; at, steps = packages[at].after, steps+1 {
		if at == from || steps > len(packages) {
			return true
		}
	}
	return false
}

// changeControls pauses, disables or deletes a rollout, or changes its budget.
func (s *faultTest) changeControls() {
	if len(s.cluster.State.Rollouts) == 0 {
		return
	}
	r := &s.cluster.State.Rollouts[s.random.Intn(len(s.cluster.State.Rollouts))]
	g := &s.cluster.State.Groups[s.random.Intn(len(s.cluster.State.Groups))]
	switch s.random.Intn(14) {
	case 13:
		s.logf("a person approves: %v", s.approve())
	case 12:
		s.changeScope(r.Ref)
	case 0, 1:
		r.Paused, r.Yields = !r.Paused, false
	case 2:
		r.Paused, r.Yields = !r.Paused, !r.Paused
	case 3:
		if s.chance(30) {
			r.Deleting = true
		}
	case 4:
		if s.chance(40) { // the object is deleted by force, and its pods with it
			s.logf("%s is deleted by force", r.Ref)
			s.removeRollout(r.Ref)
			return
		}
	case 5:
		g.Frozen = nil
		if s.chance(50) {
			g.Frozen = &rollout.Why{Reason: rollout.ReasonWindow, Text: "the window is closed"}
		}
		if g.Held = nil; s.chance(30) {
			g.Held = g.Frozen
		}
		if g.Held == nil && s.chance(30) {
			g.Frozen = &rollout.Why{Reason: rollout.ReasonHealthGate, Text: "the query gives 7, and must give at most 1"}
		}
		if g.Closing = nil; s.chance(30) {
			g.Closing = &rollout.Closing{At: s.cluster.State.Now.Add(10 * time.Minute), Margin: 20 * time.Minute, Text: "the window closes"}
		}
	case 6:
		if g.Limit != rollout.Unlimited {
			g.Limit = s.random.Intn(4)
		}
	case 7:
		switch s.random.Intn(4) {
		case 3:
			g.Failed = nil
			if s.chance(50) {
				g.Failed = &rollout.Why{Reason: rollout.ReasonHealthGate, Text: "the query gives 7, and must give at most 1"}
			}
		case 0:
			g.Memory = rollout.Memory{}
		case 1:
			g.For = rollout.Versions(s.newUID())
		default:
			g.Resume = s.newUID()
		}
	case 8:
		r.Broken = nil
		if s.chance(40) {
			r.Broken = &rollout.Why{Reason: rollout.ReasonInvalidSpec, Text: "packages depend on each other in a circle"}
		}
	case 9:
		if len(r.Targets) > 0 {
			s.resetNode(r, r.Targets[s.random.Intn(len(r.Targets))])
		}
	case 10:
		if len(r.Targets) > 0 {
			t := r.Targets[s.random.Intn(len(r.Targets))]
			t.Blocked = nil
			if s.chance(50) {
				t.Blocked = &rollout.Why{Reason: rollout.ReasonIgnored, Text: "the node carries the ignore label"}
			}
		}
	default:
		for i := range r.Targets {
			r.Targets[i].Visit.Skipped = false
		}
	}
	s.logf("a user changes %s: paused %v yields %v deleting %v; %s limit %d frozen %v", r.Ref, r.Paused, r.Yields, r.Deleting, g.Ref, g.Limit, g.Frozen != nil)
}

// changeScope moves a rollout to the shared groups, or back to its own, as an edit of its policy or of the policy's scope
// does.
func (s *faultTest) changeScope(name rollout.Ref) {
	for _, w := range s.desired {
		if w.name == name {
			w.shares = !w.shares
			s.addGroups(w)
			s.logf("%s is in %s now", name, w.groupRef())
		}
	}
}

// removeRollout removes a rollout without an orderly deletion. Its holds stay on the nodes.
func (s *faultTest) removeRollout(name rollout.Ref) {
	s.cluster.State.Rollouts = slices.DeleteFunc(s.cluster.State.Rollouts, func(r rollout.Rollout) bool { return r.Ref == name })
	s.cluster.Reindex()
}

// resetNode deletes the records on a node, as a user does. Holds are stored elsewhere and stay, and so do pods.
func (s *faultTest) resetNode(r *rollout.Rollout, t *rollout.Target) {
	s.logf("a user resets %s on %s", r.Ref, t.Node)
	s.cluster.TouchNode(t.Node)
	s.cluster.DropQueues(t)
	for _, k := range t.Tasks {
		if k.Object.Name != "" {
			t.Objects.Orphans = append(t.Objects.Orphans, k.Object.Name)
		}
	}
	if _, isDamaged := s.damaged[r.UID+t.UID]; isDamaged {
		delete(s.damaged, r.UID+t.UID)
		t.Blocked = nil
	}
	t.Tasks, t.Visit.Admitted, t.Visit.Skipped, t.Visit.Batch, t.Proof = nil, false, false, 0, nil
	maps.DeleteFunc(s.numbers[r.UID], func(_ int, n number) bool { return n.uid == t.UID })
	for _, w := range s.desired {
		if w.name == r.Ref {
			delete(w.kept, t.UID)
			delete(w.goals, t.UID)
		}
	}
	s.ended = map[string]bool{}
}

// runTarget advances the objects on one node.
func (s *faultTest) runTarget(t *rollout.Target) {
	n := s.cluster.FindNode(t.Node)
	if n == nil || n.UID != t.UID {
		return
	}
	if len(t.Objects.Going) > 0 && n.Ready && s.chance(60) {
		t.Objects.Going = t.Objects.Going[1:]
	}
	for i := range t.Tasks {
		k := &t.Tasks[i]
		switch {
		case k.Object.Name == "", k.Object.Queued:
		case k.Object.Leaving:
			if s.chance(60) {
				s.cluster.LoseObject(t, k)
			}
		case !n.Ready:
		case k.State == rollout.StateRunning:
			s.runTask(t, n, k)
		case k.State == rollout.StateFailing && !k.Object.Dead && s.chance(30): // the kubelet retries
			s.endOrFail(t, n, k)
		}
	}
}

func (s *faultTest) runTask(t *rollout.Target, n *rollout.Node, k *rollout.Task) {
	switch {
	case s.chance(s.rates.reset): // the pod is deleted
		s.logf("%s of %s is deleted", k.Object.Name, t.Node)
		s.cluster.LoseObject(t, k)
	case s.chance(s.rates.hang):
	case k.Why == nil && s.chance(s.rates.pull):
		k.Why, k.Object.Unpulled = &rollout.Why{Reason: rollout.ReasonImagePull, Text: "the image cannot be pulled"}, true
	case s.chance(40):
		s.endOrFail(t, n, k)
	}
}

func (s *faultTest) endOrFail(t *rollout.Target, n *rollout.Node, k *rollout.Task) {
	if s.chance(s.rates.fail) {
		s.cluster.FailTask(k, s.chance(40), rollout.Why{Reason: rollout.ReasonStageFailed, Text: k.Label + " exited with 1"})
		s.logf("%s fails on %s (%d)", k.ID, t.Node, k.Attempts.Failed)
		return
	}
	s.logf("%s succeeds on %s", k.ID, t.Node)
	if k.Need == rollout.NeedAlone {
		s.runInterrupt(t, n, k)
	}
	if s.cluster.GoOn(t, k) {
		s.done[t.UID+k.ID] = t.Visit.Admission
		k.Object.Dead, k.Object.Stale = false, false
		return
	}
	k.State, k.Why, k.Object.Dead, k.Object.Stale = rollout.StateSucceeded, nil, false, false
}

// runInterrupt checks that each interrupt succeeds once in each admission.
func (s *faultTest) runInterrupt(t *rollout.Target, n *rollout.Node, k *rollout.Task) {
	id := strings.Join([]string{t.UID, fmt.Sprint(t.Visit.Admission), k.ID, fmt.Sprint(s.serialOf(t, k))}, " ")
	if s.ended[id] {
		s.failf("interrupt %s succeeded twice", id)
	}
	s.ended[id] = true
	if k.BootID != "" {
		n.BootID = s.newUID()
		s.makeNotReady(n, 1+s.random.Intn(2))
	}
}

// serialOf distinguishes interrupts of one name in one admission: the definition may change meanwhile.
func (s *faultTest) serialOf(_ *rollout.Target, k *rollout.Task) time.Time { return k.Attempts.Started }
