// SPDX-FileCopyrightText: The Skyhook authors
// SPDX-License-Identifier: Apache-2.0

package compile

import (
	"fmt"
	"strings"
	"time"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"

	"github.com/skyhook-k8s/skyhook/api/nodeop/v1alpha1"
	"github.com/skyhook-k8s/skyhook/internal/node"
	"github.com/skyhook-k8s/skyhook/internal/nodeop"
	"github.com/skyhook-k8s/skyhook/internal/pack"
	"github.com/skyhook-k8s/skyhook/internal/rollout"
)

// tasks are the tasks of a node that is in progress, or waits to be admitted.
func (t *target) tasks() []rollout.Task {
	var out []rollout.Task
	var after []string
	if t.op.Spec().Preflight != nil && t.rec.Command == nil {
		preflight, skips := t.preflightTask()
		out = append(out, preflight)
		if skips {
			return out
		}
		after = []string{preflight.ID}
	}

	command := t.commandTask()
	command.After = after
	out = append(out, command)

	if t.op.Reboots() {
		reboot := t.rebootTask(command.State)
		reboot.After = []string{command.ID}
		out = append(out, reboot)
	}
	return out
}

func recordedState(s *node.Step) rollout.State {
	switch {
	case s.Is(node.StepRunning):
		return rollout.StateRunning
	case s.Is(node.StepFailing):
		return rollout.StateFailing
	case s.Is(node.StepDone):
		return rollout.StateDone
	}
	return rollout.StatePending
}

// newTask is a task as the node records it. One failure is final.
func newTask(id string, s *node.Step) rollout.Task {
	state := recordedState(s)
	out := rollout.Task{ID: id, Label: id, State: state, Recorded: state, Retries: 1, Bounded: true}
	if state == rollout.StateFailing {
		out.Attempts.Failed, out.Attempts.Noted, out.Attempts.FailedAt = 1, 1, s.At
	}
	return out
}

// failedTask is the task of a node on which the operation has failed.
func failedTask(r *node.Result) rollout.Task {
	reason := rollout.Reason(r.Reason).Known(rollout.ReasonStageFailed)
	return rollout.Task{ID: nodeop.TaskCommand, Label: nodeop.TaskCommand, State: rollout.StateFailing, Recorded: rollout.StateFailing, Attempts: rollout.Attempts{Failed: 1, Noted: 1},
		Retries: 1, Bounded: true, Why: &rollout.Why{Reason: reason, Text: r.Message, Since: r.At}}
}

// failTask marks an attempt that failed and is not recorded yet.
func failTask(task *rollout.Task, why rollout.Why) {
	task.State, task.Attempts.Failed, task.Attempts.FailedAt = rollout.StateFailing, 1, why.Since
	task.Why = &why
}

// preflightTask is the check. It skips the node when it ended well with a message.
func (t *target) preflightTask() (task rollout.Task, skips bool) {
	task = newTask(nodeop.TaskPreflight, t.rec.Preflight)
	if task.Recorded == rollout.StateDone {
		return task, t.rec.Result != nil && t.rec.Result.Skipped
	}
	name := t.op.PreflightName(t.node, &t.rec)
	p := findPod(t.objects.preflights, name)
	if p == nil {
		task.Lost = task.Recorded == rollout.StateRunning
		t.applyRefusal(&task)
		return task, false
	}
	if p.Annotations[nodeop.AnnotationNodeUID] != t.node.UID || task.Recorded == rollout.StatePending {
		task.Object.Leaving = true
		task.Why = &rollout.Why{Reason: rollout.ReasonReplaced, Text: "an earlier pod " + name + " has to go first", About: nodeop.PrefixPod + p.Namespace + "/" + name}
		return task, false
	}
	if task.Recorded == rollout.StateFailing {
		return task, false
	}
	t.observePreflight(&task, p)
	return task, t.skipReason() != ""
}

// observePreflight fills in the state of the pod of a check.
func (t *target) observePreflight(task *rollout.Task, p *corev1.Pod) {
	run := readPodRun(p)
	task.Object.Name, task.State, task.Object.Leaving, task.Why = nodeop.PrefixPod+p.Name, rollout.StateRunning, p.DeletionTimestamp != nil, run.why
	phase := "pull"
	task.Attempts.Started, task.Limit = p.CreationTimestamp.Time, nodeop.ImagePullTimeout
	if run.started != nil { // pulling the image does not count
		phase, task.Attempts.Started, task.Limit = "check", run.started.Time, t.op.PreflightTimeout()
	}

	why := rollout.Why{Reason: rollout.ReasonStageFailed, About: nodeop.PrefixPod + p.Namespace + "/" + p.Name, Since: t.in.Now}
	began := t.in.Durations.Since(string(p.UID), phase, task.Attempts.Started, t.in.Now)
	switch isLate := !t.in.Now.Before(began.Add(task.Limit)); {
	case p.Status.Phase == corev1.PodSucceeded:
		task.State, task.Object.Leaving = rollout.StateSucceeded, false
	case p.Status.Phase == corev1.PodFailed:
		why.Text = nodeop.PrefixPreflightFailed + podFailure(p, run.ended)
		failTask(task, why)
	case isLate:
		why.Reason, why.Text = rollout.ReasonDeadline, nodeop.PrefixPreflightFailed+run.lateness(task.Limit)
		failTask(task, why)
	}
}

// lateness describes a check that has exceeded its time.
func (r *podRun) lateness(limit time.Duration) string {
	text := "it took longer than " + limit.String()
	switch {
	case r.why != nil:
		return r.why.Text
	case r.ended != nil && r.ended.ExitCode != 0:
		return fmt.Sprintf("exit %d, and %s", r.ended.ExitCode, text)
	}
	return text
}

// podFailure describes a pod that failed.
func podFailure(p *corev1.Pod, ended *corev1.ContainerStateTerminated) string {
	switch {
	case ended != nil && ended.Reason != "" && ended.Reason != "Error":
		return ended.Reason
	case ended != nil:
		return fmt.Sprintf("exit %d", ended.ExitCode)
	case p.Status.Reason != "":
		return node.Truncate(p.Status.Reason+": "+p.Status.Message, 300)
	}
	return "it did not report"
}

// skipReason is the message with which the check skips the node; empty when it does not.
func (t *target) skipReason() string {
	p := findPod(t.objects.preflights, t.op.PreflightName(t.node, &t.rec))
	if p == nil || p.Status.Phase != corev1.PodSucceeded {
		return ""
	}
	if ended := readPodRun(p).ended; ended != nil {
		return node.Truncate(strings.TrimSpace(ended.Message), 1000)
	}
	return ""
}

// aboutJob is the name of a Job as the About of a reason.
func (t *target) aboutJob(name string) string {
	return nodeop.PrefixJob + t.op.NodeOp.Namespace + "/" + name
}

// commandTask is the Job.
func (t *target) commandTask() rollout.Task {
	task := newTask(nodeop.TaskCommand, t.rec.Command)
	if nodeop.IsTrue(t.op.Spec().Cordon) {
		task.Need = rollout.NeedDrained
	}
	switch task.Recorded {
	case rollout.StateDone, rollout.StateFailing:
		return task
	case rollout.StatePending:
		if old := t.objects.findUnfinishedJob(); old != nil {
			task.Object.Leaving = true
			task.Why = &rollout.Why{Reason: rollout.ReasonReplaced, Text: "an earlier job " + old.Name + " has to go first", About: t.aboutJob(old.Name)}
		}
		return task
	}

	j := t.job()
	switch {
	case j != nil:
		t.observeJob(&task, j)
	case t.rec.Command.Seen: // it was deleted: its outcome is unknown
		failTask(&task, rollout.Why{Reason: rollout.ReasonPodLost, Text: nodeop.TextJobNotFound, About: t.aboutJob(t.rec.Job), Since: t.in.Now})
	default:
		task.Lost = true
		t.applyRefusal(&task)
	}
	return task
}

// maxRefusedAttempts is how often a refused object is asked for before the task has failed.
const maxRefusedAttempts = 3

// applyRefusal sets the task's state from the refusal of its objects. It waits until they are asked for again, and fails when they
// were refused too often.
func (t *target) applyRefusal(task *rollout.Task) {
	refused, isRefused := t.in.Refused[t.node.Name][task.ID]
	switch {
	case !isRefused || !task.Lost:
	case refused.Count >= maxRefusedAttempts:
		task.Lost = false
		failTask(task, rollout.Why{
			Reason: rollout.ReasonRefused, Since: refused.At,
			Text: fmt.Sprintf("%s; %d attempts were refused", refused.Text, refused.Count),
		})
	case t.in.Now.Before(refused.RetryAt()):
		why := refused.Why()
		task.Object.Leaving, task.Why = true, &why
	}
}

// observeJob fills in the state of the Job.
func (t *target) observeJob(task *rollout.Task, j *batchv1.Job) {
	task.Object.Name, task.State, task.Attempts.Started, task.Limit = nodeop.PrefixJob+j.Name, rollout.StateRunning, t.rec.Command.At, t.op.CommandTimeout()
	about := t.aboutJob(j.Name)
	finished, succeeded := jobOutcome(j)
	last := t.objects.lastRun(j.Name)
	switch {
	case succeeded:
		task.State = rollout.StateSucceeded
	case finished:
		failTask(task, rollout.Why{Reason: rollout.ReasonStageFailed, Text: nodeop.TextJobFailed, About: about, Since: t.in.Now})
	case j.DeletionTimestamp != nil:
		task.Object.Leaving = true
		task.Why = &rollout.Why{Reason: rollout.ReasonPodLost, Text: "job " + j.Name + " is being deleted", About: about}
	case last.reason != "" && last.exit == nil && t.op.IsDeleting(): // nothing runs that would be let end
		failTask(task, rollout.Why{Reason: last.reason, Text: last.waiting, About: about, Since: t.in.Now})
	case last.reason != "":
		task.Why = &rollout.Why{Reason: last.reason, Text: last.waiting, About: about}
	case !t.hasRun(j) && !t.in.Now.Before(t.in.Durations.Since(string(j.UID), "job", t.rec.Command.At, t.in.Now).Add(nodeop.DeadlineGrace)):
		task.Why = &rollout.Why{Reason: rollout.ReasonKubeletRejected, About: about,
			Text: "no pod was made for job " + j.Name + ": see its events; the namespace may forbid privileged pods"}
	}
	if task.State == rollout.StateRunning && task.Why == nil {
		if task.Why = t.retryReason(j); task.Why != nil {
			task.Why.About = about
		}
	}
	if !t.rec.Command.Seen {
		t.recordJobSeen()
	}
}

// hasRun reports whether a pod of the Job exists or existed.
func (t *target) hasRun(j *batchv1.Job) bool {
	return j.Status.Active > 0 || j.Status.Failed > 0 || len(t.objects.workers) > 0
}

// recordJobSeen records that the Job exists. If it is missing later, it was deleted; otherwise it was never created.
func (t *target) recordJobSeen() {
	t.rec = t.rec.Clone()
	t.rec.Command.Seen = true
	t.writeRecord(t.rec)
}

// rebootTask is the reboot. Its pod exists since before the Job, and counts once the Job has succeeded.
func (t *target) rebootTask(command rollout.State) rollout.Task {
	task := newTask(nodeop.TaskReboot, t.rec.Reboot)
	if nodeop.IsTrue(t.op.Spec().Cordon) {
		task.Need, task.Reboot = rollout.NeedAlone, !t.op.IsUpgrade()
	}
	commandSucceeded := command == rollout.StateDone || command == rollout.StateSucceeded
	if !commandSucceeded || task.Recorded == rollout.StateDone || task.Recorded == rollout.StateFailing {
		return task
	}
	p := t.rebootPod()
	if p == nil && t.op.SharesReboot() && t.rec.Reboot == nil {
		return task
	}
	if p == nil {
		task.Lost, task.State = true, rollout.StatePending
		t.applyRefusal(&task)
		return task
	}

	task.Object.Name, task.State, task.Why = nodeop.PrefixPod+p.Name, rollout.StateRunning, readPodRun(p).why
	task.Object.Leaving, task.Object.Dead = p.DeletionTimestamp != nil, p.Status.Phase == corev1.PodFailed
	task.Attempts.Started, task.Limit, task.BootID = t.rec.Command.At, t.op.RebootTimeout(), t.rec.Boot
	if t.op.SharesReboot() && t.rec.Reboot != nil {
		task.Attempts.Started = t.rec.Reboot.At
	}
	if command == rollout.StateSucceeded {
		task.Attempts.Started = t.in.Now
	}
	if p.Status.Phase == corev1.PodSucceeded {
		t.verifyReboot(&task, p)
	}
	return task
}

// verifyReboot decides whether the node came up again. Only a ready node in a later boot than the one before proves it; it may have
// booted again since the agent saw the reboot.
func (t *target) verifyReboot(task *rollout.Task, p *corev1.Pod) {
	about := "Node " + t.node.Name
	proof := readRebootProof(p)
	provenByPredecessor := p.Annotations[v1alpha1.AnnotationRebootState] == string(v1alpha1.RebootCompleted)
	fallback := t.fallback(proof)
	switch {
	case proof != nil && !proof.IsProvenBy(t.node.BootID, t.rec.Boot):
		task.Why = &rollout.Why{Reason: rollout.ReasonRebootTimeout, About: about,
			Text: "the agent saw the reboot, and the node has not reported boot " + node.Truncate(proof.To, 40) + " yet"}
	case proof == nil && !provenByPredecessor && t.node.BootID == t.rec.Boot:
		task.Why = &rollout.Why{Reason: rollout.ReasonRebootNotStarted, About: about,
			Text: "the reboot pod ended, and the node still reports the boot from before it"}
	case !t.node.Ready:
		task.Why = &rollout.Why{Reason: rollout.ReasonNodeNotReady, About: about, Text: "the node booted again and is not ready yet"}
	case fallback != "":
		failTask(task, rollout.Why{Reason: rollout.ReasonStageFailed, Text: fallback, About: about, Since: t.in.Now})
	default:
		task.State, task.Object.Leaving, task.Why = rollout.StateSucceeded, false, nil
	}
}

// fallback says which system came up in place of the one that an upgrade installed. It is empty when the upgraded system
// came up, or when that is unknown. A node falls back to the system from before when the new one does not boot.
func (t *target) fallback(proof *pack.Reboot) string {
	if proof == nil || !t.op.IsUpgrade() {
		return ""
	}
	want := t.upgradeVersion()
	switch proof.System {
	case pack.KairosPassive, pack.KairosRecovery, pack.KairosLive:
	default:
		if want == "" || proof.Version == "" || want == proof.Version {
			return ""
		}
	}

	version, system := proof.Version, ""
	if version == "" {
		version = "an unknown version"
	}
	if proof.System != "" && proof.System != pack.KairosUnknown {
		system = " (" + proof.System + ")"
	}
	if want == "" {
		want = "the upgraded system"
	}
	return "the node booted " + version + system + " and not " + want
}

// upgradeVersion is the version that the command of an upgrade installed; empty when it is unknown.
func (t *target) upgradeVersion() string {
	if r := t.rec.Result; r != nil && r.Target != "" {
		return r.Target
	}
	version, ok := strings.CutPrefix(t.objects.lastRun(t.rec.Job).output, nodeop.PrefixTarget)
	if !ok {
		return ""
	}
	return version
}
