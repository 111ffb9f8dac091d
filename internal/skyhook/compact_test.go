// SPDX-FileCopyrightText: The Skyhook authors
// SPDX-License-Identifier: Apache-2.0

package skyhook

import (
	"fmt"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// TestRequestOnce: containers of which one works at a time request what the largest of them requests.
func TestRequestOnce(t *testing.T) {
	resources := func(cpu, memory string) corev1.ResourceRequirements {
		return corev1.ResourceRequirements{
			Requests: corev1.ResourceList{corev1.ResourceCPU: resource.MustParse(cpu), corev1.ResourceMemory: resource.MustParse(memory)},
			Limits:   corev1.ResourceList{corev1.ResourceCPU: resource.MustParse("2"), corev1.ResourceMemory: resource.MustParse("1Gi")},
		}
	}
	none := corev1.ResourceRequirements{}
	for _, c := range []struct {
		name string
		of   []corev1.ResourceRequirements
		want string
	}{
		{"alike", []corev1.ResourceRequirements{resources("100m", "64Mi"), resources("100m", "64Mi")}, "cpu=100m memory=64Mi, cpu=0 memory=0"},
		{"each has the most of something", []corev1.ResourceRequirements{resources("50m", "128Mi"), resources("1", "64Mi"), resources("100m", "1Mi")}, "cpu=0 memory=128Mi, cpu=1 memory=0, cpu=0 memory=0"},
		{"defaults", []corev1.ResourceRequirements{none, none, none}, "unset, cpu=0 memory=0, cpu=0 memory=0"},
		{"defaults after others", []corev1.ResourceRequirements{resources("50m", "1Mi"), none, none}, "cpu=50m memory=1Mi, unset, cpu=0 memory=0"},
	} {
		containers := make([]corev1.Container, len(c.of))
		for i := range c.of {
			containers[i].Resources = *c.of[i].DeepCopy()
		}
		requestOnce(containers)
		var got []string
		for i, container := range containers {
			r := container.Resources.Requests
			if len(r) == 0 {
				got = append(got, "unset")
			} else {
				got = append(got, fmt.Sprintf("cpu=%s memory=%s", r.Cpu(), r.Memory()))
			}
			if len(container.Resources.Limits) != len(c.of[i].Limits) {
				t.Errorf("%s: container %d has the limits %v", c.name, i, container.Resources.Limits)
			}
		}
		if s := strings.Join(got, ", "); s != c.want {
			t.Errorf("%s: the containers request %s, want %s", c.name, s, c.want)
		}
	}
}

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
		var stages []podStage
		for i, state := range c.states {
			name := fmt.Sprint("stage", i)
			stages = append(stages, podStage{Name: "p", Version: "1", Stage: "apply", Container: name})
			p.Status.ContainerStatuses = append(p.Status.ContainerStatuses, corev1.ContainerStatus{Name: name, State: state})
		}
		pod := &podInfo{}
		pod.readParts(p, stages)
		var got []string
		for _, part := range pod.parts {
			text := fmt.Sprintf("%s since %d", part.state, part.created.Unix()-1000)
			for _, word := range []struct {
				is   bool
				text string
			}{{part.part.begun, " begun"}, {part.healthy, " healthy"}, {part.dead, " dead"}} {
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
