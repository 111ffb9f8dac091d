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
	onEviction func(status int) // called with the status of each eviction
}

// RoundTrip counts a request and passes it on.
func (c countingTransport) RoundTrip(r *http.Request) (*http.Response, error) {
	resource := resourceOf(r.URL.Path)
	if r.Method != http.MethodGet && r.Method != http.MethodHead {
		c.writes.WithLabelValues(strings.ToLower(r.Method), resource).Inc()
	}
	response, err := c.next.RoundTrip(r)
	if err == nil && resource == "pods/eviction" {
		c.onEviction(response.StatusCode)
	}
	return response, err
}

// WrappedRoundTripper lets client-go cancel requests through this one.
func (c countingTransport) WrappedRoundTripper() http.RoundTripper { return c.next }

// resourceOf is the resource that a path names, such as "pods" or "nodes/status". Object names never become a label.
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
