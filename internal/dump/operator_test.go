// SPDX-FileCopyrightText: The Skyhook authors
// SPDX-License-Identifier: Apache-2.0

package dump

import (
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/skyhook-k8s/skyhook/internal/options"
)

// The operator works on its own node last, so a plan has to know that node: it is the leader's.
func TestOperatorNode(t *testing.T) {
	pod := func(name, node string, phase corev1.PodPhase) *corev1.Pod {
		return &corev1.Pod{
			ObjectMeta: metav1.ObjectMeta{Name: name, Namespace: "skyhook", Labels: map[string]string{"app": "operator"}},
			Spec:       corev1.PodSpec{NodeName: node}, Status: corev1.PodStatus{Phase: phase},
		}
	}
	onHost := pod("c", "n3", corev1.PodRunning)
	onHost.Spec.HostNetwork = true
	lease := func(holder string) *coordinationv1.Lease {
		return &coordinationv1.Lease{
			ObjectMeta: metav1.ObjectMeta{Name: options.LeaseName, Namespace: "skyhook"}, Spec: coordinationv1.LeaseSpec{HolderIdentity: &holder},
		}
	}
	deployment := &appsv1.Deployment{ObjectMeta: metav1.ObjectMeta{Name: "operator", Namespace: "skyhook"}}
	deployment.Spec.Selector = &metav1.LabelSelector{MatchLabels: map[string]string{"app": "operator"}}
	deployment.Spec.Template.Spec.Containers = []corev1.Container{{Name: "manager", Env: []corev1.EnvVar{
		{Name: "NODE_NAME", ValueFrom: &corev1.EnvVarSource{FieldRef: &corev1.ObjectFieldSelector{FieldPath: "spec.nodeName"}}},
	}}}
	for name, c := range map[string]struct {
		objects []client.Object
		want    string
	}{
		"no pod":              {nil, ""},
		"one pod":             {[]client.Object{pod("a", "n1", corev1.PodRunning), pod("b", "n2", corev1.PodPending)}, "n1"},
		"two pods, no lease":  {[]client.Object{pod("a", "n1", corev1.PodRunning), pod("b", "n2", corev1.PodRunning)}, ""},
		"the leader":          {[]client.Object{pod("a", "n1", corev1.PodRunning), pod("b", "n2", corev1.PodRunning), lease("b_1234")}, "n2"},
		"on the host network": {[]client.Object{pod("a", "n1", corev1.PodRunning), onHost, lease("n3_1234")}, "n3"},
		"another leader":      {[]client.Object{pod("a", "n1", corev1.PodRunning), pod("b", "n2", corev1.PodRunning), lease("laptop_1234")}, ""},
	} {
		live, err := New(nil, time.Now())
		if err != nil {
			t.Fatal(err)
		}
		for _, o := range append(c.objects, deployment) {
			if err := live.Put(o); err != nil {
				t.Fatal(err)
			}
		}
		p, err := New(live, time.Now())
		if err != nil {
			t.Fatal(err)
		}
		if err := p.FindOperator(t.Context(), "skyhook", func(*appsv1.Deployment) bool { return true }); err != nil {
			t.Fatal(err)
		}
		if p.Operator.Node != c.want {
			t.Errorf("%s: the operator's node is %q, want %q", name, p.Operator.Node, c.want)
		}
	}
}
