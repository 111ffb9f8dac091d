// SPDX-FileCopyrightText: The Skyhook authors
// SPDX-License-Identifier: Apache-2.0

package skyhook

import (
	"fmt"
	"testing"

	"github.com/skyhook-k8s/skyhook/api/skyhook/v1alpha1"
	"github.com/skyhook-k8s/skyhook/internal/rollout"
	"github.com/skyhook-k8s/skyhook/internal/skyhook/plan"
)

const threePackages = `{metadata: {name: demo}, spec: {nodeSelectors: {matchLabels: {pool: gpu}}, packages: {
	kernel: {version: 1.4.0, image: example.org/p, interrupt: {type: reboot}, configMap: {a: "1"}},
	agentd: {version: 0.9.1, image: example.org/p, dependsOn: {kernel: 1.4.0}, configMap: {a: "%s"}},
	tuning: {version: 2.0.0, image: example.org/p, interrupt: {type: service, services: [cron]}}}}}`

// finishedNodes returns many nodes on which every package is finished.
func finishedNodes(b *testing.B, n int) *plan.Input {
	w := newTestCluster(b)
	s := w.apply(fmt.Sprintf(threePackages, "1"))
	first := w.addNode("first")
	first.Labels["pool"] = "gpu"
	w.drive(s)
	c := w.compile(s)
	w.write("first", c.Words(c.clusterNodes[0], rollout.Verdict{Node: "first", Phase: rollout.PhaseFinished}))
	for i := range n - 1 {
		node := w.addNode(fmt.Sprintf("node-%05d", i))
		node.Labels["pool"] = "gpu"
		for key, value := range first.Annotations {
			node.Annotations[key] = value
		}
		node.UID, node.Status, node.Labels[v1alpha1.PrefixStatus+"demo"] = first.UID, first.Status, "complete" // the record is the same
	}
	return w.input(s)
}

// BenchmarkCompile compiles many finished nodes, and many nodes on which nothing is installed.
func BenchmarkCompile(b *testing.B) {
	for _, n := range []int{1000, 10000} {
		in := finishedNodes(b, n)
		b.Run(fmt.Sprintf("rest/%d", n), func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				if c := Compile(in); len(c.Rollout.Targets) != n {
					b.Fatal(len(c.Rollout.Targets))
				}
			}
		})
		w := newTestCluster(b)
		owing := *in
		owing.Skyhook = w.apply(fmt.Sprintf(threePackages, "2"))
		b.Run(fmt.Sprintf("config-change/%d", n), func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				if c := Compile(&owing); len(c.Rollout.Targets[n-1].Tasks) == 0 {
					b.Fatal("nothing is owed")
				}
			}
		})
		b.Run(fmt.Sprintf("status/%d", n), func(b *testing.B) {
			b.ReportAllocs()
			c := Compile(in)
			r := rollout.Report{}
			for _, t := range c.Rollout.Targets {
				r.Verdicts = append(r.Verdicts, rollout.Verdict{Node: t.Node, Phase: rollout.PhaseFinished})
			}
			for b.Loop() {
				c.Status(r, nil)
			}
		})
		b.Run(fmt.Sprintf("words/%d", n), func(b *testing.B) {
			b.ReportAllocs()
			c := Compile(in)
			for b.Loop() {
				for _, node := range in.Nodes {
					c.Words(node, rollout.Verdict{Node: node.Name, Phase: rollout.PhaseFinished})
				}
			}
		})
	}
}
