// SPDX-FileCopyrightText: The Skyhook authors
// SPDX-License-Identifier: Apache-2.0

package ui_test

import (
	"net/http"
	"net/http/httptest"
	"net/url"
	"testing"

	"github.com/skyhook-k8s/skyhook/test/memory"
)

// FuzzPages asks the pages for anything: no request is an error of the server, and none needs much memory.
func FuzzPages(f *testing.F) {
	f.Add("", "state=failed&compartment=two")
	f.Add("", "rollout=nosuch&label=rack=r1&format=json")
	f.Add("assets/ui.js", "")
	f.Add("plan/demo", "files=x")
	f.Add("node/a", "")
	f.Add("../../etc/passwd", "%")
	s := newServer(f, newPages())
	f.Fuzz(func(t *testing.T, path, query string) {
		r := httptest.NewRequest(http.MethodGet, s.Address(), nil)
		r.URL = &url.URL{Path: r.URL.Path + path, RawQuery: query}
		w := httptest.NewRecorder()
		memory.Check(t, 4<<20+64*(len(path)+len(query)), func() { s.ServeHTTP(w, r) })
		if w.Code >= http.StatusInternalServerError {
			t.Errorf("%q?%q: status %d: %s", path, query, w.Code, w.Body)
		}
	})
}
