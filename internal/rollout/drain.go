// SPDX-FileCopyrightText: The Skyhook authors
// SPDX-License-Identifier: Apache-2.0

package rollout

import (
	"slices"
	"time"
)

// DrainProgress is how far the drain of a target's node is.
type DrainProgress struct {
	Pods     []Pod // workloads that must leave the node, if PodsSeen
	PodsSeen bool  // Pods were listed for this snapshot
	// since when protected pods are waited for, and when they were seen last, see timing.Durations; zero if unknown
	ProtectedSince, ProtectedAt time.Time
	HeldAt                      time.Time // when the hold of this rollout was placed; zero without one
	Since                       time.Time // since when the present drain waits for pods, see timing.Durations; zero if unknown: since HeldAt
	// pods that had to leave when the present drain began, as recorded, and as this process counted them, see timing.Durations; 0 if unknown
	PodsRecorded, PodsCounted int
}

// DrainBegan returns since when the present drain waits for pods. Each drain of a visit has the whole timeout.
func (t *Target) DrainBegan() time.Time {
	if t.Drain.Since.IsZero() {
		return t.Drain.HeldAt
	}
	return t.Drain.Since
}

// Path is the namespace and name of a pod.
func (d *Pod) Path() string { return d.Namespace + "/" + d.Name }

// HasProtectedPod reports whether a drain must wait for a pod on the node.
func (t *Target) HasProtectedPod() bool {
	return slices.ContainsFunc(t.Drain.Pods, func(p Pod) bool { return p.Wait })
}

// NeedsDrain reports whether open work of the target needs its node drained.
func (t *Target) NeedsDrain() bool {
	return slices.ContainsFunc(t.Tasks, func(k Task) bool { return k.State != StateDone && k.Need != NeedNothing })
}

// ProtectedPods are the UIDs of the protected pods on the node of a target.
func (t *Target) ProtectedPods() []string {
	var out []string
	for _, p := range t.Drain.Pods {
		if p.Wait {
			out = append(out, p.UID)
		}
	}
	return out
}
