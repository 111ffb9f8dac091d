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

// TestRecordedTimesDoNotMoveTheClock shows that what a node records, of whatever Skyhook, changes no clock.
func TestRecordedTimesDoNotMoveTheClock(t *testing.T) {
	clock := time.Date(2026, 5, 1, 12, 0, 0, 0, time.UTC)
	n := node.Parse(&corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "n1", UID: "u", Annotations: map[string]string{
		v1alpha1.PrefixRecord + "x": `{"node":"u","skyhook":"s","at":"2099-05-01T11:00:00Z","packages":{"tuning|1":{"failedAt":"2099-05-01T12:00:00Z"}}}`,
	}}}, nil)
	if got, _ := Snapshot(&Objects{Nodes: []*node.Node{n}}, clock); !got.Now.Equal(clock) {
		t.Errorf("it is %s, want %s", got.Now, clock)
	}
}
