// SPDX-FileCopyrightText: The Skyhook authors
// SPDX-License-Identifier: Apache-2.0

package wire

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"maps"
	"net/http"
	"net/http/httptest"
	"reflect"
	"strings"
	"testing"
	"testing/iotest"
	"time"
	"unsafe"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/runtime/serializer/protobuf"
	"k8s.io/apimachinery/pkg/runtime/serializer/streaming"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"
	restwatch "k8s.io/client-go/rest/watch"
)

// TestDecode checks that a Strip function keeps the same of an object that is decoded here and of one that client-go decodes.
func TestDecode(t *testing.T) {
	for name, r := range readers {
		t.Run(name, func(t *testing.T) {
			d := &decoder{events: &stream{kind: r.kind}}
			for seed := range int64(300) {
				sameDecoded(t, d, r, encoded(t, "MODIFIED", filled(r.object(), seed)))
			}
			for _, o := range small() {
				if reflect.TypeOf(o) == reflect.TypeOf(r.object()) {
					sameDecoded(t, d, r, encoded(t, "ADDED", o))
				}
			}
		})
	}
}

// sameDecoded fails when a reader sees a difference between what a decoder makes of an event and what client-go does.
func sameDecoded(t *testing.T, d *decoder, r reader, frame []byte) {
	t.Helper()
	d.events.buffered, d.events.err = framed(frame), io.EOF
	want, object, err := decoded(frame)
	if err != nil {
		return
	}
	kind, got, err := d.Decode()
	if err != nil {
		t.Fatalf("not decoded: %v", err)
	}
	if reflect.TypeOf(object) == reflect.TypeOf(r.object()) {
		object.GetObjectKind().SetGroupVersionKind(schema.GroupVersionKind{})
		got.GetObjectKind().SetGroupVersionKind(schema.GroupVersionKind{})
		got = got.DeepCopyObject() // Strip functions change what pods share
		r.strip(object)
		r.strip(got)
		if p, isPod := object.(*corev1.Pod); isPod && r.kind.isOwn {
			removeFiles(p)
		}
	}
	if string(kind) != want || !reflect.DeepEqual(got, object) {
		t.Fatalf("%s became %s with another object (-want +got):\n%s", want, kind, cmp.Diff(object, got))
	}
}

// removeFiles removes the annotations that only the pod itself reads.
func removeFiles(p *corev1.Pod) {
	before := len(p.Annotations)
	maps.DeleteFunc(p.Annotations, func(key, _ string) bool { return strings.HasPrefix(key, fileAnnotation) })
	if len(p.Annotations) == 0 && before > 0 {
		p.Annotations = nil
	}
}

// FuzzDecode checks that whatever client-go decodes is decoded here, to the same.
func FuzzDecode(f *testing.F) {
	for _, o := range small() {
		f.Add(encoded(f, "MODIFIED", o))
	}
	pod := encoded(f, "ADDED", &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: "p", Labels: map[string]string{"a": "b"}, Annotations: map[string]string{fileAnnotation + "a": "{}", "c": ""}}})
	f.Add(pod)
	f.Fuzz(func(t *testing.T, frame []byte) {
		for _, r := range readers {
			if _, isParsed := cutDown(r.kind, frame); isParsed {
				sameDecoded(t, &decoder{events: &stream{kind: r.kind}}, r, frame)
			}
		}
	})
}

// TestSharedByPods: pods of a stage share their containers and the texts of their labels and annotations, and what only a pod itself
// reads is left out.
func TestSharedByPods(t *testing.T) {
	pod := func(name string) *corev1.Pod {
		return &corev1.Pod{
			ObjectMeta: metav1.ObjectMeta{
				Name: name, Labels: map[string]string{"package": "tuning"},
				Annotations: map[string]string{"package": "{}", fileAnnotation + "labels.json": `{"kubernetes.io/hostname":"` + name + `"}`},
			},
			Spec: corev1.PodSpec{NodeName: "node-of-" + name, InitContainers: []corev1.Container{{Name: "apply", Image: "package:1"}}},
		}
	}
	d := &decoder{events: &stream{kind: ownPods}}
	decode := func(p *corev1.Pod) *corev1.Pod {
		d.events.buffered = framed(encoded(t, "ADDED", p))
		_, object, err := d.Decode()
		if err != nil {
			t.Fatal(err)
		}
		return object.(*corev1.Pod)
	}
	a, b := decode(pod("a")), decode(pod("b"))
	if a.Name != "a" || b.Name != "b" || a.Spec.NodeName != "node-of-a" || b.Spec.NodeName != "node-of-b" {
		t.Errorf("they are %s on %s and %s on %s", a.Name, a.Spec.NodeName, b.Name, b.Spec.NodeName)
	}
	isShared := func(one, other string) bool { return unsafe.StringData(one) == unsafe.StringData(other) }
	if !isShared(a.Labels["package"], b.Labels["package"]) || !isShared(a.Annotations["package"], b.Annotations["package"]) ||
		unsafe.SliceData(a.Spec.InitContainers) != unsafe.SliceData(b.Spec.InitContainers) {
		t.Error("they share nothing")
	}
	if !reflect.DeepEqual(a.Annotations, map[string]string{"package": "{}"}) {
		t.Errorf("the annotations are %v", a.Annotations)
	}

	other := pod("c")
	other.Labels["package"], other.Spec.InitContainers[0].Image = "tuned", "package:2"
	if c := decode(other); c.Labels["package"] != "tuned" || c.Spec.InitContainers[0].Image != "package:2" || b.Labels["package"] != "tuning" || b.Spec.InitContainers[0].Image != "package:1" {
		t.Errorf("a pod of another package has %v and %v, the one before it %v and %v", c.Labels, c.Spec.InitContainers, b.Labels, b.Spec.InitContainers)
	}
	for i := range maxTexts + 5 {
		p := pod("d")
		p.Labels["number"], p.Spec.InitContainers[0].Name = fmt.Sprint(i), fmt.Sprint(i)
		decode(p)
	}
	if len(d.pods.texts) > maxTexts || len(d.pods.specs) > maxSpecs {
		t.Errorf("%d texts and %d specs are remembered, want at most %d and %d", len(d.pods.texts), len(d.pods.specs), maxTexts, maxSpecs)
	}
}

// TestWaitForFrame: events are decoded however they arrive, and what comes after them ends the watch as it does with client-go.
func TestWaitForFrame(t *testing.T) {
	sent, _ := watchedNodes(t)
	event := framed(encoded(t, "ADDED", &corev1.Node{}))
	broken := errors.New("broken")
	count := func(in io.Reader) (events int, err error) {
		d := &decoder{events: newStream(io.NopCloser(in), kinds[0], nil)}
		for {
			if _, _, err = d.Decode(); err != nil {
				return events, err
			}
			events++
		}
	}
	// 40 nodes, an error, a large node and an error; client-go cannot decode the event without content either.
	sent = bytes.Replace(sent, framed(nil), nil, 1)
	for name, c := range map[string]struct {
		in   io.Reader
		want int
		ends string
	}{
		"all at once":           {bytes.NewReader(sent), 43, io.EOF.Error()},
		"byte by byte":          {iotest.OneByteReader(bytes.NewReader(sent)), 43, io.EOF.Error()},
		"its end with the rest": {iotest.DataErrReader(bytes.NewReader(sent)), 43, io.EOF.Error()},
		"half an event":         {io.MultiReader(bytes.NewReader(event), bytes.NewReader(event[:9])), 1, io.ErrUnexpectedEOF.Error()},
		"a broken connection":   {io.MultiReader(bytes.NewReader(event), iotest.ErrReader(broken)), 1, "broken"},
		"no event":              {io.MultiReader(bytes.NewReader(event), strings.NewReader("upstream connect error")), 1, "longer than"},
		"nothing in an event":   {bytes.NewReader(framed(nil)), 0, "decoding"},
	} {
		if got, err := count(c.in); got != c.want || !strings.Contains(err.Error(), c.ends) {
			t.Errorf("%s: %d events, want %d, and then %v, want %s", name, got, c.want, err, c.ends)
		}
	}
}

// TestDecoding begins watches as informers do.
func TestDecoding(t *testing.T) {
	ended := make(chan string, 10)
	server := httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		q := r.URL.Query()
		switch q.Get("resourceVersion") {
		case "gone":
			w.Header().Set("Content-Type", "application/json")
			w.WriteHeader(http.StatusGone)
			_, _ = io.WriteString(w, `{"kind":"Status","apiVersion":"v1","status":"Failure","reason":"Expired","code":410}`)
			return
		case "json":
			w.Header().Set("Content-Type", "application/json;stream=watch")
			_, _ = io.WriteString(w, `{"type":"ADDED","object":{"kind":"Node","apiVersion":"v1","metadata":{"name":"json"}}}`)
			return
		}
		w.Header().Set("Content-Type", protobufWatch)
		for _, e := range []struct {
			kind   string
			object runtime.Object
		}{
			{"ADDED", &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "a", UID: "a", ResourceVersion: "1"}}},
			{"MODIFIED", &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "a", UID: "a", ResourceVersion: "2"}}}, // a heartbeat
			{"BOOKMARK", &corev1.Node{ObjectMeta: metav1.ObjectMeta{ResourceVersion: "3"}}},
			{"ERROR", &metav1.Status{Status: metav1.StatusFailure, Code: http.StatusGone, Reason: metav1.StatusReasonExpired}},
		} {
			_, _ = w.Write(framed(encoded(t, e.kind, e.object)))
		}
		w.(http.Flusher).Flush()
		if q.Get("resourceVersion") == "open" {
			<-r.Context().Done()
			ended <- r.URL.Path
		}
	}))
	t.Cleanup(server.Close)
	config := &rest.Config{
		Host: server.URL, TLSClientConfig: rest.TLSClientConfig{Insecure: true},
		ContentConfig: rest.ContentConfig{ContentType: runtime.ContentTypeProtobuf, NegotiatedSerializer: scheme.Codecs.WithoutConversion()},
	}
	typed, err := kubernetes.NewForConfigAndClient(config, client(t, config))
	if err != nil {
		t.Fatal(err)
	}
	begin := Decoding(typed.CoreV1().Nodes().Watch)
	next := func(w watch.Interface) string {
		select {
		case e, isOpen := <-w.ResultChan():
			switch o := e.Object.(type) {
			case *corev1.Node:
				return fmt.Sprintf("%s %s %s", e.Type, o.Name, o.ResourceVersion)
			case *metav1.Status:
				return fmt.Sprintf("%s %d", e.Type, o.Code)
			default:
				return fmt.Sprintf("open: %v", isOpen)
			}
		case <-time.After(time.Minute):
			return "nothing"
		}
	}
	for _, c := range []struct {
		name, version string
		want          []string
	}{
		{"events, and the end", "1", []string{"ADDED a 1", "BOOKMARK  3", "ERROR 410", "open: false"}},
		{"an answer that is JSON", "json", []string{"ADDED json ", "open: false"}},
		{"a watch that stays open", "open", []string{"ADDED a 1", "BOOKMARK  3", "ERROR 410"}},
		{"one after it", "1", []string{"ADDED a 1", "BOOKMARK  3", "ERROR 410", "open: false"}},
	} {
		w, err := begin(t.Context(), metav1.ListOptions{ResourceVersion: c.version})
		if err != nil {
			t.Fatalf("%s: %v", c.name, err)
		}
		for _, want := range c.want {
			if got := next(w); got != want {
				t.Errorf("%s: %q, want %q", c.name, got, want)
			}
		}
		w.Stop()
		w.Stop() // reflectors do
		if c.version == "open" {
			select {
			case <-ended:
			case <-time.After(time.Minute):
				t.Errorf("%s: the API server still serves it after it was stopped", c.name)
			}
		}
		for got := next(w); got != "open: false"; got = next(w) {
			if got == "nothing" {
				t.Fatalf("%s: it goes on after it was stopped", c.name)
			}
		}
	}
	if _, err := begin(t.Context(), metav1.ListOptions{ResourceVersion: "gone"}); !apierrors.IsResourceExpired(err) {
		t.Errorf("a version that is gone: %v", err)
	}
}

// BenchmarkDecode decodes events about pods of a stage on many nodes, here and by client-go.
func BenchmarkDecode(b *testing.B) {
	const nodes = 100
	var events []byte
	for i := range nodes {
		name, node := fmt.Sprintf("tuning-apply-%d", i), fmt.Sprintf("ip-10-0-0-%d.eu-central-1.compute.internal", i)
		p := &corev1.Pod{
			ObjectMeta: metav1.ObjectMeta{
				Name: name, Namespace: "skyhook", UID: types.UID(fmt.Sprintf("50673abd-0dc0-45b0-a34a-%012d", i)), ResourceVersion: fmt.Sprint(1000 + i),
				Labels: map[string]string{"skyhook.nvidia.com/name": "demo", "skyhook.nvidia.com/node": node, "skyhook.nvidia.com/package": "tuning-1.2.3", "skyhook.nvidia.com/stage": "apply"},
				Annotations: map[string]string{
					"skyhook.nvidia.com/package": `{"name":"tuning","version":"1.2.3","skyhook":"demo","stage":"apply","image":"registry.example.com/packages/tuning"}`,
					"skyhook.nvidia.com/run":     fmt.Sprintf("1-%d", i),
				},
			},
			Spec:   corev1.PodSpec{NodeName: node, Containers: []corev1.Container{{Name: "pause", Image: "registry.example.com/pause:3.10"}}},
			Status: corev1.PodStatus{Phase: corev1.PodPending},
		}
		for _, c := range []string{"tuning-init", "tuning-apply", "tuning-applycheck"} {
			p.Spec.InitContainers = append(p.Spec.InitContainers, corev1.Container{Name: c, Image: "registry.example.com/agent:1.2.3"})
			p.Status.InitContainerStatuses = append(p.Status.InitContainerStatuses, corev1.ContainerStatus{Name: c, Image: "registry.example.com/agent:1.2.3",
				State: corev1.ContainerState{Terminated: &corev1.ContainerStateTerminated{Reason: "Completed", FinishedAt: metav1.Now()}}})
		}
		events = append(events, framed(encoded(b, "MODIFIED", p))...)
	}
	for name, newDecoder := range map[string]func(*stream) watch.Decoder{
		"here": func(s *stream) watch.Decoder { return &decoder{events: s} },
		"client-go": func(s *stream) watch.Decoder {
			frames := streaming.NewDecoder(protobuf.LengthDelimitedFramer.NewFrameReader(s), protobuf.NewRawSerializer(scheme.Scheme, scheme.Scheme))
			return restwatch.NewDecoder(frames, protobuf.NewSerializer(scheme.Scheme, scheme.Scheme))
		},
	} {
		b.Run(name, func(b *testing.B) {
			d := newDecoder(newStream(io.NopCloser(&repeated{text: events}), ownPods, nil))
			b.ReportAllocs()
			for b.Loop() {
				if _, _, err := d.Decode(); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}

// repeated is a text again and again.
type repeated struct {
	text []byte
	at   int
}

func (r *repeated) Read(p []byte) (int, error) {
	n := copy(p, r.text[r.at:])
	r.at = (r.at + n) % len(r.text)
	return n, nil
}
