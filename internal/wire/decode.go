// SPDX-FileCopyrightText: The Skyhook authors
// SPDX-License-Identifier: Apache-2.0

package wire

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"sync"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/kubernetes/scheme"
	toolscache "k8s.io/client-go/tools/cache"
	"k8s.io/klog/v2"
)

// Decoding returns a function that begins the same watches as the one it is given. It decodes the events of those that go through
// Watches by itself: the decoder of client-go copies each object twice before that, first out of its event and then out of its envelope.
func Decoding(begin toolscache.WatchFuncWithContext) toolscache.WatchFuncWithContext {
	return func(ctx context.Context, options metav1.ListOptions) (watch.Interface, error) {
		h := &handover{}
		replaced, err := begin(context.WithValue(ctx, handoverKey{}, h), options)
		if err != nil || h.events == nil {
			return replaced, err
		}
		d := &decoder{events: h.events, replaced: replaced}
		reporter := apierrors.NewClientErrorReporter(http.StatusInternalServerError, http.MethodGet, "ClientWatchDecoding")
		return watch.NewStreamWatcherWithLogger(klog.FromContext(ctx), d, reporter), nil
	}
}

// handover takes the events of a watch from the transport to who began the watch, past the decoder of client-go. That gets a body
// without any, which ends when it is closed.
type handover struct{ events *stream }

type handoverKey struct{}

// findHandover finds who wants the events of a request; nil if nobody does.
func findHandover(ctx context.Context) *handover {
	h, _ := ctx.Value(handoverKey{}).(*handover)
	return h
}

// take keeps the events, and returns the body that is left for client-go.
func (h *handover) take(events *stream) io.ReadCloser {
	h.events = events
	return &emptyBody{closed: make(chan struct{})}
}

type emptyBody struct {
	once   sync.Once
	closed chan struct{}
}

func (b *emptyBody) Read([]byte) (int, error) {
	<-b.closed
	return 0, io.EOF
}

func (b *emptyBody) Close() error {
	b.once.Do(func() { close(b.closed) })
	return nil
}

// decoder decodes the events of one watch.
type decoder struct {
	events   *stream
	replaced watch.Interface // of client-go, which waits for nothing
	pods     podDecoder
}

// Close ends the watch.
func (d *decoder) Close() {
	_ = d.events.Close()
	d.replaced.Stop()
}

// Decode waits for the next event that changes something.
func (d *decoder) Decode() (watch.EventType, runtime.Object, error) {
	for {
		whole, err := d.events.waitForFrame()
		if err != nil {
			return "", nil, err
		}
		e, isParsed, isNews := d.events.filter(whole)
		switch {
		case !isParsed:
			return decodeAny(whole[lengthPrefix:])
		case isNews:
			object, err := d.decodeObject(e.object)
			return watch.EventType(e.kind), object, err
		}
	}
}

// waitForFrame waits until the next event has arrived, and returns it with its length.
func (s *stream) waitForFrame() ([]byte, error) {
	for {
		switch whole := s.nextFrame(); {
		case whole != nil:
			return whole, nil
		case s.foreign:
			return nil, fmt.Errorf("an event of a watch is longer than %d bytes, or is none", maxEvent)
		case errors.Is(s.err, io.EOF) && len(s.buffered) > 0:
			return nil, io.ErrUnexpectedEOF
		case s.err != nil:
			return nil, s.err
		}
		s.fill()
	}
}

// decodeObject decodes an object of the kind that is watched.
func (d *decoder) decodeObject(encoded []byte) (runtime.Object, error) {
	if d.events.kind.isOwn {
		return d.pods.decode(encoded)
	}
	o := d.events.kind.newObject()
	return o, o.Unmarshal(encoded)
}

// decodeAny decodes an event about another kind, such as the Status of an error.
func decodeAny(frame []byte) (watch.EventType, runtime.Object, error) {
	var e metav1.WatchEvent
	if err := e.Unmarshal(frame); err != nil {
		return "", nil, fmt.Errorf("decoding an event of a watch: %w", err)
	}
	object, err := runtime.Decode(scheme.Codecs.UniversalDeserializer(), e.Object.Raw)
	if err != nil {
		return "", nil, fmt.Errorf("decoding the object of an event: %w", err)
	}
	return watch.EventType(e.Type), object, nil
}
