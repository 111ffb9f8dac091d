// SPDX-FileCopyrightText: The Skyhook authors
// SPDX-License-Identifier: Apache-2.0

package controlplane

import (
	"io"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"strings"
	"testing"
)

// TestBufferBody forwards a request whose sender reads the body once more after the answer has begun.
func TestBufferBody(t *testing.T) {
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		_, _ = w.Write(body)
	}))
	defer server.Close()
	to, err := url.Parse(server.URL)
	if err != nil {
		t.Fatal(err)
	}
	forward := &httputil.ReverseProxy{Rewrite: func(r *httputil.ProxyRequest) { r.SetURL(to) }}
	proxy := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		original := r.Body
		BufferBody(r)
		if rest, err := io.ReadAll(original); err != nil || len(rest) > 0 {
			t.Errorf("the body of the request still has %q, %v", rest, err)
		}
		forward.ServeHTTP(w, r)
	}))
	defer proxy.Close()
	want := strings.Repeat("a long answer ", 10_000)
	answer, err := http.Post(proxy.URL, "text/plain", strings.NewReader(want))
	if err != nil {
		t.Fatal(err)
	}
	defer answer.Body.Close()
	if got, err := io.ReadAll(answer.Body); err != nil || string(got) != want {
		t.Errorf("the answer has %d bytes, %v; want %d", len(got), err, len(want))
	}
}
