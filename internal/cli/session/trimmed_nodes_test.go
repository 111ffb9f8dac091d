// SPDX-FileCopyrightText: The Skyhook authors
// SPDX-License-Identifier: Apache-2.0

package session

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"reflect"
	"testing"
	"testing/iotest"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/serializer/protobuf"
)

// newNodes returns nodes with every list that can be long.
func newNodes() *corev1.NodeList {
	at := metav1.NewTime(time.Date(2026, 1, 5, 8, 0, 0, 0, time.UTC).Local())
	list := &corev1.NodeList{ListMeta: metav1.ListMeta{ResourceVersion: "77"}}
	for i := range 3 {
		n := corev1.Node{ObjectMeta: metav1.ObjectMeta{
			Name: fmt.Sprintf("n%d", i), UID: "u", ResourceVersion: "7", CreationTimestamp: at, Labels: map[string]string{"a": "b"},
			Annotations:   map[string]string{"c": "d"},
			ManagedFields: []metav1.ManagedFieldsEntry{{Manager: "kubelet", FieldsV1: metav1.NewFieldsV1("{}")}},
		}}
		n.Spec = corev1.NodeSpec{Unschedulable: true, Taints: []corev1.Taint{{Key: "t", Effect: corev1.TaintEffectNoSchedule}}}
		n.Status.Conditions = []corev1.NodeCondition{{Type: corev1.NodeReady, Status: corev1.ConditionTrue, LastTransitionTime: at}}
		n.Status.Images = []corev1.ContainerImage{{Names: []string{"image"}, SizeBytes: 5}}
		n.Status.NodeInfo.BootID = "boot"
		list.Items = append(list.Items, n)
	}
	return list
}

// encodeNodes encodes nodes as the API server does.
func encodeNodes(t *testing.T, list *corev1.NodeList) []byte {
	t.Helper()
	scheme := runtime.NewScheme()
	if err := corev1.AddToScheme(scheme); err != nil {
		t.Fatal(err)
	}
	list.APIVersion, list.Kind = "v1", "NodeList"
	var out bytes.Buffer
	if err := protobuf.NewSerializer(scheme, scheme).Encode(list, &out); err != nil {
		t.Fatal(err)
	}
	return out.Bytes()
}

// TestReadNodes reads responses in pieces of several sizes, without the fields that no command reads.
func TestReadNodes(t *testing.T) {
	want := newNodes()
	sent := encodeNodes(t, want.DeepCopy())
	for i := range want.Items {
		want.Items[i].ManagedFields, want.Items[i].Status.Images = nil, nil
	}
	for what, in := range map[string]io.Reader{"at once": bytes.NewReader(sent), "byte by byte": iotest.OneByteReader(bytes.NewReader(sent))} {
		var got corev1.NodeList
		if err := readNodes(bufio.NewReaderSize(in, 16), &got); err != nil || !reflect.DeepEqual(&got, want) {
			t.Errorf("%s: %v\n%+v\nwant\n%+v", what, err, got, want)
		}
	}
	inJSON, err := json.Marshal(want)
	var got corev1.NodeList
	if err = errors.Join(err, readNodes(bufio.NewReader(bytes.NewReader(inJSON)), &got)); err != nil || !reflect.DeepEqual(&got, want) {
		t.Errorf("in JSON: %v\n%+v\nwant\n%+v", err, got, want)
	}
}

// TestReadNodesTruncated checks that a truncated or different response is an error, and not a shorter list.
func TestReadNodesTruncated(t *testing.T) {
	sent := encodeNodes(t, newNodes())
	for n := range sent {
		var got corev1.NodeList
		if err := readNodes(bufio.NewReader(bytes.NewReader(sent[:n])), &got); err == nil && len(got.Items) < 3 {
			t.Errorf("after %d of %d bytes there are %d nodes and no error", n, len(sent), len(got.Items))
		}
	}
	for what, wrong := range map[string]string{
		"a number":          "k8s\x00\x12\x02\x08\x01",
		"too long":          "k8s\x00\x12\xff\xff\xff\xff\xff\xff\xff\x7f",
		"a node of nothing": "k8s\x00\x12\x04\x12\x02\x0a\x09",
	} {
		if err := readNodes(bufio.NewReader(bytes.NewReader([]byte(wrong))), &corev1.NodeList{}); err == nil {
			t.Errorf("%s is taken for nodes", what)
		}
	}
}
