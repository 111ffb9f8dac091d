// SPDX-FileCopyrightText: The Skyhook authors
// SPDX-License-Identifier: Apache-2.0

package view

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	nodeopv1 "github.com/skyhook-k8s/skyhook/api/nodeop/v1alpha1"
	"github.com/skyhook-k8s/skyhook/api/skyhook/v1alpha1"
	"github.com/skyhook-k8s/skyhook/internal/nodeop"
	opreport "github.com/skyhook-k8s/skyhook/internal/nodeop/report"
	"github.com/skyhook-k8s/skyhook/internal/output"
	"github.com/skyhook-k8s/skyhook/internal/profile"
	"github.com/skyhook-k8s/skyhook/internal/rollout"
)

// RolloutStatus is the status of one rollout.
type RolloutStatus struct {
	v1alpha1.Outcome
	Name       rollout.Ref         `json:"name"`
	Status     string              `json:"status"`
	Profile    *profile.Chosen     `json:"profile,omitempty"`
	Nodes      int                 `json:"nodes"`
	Complete   int                 `json:"complete"`
	InProgress int                 `json:"inProgress"`
	Failing    int                 `json:"failing"`
	Waiting    int                 `json:"waiting"`
	Blocked    int                 `json:"blocked"`
	Skipped    []reasonCount       `json:"skipped,omitempty"` // nodes of a NodeOp whose check found nothing to do; not among the complete ones
	Left       string              `json:"timeLeft,omitempty"`
	Groups     []groupStatus       `json:"groups"`
	Reasons    []reasonCount       `json:"reasons"`
	Failures   []failure           `json:"failures"`
	Working    []runningTask       `json:"working"`
	Drains     []DrainStatus       `json:"drains,omitempty"` // of nodes with pods in the way
	Packages   []string            `json:"packages,omitempty"`
	PerPackage []Package           `json:"packageProgress,omitempty"` // of one rollout
	Images     []PackageImage      `json:"images,omitempty"`          // with pinImages
	Revisions  []v1alpha1.Revision `json:"revisions,omitempty"`       // as the operator wrote them last
	Problem    string              `json:"problem,omitempty"`
	Ended      bool                `json:"ended,omitempty"`      // a NodeOp that has ended, successfully or not
	FinishedAt *time.Time          `json:"finishedAt,omitempty"` // the last node

	Expected *time.Time `json:"estimatedCompletion,omitempty"`
	Times    string     `json:"times,omitempty"` // how long a node takes, and from what that is known
}

// groupStatus is the progress of one group.
type groupStatus struct {
	Name     string `json:"name"`
	Nodes    int    `json:"nodes"`
	Complete int    `json:"complete"`
	Failed   int    `json:"failed"`
	Busy     int    `json:"busy"`
	Budget   int    `json:"budget"` // -1 for none
	Batch    int    `json:"batch"`
	Stopped  bool   `json:"stopped,omitempty"`
	Why      string `json:"why,omitempty"`

	Counted   []Cell `json:"counted,omitempty"`   // of one rollout: the nodes that count against the budget, at most fifty
	NotListed int    `json:"notListed,omitempty"` // further nodes that do

	ref rollout.GroupRef
}

// failure is a failing node.
type failure struct {
	Node     string `json:"node"`
	Task     string `json:"task,omitempty"`
	Attempts int    `json:"attempts"`
	Final    bool   `json:"final"`
	Text     string `json:"text"`
}

// runningTask is a task that runs on some nodes.
type runningTask struct {
	Task  string   `json:"task"`
	Nodes int      `json:"nodes"`
	First []string `json:"first"`
}

// SummarizeRollout returns the status of a rollout.
func SummarizeRollout(v *Cluster, r *rollout.Rollout) RolloutStatus {
	if op := v.endedNodeOp(r); op != nil {
		s := summarizeEnded(op)
		s.Outcome, s.Profile = opreport.Status(v.Compiled.NodeOp(op), rollout.Report{}, nil).Outcome, v.Objects.Profiles[r.Ref]
		return s
	}
	s := RolloutStatus{Name: r.Ref, Profile: v.Objects.Profiles[r.Ref], Groups: []groupStatus{}, Reasons: []reasonCount{}, Failures: []failure{}, Working: []runningTask{}}
	if r.Broken != nil {
		s.Problem = r.Broken.Text
	}
	report := v.ReportOf(r.Ref)
	s.addVerdicts(v, r, report.Verdicts)
	s.Drains = describeDrains(v.Snapshot.Now, report.Draining)
	s.addGroups(v, r)
	hook := v.SkyhookOf(r)
	if hook == nil {
		s.Status = s.deriveStatus(r)
		if op := v.NodeOpOf(r); op != nil {
			status := opreport.Status(v.Compiled.NodeOp(op), *report, v.Plan.Groups)
			s.Outcome = status.Outcome
			s.setExpected(v, r, status.EstimatedCompletion)
			s.takeOutSkipped(op)
		}
		return s
	}
	status := v.Compiled.Skyhook(hook).Status(*report, v.Plan.Groups)
	s.setExpected(v, r, status.EstimatedCompletion)
	s.Status, s.Outcome = string(status.Status), status.Outcome
	for name, p := range hook.Spec.Packages {
		s.Packages = append(s.Packages, name+" "+string(p.Version))
	}
	slices.Sort(s.Packages)
	s.Images = v.listImages(r)
	s.Revisions = v.listRevisions(r)
	return s
}

// takeOutSkipped lists the nodes that a check skipped, by the reason that it gave, and does not count them as complete.
func (s *RolloutStatus) takeOutSkipped(op *nodeopv1.NodeOp) {
	for _, name := range slices.Sorted(maps.Keys(op.Status.NodeStatuses)) {
		entry := op.Status.NodeStatuses[name]
		if !nodeop.IsEntrySkipped(entry) || s.Complete == 0 {
			continue
		}
		text := strings.TrimPrefix(entry.Message, nodeop.PrefixSkipped)
		at := slices.IndexFunc(s.Skipped, func(c reasonCount) bool { return c.Text == text })
		if at < 0 {
			at = len(s.Skipped)
			s.Skipped = append(s.Skipped, reasonCount{Reason: "Skipped", Text: text})
		}
		c := &s.Skipped[at]
		s.Complete, c.Nodes = s.Complete-1, c.Nodes+1
		c.First = append(c.First, name)[:min(len(c.First)+1, 3)]
	}
}

// FirstReason says in one line why a rollout is where it is; nothing if there is nothing to say.
func (s *RolloutStatus) FirstReason() string {
	switch {
	case s.Problem != "":
		return s.Problem
	case len(s.Failures) > 0:
		return s.Failures[0].Node + ": " + s.Failures[0].Text
	case len(s.Reasons) > 0:
		return fmt.Sprintf("%s: %s", output.Count(s.Reasons[0].Nodes, "node"), s.Reasons[0].Text)
	case len(s.Skipped) > 0:
		return fmt.Sprintf("%s skipped: %s", output.Count(s.Skipped[0].Nodes, "node"), s.Skipped[0].Text)
	}
	return ""
}

// CountSkipped counts the nodes that a check skipped.
func (s *RolloutStatus) CountSkipped() (n int) {
	for _, c := range s.Skipped {
		n += c.Nodes
	}
	return n
}

// setExpected notes when a rollout should be complete.
func (s *RolloutStatus) setExpected(v *Cluster, r *rollout.Rollout, at *metav1.Time) {
	if at != nil {
		s.Expected, s.Left, s.Times = timeOrNil(at.Time), FormatEstimate(at.Sub(v.Snapshot.Now)), v.describeTimes(r)
	}
}

// addVerdicts counts nodes by phase and reason, and lists failures and running tasks.
func (s *RolloutStatus) addVerdicts(v *Cluster, r *rollout.Rollout, verdicts []rollout.Verdict) {
	var waiting []rollout.Verdict
	running := map[string][]string{} // nodes by task
	for i, verdict := range verdicts {
		t := r.Targets[i]
		if t.Leaving || t.Gone {
			continue
		}
		s.Nodes++
		switch verdict.Phase {
		case rollout.PhaseFinished:
			s.Complete++
			if at := timeOrNil(t.Visit.FinishedAt); at != nil && (s.FinishedAt == nil || at.After(*s.FinishedAt)) {
				s.FinishedAt = at
			}
			if verdict.Why.Reason == rollout.ReasonSoak {
				waiting = append(waiting, addSoakLeft(v, t.Group, verdict))
			}
			continue
		case rollout.PhaseFailing, rollout.PhaseFailed:
			s.Failing++
			s.Failures = append(s.Failures, newFailure(t, verdict))
			continue
		case rollout.PhaseInFlight:
			s.InProgress++
		case rollout.PhaseBlocked:
			s.Blocked++
		default:
			s.Waiting++
		}
		if verdict.Why.Reason != rollout.ReasonWorking {
			waiting = append(waiting, verdict)
			continue
		}
		for _, k := range t.Tasks {
			if k.State == rollout.StateRunning {
				running[k.Label] = append(running[k.Label], t.Node)
			}
		}
	}
	s.Reasons = append(s.Reasons, countReasons(waiting)...)
	for label, nodes := range running {
		s.Working = append(s.Working, runningTask{label, len(nodes), nodes[:min(3, len(nodes))]})
	}
	slices.SortFunc(s.Working, func(a, b runningTask) int { return cmp.Or(cmp.Compare(b.Nodes, a.Nodes), cmp.Compare(a.Task, b.Task)) })
	slices.SortStableFunc(s.Failures, func(a, b failure) int {
		if a.Final != b.Final {
			return boolToInt(b.Final) - boolToInt(a.Final)
		}
		return cmp.Compare(b.Attempts, a.Attempts)
	})
}

// addSoakLeft says how long a node must still be ready before it counts. One that is not ready has no such time.
func addSoakLeft(v *Cluster, group rollout.GroupRef, verdict rollout.Verdict) rollout.Verdict {
	if left := verdict.Why.Since.Add(v.soakOf(group)).Sub(v.Snapshot.Now); left > 0 {
		verdict.Why.Text += ", " + FormatDuration(left) + " from now"
	}
	return verdict
}

func boolToInt(b bool) int {
	if b {
		return 1
	}
	return 0
}

func newFailure(t *rollout.Target, verdict rollout.Verdict) failure {
	f := failure{Node: t.Node, Text: verdict.Why.Text, Final: verdict.Phase == rollout.PhaseFailed}
	for _, k := range t.Tasks {
		if k.Attempts.Failed > f.Attempts || f.Task == "" && k.State == rollout.StateFailing {
			f.Task, f.Attempts = k.Label, max(k.Attempts.Failed, f.Attempts)
		}
	}
	f.Task = cmp.Or(f.Task, map[rollout.Reason]string{rollout.ReasonRolledBack: "rollback", rollout.ReasonProofFailed: "proof"}[verdict.Why.Reason], "drain")
	return f
}

// deriveStatus returns the status of a NodeOp in the words of a Skyhook's status.
func (s *RolloutStatus) deriveStatus(r *rollout.Rollout) string {
	switch {
	case s.Complete == s.Nodes:
		return "complete"
	case r.Paused:
		return "paused"
	case s.InProgress > 0:
		return "in_progress"
	case s.Failing > 0:
		return "erroring"
	case s.Blocked > 0:
		return "blocked"
	}
	return "waiting"
}

func (s *RolloutStatus) addGroups(v *Cluster, r *rollout.Rollout) {
	isUsed, exists := map[rollout.GroupRef]bool{}, map[rollout.GroupRef]bool{}
	for i := range r.Targets {
		isUsed[r.Targets[i].Group] = true
	}
	for i := range v.Snapshot.Groups {
		exists[v.Snapshot.Groups[i].Ref] = true
	}
	reports := map[rollout.GroupRef]rollout.GroupReport{}
	for _, report := range v.Plan.Groups {
		reports[report.Group] = report
	}
	for _, ref := range slices.SortedFunc(maps.Keys(isUsed), rollout.GroupRef.Compare) {
		if !exists[ref] {
			continue
		}
		report := reports[ref]
		g := groupStatus{
			Name: groupName(r, ref), Nodes: report.Matched, Complete: report.Finished, Failed: report.Failed, Busy: report.Busy,
			Budget: report.Ceiling, Batch: report.Memory.Batch, Stopped: report.Memory.Stopped, ref: ref,
		}
		if report.Why != nil {
			g.Why = report.Why.Text
		}
		s.Groups = append(s.Groups, g)
	}
}

// summarizeEnded summarizes the status of an ended NodeOp.
func summarizeEnded(op *nodeopv1.NodeOp) RolloutStatus {
	s := RolloutStatus{
		Name: nodeop.Ref(op), Status: "complete", Ended: true, Nodes: int(op.Status.Total), Complete: int(op.Status.Completed + op.Status.Skipped),
		Failing: int(op.Status.Failed), Groups: []groupStatus{}, Reasons: []reasonCount{}, Failures: []failure{}, Working: []runningTask{},
	}
	if op.Status.Phase == nodeopv1.PhaseFailed {
		s.Status = "failed"
	}
	s.takeOutSkipped(op)
	for _, node := range slices.Sorted(maps.Keys(op.Status.NodeStatuses)) {
		n := op.Status.NodeStatuses[node]
		if end := n.CompletionTime; end != nil && (s.FinishedAt == nil || end.After(*s.FinishedAt)) {
			s.FinishedAt = timeOrNil(end.Time)
		}
		if n.Phase != nodeopv1.PhaseFailed {
			continue
		}
		text := n.Message
		if n.ExitCode != nil {
			text += fmt.Sprintf(", exit code %d", *n.ExitCode)
		}
		if n.Output != "" {
			text += rollout.LastOutput + strings.ReplaceAll(strings.TrimSpace(n.Output), "\n", " | ")
		}
		s.Failures = append(s.Failures, failure{Node: node, Task: "command", Attempts: int(max(n.Attempts, 1)), Final: true, Text: text})
	}
	return s
}

// listRevisions returns the revisions of a Skyhook; nothing for a NodeOp.
func (v *Cluster) listRevisions(r *rollout.Rollout) []v1alpha1.Revision {
	if hook := v.SkyhookOf(r); hook != nil {
		return hook.Status.Revisions
	}
	return nil
}
