// SPDX-FileCopyrightText: The Skyhook authors
// SPDX-License-Identifier: Apache-2.0

package nodeop

import (
	"fmt"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/skyhook-k8s/skyhook/api/nodeop/v1alpha1"
	"github.com/skyhook-k8s/skyhook/internal/rollout"
)

// The tasks of a node, in their order.
const (
	taskPreflight = "preflight"
	taskCommand   = "command"
	taskReboot    = "reboot"
)

// Limits of what the spec does not say.
const (
	defaultPreflight = 120 * time.Second
	defaultTry       = time.Hour
	defaultReboot    = 30 * time.Minute
	defaultBackoff   = 6
	pullLimit        = time.Hour        // of a preflight's image
	longestPause     = 6 * time.Minute  // between two tries of a Job
	grace            = 90 * time.Second // after which a Job that ought to have ended by itself is ended
)

// Prefixes and texts that other programs read.
const (
	prefixSkipped         = "Skipped by preflight: "
	prefixPreflightFailed = "Preflight failed: "
	textJobFailed         = "Job failed"
	textJobNotFound       = "Job not found"
	textJobDone           = "Job completed successfully"
	textRebootDone        = "Job and reboot completed successfully"
)

// tasks are what a node in flight, or one that waits for its turn, owes.
func (c *Compiled) tasks(t *target) []rollout.Task {
	s := &c.in.NodeOp.Spec
	var out []rollout.Task
	after := []string(nil)
	if s.Preflight != nil && t.rec.Command == nil {
		task, skips := c.preflightTask(t)
		out, after = append(out, task), []string{task.ID}
		if skips {
			return out
		}
	}
	command := c.commandTask(t)
	command.After = after
	out = append(out, command)
	if on(s.RebootOnSuccess) {
		reboot := c.rebootTask(t, command.State)
		reboot.After = []string{command.ID}
		out = append(out, reboot)
	}
	return out
}

func recorded(s *Step) rollout.State {
	switch {
	case s.is(stepRunning):
		return rollout.Running
	case s.is(stepFailing):
		return rollout.Failing
	case s.is(stepDone):
		return rollout.Done
	}
	return rollout.Pending
}

// task is what all tasks have in common: one failure is final.
func (c *Compiled) task(id string, s *Step) rollout.Task {
	out := rollout.Task{ID: id, Label: id, State: recorded(s), Recorded: recorded(s), Retries: 1, Bounded: true}
	if out.Recorded == rollout.Failing {
		out.Attempts, out.Noted, out.FailedAt = 1, 1, s.At
	}
	return out
}

// fails marks an attempt that failed.
func fails(task *rollout.Task, reason rollout.Reason, text, about string, at time.Time) {
	task.State, task.Attempts, task.FailedAt = rollout.Failing, 1, at
	task.Why = &rollout.Why{Reason: reason, Text: text, About: about, Since: at}
}

// preflightTask is the check. It skips the node when it ended well with a message.
func (c *Compiled) preflightTask(t *target) (task rollout.Task, skips bool) {
	task = c.task(taskPreflight, t.rec.Preflight)
	if task.Recorded == rollout.Done {
		return task, t.rec.Result != nil && t.rec.Result.Skipped
	}
	name := c.preflightName(t)
	p := pod(t.objects.preflights, name)
	if p == nil {
		task.Lost = task.Recorded == rollout.Running
		return task, false
	}
	if p.Annotations[annotationNodeUID] != t.node.UID || task.Recorded == rollout.Pending {
		task.Leaving = true
		task.Why = &rollout.Why{Reason: rollout.ReasonPodLost, Text: "an earlier pod " + name + " has to go first", About: kindPod + p.Namespace + "/" + name}
		return task, false
	}
	if task.Recorded == rollout.Failing {
		return task, false
	}
	task.Object, task.State, task.Leaving = kindPod+name, rollout.Running, p.DeletionTimestamp != nil
	state, last, why := single(p)
	task.Why = why
	task.Limit = c.preflightLimit()
	if state.Running != nil {
		task.Started = state.Running.StartedAt.Time
	} else if last != nil {
		task.Started = last.StartedAt.Time
	} else {
		task.Started, task.Limit = p.CreationTimestamp.Time, pullLimit // the image is pulled: that is not the check's time
	}
	switch {
	case p.Status.Phase == corev1.PodSucceeded:
		task.State, task.Leaving = rollout.Succeeded, false
		return task, c.verdictOf(t) != ""
	case p.Status.Phase == corev1.PodFailed:
		fails(&task, rollout.ReasonStageFailed, prefixPreflightFailed+whyFailed(p, last), kindPod+p.Namespace+"/"+name, c.in.Now)
	case !c.in.Now.Before(task.Started.Add(task.Limit)):
		text := "it took longer than " + task.Limit.String()
		if last != nil && last.ExitCode != 0 {
			text = fmt.Sprintf("exit %d, and %s", last.ExitCode, text)
		}
		if why != nil {
			text = why.Text
		}
		fails(&task, rollout.ReasonDeadline, prefixPreflightFailed+text, kindPod+p.Namespace+"/"+name, c.in.Now)
	}
	return task, false
}

func (c *Compiled) preflightLimit() time.Duration {
	if d := c.in.NodeOp.Spec.Preflight.ActiveDeadlineSeconds; d != nil && *d > 0 {
		return time.Duration(*d) * time.Second
	}
	return defaultPreflight
}

// verdictOf is why the check skips a node; empty when it does not.
func (c *Compiled) verdictOf(t *target) string {
	p := pod(t.objects.preflights, c.preflightName(t))
	if p == nil || p.Status.Phase != corev1.PodSucceeded {
		return ""
	}
	_, last, _ := single(p)
	if last == nil {
		return ""
	}
	return bounded(strings.TrimSpace(last.Message), 1000)
}

func whyFailed(p *corev1.Pod, last *corev1.ContainerStateTerminated) string {
	switch {
	case last != nil && last.Reason != "" && last.Reason != "Error":
		return last.Reason
	case last != nil:
		return fmt.Sprintf("exit %d", last.ExitCode)
	case p.Status.Reason != "":
		return bounded(p.Status.Reason+": "+p.Status.Message, 300)
	}
	return "it did not report"
}

// commandTask is the Job.
func (c *Compiled) commandTask(t *target) rollout.Task {
	s := &c.in.NodeOp.Spec
	task := c.task(taskCommand, t.rec.Command)
	if on(s.Cordon) {
		task.Need = rollout.Drained
	}
	if task.Recorded == rollout.Done || task.Recorded == rollout.Failing {
		return task
	}
	j := t.job()
	if task.Recorded == rollout.Pending {
		if old := t.unfinished(); old != "" {
			task.Leaving = true
			task.Why = &rollout.Why{Reason: rollout.ReasonPodLost, Text: "an earlier job " + old + " has to go first", About: kindJob + c.in.NodeOp.Namespace + "/" + old}
		}
		return task
	}
	about := kindJob + c.in.NodeOp.Namespace + "/" + t.rec.Job
	if j == nil {
		if t.rec.Command.Seen { // it was there, and somebody deleted it: nobody knows what it did
			fails(&task, rollout.ReasonPodLost, textJobNotFound, about, c.in.Now)
			return task
		}
		task.Lost = true
		return task
	}
	task.Object, task.State, task.Started, task.Limit = kindJob+j.Name, rollout.Running, t.rec.Command.At, c.commandLimit()
	done, well := finished(j)
	switch last := t.lastRun(); {
	case done && well:
		task.State = rollout.Succeeded
	case done:
		fails(&task, rollout.ReasonStageFailed, textJobFailed, about, c.in.Now)
	case j.DeletionTimestamp != nil:
		task.Leaving = true
		task.Why = &rollout.Why{Reason: rollout.ReasonPodLost, Text: "job " + j.Name + " is being deleted", About: about}
	case last.reason != "":
		task.Why = &rollout.Why{Reason: last.reason, Text: last.waiting, About: about}
	case j.Status.Active == 0 && j.Status.Failed == 0 && len(t.objects.workers) == 0 && !c.in.Now.Before(t.rec.Command.At.Add(grace)):
		task.Why = &rollout.Why{Reason: rollout.ReasonKubeletRejected, About: about,
			Text: "no pod was made for job " + j.Name + ": see its events; the namespace may forbid privileged pods"}
	}
	if !t.rec.Command.Seen && !t.adopted {
		c.note(t)
	}
	return task
}

// unfinished is a Job on the node that has not ended, such as one for an earlier node of that name.
func (t *target) unfinished() string {
	for _, j := range t.objects.jobs {
		if done, _ := finished(j); !done {
			return j.Name
		}
	}
	return ""
}

// note writes that the Job was seen, so that deleting it is not mistaken for a crash before it was made.
func (c *Compiled) note(t *target) {
	rec := t.rec.clone()
	rec.Command.Seen = true
	e := Edit{}
	e.annotate(t.node, recordKey(string(c.in.NodeOp.UID)), writeRecord(rec))
	c.Adopt = append(c.Adopt, NodeEdit{t.node.Name, e})
	t.rec.Command = copied(t.rec.Command)
	t.rec.Command.Seen = true
}

func (c *Compiled) backoff() int32 {
	if b := c.in.NodeOp.Spec.BackoffLimit; b != nil {
		return *b
	}
	return defaultBackoff
}

// commandLimit is when a Job is given up that does not end by itself.
func (c *Compiled) commandLimit() time.Duration {
	if d := c.in.NodeOp.Spec.ActiveDeadlineSeconds; d != nil {
		return time.Duration(*d)*time.Second + grace
	}
	tries := time.Duration(min(c.backoff(), 1000)) + 1
	return tries*(defaultTry+longestPause) + grace
}

func (c *Compiled) rebootLimit() time.Duration {
	if d := c.in.NodeOp.Spec.RebootTimeoutSeconds; d != nil {
		return time.Duration(*d) * time.Second
	}
	return defaultReboot
}

// rebootTask is the reboot. Its pod exists since before the Job; it is a task of its own once the Job has ended well.
func (c *Compiled) rebootTask(t *target, command rollout.State) rollout.Task {
	task := c.task(taskReboot, t.rec.Reboot)
	if on(c.in.NodeOp.Spec.Cordon) {
		task.Need = rollout.Alone
	}
	ended := command == rollout.Done || command == rollout.Succeeded
	if !ended || task.Recorded == rollout.Done || task.Recorded == rollout.Failing {
		return task
	}
	p := c.rebootPod(t)
	if p == nil {
		task.Lost, task.State = true, rollout.Pending
		return task
	}
	_, _, why := single(p)
	task.Object, task.State, task.Why = kindPod+p.Name, rollout.Running, why
	task.Leaving, task.Dead = p.DeletionTimestamp != nil, p.Status.Phase == corev1.PodFailed
	task.Started, task.Limit, task.BootID = t.rec.Command.At, c.rebootLimit(), t.rec.Boot
	if command == rollout.Succeeded {
		task.Started = c.in.Now
	}
	wait := func(reason rollout.Reason, text string) {
		task.Why = &rollout.Why{Reason: reason, Text: text, About: "Node " + t.node.Name}
	}
	proof := rebooted(p)
	switch {
	case p.Status.Phase != corev1.PodSucceeded:
		return task
	case proof != nil && proof.To != t.node.BootID:
		wait(rollout.ReasonRebootTimeout, "the agent saw the reboot, and the node has not reported boot "+bounded(proof.To, 40)+" yet")
	case proof == nil && p.Annotations[v1alpha1.AnnotationRebootState] != string(v1alpha1.RebootCompleted) && t.node.BootID == t.rec.Boot:
		wait(rollout.ReasonRebootNotStarted, "the reboot pod ended, and the node still reports the boot from before it")
	case !t.node.Ready:
		wait(rollout.ReasonNodeNotReady, "the node booted again and is not ready yet")
	case c.fellBack(t, proof) != "":
		fails(&task, rollout.ReasonStageFailed, c.fellBack(t, proof), "Node "+t.node.Name, c.in.Now)
	default:
		task.State, task.Leaving, task.Why = rollout.Succeeded, false, nil
	}
	return task
}
