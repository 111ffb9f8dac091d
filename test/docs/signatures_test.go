// SPDX-FileCopyrightText: The Skyhook authors
// SPDX-License-Identifier: Apache-2.0

package docs

import (
	"bytes"
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"sigs.k8s.io/yaml"
)

// signaturePolicy is what docs/kyverno/verify-images.yaml says about which pods it is for.
type signaturePolicy struct {
	Spec struct {
		Rules []struct {
			Match struct {
				Any []struct {
					Resources struct {
						Kinds, Namespaces []string
						Selector          metav1.LabelSelector
					}
				}
			}
		}
	}
}

// TestSignaturePolicySelectsOurPods checks that the policy about signatures selects the pods that this version creates, and
// no other pod.
func TestSignaturePolicySelectsOurPods(t *testing.T) {
	text, err := os.ReadFile("../../docs/kyverno/verify-images.yaml")
	if err != nil {
		t.Fatal(err)
	}
	var p signaturePolicy
	if err := yaml.Unmarshal(text, &p); err != nil {
		t.Fatal(err)
	}
	isSelected := func(namespace string, on map[string]string) bool {
		for _, any := range p.Spec.Rules[0].Match.Any {
			selector, err := metav1.LabelSelectorAsSelector(&any.Resources.Selector)
			if err != nil {
				t.Fatal(err)
			}
			inNamespace := len(any.Resources.Namespaces) == 0 || any.Resources.Namespaces[0] == namespace
			if inNamespace && selector.Matches(labels.Set(on)) && any.Resources.Kinds[0] == "Pod" {
				return true
			}
		}
		return false
	}
	found := 0
	for _, pattern := range []string{"../../internal/skyhook/testdata/golden/*.pod.yaml", "../../internal/nodeop/testdata/*.yaml"} {
		files, err := filepath.Glob(pattern)
		if err != nil || len(files) == 0 {
			t.Fatalf("%s: %v, %v", pattern, files, err)
		}
		for _, file := range files {
			for _, pod := range podsIn(t, file) {
				found++
				if !isSelected(pod.Namespace, pod.Labels) {
					t.Errorf("%s: the policy does not select %s/%s with %v", filepath.Base(file), pod.Namespace, pod.Name, pod.Labels)
				}
			}
		}
	}
	if found < 8 {
		t.Errorf("%d pods were found", found)
	}
	if isSelected("default", map[string]string{"app": "web"}) || isSelected("default", map[string]string{"skyhook.nvidia.com/name": "forged"}) {
		t.Error("the policy selects pods of others")
	}
}

// podsIn returns the pods of a golden file, and those that its Jobs create.
func podsIn(t *testing.T, file string) []corev1.Pod {
	t.Helper()
	text, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	var out []corev1.Pod
	for _, part := range bytes.Split(text, []byte("\n---\n")) {
		raw, err := yaml.YAMLToJSON(part)
		if err != nil {
			continue // other text
		}
		var kind metav1.TypeMeta
		_ = json.Unmarshal(raw, &kind) // other text has no kind
		switch {
		case kind.Kind == "Pod":
			var p corev1.Pod
			if err := json.Unmarshal(raw, &p); err != nil {
				t.Fatalf("%s: %v", file, err)
			}
			out = append(out, p)
		case kind.Kind == "Job" && strings.Contains(string(raw), `"template"`):
			var j batchv1.Job
			if err := json.Unmarshal(raw, &j); err != nil {
				t.Fatalf("%s: %v", file, err)
			}
			out = append(out, corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: j.Namespace, Name: j.Name, Labels: j.Spec.Template.Labels}})
		}
	}
	return out
}
