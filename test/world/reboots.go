// SPDX-FileCopyrightText: The Skyhook authors
// SPDX-License-Identifier: Apache-2.0

package world

import (
	"encoding/json"
	"math/rand/v2"
	"slices"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/skyhook-k8s/skyhook/api/skyhook/v1alpha1"
	"github.com/skyhook-k8s/skyhook/internal/node"
	"github.com/skyhook-k8s/skyhook/internal/nodeop"
	"github.com/skyhook-k8s/skyhook/internal/pack"
	"github.com/skyhook-k8s/skyhook/test/kubelet"
)

// notePodStage notes that the stage of a pod succeeded.
func (r *Run) notePodStage(p *corev1.Pod, h *host) {
	var of struct{ Name, Version, Stage string }
	if json.Unmarshal([]byte(p.Annotations[v1alpha1.AnnotationPackage]), &of) == nil {
		r.noteStage(p, h, of.Name, of.Version, v1alpha1.Stage(of.Stage))
	}
}

// noteStage notes that a stage of a package succeeded on a host. What comes after a reboot runs only when the host booted since what comes
// before it, whoever rebooted the host. What people write to annotations can make the operator believe something else.
func (r *Run) noteStage(p *corev1.Pod, h *host, name, version string, stage v1alpha1.Stage) {
	skyhook := p.Labels[v1alpha1.LabelName]
	id := skyhook + " " + name + "|" + version
	switch stage {
	case v1alpha1.StageApply, v1alpha1.StageUpgrade, v1alpha1.StageConfig:
		h.prepared[id] = h.boots
	case v1alpha1.StagePostInterrupt:
		boot, isKnown := h.prepared[id]
		if isKnown && boot == h.boots && r.owesReboot(p.Spec.NodeName, skyhook, name+"|"+version) && !r.hasForgery() {
			r.violate("each owed reboot is proven", "package %s of %s goes on in boot %d, in which it owed a reboot", name, skyhook, boot)
		}
	}
}

// owesReboot reports whether the record of a node says that a reboot belongs to the present run of a package.
func (r *Run) owesReboot(node, skyhook, key string) bool {
	var rec struct {
		Packages map[string]struct{ Effect *v1alpha1.Interrupt }
	}
	c := r.server.objects[Nodes.Kind][nodeKey(node)]
	if c == nil || json.Unmarshal([]byte(meta(c).GetAnnotations()[v1alpha1.PrefixRecord+skyhook]), &rec) != nil {
		return false
	}
	effect := rec.Packages[key].Effect
	return effect != nil && effect.Type == v1alpha1.InterruptReboot
}

// stepCommand takes the pod of a Job one step further. Its first container may say in which boot it runs. What runs while the host crashes
// fails.
func (r *Run) stepCommand(p *corev1.Pod, h *host, random *rand.Rand) {
	if kubelet.Create(p); kubelet.HasEnded(p) {
		return
	}
	first := kubelet.Status(p, 0)
	speaks := first.Name == nodeop.ContainerBoot
	if speaks && first.State.Terminated == nil {
		r.crash(h, random) // before the command begins
		kubelet.End(p, 0, 0, string(pack.Kairos{BootID: h.bootID()}.Encode()), r.now)
		r.writeStatus(Pods, p)
		r.crash(h, random) // while it runs
		return
	}
	if speaks && first.State.Terminated.Message != string(pack.Kairos{BootID: h.bootID()}.Encode()) {
		kubelet.EndAll(p, 137, "", r.now)
		r.writeStatus(Pods, p)
		return
	}
	r.finish(p, random, 15, "")
	h.prepared[metav1.GetControllerOf(p).Name] = h.boots
	if speaks {
		r.crash(h, random) // after it ended
	}
}

// crash lets a host crash, perhaps, and boot so fast that its node is never down.
func (r *Run) crash(h *host, random *rand.Rand) {
	if r.crashes && !r.isQuiet && random.IntN(3) == 0 {
		h.boots++
		h.silentFor = 1 + random.IntN(6)
		r.tracef("the host crashes, and is in %s", h.bootID())
	}
}

// crashCommands lets nodes crash from now on around the commands of NodeOps, of which two share reboots.
func (r *Run) crashCommands(random *rand.Rand) {
	r.crashes = true
	for _, name := range []string{"op0", "op1"} {
		op := newNodeOp(name, random, false)
		op["spec"].(content)["rebootOnSuccess"], op["spec"].(content)["shareReboots"] = true, true
		r.createAsUser(NodeOps, op)
	}
}

// checkOpReboot: a NodeOp that reboots is complete on a node when its host booted since the command ended, whoever rebooted it.
func (r *Run) checkOpReboot(nodeName, text string) {
	rec, _ := node.ParseNodeOpRecord(text)
	h := r.host(nodeName)
	if boot, isKnown := h.prepared[rec.Job]; isKnown && boot == h.boots && rec.Reboot.Is(node.StepDone) && !r.hasForgery() {
		r.violate("each owed reboot is proven", "Job %s ended in boot %d, in which node %s needs no reboot any more", rec.Job, boot, nodeName)
	}
}

// hasForgery reports whether somebody writes to the annotations of a node in this run.
func (r *Run) hasForgery() bool {
	return slices.ContainsFunc(r.Events, func(e Event) bool { return e.Cause == Damage || e.Cause == Hostile })
}
