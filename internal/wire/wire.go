// SPDX-FileCopyrightText: The Skyhook authors
// SPDX-License-Identifier: Apache-2.0

// Package wire makes the watches of the operator cheap: it removes the unused fields of nodes, pods and Jobs from their
// events, decodes what is left, and drops events of nodes that change nothing else.
// No event is delayed: a user who labels a node and then creates a Skyhook for it must not see the Skyhook complete without that node.
package wire

import (
	"fmt"
	"mime"
	"net"
	"net/http"
	"strings"
	"time"

	"k8s.io/client-go/rest"
)

// Watches filters the watches of nodes, pods and Jobs.
type Watches struct {
	nodes *deduplicator
	own   http.RoundTripper // for the watches of many objects
}

// New makes Watches that have seen no event, for the API server of a configuration. It does not change the configuration.
func New(config *rest.Config) (*Watches, error) {
	own, err := newDedicatedTransport(config)
	if err != nil {
		return nil, fmt.Errorf("making a transport for watches: %w", err)
	}
	return &Watches{nodes: newDeduplicator(), own: own}, nil
}

// A connection that answers nothing for half a minute is dead.
var keepAlive = net.KeepAliveConfig{Enable: true, Idle: 15 * time.Second, Interval: 5 * time.Second, Count: 3}

// newDedicatedTransport makes a transport with one connection for each request: HTTP/1.1. A dropped heartbeat costs two
// thirds of what it costs on a shared HTTP/2 connection: only the reader of the stream runs, and no frame is acknowledged.
func newDedicatedTransport(config *rest.Config) (http.RoundTripper, error) {
	config = rest.CopyConfig(config)
	config.NextProtos = []string{"http/1.1"}
	if config.Dial == nil {
		config.Dial = (&net.Dialer{Timeout: 30 * time.Second, KeepAliveConfig: keepAlive}).DialContext
	}
	return rest.TransportFor(config)
}

// Before puts Watches before a transport.
func (w *Watches) Before(next http.RoundTripper) http.RoundTripper { return transport{w, next} }

// Newest returns the newest version of a node that equals the given version in every field that is read. A write with a
// version as its precondition uses this one, so that a heartbeat since then does not make it conflict.
func (w *Watches) Newest(uid, version string) string { return w.nodes.newestVersion(uid, version) }

type transport struct {
	watches *Watches
	next    http.RoundTripper
}

// RoundTrip sends a request, and filters the events of the answer when it is a watch.
func (t transport) RoundTrip(r *http.Request) (*http.Response, error) {
	k, watch := findKind(r)
	if !watch {
		return t.next.RoundTrip(r)
	}
	a := t.watches.nodes
	if query := r.URL.Query(); k.name != "Node" || query.Has("fieldSelector") || query.Has("labelSelector") || !a.begin(query) {
		a = nil
	}
	next := t.next
	if a != nil || !r.URL.Query().Has("fieldSelector") { // workloads are watched node by node
		next = t.watches.own
	}
	answer, err := next.RoundTrip(r)
	if err != nil || answer.StatusCode != http.StatusOK || !isProtobufWatch(answer.Header) {
		if a != nil {
			a.end()
		}
		return answer, err
	}
	events := newStream(answer.Body, k, a)
	answer.Body = events
	if h := findHandover(r.Context()); h != nil {
		answer.Body = h.take(events)
	}
	return answer, nil
}

// WrappedRoundTripper lets requests be cancelled through this one.
func (t transport) WrappedRoundTripper() http.RoundTripper { return t.next }

// findKind returns the kind that a request watches, if its events are filtered.
func findKind(r *http.Request) (kind, bool) {
	if r.Method != http.MethodGet {
		return kind{}, false
	}
	if q := r.URL.Query().Get("watch"); q != "true" && q != "1" {
		return kind{}, false
	}
	for _, k := range kinds {
		below, found := strings.CutPrefix(r.URL.Path, k.path)
		if !found {
			continue
		}
		if parts := strings.Split(below, "/"); len(parts) == 3 && parts[0] == "namespaces" {
			below = parts[2]
		}
		if below == k.plural {
			if k.name == "Pod" && r.URL.Query().Has("labelSelector") {
				k.kept, k.isOwn = ownPod, true
			}
			return k, true
		}
	}
	return kind{}, false
}

// isProtobufWatch reports whether an answer has events in the encoding that is parsed here.
func isProtobufWatch(h http.Header) bool {
	media, parameters, err := mime.ParseMediaType(h.Get("Content-Type"))
	return err == nil && media == "application/vnd.kubernetes.protobuf" && parameters["stream"] == "watch" && h.Get("Content-Encoding") == ""
}
