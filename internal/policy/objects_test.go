// SPDX-FileCopyrightText: The Skyhook authors
// SPDX-License-Identifier: Apache-2.0

package policy

import (
	"slices"
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/skyhook-k8s/skyhook/api/skyhook/v1alpha1"
)

// TestFindObjectProblems: each part of a check on objects that the API server cannot judge is named with its field.
func TestFindObjectProblems(t *testing.T) {
	good := v1alpha1.ObjectCheck{ObjectSelector: v1alpha1.ObjectSelector{APIVersion: "cilium.io/v2", Kind: "CiliumNode", Name: "$(NODE_NAME)"}, CEL: "object.metadata.name == node.metadata.name"}
	bad := v1alpha1.ObjectCheck{ObjectSelector: v1alpha1.ObjectSelector{APIVersion: "a/b/c", Kind: "Pod", Selector: "a like b"}, CEL: "size(object)"}
	p := &v1alpha1.DeploymentPolicy{ObjectMeta: metav1.ObjectMeta{Name: "careful"}}
	p.Spec.Proof = &v1alpha1.Proof{Objects: []v1alpha1.ObjectCheck{good}}
	if got := FindProblems(p, time.Time{}); got != nil {
		t.Errorf("a valid policy: %q", got)
	}
	p.Spec.Health = &v1alpha1.HealthGates{Objects: []v1alpha1.ObjectGate{{ObjectCheck: good}}}
	p.Spec.Proof.Objects[0] = bad
	want := []string{
		"health.objects[0].name of DeploymentPolicy careful has $(NODE_NAME), and a health gate is not about one node: name one object, or use proof",
		"health.objects[0].cel of DeploymentPolicy careful cannot be used: column 25: undeclared reference to 'node' (in container '')",
		`proof.objects[0].apiVersion of DeploymentPolicy careful "a/b/c" is not a group and version: write one such as ceph.rook.io/v1`,
		`proof.objects[0].selector of DeploymentPolicy careful cannot be used: unable to parse requirement: found 'like', expected: in, notin, =, ==, !=, gt, lt`,
		"proof.objects[0].cel of DeploymentPolicy careful cannot be used: it gives int, and must give true or false",
	}
	if got := FindProblems(p, time.Time{}); !slices.Equal(got, want) {
		t.Errorf("got\n%q, want\n%q", got, want)
	}
}

// TestMarkProblems says of labels of nodeMarks what is wrong with them.
func TestMarkProblems(t *testing.T) {
	selector := &metav1.LabelSelector{
		MatchLabels: map[string]string{"pool": "gpu"}, MatchExpressions: []metav1.LabelSelectorRequirement{{Key: "zone", Operator: metav1.LabelSelectorOpExists}},
	}
	for text, want := range map[string]string{
		"nvidia.com/gpu.deploy.driver=paused": "",
		"empty=":                              "",
		"a/b/c=x":                             "a/b/c=x, which is no label: write a key such as example.com/deploy",
		"skyhook.nvidia.com/name=x":           "skyhook.nvidia.com/name=x, which is not for others to set: use another label",
		"kubernetes.io/hostname=x":            "kubernetes.io/hostname=x, which is not for others to set: use another label",
		"node.kubernetes.io/exclude-from-external-load-balancers=": "node.kubernetes.io/exclude-from-external-load-balancers=, which is not for others to set: use another label",
		"pool=off": "pool=off, by which nodes are selected: select them by another label",
		"zone=off": "zone=off, by which nodes are selected: select them by another label",
	} {
		if want != "" {
			want = "labels of nodeMarks have " + want
		}
		key, value, _ := strings.Cut(text, "=")
		if got := strings.Join(FindMarkProblems(v1alpha1.NodeMarks{Labels: map[string]v1alpha1.LabelValue{key: v1alpha1.LabelValue(value)}}, selector), "; "); got != want {
			t.Errorf("%s: %q, want %q", text, got, want)
		}
	}
}
