// SPDX-FileCopyrightText: The Skyhook authors
// SPDX-License-Identifier: Apache-2.0

package nodeop_test

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/skyhook-k8s/skyhook/api/nodeop/v1alpha1"
	"github.com/skyhook-k8s/skyhook/internal/nodeop"
	"github.com/skyhook-k8s/skyhook/internal/nodeop/kairos"
	"github.com/skyhook-k8s/skyhook/internal/nodeop/render"
	"github.com/skyhook-k8s/skyhook/internal/pack"
)

var probeConfig = nodeop.Config{AgentImage: "example.org/agent:v1", Namespace: "skyhook", LabelKairos: true, PullSecrets: []corev1.LocalObjectReference{{Name: "registry"}}}

// probeEnv is an environment whose nodes are probed for Kairos.
type probeEnvironment struct {
	*environment
	hosts map[string]*pack.Kairos // what a probe finds; nil fails it
}

func newProbeEnvironment(t *testing.T, nodes ...string) *probeEnvironment {
	return &probeEnvironment{newEnvironment(t, nodes...), map[string]*pack.Kairos{}}
}

// pass plans and applies probes once, and returns the number of writes.
func (l *probeEnvironment) pass() int {
	l.t.Helper()
	views := l.input(&v1alpha1.NodeOp{}).Nodes
	looks := kairos.PlanProbes(views, l.pods, probeConfig, l.now)
	for _, e := range looks.Edits {
		n := l.node(e.Node)
		l.applyEdit(n, e.Edit)
		for key, value := range e.Edit.Labels {
			if value == nil {
				delete(n.Labels, key)
			} else {
				n.Labels[key] = *value
			}
		}
	}
	l.createObjects(render.Objects{Pods: looks.Create})
	for _, p := range looks.Delete {
		l.pods = slices.DeleteFunc(l.pods, func(q *corev1.Pod) bool { return q == p })
	}
	return len(looks.Edits) + len(looks.Create) + len(looks.Delete)
}

// finishProbes ends every probe.
func (l *probeEnvironment) finishProbes() {
	for _, p := range l.pods {
		if nodeop.IsPodFinished(p) || p.Labels[v1alpha1.LabelApp] != v1alpha1.AppLabeler {
			continue
		}
		if k := l.hosts[p.Spec.NodeName]; k != nil {
			p.Status.Phase = corev1.PodSucceeded
			p.Status.ContainerStatuses = []corev1.ContainerStatus{{Name: "node-labeler", State: corev1.ContainerState{
				Terminated: &corev1.ContainerStateTerminated{Message: string(k.Encode())}}}}
		} else {
			p.Status.Phase = corev1.PodFailed
		}
	}
}

func (l *probeEnvironment) runToEnd() {
	l.t.Helper()
	for range 20 {
		if l.pass() == 0 {
			return
		}
		l.finishProbes()
	}
	l.t.Fatal("it does not end")
}

func kairosHost(version string) *pack.Kairos {
	return &pack.Kairos{Runs: true, Boot: pack.KairosActive, Release: map[string]string{
		"ID": "kairos", "FAMILY": "opensuse", "FLAVOR": "opensuse", "FLAVOR_RELEASE": "leap-15.6", "VARIANT": "standard", "RELEASE": "v3.4.2",
		"MODEL": "generic", "ARCH": "amd64", "TRUSTED_BOOT": "false", "FIPS": "false", "SOFTWARE_VERSION_PREFIX": "k3s",
		"SOFTWARE_VERSION": "v1.30.11+k3s1", "NAME": "kairos-standard", "ID_LIKE": "kairos-standard", "INIT_VERSION": "v0.5.0", "VERSION": version,
		"BUG_REPORT_URL": "https://example.org/issues", "HOME_URL": "https://example.org",
	}}
}

// Nodes that run Kairos get the documented labels and annotations, others get none of them, and no pod is left.
func TestNodesAreLabelled(t *testing.T) {
	l := newProbeEnvironment(t, "n1", "n2", "n3")
	l.hosts["n1"], l.hosts["n2"], l.hosts["n3"] = kairosHost("v3.4.2"), &pack.Kairos{}, &pack.Kairos{Runs: true, Boot: pack.KairosUnknown}
	for _, n := range l.nodes {
		n.Labels["kairos.io/mine"], n.Annotations["kairos.io/theirs"] = "x", "y" // of others
	}
	l.runToEnd()
	var lines []string
	for _, n := range l.nodes {
		for _, key := range slices.Sorted(maps.Keys(n.Labels)) {
			lines = append(lines, n.Name+" label "+key+"="+n.Labels[key])
		}
		for _, key := range slices.Sorted(maps.Keys(n.Annotations)) {
			lines = append(lines, n.Name+" annotation "+key+"="+n.Annotations[key])
		}
	}
	compareGolden(t, "labels.txt", strings.Join(lines, "\n")+"\n")
	requireEqual(t, "pods", len(l.pods), 0)
	requireEqual(t, "pods made", len(l.created), 3)
}

// The probe can read /etc and nothing else.
func TestKairosProbe(t *testing.T) {
	l := newProbeEnvironment(t, "n1")
	compareGolden(t, "look.pod.yaml", toYAML(t, kairos.PlanProbes(l.nodes, nil, probeConfig, l.now).Create[0]))
}

// Each boot is probed once. Outdated labels are removed, and labels of others stay.
func TestProbesOncePerBoot(t *testing.T) {
	l := newProbeEnvironment(t, "n1")
	n := l.node("n1")
	l.hosts["n1"] = kairosHost("v3.4.2")
	l.runToEnd()
	l.runToEnd()
	requireEqual(t, "pods made", len(l.created), 1)
	n.BootID = "boot-2"
	after := kairosHost("v3.5.0")
	after.Boot = pack.KairosPassive
	delete(after.Release, "FLAVOR")
	l.hosts["n1"] = after
	l.runToEnd()
	requireEqual(t, "pods made", len(l.created), 2)
	requireEqual(t, "version", n.Annotations["kairos.io/version"], "v3.5.0")
	requireEqual(t, "system", n.Labels["kairos.io/boot-state"], pack.KairosPassive)
	_, still := n.Labels["kairos.io/flavor"]
	requireEqual(t, "flavor", still, false)
	delete(n.Labels, v1alpha1.LabelManaged) // a removed label is set again
	l.runToEnd()
	requireEqual(t, "managed", n.Labels[v1alpha1.LabelManaged], "true")
	n.BootID, l.hosts["n1"] = "boot-3", &pack.Kairos{} // reinstalled
	n.Labels["kairos.io/mine"] = "x"
	l.runToEnd()
	requireEqual(t, "labels", fmt.Sprint(n.Labels), "map[kairos.io/mine:x]")
	requireEqual(t, "annotations", fmt.Sprint(n.Annotations), "map[operator.kairos.io/looked-at:boot-3 other]")
}

// A new node of the same name is probed again.
func TestProbesNewNode(t *testing.T) {
	l := newProbeEnvironment(t, "n1")
	l.hosts["n1"] = &pack.Kairos{}
	l.runToEnd()
	l.removeNode("n1")
	n := l.addNode("n1")
	n.UID, l.hosts["n1"] = "another", kairosHost("v1")
	l.runToEnd()
	requireEqual(t, "managed", n.Labels[v1alpha1.LabelManaged], "true")
}

// A node that opted out is not probed, and a label that somebody set on a node without Kairos stays.
func TestOptOut(t *testing.T) {
	l := newProbeEnvironment(t, "n1", "n2")
	l.node("n1").Labels[v1alpha1.LabelManaged], l.node("n2").Labels[v1alpha1.LabelManaged] = "false", "true"
	l.hosts["n1"], l.hosts["n2"] = kairosHost("v1"), &pack.Kairos{}
	l.runToEnd()
	requireEqual(t, "n1", fmt.Sprint(l.node("n1").Labels, l.node("n1").Annotations), "map[kairos.io/managed:false] map[]")
	requireEqual(t, "n2", l.node("n2").Labels[v1alpha1.LabelManaged], "true")
	requireEqual(t, "pods made", len(l.created), 1)
	off := probeConfig
	off.LabelKairos = false
	requireEqual(t, "switched off", len(kairos.PlanProbes(l.nodes, nil, off, l.now).Create), 0)
}

// Few nodes are probed at the same time. One that is not ready does not count, and a failed probe is retried later.
func TestProbesAreLimited(t *testing.T) {
	const maxProbes = 10
	var names []string
	for i := range 25 {
		names = append(names, fmt.Sprintf("n%02d", i))
	}
	l := newProbeEnvironment(t, names...)
	l.pass()
	requireEqual(t, "pods", len(l.pods), maxProbes)
	l.pass()
	requireEqual(t, "pods", len(l.pods), maxProbes)
	l.nodes[0].Ready = false
	l.pass()
	requireEqual(t, "pods", len(l.pods), maxProbes+1)
	l.nodes[0].Ready = true
	l.finishProbes() // all fail
	l.runToEnd()
	requireEqual(t, "pods made", len(l.created), 25)
	requireEqual(t, "pods", len(l.pods), 25)
	looks := kairos.PlanProbes(l.input(&v1alpha1.NodeOp{}).Nodes, l.pods, probeConfig, l.now)
	requireEqual(t, "again", looks.RetryAt.Sub(l.now), time.Hour)
	l.now = l.now.Add(time.Hour)
	for _, name := range names {
		l.hosts[name] = &pack.Kairos{}
	}
	l.runToEnd()
	requireEqual(t, "pods", len(l.pods), 0)
}

// A probe of which nothing is heard has failed: it gives its place to another node, and is made again later.
func TestSilentProbeGivesItsPlace(t *testing.T) {
	const maxProbes = 10
	var names []string
	for i := range maxProbes + 1 {
		names = append(names, fmt.Sprintf("n%02d", i))
	}
	l := newProbeEnvironment(t, names...)
	plan := func() kairos.Probes {
		return kairos.PlanProbes(l.input(&v1alpha1.NodeOp{}).Nodes, l.pods, probeConfig, l.now)
	}
	l.pass()
	requireEqual(t, "probes while ten hang", len(plan().Create), 0)
	requireEqual(t, "looked at again", plan().RetryAt.Sub(l.now), 20*time.Minute)
	l.now = l.now.Add(20 * time.Minute)
	l.pass()
	requireEqual(t, "pods", len(l.pods), maxProbes+1)
	requireEqual(t, "deleted before the hour is over", len(plan().Delete), 0)
	l.now = l.now.Add(40 * time.Minute)
	requireEqual(t, "deleted after an hour", len(plan().Delete), maxProbes)
}

// A pod that has only some marks of a probe is ignored.
func TestForeignPodIsIgnored(t *testing.T) {
	l := newProbeEnvironment(t, "n1")
	l.hosts["n1"] = &pack.Kairos{}
	l.runToEnd()
	for _, p := range []metav1.ObjectMeta{
		{Name: "a", Namespace: "team", Labels: map[string]string{v1alpha1.LabelApp: v1alpha1.AppLabeler, v1alpha1.LabelNode: "n1"}},
		{Name: "b", Namespace: "skyhook", Labels: map[string]string{v1alpha1.LabelApp: v1alpha1.AppLabeler}},
		{Name: "c", Namespace: "skyhook", Labels: map[string]string{v1alpha1.LabelNode: "n1"}},
	} {
		l.pods = append(l.pods, &corev1.Pod{ObjectMeta: p})
	}
	l.now = l.now.Add(time.Minute)
	requireEqual(t, "changes", l.pass(), 0)
}

// TestSanitize checks the documented examples.
func TestSanitize(t *testing.T) {
	for in, out := range map[string]string{
		"v1.32.4+k3s1": "v1.32.4-k3s1", "plain": "plain", "": "", "+++": "", "-x-": "x", "_a.b_": "a.b", "a b/c": "a-b-c",
		strings.Repeat("a", 70): strings.Repeat("a", 63), strings.Repeat("a", 62) + "-b": strings.Repeat("a", 62), "é": "",
	} {
		requireEqual(t, in, kairos.Sanitize(in), out)
	}
}
