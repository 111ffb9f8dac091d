// SPDX-FileCopyrightText: The Skyhook authors
// SPDX-License-Identifier: Apache-2.0

package skyhook

import (
	corev1 "k8s.io/api/core/v1"

	"github.com/skyhook-k8s/skyhook/internal/node"
	"github.com/skyhook-k8s/skyhook/internal/rollout"
	"github.com/skyhook-k8s/skyhook/internal/skyhook/plan"
	"github.com/skyhook-k8s/skyhook/internal/skyhook/podstate"
	"github.com/skyhook-k8s/skyhook/internal/skyhook/render"
)

// needsPull reports whether the images of a target are pulled before it is admitted.
func (c *nodeCompiler) needsPull(t *plan.Target, out *rollout.Target) bool {
	return c.facts.Prepulls() && t.Selected && !out.Visit.Admitted && !t.Wanted.IsBack && out.Rollback.Cause == nil && len(t.Steps) > 0
}

// compilePull says which images are pulled before a target is admitted, and how far that is.
func (c *nodeCompiler) compilePull(t *plan.Target, out *rollout.Target) {
	pods := c.pods.Pulls
	if !t.Selected {
		for _, pod := range pods {
			if !pod.Leaving {
				out.Objects.Orphans = append(out.Objects.Orphans, pod.Name)
			}
		}
		return
	}
	var images []render.PulledImage
	if c.needsPull(t, out) {
		images = c.render.ImagesToPull(t)
	}
	if len(images) == 0 && len(pods) == 0 {
		return
	}
	out.Pull = &rollout.Pull{Needed: len(images) > 0}
	for _, pod := range pods {
		switch {
		case pod.Leaving:
			out.Pull.Leaving = out.Pull.Leaving || pod.Name == c.render.PullPodName(t.Node.Name, images)
		case out.Pull.Object != "" || !c.pullsImages(pod, images):
			out.Pull.Old = append(out.Pull.Old, pod.Name)
		default:
			out.Pull.Object, out.Pull.Created = pod.Name, pod.Created
			c.readPull(t, pod, images, out.Pull)
		}
	}
	if out.Pull.Needed && out.Pull.Object == "" {
		c.compileNextPull(images, out.Pull)
	}
}

// compileNextPull says what a pull that has not begun waits for.
func (c *nodeCompiler) compileNextPull(images []render.PulledImage, p *rollout.Pull) {
	for _, image := range images {
		if key := c.pullKey(image); key != "" {
			p.Exclusive = append(p.Exclusive, rollout.PullKey{Key: key})
		}
	}
	if refused, isRefused := c.refused[node.TaskPull]; isRefused {
		why := refused.Why()
		p.Failed, p.RetryAt = &why, refused.RetryAt()
	}
}

// pullKey returns the key of tasks and pulls that wait until the digest of an image is recorded; empty if it is, or need not be.
func (c *nodeCompiler) pullKey(image render.PulledImage) string {
	if image.Def == nil || !c.facts.IsPinned(image.Def) || c.facts.FindPin(image.Def) != nil {
		return ""
	}
	return image.Def.ImageKey().PullKey()
}

// pullsImages reports whether a pod pulls these images. One that was to pull by tags what is recorded by now need not be replaced. One whose
// node shut down is.
func (c *nodeCompiler) pullsImages(pod *podstate.Pod, images []render.PulledImage) bool {
	switch {
	case len(images) == 0 || podstate.HasNodeShutDown(pod.Aside):
		return false
	case pod.Content == render.PullContent(images, false):
		return true
	case pod.Content != render.PullContent(images, true):
		return false
	}
	for _, image := range images {
		if image.Def == nil || image.Image == image.Tagged {
			continue
		}
		_, status := podstate.FindPullContainer(pod.Aside, image.Container)
		if status == nil || podstate.FindDigest(status.ImageID, image.Def.Package.Image) != c.facts.RecordedDigest(image.Def) {
			return false
		}
	}
	return true
}

// readPull reads how far a pod is. It has ended when every image was pulled, whether its container could start or not, and when the
// kubelet does not run it: then the stages find out more.
func (c *nodeCompiler) readPull(t *plan.Target, pod *podstate.Pod, images []render.PulledImage, p *rollout.Pull) {
	if pod.Aside.Status.Phase == corev1.PodFailed && pod.Aside.Status.Reason != "" {
		p.Ended = true
		return
	}
	p.Ended = true
	for _, image := range images {
		isPulled, why := podstate.ReadPullContainer(pod.Aside, image.Container)
		if why != nil && p.Failed == nil {
			p.Failed = why
		}
		p.Ended = p.Ended && isPulled
	}
	for _, image := range images {
		c.readPullDigest(t, pod, image, p)
	}
}

// readPullDigest notes the digest of an image that was pulled by its tag, and what others wait for meanwhile.
func (c *nodeCompiler) readPullDigest(t *plan.Target, pod *podstate.Pod, image render.PulledImage, p *rollout.Pull) {
	if image.Def == nil || !c.facts.IsPinned(image.Def) {
		return
	}
	container, status := podstate.FindPullContainer(pod.Aside, image.Container)
	if container == nil || !plan.IsImageOf(image.Def, container.Image) {
		return
	}
	key := rollout.PullKey{Key: image.Def.ImageKey().PullKey()}
	isPulled, why := podstate.ReadPullContainer(pod.Aside, image.Container)
	pin := c.facts.FindPin(image.Def)
	switch {
	case !isPulled:
		if t.Node.Ready && why == nil && pin == nil {
			key.Until = pod.Created.Add(plan.PullLimit)
		}
	default:
		pull := plan.ImagePull{
			Key: image.Def.ImageKey(), Node: t.Node.Name, Digest: podstate.FindDigest(status.ImageID, image.Def.Package.Image), PodStart: pod.Created,
			IsByTag: container.Image != c.render.ImageOf(image.Def) || pin == nil,
		}
		switch {
		case pull.Digest == "":
			c.result.unnamed = append(c.result.unnamed, pull)
		case pin == nil: // the pod is the only place that has the digest
			c.result.pulls = append(c.result.pulls, pull)
			key.Until, p.Ended = c.clock().Add(plan.RecordLimit), false
		}
	}
	if pin == nil {
		p.Exclusive = append(p.Exclusive, key)
	}
}
