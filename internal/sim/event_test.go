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
	"github.com/skyhook-k8s/skyhook/internal/sim"
)

func (s *storm) addNode(name string) {
	s.w.Truth.Nodes = append(s.w.Truth.Nodes, rollout.Node{
		Name: name, UID: s.uid(), BootID: s.uid(), Ready: true, Created: s.w.Truth.Now, Known: s.chance(50), Self: name == "n1",
	})
}

// happen lets things happen that no operator has a say in.
func (s *storm) happen() {
	for i := range s.w.Truth.Nodes {
		s.happenTo(&s.w.Truth.Nodes[i])
	}
	if s.chance(s.luck.vanish) && len(s.w.Truth.Nodes) > 1 {
		s.loseNode()
	}
	if s.chance(s.luck.edit) {
		s.edit()
	}
	if s.chance(s.luck.steer) {
		s.steer()
	}
	for i := range s.w.Truth.Rollouts {
		for j := range s.w.Truth.Rollouts[i].Targets {
			s.work(&s.w.Truth.Rollouts[i].Targets[j])
		}
	}
}

func (s *storm) happenTo(n *rollout.Node) {
	if s.sick[n.Name] > 0 {
		if s.sick[n.Name]--; s.sick[n.Name] == 0 {
			n.Ready, n.ReadyAt = true, s.w.Truth.Now
			s.w.Touch(n.Name)
		}
	}
	if s.chance(s.luck.sick) {
		s.makeSick(n, 1+s.r.Intn(5))
	}
	if s.chance(s.luck.boot) {
		s.say("%s boots by itself", n.Name)
		n.BootID = s.uid()
		s.makeSick(n, 2)
	}
	if s.chance(s.luck.cordon) {
		s.cordon(n)
	}
	pods := s.w.Workloads[n.Name]
	for _, p := range slices.Clone(pods) {
		if p.Leaving && s.chance(50) || p.Wait && s.chance(15) {
			s.w.Gone(n.Name, p.UID)
		}
	}
	if !n.Cordoned && s.chance(s.luck.arrive) {
		p := rollout.Pod{Namespace: "work", Name: s.uid(), Wait: s.chance(20)}
		if !p.Wait && s.chance(5) {
			p.Keep = "nothing recreates it"
		}
		p.UID = p.Name
		s.w.Workloads[n.Name] = append(s.w.Workloads[n.Name], p)
	}
}

func (s *storm) makeSick(n *rollout.Node, ticks int) {
	n.Ready = false
	s.sick[n.Name] = max(s.sick[n.Name], ticks)
	s.w.Touch(n.Name)
}

// cordon is a person who cordons a node, or takes a cordon away, be it ours.
func (s *storm) cordon(n *rollout.Node) {
	s.w.Touch(n.Name)
	if n.Cordoned {
		n.Cordoned, s.human[n.Name] = false, false
		s.say("a person uncordons %s", n.Name)
		return
	}
	n.Cordoned, s.human[n.Name] = true, true
	s.unclear[n.Name] = len(n.Holds) > 0
	s.say("a person cordons %s", n.Name)
}

// loseNode deletes a node; often another comes with the same name.
func (s *storm) loseNode() {
	i := s.r.Intn(len(s.w.Truth.Nodes))
	name := s.w.Truth.Nodes[i].Name
	s.say("node %s is deleted", name)
	s.w.Truth.Nodes = slices.Delete(s.w.Truth.Nodes, i, i+1)
	delete(s.w.Workloads, name)
	delete(s.human, name)
	delete(s.unclear, name)
	s.sick[name] = 0
	s.w.Touch(name)
	if s.chance(70) {
		s.addNode(name)
	}
}

// edit changes what is wanted.
func (s *storm) edit() {
	w := s.wishes[s.r.Intn(len(s.wishes))]
	name := fmt.Sprintf("p%d", s.r.Intn(3))
	p, there := w.packages[name]
	switch s.r.Intn(6) {
	case 0:
		p.version++
	case 1:
		p.version = max(1, p.version-1)
	case 2:
		p.config++
	case 3:
		p.interrupt = s.r.Intn(3)
	case 4:
		if there && len(w.packages) > 1 {
			delete(w.packages, name)
			s.say("%s drops %s", w.name, name)
			return
		}
	default:
		for _, n := range s.w.Truth.Nodes {
			if s.chance(20) {
				w.nodes[n.Name] = !w.nodes[n.Name]
			}
		}
		s.say("%s selects %v", w.name, w.nodes)
		return
	}
	if !there {
		p = s.newPack(int(name[1] - '0'))
	}
	if dep, ok := w.packages[p.after]; ok && dep.after == name {
		p.after = ""
	}
	w.packages[name] = p
	if circular(w.packages, name) {
		p.after = ""
		w.packages[name] = p
	}
	s.say("%s wants %s %+v", w.name, name, p)
	s.reconsider(w.name)
}

// reconsider: a changed definition lets those be tried again that had been given up.
func (s *storm) reconsider(name rollout.Ref) {
	r := s.w.Rollout(name)
	if r == nil {
		return
	}
	for i := range r.Targets {
		r.Targets[i].Skipped = false
	}
}

func circular(packages map[string]pack, from string) bool {
	for at, steps := packages[from].after, 0; at != ""; at, steps = packages[at].after, steps+1 {
		if at == from || steps > len(packages) {
			return true
		}
	}
	return false
}

// steer is what administrators do.
func (s *storm) steer() {
	if len(s.w.Truth.Rollouts) == 0 {
		return
	}
	r := &s.w.Truth.Rollouts[s.r.Intn(len(s.w.Truth.Rollouts))]
	g := &s.w.Truth.Groups[s.r.Intn(len(s.w.Truth.Groups))]
	switch s.r.Intn(12) {
	case 0, 1:
		r.Paused, r.Yields = !r.Paused, false
	case 2:
		r.Paused, r.Yields = !r.Paused, !r.Paused
	case 3:
		if s.chance(30) {
			r.Deleting = true
		}
	case 4:
		if s.chance(40) { // force deleted: the object vanishes, and with it its pods
			s.say("%s vanishes", r.Ref)
			s.forget(r.Ref)
			return
		}
	case 5:
		g.Frozen = nil
		if s.chance(50) {
			g.Frozen = &rollout.Why{Reason: rollout.ReasonWindow, Text: "the window is closed"}
		}
	case 6:
		if g.Limit != rollout.Unlimited {
			g.Limit = s.r.Intn(4)
		}
	case 7:
		switch s.r.Intn(3) {
		case 0:
			g.Memory = rollout.Memory{}
		case 1:
			g.For = s.uid()
		default:
			g.Resume = s.uid()
		}
	case 8:
		r.Broken = nil
		if s.chance(40) {
			r.Broken = &rollout.Why{Reason: rollout.ReasonInvalidSpec, Text: "packages depend on each other in a circle"}
		}
	case 9:
		if len(r.Targets) > 0 {
			s.resetByHand(r, &r.Targets[s.r.Intn(len(r.Targets))])
		}
	case 10:
		if len(r.Targets) > 0 {
			t := &r.Targets[s.r.Intn(len(r.Targets))]
			t.Blocked = nil
			if s.chance(50) {
				t.Blocked = &rollout.Why{Reason: rollout.ReasonIgnored, Text: "the node carries the ignore label"}
			}
		}
	default:
		for i := range r.Targets {
			r.Targets[i].Skipped = false
		}
	}
	s.say("somebody steers %s: paused %v yields %v deleting %v; %s limit %d frozen %v", r.Ref, r.Paused, r.Yields, r.Deleting, g.Ref, g.Limit, g.Frozen != nil)
}

// forget takes a rollout away without its consent. Its holds stay on the nodes.
func (s *storm) forget(name rollout.Ref) {
	s.w.Truth.Rollouts = slices.DeleteFunc(s.w.Truth.Rollouts, func(r rollout.Rollout) bool { return r.Ref == name })
	s.w.Arrange()
}

// resetByHand is somebody who deletes our annotations on a node. The cordon's owner is another annotation; pods stay.
func (s *storm) resetByHand(r *rollout.Rollout, t *rollout.Target) {
	s.say("somebody resets %s on %s", r.Ref, t.Node)
	s.w.Touch(t.Node)
	for _, k := range t.Tasks {
		if k.Object != "" {
			t.Strays = append(t.Strays, k.Object)
		}
	}
	t.Tasks, t.Admitted, t.Skipped, t.Batch = nil, false, false, 0
	maps.DeleteFunc(s.numbers[r.UID], func(_ int, n number) bool { return n.uid == t.UID })
	for _, w := range s.wishes {
		if w.name == r.Ref {
			delete(w.kept, t.UID)
			delete(w.goals, t.UID)
		}
	}
	s.ended = map[string]bool{}
}

// work is what becomes of the objects on one node.
func (s *storm) work(t *rollout.Target) {
	n := s.w.Node(t.Node)
	if n == nil || n.UID != t.UID {
		return
	}
	if len(t.Going) > 0 && s.chance(60) {
		t.Going = t.Going[1:]
	}
	for i := range t.Tasks {
		k := &t.Tasks[i]
		switch {
		case k.Object == "":
		case k.Leaving:
			if s.chance(60) {
				sim.Vanish(k)
			}
		case !n.Ready:
		case k.State == rollout.StateRunning:
			s.workOn(t, n, k)
		case k.State == rollout.StateFailing && !k.Dead && s.chance(30): // the kubelet tried again
			s.endOrFail(t, n, k)
		}
	}
}

func (s *storm) workOn(t *rollout.Target, n *rollout.Node, k *rollout.Task) {
	switch {
	case s.chance(s.luck.reset): // somebody deletes the pod
		s.say("%s of %s vanishes", k.Object, t.Node)
		sim.Vanish(k)
	case s.chance(s.luck.hang):
	case k.Why == nil && s.chance(s.luck.pull):
		k.Why = &rollout.Why{Reason: rollout.ReasonImagePull, Text: "the image cannot be pulled"}
	case s.chance(40):
		s.endOrFail(t, n, k)
	}
}

func (s *storm) endOrFail(t *rollout.Target, n *rollout.Node, k *rollout.Task) {
	if s.chance(s.luck.fail) {
		s.w.Fail(k, s.chance(40), rollout.Why{Reason: rollout.ReasonStageFailed, Text: k.Label + " exited with 1"})
		s.say("%s fails on %s (%d)", k.ID, t.Node, k.Attempts)
		return
	}
	s.say("%s ends on %s", k.ID, t.Node)
	if k.Need == rollout.NeedAlone {
		s.interrupts(t, n, k)
	}
	k.State, k.Why, k.Dead, k.Stale = rollout.StateSucceeded, nil, false, false
}

// interrupts is the moment an interrupt happens: once for each admission.
func (s *storm) interrupts(t *rollout.Target, n *rollout.Node, k *rollout.Task) {
	id := strings.Join([]string{t.UID, fmt.Sprint(t.Admission), k.ID, fmt.Sprint(s.serialOf(t, k))}, " ")
	if s.ended[id] {
		s.broken("interrupt %s happened twice", id)
	}
	s.ended[id] = true
	if k.BootID != "" {
		n.BootID = s.uid()
		s.makeSick(n, 1+s.r.Intn(2))
	}
}

// serialOf tells apart interrupts of one name in one admission: the definition may change to and fro meanwhile.
func (s *storm) serialOf(_ *rollout.Target, k *rollout.Task) time.Time { return k.Started }

var _ = sim.New
