// SPDX-FileCopyrightText: The Skyhook authors
// SPDX-License-Identifier: Apache-2.0

package wire

import (
	"bytes"
	"encoding/binary"
	"math/rand"
	"reflect"
	"testing"

	"github.com/google/go-cmp/cmp"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/apitesting/fuzzer"
	metafuzzer "k8s.io/apimachinery/pkg/apis/meta/fuzzer"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/serializer/protobuf"
	"k8s.io/client-go/kubernetes/scheme"

	"github.com/skyhook-k8s/skyhook/internal/cluster"
)

// reader is somebody who keeps a part of an object.
type reader struct {
	kind   kind
	object func() runtime.Object
	strip  func(runtime.Object)
}

var (
	aNode = func() runtime.Object { return &corev1.Node{} }
	aPod  = func() runtime.Object { return &corev1.Pod{} }
	aJob  = func() runtime.Object { return &batchv1.Job{} }
)

// ownPods is the kind of a watch by labels.
var ownPods = func() kind {
	k := kinds[1]
	k.kept, k.isOwn = ownPod, true
	return k
}()

var readers = map[string]reader{
	"StripNode":     {kinds[0], aNode, func(o runtime.Object) { cluster.StripNode(o.(*corev1.Node)) }},
	"StripPod":      {ownPods, aPod, func(o runtime.Object) { cluster.StripPod(o.(*corev1.Pod)) }},
	"StripOpPod":    {ownPods, aPod, func(o runtime.Object) { cluster.StripNodeOpPod(o.(*corev1.Pod)) }},
	"StripWorkload": {kinds[1], aPod, func(o runtime.Object) { cluster.StripWorkload(o.(*corev1.Pod)) }},
	"StripJob":      {kinds[2], aJob, func(o runtime.Object) { cluster.StripJob(o.(*batchv1.Job)) }},
}

var plainly = protobuf.NewSerializer(scheme.Scheme, scheme.Scheme)

// encoded is an event as an API server sends it, without its length.
func encoded(t testing.TB, what string, o runtime.Object) []byte {
	t.Helper()
	kinds, _, err := scheme.Scheme.ObjectKinds(o)
	if err != nil {
		t.Fatal(err)
	}
	o.GetObjectKind().SetGroupVersionKind(kinds[0])
	var object bytes.Buffer
	if err := plainly.Encode(o, &object); err != nil {
		t.Fatal(err)
	}
	out, err := (&metav1.WatchEvent{Type: what, Object: runtime.RawExtension{Raw: object.Bytes()}}).Marshal()
	if err != nil {
		t.Fatal(err)
	}
	return out
}

// cutDown is such an event without unused fields.
func cutDown(k kind, frame []byte) ([]byte, bool) {
	var scratch []byte
	e, ok := k.cut(frame, &scratch)
	if !ok {
		return nil, false
	}
	return e.append(nil), true
}

// decoded is what a client makes of such an event.
func decoded(frame []byte) (string, runtime.Object, error) {
	var e metav1.WatchEvent
	if err := e.Unmarshal(frame); err != nil {
		return "", nil, err
	}
	o, _, err := plainly.Decode(e.Object.Raw, nil, nil)
	return e.Type, o, err
}

// filled is an object with most of its fields set, among them those that somebody keeps only sometimes.
func filled(o runtime.Object, seed int64) runtime.Object {
	f := fuzzer.FuzzerFor(metafuzzer.Funcs, rand.NewSource(seed), scheme.Codecs).NilChance(.1).NumElements(1, 3)
	f.Fill(o)
	switch o := o.(type) {
	case *corev1.Node:
		for i, t := range []corev1.NodeConditionType{corev1.NodeReady, "skyhook.nvidia.com/demo/NotReady"} {
			if i < len(o.Status.Conditions) {
				o.Status.Conditions[i].Type = t
			}
		}
		if o.Status.Allocatable == nil {
			o.Status.Allocatable = corev1.ResourceList{}
		}
		for _, amount := range o.Status.Capacity {
			o.Status.Allocatable["nvidia.com/gpu"] = amount
		}
	case *corev1.Pod:
		if len(o.Status.Conditions) > 0 {
			o.Status.Conditions[0].Type = corev1.PodReady
		}
	}
	return o
}

// TestCut checks that a Strip function keeps the same parts of an object and of one that was cut down. A Strip function that
// begins to keep a field which is cut fails here.
func TestCut(t *testing.T) {
	const objects = 300
	for name, r := range readers {
		t.Run(name, func(t *testing.T) {
			var whole, small int
			for seed := range int64(objects) {
				frame := encoded(t, "MODIFIED", filled(r.object(), seed))
				out, ok := cutDown(r.kind, frame)
				if !ok {
					t.Fatalf("object %d is not understood", seed)
				}
				same(t, r, frame, out)
				whole, small = whole+len(frame), small+len(out)
			}
			if small >= whole {
				t.Errorf("%d bytes became %d", whole, small)
			}
		})
	}
}

// same fails when a reader sees a difference between two events.
func same(t *testing.T, r reader, before, after []byte) {
	t.Helper()
	type1, a, err := decoded(before)
	if err != nil {
		return
	}
	type2, b, err := decoded(after)
	if err != nil {
		t.Fatalf("what was cut down cannot be decoded: %v", err)
	}
	if reflect.TypeOf(a) != reflect.TypeOf(r.object()) {
		t.Fatalf("a %T was cut down", a)
	}
	r.strip(a)
	r.strip(b)
	if type1 != type2 || !reflect.DeepEqual(a, b) {
		t.Fatalf("%s became %s with another object (-before +after):\n%s", type1, type2, cmp.Diff(a, b))
	}
}

// small is objects with hardly anything in them, where empty and absent are easily confused.
func small() []runtime.Object {
	return []runtime.Object{
		&corev1.Node{},
		&corev1.Node{Status: corev1.NodeStatus{Conditions: []corev1.NodeCondition{{}}}},
		&corev1.Pod{},
		&corev1.Pod{Spec: corev1.PodSpec{Volumes: []corev1.Volume{{}, {VolumeSource: corev1.VolumeSource{EmptyDir: &corev1.EmptyDirVolumeSource{}}}}}},
		&corev1.Pod{Spec: corev1.PodSpec{InitContainers: []corev1.Container{{}}}, Status: corev1.PodStatus{InitContainerStatuses: []corev1.ContainerStatus{{}}}},
		&batchv1.Job{},
	}
}

// TestCutSmall cuts them.
func TestCutSmall(t *testing.T) {
	for name, r := range readers {
		for _, o := range small() {
			if reflect.TypeOf(o) != reflect.TypeOf(r.object()) {
				continue
			}
			frame := encoded(t, "ADDED", o)
			out, ok := cutDown(r.kind, frame)
			if !ok {
				t.Fatalf("%s: %v is not understood", name, o)
			}
			same(t, r, frame, out)
		}
	}
}

// bookmark is the type of an event that says how far a watch is.
const bookmark = "BOOKMARK"

// TestBookmark holds that what a bookmark says survives.
func TestBookmark(t *testing.T) {
	said := metav1.ObjectMeta{ResourceVersion: "4711", Annotations: map[string]string{metav1.InitialEventsAnnotationKey: "true"}}
	for _, o := range []runtime.Object{&corev1.Node{ObjectMeta: said}, &corev1.Pod{ObjectMeta: said}, &batchv1.Job{ObjectMeta: said}} {
		frame := encoded(t, bookmark, o)
		for _, k := range kinds {
			out, ok := cutDown(k, frame)
			if ok != (k.name == o.GetObjectKind().GroupVersionKind().Kind) {
				t.Errorf("a bookmark with a %T, watching %s: understood %v", o, k.plural, ok)
			}
			if !ok {
				continue
			}
			what, got, err := decoded(out)
			if err != nil || what != bookmark {
				t.Fatalf("became %s: %v", what, err)
			}
			if m := got.(metav1.Object); m.GetResourceVersion() != "4711" || m.GetAnnotations()[metav1.InitialEventsAnnotationKey] != "true" {
				t.Errorf("became %v", got)
			}
		}
	}
}

// TestForeign holds that what is something else is not touched.
func TestForeign(t *testing.T) {
	node := encoded(t, "ADDED", &corev1.Node{})
	for name, frame := range map[string][]byte{
		"nothing":              {},
		"an error":             encoded(t, "ERROR", &metav1.Status{Status: metav1.StatusFailure, Code: 410, Message: "too old resource version"}),
		"another kind":         encoded(t, "ADDED", &corev1.ConfigMap{}),
		"JSON":                 []byte(`{"type":"ADDED","object":{"kind":"Node","apiVersion":"v1"}}`),
		"half":                 node[:len(node)/2],
		"more than an event":   append(bytes.Clone(node), 0x18, 1),
		"an object twice":      append(bytes.Clone(node), node...),
		"no protobuf in it":    bytes.Replace(node, []byte(magic), []byte("k9s\x00"), 1),
		"another group's kind": bytes.Replace(node, []byte("v1"), []byte("v2"), 1),
	} {
		if _, ok := cutDown(kinds[0], frame); ok {
			t.Errorf("%s: was cut down", name)
		}
	}
}

// FuzzCut checks that no event makes cutting fail, and that what was cut down has the same kept parts.
func FuzzCut(f *testing.F) {
	f.Add([]byte(nil))
	for _, o := range small() { // of what is large, most inputs would only repeat the decoder's own tests
		f.Add(encoded(f, "MODIFIED", o))
	}
	f.Fuzz(func(t *testing.T, frame []byte) {
		before := bytes.Clone(frame)
		for _, r := range readers {
			if out, ok := cutDown(r.kind, frame); ok {
				same(t, r, frame, out)
			}
		}
		if !bytes.Equal(before, frame) {
			t.Error("the event itself was changed")
		}
	})
}

// framed is an event with its length.
func framed(frame []byte) []byte {
	return append(binary.BigEndian.AppendUint32(nil, uint32(len(frame))), frame...)
}

func BenchmarkCut(b *testing.B) {
	frame := encoded(b, "MODIFIED", filled(&corev1.Node{}, 1))
	var out, scratch []byte
	b.SetBytes(int64(len(frame)))
	b.ReportAllocs()
	for b.Loop() {
		e, _ := kinds[0].cut(frame, &scratch)
		out = e.append(out[:0])
	}
}
