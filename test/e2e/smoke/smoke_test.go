// SPDX-FileCopyrightText: The Skyhook authors
// SPDX-License-Identifier: Apache-2.0

// Package smoke checks what all other end-to-end tests rely on: real nodes, images from a registry, services that restart,
// reboots that are detected.
package smoke_test

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/watch"

	"github.com/skyhook-k8s/skyhook/test/e2e/suite"
)

var cluster *suite.Cluster

func TestMain(m *testing.M) { suite.Main(m, &cluster, suite.AnyOperator) }

// runPod runs a script in a privileged pod with the root of its host at /host, and returns what it printed and the id of its
// image.
func runPod(t *testing.T, node, script string) (printed, imageID string) {
	t.Helper()
	name := startPod(t, node, script)
	cluster.EventuallyPrints(t, "pod "+name+" has succeeded", func(phase string) bool {
		if phase == string(corev1.PodFailed) {
			t.Fatalf("pod %s failed: %s", name, cluster.Kubectl(t, "logs", name))
		}
		return phase == string(corev1.PodSucceeded)
	}, "get", "pod", name, "-o", "jsonpath={.status.phase}")
	return cluster.Kubectl(t, "logs", name), cluster.Kubectl(t, "get", "pod", name, "-o", "jsonpath={.status.containerStatuses[0].imageID}")
}

func startPod(t *testing.T, node, script string) (name string) {
	t.Helper()
	name = fmt.Sprintf("smoke-%d", time.Now().UnixNano())
	cluster.ApplyUntilCleanup(t, fmt.Sprintf(`
apiVersion: v1
kind: Pod
metadata: {name: %s}
spec:
  nodeName: %s
  hostPID: true
  restartPolicy: Never
  terminationGracePeriodSeconds: 0
  containers:
  - name: main
    image: %s
    command: [/bin/sh, -ec, %q]
    securityContext: {privileged: true}
    volumeMounts: [{name: host, mountPath: /host, mountPropagation: HostToContainer}]
  volumes: [{name: host, hostPath: {path: /, type: Directory}}]
`, name, node, suite.ToolsImage, script))
	return name
}

// TestNodes checks that each node is a host of its own.
func TestNodes(t *testing.T) {
	boots := map[string]string{}
	for _, node := range cluster.Nodes(t, 2) {
		id := cluster.BootID(t, node)
		if other, same := boots[id]; same {
			t.Errorf("nodes %s and %s have the same boot id", node, other)
		}
		boots[id] = node
	}
}

// TestPod runs the image that was pushed on several nodes.
func TestPod(t *testing.T) {
	for _, node := range cluster.Nodes(t, 2) {
		printed, id := runPod(t, node, "cat /host/etc/hostname")
		if cluster.IsOurs() && printed != node { // hosts of others may have other names
			t.Errorf("a pod on node %s sees the host %s", node, printed)
		}
		if digest := cluster.ImageDigest(suite.ToolsImage); !strings.HasSuffix(id, "@"+digest) {
			t.Errorf("the pod ran %s, pushed was %s", id, digest)
		}
	}
}

// TestServiceRestart restarts a service of the host from a privileged pod.
func TestServiceRestart(t *testing.T) {
	node := cluster.InterruptibleNodes(t, 1)[0]
	cluster.RequireService(t, node, "cron")
	const show = "chroot /host systemctl show --property MainPID --value cron; "
	printed, _ := runPod(t, node, show+"chroot /host systemctl restart cron; "+show)
	pids := strings.Fields(printed)
	if len(pids) != 2 || pids[0] == pids[1] || pids[0] == "0" || pids[1] == "0" {
		t.Errorf("the process of cron before and after its restart: %v", pids)
	}
}

// TestReboot reboots a host from a privileged pod: the node returns with another boot id, which pods see as well.
func TestReboot(t *testing.T) {
	node := cluster.InterruptibleNodes(t, 1)[0]
	before := cluster.BootID(t, node)
	start := time.Now()
	startPod(t, node, "chroot /host systemctl --no-block reboot; sleep 60")
	cluster.WaitBoot(t, node, before)
	t.Logf("ready with a new boot id after %.1f s", time.Since(start).Seconds())
	after := cluster.BootID(t, node)
	if seen, _ := runPod(t, node, "cat /host/proc/sys/kernel/random/boot_id"); seen != after {
		t.Errorf("after the reboot the API server knows the boot id %s, a pod sees %s", after, seen)
	}
}

// TestPowerCut checks that the API server notices a power cut within 15 seconds, which tests of failures rely on, and that the
// node returns when it is switched on.
func TestPowerCut(t *testing.T) {
	machines, node := cluster.LocalCluster(t, "cutting the power"), cluster.InterruptibleNodes(t, 2)[1]
	ctx := context.Background()
	before := cluster.BootID(t, node)
	watcher, err := machines.Client.CoreV1().Nodes().Watch(ctx, metav1.ListOptions{FieldSelector: "metadata.name=" + node})
	if err != nil {
		t.Fatal(err)
	}
	defer watcher.Stop()
	cut := time.Now()
	if err := machines.Crash(ctx, node); err != nil {
		t.Fatal(err)
	}
	seen := waitUnknown(t, watcher)
	t.Logf("seen after %.1f s", seen.Sub(cut).Seconds())
	if seen.Sub(cut) > 15*time.Second {
		t.Errorf("the power cut was seen after %s", seen.Sub(cut))
	}
	if err := machines.Start(ctx, node); err != nil {
		t.Fatal(err)
	}
	cluster.WaitBoot(t, node, before)
}

// waitUnknown waits until the readiness of the node is unknown, and returns the time of that event.
func waitUnknown(t *testing.T, watcher watch.Interface) time.Time {
	t.Helper()
	timeout := time.After(2 * time.Minute)
	for {
		select {
		case event := <-watcher.ResultChan():
			n, isNode := event.Object.(*corev1.Node)
			if !isNode {
				t.Fatalf("watching the node ended with %v", event)
			}
			for _, c := range n.Status.Conditions {
				if c.Type == corev1.NodeReady && c.Status == corev1.ConditionUnknown {
					return time.Now()
				}
			}
		case <-timeout:
			t.Fatal("the power cut was not seen within two minutes")
		}
	}
}
