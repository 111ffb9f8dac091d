// SPDX-FileCopyrightText: The Skyhook authors
// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"net/http"
	"slices"
	"strings"
	"sync/atomic"
	"testing"

	"k8s.io/client-go/rest"

	"github.com/skyhook-k8s/skyhook/api/skyhook/v1alpha1"
)

// hangingTransport has patches of a node hang until it is opened, or the request is cancelled.
type hangingTransport struct {
	next    http.RoundTripper
	path    string
	open    chan struct{}
	waiting *atomic.Int64
}

func (h hangingTransport) RoundTrip(q *http.Request) (*http.Response, error) {
	if q.Method == http.MethodPatch && strings.HasSuffix(q.URL.Path, h.path) {
		h.waiting.Add(1)
		defer h.waiting.Add(-1)
		select {
		case <-h.open:
		case <-q.Context().Done():
			return nil, q.Context().Err()
		}
	}
	return h.next.RoundTrip(q)
}

// The pods of one node follow each other though requests for another node hang. The operator ends in the middle of such a
// request, and the next one continues.
func TestNodeThatHangs(t *testing.T) {
	w := newFixture(t, 3)
	h := hangingTransport{path: "/nodes/n1", open: make(chan struct{}), waiting: &atomic.Int64{}}
	w.config = rest.CopyConfig(w.config)
	w.config.Wrap(func(next http.RoundTripper) http.RoundTripper {
		h := h
		h.next = next
		return h
	})
	w.Apply(demo)
	w.startOperator()
	for _, n := range []string{"n2", "n3"} {
		w.Eventually(n+" is complete", func() bool { return w.GetSkyhook("demo").Status.NodeStatus[n] == v1alpha1.StatusComplete })
	}
	w.Eventually("a request to n1 hangs", func() bool { return h.waiting.Load() > 0 })
	if got := w.kubelet.History("n1"); len(got) > 0 {
		t.Errorf("on a node that records nothing ran %v", got)
	}
	w.stop()
	if h.waiting.Load() > 0 {
		t.Error("the operator ended and still waits for a response")
	}
	close(h.open)
	w.startOperator()
	w.WaitComplete("demo")
	want := []string{"tuning-1.1.0 apply", "tuning-1.1.0 config", "extra-2.0.0 apply", "extra-2.0.0 config"}
	for _, n := range []string{"n1", "n2", "n3"} {
		if got := w.kubelet.History(n); !slices.Equal(got, want) {
			t.Errorf("on %s ran %v, want %v", n, got, want)
		}
	}
	w.waitNoPods()
}
