// SPDX-FileCopyrightText: The Skyhook authors
// SPDX-License-Identifier: Apache-2.0

package skyhook

import (
	"slices"

	"github.com/skyhook-k8s/skyhook/api/skyhook/v1alpha1"
	"github.com/skyhook-k8s/skyhook/internal/node"
	"github.com/skyhook-k8s/skyhook/internal/rollout"
	"github.com/skyhook-k8s/skyhook/internal/skyhook/plan"
	"github.com/skyhook-k8s/skyhook/internal/skyhook/podstate"
)

// applyImage notes what the pod of a task pulled, and what others wait for meanwhile. The pod is one of ours that works for the
// task (see findPod), and only the image that we put into it counts.
func (c *nodeCompiler) applyImage(n *node.Node, st *plan.Step, pod *podstate.Pod, task *rollout.Task) {
	if st.IsInterrupt() || !c.facts.IsPinned(st.Definition) {
		return
	}
	if !plan.IsImageOf(st.Definition, pod.Image) {
		return
	}
	isByTag := pod.Image != c.render.ImageOf(st.Definition) || c.facts.FindPin(st.Definition) == nil
	if pod.IsPulling {
		mayDelayOthers := n.Ready && pod.Why == nil && !pod.Leaving && !pod.Dead
		if isByTag && mayDelayOthers {
			task.ExclusiveUntil = pod.Created.Add(plan.PullLimit)
		}
		return
	}
	pull := plan.ImagePull{
		Key: st.Definition.ImageKey(), Node: n.Name, Digest: podstate.FindDigest(pod.ImageID, st.Definition.Package.Image), IsByTag: isByTag,
		Installs: st.Stage == v1alpha1.StageApply || st.Stage == v1alpha1.StageUpgrade, PodStart: pod.Created,
	}
	if pull.Digest == "" {
		c.result.unnamed = append(c.result.unnamed, pull)
		return
	}
	c.result.pulls = append(c.result.pulls, pull)
	if c.facts.IsNoted(pull, c.facts.FindPin(st.Definition)) {
		return
	}
	task.ExclusiveUntil = c.clock().Add(plan.RecordLimit)
	if task.State == podstate.Succeeded { // the pod is the only place that has the digest
		task.State = podstate.Running
		task.Why = &rollout.Why{Reason: rollout.ReasonLedger, Text: "the digest of the image of package " + st.Name + " is being recorded"}
	}
}

// KeepRecordedPins returns new pins with the digests that are recorded already: the first one that was stored counts.
func KeepRecordedPins(recorded, pins []v1alpha1.ImagePin) []v1alpha1.ImagePin {
	out := slices.Clone(pins)
	for i, p := range out {
		at := slices.IndexFunc(recorded, func(r v1alpha1.ImagePin) bool { return plan.KeyOfPin(r) == plan.KeyOfPin(p) })
		if at >= 0 && recorded[at].Digest != p.Digest && podstate.ValidDigest.MatchString(recorded[at].Digest) {
			out[i] = recorded[at]
		}
	}
	return out
}
