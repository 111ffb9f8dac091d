// SPDX-FileCopyrightText: The Skyhook authors
// SPDX-License-Identifier: Apache-2.0

package cluster

import (
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/skyhook-k8s/skyhook/api/skyhook/v1alpha1"
	"github.com/skyhook-k8s/skyhook/internal/node"
)

// TestTimeNeverGoesBack shows that an operator whose clock is behind the recorded times uses those times; otherwise every
// wait would begin anew.
func TestTimeNeverGoesBack(t *testing.T) {
	recorded := time.Date(2026, 5, 1, 12, 0, 0, 0, time.UTC)
	n := node.Parse(&corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "n1", Annotations: map[string]string{
		v1alpha1.PrefixRecord + "demo": `{"node":"u","skyhook":"s","at":"2026-05-01T11:00:00Z","packages":{"tuning|1":{"failedAt":"2026-05-01T12:00:00Z"}}}`,
	}}}, nil)
	for clock, want := range map[time.Time]time.Time{
		recorded.Add(-time.Hour):  recorded,
		recorded.Add(time.Minute): recorded.Add(time.Minute),
	} {
		if got, _ := Snapshot(&Objects{Nodes: []*node.Node{n}}, clock); !got.Now.Equal(want) {
			t.Errorf("at %s by the clock it is %s, want %s", clock, got.Now, want)
		}
	}
}
