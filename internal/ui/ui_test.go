// SPDX-FileCopyrightText: The Skyhook authors
// SPDX-License-Identifier: Apache-2.0

package ui_test

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/skyhook-k8s/skyhook/internal/ui"
	"github.com/skyhook-k8s/skyhook/internal/view"
)

// newPages returns pages about three nodes.
func newPages() ui.Pages {
	return ui.Pages{
		Context: func() ui.Context {
			return ui.Context{Cluster: "test", Taken: time.Unix(0, 0), Version: 7, Rollouts: []string{"demo"}}
		},
		Fleet: func(_ context.Context, name string) (*view.Fleet, error) {
			if name == "nosuch" {
				return nil, fmt.Errorf("%w: there is no nosuch", view.ErrNotFound)
			}
			return &view.Fleet{Rollouts: []view.RolloutStatus{}, Nodes: []view.Cell{
				{Node: "a", State: view.StateComplete, Compartment: "one", Labels: map[string]string{"rack": "r1"}},
				{Node: "b", State: view.StateFailed, Compartment: "two", Stage: "tuning apply", Text: "it <script>broke</script>", Labels: map[string]string{"rack": "r1"}},
				{Node: "c", State: view.StateComplete, Compartment: "two", Labels: map[string]string{"rack": "r2"}},
			}}, nil
		},
		Rollout:  func(context.Context, string) (*ui.Rollout, error) { return nil, view.ErrNotFound },
		Node:     func(context.Context, string) (*ui.Node, error) { return nil, view.ErrNotFound },
		Plan:     func(context.Context, []byte) (*ui.Plan, error) { return &ui.Plan{Simulation: &view.Simulation{}}, nil },
		Policies: func(context.Context) (*view.Policies, error) { return &view.Policies{}, nil },
		Find:     func(context.Context, string) ([]view.Hit, error) { return nil, nil },
		Revision: func(context.Context, string, int64) (string, error) { return "", view.ErrNotFound },
		Output:   func(context.Context, string) (string, error) { return "", view.ErrNotFound },
	}
}

// newServer returns a server that answers without a network.
func newServer(t testing.TB, pages ui.Pages) *ui.Server {
	t.Helper()
	s, err := ui.New(&net.TCPAddr{IP: net.IPv4(127, 0, 0, 1), Port: 8900}, pages)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// request asks a server for a path below its first page; headers are pairs of name and value.
func request(t *testing.T, s *ui.Server, method, path string, headers ...string) *http.Response {
	t.Helper()
	r := httptest.NewRequest(method, strings.TrimSuffix(s.Address(), "/")+path, nil)
	for i := 0; i < len(headers); i += 2 {
		if headers[i] == "Host" {
			r.Host = headers[i+1]
		}
		r.Header.Set(headers[i], headers[i+1])
	}
	w := httptest.NewRecorder()
	s.ServeHTTP(w, r)
	return w.Result()
}

func bodyOf(t *testing.T, r *http.Response) string {
	t.Helper()
	raw, err := io.ReadAll(r.Body)
	if err != nil {
		t.Fatal(err)
	}
	return string(raw)
}

// TestAccess: only who knows the token gets an answer, and only from a page of ours.
func TestAccess(t *testing.T) {
	s := newServer(t, newPages())
	for _, c := range []struct {
		name    string
		method  string
		path    string
		headers []string
		want    int
	}{
		{name: "the whole address", path: "/", want: http.StatusOK},
		{name: "our page as origin", path: "/", headers: []string{"Origin", "http://127.0.0.1:8900"}, want: http.StatusOK},
		{name: "another origin", path: "/", headers: []string{"Origin", "https://evil.example"}, want: http.StatusForbidden},
		{name: "another port of this machine", path: "/", headers: []string{"Origin", "http://127.0.0.1:8901"}, want: http.StatusForbidden},
		{name: "a sandboxed page", path: "/", headers: []string{"Origin", "null"}, want: http.StatusForbidden},
		{name: "a name that resolves to this machine", path: "/", headers: []string{"Host", "evil.example:8900"}, want: http.StatusForbidden},
		{name: "a change without an origin", method: http.MethodPost, path: "/", want: http.StatusForbidden},
		{name: "a change of what cannot be changed", method: http.MethodPost, path: "/", headers: []string{"Origin", "http://127.0.0.1:8900"}, want: http.StatusMethodNotAllowed},
		{name: "a page that does not exist", path: "/nosuch", want: http.StatusNotFound},
		{name: "a rollout that does not exist", path: "/?rollout=nosuch", want: http.StatusNotFound},
		{name: "a state that does not exist", path: "/?state=happy", want: http.StatusBadRequest},
		{name: "a template", path: "/assets/layout.html", want: http.StatusNotFound},
	} {
		if got := request(t, s, cmp.Or(c.method, http.MethodGet), c.path, c.headers...); got.StatusCode != c.want {
			t.Errorf("%s: %s, want %d", c.name, got.Status, c.want)
		}
	}
	for _, path := range []string{"/", "/assets/ui.js", "/00000000000000000000000000000000/", "/open/00000000000000000000000000000000"} {
		r := httptest.NewRequest(http.MethodGet, "http://127.0.0.1:8900"+path, nil)
		w := httptest.NewRecorder()
		s.ServeHTTP(w, r)
		if w.Code != http.StatusForbidden {
			t.Errorf("%s without the token: %d", path, w.Code)
		}
	}
	if other := newServer(t, newPages()); other.Address() == s.Address() || other.OpeningAddress() == s.OpeningAddress() {
		t.Error("two servers have the same token")
	}
}

// TestOpeningAddress: the address that other users of the machine can see in a list of processes is of use once.
func TestOpeningAddress(t *testing.T) {
	s := newServer(t, newPages())
	for _, want := range []int{http.StatusSeeOther, http.StatusForbidden} {
		w := httptest.NewRecorder()
		s.ServeHTTP(w, httptest.NewRequest(http.MethodGet, s.OpeningAddress(), nil))
		if w.Code != want {
			t.Errorf("status %d, want %d", w.Code, want)
		}
		if to := w.Header().Get("Location"); want == http.StatusSeeOther && "http://127.0.0.1:8900"+to != s.Address() {
			t.Errorf("it leads to %q", to)
		}
	}
	select {
	case <-s.OpenedAgain():
	default:
		t.Error("the second request is not reported")
	}
}

// TestHeaders: pages load nothing from elsewhere, are shown in no other page, and stay in no cache.
func TestHeaders(t *testing.T) {
	s := newServer(t, newPages())
	for _, path := range []string{"/", "/assets/ui.js", "/assets/ui.css"} {
		h := request(t, s, http.MethodGet, path).Header
		policy := h.Get("Content-Security-Policy")
		for _, part := range []string{"default-src 'none'", "script-src 'self'", "style-src 'self'", "connect-src 'self'", "frame-ancestors 'none'", "base-uri 'none'"} {
			if !strings.Contains(policy, part) {
				t.Errorf("%s: the policy %q lacks %q", path, policy, part)
			}
		}
		if strings.Contains(policy, "unsafe") || strings.Contains(policy, "*") {
			t.Errorf("%s: the policy %q allows too much", path, policy)
		}
		for name, want := range map[string]string{"X-Content-Type-Options": "nosniff", "Referrer-Policy": "no-referrer", "Cache-Control": "no-store"} {
			if got := h.Get(name); got != want {
				t.Errorf("%s: %s is %q, want %q", path, name, got, want)
			}
		}
	}
}

func TestNewRefusesOtherAddresses(t *testing.T) {
	if _, err := ui.New(&net.TCPAddr{IP: net.IPv4(192, 0, 2, 1), Port: 8900}, newPages()); err == nil {
		t.Error("an address that other machines reach was accepted")
	}
}

// TestFilters: the address says which nodes a page and its JSON have.
func TestFilters(t *testing.T) {
	s := newServer(t, newPages())
	for query, want := range map[string]string{
		"": "a b c", "?state=complete": "a c", "?q=TUNING": "b", "?q=scr": "b", "?q=complete": "", "?state=failed&q=a": "b", "?by=rack": "a b c",
	} {
		var fleet view.Fleet
		r := request(t, s, http.MethodGet, "/"+query, "Accept", "application/json")
		if err := json.Unmarshal([]byte(bodyOf(t, r)), &fleet); err != nil {
			t.Fatal(err)
		}
		var names []string
		for _, c := range fleet.Nodes {
			names = append(names, c.Node)
		}
		page := bodyOf(t, request(t, s, http.MethodGet, "/"+query))
		if got := strings.Join(names, " "); got != want || strings.Count(page, `data-n="`) != len(names) {
			t.Errorf("%q: the JSON has %q, and the page %d nodes; want %q", query, got, strings.Count(page, `data-n="`), want)
		}
	}
	page := bodyOf(t, request(t, s, http.MethodGet, "/?by=rack"))
	for _, want := range []string{
		`<h3>r1 <small>1 failed, 1 complete</small></h3>`, `<h3>r2 <small>1 complete</small></h3>`, `<option selected>rack</option>`,
		`it &lt;script&gt;broke&lt;/script&gt;`,
	} {
		if !strings.Contains(page, want) {
			t.Errorf("the page lacks %s:\n%s", want, page)
		}
	}
}
