// SPDX-FileCopyrightText: The Skyhook authors
// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"fmt"
	"maps"
	"strings"
	"testing"
	"unsafe"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// TestSharedStrings: nodes share the strings of their labels and annotations, except long ones and those beyond the limit.
func TestSharedStrings(t *testing.T) {
	s := &sharedStrings{known: map[string]string{}}
	long := strings.Repeat("x", maxSharedLength+1)
	labels := map[string]string{"pool": "gpu", "zone": "", "long": long}
	newNode := func() *corev1.Node {
		own := map[string]string{}
		for key, value := range labels {
			own[strings.Clone(key)] = strings.Clone(value)
		}
		return s.stripNode(&corev1.Node{ObjectMeta: metav1.ObjectMeta{Labels: own}})
	}
	first, second := newNode(), newNode()
	if !maps.Equal(first.Labels, labels) || !maps.Equal(second.Labels, labels) || first.Annotations != nil {
		t.Errorf("the labels are %v and %v, the annotations %v", first.Labels, second.Labels, first.Annotations)
	}
	isShared := func(key string) bool {
		return unsafe.StringData(first.Labels[key]) == unsafe.StringData(second.Labels[key])
	}
	if !isShared("pool") || isShared("long") {
		t.Errorf("shared: the value gpu %v, a long one %v", isShared("pool"), isShared("long"))
	}
	for i := range 2 * maxSharedStrings {
		if text := fmt.Sprint(i); s.share(text) != text {
			t.Fatalf("%s became another string", text)
		}
	}
	if len(s.known) != maxSharedStrings {
		t.Errorf("it keeps %d strings, want %d", len(s.known), maxSharedStrings)
	}
}
