// SPDX-FileCopyrightText: The Skyhook authors
// SPDX-License-Identifier: Apache-2.0

package cluster

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// TestPodOrder lists pods in any order while some come, go and change: each list is sorted like one that nothing is known of.
func TestPodOrder(t *testing.T) {
	r, order := rand.New(rand.NewPCG(1, 1)), podOrder{}
	pods := map[int]*corev1.Pod{}
	for pass := range 300 {
		for range r.IntN(5) {
			i := r.IntN(40)
			if pods[i] != nil && r.IntN(2) == 0 {
				delete(pods, i)
				continue
			}
			pods[i] = &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: fmt.Sprint("ns", i%2), Name: fmt.Sprint("pod-", i)}}
		}
		var listed []*corev1.Pod
		for _, p := range pods { // in any order
			listed = append(listed, p)
		}
		want := slices.SortedFunc(slices.Values(listed), comparePods)
		if got := order.sort(listed); !slices.Equal(got, want) {
			t.Fatalf("pass %d: %d pods are not in order", pass, len(listed))
		}
	}
}
