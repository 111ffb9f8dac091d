// SPDX-FileCopyrightText: The Skyhook authors
// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"net/http"
	"net/http/httptest"
	"testing"
)

// TestMetricsRequestsAreLimited: whoever asks for metrics with one token after the other has the API server review few of them.
func TestMetricsRequestsAreLimited(t *testing.T) {
	reviews, last := 0, 0
	h := limitRequests(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { reviews++ }))
	for range 50 * metricsBurst {
		w := httptest.NewRecorder()
		h.ServeHTTP(w, httptest.NewRequest(http.MethodGet, "/metrics", nil))
		last = w.Code
	}
	if reviews < metricsBurst || reviews > 3*metricsBurst || last != http.StatusTooManyRequests {
		t.Errorf("%d requests came through, the last one was answered with %d", reviews, last)
	}
}
