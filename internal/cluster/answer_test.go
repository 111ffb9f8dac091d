// SPDX-FileCopyrightText: The Skyhook authors
// SPDX-License-Identifier: Apache-2.0

package cluster

import (
	"bytes"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/serializer/protobuf"
	"k8s.io/client-go/kubernetes/scheme"
)

// encodeAnswer encodes an object as an API server does.
func encodeAnswer(t testing.TB, o runtime.Object) []byte {
	t.Helper()
	var out bytes.Buffer
	if err := protobuf.NewSerializer(scheme.Scheme, scheme.Scheme).Encode(o, &out); err != nil {
		t.Fatal(err)
	}
	return out.Bytes()
}

func newAnswer() *metav1.PartialObjectMetadata {
	return &metav1.PartialObjectMetadata{
		TypeMeta:   metav1.TypeMeta{APIVersion: "meta.k8s.io/v1", Kind: "PartialObjectMetadata"},
		ObjectMeta: metav1.ObjectMeta{Name: "n1", UID: "6", ResourceVersion: "4711", Labels: map[string]string{"a": "b"}, Annotations: map[string]string{"resourceVersion": "12"}},
	}
}

// TestFindVersion checks that the version of metadata is found without decoding it, and that of nothing else.
func TestFindVersion(t *testing.T) {
	whole := encodeAnswer(t, newAnswer())
	if version, isFound := findVersion(whole); !isFound || version != "4711" {
		t.Errorf("found %q, %v", version, isFound)
	}
	withoutVersion := newAnswer()
	withoutVersion.ResourceVersion = ""
	for name, answer := range map[string][]byte{
		"nothing":      nil,
		"JSON":         []byte(`{"kind":"PartialObjectMetadata","apiVersion":"meta.k8s.io/v1","metadata":{"resourceVersion":"4711"}}`),
		"a whole node": encodeAnswer(t, &corev1.Node{TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "Node"}, ObjectMeta: newAnswer().ObjectMeta}),
		"a status":     encodeAnswer(t, &metav1.Status{TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "Status"}, ListMeta: metav1.ListMeta{ResourceVersion: "4711"}}),
		"no version":   encodeAnswer(t, withoutVersion),
	} {
		if version, isFound := findVersion(answer); isFound {
			t.Errorf("%s: found %q", name, version)
		}
	}
}

// TestFindVersionInDamaged checks that no damaged answer makes it fail, and that what it finds is what is decoded.
func TestFindVersionInDamaged(t *testing.T) {
	whole := encodeAnswer(t, newAnswer())
	check := func(answer []byte) {
		t.Helper()
		version, isFound := findVersion(answer)
		if meta, err := decodeMetadata(answer); isFound && err == nil && meta.ResourceVersion != version {
			t.Errorf("found %q, decoded %q in %x", version, meta.ResourceVersion, answer)
		}
	}
	for i := range whole {
		check(whole[:i])
		for bit := range 8 {
			damaged := bytes.Clone(whole)
			damaged[i] ^= 1 << bit
			check(damaged)
		}
	}
}

// TestDecodeUnmanaged checks that everything else in the metadata is decoded, of damaged answers, too.
func TestDecodeUnmanaged(t *testing.T) {
	answer := newAnswer()
	grace, owned := int64(30), true
	answer.Namespace, answer.GenerateName, answer.Generation, answer.DeletionGracePeriodSeconds = "skyhook", "n", 3, &grace
	answer.CreationTimestamp, answer.Finalizers = metav1.Unix(1_700_000_000, 0), []string{"a", "b"}
	answer.OwnerReferences = []metav1.OwnerReference{{Kind: "Skyhook", Name: "demo", UID: "1", Controller: &owned}}
	answer.ManagedFields = []metav1.ManagedFieldsEntry{{Manager: "operator", FieldsV1: metav1.NewFieldsV1(`{"f:metadata":{}}`)}}
	whole := encodeAnswer(t, answer)
	check := func(answer []byte) (isDecoded bool) {
		t.Helper()
		want, err := decodeMetadata(answer)
		got := decodeUnmanaged(findMetadata(answer))
		if err != nil || got == nil {
			return false
		}
		if want.ManagedFields = nil; !equality.Semantic.DeepEqual(got, want) {
			t.Errorf("decoded %v, want %v, in %x", got, want, answer)
		}
		return true
	}
	if !check(whole) {
		t.Error("the answer is not decoded")
	}
	for i := range whole {
		damaged := bytes.Clone(whole)
		damaged[i] ^= 1 << (i % 8)
		check(damaged)
	}
}
