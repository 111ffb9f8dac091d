// SPDX-FileCopyrightText: The Skyhook authors
// SPDX-License-Identifier: Apache-2.0

package nodeop_test

import (
	"fmt"
	"slices"
	"testing"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/skyhook-k8s/skyhook/api/nodeop/v1alpha1"
	"github.com/skyhook-k8s/skyhook/internal/node"
	"github.com/skyhook-k8s/skyhook/internal/nodeop/compile"
)

// newManyNodes is what is known of many nodes in the middle of an operation with a check and a reboot. On the first the command does not
// end. The others have completed, and their Jobs and pods exist, or they wait for their turn.
func newManyNodes(b *testing.B, nodes int, isDone bool) *compile.Input {
	w := newEnvironment(b, "cp-hangs", "first")
	w.commands["cp-hangs"] = "hang"
	o := w.applyYAML(`{metadata: {name: check}, spec: {command: [x], preflight: {command: [y]}, concurrency: 1, cordon: true, rebootOnSuccess: true}}`)
	if isDone {
		o.Spec.Concurrency = new(int32(2))
	}
	for range 20 {
		w.tick()
	}
	in := w.input(o)
	first := in.Nodes[1]
	if (len(first.Annotations) > 0) != isDone {
		b.Fatalf("the first node records %v", first.Annotations)
	}
	isOnFirst := func(p *corev1.Pod) bool { return p.Spec.NodeName == first.Name }
	jobs, pods := slices.Clone(in.Jobs), slices.Clone(in.Pods)
	jobs = slices.DeleteFunc(jobs, func(j *batchv1.Job) bool { return j.Spec.Template.Spec.NodeName != first.Name })
	pods = slices.DeleteFunc(pods, func(p *corev1.Pod) bool { return !isOnFirst(p) })
	for i := range nodes - 2 {
		n := first.With(node.Edit{}) // the record is the same
		n.Name = fmt.Sprintf("node-%05d", i)
		in.Nodes = append(in.Nodes, n)
		for _, j := range jobs {
			copied := j.DeepCopy()
			copied.Spec.Template.Spec.NodeName, copied.UID = n.Name, types.UID(n.Name)
			in.Jobs = append(in.Jobs, copied)
		}
		for _, p := range pods {
			copied := p.DeepCopy()
			copied.Spec.NodeName, copied.UID = n.Name, types.UID(p.Name+n.Name)
			if owner := &copied.OwnerReferences[0]; owner.Kind == "Job" {
				owner.UID = types.UID(n.Name)
			}
			in.Pods = append(in.Pods, copied)
		}
	}
	return in
}

// BenchmarkCompile compiles many nodes.
func BenchmarkCompile(b *testing.B) {
	const nodes = 5000
	for _, isDone := range []bool{true, false} {
		name := "waiting"
		if isDone {
			name = "done"
		}
		in := newManyNodes(b, nodes, isDone)
		b.Run(name, func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				if c := compile.Compile(in); len(c.Rollout.Targets) != nodes {
					b.Fatal(len(c.Rollout.Targets))
				}
			}
		})
	}
	in := newManyNodes(b, nodes, true)
	in.Operation.NodeOp.Status.Phase = v1alpha1.PhaseCompleted
	for _, n := range in.Nodes {
		n.Annotations = nil
		*n = *n.With(node.Edit{})
	}
	b.Run("finished", func(b *testing.B) {
		b.ReportAllocs()
		for b.Loop() {
			compile.Compile(in)
		}
	})
}
