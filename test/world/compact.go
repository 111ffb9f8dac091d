// SPDX-FileCopyrightText: The Skyhook authors
// SPDX-License-Identifier: Apache-2.0

package world

import (
	"math/rand/v2"

	corev1 "k8s.io/api/core/v1"

	"github.com/skyhook-k8s/skyhook/api/skyhook/v1alpha1"
	"github.com/skyhook-k8s/skyhook/internal/pack"
	"github.com/skyhook-k8s/skyhook/internal/skyhook/podstate"
	"github.com/skyhook-k8s/skyhook/test/kubelet"
)

// stepCompact takes a pod whose containers are stages one step further: its present container begins, fails, or ends.
func (r *Run) stepCompact(p *corev1.Pod, h *host, random *rand.Rand) {
	kubelet.Create(p)
	at := kubelet.Next(p)
	if at < 0 {
		return
	}
	stages, status := podstate.ReadStages(p), kubelet.Status(p, at)
	chance := random.IntN(100)
	if r.failsOften(p.Labels[v1alpha1.LabelName]) {
		chance /= 4
	}
	if r.isQuiet {
		chance = 99
	}
	hasBegun := status.State.Waiting == nil
	isFirst := at == 0 && !hasBegun
	isStopped := at > 0 && status.State.Running == nil && p.Annotations[podstate.AnnotationStop] != ""
	message := string(pack.Message{Outcome: pack.Succeeded, Boot: h.bootID()}.Encode())
	if stages[at].Container == "interrupt" {
		proof, isDone := r.interrupt(p, &p.Spec.Containers[0], h)
		if !isDone {
			return
		}
		message, chance = proof, max(chance, 20) // what it did is done
	}
	switch {
	case isStopped:
		kubelet.End(p, at, int32(pack.NotBegun.ExitCode()), "", r.now)
	case chance < 4 && isFirst:
		kubelet.Reject(p, "OutOfcpu", "Node didn't have enough resource: cpu")
	case chance < 7 && isFirst:
		kubelet.Wait(p, at, "ImagePullBackOff", "not found")
	case chance < 9 && isFirst:
		kubelet.Wait(p, at, "CreateContainerError", "failed to mkdir")
	case chance < 16:
		kubelet.End(p, at, 1, "", r.now)
		before := int(status.RestartCount)
		if at == 0 {
			before += attemptsBefore(p)
		}
		r.noteFailure(p, before)
	case chance < 40 && !hasBegun:
		kubelet.Begin(p, at, r.now)
	default:
		kubelet.End(p, at, 0, message, r.now)
		r.noteStage(p, h, stages[at].Name, stages[at].Version, stages[at].Stage)
	}
	r.writeStatus(Pods, p)
}
