// SPDX-FileCopyrightText: The Skyhook authors
// SPDX-License-Identifier: Apache-2.0

package session

import (
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"
)

// TestSilentServer: a request that is not answered ends. One whose answer has begun may take any time, and so may a watch.
func TestSilentServer(t *testing.T) {
	const limit = 200 * time.Millisecond
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/slow" {
			_, _ = io.WriteString(w, "begun ")
			_ = http.NewResponseController(w).Flush()
		}
		select {
		case <-r.Context().Done():
		case <-time.After(3 * limit):
		}
		_, _ = io.WriteString(w, "done")
	}))
	defer s.Close()
	c := http.Client{Transport: answering{http.DefaultTransport, limit}}
	for path, want := range map[string]string{"/silent": "", "/slow": "begun done", "/silent?watch=true": "done", "/silent?follow=true": "done"} {
		answer, err := c.Get(s.URL + path)
		if want == "" {
			if err == nil || !strings.Contains(err.Error(), "has not answered for 200ms") {
				t.Errorf("%s: %v", path, err)
			}
			continue
		}
		if err != nil {
			t.Errorf("%s: %v", path, err)
			continue
		}
		text, err := io.ReadAll(answer.Body)
		if string(text) != want || err != nil {
			t.Errorf("%s: %q, %v", path, text, err)
		}
		_ = answer.Body.Close()
	}
}
