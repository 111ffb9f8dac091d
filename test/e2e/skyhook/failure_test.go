// SPDX-FileCopyrightText: The Skyhook authors
// SPDX-License-Identifier: Apache-2.0

package skyhook_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/skyhook-k8s/skyhook/test/e2e/suite"
)

// TestPowerCut cuts the power in the middle of each stage. The package completes all the same.
func TestPowerCut(t *testing.T) {
	const name = "power"
	machines, n := cluster.LocalCluster(t, "cutting the power"), cluster.ShareInterruptibleNodes(t, 1)[0]
	for _, stage := range []string{"apply", "config", "interrupt", "post_interrupt"} {
		t.Run(stage, func(t *testing.T) {
			selectNodes(t, name, n)
			script := func(s string) string {
				if s != stage {
					return "echo " + s + " >> /var/log/stages"
				}
				return "sleep 8; echo " + s + " >> /var/log/stages"
			}
			pods := collectPodNames(t)
			cluster.Apply(t, suite.Manifest(name, "", fmt.Sprintf(`
    driver:
      version: 1.0.0
      image: %s
      interrupt: {type: service, services: [cron]}
      configMap: {apply.sh: %q, config.sh: %q, post_interrupt.sh: %q}`, shellscript, script("apply"), script("config"), script("post_interrupt"))))
			infix := "-" + strings.ReplaceAll(stage, "_", "-") + "-"
			if stage == "interrupt" {
				infix = "-interrupt-service-"
			}
			suite.Eventually(t, "the pod of the stage exists", func() error {
				if !slices.ContainsFunc(pods.list(), func(p string) bool { return strings.HasPrefix(p, name+"-") && strings.Contains(p, infix) }) {
					return fmt.Errorf("pods: %v", pods.list())
				}
				return nil
			})
			if stage != "interrupt" {
				time.Sleep(3 * time.Second)
			}
			ctx, cancel := context.WithTimeout(t.Context(), 2*suite.Timeout)
			defer cancel()
			for _, step := range []func() error{
				func() error { return machines.Crash(ctx, n) },
				func() error { return machines.WaitReady(ctx, n, false) },
				func() error { return machines.Start(ctx, n) },
				func() error { return machines.WaitReady(ctx, n, true) },
			} {
				if err := step(); err != nil {
					t.Fatal(err)
				}
			}
			cluster.WaitComplete(t, name)
			if got := cluster.Exec(t, n, "tail -1 /var/log/stages"); got != "post_interrupt" {
				t.Errorf("the last stage was %q", got)
			}
			cluster.RemoveSkyhook(t, name)
		})
	}
}

// TestOperatorKilled kills the operator twenty times while two packages roll out to three nodes, one at a time. Each stage runs
// once on each node all the same, and the budget holds.
func TestOperatorKilled(t *testing.T) {
	const name = "killed"
	nodes := cluster.Nodes(t, 3)
	selectNodes(t, name, nodes...)
	pkg := func(p, more string) string {
		return fmt.Sprintf("\n    %s: {version: 1.0.0, image: %s%s, configMap: {apply.sh: %q, config.sh: %q}}", p, shellscript, more,
			"sleep 1; echo "+p+" apply >> /var/log/stages", "echo "+p+" config >> /var/log/stages")
	}
	nodeOf, most := map[string]string{}, 0 // of each pod that is not terminating
	stop := watchObjects(t, func(o object, deleted bool) {
		if !strings.HasPrefix(o.Metadata.Name, name+"-") {
			return
		}
		if delete(nodeOf, o.Metadata.Name); !deleted && o.Metadata.DeletionTimestamp == "" {
			nodeOf[o.Metadata.Name] = o.Spec.NodeName
		}
		different := map[string]bool{}
		for _, n := range nodeOf {
			different[n] = true
		}
		most = max(most, len(different))
	}, "pods", "-n", suite.OperatorNamespace)
	seed := uint64(time.Now().UnixNano())
	t.Logf("seed %d", seed)
	random := rand.New(rand.NewPCG(seed, 0))
	cluster.Apply(t, suite.Manifest(name, "\n  interruptionBudget: {count: 1}", pkg("one", "")+pkg("two", ", dependsOn: {one: 1.0.0}")))
	for range 20 {
		time.Sleep(time.Duration(200+random.IntN(2500)) * time.Millisecond)
		cluster.KillOperators(t)
	}
	cluster.WaitComplete(t, name)
	for _, n := range nodes {
		if got, want := cluster.Exec(t, n, "cat /var/log/stages"), "one apply\none config\ntwo apply\ntwo config"; got != want {
			t.Errorf("%s ran the stages %q, want %q", n, got, want)
		}
	}
	if stop(); most != 1 {
		t.Errorf("with a budget of one node, pods were on %d nodes at the same time", most)
	}
	cluster.RemoveSkyhook(t, name)
}

// TestRuntimeRequired: a node that joins with the taint runs nothing else until the Skyhook is complete there.
func TestRuntimeRequired(t *testing.T) {
	const name = "runtime"
	cluster.LocalCluster(t, "joining again with another configuration of the kubelet")
	nodes := cluster.InterruptibleNodes(t, 3)
	n, other := nodes[2], nodes[1]
	cluster.Label(t, "e2e="+name, other)
	cluster.Exec(t, other, "touch /root/gate")
	cluster.Exec(t, n, "rm -f /root/gate")
	t.Cleanup(func() { cluster.Exec(t, n, "rm -f /root/gate"); cluster.Exec(t, other, "rm -f /root/gate") })
	cluster.Apply(t, suite.Manifest(name, "\n  runtimeRequired: true", fmt.Sprintf(`
    base: {version: 1.0.0, image: %s, configMap: {apply.sh: "until test -e /root/gate; do sleep 1; done; touch /var/log/base"}}`, shellscript)))
	cluster.WaitComplete(t, name)

	cluster.Exec(t, n, `rm -f /var/log/base; cp /etc/kubernetes/kubelet.yaml /root/kubelet.yaml
		printf 'registerWithTaints: [{key: skyhook.nvidia.com, value: runtime-required, effect: NoSchedule}]\n' >> /etc/kubernetes/kubelet.yaml`)
	t.Cleanup(func() {
		cluster.Exec(t, n, "mv /root/kubelet.yaml /etc/kubernetes/kubelet.yaml; systemctl restart kubelet")
	})
	cluster.Kubectl(t, "delete", "node", n)
	cluster.Exec(t, n, "systemctl restart kubelet")
	cluster.EventuallyPrints(t, "the node has joined again", func(node string) bool { return node != "" }, "get", "node", n, "--ignore-not-found", "-o", "name")
	cluster.Label(t, "e2e="+name, n)
	cluster.ApplyUntilCleanup(t, suite.OnNodes(`
apiVersion: v1
kind: Pod
metadata: {name: patient}
spec:
  nodeSelector: {kubernetes.io/hostname: NODE3}
  terminationGracePeriodSeconds: 1
  containers: [{name: patient, image: "registry.k8s.io/pause:3.10"}]
`, nodes...))
	cluster.EventuallyPrints(t, "the pod is pending because of the taint", func(why string) bool { return strings.Contains(why, "untolerated taint") },
		"get", "pod", "patient", "-o", `jsonpath={.status.conditions[?(@.type=="PodScheduled")].message}`)
	cluster.Exec(t, n, "touch /root/gate")
	cluster.Kubectl(t, "wait", "--for=condition=Ready", "pod/patient", "--timeout="+suite.Timeout.String())
	cluster.Exec(t, n, "test -e /var/log/base")
	cluster.WaitComplete(t, name)
	cluster.RemoveSkyhook(t, name)
}
