// SPDX-FileCopyrightText: The Skyhook authors
// SPDX-License-Identifier: Apache-2.0

package smoke_test

import (
	"context"
	"fmt"
	"os"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/watch"
)

// Two nodes are there, and each is a systemd host of its own.
func TestNodes(t *testing.T) {
	list, err := cluster.Client.CoreV1().Nodes().List(context.Background(), metav1.ListOptions{})
	if err != nil {
		t.Fatal(err)
	}
	boots := map[string]string{}
	for _, n := range list.Items {
		if other, same := boots[n.Status.NodeInfo.BootID]; same {
			t.Errorf("nodes %s and %s have the same boot id", n.Name, other)
		}
		boots[n.Status.NodeInfo.BootID] = n.Name
	}
	if len(workers(t)) < 2 && cluster.Ours() {
		t.Errorf("ready are %v, want two nodes", workers(t))
	}
}

// A pod runs the image that was pushed, on every node.
func TestPod(t *testing.T) {
	for _, node := range workers(t) {
		printed, id := finish(t, start(t, node, "cat /host/etc/hostname"))
		if cluster.Ours() && printed != node {
			t.Errorf("a pod on node %s sees the host %s", node, printed)
		}
		if cluster.Ours() && !strings.HasSuffix(id, "@"+digest) {
			t.Errorf("the pod ran %s, pushed was %s", id, digest)
		}
	}
}

// A privileged pod restarts a service of its host: the service has another process afterwards.
func TestServiceRestart(t *testing.T) {
	node := workers(t)[0]
	unit := "cron.service"
	if !cluster.Ours() {
		if printed, _ := finish(t, start(t, node, "chroot /host systemctl is-active "+unit+" || true")); printed != "active" {
			t.Skipf("node %s has no %s to restart", node, unit)
		}
	}
	const show = "chroot /host systemctl show --property MainPID --value "
	printed, _ := finish(t, start(t, node, fmt.Sprintf("%[1]s%[2]s; chroot /host systemctl restart %[2]s; %[1]s%[2]s", show, unit)))
	pids := strings.Fields(printed)
	if len(pids) != 2 || pids[0] == pids[1] || pids[0] == "0" || pids[1] == "0" {
		t.Errorf("the process of %s before and after its restart: %v", unit, pids)
	}
}

// A pod reboots its host: the node comes back with another boot id, which a pod then sees too.
func TestReboot(t *testing.T) {
	node := os.Getenv("SKYHOOK_TEST_REBOOT")
	if node == "" {
		if !cluster.Ours() {
			t.Skip("reboots a node of somebody else's cluster only if SKYHOOK_TEST_REBOOT names it")
		}
		node = workers(t)[0]
	}
	ctx := context.Background()
	before, err := cluster.Boot(ctx, node)
	if err != nil {
		t.Fatal(err)
	}
	began := time.Now()
	start(t, node, "chroot /host systemctl --no-block reboot; sleep 60")
	if err := cluster.WaitBoot(ctx, node, before); err != nil {
		t.Fatal(err)
	}
	t.Logf("ready with a new boot id after %.1f s", time.Since(began).Seconds())
	after, err := cluster.Boot(ctx, node)
	if err != nil {
		t.Fatal(err)
	}
	if seen, _ := finish(t, start(t, node, "cat /host/proc/sys/kernel/random/boot_id")); seen != after {
		t.Errorf("after the reboot the API server knows the boot id %s, a pod sees %s", after, seen)
	}
}

// A power cut is seen within 15 seconds, and the node comes back by itself when it has power again. The time is a promise
// of this cluster: tests of failures rest on it.
func TestPowerCut(t *testing.T) {
	if !cluster.Ours() {
		t.Skip("cuts the power of no node of somebody else's cluster")
	}
	ctx := context.Background()
	nodes := workers(t)
	node := nodes[len(nodes)-1]
	before, err := cluster.Boot(ctx, node)
	if err != nil {
		t.Fatal(err)
	}
	watcher, err := cluster.Client.CoreV1().Nodes().Watch(ctx, metav1.ListOptions{FieldSelector: "metadata.name=" + node})
	if err != nil {
		t.Fatal(err)
	}
	defer watcher.Stop()
	cut := time.Now()
	if err := cluster.Crash(ctx, node); err != nil {
		t.Fatal(err)
	}
	seen := waitUnknown(t, watcher)
	t.Logf("seen after %.1f s", seen.Sub(cut).Seconds())
	if seen.Sub(cut) > 15*time.Second {
		t.Errorf("the power cut was seen after %s", seen.Sub(cut))
	}
	if err := cluster.Start(ctx, node); err != nil {
		t.Fatal(err)
	}
	if err := cluster.WaitBoot(ctx, node, before); err != nil {
		t.Error(err)
	}
}

// waitUnknown waits until nothing is known of the node any more, and returns when that was.
func waitUnknown(t *testing.T, watcher watch.Interface) time.Time {
	t.Helper()
	late := time.After(2 * time.Minute)
	for {
		select {
		case event := <-watcher.ResultChan():
			n, is := event.Object.(*corev1.Node)
			if !is {
				t.Fatalf("watching the node ended with %v", event)
			}
			for _, c := range n.Status.Conditions {
				if c.Type == corev1.NodeReady && c.Status == corev1.ConditionUnknown {
					return time.Now()
				}
			}
		case <-late:
			t.Fatal("the power cut was not seen within two minutes")
		}
	}
}
