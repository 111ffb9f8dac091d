// SPDX-FileCopyrightText: The Skyhook authors
// SPDX-License-Identifier: Apache-2.0

package testcluster

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
)

// Simulated nodes: pods run their init containers in order and stay running, those of Jobs end well, a node reboots when
// it is told to.
func TestSimulated(t *testing.T) {
	realClusters(t)
	ctx := context.Background()
	c := up(t, Spec{Name: named("sim"), Simulated: 20, SimulatedDelay: 300 * time.Millisecond, SimulatedTaint: true, Labels: []Label{{Key: "pool", Value: "gpu"}}})
	n, err := c.Client.CoreV1().Nodes().Get(ctx, SimulatedName(20), metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	if n.Labels[SimulatedLabel] != "true" || n.Labels["pool"] != "gpu" || len(n.Spec.Taints) != 1 || n.Status.NodeInfo.BootID == "" {
		t.Errorf("a simulated node has labels %v, taints %v and boot id %q", n.Labels, n.Spec.Taints, n.Status.NodeInfo.BootID)
	}
	t.Run("init containers in order", func(t *testing.T) { initContainers(t, c) })
	t.Run("job", func(t *testing.T) { job(t, c) })
	t.Run("reboot", func(t *testing.T) {
		patch := []byte(`{"metadata":{"annotations":{"skyhook.test/boot-id":"another"}}}`)
		if _, err := c.Client.CoreV1().Nodes().Patch(ctx, n.Name, types.MergePatchType, patch, metav1.PatchOptions{}); err != nil {
			t.Fatal(err)
		}
		if err := c.WaitBoot(ctx, n.Name, n.Status.NodeInfo.BootID); err != nil {
			t.Error(err)
		}
	})
}

func initContainers(t *testing.T, c *Cluster) {
	ctx := context.Background()
	containers := []corev1.Container{{Name: "one", Image: "x"}, {Name: "two", Image: "x"}, {Name: "three", Image: "x"}}
	watcher, err := c.Client.CoreV1().Pods("default").Watch(ctx, metav1.ListOptions{FieldSelector: "metadata.name=ordered"})
	if err != nil {
		t.Fatal(err)
	}
	defer watcher.Stop()
	c.testPod(t, "ordered", SimulatedName(1), "x", func(p *corev1.Pod) { p.Spec.InitContainers = containers })
	var seen []string
	for event := range watcher.ResultChan() {
		pod, is := event.Object.(*corev1.Pod)
		if !is {
			t.Fatalf("watching the pod ended with %v", event)
		}
		if state := describePod(pod); len(pod.Status.InitContainerStatuses) > 0 && !slices.Contains(seen, state) {
			seen = append(seen, state)
		}
		if pod.Status.Phase == corev1.PodRunning {
			break
		}
	}
	want := []string{"Pending: running waiting waiting", "Pending: done running waiting", "Pending: done done running", "Running: done done done"}
	if !slices.Equal(seen, want) {
		t.Errorf("the pod went through %q, want %q", seen, want)
	}
}

func describePod(pod *corev1.Pod) string {
	var states []string
	for _, s := range pod.Status.InitContainerStatuses {
		switch {
		case s.State.Running != nil:
			states = append(states, "running")
		case s.State.Terminated != nil && s.State.Terminated.ExitCode == 0:
			states = append(states, "done")
		default:
			states = append(states, "waiting")
		}
	}
	return fmt.Sprintf("%s: %s", pod.Status.Phase, strings.Join(states, " "))
}

func job(t *testing.T, c *Cluster) {
	ctx := context.Background()
	_, err := c.Client.BatchV1().Jobs("default").Create(ctx, &batchv1.Job{
		ObjectMeta: metav1.ObjectMeta{Name: "job"},
		Spec: batchv1.JobSpec{Template: corev1.PodTemplateSpec{Spec: corev1.PodSpec{
			RestartPolicy: corev1.RestartPolicyNever, Containers: []corev1.Container{{Name: "main", Image: "x"}},
			Tolerations: []corev1.Toleration{{Key: simulatedTaint, Operator: corev1.TolerationOpExists}},
		}}},
	}, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	err = pollUntil(ctx, "the job is complete", stepTimeout, func(ctx context.Context) (bool, string) {
		j, err := c.Client.BatchV1().Jobs("default").Get(ctx, "job", metav1.GetOptions{})
		return err == nil && j.Status.Succeeded == 1, fmt.Sprint(err)
	})
	if err != nil {
		t.Error(err)
	}
}
