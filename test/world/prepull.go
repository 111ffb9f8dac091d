// SPDX-FileCopyrightText: The Skyhook authors
// SPDX-License-Identifier: Apache-2.0

package world

import (
	"math/rand/v2"

	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/skyhook-k8s/skyhook/api/skyhook/v1alpha1"
	"github.com/skyhook-k8s/skyhook/test/kubelet"
)

// prepulls reports whether the operators of this run pull images before a node's turn.
func (r *Run) prepulls() bool { return r.random("prepull").IntN(3) == 0 }

// stepPull takes a pod that pulls images one step further: a container ends, does not start, or cannot pull; or the kubelet ends the pod.
func (r *Run) stepPull(p *corev1.Pod, random *rand.Rand) {
	if kubelet.HasEnded(p) {
		return
	}
	if random.IntN(100) < 3 && !r.isQuiet {
		kubelet.Reject(p, []string{"OutOfpods", "NodeShutdown", "Evicted"}[random.IntN(3)], "")
		r.notePulled(p)
		r.writeStatus(Pods, p)
		return
	}
	kubelet.Create(p)
	isOver := true
	for i, c := range p.Spec.Containers {
		chance := random.IntN(100)
		switch {
		case kubelet.Status(p, i).State.Terminated != nil:
		case chance < 12 && !r.isQuiet:
			kubelet.Wait(p, i, "ImagePullBackOff", "not found")
			isOver = false
		case chance < 20 && !r.isQuiet:
			kubelet.Wait(p, i, "ContainerCreating", "")
			isOver = false
		default:
			kubelet.End(p, i, int32(random.IntN(2)), "", r.now)
			kubelet.Status(p, i).ImageID = r.pullImage(p, c.Image)
		}
	}
	if isOver {
		p.Status.Phase = corev1.PodFailed
		r.notePulled(p)
	}
	r.writeStatus(Pods, p)
}

// notePulled notes that a pod has pulled all it was to pull, or that the kubelet does not run it.
func (r *Run) notePulled(p *corev1.Pod) {
	r.truth.prepulled[r.uidOf(nodeKey(p.Spec.NodeName))+p.Labels[v1alpha1.LabelName]] = true
}

// checkNewPull: images are pulled before a node's turn while the Skyhook does not work there, by a pod that can do nothing else.
func (r *Run) checkNewPull(c content) {
	p := decode(c, &corev1.Pod{})
	skyhook, uid := p.Labels[v1alpha1.LabelName], r.uidOf(nodeKey(p.Spec.NodeName))
	if r.truth.admitted[uid][skyhook] {
		r.violate("images are pulled before the visit", "%s pulls images on node %s, which is admitted", skyhook, r.nameOf(uid))
	}
	for _, c := range p.Spec.Containers {
		if len(c.VolumeMounts) > 0 || c.SecurityContext == nil || c.SecurityContext.Privileged != nil && *c.SecurityContext.Privileged || p.Spec.HostPID {
			r.violate("images are pulled before the visit", "container %s of %s can reach the host", c.Name, p.Name)
		}
	}
}

// checkPulled: a node is admitted when its images are there, unless something of the Skyhook is left on it, perhaps of another node of
// its name that is gone, or it goes back.
func (r *Run) checkPulled(w Write, uid, skyhook string, goesBack bool) {
	s := r.server.objects[Skyhooks.Kind][client.ObjectKey{Name: skyhook}]
	isOlder := r.truth.nodeSince[uid] == 0 || r.turn-r.truth.nodeSince[uid] > busyTurns // than pods of another one of its name, and what was reserved beside them
	if s == nil || !r.prepulls() || !isOlder || meta(s).GetDeletionTimestamp() != nil || goesBack || r.truth.held[uid][skyhook] || r.hasPod(w.Name, skyhook) {
		return
	}
	wasReset := r.truth.voided[uid+skyhook] > 0 && r.truth.voided[uid+skyhook] == r.truth.admission[uid+skyhook] // and continues
	if !r.truth.prepulled[uid+skyhook] && !wasReset {
		r.violate("images are pulled before the visit", "%s admits node %s, on which nothing was pulled", skyhook, w.Name)
	}
	delete(r.truth.prepulled, uid+skyhook)
}

// hasPod reports whether a pod of a Skyhook is on a node, or was when its leader looked, that is there for another reason: the node is not
// given back.
func (r *Run) hasPod(nodeName, skyhook string) bool {
	isOther := func(labels map[string]string, node string) bool {
		return labels[v1alpha1.LabelName] == skyhook && labels[v1alpha1.LabelPrepull] == "" && node == nodeName
	}
	for key, c := range r.server.objects[Pods.Kind] {
		if key.Namespace == Namespace && isOther(meta(c).GetLabels(), nestedString(c, "spec", "nodeName")) {
			return true
		}
	}
	for _, o := range r.leader.caches[0].watchedOf(Pods).objects {
		if isOther(o.GetLabels(), o.(*corev1.Pod).Spec.NodeName) {
			return true
		}
	}
	return false
}
