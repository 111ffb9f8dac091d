// SPDX-FileCopyrightText: The Skyhook authors
// SPDX-License-Identifier: Apache-2.0

package nodeop

import (
	"fmt"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/skyhook-k8s/skyhook/api/nodeop/v1alpha1"
	"github.com/skyhook-k8s/skyhook/internal/rollout"
)

// Reasons of events.
const (
	eventStarted  = "Started"
	eventFinished = "Finished"
	eventFailed   = "Failed"
	eventReboot   = "Reboot"
	eventQuorum   = "ControlPlaneAtOnce"
	eventSpared   = "PodsLeft"
)

// Events are what is worth telling about actions that were carried out, and about what Status changed.
func (c *Compiled) Events(done []rollout.Action, was, is v1alpha1.NodeOpStatus) []Event {
	var out []Event
	for _, a := range done {
		if a.Rollout == c.Rollout.Name {
			out = append(out, c.eventOf(a)...)
		}
	}
	if was.Phase != is.Phase && (was.Phase == "" || was.Phase == v1alpha1.PhasePending) && is.Phase == v1alpha1.PhaseRunning {
		out = append(out, c.quorum()...)
	}
	if was.Phase != is.Phase && (is.Phase == v1alpha1.PhaseCompleted || is.Phase == v1alpha1.PhaseFailed) {
		e := Event{Type: corev1.EventTypeNormal, Reason: eventFinished, Message: summary(is.Counters)}
		if is.Phase == v1alpha1.PhaseFailed {
			e.Type, e.Reason = corev1.EventTypeWarning, eventFailed
			e.Message = join(e.Message, c.firstFailure(&is))
		}
		out = append(out, e)
	}
	return out
}

func (c *Compiled) eventOf(a rollout.Action) []Event {
	name := strings.Replace(c.Rollout.Name, "/", " ", 1)
	event := func(kind, reason, format string, args ...any) []Event {
		return []Event{{Node: a.Node, Type: kind, Reason: reason, Message: bounded(fmt.Sprintf(format, args...), 900)}}
	}
	switch {
	case a.Verb == rollout.Admit:
		return event(corev1.EventTypeNormal, eventStarted, "%s begins to work on node %s", name, a.Node)
	case a.Verb == rollout.Run && a.Task == taskCommand:
		pods := c.Spared[a.Node]
		if len(pods) == 0 {
			return nil
		}
		return event(corev1.EventTypeWarning, eventSpared, "drainOptions.force is false, so pods that nothing recreates stay on node %s: %s", a.Node, some(pods))
	case a.Verb == rollout.Record && a.Task == taskCommand && a.State == rollout.Done && on(c.in.NodeOp.Spec.RebootOnSuccess):
		return event(corev1.EventTypeNormal, eventReboot, "%s: the command ended well, node %s reboots", name, a.Node)
	case a.Verb == rollout.Retire && a.Skip:
		return event(corev1.EventTypeWarning, eventFailed, "%s failed on node %s: %s", name, a.Node, a.Why.Text)
	case a.Verb == rollout.Retire:
		return event(corev1.EventTypeNormal, eventFinished, "%s is done with node %s: %s", name, a.Node, a.Why.Text)
	}
	return nil
}

// quorum warns when the control plane as a whole may go down at once.
func (c *Compiled) quorum() []Event {
	s := &c.in.NodeOp.Spec
	n := 0
	for _, t := range c.order {
		if controlPlane(t.node) {
			n++
		}
	}
	if !on(s.RebootOnSuccess) || n < 2 || s.Concurrency > 0 && int(s.Concurrency) < n || c.in.Budget != nil {
		return nil
	}
	return []Event{{Type: corev1.EventTypeWarning, Reason: eventQuorum,
		Message: fmt.Sprintf("all %d control plane nodes may reboot at the same time: set concurrency to 1", n)}}
}

// some lists at most five names.
func some(names []string) string {
	slices.Sort(names)
	text := strings.Join(names[:min(5, len(names))], ", ")
	if more := len(names) - 5; more > 0 {
		text += fmt.Sprintf(" and %d more", more)
	}
	return text
}

// Expired says that the Jobs and Pods of a finished NodeOp have been kept long enough; until then it says when.
func (c *Compiled) Expired() (expired bool, at metav1.Time) {
	o := c.in.NodeOp
	ttl := o.Spec.TTLSecondsAfterFinished
	if !c.final || ttl == nil || o.DeletionTimestamp != nil {
		return false, metav1.Time{}
	}
	for _, cond := range o.Status.Conditions {
		if cond.Type == v1alpha1.ConditionProgressing {
			at = cond.LastTransitionTime
		}
	}
	if at.IsZero() {
		at = o.Status.LastUpdated
	}
	at = metav1.NewTime(at.Add(time.Duration(*ttl) * time.Second))
	return !c.in.Now.Before(at.Time), at
}

// Keeps says that an object a plan sweeps stays all the same: what has ended is kept for its logs.
func (c *Compiled) Keeps(object string) bool {
	for _, t := range c.order {
		for _, j := range t.objects.jobs {
			if done, _ := finished(j); done && kindJob+j.Name == object {
				return true
			}
		}
		for _, p := range t.objects.reboots {
			if p.Status.Phase == corev1.PodSucceeded && kindPod+p.Name == object {
				return true
			}
		}
	}
	return false
}

// CutObject tells a Job from a Pod by the name a plan has for it.
func CutObject(object string) (name string, job bool) {
	if name, ok := strings.CutPrefix(object, kindJob); ok {
		return name, true
	}
	return strings.TrimPrefix(object, kindPod), false
}

// Final says that the NodeOp has finished and stays so.
func (c *Compiled) Final() bool { return c.final }

// Ghost speaks for a NodeOp that is gone and left a hold behind, whose owner is named with the UID.
func Ghost(owner string, in Input) *Compiled {
	path, uid, _ := strings.Cut(strings.TrimPrefix(owner, Kind+"/"), "@")
	in.NodeOp = &v1alpha1.NodeOp{}
	in.NodeOp.Namespace, in.NodeOp.Name, _ = strings.Cut(path, "/")
	in.NodeOp.UID, in.NodeOp.DeletionTimestamp = types.UID(uid), &metav1.Time{Time: in.Now}
	c := Compile(&in)
	c.Rollout.Name, c.Rollout.UID, c.ghost = owner, uid, true
	return c
}
