// SPDX-FileCopyrightText: The Skyhook authors
// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"cmp"
	"context"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/skyhook-k8s/skyhook/internal/output"
	"github.com/skyhook-k8s/skyhook/internal/rollout"
)

func (a *factory) statusCommand() *cobra.Command {
	var from viewOptions
	watch := false
	every := 2 * time.Second
	cmd := &cobra.Command{
		Use:   "status [SKYHOOK|nodeop/NAME]",
		Short: "Show how far rollouts are, how fast they go, and what is stuck",
		Long: "Show how far rollouts are, how fast they go, and what is stuck: one line for each, or one screen for the one named.\n\n" +
			"With -w it goes on until everything is done or you interrupt it: redrawn on a terminal, appended elsewhere when\n" +
			"something changed.",
		Example: "  kubectl skyhook status\n" +
			"  kubectl skyhook status demo -w\n" +
			"  kubectl skyhook status nodeop/kernel-version -o json",
		Args: cobra.MaximumNArgs(1), ValidArgsFunction: a.completeSkyhooks,
		RunE: func(cmd *cobra.Command, args []string) error {
			if watch {
				return a.watch(cmd.Context(), from, args, every)
			}
			ans, _, err := a.status(cmd.Context(), from, args)
			if err != nil {
				return err
			}
			return a.Print(ans)
		},
	}
	from.addFlags(cmd)
	cmd.Flags().BoolVarP(&watch, "watch", "w", false, "go on showing it")
	cmd.Flags().DurationVar(&every, "interval", every, "with -w: look again after this time")
	return cmd
}

// rolloutStatus is how one rollout stands.
type rolloutStatus struct {
	Name       rollout.Ref   `json:"name"`
	Status     string        `json:"status"`
	Nodes      int           `json:"nodes"`
	Complete   int           `json:"complete"`
	InProgress int           `json:"inProgress"`
	Failing    int           `json:"failing"`
	Waiting    int           `json:"waiting"`
	Blocked    int           `json:"blocked"`
	Left       string        `json:"timeLeft,omitempty"`
	PerHour    float64       `json:"nodesPerHour,omitempty"`
	Groups     []groupStatus `json:"groups"`
	Reasons    []reasonCount `json:"reasons"`
	Failures   []failure     `json:"failures"`
	Working    []runningTask `json:"working"`
	Packages   []string      `json:"packages,omitempty"`
	Problem    string        `json:"problem,omitempty"`
	Ended      bool          `json:"ended,omitempty"` // a NodeOp that goes on no more, well or not
}

// groupStatus is how far one group is.
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
}

// failure is one node where something fails.
type failure struct {
	Node     string `json:"node"`
	Task     string `json:"task,omitempty"`
	Attempts int    `json:"attempts"`
	Final    bool   `json:"final"`
	Text     string `json:"text"`
}

// runningTask is one thing that runs.
type runningTask struct {
	Task  string   `json:"task"`
	Nodes int      `json:"nodes"`
	First []string `json:"first"`
}

// status looks, and says whether everything it speaks of is done.
func (a *factory) status(ctx context.Context, from viewOptions, args []string) (output.Answer, bool, error) {
	if _, err := a.CheckFormat(); err != nil {
		return output.Answer{}, false, err
	}
	s, err := a.loadView(ctx, from)
	if err != nil {
		return output.Answer{}, false, err
	}
	if err := s.checkNames(args); err != nil {
		return output.Answer{}, false, err
	}
	states, done := []rolloutStatus{}, true
	for i := range s.snapshot.Rollouts {
		r := &s.snapshot.Rollouts[i]
		if len(args) > 0 && !matchesRollout(r, args[0]) {
			continue
		}
		st := s.summarizeRollout(r)
		states = append(states, st)
		done = done && (st.Ended || st.Complete == st.Nodes)
	}
	var names []string
	for _, st := range states {
		names = append(names, strings.ToLower(st.Name.String()))
	}
	ans := output.Answer{Value: any(states), Names: names, Text: func(wide bool) string {
		if len(args) > 0 {
			return a.screen(&states[0], wide)
		}
		return a.overview(states)
	}}
	if len(args) > 0 {
		ans.Value = states[0]
	}
	return ans, done, nil
}

// summarizeRollout sums one rollout up.
func (s *view) summarizeRollout(r *rollout.Rollout) rolloutStatus {
	if o := s.endedNodeOp(r); o != nil {
		return summarizeEnded(o)
	}
	st := rolloutStatus{Name: r.Ref, Groups: []groupStatus{}, Reasons: []reasonCount{}, Failures: []failure{}, Working: []runningTask{}}
	if r.Broken != nil {
		st.Problem = r.Broken.Text
	}
	by := map[rollout.Reason][]rollout.Verdict{}
	tasks := map[string][]string{}
	verdicts := s.reportOf(r.Ref).Verdicts
	for i, v := range verdicts {
		t := &r.Targets[i]
		if t.Leaving || t.Gone {
			continue
		}
		st.Nodes++
		switch v.Phase {
		case rollout.PhaseFinished:
			st.Complete++
			continue
		case rollout.PhaseInFlight:
			st.InProgress++
		case rollout.PhaseFailing, rollout.PhaseFailed:
			st.Failing++
			st.Failures = append(st.Failures, failing(t, v))
			continue
		case rollout.PhaseBlocked:
			st.Blocked++
		default:
			st.Waiting++
		}
		if v.Why.Reason == rollout.ReasonWorking {
			for _, k := range t.Tasks {
				if k.State == rollout.StateRunning {
					tasks[k.Label] = append(tasks[k.Label], t.Node)
				}
			}
			continue
		}
		by[v.Why.Reason] = append(by[v.Why.Reason], v)
	}
	st.Reasons = append(st.Reasons, countReasons(by)...)
	for label, nodes := range tasks {
		st.Working = append(st.Working, runningTask{label, len(nodes), nodes[:min(3, len(nodes))]})
	}
	slices.SortFunc(st.Working, func(a, b runningTask) int { return cmp.Or(cmp.Compare(b.Nodes, a.Nodes), cmp.Compare(a.Task, b.Task)) })
	slices.SortStableFunc(st.Failures, func(a, b failure) int {
		return cmp.Or(boolean(b.Final)-boolean(a.Final), cmp.Compare(b.Attempts, a.Attempts))
	})
	st.Status = s.statusWord(r, &st)
	s.addGroups(r, &st)
	if !r.Paused { // of what rests nobody knows when it goes on
		st.PerHour, st.Left = s.estimateSpeed(r, st.Nodes-st.Complete-st.Blocked)
	}
	if hook := s.skyhookOf(r); hook != nil {
		for name, p := range hook.Spec.Packages {
			st.Packages = append(st.Packages, name+" "+string(p.Version))
		}
		slices.Sort(st.Packages)
	}
	return st
}

func boolean(b bool) int {
	if b {
		return 1
	}
	return 0
}

// failing says what fails on a node.
func failing(t *rollout.Target, v rollout.Verdict) failure {
	f := failure{Node: t.Node, Text: v.Why.Text, Final: v.Phase == rollout.PhaseFailed}
	for _, k := range t.Tasks {
		if k.Attempts > f.Attempts || f.Task == "" && k.State == rollout.StateFailing {
			f.Task, f.Attempts = k.Label, max(k.Attempts, f.Attempts)
		}
	}
	return f
}

// statusWord is the status as the object itself will say it.
func (s *view) statusWord(r *rollout.Rollout, st *rolloutStatus) string {
	if hook := s.skyhookOf(r); hook != nil {
		return string(s.objects.Compiled(hook).Status(*s.reportOf(r.Ref), s.plan.Groups).Status)
	}
	switch {
	case st.Complete == st.Nodes:
		return "complete"
	case r.Paused:
		return "paused"
	case st.InProgress > 0:
		return "in_progress"
	case st.Failing > 0:
		return "erroring"
	case st.Blocked > 0:
		return "blocked"
	}
	return "waiting"
}

// addGroups say how far each group of a rollout is.
func (s *view) addGroups(r *rollout.Rollout, st *rolloutStatus) {
	var names []rollout.GroupRef
	for i := range r.Targets {
		if g := r.Targets[i].Group; !slices.Contains(names, g) {
			names = append(names, g)
		}
	}
	slices.SortFunc(names, rollout.GroupRef.Compare)
	for _, name := range names {
		g, rep := s.findGroup(name)
		if g == nil {
			continue
		}
		one := groupStatus{
			Name: groupName(r, name), Nodes: rep.Matched, Complete: rep.Finished, Failed: rep.Failed, Busy: rep.Busy, Budget: rep.Ceiling,
			Batch: rep.Memory.Batch, Stopped: rep.Memory.Stopped,
		}
		if rep.Why != nil {
			one.Why = rep.Why.Text
		}
		st.Groups = append(st.Groups, one)
	}
}

// estimateSpeed is how many nodes finish in an hour, and how long so many more will take: from those that finished during the
// last hour, counted from the first of them. Too few say nothing.
func (s *view) estimateSpeed(r *rollout.Rollout, left int) (perHour float64, text string) {
	var ends []time.Time
	for i := range r.Targets {
		if at := r.Targets[i].FinishedAt; at.After(s.snapshot.Now.Add(-time.Hour)) {
			ends = append(ends, at)
		}
	}
	if len(ends) < 2 || left <= 0 {
		return 0, ""
	}
	slices.SortFunc(ends, time.Time.Compare)
	after := 0
	for _, at := range ends {
		if at.After(ends[0]) {
			after++
		}
	}
	took := s.snapshot.Now.Sub(ends[0])
	if after == 0 || took < time.Minute {
		return 0, ""
	}
	each := took / time.Duration(after)
	perHour = float64(int(10*time.Hour/each)) / 10
	if perHour > 100 {
		perHour = float64(int(perHour))
	}
	return perHour, roundDuration(each * time.Duration(left))
}

// roundDuration rounds a duration to what can be foreseen.
func roundDuration(d time.Duration) string {
	if d > time.Hour {
		return formatDuration(d.Round(10 * time.Minute))
	}
	return formatDuration(max(d.Round(time.Minute), time.Minute))
}
