// SPDX-FileCopyrightText: The Skyhook authors
// SPDX-License-Identifier: Apache-2.0

// Package wire makes the watches of the operator cheap: what nobody reads of a node, a pod or a Job is cut out of their
// events before anybody decodes it. Nothing is held back: who labels a node and then creates a Skyhook for it must not be
// told that it is complete on no node.
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

// A connection that answers nothing for half a minute is dead.
var alive = net.KeepAliveConfig{Enable: true, Idle: 15 * time.Second, Interval: 5 * time.Second, Count: 3}

// Watches is the transport through which watches of nodes, pods and Jobs go; all other requests go on to the next one.
type Watches struct {
	own, next http.RoundTripper
}

// For gives a function that puts Watches before a transport. The configuration is as it was before.
func For(config *rest.Config) (func(next http.RoundTripper) http.RoundTripper, error) {
	own, err := alone(config)
	if err != nil {
		return nil, fmt.Errorf("making a transport for watches: %w", err)
	}
	return func(next http.RoundTripper) http.RoundTripper { return Watches{own: own, next: next} }, nil
}

// alone is a transport of which every request has its connection to itself: HTTP/1.1. So the body of a watch is read
// straight from it, and what nobody reads yet stays with the kernel.
func alone(config *rest.Config) (http.RoundTripper, error) {
	config = rest.CopyConfig(config)
	config.NextProtos = []string{"http/1.1"}
	if config.Dial == nil {
		config.Dial = (&net.Dialer{Timeout: 30 * time.Second, KeepAliveConfig: alive}).DialContext
	}
	return rest.TransportFor(config)
}

// RoundTrip sends a request on.
func (w Watches) RoundTrip(r *http.Request) (*http.Response, error) {
	k, watch := watched(r)
	if !watch {
		return w.next.RoundTrip(r)
	}
	// Pods are followed on many nodes by themselves at the same time: those watches share a connection.
	transport := w.next
	if !r.URL.Query().Has("fieldSelector") {
		transport = w.own
	}
	answer, err := transport.RoundTrip(r)
	if err != nil || answer.StatusCode != http.StatusOK || !compact(answer.Header) {
		return answer, err
	}
	answer.Body = newStream(answer.Body, k)
	return answer, nil
}

// WrappedRoundTripper lets requests be cancelled through this one.
func (w Watches) WrappedRoundTripper() http.RoundTripper { return w.next }

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
