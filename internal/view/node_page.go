// SPDX-FileCopyrightText: The Skyhook authors
// SPDX-License-Identifier: Apache-2.0

package view

import (
	"cmp"
	"maps"
	"slices"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"github.com/skyhook-k8s/skyhook/internal/node"
	"github.com/skyhook-k8s/skyhook/internal/rollout"
	"github.com/skyhook-k8s/skyhook/internal/skyhook/report"
)

// Node is what happens on a node, and what happened there.
type Node struct {
	Name     string        `json:"name"`
	State    State         `json:"state"`
	Ready    bool          `json:"ready"`
	Cordoned bool          `json:"cordoned"`
	Why      []Explanation `json:"why"`
	Status   []NodeSummary `json:"status"`
	Work     []Work        `json:"work"`  // of each rollout that selects the node
	Drift    *DriftReport  `json:"drift"` // nil if nobody checks
	Holds    []Hold        `json:"holds"`
	Pods     []Pod         `json:"pods"`
	Events   []NodeEvent   `json:"events"`
}

// Work is what a rollout does on a node.
type Work struct {
	Rollout    string      `json:"rollout"`
	Ref        rollout.Ref `json:"-"`
	State      State       `json:"state"`
	AdmittedAt *time.Time  `json:"admittedAt,omitempty"`
	FinishedAt *time.Time  `json:"finishedAt,omitempty"`
	Preflight  []string    `json:"preflight,omitempty"` // what its packages said that the node needs
	Stages     []Stage     `json:"stages"`
}

// IsOver reports whether nothing is left to do.
func (w Work) IsOver() bool { return w.State == StateComplete || w.State == StateIdle }

// Stage is one stage of a package, or one step of a NodeOp.
type Stage struct {
	Package  string     `json:"package"`
	Label    string     `json:"label"`
	State    string     `json:"state"`
	Started  *time.Time `json:"started,omitempty"`
	Ended    *time.Time `json:"ended,omitempty"` // of the last attempt
	Duration string     `json:"duration,omitempty"`
	Attempts int        `json:"failedAttempts,omitempty"`
	Text     string     `json:"text,omitempty"` // the last words
	Log      string     `json:"log,omitempty"`
}

// Hold is a cordon with an owner.
type Hold struct {
	Owner       string     `json:"owner"`
	Since       *time.Time `json:"since,omitempty"`
	WasCordoned bool       `json:"wasCordoned,omitempty"` // by somebody else, before
}

// Pod is a pod that has to leave the node.
type Pod struct {
	Name    string `json:"name"`
	Rollout string `json:"rollout"`
	Why     string `json:"why"`
}

// NodeEvent is an event of the node.
type NodeEvent struct {
	At      time.Time `json:"at"`
	Type    string    `json:"type"`
	Reason  string    `json:"reason"`
	Text    string    `json:"text"`
	Count   int32     `json:"count,omitempty"`
	Rollout string    `json:"rollout,omitempty"`
}

// NewNode returns what is shown of a node.
func (v *Cluster) NewNode(n *node.Node) *Node {
	out := &Node{
		Name: n.Name, State: StateIdle, Ready: n.Ready, Cordoned: n.Unschedulable, Why: ExplainNode(v, n.Name), Status: []NodeSummary{},
		Work: []Work{}, Holds: []Hold{}, Pods: []Pod{}, Events: []NodeEvent{},
	}
	for _, name := range n.Skyhooks() {
		out.Status = append(out.Status, SummarizeNode(n, name, nil))
	}
	if report, err := v.NewDriftReport(n.Name); err == nil { // an error: nobody checks
		out.Drift = report
	}
	if !n.Ready {
		out.State = StateNotReady
	}
	for i := range v.Snapshot.Rollouts {
		r := &v.Snapshot.Rollouts[i]
		verdict, ok := v.findVerdict(r.Ref, n.Name)
		t := v.findTarget(r.Ref, n.Name)
		if !ok || t == nil {
			if op := v.endedNodeOp(r); op != nil {
				out.Work = append(out.Work, listEndedWork(op, n.Name)...)
			}
			continue
		}
		work := v.newWork(r, t, verdict, n)
		if work.State.IsMoreUrgent(out.State) {
			out.State = work.State
		}
		out.Work = append(out.Work, work)
		out.Pods = append(out.Pods, v.listPodsInTheWay(r, t)...)
	}
	for _, h := range n.Holds(nil) {
		out.Holds = append(out.Holds, Hold{Owner: ShortName(h.Owner), Since: timeOrNil(h.Since), WasCordoned: h.WasCordoned})
	}
	return out
}

func (v *Cluster) newWork(r *rollout.Rollout, t *rollout.Target, verdict rollout.Verdict, n *node.Node) Work {
	work := Work{
		Rollout: ShortName(r.Ref), Ref: r.Ref, State: v.stateOf(r, t, verdict, n),
		AdmittedAt: timeOrNil(t.Visit.LastAdmittedAt), FinishedAt: timeOrNil(t.Visit.FinishedAt), Stages: []Stage{},
	}
	if op := v.NodeOpOf(r); op != nil {
		work.Stages = append(work.Stages, v.listSteps(op, n, t)...)
		return work
	}
	if hook := v.SkyhookOf(r); hook != nil {
		work.Preflight = describeAnswers(v.Compiled.Skyhook(hook).AnswersOf(n))
		work.Stages = append(work.Stages, listDoneStages(n, hook.Name, t)...)
		if len(t.Tasks) == 0 && len(work.Stages) == 0 { // it was finished by an operator that recorded no times
			for _, p := range SummarizeNode(n, hook.Name, hook).Packages {
				work.Stages = append(work.Stages, Stage{Package: p.Name, Label: p.Name + " " + p.Version, State: string(p.Stage) + " " + string(p.State), Attempts: int(p.Restarts)})
			}
		}
	}
	for i := range t.Tasks {
		work.Stages = append(work.Stages, v.newStage(&t.Tasks[i]))
	}
	return work
}

// describeAnswers says what packages said that a node needs, and what they declare that their pods may do.
func describeAnswers(answers map[string]node.Answer) (out []string) {
	for _, key := range slices.Sorted(maps.Keys(answers)) {
		a := answers[key]
		if !a.Absent {
			out = append(out, report.DescribeAnswer(key, a))
		}
		if name, _, _ := strings.Cut(key, "|"); len(a.Privileges) > 0 {
			out = append(out, name+" has the privileges "+strings.Join(a.Privileges, ", "))
		}
	}
	return out
}

// listDoneStages returns the stages that succeeded on a node, by their begin: those of the work that is under way, or of the last one.
func listDoneStages(n *node.Node, name string, t *rollout.Target) []Stage {
	var out []Stage
	for key, p := range n.Skyhook(name).Record.Packages {
		pkg, _, _ := strings.Cut(key, "|")
		for _, d := range p.Done {
			if p.Goal == "" && t.Visit.Admitted && d.At.Before(t.Visit.AdmittedAt) {
				continue // of earlier work
			}
			end := d.At.Add(time.Duration(d.Seconds) * time.Second)
			out = append(out, Stage{
				Package: pkg, Label: pkg + " " + string(d.Stage), State: string(rollout.StateDone), Started: timeOrNil(d.At), Ended: timeOrNil(end),
				Duration: FormatDuration(end.Sub(d.At)), Attempts: d.Failed,
			})
		}
	}
	slices.SortFunc(out, func(a, b Stage) int {
		return cmp.Or(a.Started.Compare(*b.Started), strings.Compare(a.Label, b.Label))
	})
	return out
}

func (v *Cluster) newStage(k *rollout.Task) Stage {
	pkg, _, _ := strings.Cut(k.Label, " ")
	s := Stage{Package: pkg, Label: k.Label, State: string(k.State), Started: timeOrNil(k.Attempts.Started), Attempts: k.Attempts.Failed}
	if k.Why != nil {
		s.Text = k.Why.Text
	}
	switch {
	case k.State == rollout.StateRunning && !k.Attempts.Started.IsZero():
		s.Duration = FormatDuration(v.Snapshot.Now.Sub(k.Attempts.Started))
	case k.State == rollout.StateFailing:
		s.Ended = timeOrNil(k.Attempts.FailedAt)
		if !k.Attempts.Started.IsZero() && k.Attempts.FailedAt.After(k.Attempts.Started) {
			s.Duration = FormatDuration(k.Attempts.FailedAt.Sub(k.Attempts.Started))
		}
	}
	return s
}

// listPodsInTheWay returns the pods that must leave a node, or that are waited for.
func (v *Cluster) listPodsInTheWay(r *rollout.Rollout, t *rollout.Target) []Pod {
	if !t.NeedsDrain() {
		return nil
	}
	pods, isLoaded := v.podsToEvict(r, t.Node)
	if !isLoaded {
		pods = t.Drain.Pods
	}
	var out []Pod
	for _, p := range pods {
		why := "it is evicted"
		switch budget := v.Budgets[types.UID(p.UID)]; {
		case p.Wait:
			why = "it must not be interrupted (podNonInterruptLabels): it is waited for"
		case p.Keep != "":
			why = "it cannot be evicted: " + p.Keep
		case p.Leaving:
			why = "it is terminating"
		case budget != "" || p.Refused != "":
			why = "its eviction is refused: " + cmp.Or(p.Refused, budget+" allows no disruption now")
		}
		out = append(out, Pod{Name: p.Namespace + "/" + p.Name, Rollout: ShortName(r.Ref), Why: why})
	}
	return out
}
