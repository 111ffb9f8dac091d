// SPDX-FileCopyrightText: The Skyhook authors
// SPDX-License-Identifier: Apache-2.0

package podstate

import (
	"fmt"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// TestWaitingContainers: a container runs before its stage begins, because it waits for the one before it.
func TestWaitingContainers(t *testing.T) {
	at := func(seconds int) metav1.Time { return metav1.NewTime(time.Unix(int64(1000+seconds), 0)) }
	runs := corev1.ContainerState{Running: &corev1.ContainerStateRunning{StartedAt: at(1)}}
	ended := func(code int32) corev1.ContainerState {
		return corev1.ContainerState{Terminated: &corev1.ContainerStateTerminated{ExitCode: code, StartedAt: at(1), FinishedAt: at(60)}}
	}
	for _, c := range []struct {
		name   string
		phase  corev1.PodPhase
		states []corev1.ContainerState
		want   string
	}{
		{"the first works", corev1.PodRunning, []corev1.ContainerState{runs, runs, runs}, "running since 1 begun healthy, running since 0, running since 0"},
		{"the second works since the first has ended", corev1.PodRunning, []corev1.ContainerState{ended(0), runs, runs}, "succeeded since 1 begun healthy, running since 60 begun healthy, running since 60"},
		{"the first fails", corev1.PodRunning, []corev1.ContainerState{ended(1), runs, runs}, "failing since 1 begun, running since 0, running since 0"},
		{"one that waits was killed", corev1.PodRunning, []corev1.ContainerState{runs, ended(137), runs}, "running since 1 begun healthy, running since 0, running since 0"},
		{"the second ended before it began", corev1.PodRunning, []corev1.ContainerState{ended(0), ended(76), runs}, "succeeded since 1 begun healthy, running since 60 dead, running since 60"},
		{"all have ended", corev1.PodSucceeded, []corev1.ContainerState{ended(0), ended(0), ended(0)}, "succeeded since 1 begun healthy, succeeded since 60 begun healthy, succeeded since 60 begun healthy"},
	} {
		p := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{CreationTimestamp: at(0)}, Status: corev1.PodStatus{Phase: c.phase}}
		var stages []Stage
		for i, state := range c.states {
			name := fmt.Sprint("stage", i)
			stages = append(stages, Stage{Name: "p", Version: "1", Stage: "apply", Container: name})
			p.Status.ContainerStatuses = append(p.Status.ContainerStatuses, corev1.ContainerStatus{Name: name, State: state})
		}
		pod := &Pod{}
		pod.readParts(p, stages)
		var got []string
		for _, part := range pod.Parts {
			text := fmt.Sprintf("%s since %d", part.State, part.Created.Unix()-1000)
			for _, word := range []struct {
				is   bool
				text string
			}{{part.Begun, " begun"}, {part.Healthy, " healthy"}, {part.Dead, " dead"}} {
				if word.is {
					text += word.text
				}
			}
			got = append(got, text)
		}
		if s := strings.Join(got, ", "); s != c.want {
			t.Errorf("%s:\n%s, want\n%s", c.name, s, c.want)
		}
	}
}

// TestPullReasonNamesTheImage has the kubelet say that a container cannot be pulled, whose own image is the agent's: it means the volume.
func TestPullReasonNamesTheImage(t *testing.T) {
	const agent, image = "example.org/agent:1", "example.org/p:1.0.0"
	p := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: "p", Annotations: map[string]string{AnnotationStages: `[{"name":"p","version":"1.0.0","stage":"apply","container":"apply"}]`}}}
	p.Spec.Volumes = []corev1.Volume{{Name: "p", VolumeSource: corev1.VolumeSource{Image: &corev1.ImageVolumeSource{Reference: image}}}}
	for message, want := range map[string]string{
		`Back-off pulling image "` + image + `": ErrImagePull: not found`: image,
		`Back-off pulling image "` + agent + `": ErrImagePull: not found`: agent,
	} {
		p.Status.ContainerStatuses = []corev1.ContainerStatus{{Name: "apply", Image: agent,
			State: corev1.ContainerState{Waiting: &corev1.ContainerStateWaiting{Reason: "ImagePullBackOff", Message: message}}}}
		why := Read(p).Parts[0].Why
		if why == nil || why.Text != "image "+want+" cannot be pulled: not found" {
			t.Errorf("%s: %+v", message, why)
		}
	}
}
