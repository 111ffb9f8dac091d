// SPDX-FileCopyrightText: The Skyhook authors
// SPDX-License-Identifier: Apache-2.0

package faults

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"log"
	"net"
	"net/http"
	"net/http/httputil"
	"net/url"
	"strings"
	"time"
)

// Trust is what the proxy needs to stand between.
type Trust struct {
	Serving   tls.Certificate // what it shows to clients, as the API server would
	Vouching  tls.Certificate // what it shows to the API server, as its front proxy
	Authority *x509.CertPool  // signs clients and the API server
}

// Proxy passes requests on to an API server.
type Proxy struct {
	Faults Set

	server *http.Server
	tokens *httputil.ReverseProxy // clients with a token, or with nothing
	names  *httputil.ReverseProxy // clients with a certificate
}

// New makes a proxy in front of the API server at address. Dial reaches it.
func New(address string, trust Trust, dial func(ctx context.Context, network, address string) (net.Conn, error), to *log.Logger) *Proxy {
	plain := &tls.Config{RootCAs: trust.Authority, MinVersion: tls.VersionTLS12}
	vouching := plain.Clone()
	vouching.Certificates = []tls.Certificate{trust.Vouching}
	p := &Proxy{tokens: forward(address, plain, dial, to), names: forward(address, vouching, dial, to)}
	p.server = &http.Server{
		Handler: p, ErrorLog: to, ReadHeaderTimeout: time.Minute,
		TLSConfig: &tls.Config{
			Certificates: []tls.Certificate{trust.Serving}, MinVersion: tls.VersionTLS12, NextProtos: []string{"h2", "http/1.1"},
			ClientAuth: tls.VerifyClientCertIfGiven, ClientCAs: trust.Authority,
		},
	}
	return p
}

// Serve answers on the listener until the proxy is closed.
func (p *Proxy) Serve(l net.Listener) error { return p.server.ServeTLS(l, "", "") }

// Close hangs up on everybody.
func (p *Proxy) Close() error { return p.server.Close() }

// forward passes requests on as they are. What upgrades its connection, such as exec, needs HTTP/1.
func forward(address string, trust *tls.Config, dial func(context.Context, string, string) (net.Conn, error), to *log.Logger) *httputil.ReverseProxy {
	old := trust.Clone()
	old.NextProtos = []string{"http/1.1"}
	transport := choose{
		plain:   &http.Transport{TLSClientConfig: trust, DialContext: dial, ForceAttemptHTTP2: true, DisableCompression: true},
		upgrade: &http.Transport{TLSClientConfig: old, DialContext: dial, TLSNextProto: map[string]func(string, *tls.Conn) http.RoundTripper{}, DisableCompression: true},
	}
	target := &url.URL{Scheme: "https", Host: address}
	return &httputil.ReverseProxy{
		Rewrite:       func(r *httputil.ProxyRequest) { r.SetURL(target); r.Out.Host = r.In.Host },
		Transport:     transport,
		FlushInterval: -1, // a watch is heard at once
		ErrorLog:      to,
		ErrorHandler: func(w http.ResponseWriter, _ *http.Request, err error) {
			refuse(w, http.StatusBadGateway, fmt.Sprintf("the API server does not answer: %v", err))
		},
	}
}

type choose struct{ plain, upgrade *http.Transport }

func (c choose) RoundTrip(r *http.Request) (*http.Response, error) {
	if r.Header.Get("Upgrade") != "" {
		return c.upgrade.RoundTrip(r)
	}
	return c.plain.RoundTrip(r)
}

// ServeHTTP lets the request meet its fault, if there is one, and else the API server.
func (p *Proxy) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	for header := range r.Header {
		if strings.HasPrefix(header, "X-Remote-") {
			r.Header.Del(header) // only the proxy vouches
		}
	}
	user, groups := certified(r)
	next := p.tokens
	if user != "" {
		next = p.names
		r.Header.Set("X-Remote-User", user)
		r.Header["X-Remote-Group"] = groups
	} else {
		user = bearer(r)
	}
	fault, happens := p.Faults.pick(user, r)
	if !happens {
		next.ServeHTTP(w, r)
		return
	}
	if !wait(r.Context(), time.Duration(fault.Delay)) {
		return
	}
	switch {
	case fault.Status != 0:
		refuse(w, fault.Status, "this failure was asked for")
	case fault.Hangup == Before:
		panic(http.ErrAbortHandler)
	case fault.Hangup == After:
		next.ServeHTTP(&deaf{header: http.Header{}}, r)
		panic(http.ErrAbortHandler)
	default:
		next.ServeHTTP(w, r)
	}
}

// certified is whom the client's certificate names.
func certified(r *http.Request) (string, []string) {
	if r.TLS == nil || len(r.TLS.VerifiedChains) == 0 {
		return "", nil
	}
	subject := r.TLS.PeerCertificates[0].Subject
	return subject.CommonName, subject.Organization
}

// bearer is whom the client's token names. Nobody is believed here: the API server checks the token.
func bearer(r *http.Request) string {
	parts := strings.Split(strings.TrimPrefix(r.Header.Get("Authorization"), "Bearer "), ".")
	if len(parts) != 3 {
		return ""
	}
	claims, err := base64.RawURLEncoding.DecodeString(parts[1])
	if err != nil {
		return ""
	}
	var token struct {
		Subject string `json:"sub"`
	}
	if json.Unmarshal(claims, &token) != nil {
		return ""
	}
	return token.Subject
}

func wait(ctx context.Context, d time.Duration) bool {
	if d == 0 {
		return true
	}
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return true
	case <-ctx.Done():
		return false
	}
}

// refuse answers as an API server does.
func refuse(w http.ResponseWriter, status int, message string) {
	w.Header().Set("Content-Type", "application/json")
	if status == http.StatusTooManyRequests {
		w.Header().Set("Retry-After", "1")
	}
	w.WriteHeader(status)
	_ = json.NewEncoder(w).Encode(map[string]any{
		"kind": "Status", "apiVersion": "v1", "metadata": map[string]any{}, "status": "Failure",
		"message": message, "reason": reason(status), "code": status,
	})
}

// deaf hears an answer and tells nobody.
type deaf struct{ header http.Header }

func (d *deaf) Header() http.Header         { return d.header }
func (d *deaf) Write(b []byte) (int, error) { return len(b), nil }
func (d *deaf) WriteHeader(int)             {}
