// SPDX-FileCopyrightText: The Skyhook authors
// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/types"

	"github.com/skyhook-k8s/skyhook/internal/node"
	"github.com/skyhook-k8s/skyhook/internal/rollout"
	"github.com/skyhook-k8s/skyhook/internal/ui"
)

// node returns the data of the page of a node. Logs and events are read from the API server.
func (s *uiSource) node(ctx context.Context, name string) (*ui.Node, error) {
	s.mu.Lock()
	v := s.view
	n := v.objects.Node(name)
	if n == nil {
		s.mu.Unlock()
		return nil, fmt.Errorf("%w: there is no node %q", ui.ErrNotFound, name)
	}
	out := v.newNode(n)
	out.Offers = s.offersOfNode(n)
	s.mu.Unlock()
	return out, v.addRead(ctx, s.factory, out)
}

// addRead adds what only the API server knows of a node: events, logs of stages, and differences of files. A dump has none.
func (v *view) addRead(ctx context.Context, f *factory, out *ui.Node) error {
	if !v.dump.Live() {
		return nil
	}
	out.Events = listEvents(ctx, f, out.Name)
	if report, ok := out.Drift.(*driftReport); ok {
		if err := report.readDiffs(ctx, f); err != nil {
			return err
		}
	}
	for i := range out.Work {
		for j := range out.Work[i].Stages {
			stage := &out.Work[i].Stages[j]
			if isLive := stage.State == string(rollout.StateRunning) || stage.State == string(rollout.StateFailing); isLive {
				stage.Log = v.readLog(ctx, f, out.Work[i].Rollout, out.Name, stage)
			}
		}
	}
	return nil
}

func (v *view) newNode(n *node.Node) *ui.Node {
	out := &ui.Node{
		Name: n.Name, State: ui.StateIdle, Ready: n.Ready, Cordoned: n.Unschedulable, Why: explainNode(v, n.Name),
		Work: []ui.Work{}, Holds: []ui.Hold{}, Pods: []ui.Pod{}, Events: []ui.NodeEvent{},
	}
	summaries := []nodeSummary{}
	for _, name := range n.Skyhooks() {
		summaries = append(summaries, summarizeNode(n, name, nil))
	}
	out.Status = summaries
	if report, err := v.newDriftReport(n.Name); err == nil { // an error: nobody checks
		out.Drift = report
	}
	if !n.Ready {
		out.State = ui.StateNotReady
	}
	for i := range v.snapshot.Rollouts {
		r := &v.snapshot.Rollouts[i]
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
		out.Holds = append(out.Holds, ui.Hold{Owner: shortName(h.Owner), Since: timeOrNil(h.Since), WasCordoned: h.WasCordoned})
	}
	return out
}

func (v *view) newWork(r *rollout.Rollout, t *rollout.Target, verdict rollout.Verdict, n *node.Node) ui.Work {
	work := ui.Work{
		Rollout: shortName(r.Ref), Path: rolloutPath(r.Ref), State: v.stateOf(r, t, verdict, n),
		AdmittedAt: timeOrNil(t.Visit.LastAdmittedAt), FinishedAt: timeOrNil(t.Visit.FinishedAt), Stages: []ui.Stage{},
	}
	if op := v.nodeOpOf(r); op != nil {
		work.Stages = append(work.Stages, v.listSteps(op, n, t)...)
		return work
	}
	if hook := v.skyhookOf(r); hook != nil {
		work.Stages = append(work.Stages, listDoneStages(n, hook.Name, t)...)
		if len(t.Tasks) == 0 && len(work.Stages) == 0 { // it was finished by an operator that recorded no times
			for _, p := range summarizeNode(n, hook.Name, hook).Packages {
				work.Stages = append(work.Stages, ui.Stage{Package: p.Name, Label: p.Name + " " + p.Version, State: string(p.Stage) + " " + string(p.State), Attempts: int(p.Restarts)})
			}
		}
	}
	for i := range t.Tasks {
		work.Stages = append(work.Stages, v.newStage(&t.Tasks[i]))
	}
	return work
}

// listDoneStages returns the stages that succeeded on a node, by their begin: those of the work that is under way, or of the last one.
func listDoneStages(n *node.Node, name string, t *rollout.Target) []ui.Stage {
	var out []ui.Stage
	for key, p := range n.Skyhook(name).Record.Packages {
		pkg, _, _ := strings.Cut(key, "|")
		for _, d := range p.Done {
			if p.Goal == "" && t.Visit.Admitted && d.At.Before(t.Visit.AdmittedAt) {
				continue // of earlier work
			}
			end := d.At.Add(time.Duration(d.Seconds) * time.Second)
			out = append(out, ui.Stage{
				Package: pkg, Label: pkg + " " + string(d.Stage), State: string(rollout.StateDone), Started: timeOrNil(d.At), Ended: timeOrNil(end),
				Duration: formatDuration(end.Sub(d.At)), Attempts: d.Failed,
			})
		}
	}
	slices.SortFunc(out, func(a, b ui.Stage) int {
		return cmp.Or(a.Started.Compare(*b.Started), strings.Compare(a.Label, b.Label))
	})
	return out
}

func (v *view) newStage(k *rollout.Task) ui.Stage {
	pkg, _, _ := strings.Cut(k.Label, " ")
	s := ui.Stage{Package: pkg, Label: k.Label, State: string(k.State), Started: timeOrNil(k.Attempts.Started), Attempts: k.Attempts.Failed}
	if k.Why != nil {
		s.Text = k.Why.Text
	}
	switch {
	case k.State == rollout.StateRunning && !k.Attempts.Started.IsZero():
		s.Duration = formatDuration(v.snapshot.Now.Sub(k.Attempts.Started))
	case k.State == rollout.StateFailing:
		s.Ended = timeOrNil(k.Attempts.FailedAt)
		if !k.Attempts.Started.IsZero() && k.Attempts.FailedAt.After(k.Attempts.Started) {
			s.Duration = formatDuration(k.Attempts.FailedAt.Sub(k.Attempts.Started))
		}
	}
	return s
}

// listPodsInTheWay returns the pods that must leave a node, or that are waited for.
func (v *view) listPodsInTheWay(r *rollout.Rollout, t *rollout.Target) []ui.Pod {
	if !t.NeedsDrain() {
		return nil
	}
	pods, isLoaded := v.podsToEvict(r, t.Node)
	if !isLoaded {
		pods = t.Drain.Pods
	}
	var out []ui.Pod
	for _, p := range pods {
		why := "it is evicted"
		switch budget := v.budgets[types.UID(p.UID)]; {
		case p.Wait:
			why = "it must not be interrupted (podNonInterruptLabels): it is waited for"
		case p.Keep != "":
			why = "it cannot be evicted: " + p.Keep
		case p.Leaving:
			why = "it is terminating"
		case budget != "" || p.Refused != "":
			why = "its eviction is refused: " + cmp.Or(p.Refused, budget+" allows no disruption now")
		}
		out = append(out, ui.Pod{Name: p.Namespace + "/" + p.Name, Rollout: shortName(r.Ref), Why: why})
	}
	return out
}

// listEvents returns the events of a node, the newest first. Without the right to list events there are none.
func listEvents(ctx context.Context, f *factory, name string) []ui.NodeEvent {
	out := []ui.NodeEvent{}
	core, err := f.coreClient()
	if err != nil {
		return out
	}
	ctx, cancel := context.WithTimeout(ctx, 5*time.Second)
	defer cancel()
	selector := fields.Set{"involvedObject.kind": "Node", "involvedObject.name": name}.AsSelector().String()
	list, err := core.Events(metav1.NamespaceAll).List(ctx, metav1.ListOptions{FieldSelector: selector, Limit: 200})
	if err != nil {
		return append(out, ui.NodeEvent{At: time.Now().UTC(), Type: corev1.EventTypeWarning, Reason: "NotListed", Text: err.Error()})
	}
	for i := range list.Items {
		e := &list.Items[i]
		at := e.LastTimestamp.Time
		for _, t := range []time.Time{e.EventTime.Time, e.CreationTimestamp.Time} {
			if at.IsZero() {
				at = t
			}
		}
		out = append(out, ui.NodeEvent{At: at.UTC(), Type: e.Type, Reason: e.Reason, Text: e.Message, Count: max(e.Count, 1)})
	}
	slices.SortStableFunc(out, func(a, b ui.NodeEvent) int { return b.At.Compare(a.At) })
	return out
}

// logLines is how much of the log of a stage a page shows.
const logLines = 50

// readLog returns the end of the log of a stage, as package logs prints it, or of a step of a NodeOp.
func (v *view) readLog(ctx context.Context, f *factory, of, nodeName string, stage *ui.Stage) string {
	ctx, cancel := context.WithTimeout(ctx, 5*time.Second)
	defer cancel()
	if r := v.findRollout(of); r != nil && v.nodeOpOf(r) != nil {
		p := v.podOfStep(v.nodeOpOf(r), nodeName, stage.Label)
		if p == nil {
			return ""
		}
		return readPodLog(ctx, f, p.Namespace, p.Name)
	}
	var out strings.Builder
	printer := *f.Printer
	printer.Out = &out
	silent := *f
	silent.Printer = &printer
	_, stageName, _ := strings.Cut(stage.Label, " ")
	o := &logsOptions{factory: &silent, name: of, pkg: stage.Package, nodeArgs: []string{nodeName}, tail: logLines}
	if slices.Contains(logStages, stageName) {
		o.stage = stageName
	}
	if err := o.run(ctx); err != nil && out.Len() == 0 {
		return "" // the kubelet has no log yet, or any more
	}
	return out.String()
}
