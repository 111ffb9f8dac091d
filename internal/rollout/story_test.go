// SPDX-FileCopyrightText: The Skyhook authors
// SPDX-License-Identifier: Apache-2.0

package rollout_test

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/cockroachdb/datadriven"

	"github.com/skyhook-k8s/skyhook/internal/rollout"
	"github.com/skyhook-k8s/skyhook/internal/sim"
)

// TestStories plays the scripts in testdata. Each is one story about the engine, told in commands:
//
//	nodes, rollout, group, task, target, node, pods   describe or change the world
//	plan                        what Decide says now, without doing it
//	apply                       the same, done
//	act                         the same, but the status is not stored yet
//	stabilize                   apply, let what runs end well and who leaves go, until nothing is left to do
//	finish, fail, lose, gone    things happen to a task or a pod
//	batches                     play a rollout of one task to its end, and list who was admitted together
//	wait                        time passes
//	look, apply NAME            an operator looks, and does later what it decided then
//	crash-after-ledger          one that dies between the ledger and the nodes
//	verdicts, groups, ledgers, cordoned   what is said of targets and groups; what is written
func TestStories(t *testing.T) {
	datadriven.Walk(t, "testdata", func(t *testing.T, path string) {
		s := &story{t: t, looks: map[string]look{}, w: sim.New(rollout.Snapshot{Now: time.Date(2026, 1, 5, 8, 0, 0, 0, time.UTC)})}
		datadriven.RunTest(t, path, func(t *testing.T, d *datadriven.TestData) string {
			s.t = t
			out := s.tell(d)
			if out != "" && !strings.HasSuffix(out, "\n") {
				out += "\n"
			}
			return out
		})
	})
}

type story struct {
	t       *testing.T
	w       *sim.World
	refusal string // why evictions are refused
	looks   map[string]look
}

// look is what an operator saw and decided.
type look struct {
	view sim.View
	plan rollout.Plan
}

func (s *story) tell(d *datadriven.TestData) string {
	switch d.Cmd {
	case "nodes":
		for _, words := range lines(d.Input) {
			s.addNode(words)
		}
		for _, word := range words(d) {
			for i := range number(word) {
				s.addNode([]string{fmt.Sprintf("n%d", i+1)})
			}
		}
	case "node":
		changeNode(s.node(words(d)[0]), words(d)[1:])
		s.w.Touch(words(d)[0])
	case "delete-node":
		name := words(d)[0]
		s.w.Truth.Nodes = slices.DeleteFunc(s.w.Truth.Nodes, func(n rollout.Node) bool { return n.Name == name })
	case "rollout":
		s.rollout(words(d), lines(d.Input))
	case "group":
		changeGroup(s.group(words(d)[0]), words(d)[1:])
	case "move":
		r := s.w.Rollout(rollout.Ref{Kind: "Skyhook", Name: words(d)[0]})
		for i := range r.Targets {
			r.Targets[i].Group = rollout.ParseGroupRef(words(d)[1])
		}
	case "lose-ledger":
		s.w.Truth.Ledgers = slices.DeleteFunc(s.w.Truth.Ledgers, func(l rollout.Ledger) bool { return l.Owner.String() == words(d)[0] })
	case "target":
		changeTarget(s.target(words(d)), words(d)[2:])
	case "task":
		changeTask(s.task(words(d)), words(d)[3:])
	case "pods":
		s.pods(words(d)[0], lines(d.Input))
	case "refuse":
		s.refusal = strings.Join(words(d), " ")
		s.w.Refuse = func(string, rollout.Pod) (string, time.Duration) { return s.refusal, 5 * time.Second }
	case "wait":
		for _, word := range words(d) {
			s.w.Pass(duration(word))
		}
	default:
		return s.happen(d)
	}
	return ""
}

// happen is what has something to show.
func (s *story) happen(d *datadriven.TestData) string {
	switch d.Cmd {
	case "plan":
		return s.actions(rollout.Decide(s.w.View().Snapshot))
	case "apply":
		if w := words(d); len(w) > 0 {
			return s.apply(s.looks[w[0]])
		}
		v := s.w.View()
		return s.apply(look{v, rollout.Decide(v.Snapshot)})
	case "act":
		v := s.w.View()
		p := rollout.Decide(v.Snapshot)
		if err := s.w.Act(v, p); err != nil {
			return err.Error()
		}
		return s.actions(p)
	case "stabilize":
		return s.stabilize()
	case "finish":
		t, k := s.target(words(d)), s.task(words(d))
		s.w.End(t, k)
	case "fail":
		s.fail(words(d))
	case "lose":
		sim.Vanish(s.task(words(d)))
	case "gone":
		s.w.Gone(words(d)[0], words(d)[1])
	case "look":
		v := s.w.View()
		s.looks[words(d)[0]] = look{v, rollout.Decide(v.Snapshot)}
	case "crash-after-ledger":
		v := s.w.View()
		for _, l := range rollout.Decide(v.Snapshot).Ledgers {
			if err := s.w.Write(l); err != nil {
				return err.Error()
			}
		}
	case "cordoned":
		return s.cordoned()
	case "batches":
		return s.batches(words(d))
	case "verdicts":
		return s.verdicts()
	case "groups":
		return s.groups()
	case "ledgers":
		return s.ledgers()
	default:
		s.t.Fatalf("%s: command %s is unknown", d.Pos, d.Cmd)
	}
	return ""
}

func (s *story) apply(l look) string {
	out := s.actions(l.plan)
	if err := s.w.Apply(l.view, l.plan); err != nil {
		out += err.Error() + "\n"
	}
	return out
}

func (s *story) stabilize() string {
	var out strings.Builder
	for pass := 0; ; pass++ {
		if pass == 100 {
			s.t.Fatal("100 passes and still something to do")
		}
		v := s.w.View()
		p := rollout.Decide(v.Snapshot)
		if len(p.Actions) == 0 && !sim.Learned(v, p) && !s.moves() {
			s.w.Save(p)
			return out.String()
		}
		if len(p.Actions) > 0 {
			if pass > 0 {
				out.WriteString("--\n")
			}
			out.WriteString(s.actions(p))
		}
		if err := s.w.Apply(v, p); err != nil {
			out.WriteString(err.Error() + "\n")
		}
		if len(p.Actions) == 0 {
			s.w.Pass(time.Second)
		}
	}
}

// moves lets everything that runs end well, and everybody who is leaving go.
func (s *story) moves() bool {
	moved := false
	for node, pods := range s.w.Workloads {
		for _, p := range slices.Clone(pods) {
			if p.Leaving {
				s.w.Gone(node, p.UID)
				moved = true
			}
		}
	}
	for i := range s.w.Truth.Rollouts {
		for j := range s.w.Truth.Rollouts[i].Targets {
			t := &s.w.Truth.Rollouts[i].Targets[j]
			for k := range t.Tasks {
				if task := &t.Tasks[k]; task.Object != "" && task.State == rollout.StateRunning && s.w.Node(t.Node) != nil {
					s.w.End(t, task)
					moved = true
				}
			}
		}
	}
	return moved
}

func (s *story) fail(w []string) {
	k := s.task(w)
	why := rollout.Why{Reason: rollout.ReasonStageFailed, Text: k.Label + " exited with 1"}
	dead := slices.Contains(w[3:], "dead")
	s.w.Fail(k, dead, why)
}

// actions prints a plan as people read it.
func (s *story) actions(p rollout.Plan) string {
	var out strings.Builder
	for _, a := range p.Actions {
		what := a.Task
		switch a.Verb {
		case rollout.VerbEvict:
			what = a.Pod.Namespace + "/" + a.Pod.Name
		case rollout.VerbRecord:
			what += " " + string(a.State)
		case rollout.VerbCover:
			what += " by " + a.By
		case rollout.VerbAdmit:
			what = "#" + strconv.Itoa(a.Order)
		case rollout.VerbRun:
			if len(a.Covers) > 0 {
				what += " covers " + strings.Join(a.Covers, ",")
			}
		}
		if a.Task == "" && a.Verb == rollout.VerbSweep {
			what = a.Object
		}
		for _, flag := range []struct {
			is   bool
			name string
		}{{a.Force, "force"}, {a.Wipe, "wipe"}, {a.Skip, "skip"}} {
			if flag.is {
				what = strings.TrimSpace(what + " " + flag.name)
			}
		}
		name := a.Node
		if len(s.w.Truth.Rollouts) > 1 {
			name += " " + strings.TrimPrefix(a.Rollout.String(), "Skyhook/")
		}
		fmt.Fprintf(&out, "%s %-7s %-22s %s: %s\n", name, a.Verb, what, a.Why.Reason, a.Why.Text)
	}
	if !p.Next.IsZero() {
		fmt.Fprintf(&out, "look again in %s\n", p.Next.Sub(s.w.Truth.Now))
	}
	return out.String()
}

func (s *story) verdicts() string {
	var out strings.Builder
	p := rollout.Decide(s.w.View().Snapshot)
	for _, r := range p.Reports {
		for _, v := range r.Verdicts {
			name := v.Node
			if len(p.Reports) > 1 {
				name += " " + strings.TrimPrefix(r.Rollout.String(), "Skyhook/")
			}
			fmt.Fprintf(&out, "%s %-9s %s: %s\n", name, v.Phase, v.Why.Reason, v.Why.Text)
		}
	}
	return out.String()
}

// batches plays a rollout to its end: batches demo failing=n3,n4
func (s *story) batches(w []string) string {
	var failing []string
	for _, word := range w[1:] {
		if key, value := setting(word); key == "failing" {
			failing = strings.Split(value, ",")
		}
	}
	return batches(s.w, rollout.Ref{Kind: "Skyhook", Name: w[0]}, failing) + s.groups()
}

func (s *story) cordoned() string {
	var out strings.Builder
	for _, n := range s.w.Truth.Nodes {
		fmt.Fprintf(&out, "%s %v", n.Name, n.Cordoned)
		for _, h := range n.Holds {
			out.WriteString(" " + h.Owner.String())
		}
		out.WriteString("\n")
	}
	return out.String()
}

func (s *story) groups() string {
	var out strings.Builder
	for _, g := range rollout.Decide(s.w.View().Snapshot).Groups {
		m := g.Memory
		fmt.Fprintf(&out, "%s: %d of %d finished, %d failed, %d of %d seats taken; batch %d, open %d, last %d", g.Group,
			g.Finished, g.Matched, g.Failed, g.Busy, g.Ceiling, m.Batch, m.Open, m.LastSize)
		if m.LastFailed {
			fmt.Fprintf(&out, " failed, %d in a row", m.ConsecutiveFailures)
		}
		if m.Stopped {
			out.WriteString(", stopped")
		}
		if g.Why != nil {
			fmt.Fprintf(&out, "; %s: %s", g.Why.Reason, g.Why.Text)
		}
		out.WriteString("\n")
	}
	return out.String()
}

func (s *story) ledgers() string {
	var out strings.Builder
	for _, l := range s.w.Truth.Ledgers {
		fmt.Fprintf(&out, "%s: epoch %d", l.Owner, l.Epoch)
		for _, seat := range l.Admitting {
			out.WriteString(" " + seat.Node)
		}
		out.WriteString("\n")
	}
	return out.String()
}
