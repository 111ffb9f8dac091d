// SPDX-FileCopyrightText: The Skyhook authors
// SPDX-License-Identifier: Apache-2.0

package ui

import (
	"crypto/subtle"
	"net/http"
	"strings"
)

// contentSecurityPolicy lets a page load our script, style sheet and data, and nothing else.
const contentSecurityPolicy = "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; form-action 'self'; " +
	"base-uri 'none'; frame-ancestors 'none'"

// ServeHTTP answers one request, if the person who started the server made it.
//
// The token keeps out other users of this machine and other pages, which do not know it. The Host header keeps out a page
// whose name was made to resolve to this machine, and the Origin header a page that found out the token.
func (s *Server) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	setHeaders(w.Header())
	if why := s.refuse(r); why != "" {
		http.Error(w, why, http.StatusForbidden)
		return
	}
	if once, ok := strings.CutPrefix(r.URL.Path, "/open/"); ok {
		s.open(w, r, once)
		return
	}
	token, _, _ := strings.Cut(strings.TrimPrefix(r.URL.Path, "/"), "/")
	if !isSame(token, s.token) {
		http.Error(w, "the address lacks the token: take the whole address that kubectl skyhook ui printed", http.StatusForbidden)
		return
	}
	http.StripPrefix(s.base(), s.mux).ServeHTTP(w, r)
}

func setHeaders(h http.Header) {
	h.Set("Content-Security-Policy", contentSecurityPolicy)
	h.Set("X-Content-Type-Options", "nosniff")
	h.Set("X-Frame-Options", "DENY")
	h.Set("Referrer-Policy", "no-referrer")
	h.Set("Cross-Origin-Opener-Policy", "same-origin")
	h.Set("Cross-Origin-Resource-Policy", "same-origin")
	h.Set("Cache-Control", "no-store")
}

// refuse returns why a request is refused; empty when it is not.
func (s *Server) refuse(r *http.Request) string {
	if r.Host != s.host {
		return "the Host header is not " + s.host
	}
	origin := r.Header.Get("Origin")
	isReading := r.Method == http.MethodGet || r.Method == http.MethodHead
	switch {
	case origin == "" && isReading: // browsers send none then
		return ""
	case origin != "http://"+s.host:
		return "the request does not come from a page of kubectl skyhook ui"
	}
	return ""
}

// open leads the browser that was started to the first page, once.
func (s *Server) open(w http.ResponseWriter, r *http.Request, once string) {
	if !isSame(once, s.once) {
		http.Error(w, "there is no such address", http.StatusForbidden)
		return
	}
	if !s.isOpened.CompareAndSwap(false, true) {
		select {
		case s.opened <- struct{}{}:
		default:
		}
		http.Error(w, "this address was used already: take the one that kubectl skyhook ui printed", http.StatusForbidden)
		return
	}
	http.Redirect(w, r, s.base()+"/", http.StatusSeeOther)
}

func isSame(a, b string) bool { return subtle.ConstantTimeCompare([]byte(a), []byte(b)) == 1 }
