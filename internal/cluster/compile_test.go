// SPDX-FileCopyrightText: The Skyhook authors
// SPDX-License-Identifier: Apache-2.0

package cluster

import (
	"context"
	"regexp"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/skyhook-k8s/skyhook/api/skyhook/v1alpha1"
	"github.com/skyhook-k8s/skyhook/internal/node"
)

// TestRecordedTimesDoNotMoveTheClock shows that what a node records, of whatever Skyhook, changes no clock.
func TestRecordedTimesDoNotMoveTheClock(t *testing.T) {
	clock := time.Date(2026, 5, 1, 12, 0, 0, 0, time.UTC)
	n := node.Parse(&corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "n1", UID: "u", Annotations: map[string]string{
		v1alpha1.PrefixRecord + "x": `{"node":"u","skyhook":"s","at":"2099-05-01T11:00:00Z","packages":{"tuning|1":{"failedAt":"2099-05-01T12:00:00Z"}}}`,
	}}}, nil)
	if got := Compile(&Objects{Lists: Lists{Nodes: []*node.Node{n}}}, clock).Snapshot; !got.Now.Equal(clock) {
		t.Errorf("it is %s, want %s", got.Now, clock)
	}
}

// TestLeaderWithAWrongClock shows that a leader whose clock is hours ahead ends no drain, that it asks a pod to leave before it
// deletes it, and that it corrects times in the future on their node.
func TestLeaderWithAWrongClock(t *testing.T) {
	s := newScenario(t, 1)
	s.Apply(workload("guarded", "n1"))
	s.createBudget("guarded", 0)
	s.SettlePods()
	s.Apply(strings.Replace(driver, "spec:", "spec:\n  drainConfig: {timeout: 10m, onTimeout: Force}", 1))
	s.pass()
	s.pass()

	s.cluster = s.newCluster(s.requests)
	s.now = s.now.Add(3 * time.Hour)
	n := s.GetNode("n1")
	record := regexp.MustCompile(`"20[^"]*Z"`).ReplaceAllString(n.Annotations[v1alpha1.PrefixRecord+"driver"], `"2099-01-01T00:00:00Z"`)
	before := n.DeepCopy()
	n.Annotations[v1alpha1.PrefixRecord+"driver"] = record
	s.Must(s.Client.Patch(context.Background(), n, client.MergeFrom(before)))
	s.pass()
	s.pass()
	if s.pod("guarded").DeletionTimestamp != nil {
		t.Error("the pod was deleted because the clock is wrong")
	}
	if got := s.GetNode("n1").Annotations[v1alpha1.PrefixRecord+"driver"]; !strings.Contains(record, "2099") || strings.Contains(got, "2099") {
		t.Errorf("the record was %s and is %s", record, got)
	}
	s.now = s.now.Add(11 * time.Minute)
	s.pass()
	if s.pod("guarded").DeletionTimestamp == nil {
		t.Error("the pod stays though the drain takes longer than 10 minutes")
	}
	s.finish()
}
