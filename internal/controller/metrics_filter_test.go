// SPDX-FileCopyrightText: The Skyhook authors
// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"context"
	"errors"
	"net/http"
	"net/http/httptest"
	"testing"
	"time"

	"github.com/go-logr/logr"
	authenticationv1 "k8s.io/api/authentication/v1"
)

// Metrics are served only to clients with a valid token and the permission. Decisions are cached for a while, errors are
// not.
func TestMetricsFilter(t *testing.T) {
	now, asked := time.Unix(1000, 0), 0
	broken := false
	g := &metricsFilter{
		clock: func() time.Time { return now }, decisions: map[string]cachedDecision{},
		authenticate: func(_ context.Context, token string) (authenticationv1.UserInfo, bool, error) {
			asked++
			if broken {
				return authenticationv1.UserInfo{}, false, errors.New("no response")
			}
			return authenticationv1.UserInfo{Username: token}, token != "forged", nil
		},
		authorize: func(_ context.Context, u authenticationv1.UserInfo, r *http.Request) (bool, error) {
			return u.Username == "prometheus" && r.URL.Path == "/metrics", nil
		},
	}
	h, err := g.wrap(logr.Discard(), http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusOK) }))
	if err != nil {
		t.Fatal(err)
	}
	get := func(header string) int {
		r := httptest.NewRequest(http.MethodGet, "/metrics", nil)
		if header != "" {
			r.Header.Set("Authorization", header)
		}
		w := httptest.NewRecorder()
		h.ServeHTTP(w, r)
		return w.Code
	}
	for header, want := range map[string]int{
		"": 401, "Basic cHJvbWV0aGV1cw==": 401, "Bearer ": 401, "Bearer forged": 401, "Bearer somebody": 403, "Bearer prometheus": 200,
	} {
		if got := get(header); got != want {
			t.Errorf("%q: %d, want %d", header, got, want)
		}
	}
	before := asked
	if get("Bearer prometheus") != 200 || get("Bearer forged") != 401 || asked != before {
		t.Errorf("%d requests more for cached decisions", asked-before)
	}
	now, broken = now.Add(allowedFor), true
	if got := get("Bearer prometheus"); got != 500 {
		t.Errorf("without a response: %d", got)
	}
	if broken = false; get("Bearer prometheus") != 200 {
		t.Error("an error was cached")
	}
}
