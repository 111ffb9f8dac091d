// SPDX-FileCopyrightText: The Skyhook authors
// SPDX-License-Identifier: Apache-2.0

package testcluster

import (
	"bytes"
	"context"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/tools/remotecommand"
)

// place puts a pod with one container on a node.
func (c *Cluster) testPod(t *testing.T, name, node, image string, change ...func(*corev1.Pod)) {
	t.Helper()
	pod := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Name: name, Labels: map[string]string{"pod": name}},
		Spec: corev1.PodSpec{
			NodeName:                      node,
			TerminationGracePeriodSeconds: new(int64),
			Containers: []corev1.Container{{
				Name: "main", Image: image,
				Command: []string{"/bin/sh", "-c", "mkdir -p /www; echo from-" + name + " >/www/index.html; httpd -f -h /www"},
			}},
		},
	}
	for _, f := range change {
		f(pod)
	}
	if _, err := c.Client.CoreV1().Pods("default").Create(context.Background(), pod, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = c.Client.CoreV1().Pods("default").Delete(context.Background(), name, metav1.DeleteOptions{}) // the cluster may be down
	})
}

// waitPod waits until the first container's state satisfies the wish, and returns it.
func (c *Cluster) waitPod(t *testing.T, name, what string, wish func(corev1.ContainerStatus) bool) corev1.ContainerStatus {
	t.Helper()
	var last corev1.ContainerStatus
	err := pollUntil(context.Background(), "pod "+name+" "+what, stepTimeout, func(ctx context.Context) (bool, string) {
		pod, err := c.Client.CoreV1().Pods("default").Get(ctx, name, metav1.GetOptions{})
		if err != nil || len(pod.Status.ContainerStatuses) == 0 {
			return false, "no status yet"
		}
		last = pod.Status.ContainerStatuses[0]
		return wish(last), last.State.String()
	})
	if err != nil {
		t.Fatal(err)
	}
	return last
}

func running(s corev1.ContainerStatus) bool { return s.State.Running != nil && s.Ready }

// refused tells of a container whose image cannot be had.
func refused(s corev1.ContainerStatus) bool {
	return s.State.Waiting != nil && (s.State.Waiting.Reason == "ErrImagePull" || s.State.Waiting.Reason == "ImagePullBackOff")
}

// inPod runs a shell command in a pod.
func (c *Cluster) inPod(t *testing.T, name, command string) string {
	t.Helper()
	request := c.Client.CoreV1().RESTClient().Post().Resource("pods").Namespace("default").Name(name).SubResource("exec").
		VersionedParams(&corev1.PodExecOptions{Command: []string{"/bin/sh", "-c", command}, Stdout: true, Stderr: true}, scheme.ParameterCodec)
	executor, err := remotecommand.NewSPDYExecutor(c.Config, "POST", request.URL())
	if err != nil {
		t.Fatal(err)
	}
	var out bytes.Buffer
	if err := executor.StreamWithContext(context.Background(), remotecommand.StreamOptions{Stdout: &out, Stderr: &out}); err != nil {
		t.Fatalf("running %s in pod %s: %v: %s", command, name, err, out.String())
	}
	return strings.TrimSpace(out.String())
}
