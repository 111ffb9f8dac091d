// SPDX-FileCopyrightText: The Skyhook authors
// SPDX-License-Identifier: Apache-2.0

package skyhook

import (
	"cmp"
	"regexp"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/skyhook-k8s/skyhook/api/skyhook/v1alpha1"
	"github.com/skyhook-k8s/skyhook/internal/node"
	"github.com/skyhook-k8s/skyhook/internal/rollout"
)

const (
	mostPins       = 200
	mostDeviations = 20

	// pullLimit is how long other nodes wait for the first pull of an image. It begins with the pod, and a node on which the
	// pull fails, or that is not ready, keeps nobody waiting.
	pullLimit = 5 * time.Minute
	// recordLimit is how long they wait for the digest to be stored, from each pass on.
	recordLimit = time.Minute
)

// validDigest matches the digests that a pod can pull by.
var validDigest = regexp.MustCompile(`^(sha256:[0-9a-f]{64}|sha512:[0-9a-f]{128})$`)

// imageKey is what a digest is recorded for.
type imageKey struct{ name, version, image string }

func keyOfPin(p v1alpha1.ImagePin) imageKey { return imageKey{p.Package, p.Version, p.Image} }

func (d *Definition) imageKey() imageKey {
	return imageKey{d.Package.Name, string(d.Package.Version), d.Package.Image}
}

func (k imageKey) String() string { return k.name + " " + k.version }

// imagePull is what a pod pulled for a package, by its tag or by the recorded digest.
type imagePull struct {
	key      imageKey
	node     string
	digest   string
	isByTag  bool
	installs bool // the pod installs or upgrades the package
	podStart time.Time
}

// RunsPackageImage reports whether a container of a stage's pod, by its name, runs the image of the package.
func RunsPackageImage(container string) bool { return strings.HasSuffix(container, suffixCopy) }

// pinsImages reports whether nodes pull by the digest that the first of them pulled.
func (f *facts) pinsImages() bool {
	if pins := f.Skyhook.Spec.PinImages; pins != nil {
		return *pins
	}
	return f.Config.PinImages
}

// isPinned reports whether the digest of a package's image is recorded, or to be recorded.
func (f *facts) isPinned(d *Definition) bool {
	return f.pinsImages() && d.Package.ContainerSHA == ""
}

// findPin returns the recorded digest of a package's image; nil when there is none.
func (f *facts) findPin(d *Definition) *v1alpha1.ImagePin {
	if !f.isPinned(d) {
		return nil
	}
	pins := f.Pins
	at := slices.IndexFunc(pins, func(p v1alpha1.ImagePin) bool {
		return keyOfPin(p) == d.imageKey() && validDigest.MatchString(p.Digest)
	})
	if at < 0 {
		return nil
	}
	return &pins[at]
}

// recordedDigest returns the recorded digest of a package's image, or "".
func (f *facts) recordedDigest(d *Definition) string {
	if pin := f.findPin(d); pin != nil {
		return pin.Digest
	}
	return ""
}

// imageOf returns the reference that a pod pulls a package by.
func (r renderer) imageOf(d *Definition) string {
	if digest := r.facts.recordedDigest(d); digest != "" {
		return d.Package.Image + "@" + digest
	}
	return imageOf(d.Package)
}

// exclusiveKey returns the key of tasks that pull an image whose digest is not recorded yet: one of them begins, and the
// others pull what it pulled. It is empty when they need not wait.
func (f *facts) exclusiveKey(st *step) string {
	if st.isInterrupt() || !f.isPinned(st.def) || f.findPin(st.def) != nil {
		return ""
	}
	return st.def.imageKey().pullKey()
}

// pullKey is the key of what waits until the digest of an image is recorded.
func (k imageKey) pullKey() string { return strings.Join([]string{k.name, k.version, k.image}, "|") }

// applyImage notes what the pod of a task pulled, and what others wait for meanwhile. The pod is one of ours that works for the
// task (see findPod), and only the image that we put into it counts.
func (c *nodeCompiler) applyImage(n *node.Node, st *step, pod *podInfo, task *rollout.Task) {
	if st.isInterrupt() || !c.facts.isPinned(st.def) {
		return
	}
	if !isImageOf(st.def, pod.image) {
		return
	}
	isByTag := pod.image != c.render.imageOf(st.def) || c.facts.findPin(st.def) == nil
	if pod.isPulling {
		mayDelayOthers := n.Ready && pod.why == nil && !pod.leaving && !pod.dead
		if isByTag && mayDelayOthers {
			task.ExclusiveUntil = pod.created.Add(pullLimit)
		}
		return
	}
	pull := imagePull{
		key: st.def.imageKey(), node: n.Name, digest: findDigest(pod.imageID, st.def.Package.Image), isByTag: isByTag,
		installs: st.stage == v1alpha1.StageApply || st.stage == v1alpha1.StageUpgrade, podStart: pod.created,
	}
	if pull.digest == "" {
		c.result.unnamed = append(c.result.unnamed, pull)
		return
	}
	c.result.pulls = append(c.result.pulls, pull)
	if c.facts.isNoted(pull, c.facts.findPin(st.def)) {
		return
	}
	task.ExclusiveUntil = c.clock().Add(recordLimit)
	if task.State == succeeded { // the pod is the only place that has the digest
		task.State = running
		task.Why = &rollout.Why{Reason: rollout.ReasonLedger, Text: "the digest of the image of package " + st.name + " is being recorded"}
	}
}

// isNoted reports whether what a pod pulled is recorded already.
func (f *facts) isNoted(pull imagePull, pin *v1alpha1.ImagePin) bool {
	if pin == nil {
		return false
	}
	isSame := !pull.isByTag || pull.digest == pin.Digest
	hasRoom := len(pin.Deviations) < mostDeviations
	return isSame || !hasRoom || slices.Contains(pin.Deviations, v1alpha1.ImageDeviation{Node: pull.node, Digest: pull.digest})
}

// hasPulledRecorded reports whether a pod pulled by tag what is recorded by now: it need not be replaced.
func (f *facts) hasPulledRecorded(st *step, pod *podInfo) bool {
	return isImageOf(st.def, pod.image) && findDigest(pod.imageID, st.def.Package.Image) == f.recordedDigest(st.def)
}

// isImageOf reports whether the image of a pod is that of a package by its tag, or by a digest: an admission controller may have
// put the digest beside the tag, or in its place.
func isImageOf(d *Definition, image string) bool {
	tag, isByDigest := imageTag(image), strings.Contains(image, "@")
	return repository(image) == d.Package.Image && (tag == versionTag(d.Package.Version) || tag == "" && isByDigest)
}

// readImage reads from a pod which image of a package it pulls, and what the node says that it is.
func (s *podInfo) readImage(p *corev1.Pod) {
	at := slices.IndexFunc(p.Spec.InitContainers, func(c corev1.Container) bool { return RunsPackageImage(c.Name) })
	if at < 0 {
		return
	}
	container := p.Spec.InitContainers[at]
	status := statusOf(p, container.Name)
	s.image = container.Image
	s.isPulling = status == nil || status.State.Running == nil && status.State.Terminated == nil && status.LastTerminationState.Terminated == nil
	if status != nil {
		s.imageID = status.ImageID
	}
}

// findDigest returns the digest in what a node says about an image, such as docker-pullable://REPOSITORY@DIGEST. It is empty
// without a digest of that repository: nothing else could be pulled by it.
func findDigest(imageID, repository string) string {
	if _, rest, hasScheme := strings.Cut(imageID, "://"); hasScheme {
		imageID = rest
	}
	name, digest, _ := strings.Cut(imageID, "@")
	if expandRepository(name) != expandRepository(repository) || !validDigest.MatchString(digest) {
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

// KeepRecordedPins returns new pins with the digests that are recorded already: the first one that was stored counts.
func KeepRecordedPins(recorded, pins []v1alpha1.ImagePin) []v1alpha1.ImagePin {
	out := slices.Clone(pins)
	for i, p := range out {
		at := slices.IndexFunc(recorded, func(r v1alpha1.ImagePin) bool { return keyOfPin(r) == keyOfPin(p) })
		if at >= 0 && recorded[at].Digest != p.Digest && validDigest.MatchString(recorded[at].Digest) {
			out[i] = recorded[at]
		}
	}
	return out
}

// imagePins returns the digests to record: those that are recorded and still of use, and those of new images, each as the
// first pod pulled it.
func (rep reporter) imagePins() []v1alpha1.ImagePin {
	if !rep.facts.pinsImages() {
		return nil
	}
	out := rep.keptPins()
	pulls := slices.Clone(rep.pulls)
	slices.SortFunc(pulls, func(a, b imagePull) int {
		return cmp.Or(a.podStart.Compare(b.podStart), cmp.Compare(a.node, b.node), cmp.Compare(a.key.String(), b.key.String()))
	})
	for _, pull := range pulls {
		at := slices.IndexFunc(out, func(p v1alpha1.ImagePin) bool { return keyOfPin(p) == pull.key })
		switch {
		case at >= 0:
			noteDeviation(&out[at], pull)
		case pull.isByTag && len(out) < mostPins:
			out = append(out, v1alpha1.ImagePin{
				Package: pull.key.name, Version: pull.key.version, Image: pull.key.image,
				Digest: pull.digest, Node: pull.node, Since: metav1.NewTime(node.WholeSeconds(rep.facts.Now)),
			})
		}
	}
	slices.SortFunc(out, func(a, b v1alpha1.ImagePin) int {
		return cmp.Or(cmp.Compare(a.Package, b.Package), cmp.Compare(a.Version, b.Version), cmp.Compare(a.Image, b.Image))
	})
	return out
}

// keptPins returns the recorded digests that are of use, also those that a revision kept, without deviations of nodes that are gone.
func (rep reporter) keptPins() []v1alpha1.ImagePin {
	isUsed := rep.usedVersions()
	isGone := func(d v1alpha1.ImageDeviation) bool {
		return !slices.ContainsFunc(rep.nodes, func(n *node.Node) bool { return n.Name == d.Node })
	}
	var out []v1alpha1.ImagePin
	for i := range rep.facts.Pins {
		p := rep.facts.Pins[i].DeepCopy()
		if !isUsed[p.Package+"|"+p.Version] || !validDigest.MatchString(p.Digest) || len(out) == mostPins {
			continue
		}
		if p.Deviations = slices.DeleteFunc(p.Deviations, isGone); len(p.Deviations) == 0 {
			p.Deviations = nil
		}
		out = append(out, *p)
	}
	return out
}

// noteDeviation adds a node that pulled something else by tag, and removes one that was installed from the recorded digest
// since.
func noteDeviation(pin *v1alpha1.ImagePin, pull imagePull) {
	isSame := !pull.isByTag || pull.digest == pin.Digest
	at := slices.IndexFunc(pin.Deviations, func(d v1alpha1.ImageDeviation) bool { return d.Node == pull.node })
	switch {
	case isSame && at >= 0 && pull.installs:
		pin.Deviations = slices.Delete(pin.Deviations, at, at+1)
	case isSame:
	case at >= 0:
		pin.Deviations[at].Digest = pull.digest
	case len(pin.Deviations) < mostDeviations:
		pin.Deviations = append(pin.Deviations, v1alpha1.ImageDeviation{Node: pull.node, Digest: pull.digest})
	}
}

// usedVersions returns the versions of packages, as in a nodeState, that the spec has or that a node records.
func (rep reporter) usedVersions() map[string]bool {
	out := map[string]bool{}
	for _, d := range rep.facts.Packages {
		out[d.key()] = true
	}
	for i := range rep.targets {
		for key := range rep.targets[i].on.State {
			out[key] = true
		}
	}
	return out
}
