// SPDX-FileCopyrightText: The Skyhook authors
// SPDX-License-Identifier: Apache-2.0

package skyhook

import (
	"fmt"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"

	"github.com/skyhook-k8s/skyhook/api/skyhook/v1alpha1"
	"github.com/skyhook-k8s/skyhook/internal/node"
	"github.com/skyhook-k8s/skyhook/internal/rollout"
)

// pullProblems are the reasons for which a container waits whose image cannot be pulled, and startProblems those for which it waits
// after its image was pulled.
var (
	pullProblems = []string{"ErrImagePull", "ImagePullBackOff", "InvalidImageName", "ErrImageNeverPull", "ImageInspectError",
		"RegistryUnavailable", "SignatureValidationFailed", "ErrImagePullBackOff"}
	startProblems = []string{"CreateContainerConfigError", "CreateContainerError", "RunContainerError", "ContainerCannotRun", "CrashLoopBackOff"}
)

// pullReason returns why the image of a container that waits cannot be pulled. It is the same while the kubelet tries and while it
// waits before it tries again.
func pullReason(status *corev1.ContainerStatus) *rollout.Why {
	message := strings.TrimSpace(status.State.Waiting.Message)
	if _, failure, isBackOff := strings.Cut(message, ": ErrImagePull: "); isBackOff {
		message = failure
	}
	if call, failure, isCall := strings.Cut(message, " desc = "); isCall && strings.HasPrefix(call, "rpc error: code = ") {
		message = failure
	}
	if message == "" {
		message = status.State.Waiting.Reason
	}
	return &rollout.Why{Reason: rollout.ReasonImagePull, Text: fmt.Sprintf("image %s cannot be pulled: %s", status.Image, node.Truncate(message, 200))}
}

// pulledImage is an image that a target needs, and the container that pulls it before the target is admitted.
type pulledImage struct {
	container string
	image     string
	tagged    string      // the same by its tag, when image is a recorded digest
	def       *Definition // of the package whose image it is; nil for the agent and the pause container
	command   []string
	args      []string
}

// imagesToPull returns the images that the tasks of a target need. Compact pods have no pause container.
func (r renderer) imagesToPull(t *target) []pulledImage {
	var out []pulledImage
	agents, needsPause := 0, !r.facts.isCompactOn(t.node, &t.rec)
	add := func(p pulledImage) {
		if !slices.ContainsFunc(out, func(other pulledImage) bool { return other.image == p.image }) {
			out = append(out, p)
		}
	}
	for _, id := range sortedNames(t.steps) {
		st := t.steps[id]
		needsPause = needsPause || st.def.Package.AgentImageOverride != ""
		if !st.isInterrupt() {
			add(pulledImage{
				container: safeName(63, packageName(st.name), "image", st.version), image: r.imageOf(st.def), tagged: imageOf(st.def.Package), def: st.def,
				command: []string{"/bin/sh", "-c", ":"}, // without a shell it does not start, and its image was pulled
			})
		}
		known := len(out)
		add(pulledImage{container: "agent-image", image: r.agentImage(st.def), args: []string{"--version"}})
		if len(out) > known {
			if agents++; agents > 1 {
				out[known].container = fmt.Sprintf("agent-image-%d", agents)
			}
		}
	}
	if len(out) > 0 && needsPause {
		add(pulledImage{container: "pause-image", image: r.facts.Config.PauseImage, args: []string{"-v"}})
	}
	return out
}

// pullContent identifies images, by digest as far as these are recorded, or all by their tags.
func pullContent(images []pulledImage, byTag bool) string {
	var parts []string
	for _, p := range images {
		image := p.image
		if byTag && p.tagged != "" {
			image = p.tagged
		}
		parts = append(parts, p.container, image)
	}
	slices.Sort(parts)
	return hashID(parts...)
}

// needsPull reports whether the images of a target are pulled before it is admitted.
func (c *nodeCompiler) needsPull(t *target, out *rollout.Target) bool {
	return c.facts.Skyhook.Spec.Prepull && t.selected && !out.Visit.Admitted && !t.wanted.isBack && out.Rollback.Cause == nil && len(t.steps) > 0
}

// compilePull says which images are pulled before a target is admitted, and how far that is.
func (c *nodeCompiler) compilePull(t *target, out *rollout.Target) {
	pods := c.pods.pulls
	if !t.selected {
		for _, pod := range pods {
			if !pod.leaving {
				out.Objects.Orphans = append(out.Objects.Orphans, pod.name)
			}
		}
		return
	}
	var images []pulledImage
	if c.needsPull(t, out) {
		images = c.render.imagesToPull(t)
	}
	if len(images) == 0 && len(pods) == 0 {
		return
	}
	out.Pull = &rollout.Pull{Needed: len(images) > 0}
	for _, pod := range pods {
		switch {
		case pod.leaving:
			out.Pull.Leaving = out.Pull.Leaving || pod.name == c.render.pullPodName(t.node.Name, images)
		case out.Pull.Object != "" || !c.pullsImages(pod, images):
			out.Pull.Old = append(out.Pull.Old, pod.name)
		default:
			out.Pull.Object, out.Pull.Created = pod.name, pod.created
			c.readPull(t, pod, images, out.Pull)
		}
	}
	if out.Pull.Needed && out.Pull.Object == "" {
		c.compileNextPull(t, images, out.Pull)
	}
}

// compileNextPull says what a pull that has not begun waits for.
func (c *nodeCompiler) compileNextPull(t *target, images []pulledImage, p *rollout.Pull) {
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
func (c *nodeCompiler) pullKey(image pulledImage) string {
	if image.def == nil || !c.facts.isPinned(image.def) || c.facts.findPin(image.def) != nil {
		return ""
	}
	return image.def.imageKey().pullKey()
}

// pullsImages reports whether a pod pulls these images. One that was to pull by tags what is recorded by now need not be replaced. One whose
// node shut down is.
func (c *nodeCompiler) pullsImages(pod *podInfo, images []pulledImage) bool {
	switch {
	case len(images) == 0 || hasNodeShutDown(pod.pull):
		return false
	case pod.content == pullContent(images, false):
		return true
	case pod.content != pullContent(images, true):
		return false
	}
	for _, image := range images {
		if image.def == nil || image.image == image.tagged {
			continue
		}
		_, status := findPullContainer(pod.pull, image.container)
		if status == nil || findDigest(status.ImageID, image.def.Package.Image) != c.facts.recordedDigest(image.def) {
			return false
		}
	}
	return true
}

func hasNodeShutDown(p *corev1.Pod) bool {
	return p.Status.Phase == corev1.PodFailed && slices.Contains(shutdownReasons, p.Status.Reason)
}

func findPullContainer(p *corev1.Pod, name string) (*corev1.Container, *corev1.ContainerStatus) {
	var container *corev1.Container
	for i := range p.Spec.Containers {
		if p.Spec.Containers[i].Name == name {
			container = &p.Spec.Containers[i]
		}
	}
	for i := range p.Status.ContainerStatuses {
		if p.Status.ContainerStatuses[i].Name == name {
			return container, &p.Status.ContainerStatuses[i]
		}
	}
	return container, nil
}

// readPull reads how far a pod is. It has ended when every image was pulled, whether its container could start or not, and when the
// kubelet does not run it: then the stages find out more.
func (c *nodeCompiler) readPull(t *target, pod *podInfo, images []pulledImage, p *rollout.Pull) {
	if pod.pull.Status.Phase == corev1.PodFailed && pod.pull.Status.Reason != "" {
		p.Ended = true
		return
	}
	p.Ended = true
	for _, image := range images {
		isPulled, why := readPullContainer(pod.pull, image.container)
		if why != nil && p.Failed == nil {
			p.Failed = why
		}
		p.Ended = p.Ended && isPulled
	}
	for _, image := range images {
		c.readPullDigest(t, pod, image, p)
	}
}

// readPullContainer reports whether the image of a container was pulled, or why it cannot be.
func readPullContainer(p *corev1.Pod, name string) (isPulled bool, why *rollout.Why) {
	_, status := findPullContainer(p, name)
	switch {
	case status == nil:
		return false, nil
	case status.State.Waiting == nil, status.ImageID != "", slices.Contains(startProblems, status.State.Waiting.Reason):
		return true, nil
	case slices.Contains(pullProblems, status.State.Waiting.Reason):
		why := pullReason(status)
		why.About = describePod(p)
		return false, why
	}
	return false, nil
}

// readPullDigest notes the digest of an image that was pulled by its tag, and what others wait for meanwhile.
func (c *nodeCompiler) readPullDigest(t *target, pod *podInfo, image pulledImage, p *rollout.Pull) {
	if image.def == nil || !c.facts.isPinned(image.def) {
		return
	}
	container, status := findPullContainer(pod.pull, image.container)
	if container == nil || !isImageOf(image.def, container.Image) {
		return
	}
	key := rollout.PullKey{Key: image.def.imageKey().pullKey()}
	isPulled, why := readPullContainer(pod.pull, image.container)
	pin := c.facts.findPin(image.def)
	switch {
	case !isPulled:
		if t.node.Ready && why == nil && pin == nil {
			key.Until = pod.created.Add(pullLimit)
		}
	default:
		pull := imagePull{
			key: image.def.imageKey(), node: t.node.Name, digest: findDigest(status.ImageID, image.def.Package.Image), podStart: pod.created,
			isByTag: container.Image != c.render.imageOf(image.def) || pin == nil,
		}
		switch {
		case pull.digest == "":
			c.result.unnamed = append(c.result.unnamed, pull)
		case pin == nil: // the pod is the only place that has the digest
			c.result.pulls = append(c.result.pulls, pull)
			key.Until, p.Ended = c.clock().Add(recordLimit), false
		}
	}
	if pin == nil {
		p.Exclusive = append(p.Exclusive, key)
	}
}

// pullPodName returns the name of the pod that pulls images on a node.
func (r renderer) pullPodName(nodeName string, images []pulledImage) string {
	return safeName(maxPodName, r.facts.Skyhook.Name, "prepull", nodeName, pullContent(images, false))
}

// pullPod returns the pod that pulls the images for a node before its turn; nil if nothing is to be pulled. It does nothing else: a
// container ends at once, or does not start.
func (r renderer) pullPod(t *target) *corev1.Pod {
	n := t.node
	if !r.facts.Skyhook.Spec.Prepull {
		return nil
	}
	images := r.imagesToPull(t)
	if len(images) == 0 {
		return nil
	}
	spec := corev1.PodSpec{NodeName: n.Name, RestartPolicy: corev1.RestartPolicyNever, HostNetwork: true, AutomountServiceAccountToken: new(false)}
	for _, image := range images {
		spec.Containers = append(spec.Containers, corev1.Container{
			Name: image.container, Image: image.image, Command: image.command, Args: image.args, ImagePullPolicy: r.pullPolicy(),
			SecurityContext: &corev1.SecurityContext{
				AllowPrivilegeEscalation: new(false), ReadOnlyRootFilesystem: new(true), Capabilities: &corev1.Capabilities{Drop: []corev1.Capability{"ALL"}},
			},
			Resources: corev1.ResourceRequirements{Requests: resources("1m", "4Mi"), Limits: resources("500m", "64Mi")},
		})
	}
	out := r.newCheckPod(r.pullPodName(n.Name, images), v1alpha1.LabelPrepull, n, spec)
	out.Annotations = map[string]string{annotationContent: pullContent(images, false)}
	return out
}

func resources(cpu, memory string) corev1.ResourceList {
	return corev1.ResourceList{corev1.ResourceCPU: resource.MustParse(cpu), corev1.ResourceMemory: resource.MustParse(memory)}
}
