// SPDX-FileCopyrightText: The Skyhook authors
// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"net/http"
	"strings"

	"github.com/prometheus/client_golang/prometheus"
)

// countingTransport counts the write requests that go through it.
type countingTransport struct {
	next       http.RoundTripper
	writes     *prometheus.CounterVec
	onEviction func(status int) // told of each answer to an eviction
}

// RoundTrip sends a request on.
func (c countingTransport) RoundTrip(r *http.Request) (*http.Response, error) {
	of := resourceOf(r.URL.Path)
	if r.Method != http.MethodGet && r.Method != http.MethodHead {
		c.writes.WithLabelValues(strings.ToLower(r.Method), of).Inc()
	}
	answer, err := c.next.RoundTrip(r)
	if err == nil && of == "pods/eviction" {
		c.onEviction(answer.StatusCode)
	}
	return answer, err
}

// WrappedRoundTripper lets requests be cancelled through this one.
func (c countingTransport) WrappedRoundTripper() http.RoundTripper { return c.next }

// resourceOf is the kind of thing a path names: "pods", "nodes/status". Names of objects never become a label.
func resourceOf(path string) string {
	parts := strings.Split(strings.Trim(path, "/"), "/")
	switch {
	case len(parts) > 2 && parts[0] == "api":
		parts = parts[2:]
	case len(parts) > 3 && parts[0] == "apis":
		parts = parts[3:]
	default:
		return "other"
	}
	if len(parts) > 2 && parts[0] == "namespaces" {
		parts = parts[2:]
	}
	if len(parts) > 2 {
		return parts[0] + "/" + parts[2]
	}
	return parts[0]
}
