// SPDX-FileCopyrightText: The Skyhook authors
// SPDX-License-Identifier: Apache-2.0

package podstate

import (
	"fmt"
	"regexp"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"

	"github.com/skyhook-k8s/skyhook/internal/node"
	"github.com/skyhook-k8s/skyhook/internal/rollout"
)

// ValidDigest matches the digests that a pod can pull by.
var ValidDigest = regexp.MustCompile(`^(sha256:[0-9a-f]{64}|sha512:[0-9a-f]{128})$`)

// RunsPackageImage reports whether a container of a stage's pod, by its name, runs the image of the package.
func RunsPackageImage(container string) bool { return strings.HasSuffix(container, SuffixCopy) }

// readImage reads from a pod which image of a package it pulls, and what the node says that it is.
func (s *Pod) readImage(p *corev1.Pod) {
	at := slices.IndexFunc(p.Spec.InitContainers, func(c corev1.Container) bool { return RunsPackageImage(c.Name) })
	if at < 0 {
		return
	}
	container := p.Spec.InitContainers[at]
	status := StatusOf(p, container.Name)
	s.Image = container.Image
	s.IsPulling = status == nil || !hasStarted(*status)
	if status != nil {
		s.ImageID = status.ImageID
	}
}

// FindDigest returns the digest in what a node says about an image, such as docker-pullable://REPOSITORY@DIGEST. It is empty
// without a digest of that repository: nothing else could be pulled by it.
func FindDigest(imageID, repository string) string {
	if _, rest, hasScheme := strings.Cut(imageID, "://"); hasScheme {
		imageID = rest
	}
	name, digest, _ := strings.Cut(imageID, "@")
	if expandRepository(name) != expandRepository(repository) || !ValidDigest.MatchString(digest) {
		return ""
	}
	return digest
}

// expandRepository adds the parts that a repository of Docker Hub may leave out.
func expandRepository(name string) string {
	host, path, hasPath := strings.Cut(name, "/")
	switch isHost := hasPath && (strings.ContainsAny(host, ".:") || host == "localhost"); {
	case !isHost:
		host, path = "docker.io", name
	case host == "index.docker.io":
		host = "docker.io"
	}
	if host == "docker.io" && !strings.Contains(path, "/") {
		path = "library/" + path
	}
	return host + "/" + path
}

// pullProblems are the reasons for which a container waits whose image cannot be pulled, and startProblems those for which it waits
// after its image was pulled.
var (
	pullProblems = []string{"ErrImagePull", "ImagePullBackOff", "InvalidImageName", "ErrImageNeverPull", "ImageInspectError",
		"RegistryUnavailable", "SignatureValidationFailed", "ErrImagePullBackOff"}
	startProblems = []string{"CreateContainerConfigError", "CreateContainerError", "RunContainerError", "ContainerCannotRun", "CrashLoopBackOff"}
)

// pullReason returns why the image of a container that waits cannot be pulled. It is the same while the kubelet tries and while it
// waits before it tries again.
func pullReason(p *corev1.Pod, status *corev1.ContainerStatus) *rollout.Why {
	image, message := status.Image, strings.TrimSpace(status.State.Waiting.Message)
	for _, v := range p.Spec.Volumes { // the kubelet says that a container cannot be pulled whose volume it cannot
		if v.Image != nil && strings.Contains(message, v.Image.Reference) {
			image = v.Image.Reference
		}
	}
	if _, failure, isBackOff := strings.Cut(message, ": ErrImagePull: "); isBackOff {
		message = failure
	}
	if call, failure, isCall := strings.Cut(message, " desc = "); isCall && strings.HasPrefix(call, "rpc error: code = ") {
		message = failure
	}
	if message == "" {
		message = status.State.Waiting.Reason
	}
	return &rollout.Why{Reason: rollout.ReasonImagePull, Text: fmt.Sprintf("image %s cannot be pulled: %s", image, node.Truncate(message, 200))}
}

// HasNodeShutDown reports whether a pod ended because its node was shut down.
func HasNodeShutDown(p *corev1.Pod) bool {
	return p.Status.Phase == corev1.PodFailed && slices.Contains(shutdownReasons, p.Status.Reason)
}

// FindPullContainer finds the container that pulls an image, and its status.
func FindPullContainer(p *corev1.Pod, name string) (*corev1.Container, *corev1.ContainerStatus) {
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

// ReadPullContainer reports whether the image of a container was pulled, or why it cannot be.
func ReadPullContainer(p *corev1.Pod, name string) (isPulled bool, why *rollout.Why) {
	_, status := FindPullContainer(p, name)
	switch {
	case status == nil:
		return false, nil
	case status.State.Waiting == nil, status.ImageID != "", slices.Contains(startProblems, status.State.Waiting.Reason):
		return true, nil
	case slices.Contains(pullProblems, status.State.Waiting.Reason):
		why := pullReason(p, status)
		why.About = describePod(p)
		return false, why
	}
	return false, nil
}
