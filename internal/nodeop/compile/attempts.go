// SPDX-FileCopyrightText: The Skyhook authors
// SPDX-License-Identifier: Apache-2.0

package compile

import (
	"fmt"
	"slices"
	"strings"
	"time"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/skyhook-k8s/skyhook/internal/node"
	"github.com/skyhook-k8s/skyhook/internal/nodeop"
	"github.com/skyhook-k8s/skyhook/internal/rollout"
)

// firstRetryDelay is how long the Job controller waits after the first failed attempt. It waits twice as long after each
// further one, at most nodeop.MaxRetryDelay.
const firstRetryDelay = 10 * time.Second

// attemptLimit returns the limit with which a Job of a NodeOp that is being deleted begins no further attempt; nil when it has that
// limit. A running attempt ends by itself; between two attempts the Job fails at once.
func (t *target) attemptLimit() *nodeop.AttemptLimit {
	j := t.job()
	if j == nil || j.DeletionTimestamp != nil || !t.op.IsDeleting() || !t.rec.Admitted {
		return nil
	}
	if finished, _ := jobOutcome(j); finished {
		return nil
	}
	limit := countFailedAttempts(j)
	if limit > 0 && !t.mayBeInAttempt(j) {
		limit--
	}
	current := int32(nodeop.DefaultBackoffLimit)
	if j.Spec.BackoffLimit != nil {
		current = *j.Spec.BackoffLimit
	}
	if current <= limit {
		return nil
	}
	return &nodeop.AttemptLimit{Job: j, BackoffLimit: limit}
}

// mayBeInAttempt reports whether an attempt runs. An attempt whose command did not fail by itself counts as one while the node
// reboots after success: the reboot may have been triggered.
func (t *target) mayBeInAttempt(j *batchv1.Job) bool {
	if j.Status.Active > 0 || t.objects.hasRunningWorker(j.Name) {
		return true
	}
	last := t.objects.lastRun(j.Name)
	commandFailed := last.exit != nil && *last.exit != 0
	return t.op.Reboots() && !commandFailed
}

// countFailedAttempts is the number of failed attempts as the Job controller counts them for backoffLimit.
func countFailedAttempts(j *batchv1.Job) int32 {
	failed := j.Status.Failed
	if u := j.Status.UncountedTerminatedPods; u != nil {
		failed += int32(len(u.Failed))
	}
	return failed
}

func (o *nodeObjects) hasRunningWorker(job string) bool {
	return slices.ContainsFunc(o.workers, func(p *corev1.Pod) bool {
		return metav1.GetControllerOf(p).Name == job && !nodeop.IsPodFinished(p)
	})
}

// retryReason describes the attempts of a Job that has failed at least once and goes on: which attempt it is, how the one before
// ended, and when the next begins. It is nil before the first failure.
func (t *target) retryReason(j *batchv1.Job) *rollout.Why {
	failed, last := countFailedAttempts(j), t.objects.lastFailure(j.Name)
	if failed == 0 || last == nil {
		return nil
	}
	limit := int32(nodeop.DefaultBackoffLimit)
	if j.Spec.BackoffLimit != nil {
		limit = *j.Spec.BackoffLimit
	}
	attempt := fmt.Sprintf("attempt %d of %d of the command", int64(failed)+1, int64(limit)+1)
	var text string
	switch next := last.endedAt.Add(retryDelay(failed)); {
	case failed > limit:
		text = "the last attempt of the command failed"
	case j.Status.Active > 0 || t.objects.hasRunningWorker(j.Name):
		text = attempt + " runs"
	case last.endedAt.IsZero():
		text = attempt + " begins soon"
	default:
		text = attempt + " begins at about " + next.UTC().Format(time.RFC3339)
	}
	return &rollout.Why{Reason: rollout.ReasonRetry, Text: text + "; attempt " + fmt.Sprint(failed) + " " + last.describe(), Since: last.endedAt}
}

// retryDelay is how long the Job controller waits after this many failed attempts.
func retryDelay(failed int32) time.Duration {
	delay := firstRetryDelay
	for ; failed > 1 && delay < nodeop.MaxRetryDelay; failed-- {
		delay *= 2
	}
	return min(delay, nodeop.MaxRetryDelay)
}

// failedAttempt is how an attempt of a command failed.
type failedAttempt struct {
	exit    *int32 // nil when the pod does not report it
	output  string
	reason  string // of the pod
	endedAt time.Time
}

// lastFailure returns how the newest failed pod of a Job ended; nil when none failed.
func (o *nodeObjects) lastFailure(job string) *failedAttempt {
	var newest *corev1.Pod
	for _, p := range o.workers {
		isOlder := newest != nil && !newest.CreationTimestamp.Before(&p.CreationTimestamp)
		if metav1.GetControllerOf(p).Name == job && p.Status.Phase == corev1.PodFailed && !isOlder {
			newest = p
		}
	}
	if newest == nil {
		return nil
	}
	out := &failedAttempt{reason: newest.Status.Reason}
	for _, s := range slices.Concat(newest.Status.InitContainerStatuses, newest.Status.ContainerStatuses) {
		ended := s.State.Terminated
		if ended == nil {
			continue
		}
		if ended.FinishedAt.After(out.endedAt) {
			out.endedAt = ended.FinishedAt.Time
		}
		if s.Name == nodeop.ContainerCommand {
			out.exit = new(ended.ExitCode)
			if !strings.HasPrefix(ended.Message, nodeop.PrefixTarget) {
				out.output = node.Truncate(strings.TrimSpace(ended.Message), 1000)
			}
		}
	}
	return out
}

// describe says how the attempt ended: the exit code and the last line that the command printed.
func (a *failedAttempt) describe() string {
	switch {
	case a.exit == nil && a.reason != "":
		return "failed: " + a.reason
	case a.exit == nil:
		return "failed"
	case a.output == "":
		return fmt.Sprintf("ended with exit code %d", *a.exit)
	}
	return fmt.Sprintf("ended with exit code %d: %s", *a.exit, node.Truncate(lastLine(a.output), 200))
}

func lastLine(text string) string { return text[strings.LastIndexByte(text, '\n')+1:] }
