// SPDX-FileCopyrightText: The Skyhook authors
// SPDX-License-Identifier: Apache-2.0

// Package smoke proves that the ground of all other stories carries: real nodes, images from a registry, services that
// restart, reboots that are seen. It brings up two nodes of its own, or uses the cluster that SKYHOOK_E2E_CLUSTER names, or
// the one of somebody else whose kubeconfig is SKYHOOK_TEST_KUBECONFIG; there it reboots a node only if
// SKYHOOK_TEST_REBOOT names it, cuts no power, and runs the image SKYHOOK_TEST_IMAGE, which must have a shell.
package smoke_test

import (
	"context"
	"fmt"
	"io"
	"os"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/skyhook-k8s/skyhook/test/cluster/lab"
	"github.com/skyhook-k8s/skyhook/test/cluster/registry"
)

var (
	cluster *lab.Cluster
	image   = "ghcr.io/skyhook-k8s/smoke-tools:1.0.0"
	digest  string // of the image, where we pushed it
)

func TestMain(m *testing.M) {
	lab.Init()
	os.Exit(run(m))
}

func run(m *testing.M) int {
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Minute)
	defer cancel()
	down, err := up(ctx)
	defer down()
	if err != nil {
		fmt.Fprintf(os.Stderr, "getting a cluster: %v\n", err)
		return 1
	}
	code := m.Run()
	if code != 0 {
		tell(context.Background(), os.Stderr)
	}
	return code
}

func up(ctx context.Context) (down func(), err error) {
	down = func() {}
	if kubeconfig := os.Getenv("SKYHOOK_TEST_KUBECONFIG"); kubeconfig != "" {
		if image = os.Getenv("SKYHOOK_TEST_IMAGE"); image == "" {
			image = "busybox:stable"
		}
		cluster, err = lab.Existing(kubeconfig)
		return down, err
	}
	if name := os.Getenv("SKYHOOK_E2E_CLUSTER"); name != "" {
		cluster, err = lab.Open(name)
	} else {
		cluster, err = lab.Up(ctx, lab.Spec{Name: fmt.Sprintf("smoke-%d", os.Getpid()), Nodes: []string{"node1", "node2"}, Tied: true}, os.Stderr)
		if err == nil {
			down = func() {
				if err := cluster.Down(context.Background()); err != nil {
					fmt.Fprintf(os.Stderr, "taking the cluster down: %v\n", err)
				}
			}
		}
	}
	if err != nil {
		return down, err
	}
	tools, err := registry.Tools()
	if err != nil {
		return down, err
	}
	pushed, err := cluster.Push(ctx, image, tools)
	digest = pushed.String()
	return down, err
}

// tell prints what helps to understand a failure.
func tell(ctx context.Context, to io.Writer) {
	events, err := cluster.Client.CoreV1().Events("").List(ctx, metav1.ListOptions{})
	if err == nil {
		for _, e := range events.Items {
			_, _ = fmt.Fprintf(to, "%s  %s/%s  %s: %s\n", e.LastTimestamp.Format(time.TimeOnly), strings.ToLower(e.InvolvedObject.Kind), e.InvolvedObject.Name, e.Reason, e.Message)
		}
	}
	if cluster.Ours() {
		err = cluster.Logs(ctx, to, 60)
	}
	if err != nil {
		_, _ = fmt.Fprintln(to, err)
	}
}

// workers are the nodes that any pod may run on.
func workers(t *testing.T) []string {
	t.Helper()
	list, err := cluster.Client.CoreV1().Nodes().List(context.Background(), metav1.ListOptions{})
	if err != nil {
		t.Fatal(err)
	}
	var names []string
	for _, n := range list.Items {
		if lab.Ready(&n) && !n.Spec.Unschedulable && len(n.Spec.Taints) == 0 {
			names = append(names, n.Name)
		}
	}
	if len(names) == 0 {
		t.Fatal("no node is ready and without taints")
	}
	return names
}

// start starts a pod that may do everything on its host, whose root is at /host, and runs the script.
func start(t *testing.T, node, script string) string {
	t.Helper()
	privileged, directory, propagation := true, corev1.HostPathDirectory, corev1.MountPropagationHostToContainer
	pod, err := cluster.Client.CoreV1().Pods("default").Create(context.Background(), &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{GenerateName: "smoke-"},
		Spec: corev1.PodSpec{
			NodeName: node, HostPID: true, RestartPolicy: corev1.RestartPolicyNever, TerminationGracePeriodSeconds: new(int64),
			Containers: []corev1.Container{{
				Name: "main", Image: image, Command: []string{"/bin/sh", "-ec", script},
				SecurityContext: &corev1.SecurityContext{Privileged: &privileged},
				VolumeMounts:    []corev1.VolumeMount{{Name: "host", MountPath: "/host", MountPropagation: &propagation}},
			}},
			Volumes: []corev1.Volume{{Name: "host", VolumeSource: corev1.VolumeSource{HostPath: &corev1.HostPathVolumeSource{Path: "/", Type: &directory}}}},
		},
	}, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		err := cluster.Client.CoreV1().Pods("default").Delete(context.Background(), pod.Name, metav1.DeleteOptions{GracePeriodSeconds: new(int64)})
		if err != nil {
			t.Errorf("deleting pod %s: %v", pod.Name, err)
		}
	})
	return pod.Name
}

// finish waits until the pod has run, and returns what it printed and the digest of its image.
func finish(t *testing.T, name string) (printed, imageID string) {
	t.Helper()
	ctx := context.Background()
	for deadline := time.Now().Add(3 * time.Minute); ; time.Sleep(100 * time.Millisecond) {
		pod, err := cluster.Client.CoreV1().Pods("default").Get(ctx, name, metav1.GetOptions{})
		if err != nil {
			t.Fatal(err)
		}
		if pod.Status.Phase == corev1.PodSucceeded || pod.Status.Phase == corev1.PodFailed {
			log, err := cluster.Client.CoreV1().Pods("default").GetLogs(name, &corev1.PodLogOptions{}).DoRaw(ctx)
			if err != nil {
				t.Fatal(err)
			}
			if pod.Status.Phase == corev1.PodFailed {
				t.Fatalf("pod %s failed: %s", name, log)
			}
			return strings.TrimSpace(string(log)), pod.Status.ContainerStatuses[0].ImageID
		}
		if time.Now().After(deadline) {
			t.Fatalf("pod %s has not run after three minutes: %v", name, pod.Status.ContainerStatuses)
		}
	}
}
