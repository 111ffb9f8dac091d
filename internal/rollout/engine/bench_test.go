// SPDX-FileCopyrightText: The Skyhook authors
// SPDX-License-Identifier: Apache-2.0

package engine_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/skyhook-k8s/skyhook/internal/rollout"
	"github.com/skyhook-k8s/skyhook/internal/rollout/engine"
	"github.com/skyhook-k8s/skyhook/internal/sim"
)

// newLargeSnapshot returns a snapshot of this many nodes and three rollouts of three packages with six stages. Of each
// rollout this many targets have all their work pending; the others have no tasks, like finished ones.
func newLargeSnapshot(nodes, pending int, change func(*rollout.Snapshot)) rollout.Snapshot {
	s := rollout.Snapshot{Now: time.Date(2026, 1, 5, 8, 0, 0, 0, time.UTC)}
	for i := range nodes {
		name := fmt.Sprintf("ip-10-%d-%d-%d.eu-central-1.compute.internal", i/65536, i/256%256, i%256)
		s.Nodes = append(s.Nodes, rollout.Node{Name: name, UID: "uid-" + name, Ready: true, Known: true, Created: s.Now.Add(time.Duration(i-nodes) * time.Second)})
	}
	for _, name := range []string{"Skyhook/base", "Skyhook/gpu", "Skyhook/tuning"} {
		s.Groups = append(s.Groups, rollout.Group{Ref: rollout.ParseGroupRef(name), Ledger: rollout.ParseRef(name), Limit: max(1, nodes/20), Pace: rollout.Pace{Kind: rollout.PaceWindow}})
		s.Ledgers = append(s.Ledgers, rollout.Ledger{Owner: rollout.ParseRef(name)})
		r := rollout.Rollout{Ref: rollout.ParseRef(name), Sequence: "Skyhook", Priority: 200}
		for i := range nodes {
			t := rollout.Target{Node: s.Nodes[i].Name, UID: s.Nodes[i].UID, Group: rollout.ParseGroupRef(name), Visit: rollout.Visit{Admission: 1, Batch: 1}}
			if i < pending {
				t.Tasks = parseTasks(parseLines("a/apply\na/config after=a/apply\nb/apply drained\nb/config drained after=b/apply\nb/interrupt alone=2 after=b/config\nb/post drained after=b/interrupt"), nil)
			}
			r.Targets = append(r.Targets, &t)
		}
		s.Rollouts = append(s.Rollouts, r)
	}
	if change != nil {
		change(&s)
	}
	return s
}

func BenchmarkDecide(b *testing.B) {
	for _, nodes := range []int{1000, 2000, 5000, 10000} {
		b.Run(fmt.Sprintf("rest/%d", nodes), func(b *testing.B) { benchmarkDecide(b, newLargeSnapshot(nodes, 0, nil)) })
		b.Run(fmt.Sprintf("change100/%d", nodes), func(b *testing.B) { benchmarkDecide(b, newLargeSnapshot(nodes, 100, nil)) })
		b.Run(fmt.Sprintf("all/%d", nodes), func(b *testing.B) { benchmarkDecide(b, newLargeSnapshot(nodes, nodes, nil)) })
		b.Run(fmt.Sprintf("flight/%d", nodes), func(b *testing.B) {
			w := sim.New(newLargeSnapshot(nodes, nodes, nil))
			for range 3 {
				v := w.View()
				if err := w.Apply(v, engine.Decide(v.Snapshot)); err != nil {
					b.Fatal(err)
				}
			}
			benchmarkDecide(b, w.View().Snapshot)
		})
	}
}

func benchmarkDecide(b *testing.B, s rollout.Snapshot) {
	b.ReportAllocs()
	for b.Loop() {
		engine.Decide(s)
	}
	b.ReportMetric(float64(b.Elapsed().Microseconds())/float64(b.N)/float64(len(s.Nodes))*1000, "µs/1000nodes")
}
