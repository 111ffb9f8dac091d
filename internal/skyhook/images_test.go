// SPDX-FileCopyrightText: The Skyhook authors
// SPDX-License-Identifier: Apache-2.0

package skyhook

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"

	"github.com/skyhook-k8s/skyhook/api/skyhook/v1alpha1"
	"github.com/skyhook-k8s/skyhook/internal/node"
	"github.com/skyhook-k8s/skyhook/internal/rollout"
	"github.com/skyhook-k8s/skyhook/internal/skyhook/plan"
	"github.com/skyhook-k8s/skyhook/internal/skyhook/podstate"
	"github.com/skyhook-k8s/skyhook/internal/skyhook/report"
	"github.com/skyhook-k8s/skyhook/test/kubelet"
)

// setPull sets how far a pod's first container is, and what the node says that its image is: a letter stands for a digest of
// the right repository.
func (w *testCluster) setPull(p *corev1.Pod, state corev1.ContainerState, image string) {
	first := p.Spec.InitContainers[0]
	if len(image) == 1 {
		image = plan.Repository(first.Image) + "@" + testDigest(image)
	}
	kubelet.Create(p)
	kubelet.Status(p, 0).State, kubelet.Status(p, 0).ImageID = state, image
}

func testDigest(letter string) string { return "sha256:" + strings.Repeat(letter, 64) }

// shortDigests makes digests of one letter readable.
func shortDigests(text string) string {
	for _, letter := range strings.Split("abcdef", "") {
		text = strings.ReplaceAll(text, testDigest(letter), "sha256:"+letter)
	}
	return text
}

// storeImageStatus stores the status as the operator does, and prints what it says about images.
func (w *testCluster) storeImageStatus(s *v1alpha1.Skyhook) string {
	c := w.compile(s)
	was := s.Status
	status := c.Status(rollout.Report{}, nil)
	status.Internal.ImagePins = KeepRecordedPins(was.Internal.ImagePins, status.Internal.ImagePins)
	s.Status = status
	var b strings.Builder
	for _, p := range status.Internal.ImagePins {
		fmt.Fprintf(&b, "%s %s %s@%s by %s\n", p.Package, p.Version, p.Image, p.Digest, p.Node)
		for _, d := range p.Deviations {
			fmt.Fprintf(&b, "  %s has %s\n", d.Node, d.Digest)
		}
	}
	if condition := meta.FindStatusCondition(status.Conditions, v1alpha1.ConditionImagesPinned); condition != nil {
		fmt.Fprintf(&b, "%s=%s %s: %s\n", condition.Type, condition.Status, condition.Reason, condition.Message)
	}
	if l := status.PodLayout; l != nil {
		fmt.Fprintf(&b, "layout: %d compact, %d compatible: %s\n", l.Compact, l.Compatible, l.Message)
	}
	for _, e := range report.ImageEvents(was, status) {
		fmt.Fprintf(&b, "event %s %s: %s\n", e.Type, e.Reason, e.Message)
	}
	return shortDigests(b.String())
}

// TestFindDigest checks that only digests of the package's own repository count.
func TestFindDigest(t *testing.T) {
	d := testDigest("a")
	for _, c := range []struct{ imageID, repository, want string }{
		{"example.org/p@" + d, "example.org/p", d},
		{"docker-pullable://example.org/p@" + d, "example.org/p", d},
		{"example.org:5000/team/p@" + d, "example.org:5000/team/p", d},
		{"docker.io/library/p@" + d, "p", d},
		{"index.docker.io/library/p@" + d, "docker.io/p", d},
		{"docker.io/team/p@" + d, "team/p", d},
		{"localhost/p@" + d, "localhost/p", d},
		{"example.org/p@sha512:" + strings.Repeat("a", 128), "example.org/p", "sha512:" + strings.Repeat("a", 128)},
		{"example.org/other@" + d, "example.org/p", ""},
		{"evil.example/p@" + d, "example.org/p", ""},
		{"team/p@" + d, "example.org/team/p", ""},
		{"docker://" + d, "example.org/p", ""}, // the id of an image that no registry has
		{d, "example.org/p", ""},
		{"example.org/p", "example.org/p", ""},
		{"example.org/p@" + d + "x", "example.org/p", ""},
		{"example.org/p@sha256:" + strings.Repeat("A", 64), "example.org/p", ""},
		{"example.org/p@" + d + "@" + d, "example.org/p", ""},
		{"", "example.org/p", ""},
		{"@" + d, "", d},
	} {
		if got := podstate.FindDigest(c.imageID, c.repository); got != c.want {
			t.Errorf("findDigest(%q, %q) = %q, want %q", c.imageID, c.repository, got, c.want)
		}
	}
}

// TestForgedPodsAreIgnored checks that only a pod that this operator made for the present run of a task counts, with the image
// that it put into it, or with the digest that an admission controller found for it.
func TestForgedPodsAreIgnored(t *testing.T) {
	for name, forge := range map[string]func(*corev1.Pod){
		"nothing":             func(*corev1.Pod) {},
		"a digest beside it":  func(p *corev1.Pod) { p.Spec.InitContainers[0].Image += "@" + testDigest("a") },
		"a digest instead":    func(p *corev1.Pod) { p.Spec.InitContainers[0].Image = "example.org/p@" + testDigest("a") },
		"another repository":  func(p *corev1.Pod) { p.Spec.InitContainers[0].Image = "example.org/q:1.0.0@" + testDigest("a") },
		"another owner":       func(p *corev1.Pod) { p.OwnerReferences[0].UID = "other" },
		"another namespace":   func(p *corev1.Pod) { p.Namespace = "default" },
		"another Skyhook":     func(p *corev1.Pod) { p.Labels[v1alpha1.LabelName] = "other" },
		"another node":        func(p *corev1.Pod) { p.Spec.NodeName = "n2" },
		"another run":         func(p *corev1.Pod) { p.Annotations[podstate.AnnotationRun] = "other" },
		"another image":       func(p *corev1.Pod) { p.Spec.InitContainers[0].Image = "example.org/p:2.0.0" },
		"no package's image":  func(p *corev1.Pod) { p.Spec.InitContainers = p.Spec.InitContainers[1:] },
		"another's container": func(p *corev1.Pod) { p.Status.InitContainerStatuses[0].Name = "sidecar-init" },
	} {
		t.Run(name, func(t *testing.T) {
			w := newTestCluster(t)
			w.config.PinImages = new(true)
			s := w.apply("metadata: {name: demo}\nspec: {packages: {tuning: {version: 1.0.0, image: example.org/p}}}")
			w.addNode("n1")
			w.addNode("n2")
			w.applyAction(w.compile(s), rollout.Action{Verb: rollout.VerbAdmit, Node: "n1"})
			w.applyAction(w.compile(s), rollout.Action{Verb: rollout.VerbRun, Node: "n1", Task: "tuning|1.0.0/apply"})
			w.setPull(w.pods[0], corev1.ContainerState{Running: &corev1.ContainerStateRunning{}}, "a")
			forge(w.pods[0])
			pins := w.compile(s).Status(rollout.Report{}, nil).Internal.ImagePins
			isAdmitted := name == "nothing" || strings.HasPrefix(name, "a digest") // by an admission controller
			if isAdmitted != (len(pins) > 0) {
				t.Errorf("recorded %+v", pins)
			}
		})
	}
}

// TestFirstRecordedDigestStays checks that a status made from an older version does not replace a stored digest.
func TestFirstRecordedDigestStays(t *testing.T) {
	pin := func(version, letter string) v1alpha1.ImagePin {
		return v1alpha1.ImagePin{Package: "p", Version: version, Image: "example.org/p", Digest: testDigest(letter)}
	}
	got := KeepRecordedPins([]v1alpha1.ImagePin{pin("1.0.0", "a"), pin("2.0.0", "b")}, []v1alpha1.ImagePin{pin("2.0.0", "c"), pin("3.0.0", "d")})
	if len(got) != 2 || got[0].Digest != testDigest("b") || got[1].Digest != testDigest("d") {
		t.Errorf("kept %+v, want the stored digest of 2.0.0 and the new one of 3.0.0", got)
	}
}

// TestPinsOfSpecHaveRoom has a node with as many other versions as digests are kept: the digest of the spec's image is recorded all the
// same, and the stage that pulled it completes.
func TestPinsOfSpecHaveRoom(t *testing.T) {
	w := newTestCluster(t)
	w.config.PinImages = new(true)
	n := w.addNode("n1")
	s := w.apply("{metadata: {name: demo}, spec: {packages: {z: {version: 1.0.0, image: example.org/z}}}}")
	state := v1alpha1.NodeState{}
	for i := range plan.MostPins {
		name := fmt.Sprintf("p%03d", i)
		state[name+"|0.1.0"] = v1alpha1.PackageStatus{Name: name, Version: "0.1.0", Image: "example.org/p", Stage: v1alpha1.StageConfig, State: v1alpha1.StateComplete}
		s.Status.Internal.ImagePins = append(s.Status.Internal.ImagePins, v1alpha1.ImagePin{Package: name, Version: "0.1.0", Image: "example.org/p", Digest: testDigest("a"), Node: "n1"})
	}
	n.Annotations[v1alpha1.PrefixNodeState+"demo"] = node.FormatState(state)
	w.hangs["z|1.0.0/apply"] = true
	w.drive(s)
	w.setPull(w.podOf(s, "n1", "z|1.0.0/apply"), corev1.ContainerState{Running: &corev1.ContainerStateRunning{}}, "b")
	w.storeImageStatus(s)
	pins := s.Status.Internal.ImagePins
	if last := pins[len(pins)-1]; len(pins) != plan.MostPins || last.Package != "z" || last.Digest != testDigest("b") {
		t.Errorf("%d digests are recorded, the last one of %s", len(pins), last.Package)
	}
	delete(w.hangs, "z|1.0.0/apply")
	if ran := w.drive(s); !strings.Contains(ran, "z|1.0.0/config") {
		t.Errorf("the stage does not complete; it ran %q", ran)
	}
}

// TestPinsAtTheLimit has as many digests of other versions as are kept, or one less, beside those of the spec and those that nobody needs: a
// stage waits for its digest exactly where that will be recorded.
func TestPinsAtTheLimit(t *testing.T) {
	pinOf := func(name string) v1alpha1.ImagePin {
		return v1alpha1.ImagePin{Package: name, Version: "0.1.0", Image: "example.org/p", Digest: testDigest("a"), Node: "n1"}
	}
	for others, hasRoom := range map[int]bool{plan.MostPins - 2: true, plan.MostPins - 1: false} {
		w := newTestCluster(t)
		w.config.PinImages = new(true)
		n := w.addNode("n1")
		s := w.apply("{metadata: {name: demo}, spec: {packages: {z: {version: 0.1.0, image: example.org/p}}}}")
		s.Status.Internal.ImagePins = []v1alpha1.ImagePin{pinOf("z")}
		state := v1alpha1.NodeState{}
		for i := range others {
			name := fmt.Sprintf("p%03d", i)
			state[name+"|0.1.0"] = v1alpha1.PackageStatus{Name: name, Version: "0.1.0", Image: "example.org/p", Stage: v1alpha1.StageConfig, State: v1alpha1.StateComplete}
			s.Status.Internal.ImagePins = append(s.Status.Internal.ImagePins, pinOf(name), pinOf("unused-"+name))
		}
		n.Annotations[v1alpha1.PrefixNodeState+"demo"] = node.FormatState(state)
		pull := plan.ImagePull{Key: plan.ImageKey{Name: "y", Version: "0.1.0", Image: "example.org/p"}, Node: "n1", Digest: testDigest("b"), IsByTag: true}
		c := w.compile(s)
		c.pulls = []plan.ImagePull{pull}
		isRecorded := slices.ContainsFunc(c.Status(rollout.Report{}, nil).Internal.ImagePins, func(p v1alpha1.ImagePin) bool { return p.Package == "y" })
		if isNoted := c.facts.IsNoted(pull, nil); isNoted == hasRoom || isRecorded != hasRoom {
			t.Errorf("with %d others the digest is recorded: %v; nobody waits for that: %v", others, isRecorded, isNoted)
		}
	}
}
