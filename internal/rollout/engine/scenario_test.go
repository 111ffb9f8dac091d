// SPDX-FileCopyrightText: The Skyhook authors
// SPDX-License-Identifier: Apache-2.0

package engine_test

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/cockroachdb/datadriven"

	"github.com/skyhook-k8s/skyhook/internal/rollout"
	"github.com/skyhook-k8s/skyhook/internal/rollout/engine"
	"github.com/skyhook-k8s/skyhook/internal/rollout/timing"
	"github.com/skyhook-k8s/skyhook/internal/sim"
)

// TestScenarios runs the scenarios in testdata. Each is a list of commands:
//
//	nodes, rollout, group, task, target, node, pods   set up or change the simulated cluster
//	plan                        print what Decide returns now
//	apply                       print and apply it
//	act                         print and apply it without storing the status
//	stabilize                   apply plans until nothing changes; tasks succeed, evicted pods terminate
//	finish, fail, lose, gone    a task succeeds or fails, its object is lost, a pod is gone
//	batches                     run a rollout of one task to its end and list the nodes that were admitted together
//	wait                        advance the clock
//	measure                     from now on measure how long things take, as one process
//	observe, apply NAME         decide now, and apply the plan later
//	crash-after-ledger          write the ledgers of a plan only
//	restart                     measure anew, as the next leader
//	verdicts, groups, ledgers, cordoned, maintenance   print the verdicts, the groups, the ledgers, the nodes, what others are told about them
//	drains                      print the progress of drains, with the remedy of each verdict
func TestScenarios(t *testing.T) {
	datadriven.Walk(t, "testdata", func(t *testing.T, path string) {
		s := &scenario{t: t, observations: map[string]observation{}, cluster: sim.New(rollout.Snapshot{Now: time.Date(2026, 1, 5, 8, 0, 0, 0, time.UTC)})}
		datadriven.RunTest(t, path, func(t *testing.T, d *datadriven.TestData) string {
			s.t = t
			out := s.run(d)
			if out != "" && !strings.HasSuffix(out, "\n") {
				out += "\n"
			}
			return out
		})
	})
}

type scenario struct {
	t            *testing.T
	cluster      *sim.Cluster
	refusal      string // why evictions are refused
	observations map[string]observation
	durations    *timing.Durations // nil: recorded times count
}

// view returns what an operator observes.
func (s *scenario) view() sim.View {
	v := s.cluster.View()
	if s.durations != nil {
		s.durations.Measure(&v.Snapshot)
	}
	return v
}

// observation is a view of an operator, and its plan.
type observation struct {
	view sim.View
	plan rollout.Plan
}

// run runs a command. Commands that change the cluster print nothing.
func (s *scenario) run(d *datadriven.TestData) string {
	switch d.Cmd {
	case "nodes":
		for _, words := range parseLines(d.Input) {
			s.addNode(words)
		}
		for _, word := range parseWords(d) {
			for i := range parseNumber(word) {
				s.addNode([]string{fmt.Sprintf("n%d", i+1)})
			}
		}
	case "node":
		changeNode(s.findNode(parseWords(d)[0]), parseWords(d)[1:])
		s.cluster.TouchNode(parseWords(d)[0])
	case "delete-node":
		name := parseWords(d)[0]
		s.cluster.State.Nodes = slices.DeleteFunc(s.cluster.State.Nodes, func(n rollout.Node) bool { return n.Name == name })
	case "rollout":
		s.setRollout(parseWords(d), parseLines(d.Input))
	case "group":
		changeGroup(s.findOrAddGroup(parseWords(d)[0]), parseWords(d)[1:], s.cluster.State.Now)
	case "move":
		r := s.cluster.FindRollout(rollout.Ref{Kind: "Skyhook", Name: parseWords(d)[0]})
		for i := range r.Targets {
			r.Targets[i].Group = rollout.ParseGroupRef(parseWords(d)[1])
		}
	case "lose-ledger":
		s.cluster.State.Ledgers = slices.DeleteFunc(s.cluster.State.Ledgers, func(l rollout.Ledger) bool { return l.Owner.String() == parseWords(d)[0] })
	case "target":
		s.changeTarget(s.findTarget(parseWords(d)), parseWords(d)[2:])
	case "task":
		changeTask(s.findTask(parseWords(d)), parseWords(d)[3:])
	case "measure":
		s.durations = timing.NewDurations()
	case "pods":
		s.addPods(parseWords(d)[0], parseLines(d.Input))
	case "refuse":
		s.refusal = strings.Join(parseWords(d), " ")
		s.cluster.RefuseEviction = func(string, rollout.Pod) (string, time.Duration) { return s.refusal, 5 * time.Second }
	case "wait":
		for _, word := range parseWords(d) {
			advanceClock(s.cluster, parseDuration(word))
		}
	default:
		return s.runPrinting(d)
	}
	return ""
}

// runPrinting runs a command that prints a result, or lets something happen to a task or a pod.
func (s *scenario) runPrinting(d *datadriven.TestData) string {
	switch d.Cmd {
	case "plan":
		return s.formatActions(engine.Decide(s.view().Snapshot))
	case "apply":
		if w := parseWords(d); len(w) > 0 {
			return s.applyPlan(s.observations[w[0]])
		}
		v := s.view()
		return s.applyPlan(observation{v, engine.Decide(v.Snapshot)})
	case "act":
		v := s.view()
		p := engine.Decide(v.Snapshot)
		if err := s.cluster.ApplyActions(v, p); err != nil {
			return err.Error()
		}
		return s.formatActions(p)
	case "stabilize":
		return s.stabilize()
	case "finish":
		t, k := s.findTarget(parseWords(d)), s.findTask(parseWords(d))
		s.cluster.SucceedTask(t, k)
	case "fail":
		s.failTask(parseWords(d))
	case "lose":
		s.cluster.LoseObject(s.findTarget(parseWords(d)), s.findTask(parseWords(d)))
	case "gone":
		s.cluster.RemovePod(parseWords(d)[0], parseWords(d)[1])
	case "observe":
		v := s.view()
		s.observations[parseWords(d)[0]] = observation{v, engine.Decide(v.Snapshot)}
	case "crash-after-ledger":
		v := s.view()
		for _, l := range engine.Decide(v.Snapshot).Ledgers {
			if err := s.cluster.WriteLedger(l); err != nil {
				return err.Error()
			}
		}
	case "maintenance":
		return s.formatMaintenance()
	case "drains":
		return s.formatDrains()
	case "restart":
		s.durations = timing.NewDurations()
	case "cordoned":
		return s.formatNodes()
	case "batches":
		return s.runBatches(parseWords(d))
	case "verdicts":
		return s.formatVerdicts()
	case "groups":
		return s.formatGroups()
	case "ledgers":
		return s.formatLedgers()
	default:
		s.t.Fatalf("%s: command %s is unknown", d.Pos, d.Cmd)
	}
	return ""
}

func (s *scenario) applyPlan(o observation) string {
	s.durations.RecordDrains(o.view.Snapshot, o.plan)
	out := s.formatActions(o.plan)
	if err := s.cluster.Apply(o.view, o.plan); err != nil {
		out += err.Error() + "\n"
	}
	return out
}

func (s *scenario) stabilize() string {
	var out strings.Builder
	for pass := 0; ; pass++ {
		if pass == 100 {
			s.t.Fatal("after 100 passes there are still actions")
		}
		v := s.view()
		p := engine.Decide(v.Snapshot)
		if len(p.Actions) == 0 && !sim.HasStatusChange(v, p) && !s.finishAll() {
			s.cluster.SaveStatus(p)
			return out.String()
		}
		if len(p.Actions) > 0 {
			if pass > 0 {
				out.WriteString("--\n")
			}
			out.WriteString(s.formatActions(p))
		}
		if err := s.cluster.Apply(v, p); err != nil {
			out.WriteString(err.Error() + "\n")
		}
		if len(p.Actions) == 0 {
			advanceClock(s.cluster, time.Second)
		}
	}
}

// finishAll lets all running tasks succeed and all evicted pods terminate, and reports whether there were any.
func (s *scenario) finishAll() bool {
	changed := false
	for node, pods := range s.cluster.Workloads {
		for _, p := range slices.Clone(pods) {
			if p.Leaving {
				s.cluster.RemovePod(node, p.UID)
				changed = true
			}
		}
	}
	for i := range s.cluster.State.Rollouts {
		for j := range s.cluster.State.Rollouts[i].Targets {
			t := s.cluster.State.Rollouts[i].Targets[j]
			for k := range t.Tasks {
				if task := &t.Tasks[k]; task.Object.Name != "" && task.State == rollout.StateRunning && s.cluster.FindNode(t.Node) != nil {
					s.cluster.SucceedTask(t, task)
					changed = true
				}
			}
		}
	}
	return changed
}

func (s *scenario) failTask(w []string) {
	k := s.findTask(w)
	why := rollout.Why{Reason: rollout.ReasonStageFailed, Text: k.Label + " exited with 1"}
	dead := slices.Contains(w[3:], "dead")
	failTask(s.cluster, k, dead, why)
}

// formatActions prints a plan.
func (s *scenario) formatActions(p rollout.Plan) string {
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
		case rollout.VerbCount:
			what = strconv.Itoa(a.Pods)
		case rollout.VerbAdmit:
			what = "#" + strconv.Itoa(a.Order)
		case rollout.VerbJoin:
			what = strings.Join(a.Covers, ",")
		case rollout.VerbRun:
			if len(a.Covers) > 0 {
				what += " covers " + strings.Join(a.Covers, ",")
			}
			if len(a.Then) > 0 {
				what += " then " + strings.Join(a.Then, ",")
			}
		case rollout.VerbRecall, rollout.VerbAsk:
			what = a.Object
		}
		if a.Task == "" && a.Verb == rollout.VerbSweep {
			what = a.Object
		}
		for _, flag := range []struct {
			is   bool
			name string
		}{{a.Force, "force"}, {a.Wipe, "wipe"}, {a.Skip, "skip"}, {a.Postpone, "postpone"}} {
			if flag.is {
				what = strings.TrimSpace(what + " " + flag.name)
			}
		}
		name := a.Node
		if len(s.cluster.State.Rollouts) > 1 {
			name += " " + strings.TrimPrefix(a.Rollout.String(), "Skyhook/")
		}
		text := a.Why.Text
		if a.CanWait {
			text += " (can wait)"
		}
		fmt.Fprintf(&out, "%s %-7s %-22s %s: %s\n", name, a.Verb, what, a.Why.Reason, text)
	}
	if len(p.Look) > 0 {
		fmt.Fprintf(&out, "look at %s\n", strings.Join(p.Look, " "))
	}
	if !p.Next.IsZero() {
		fmt.Fprintf(&out, "next pass in %s\n", p.Next.Sub(s.cluster.State.Now))
	}
	return out.String()
}

func (s *scenario) formatVerdicts() string {
	var out strings.Builder
	p := engine.Decide(s.view().Snapshot)
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

// runBatches runs a rollout to its end: batches demo failing=n3,n4
func (s *scenario) runBatches(w []string) string {
	var failing []string
	for _, word := range w[1:] {
		if key, value := splitSetting(word); key == "failing" {
			failing = strings.Split(value, ",")
		}
	}
	return runBatches(s.cluster, rollout.Ref{Kind: "Skyhook", Name: w[0]}, failing) + s.formatGroups()
}

func (s *scenario) formatNodes() string {
	var out strings.Builder
	for _, n := range s.cluster.State.Nodes {
		fmt.Fprintf(&out, "%s %v", n.Name, n.Cordoned)
		for _, h := range n.Holds {
			out.WriteString(" " + h.Owner.String())
		}
		out.WriteString("\n")
	}
	return out.String()
}

func (s *scenario) formatDrains() string {
	var out strings.Builder
	p := engine.Decide(s.view().Snapshot)
	for _, d := range p.Draining {
		fmt.Fprintf(&out, "%s %d of %d pods left, for %s", d.Node, d.Left, d.All, s.cluster.State.Now.Sub(d.Since))
		if d.Long {
			out.WriteString(", long")
		}
		for _, c := range d.Waiting {
			fmt.Fprintf(&out, ", %d %s", c.Pods, c.Reason)
		}
		out.WriteString("\n")
		for _, pod := range d.Slowest {
			fmt.Fprintf(&out, "  %s %s: %s", pod.Pod, pod.Reason, pod.Text)
			if !pod.Ends.IsZero() {
				fmt.Fprintf(&out, ", until %s", pod.Ends.Format(time.TimeOnly))
			}
			out.WriteString("\n")
		}
	}
	for _, r := range p.Reports {
		for _, v := range r.Verdicts {
			if remedy := v.Why.Remedy("demo", v.Node, ""); remedy != "" {
				fmt.Fprintf(&out, "%s → %s\n", v.Node, remedy)
			}
		}
	}
	return out.String()
}

func (s *scenario) formatMaintenance() string {
	var out strings.Builder
	for _, m := range engine.Decide(s.cluster.View().Snapshot).Maintenance {
		fmt.Fprintf(&out, "%s %s of %s\n", m.Node, m.State, m.Rollout.Name)
	}
	return out.String()
}

func (s *scenario) formatGroups() string {
	var out strings.Builder
	for _, g := range engine.Decide(s.view().Snapshot).Groups {
		m := g.Memory
		fmt.Fprintf(&out, "%s: %d of %d finished, %d failed, %d of %d slots used; batch %d, open %d, last %d", g.Group,
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

func (s *scenario) formatLedgers() string {
	var out strings.Builder
	for _, l := range s.cluster.State.Ledgers {
		fmt.Fprintf(&out, "%s: epoch %d", l.Owner, l.Epoch)
		for _, r := range l.Admitting {
			out.WriteString(" " + r.Node)
		}
		out.WriteString("\n")
	}
	return out.String()
}

// failTask lets the running attempt of a task fail. If it is dead, its object does not retry.
func failTask(c *sim.Cluster, k *rollout.Task, dead bool, why rollout.Why) {
	k.State, k.Object.Dead, k.Object.Unpulled, k.Why = rollout.StateFailing, dead, false, &why
	k.Attempts.Failed, k.Attempts.FailedAt = k.Attempts.Failed+1, c.State.Now
}

// advanceClock lets time pass.
func advanceClock(c *sim.Cluster, d time.Duration) { c.State.Now = c.State.Now.Add(d) }
