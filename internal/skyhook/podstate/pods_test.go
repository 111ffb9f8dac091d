// SPDX-FileCopyrightText: The Skyhook authors
// SPDX-License-Identifier: Apache-2.0

package podstate

import (
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/skyhook-k8s/skyhook/api/skyhook/v1alpha1"
	"github.com/skyhook-k8s/skyhook/internal/pack"
	"github.com/skyhook-k8s/skyhook/internal/rollout"
)

// clock returns a time on the day of the tests.
func clock(minute int) metav1.Time {
	return metav1.NewTime(time.Date(2026, 5, 1, 12, minute, 0, 0, time.UTC))
}

// stagePod returns a stage pod with its three init containers in the given states.
func stagePod(statuses ...corev1.ContainerStatus) *corev1.Pod {
	p := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{
		Name: "p", Namespace: "skyhook", CreationTimestamp: clock(0),
		Annotations: map[string]string{v1alpha1.AnnotationPackage: WritePodAnnotation(Annotation{Name: "tuning", Version: "1.0.0", Skyhook: "demo", Stage: v1alpha1.StageApply})},
	}}
	for i, name := range []string{"tuning-init", "tuning-apply", "tuning-applycheck"} {
		p.Spec.InitContainers = append(p.Spec.InitContainers, corev1.Container{Name: name})
		if i < len(statuses) {
			statuses[i].Name = name
			p.Status.InitContainerStatuses = append(p.Status.InitContainerStatuses, statuses[i])
		}
	}
	p.Status.Phase = corev1.PodPending
	return p
}

func ended(code int32, message string) corev1.ContainerStatus {
	return corev1.ContainerStatus{State: corev1.ContainerState{Terminated: &corev1.ContainerStateTerminated{ExitCode: code, Message: message, FinishedAt: clock(5)}}}
}

func works() corev1.ContainerStatus {
	return corev1.ContainerStatus{State: corev1.ContainerState{Running: &corev1.ContainerStateRunning{}}}
}

func waits(reason, message string) corev1.ContainerStatus {
	return corev1.ContainerStatus{Image: "example.org/p:1", State: corev1.ContainerState{Waiting: &corev1.ContainerStateWaiting{Reason: reason, Message: message}}}
}

// again returns a container that failed before and is in another state now.
func again(s corev1.ContainerStatus, restarts, code int32) corev1.ContainerStatus {
	s.RestartCount = restarts
	s.LastTerminationState.Terminated = &corev1.ContainerStateTerminated{ExitCode: code, FinishedAt: clock(7)}
	return s
}

func message(class pack.Class, outcome pack.Outcome, lines ...string) string {
	return string(pack.Message{Mode: pack.ModeApply, Class: class, Outcome: outcome, Reason: "step run.sh ended with exit code 7", Lines: lines}.Encode())
}

func TestReadPod(t *testing.T) {
	ok := ended(0, "")
	for _, c := range []struct {
		name     string
		pod      *corev1.Pod
		state    rollout.State
		healthy  bool
		dead     bool
		attempts int
		reason   rollout.Reason
		text     string
	}{
		{"new", stagePod(), Running, false, false, 0, "", ""},
		{"the copy is made", stagePod(works()), Running, false, false, 0, "", ""},
		{"the stage runs", stagePod(ok, works()), Running, true, false, 0, "", ""},
		{"the check runs", stagePod(ok, ok, works()), Running, true, false, 0, "", ""},
		{"the check starts", stagePod(ok, ok, waits("PodInitializing", "")), Running, true, false, 0, "", ""},
		{"all done", stagePod(ok, ok, ok), Succeeded, true, false, 0, "", ""},
		{"failed with a message", stagePod(ok, ended(1, message(pack.StepFailed, pack.Failed, "a", "b", "c", "d"))), failing, false, false, 1, rollout.ReasonStageFailed,
			"step run.sh ended with exit code 7; last output: b | c | d"},
		{"failed without a message", stagePod(ok, ended(3, "some log")), failing, false, false, 1, rollout.ReasonStageFailed, "container tuning-apply ended with exit code 3"},
		{"the copy failed", stagePod(ended(127, "")), failing, false, false, 1, rollout.ReasonStageFailed, "container tuning-init ended with exit code 127"},
		{"took too long", stagePod(ok, ended(7, message(pack.TimedOut, pack.Failed))), failing, false, false, 1, rollout.ReasonDeadline, "step run.sh ended with exit code 7"},
		{"wants to be asked later", stagePod(ok, ended(75, message(pack.RetryLater, pack.Retry))), Running, false, false, 0, rollout.ReasonRetry, "step run.sh ended with exit code 7"},
		{"was not begun", stagePod(ok, ended(76, message(pack.NotBegun, pack.Retry))), Running, false, false, 0, rollout.ReasonRetry, "step run.sh ended with exit code 7"},
		{"was not begun, without a message", stagePod(ok, ended(76, "")), Running, false, false, 0, rollout.ReasonRetry, "container tuning-apply ended with exit code 76"},
		{"was told to stop", stagePod(ok, ended(143, "")), Running, false, false, 0, rollout.ReasonRetry, "container tuning-apply ended with exit code 143"},
		{"unknown end", stagePod(ok, corev1.ContainerStatus{State: corev1.ContainerState{Terminated: &corev1.ContainerStateTerminated{ExitCode: 137, Reason: "ContainerStatusUnknown"}}}),
			Running, false, false, 0, rollout.ReasonRetry, "container tuning-apply ended with exit code 137"},
		{"crash loop", stagePod(ok, again(waits("CrashLoopBackOff", "back-off"), 4, 2)), failing, false, false, 5, rollout.ReasonStageFailed, "container tuning-apply ended with exit code 2"},
		{"runs again after failures", stagePod(ok, again(works(), 4, 2)), failing, false, false, 4, rollout.ReasonStageFailed, "container tuning-apply ended with exit code 2"},
		{"ended well after failures", stagePod(ok, again(ended(0, ""), 4, 2), ok), Succeeded, true, false, 0, "", ""},
		{"out of memory", stagePod(ok, corev1.ContainerStatus{State: corev1.ContainerState{Terminated: &corev1.ContainerStateTerminated{ExitCode: 137, Reason: "OOMKilled"}}}),
			failing, false, false, 1, rollout.ReasonStageFailed, "container tuning-apply was killed because it used more memory than its limit"},
		{"image", stagePod(waits("ImagePullBackOff", "manifest unknown")), Running, false, false, 0, rollout.ReasonImagePull, "image example.org/p:1 cannot be pulled: manifest unknown"},
		{"image of the agent", stagePod(ok, waits("ErrImagePull", "")), Running, false, false, 0, rollout.ReasonImagePull, "image example.org/p:1 cannot be pulled: ErrImagePull"},
		{"secret is missing", stagePod(ok, waits("CreateContainerConfigError", `secret "s" not found`)), Running, false, false, 0, rollout.ReasonKubeletRejected,
			`container tuning-apply cannot start: secret "s" not found`},
		{"rejected", failedPod("OutOfcpu", "Node didn't have enough resource: cpu"), failing, false, true, 1, rollout.ReasonKubeletRejected,
			"the kubelet rejected the pod: OutOfcpu: Node didn't have enough resource: cpu"},
		{"evicted", failedPod("Evicted", "The node was low on resource: memory"), failing, false, true, 1, rollout.ReasonKubeletRejected,
			"the kubelet evicted the pod: Evicted: The node was low on resource: memory"},
		{"the node shut down", failedPod("Terminated", "Pod was terminated in response to imminent node shutdown."), Running, false, true, 0, rollout.ReasonPodLost,
			"the node shut down: Terminated: Pod was terminated in response to imminent node shutdown."},
		{"failed without a reason", failedPod("", ""), failing, false, true, 1, rollout.ReasonKubeletRejected, "the kubelet rejected the pod: it gives no reason"},
		{"failed because a container did", asFailed(stagePod(ok, ended(2, ""))), failing, false, true, 1, rollout.ReasonStageFailed, "container tuning-apply ended with exit code 2"},
		{"being deleted", leavingPod(stagePod(ok, works())), Running, true, false, 0, rollout.ReasonPodLost, "pod p is being deleted"},
		{"deleted after its end", leavingPod(stagePod(ok, ok, ok)), Succeeded, true, false, 0, "", ""},
	} {
		t.Run(c.name, func(t *testing.T) {
			s := Read(c.pod)
			var reason rollout.Reason
			var text string
			if s.Why != nil {
				reason, text = s.Why.Reason, s.Why.Text
				if s.Why.About != "Pod skyhook/p" {
					t.Errorf("it is about %q", s.Why.About)
				}
			}
			if s.State != c.state || s.Healthy != c.healthy || s.Dead != c.dead || s.Attempts != c.attempts || reason != c.reason || text != c.text {
				t.Errorf("state %s healthy %v dead %v attempts %d\n%s: %s\nwant %s %v %v %d\n%s: %s", s.State, s.Healthy, s.Dead, s.Attempts, reason, text,
					c.state, c.healthy, c.dead, c.attempts, c.reason, c.text)
			}
		})
	}
}

func failedPod(reason, message string) *corev1.Pod {
	p := asFailed(stagePod())
	p.Status.Reason, p.Status.Message = reason, message
	return p
}

func asFailed(p *corev1.Pod) *corev1.Pod {
	p.Status.Phase = corev1.PodFailed
	return p
}

func leavingPod(p *corev1.Pod) *corev1.Pod {
	now := clock(9)
	p.DeletionTimestamp = &now
	return p
}

// TestReadPodWithInjectedContainers reads pods with containers that an admission webhook added.
func TestReadPodWithInjectedContainers(t *testing.T) {
	always := corev1.ContainerRestartPolicyAlways
	p := stagePod(ended(0, ""), ended(0, ""), ended(0, ""))
	p.Spec.InitContainers = append([]corev1.Container{{Name: "mesh", RestartPolicy: &always}, {Name: "setup"}}, p.Spec.InitContainers...)
	if got := Read(p); got.State != Running || got.Healthy {
		t.Errorf("an injected container has not run yet, and the pod is %s", got.State)
	}
	setup := ended(0, "")
	setup.Name = "setup"
	p.Status.InitContainerStatuses = append(p.Status.InitContainerStatuses, setup)
	if got := Read(p); got.State != Succeeded {
		t.Errorf("a sidecar that runs for ever keeps the pod %s", got.State)
	}
	if got := Read(&corev1.Pod{}); got.State != Running {
		t.Errorf("a pod without anything is %s", got.State)
	}
	if got := Read(&corev1.Pod{ObjectMeta: metav1.ObjectMeta{Annotations: map[string]string{v1alpha1.AnnotationPackage: "{"}}}); got.Tag.Name != "" {
		t.Errorf("a malformed annotation is read as %+v", got.Tag)
	}
}

// TestReadInterruptPod reads interrupt pods: an interrupt may kill its own container.
func TestReadInterruptPod(t *testing.T) {
	p := &corev1.Pod{Spec: corev1.PodSpec{InitContainers: []corev1.Container{{Name: "interrupt"}}}}
	for code, want := range map[int32]rollout.State{0: Succeeded, 137: Running, 143: Running, 1: failing, 8: failing} {
		s := ended(code, "")
		s.Name = "interrupt"
		p.Status.InitContainerStatuses = []corev1.ContainerStatus{s}
		if got := Read(p); got.State != want {
			t.Errorf("exit code %d makes the interrupt %s, want %s", code, got.State, want)
		}
	}
}

// TestOwns checks that pods of other namespaces or owners are never trusted, whatever their labels.
func TestOwns(t *testing.T) {
	s := &v1alpha1.Skyhook{ObjectMeta: metav1.ObjectMeta{Name: "demo", UID: "u1"}}
	pod := func(change func(*corev1.Pod)) *corev1.Pod {
		p := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "skyhook", Labels: map[string]string{v1alpha1.LabelName: "demo"}, OwnerReferences: []metav1.OwnerReference{*metav1.NewControllerRef(s, v1alpha1.GroupVersion.WithKind("Skyhook"))}}}
		change(p)
		return p
	}
	if !Owns(s, "skyhook", pod(func(*corev1.Pod) {})) {
		t.Error("its own pod is not believed")
	}
	for name, forged := range map[string]func(*corev1.Pod){
		"another namespace": func(p *corev1.Pod) { p.Namespace = "default" },
		"another label":     func(p *corev1.Pod) { p.Labels = map[string]string{v1alpha1.LabelName: "other"} },
		"no owner":          func(p *corev1.Pod) { p.OwnerReferences = nil },
		"another UID":       func(p *corev1.Pod) { p.OwnerReferences[0].UID = "u2" },
		"another kind":      func(p *corev1.Pod) { p.OwnerReferences[0].Kind = "Job" },
		"no controller":     func(p *corev1.Pod) { p.OwnerReferences[0].Controller = nil },
	} {
		if Owns(s, "skyhook", pod(forged)) {
			t.Errorf("a pod with %s is believed", name)
		}
	}
}
