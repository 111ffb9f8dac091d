// SPDX-FileCopyrightText: The Skyhook authors
// SPDX-License-Identifier: Apache-2.0

package cluster_test

import (
	"reflect"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	nodeopv1 "github.com/skyhook-k8s/skyhook/api/nodeop/v1alpha1"
	"github.com/skyhook-k8s/skyhook/api/skyhook/v1alpha1"
	"github.com/skyhook-k8s/skyhook/internal/node"
	"github.com/skyhook-k8s/skyhook/internal/nodeop"
	"github.com/skyhook-k8s/skyhook/internal/nodeop/render"
	"github.com/skyhook-k8s/skyhook/internal/skyhook"
	"github.com/skyhook-k8s/skyhook/internal/skyhook/plan"
)

// TestPoliciesRunNothing: whoever may edit policies is not trusted with what runs on nodes. A policy of which every field is set, also one
// that is added tomorrow, makes the same pods and Jobs as one with nothing but a budget.
func TestPoliciesRunNothing(t *testing.T) {
	bare, full := &v1alpha1.DeploymentPolicy{}, &v1alpha1.DeploymentPolicy{}
	fill(reflect.ValueOf(&full.Spec).Elem())
	n := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "n1", UID: "n1"}}
	n.Status.Conditions = []corev1.NodeCondition{{Type: corev1.NodeReady, Status: corev1.ConditionTrue}}
	parsed := node.Parse(n, nil)
	s := &v1alpha1.Skyhook{ObjectMeta: metav1.ObjectMeta{Name: "demo", UID: "demo"}}
	s.Spec.DeploymentPolicy = "policy"
	s.Spec.Packages = map[string]v1alpha1.Package{"tuning": {Version: "1.0.0", Image: "example.org/tuning", Interrupt: &v1alpha1.Interrupt{Type: v1alpha1.InterruptReboot}}}
	op := &nodeopv1.NodeOp{ObjectMeta: metav1.ObjectMeta{Name: "demo", UID: "demo"}}
	op.Spec.Image, op.Spec.Command, op.Spec.RebootOnSuccess = "example.org/op", []string{"true"}, new(true)
	makes := func(p *v1alpha1.DeploymentPolicy) []any {
		in := &plan.Input{Skyhook: s, Policy: p, Nodes: []*node.Node{parsed}, Now: time.Unix(1e9, 0), Config: plan.Config{Namespace: "skyhook", AgentImage: "agent:1", Prepull: new(true)}}
		c := skyhook.Compile(in)
		pods := c.DryRunPods(parsed, func(string) bool { return false })
		if len(pods) == 0 || c.PullPod(parsed) == nil {
			t.Fatalf("the Skyhook makes no pods: %v", c.Rollout)
		}
		return []any{pods, c.PullPod(parsed), render.DryRunObjects(nodeop.NewOperation(op, p), nodeop.Config{}, parsed)}
	}
	if a, b := makes(bare), makes(full); !equality.Semantic.DeepEqual(a, b) {
		t.Errorf("a policy changes what runs on nodes:\n%+v\n%+v", a, b)
	}
}

// fill sets every field of a policy.
func fill(v reflect.Value) {
	switch v.Kind() {
	case reflect.Pointer:
		v.Set(reflect.New(v.Type().Elem()))
		fill(v.Elem())
	case reflect.Struct:
		for i := range v.NumField() {
			fill(v.Field(i))
			if v.Type().Field(i).Name == "Schedule" {
				v.Field(i).SetString("0 0 * * *")
			}
		}
	case reflect.Slice:
		v.Set(reflect.MakeSlice(v.Type(), 1, 1))
		fill(v.Index(0))
	case reflect.Map:
		key, value := reflect.New(v.Type().Key()).Elem(), reflect.New(v.Type().Elem()).Elem()
		fill(key)
		fill(value)
		v.Set(reflect.MakeMap(v.Type()))
		v.SetMapIndex(key, value)
	case reflect.Bool:
		v.SetBool(true)
	case reflect.Int, reflect.Int32, reflect.Int64:
		v.SetInt(50)
	case reflect.Uint8: // of the object of a handover, which has no decoded form
		v.SetUint('x')
	case reflect.Interface:
	case reflect.String:
		v.SetString("x" + strings.ToLower(v.Type().Name()))
	default:
		panic("a policy has a field of a kind that this test does not set: " + v.Kind().String())
	}
}
