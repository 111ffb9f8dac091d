// SPDX-FileCopyrightText: The Skyhook authors
// SPDX-License-Identifier: Apache-2.0

package policy

import (
	"fmt"
	"reflect"
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/skyhook-k8s/skyhook/api/skyhook/v1alpha1"
	"github.com/skyhook-k8s/skyhook/internal/rollout"
)

func newTemplate(text string) *runtime.RawExtension { return &runtime.RawExtension{Raw: []byte(text)} }

// TestRenderObject: the name of the node stands in any string of an object, and numbers stay as they are.
func TestRenderObject(t *testing.T) {
	step := &v1alpha1.HandoverStep{Object: newTemplate(`{"apiVersion": "a/v1", "kind": "Request", "metadata": {"name": "x-$(NODE_NAME)"},
		"spec": {"nodes": ["$(NODE_NAME)", {"of": "$(NODE_NAME).$(NODE_NAME)"}], "priority": 1000000, "force": false}}`)}
	got, err := RenderObject(step, "n1")
	want := map[string]any{"apiVersion": "a/v1", "kind": "Request", "metadata": map[string]any{"name": "x-n1"},
		"spec": map[string]any{"nodes": []any{"n1", map[string]any{"of": "n1.n1"}}, "priority": int64(1000000), "force": false}}
	if err != nil || !reflect.DeepEqual(got.Object, want) {
		t.Errorf("it is %v, %v; want %v", got, err, want)
	}
	if got, err := RenderObject(&v1alpha1.HandoverStep{}, "n1"); got != nil || err != nil {
		t.Errorf("a step without an object creates %v, %v", got, err)
	}
}

// TestHandoverProblems: what of a step is invalid, with its field.
func TestHandoverProblems(t *testing.T) {
	const object = `{"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "x"}, "data": {"a": "%s"}}`
	for want, step := range map[string]v1alpha1.HandoverStep{
		"": {CEL: "object.data.ok && node.spec.unschedulable", Object: newTemplate(fmt.Sprintf(object, strings.Repeat("x", 4000)))},
		"handover[0].object of DeploymentPolicy p has 4":                                             {CEL: "true", Object: newTemplate(fmt.Sprintf(object, strings.Repeat("x", 4050)))},
		"handover[0].object of DeploymentPolicy p cannot be used: it needs apiVersion":               {CEL: "true", Object: newTemplate(`{"apiVersion": "v1", "kind": "ConfigMap"}`)},
		"handover[0].object of DeploymentPolicy p cannot be used: json":                              {CEL: "true", Object: newTemplate(`[1]`)},
		"handover[0].objects.selector of DeploymentPolicy p cannot be used":                          {CEL: "true", Objects: &v1alpha1.ObjectSelector{APIVersion: "v1", Kind: "Pod", Selector: "a like b"}},
		"handover[0].cel of DeploymentPolicy p cannot be used: column 1: undeclared reference to 'o": {CEL: "object.ok"},
		"handover[0].cel of DeploymentPolicy p cannot be used: it gives int":                         {CEL: "1 + 1"},
	} {
		p := &v1alpha1.DeploymentPolicy{ObjectMeta: metav1.ObjectMeta{Name: "p"}}
		p.Spec.Handover = []v1alpha1.HandoverStep{step}
		got := strings.Join(FindProblems(p, time.Time{}), "; ")
		if want == "" && got != "" || !strings.HasPrefix(got, want) {
			t.Errorf("the problem is %q, want %q", got, want)
		}
	}
}

// TestHandoverSteps: what the engine knows of steps. Without a timeout they have half an hour, and are waited for afterwards.
func TestHandoverSteps(t *testing.T) {
	none, hour := metav1.Duration{}, metav1.Duration{Duration: time.Hour}
	got := HandoverSteps([]v1alpha1.HandoverStep{
		{Name: "a"}, {Name: "b", Timeout: &none, OnTimeout: v1alpha1.HandoverProceed}, {Name: "c", Timeout: &hour, OnTimeout: v1alpha1.HandoverGiveBack},
	})
	want := []rollout.HandoverStep{{Name: "a", Timeout: 30 * time.Minute}, {Name: "b", OnTimeout: rollout.DrainForce}, {Name: "c", Timeout: time.Hour, OnTimeout: rollout.DrainSkip}}
	if !reflect.DeepEqual(got, want) {
		t.Errorf("they are %+v, want %+v", got, want)
	}
}
