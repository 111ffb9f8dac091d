// SPDX-FileCopyrightText: The Skyhook authors
// SPDX-License-Identifier: Apache-2.0

package cluster

import (
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
)

// TestKeepVersions: a pod is the same one as long as it has the same version, and what is kept of it does not keep the list it was in, which
// is one array with all pods.
func TestKeepVersions(t *testing.T) {
	var known versions[corev1.Pod]
	list := func(versions ...string) (items []corev1.Pod, pods []*corev1.Pod) {
		items = make([]corev1.Pod, len(versions))
		for i, version := range versions {
			items[i].ObjectMeta = metav1.ObjectMeta{UID: types.UID(rune('a' + i)), ResourceVersion: version}
			pods = append(pods, &items[i])
		}
		known = keepVersions(known, pods)
		return items, pods
	}
	items, first := list("1", "2")
	for i := range items {
		if first[i] == &items[i] {
			t.Errorf("pod %d of the first list is in its array", i)
		}
	}
	items, second := list("1", "3")
	if second[0] != first[0] {
		t.Error("a pod that has not changed is another one")
	}
	if second[1] == first[1] || second[1] == &items[1] || second[1].ResourceVersion != "3" {
		t.Errorf("a pod that has changed is %p of version %s, not a new one", second[1], second[1].ResourceVersion)
	}
	if list("1"); len(known) != 1 {
		t.Errorf("%d pods are kept of a list with one", len(known))
	}
}
