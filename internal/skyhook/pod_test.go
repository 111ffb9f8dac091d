// SPDX-FileCopyrightText: The Skyhook authors
// SPDX-License-Identifier: Apache-2.0

package skyhook

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/validation"

	"github.com/skyhook-k8s/skyhook/internal/pack"
	"github.com/skyhook-k8s/skyhook/internal/rollout"
	"github.com/skyhook-k8s/skyhook/internal/skyhook/plan"
)

// TestNames checks that Kubernetes accepts every name, and that names are deterministic.
func TestNames(t *testing.T) {
	long := strings.Repeat("long-name.", 30)
	for _, parts := range [][]string{
		{"demo", "tuning", "1.0.0", "apply", "n1"}, {"Demo", "a_b", "1.0.0+Build", "apply", long}, {long, "x", "y", "z", "n"}, {"", "", ""},
	} {
		name := plan.SafeName(63, parts...)
		if errs := validation.IsDNS1123Subdomain(strings.TrimLeft(name, "-")); len(errs) > 0 || len(name) > 63 {
			t.Errorf("%q of %v: %v", name, parts, errs)
		}
		if name != plan.SafeName(63, parts...) {
			t.Errorf("%v has two names", parts)
		}
	}
	for _, c := range [][2][]string{
		{{"a", "1.0"}, {"a", "1-0"}}, {{"base-gpu", "worker-1", "metadata"}, {"base", "gpu-worker-1", "metadata"}},
		{{"a-uninstall", "interrupt", "reboot", "n1"}, {"a", "uninstall-interrupt", "reboot", "n1"}},
	} {
		if plan.SafeName(63, c[0]...) == plan.SafeName(63, c[1]...) {
			t.Errorf("%v and %v share a name", c[0], c[1])
		}
	}
	for version, want := range map[string]string{"1.2.3": "tuning-1.2.3", "1.2.3+build.7": "tuning-1.2.3_build.7"} {
		got := plan.LabelValue("tuning-" + version)
		if got != want || len(validation.IsValidLabelValue(got)) > 0 {
			t.Errorf("label of version %s is %q", version, got)
		}
	}
	if got := plan.ConfigMapName("Demo", "tuning", "1.0.0+B"); got != "demo-tuning-1.0.0-b" || len(validation.IsDNS1123Subdomain(got)) > 0 {
		t.Errorf("the ConfigMap is called %q", got)
	}
	for image, want := range map[string][2]string{
		"ghcr.io/a/b":                      {"ghcr.io/a/b", ""},
		"ghcr.io/a/b:1.0":                  {"ghcr.io/a/b", "1.0"},
		"registry:5000/a/b":                {"registry:5000/a/b", ""},
		"registry:5000/a/b:v1":             {"registry:5000/a/b", "v1"},
		"registry:5000/a/b:v1@sha256:abcd": {"registry:5000/a/b", "v1"},
		"a/b@sha256:abcd":                  {"a/b", ""},
	} {
		if got := [2]string{plan.Repository(image), plan.ImageTag(image)}; got != want {
			t.Errorf("%s is %v, want %v", image, got, want)
		}
	}
}

// TestEnvOrder checks the order: the package's own variables, the documented ones in their order, then additional ones.
func TestEnvOrder(t *testing.T) {
	w := newTestCluster(t)
	s := w.apply(`{metadata: {name: demo}, spec: {packages: {tuning: {version: 1.0.0, image: example.org/p, env: [{name: B, value: "1"}, {name: A, value: "2"}]}}}}`)
	w.addNode("n1")
	w.applyAction(w.compile(s), rollout.Action{Verb: rollout.VerbAdmit, Node: "n1", Order: 7})
	w.applyAction(w.compile(s), rollout.Action{Verb: rollout.VerbRun, Node: "n1", Task: "tuning|1.0.0/apply"})
	pod := w.pods[0]
	var names []string
	for _, e := range pod.Spec.InitContainers[1].Env {
		names = append(names, e.Name)
		if e.Name == pack.EnvNodeOrder && e.Value != "7" {
			t.Errorf("the order is %s", e.Value)
		}
	}
	want := []string{"B", "A", "SKYHOOK_LOG_DIR", "SKYHOOK_ROOT_DIR", "COPY_RESOLV", "SKYHOOK_RESOURCE_ID", "SKYHOOK_NODE_ORDER",
		"SKYHOOK_RUN_ID", "SKYHOOK_CONFIG_DIGEST", "SKYHOOK_DEADLINE", "SKYHOOK_STAGE_TIMEOUT", "SKYHOOK_POD_UID"}
	if !slices.Equal(names, want) {
		t.Errorf("the environment is %v", names)
	}
	if first := pod.Spec.InitContainers[0]; len(first.Env) != 2 || first.Env[0].Name != "SKYHOOK_DIR" {
		t.Errorf("the copy gets %v", first.Env)
	}
	for _, c := range pod.Spec.InitContainers {
		if c.ImagePullPolicy != "" {
			t.Errorf("%s has pull policy %s: Kubernetes should choose", c.Name, c.ImagePullPolicy)
		}
	}
	w.config.AlwaysPull = true
	w.pods = nil
	w.applyAction(w.compile(s), rollout.Action{Verb: rollout.VerbRun, Node: "n1", Task: "tuning|1.0.0/apply"})
	if w.pods[0].Spec.InitContainers[0].ImagePullPolicy != corev1.PullAlways {
		t.Error("the flag does not force Always")
	}
}

// TestCompactVolumes: whatever packages are called, each volume of their pod has a name of its own.
func TestCompactVolumes(t *testing.T) {
	for _, names := range [][]string{{"pod-info", "progress", "other"}, {"root-mount", "other"}} {
		w := newTestCluster(t)
		w.config.PodLayout = plan.LayoutCompact
		packages, after := "", ""
		for _, name := range names {
			packages += fmt.Sprintf("    %s: {version: 1.0.0, image: registry.example/p, configMap: {a: b}%s}\n", name, after)
			after = fmt.Sprintf(", dependsOn: {%s: 1.0.0}", name)
		}
		s := w.apply("metadata: {name: demo}\nspec:\n  nodeSelectors: {matchLabels: {kubernetes.io/hostname: n1}}\n  packages:\n" + packages)
		w.addNode("n1")
		w.hangs[names[0]+"|1.0.0/apply"] = true
		w.drive(s)
		configs, seen := 0, map[string]bool{}
		for _, v := range w.pods[0].Spec.Volumes {
			if v.ConfigMap != nil {
				configs++
			}
			if seen[v.Name] {
				t.Errorf("two volumes are called %s", v.Name)
			}
			seen[v.Name] = true
		}
		if packages := len(w.pods[0].Spec.Containers) / 2; configs != packages {
			t.Errorf("of %d packages the pod mounts %d configMaps", packages, configs)
		}
	}
}

// TestSharedPodsFitEtcd has packages that each fit in a pod, and that would not fit in one together.
func TestSharedPodsFitEtcd(t *testing.T) {
	for size, pods := range map[int]int{20 << 10: 1, 230 << 10: 8} {
		w := newTestCluster(t)
		w.config.PodLayout = plan.LayoutCompact
		w.addNode("n1")
		packages, after := "", ""
		for _, name := range []string{"a", "b", "c", "d"} {
			packages += fmt.Sprintf("    %s: {version: 1.0.0, image: example.org/p, env: [{name: BIG, value: %q}]%s}\n", name, strings.Repeat("x", size), after)
			after = fmt.Sprintf(", dependsOn: {%s: 1.0.0}", name)
		}
		s := w.apply("metadata: {name: demo}\nspec:\n  packages:\n" + packages)
		w.hangs["a|1.0.0/apply"] = true
		w.drive(s)
		if size := w.pods[0].Size(); size > 3<<19 {
			t.Errorf("pod %s has %d bytes in %d containers", w.pods[0].Name, size, len(w.pods[0].Spec.Containers))
		}
		delete(w.hangs, "a|1.0.0/apply")
		if ran := 1 + len(strings.Split(w.drive(s), "\n")); ran != max(2, pods) {
			t.Errorf("with an env of %d bytes %d pods ran: %s", size, ran, w.log)
		}
	}
}
