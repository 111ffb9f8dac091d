// SPDX-FileCopyrightText: The Skyhook authors
// SPDX-License-Identifier: Apache-2.0

package nodeop_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/skyhook-k8s/skyhook/api/nodeop/v1alpha1"
	"github.com/skyhook-k8s/skyhook/test/kubelet"
)

func podName(j *batchv1.Job, attempt int32) string { return fmt.Sprintf("%s-try-%d", j.Name, attempt) }

// startAttempt acts as the Job controller that begins an attempt.
func (w *environment) startAttempt(j *batchv1.Job) *corev1.Pod {
	p := kubelet.JobPod(j)
	p.Name, p.CreationTimestamp = podName(j, j.Status.Failed+1), metav1.NewTime(w.now)
	kubelet.Create(p)
	kubelet.Begin(p, 0, w.now)
	w.pods = append(w.pods, p)
	j.Status.Active = 1
	return p
}

// failAttempt acts as the kubelet and the Job controller when an attempt fails.
func (w *environment) failAttempt(j *batchv1.Job, p *corev1.Pod, code int32) {
	kubelet.EndAll(p, code, "first line\nno such file\n", w.now)
	j.Status.Active, j.Status.Failed = 0, j.Status.Failed+1
	w.judgeAttempts(j)
}

// judgeAttempts acts as the Job controller, which fails a Job as soon as more attempts have failed than backoffLimit, and then
// deletes the running ones.
func (w *environment) judgeAttempts(j *batchv1.Job) {
	if done, _ := jobOutcome(j); done || j.Status.Failed <= *j.Spec.BackoffLimit {
		return
	}
	if j.Status.Active > 0 {
		w.t.Errorf("a running attempt of job %s is deleted: %d failed, limit %d", j.Name, j.Status.Failed, *j.Spec.BackoffLimit)
	}
	kubelet.EndJob(j, false, w.now)
}

func (w *environment) passes(n int) {
	for range n {
		w.pass()
		for _, j := range w.jobs {
			w.judgeAttempts(j)
		}
	}
}

// startRetries starts a NodeOp on one node; its Job begins attempts only when the test says so.
func startRetries(t *testing.T, spec string) (*environment, *v1alpha1.NodeOp, *batchv1.Job) {
	t.Helper()
	w := newEnvironment(t, "n1")
	o := w.applyYAML(`{metadata: {name: check}, spec: {command: [x], cordon: true` + spec + `}}`)
	for range 10 {
		if w.pass(); len(w.jobs) > 0 {
			return w, o, w.jobs[0]
		}
	}
	t.Fatal("no Job is created")
	return nil, nil, nil
}

func TestStatusDescribesAttempts(t *testing.T) {
	w, o, j := startRetries(t, "")
	w.failAttempt(j, w.startAttempt(j), 3)
	failedAt := w.now
	w.pass()
	require := func(want string) {
		t.Helper()
		cond := meta.FindStatusCondition(o.Status.Conditions, v1alpha1.ConditionProgressing)
		verdict := w.last.Reports[0].Verdicts[0]
		if !strings.HasSuffix(cond.Message, "node n1: "+want) || verdict.Why.Text != want {
			t.Errorf("the condition is %q, the verdict %q, want %q", cond.Message, verdict.Why.Text, want)
		}
		e := o.Status.NodeStatuses["n1"]
		requireEqual(t, "message", e.Message, "Job is running")
		requireEqual(t, "attempts", e.Attempts, j.Status.Failed)
		requireEqual(t, "exit code", *e.ExitCode, int32(3))
		requireEqual(t, "output", e.Output, "first line\nno such file")
	}
	require("attempt 2 of 7 of the command begins at about " + failedAt.Add(10*time.Second).Format(time.RFC3339) +
		"; attempt 1 ended with exit code 3: no such file")

	w.now = w.now.Add(11 * time.Second)
	second := w.startAttempt(j)
	w.pass()
	require("attempt 2 of 7 of the command runs; attempt 1 ended with exit code 3: no such file")

	w.failAttempt(j, second, 3)
	failedAt = w.now
	w.pass()
	require("attempt 3 of 7 of the command begins at about " + failedAt.Add(20*time.Second).Format(time.RFC3339) +
		"; attempt 2 ended with exit code 3: no such file")
}

// A deletion between two attempts gives the node back at once.
func TestDeletionBetweenAttempts(t *testing.T) {
	for _, spec := range []string{"", ", rebootOnSuccess: true", ", suspend: true"} {
		w, o, j := startRetries(t, strings.Replace(spec, ", suspend: true", "", 1))
		o.Spec.Suspend = new(strings.Contains(spec, "suspend"))
		w.failAttempt(j, w.startAttempt(j), 3)
		w.pass()
		requireEqual(t, "cordoned", w.node("n1").Unschedulable, true)
		o.DeletionTimestamp = new(metav1.NewTime(w.now))
		w.passes(6)
		requireEqual(t, "cordoned after the deletion", w.node("n1").Unschedulable, false)
		requireEqual(t, "NodeOps", len(w.ops), 0)
		requireEqual(t, "failed attempts", j.Status.Failed, int32(1))
	}
}

// A deletion during an attempt lets it end, and no other begins.
func TestDeletionDuringAttempt(t *testing.T) {
	w, o, j := startRetries(t, "")
	w.failAttempt(j, w.startAttempt(j), 3)
	w.pass()
	second := w.startAttempt(j)
	o.DeletionTimestamp = new(metav1.NewTime(w.now))
	w.passes(6)
	requireEqual(t, "NodeOps while the attempt runs", len(w.ops), 1)
	requireEqual(t, "cordoned while the attempt runs", w.node("n1").Unschedulable, true)
	requireEqual(t, "backoffLimit", *j.Spec.BackoffLimit, int32(1))
	if finished, _ := jobOutcome(j); finished {
		t.Fatal("the running attempt was ended")
	}
	cond := meta.FindStatusCondition(o.Status.Conditions, v1alpha1.ConditionProgressing)
	if !strings.HasPrefix(cond.Message, "it is being deleted: ") || !strings.Contains(cond.Message, "node n1: attempt 2 of 2") {
		t.Errorf("the condition is %q", cond.Message)
	}

	w.failAttempt(j, second, 3)
	w.passes(6)
	requireEqual(t, "NodeOps after the attempt", len(w.ops), 0)
	requireEqual(t, "cordoned after the attempt", w.node("n1").Unschedulable, false)
}

// A deletion before the first failure lets the first attempt end, also when its pod is not there yet.
func TestDeletionDuringFirstAttempt(t *testing.T) {
	w, o, j := startRetries(t, "")
	o.DeletionTimestamp = new(metav1.NewTime(w.now))
	w.passes(3)
	requireEqual(t, "backoffLimit", *j.Spec.BackoffLimit, int32(0))
	first := w.startAttempt(j)
	w.passes(3)
	requireEqual(t, "NodeOps while the attempt runs", len(w.ops), 1)
	w.failAttempt(j, first, 1)
	w.passes(6)
	requireEqual(t, "NodeOps", len(w.ops), 0)
	requireEqual(t, "cordoned", w.node("n1").Unschedulable, false)
}

// A deletion while the pod of an attempt cannot start gives the node back at once.
func TestDeletionBeforeStart(t *testing.T) {
	w, o, j := startRetries(t, "")
	kubelet.Wait(w.startAttempt(j), 0, "ImagePullBackOff", "no such host")
	w.pass()
	requireEqual(t, "cordoned", w.node("n1").Unschedulable, true)
	o.DeletionTimestamp = new(metav1.NewTime(w.now))
	w.passes(6)
	requireEqual(t, "NodeOps", len(w.ops), 0)
	requireEqual(t, "Jobs", len(w.jobs), 0)
	requireEqual(t, "cordoned after the deletion", w.node("n1").Unschedulable, false)
}

// A deletion during the attempt that reboots the node neither interrupts the reboot nor uncordons the node before it is ready.
func TestDeletionDuringReboot(t *testing.T) {
	w, o, j := startRetries(t, ", rebootOnSuccess: true")
	w.failAttempt(j, w.startAttempt(j), 3)
	w.pass()
	second := w.startAttempt(j)
	o.DeletionTimestamp = new(metav1.NewTime(w.now))
	w.passes(4)
	kubelet.EndAll(second, 0, "", w.now)
	kubelet.EndJob(j, true, w.now)
	w.node("n1").Ready = false
	w.passes(6)
	requireEqual(t, "NodeOps during the reboot", len(w.ops), 1)
	requireEqual(t, "cordoned during the reboot", w.node("n1").Unschedulable, true)
	requireEqual(t, "reboot pods", len(w.pods), 3)

	w.node("n1").Ready = true
	w.runToEnd()
	requireEqual(t, "boot", w.node("n1").BootID, "boot-1'")
	requireEqual(t, "NodeOps", len(w.ops), 0)
	requireEqual(t, "cordoned", w.node("n1").Unschedulable, false)
}

// An attempt that the reboot itself may have ended is left to the Job: it may have triggered the reboot.
func TestDeletionAfterUnclearAttempt(t *testing.T) {
	w, o, j := startRetries(t, ", rebootOnSuccess: true")
	p := w.startAttempt(j)
	p.Status.Phase = corev1.PodFailed
	j.Status.Active, j.Status.Failed = 0, 1
	o.DeletionTimestamp = new(metav1.NewTime(w.now))
	w.passes(4)
	requireEqual(t, "backoffLimit", *j.Spec.BackoffLimit, int32(1))
	requireEqual(t, "cordoned", w.node("n1").Unschedulable, true)
}
