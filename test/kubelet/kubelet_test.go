// SPDX-FileCopyrightText: The Skyhook authors
// SPDX-License-Identifier: Apache-2.0

package kubelet

import (
	"fmt"
	"testing"
	"time"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

var now = time.Date(2026, 1, 5, 8, 0, 0, 0, time.UTC)

// describe says what a pod reports in a few words.
func describe(p *corev1.Pod) string {
	out := string(p.Status.Phase)
	for _, statuses := range [][]corev1.ContainerStatus{p.Status.InitContainerStatuses, p.Status.ContainerStatuses} {
		for _, c := range statuses {
			switch t := c.State.Terminated; {
			case t != nil:
				out += fmt.Sprintf(", %s ended with %d%s", c.Name, t.ExitCode, t.Message)
			case c.State.Running != nil:
				out += ", " + c.Name + " runs"
			default:
				out += ", " + c.Name + " waits: " + c.State.Waiting.Reason
			}
			if c.RestartCount > 0 {
				out += fmt.Sprintf(" (%d)", c.RestartCount)
			}
		}
	}
	return out
}

// TestInitContainers: one runs at a time, one that fails is started again, and the others start when the last one has ended.
func TestInitContainers(t *testing.T) {
	p := &corev1.Pod{Spec: corev1.PodSpec{InitContainers: []corev1.Container{{Name: "copy"}, {Name: "apply"}}, Containers: []corev1.Container{{Name: "pause"}}}}
	for _, step := range []struct {
		do   func()
		want string
		next int
	}{
		{func() { Create(p) }, "Pending, copy waits: PodInitializing, apply waits: PodInitializing, pause waits: PodInitializing", 0},
		{func() { Wait(p, 0, "ImagePullBackOff", "not found") }, "Pending, copy waits: ImagePullBackOff, apply waits: PodInitializing, pause waits: PodInitializing", 0},
		{func() { End(p, 0, 0, " well", now) }, "Pending, copy ended with 0 well, apply runs, pause waits: PodInitializing", 1},
		{func() { End(p, 1, 1, "", now) }, "Pending, copy ended with 0 well, apply ended with 1, pause waits: PodInitializing", 1},
		{func() { End(p, 1, 1, "", now) }, "Pending, copy ended with 0 well, apply ended with 1 (1), pause waits: PodInitializing", 1},
		{func() { End(p, 1, 0, "", now) }, "Running, copy ended with 0 well, apply ended with 0 (2), pause runs", 2},
		{func() { Create(p) }, "Running, copy ended with 0 well, apply ended with 0 (2), pause runs", 2},
	} {
		if step.do(); describe(p) != step.want || Next(p) != step.next {
			t.Errorf("%s, next %d; want %s, next %d", describe(p), Next(p), step.want, step.next)
		}
	}
}

// TestContainers: those that are no init containers start together, and the pod has ended when all have.
func TestContainers(t *testing.T) {
	p := &corev1.Pod{Spec: corev1.PodSpec{Containers: []corev1.Container{{Name: "a"}, {Name: "b"}}}}
	for _, step := range []struct {
		do   func()
		want string
		next int
	}{
		{func() { Create(p); Begin(p, 0, now) }, "Running, a runs, b runs", 0},
		{func() { End(p, 0, 1, "", now) }, "Running, a ended with 1, b runs", 0},
		{func() { End(p, 0, 0, "", now) }, "Running, a ended with 0 (1), b runs", 1},
		{func() { End(p, 1, 0, "", now) }, "Succeeded, a ended with 0 (1), b ended with 0", -1},
	} {
		if step.do(); describe(p) != step.want || Next(p) != step.next {
			t.Errorf("%s, next %d; want %s, next %d", describe(p), Next(p), step.want, step.next)
		}
	}
}

// TestJob: the pod of a Job is not restarted, and the Job ends as its pod did.
func TestJob(t *testing.T) {
	j := &batchv1.Job{ObjectMeta: metav1.ObjectMeta{Namespace: "ops", Name: "check", UID: "u1"}}
	j.Spec.Template.Spec.Containers = []corev1.Container{{Name: "command"}}
	p := JobPod(j)
	if EndAll(p, 3, "", now); describe(p) != "Failed, command ended with 3" || !metav1.IsControlledBy(p, j) || Next(p) != -1 {
		t.Errorf("pod %s/%s: %s", p.Namespace, p.Name, describe(p))
	}
	if EndJob(j, false, now); !HasJobEnded(j) || j.Status.Failed != 1 || j.Status.Conditions[1].Type != batchv1.JobFailed {
		t.Errorf("the Job is %+v", j.Status)
	}
}
