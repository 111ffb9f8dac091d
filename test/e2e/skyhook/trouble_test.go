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
)

// TestPowerCut pulls the plug in the middle of each stage. The package ends well all the same.
func TestPowerCut(t *testing.T) {
	const name, n = "power", "n3"
	for _, stage := range []string{"apply", "config", "interrupt", "post_interrupt"} {
		t.Run(stage, func(t *testing.T) {
			label(t, name, n)
			on(t, n, "rm -f /var/log/power; sync")
			slow := func(s string) string {
				if s != stage {
					return "echo " + s + " >> /var/log/power"
				}
				return "sleep 8; echo " + s + " >> /var/log/power"
			}
			seen := podsSeen(t)
			apply(t, story(name, "", fmt.Sprintf(`
    driver:
      version: 1.0.0
      image: %s
      interrupt: {type: service, services: [cron]}
      configMap: {apply.sh: %q, config.sh: %q, post_interrupt.sh: %q}`, shellscript, slow("apply"), slow("config"), slow("post_interrupt"))))
			word := "-" + strings.ReplaceAll(stage, "_", "-") + "-"
			if stage == "interrupt" {
				word = "-interrupt-service-"
			}
			eventually(t, "the pod of the stage exists", func() error {
				pods := seen.list()
				if !slices.ContainsFunc(pods, func(p string) bool { return strings.HasPrefix(p, name+"-") && strings.Contains(p, word) }) {
					return fmt.Errorf("pods: %v", pods)
				}
				return nil
			})
			if stage != "interrupt" {
				time.Sleep(3 * time.Second)
			}
			ctx, cancel := context.WithTimeout(t.Context(), 2*patience)
			defer cancel()
			if err := cluster.Crash(ctx, n); err != nil {
				t.Fatal(err)
			}
			if err := cluster.WaitReady(ctx, n, false); err != nil {
				t.Fatal(err)
			}
			if err := cluster.Start(ctx, n); err != nil {
				t.Fatal(err)
			}
			if err := cluster.WaitReady(ctx, n, true); err != nil {
				t.Fatal(err)
			}
			complete(t, name)
			if got := on(t, n, "tail -1 /var/log/power"); got != "post_interrupt" {
				t.Errorf("the last stage was %q", got)
			}
			remove(t, name)
		})
	}
}

// TestOperatorKilled kills the operator twenty times while it takes two packages to three nodes, one at a time. Each
// stage runs once on each node all the same, and the budget holds.
func TestOperatorKilled(t *testing.T) {
	const name = "killed"
	label(t, name, nodes...)
	for _, n := range nodes {
		on(t, n, "rm -f /var/log/killed")
	}
	pkg := func(p, more string) string {
		return fmt.Sprintf("\n    %s: {version: 1.0.0, image: %s%s, configMap: {apply.sh: %q, config.sh: %q}}", p, shellscript, more,
			"sleep 1; echo "+p+" apply >> /var/log/killed", "echo "+p+" config >> /var/log/killed")
	}
	at, most := map[string]string{}, 0 // node of each pod that was not told to go
	stop := follow(t, func(o thing, gone bool) {
		if !strings.HasPrefix(o.Metadata.Name, name+"-") {
			return
		}
		if delete(at, o.Metadata.Name); !gone && o.Metadata.DeletionTimestamp == "" {
			at[o.Metadata.Name] = o.Spec.NodeName
		}
		different := map[string]bool{}
		for _, n := range at {
			different[n] = true
		}
		most = max(most, len(different))
	}, "pods", "-n", "skyhook")
	seed := uint64(time.Now().UnixNano())
	t.Logf("seed %d", seed)
	luck := rand.New(rand.NewPCG(seed, 0))
	apply(t, story(name, "\n  interruptionBudget: {count: 1}", pkg("one", "")+pkg("two", ", dependsOn: {one: 1.0.0}")))
	for range 20 {
		time.Sleep(time.Duration(200+luck.IntN(2500)) * time.Millisecond)
		must(t, "-n", "skyhook", "delete", "pod", "-l", "app=skyhook-operator", "--force", "--grace-period=0", "--wait=false")
	}
	complete(t, name)
	for _, n := range nodes {
		if got, want := on(t, n, "cat /var/log/killed | tr '\\n' ','"), "one apply,one config,two apply,two config,"; got != want {
			t.Errorf("%s was taken through %q, want %q", n, got, want)
		}
	}
	if stop(); most != 1 {
		t.Errorf("with a budget of one node, pods were on %d nodes at the same time", most)
	}
	remove(t, name)
}

// TestRuntimeRequired: a node that joins with the taint runs nothing else until the Skyhook is complete there.
func TestRuntimeRequired(t *testing.T) {
	const name, n = "runtime", "n3"
	label(t, name, "n2")
	on(t, "n2", "touch /root/gate")
	on(t, n, "rm -f /root/gate")
	t.Cleanup(func() { on(t, n, "rm -f /root/gate"); on(t, "n2", "rm -f /root/gate") })
	apply(t, story(name, "\n  runtimeRequired: true", fmt.Sprintf(`
    base: {version: 1.0.0, image: %s, configMap: {apply.sh: "until test -e /root/gate; do sleep 1; done; touch /var/log/base"}}`, shellscript)))
	complete(t, name)

	on(t, n, `rm -f /var/log/base; cp /etc/kubernetes/kubelet.yaml /root/kubelet.yaml
		printf 'registerWithTaints: [{key: skyhook.nvidia.com, value: runtime-required, effect: NoSchedule}]\n' >> /etc/kubernetes/kubelet.yaml`)
	t.Cleanup(func() { on(t, n, "mv /root/kubelet.yaml /etc/kubernetes/kubelet.yaml; systemctl restart kubelet") })
	must(t, "delete", "node", n)
	on(t, n, "systemctl restart kubelet")
	eventually(t, "the node is back", func() error {
		_, err := kube("", "get", "node", n)
		return err
	})
	label(t, name, n)
	apply(t, `
apiVersion: v1
kind: Pod
metadata: {name: patient, namespace: default}
spec:
  nodeSelector: {kubernetes.io/hostname: n3}
  terminationGracePeriodSeconds: 1
  containers: [{name: patient, image: "registry.k8s.io/pause:3.10"}]
`)
	t.Cleanup(func() { _, _ = kube("", "delete", "pod", "patient", "--wait=false") })
	eventually(t, "the pod waits because of the taint", func() error {
		why, err := kube("", "get", "pod", "patient", "-o", `jsonpath={.status.conditions[?(@.type=="PodScheduled")].message}`)
		if err == nil && !strings.Contains(why, "untolerated taint") {
			err = fmt.Errorf("message: %q", why)
		}
		return err
	})
	on(t, n, "touch /root/gate")
	must(t, "wait", "--for=condition=Ready", "pod/patient", "--timeout="+patience.String())
	on(t, n, "test -e /var/log/base")
	complete(t, name)
	remove(t, name)
}
