// SPDX-FileCopyrightText: The Skyhook authors
// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"context"
	"errors"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"

	"github.com/skyhook-k8s/skyhook/api/skyhook/v1alpha1"
	"github.com/skyhook-k8s/skyhook/internal/cluster"
	"github.com/skyhook-k8s/skyhook/internal/rollout"
	"github.com/skyhook-k8s/skyhook/internal/skyhook"
)

// say brings each Skyhook's status, events and metrics up to date. A status is written when it differs, and at most
// once in sayEvery; later says when to come back for what was held off.
func (l *Loop) say(ctx context.Context, o *cluster.Objects, plan rollout.Plan, outcome cluster.Outcome) (later time.Time, err error) {
	reports := make(map[rollout.Ref]rollout.Report, len(plan.Reports))
	for _, r := range plan.Reports {
		reports[r.Rollout] = r
	}
	for _, d := range outcome.Applied {
		l.announceDeeds(d)
	}
	var all []told
	var errs []error
	heard := make(map[types.UID]time.Time, len(o.Skyhooks))
	spoken := make(map[types.UID]v1alpha1.SkyhookStatus, len(o.Skyhooks))
	for _, s := range o.Skyhooks {
		by := o.Compiled(s)
		if by == nil || by.Removed {
			continue
		}
		report := reports[by.Rollout.Ref]
		status := by.Status(report, plan.Groups)
		before, known := l.spoken[s.UID]
		if !known {
			before = s.Status
		}
		spoken[s.UID] = status
		l.announce(o, s, by.Events(nil, before, status))
		l.tellWaits(o, skyhookRef(s), &by.Rollout, report)
		if text := outcome.Errors[by.Rollout.Ref]; text != "" {
			l.events.Event(skyhookRef(s), corev1.EventTypeWarning, v1alpha1.EventApply, bounded(text, 500))
		}
		if outcome.Incomplete[by.Rollout.Ref] {
			heard[s.UID] = l.said[s.UID]
			continue
		}
		all = append(all, sumUp(s, by, status, report))
		last := l.said[s.UID]
		if status.Status == v1alpha1.StatusComplete && l.cluster.HasInFlight(o, by.Rollout.Ref) {
			heard[s.UID] = last // it is when that has arrived, which wakes the loop
			continue
		}
		if due := last.Add(sayEvery); due.After(l.clock()) {
			heard[s.UID] = last
			later = sooner(later, due) // there may be more to say by then
			continue
		}
		wrote, err := l.cluster.UpdateSkyhookStatus(ctx, s, status)
		if err != nil {
			errs = append(errs, err)
		}
		if wrote {
			heard[s.UID] = l.clock()
		}
	}
	due, err := l.sayOps(ctx, o, reports, plan.Groups, outcome, heard)
	if err != nil {
		errs = append(errs, err)
	}
	later = sooner(later, due)
	due, err = l.sayPolicies(ctx, o, plan, heard)
	if err != nil {
		errs = append(errs, err)
	}
	later = sooner(later, due)
	l.said, l.spoken = heard, spoken
	l.waits.forget(l.clock())
	l.board.post(o, all, plan.Groups, l.clock())
	return later, errors.Join(errs...)
}

// announceDeeds tells events of what was carried out, in the words of those who decided it.
func (l *Loop) announceDeeds(d cluster.AppliedActions) {
	deeds := map[rollout.Ref][]rollout.Action{}
	for _, a := range d.Actions {
		deeds[a.Rollout] = append(deeds[a.Rollout], a)
	}
	for _, s := range d.From.Skyhooks {
		by := d.From.Compiled(s)
		if by != nil && !by.Removed && len(deeds[by.Rollout.Ref]) > 0 {
			l.announce(d.From, s, by.Events(deeds[by.Rollout.Ref], s.Status, s.Status))
		}
	}
	for _, op := range d.From.NodeOps {
		by := d.From.CompiledNodeOp(op)
		if by != nil && !by.Removed && len(deeds[by.Rollout.Ref]) > 0 {
			l.announceOp(d.From, op, by.Events(deeds[by.Rollout.Ref], op.Status, op.Status))
		}
	}
}

// tellWaits tells what a rollout waits for, when that is new.
func (l *Loop) tellWaits(o *cluster.Objects, on runtime.Object, r *rollout.Rollout, report rollout.Report) {
	for _, e := range l.waits.news(r, report, l.clock()) {
		about := on
		if e.node != "" {
			n := o.Node(e.node)
			if n == nil {
				continue
			}
			about = nodeRef(n)
		}
		l.events.Event(about, e.kind, string(e.reason), bounded(e.text, 1000))
	}
}

// announce tells events on nodes and on the Skyhook.
func (l *Loop) announce(o *cluster.Objects, s *v1alpha1.Skyhook, events []skyhook.Event) {
	for _, e := range events {
		if n := o.Node(e.Node); n != nil {
			l.events.Event(nodeRef(n), e.Type, e.Reason, e.Message)
		}
		if e.OnSkyhook || e.Node == "" {
			l.events.Event(skyhookRef(s), e.Type, e.Reason, e.Message)
		}
	}
}

func nodeRef(n *skyhook.Node) runtime.Object {
	return &corev1.ObjectReference{APIVersion: "v1", Kind: "Node", Name: n.Name, UID: types.UID(n.UID)}
}

func skyhookRef(s *v1alpha1.Skyhook) runtime.Object {
	return &corev1.ObjectReference{
		APIVersion: v1alpha1.GroupVersion.String(), Kind: skyhook.Kind, Name: s.Name, UID: s.UID, ResourceVersion: s.ResourceVersion,
	}
}

// tell logs what was done: one line for each action.
func (l *Loop) tell(done []rollout.Action) {
	for _, a := range done {
		words := []any{"rollout", a.Rollout.String(), "node", a.Node, "reason", string(a.Why.Reason), "why", a.Why.Text}
		if a.Task != "" {
			words = append(words, "task", a.Task)
		}
		if a.Pod.Name != "" {
			words = append(words, "pod", a.Pod.Namespace+"/"+a.Pod.Name)
		}
		if a.State != "" {
			words = append(words, "state", string(a.State))
		}
		l.log.Info(string(a.Verb), words...)
	}
}

// complain logs what is wrong with objects, when it is new.
func (l *Loop) complain(problems []cluster.Problem) {
	now := make(map[rollout.Ref]string, len(problems))
	for _, p := range problems {
		if now[p.Rollout] != "" {
			now[p.Rollout] += "; "
		}
		now[p.Rollout] += p.Text
	}
	for _, p := range problems {
		if text := now[p.Rollout]; l.problems[p.Rollout] != text {
			l.log.Info("something is wrong", "rollout", p.Rollout.String(), "why", text)
			l.problems[p.Rollout] = text
		}
	}
	l.problems = now
}

// bounded cuts a text to at most this many bytes.
func bounded(s string, most int) string {
	if len(s) <= most {
		return s
	}
	return strings.ToValidUTF8(s[:most], "") + "…"
}
