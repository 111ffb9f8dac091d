// SPDX-FileCopyrightText: The Skyhook authors
// SPDX-License-Identifier: Apache-2.0

// Package wire makes the watches of the operator cheap: what nobody reads of a node, a pod or a Job is cut out of their
// events before anybody decodes it, and an event of a node that says nothing new then is not passed on. Nothing is held
// back: who labels a node and then creates a Skyhook for it must not be told that it is complete on no node.
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

// Watches cuts down the watches of nodes, pods and Jobs.
type Watches struct {
	nodes *again
	own   http.RoundTripper // for the watch of all nodes
}

// New makes Watches that know nothing yet, for whom the configuration names. It is left as it was.
func New(config *rest.Config) (*Watches, error) {
	own, err := alone(config)
	if err != nil {
		return nil, fmt.Errorf("making a transport for watches: %w", err)
	}
	return &Watches{nodes: newAgain(), own: own}, nil
}

// A connection that answers nothing for half a minute is dead.
var alive = net.KeepAliveConfig{Enable: true, Idle: 15 * time.Second, Interval: 5 * time.Second, Count: 3}

// alone is a transport of which every request has its connection to itself: HTTP/1.1. A heartbeat, of which nothing is
// passed on, costs two thirds on it: nobody is woken but who reads it, and nothing is answered.
func alone(config *rest.Config) (http.RoundTripper, error) {
	config = rest.CopyConfig(config)
	config.NextProtos = []string{"http/1.1"}
	if config.Dial == nil {
		config.Dial = (&net.Dialer{Timeout: 30 * time.Second, KeepAliveConfig: alive}).DialContext
	}
	return rest.TransportFor(config)
}

// Before puts Watches before a transport.
func (w *Watches) Before(next http.RoundTripper) http.RoundTripper { return transport{w, next} }

// Newest is the newest version of a node that is, in everything that is read, the version that is given. A write that
// names its version names this one: what a kubelet said since then is no reason to refuse it.
func (w *Watches) Newest(uid, version string) string { return w.nodes.newest(uid, version) }

type transport struct {
	watches *Watches
	next    http.RoundTripper
}

// RoundTrip sends a request on, and cuts down what comes when it is a watch.
func (t transport) RoundTrip(r *http.Request) (*http.Response, error) {
	k, watch := watched(r)
	if !watch {
		return t.next.RoundTrip(r)
	}
	a := t.watches.nodes
	if query := r.URL.Query(); k.name != "Node" || query.Has("fieldSelector") || query.Has("labelSelector") || !a.begin(query) {
		a = nil
	}
	next := t.next
	if a != nil {
		next = t.watches.own
	}
	answer, err := next.RoundTrip(r)
	if err != nil || answer.StatusCode != http.StatusOK || !compact(answer.Header) {
		if a != nil {
			a.end()
		}
		return answer, err
	}
	answer.Body = newStream(answer.Body, k, a)
	return answer, nil
}

// WrappedRoundTripper lets requests be cancelled through this one.
func (t transport) WrappedRoundTripper() http.RoundTripper { return t.next }

// watched is what a request watches, if it is one of the kinds that are cut down.
func watched(r *http.Request) (kind, bool) {
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
			return k, true
		}
	}
	return kind{}, false
}

// compact says that the events of an answer are in the form that is understood here.
func compact(h http.Header) bool {
	media, parameters, err := mime.ParseMediaType(h.Get("Content-Type"))
	return err == nil && media == "application/vnd.kubernetes.protobuf" && parameters["stream"] == "watch" && h.Get("Content-Encoding") == ""
}
