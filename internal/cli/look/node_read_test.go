// SPDX-FileCopyrightText: The Skyhook authors
// SPDX-License-Identifier: Apache-2.0

package look

import (
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/skyhook-k8s/skyhook/api/skyhook/v1alpha1"
	"github.com/skyhook-k8s/skyhook/internal/cluster"
	"github.com/skyhook-k8s/skyhook/internal/rollout"
	"github.com/skyhook-k8s/skyhook/internal/view"
)

// TestMayHaveLog: the log of a stage that succeeded is read while its pod exists, with no request otherwise.
func TestMayHaveLog(t *testing.T) {
	p := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{
			Labels:      map[string]string{v1alpha1.LabelName: "demo"},
			Annotations: map[string]string{"skyhook.nvidia.com/package": `{"name":"foo","version":"1.0.0","skyhook":"demo","stage":"apply","image":"r/foo"}`},
		},
		Spec: corev1.PodSpec{NodeName: "n1", InitContainers: []corev1.Container{{Name: "foo-init"}, {Name: "foo-apply"}}},
	}
	v := &view.Cluster{Objects: &cluster.Objects{}}
	v.Objects.Pods = []*corev1.Pod{p}
	for _, c := range []struct {
		of, node, label string
		state           rollout.State
		want            bool
	}{
		{"Skyhook/demo", "n1", "foo apply", rollout.StateDone, true},
		{"Skyhook/demo", "n1", "foo config", rollout.StateDone, false},
		{"Skyhook/demo", "n2", "foo apply", rollout.StateDone, false},
		{"Skyhook/other", "n1", "foo apply", rollout.StateDone, false},
		{"Skyhook/demo", "n2", "foo config", rollout.StateFailing, true},
		{"Skyhook/demo", "n1", "foo apply", rollout.StatePending, false},
		{"NodeOp/default/run", "n1", "command", rollout.StateDone, true},
	} {
		if got := mayHaveLog(v, rollout.ParseRef(c.of), c.node, &view.Stage{Label: c.label, State: string(c.state)}); got != c.want {
			t.Errorf("%+v: %v", c, got)
		}
	}
}
