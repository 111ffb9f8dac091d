// SPDX-FileCopyrightText: The Skyhook authors
// SPDX-License-Identifier: Apache-2.0

package wire

import (
	"bytes"
	"encoding/binary"
	"errors"
	"io"
	"math/rand"
	"testing"
	"testing/iotest"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// watchedNodes is what an API server may send to a watch of nodes, and what becomes of it.
func watchedNodes(t *testing.T) (sent, want []byte) {
	t.Helper()
	for seed := range int64(40) {
		frame := encoded(t, "ADDED", filled(&corev1.Node{}, seed))
		out, ok := cutDown(kinds[0], frame)
		if !ok {
			t.Fatal("not understood")
		}
		sent, want = append(sent, framed(frame)...), append(want, framed(out)...)
	}
	failure := framed(encoded(t, "ERROR", &metav1.Status{Code: 410}))
	large := &corev1.Node{Status: corev1.NodeStatus{Images: []corev1.ContainerImage{{Names: []string{string(make([]byte, 3*maxKeptBuffer))}}}}}
	rest, ok := cutDown(kinds[0], encoded(t, "ADDED", large))
	if !ok || len(rest) > initialBuffer {
		t.Fatalf("%d bytes are left: %v", len(rest), ok)
	}
	for _, both := range [][2][]byte{{framed(nil), framed(nil)}, {failure, failure}, {framed(encoded(t, "ADDED", large)), framed(rest)}, {failure, failure}} {
		sent, want = append(sent, both[0]...), append(want, both[1]...)
	}
	return sent, want
}

// TestStream checks that the output is the same however the input is split and read.
func TestStream(t *testing.T) {
	sent, want := watchedNodes(t)
	luck := rand.New(rand.NewSource(1))
	for name, in := range map[string]io.Reader{
		"at once":                 bytes.NewReader(sent),
		"byte by byte":            iotest.OneByteReader(bytes.NewReader(sent)),
		"half":                    iotest.HalfReader(bytes.NewReader(sent)),
		"its end with the rest":   iotest.DataErrReader(bytes.NewReader(sent)),
		"now and then nothing":    &fitful{bytes.NewReader(sent), luck},
		"one event cut in pieces": io.MultiReader(bytes.NewReader(sent[:5001]), bytes.NewReader(sent[5001:])),
	} {
		got, err := io.ReadAll(newStream(io.NopCloser(in), kinds[0], nil))
		if err != nil || !bytes.Equal(got, want) {
			t.Errorf("%s: %d bytes became %d, want %d: %v", name, len(sent), len(got), len(want), err)
		}
	}
	got, err := io.ReadAll(iotest.OneByteReader(newStream(io.NopCloser(bytes.NewReader(sent)), kinds[0], nil)))
	if err != nil || !bytes.Equal(got, want) {
		t.Errorf("read byte by byte: %d bytes became %d, want %d: %v", len(sent), len(got), len(want), err)
	}
}

// fitful reads as much as it likes.
type fitful struct {
	io.Reader
	luck *rand.Rand
}

func (f *fitful) Read(p []byte) (int, error) { return f.Reader.Read(p[:f.luck.Intn(len(p)+1)]) }

// TestStreamForeign holds that what is no event is given as it came, with the events before it and the error after it.
func TestStreamForeign(t *testing.T) {
	event := framed(encoded(t, "ADDED", &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "n"}}))
	broken := errors.New("broken")
	for name, rest := range map[string][]byte{
		"no length":          {0, 0, 1},
		"half an event":      event[:len(event)-1],
		"too large an event": append(binary.BigEndian.AppendUint32(nil, maxEvent+1), make([]byte, 3*initialBuffer)...),
		"text":               []byte("upstream connect error or disconnect/reset before headers"),
	} {
		first, ok := cutDown(kinds[0], event[lengthPrefix:])
		if !ok {
			t.Fatal("not understood")
		}
		in := io.MultiReader(bytes.NewReader(event), bytes.NewReader(rest), iotest.ErrReader(broken))
		got, err := io.ReadAll(newStream(io.NopCloser(in), kinds[0], nil))
		if !errors.Is(err, broken) || !bytes.Equal(got, append(framed(first), rest...)) {
			t.Errorf("%s: %d bytes became %d: %v", name, len(event)+len(rest), len(got), err)
		}
	}
}

// FuzzStream holds that nothing is lost or invented whatever comes: the same as when it comes at once.
func FuzzStream(f *testing.F) {
	f.Add([]byte(nil), int64(0))
	for _, o := range small() {
		event := framed(encoded(f, "ADDED", o))
		f.Add(append(event, event...), int64(1))
	}
	f.Fuzz(func(t *testing.T, sent []byte, seed int64) {
		whole, err := io.ReadAll(newStream(io.NopCloser(bytes.NewReader(sent)), kinds[0], nil))
		if err != nil || len(whole) > len(sent) {
			t.Fatalf("%d bytes became %d: %v", len(sent), len(whole), err)
		}
		parts, err := io.ReadAll(newStream(io.NopCloser(&fitful{bytes.NewReader(sent), rand.New(rand.NewSource(seed))}), kinds[0], nil))
		if err != nil || !bytes.Equal(parts, whole) {
			t.Fatalf("in parts it became %d bytes, at once %d: %v", len(parts), len(whole), err)
		}
	})
}
