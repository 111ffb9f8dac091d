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

// Trust holds the certificates of the proxy.
type Trust struct {
	Serving   tls.Certificate // what it shows to clients, as the API server would
	Vouching  tls.Certificate // what it shows to the API server, as its front proxy
	Authority *x509.CertPool  // signs clients and the API server
}

// Proxy forwards requests to an API server.
type Proxy struct {
	Faults Set

	watches watches
	server  *http.Server
	tokens  *httputil.ReverseProxy // clients with a token, or with nothing
	names   *httputil.ReverseProxy // clients with a certificate
}

// New creates a proxy in front of the API server at address, which dial connects to.
func New(address string, trust Trust, dial func(ctx context.Context, network, address string) (net.Conn, error), to *log.Logger) *Proxy {
	plain := &tls.Config{RootCAs: trust.Authority, MinVersion: tls.VersionTLS12}
	vouching := plain.Clone()
	vouching.Certificates = []tls.Certificate{trust.Vouching}
	p := &Proxy{tokens: newReverseProxy(address, plain, dial, to), names: newReverseProxy(address, vouching, dial, to)}
	p.server = &http.Server{
		Handler: p, ErrorLog: to, ReadHeaderTimeout: time.Minute,
		TLSConfig: &tls.Config{
			Certificates: []tls.Certificate{trust.Serving}, MinVersion: tls.VersionTLS12, NextProtos: []string{"h2", "http/1.1"},
			ClientAuth: tls.VerifyClientCertIfGiven, ClientCAs: trust.Authority,
		},
	}
	return p
}

// Serve serves on the listener until the proxy is closed.
func (p *Proxy) Serve(l net.Listener) error { return p.server.ServeTLS(l, "", "") }

// Close closes all connections.
func (p *Proxy) Close() error { return p.server.Close() }

// newReverseProxy forwards requests unchanged. Requests that upgrade their connection, such as exec, need HTTP/1.
func newReverseProxy(address string, trust *tls.Config, dial func(context.Context, string, string) (net.Conn, error), to *log.Logger) *httputil.ReverseProxy {
	old := trust.Clone()
	old.NextProtos = []string{"http/1.1"}
	transport := chooseTransport{
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
			writeStatus(w, http.StatusBadGateway, fmt.Sprintf("the API server does not answer: %v", err))
		},
	}
}

type chooseTransport struct{ plain, upgrade *http.Transport }

func (c chooseTransport) RoundTrip(r *http.Request) (*http.Response, error) {
	if r.Header.Get("Upgrade") != "" {
		return c.upgrade.RoundTrip(r)
	}
	return c.plain.RoundTrip(r)
}

// ServeHTTP applies a fault to the request, if one matches, or forwards it to the API server.
func (p *Proxy) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	for header := range r.Header {
		if strings.HasPrefix(header, "X-Remote-") {
			r.Header.Del(header) // only the proxy vouches
		}
	}
	user, groups := certificateUser(r)
	next := p.tokens
	if user != "" {
		next = p.names
		r.Header.Set("X-Remote-User", user)
		r.Header["X-Remote-Group"] = groups
	} else {
		user = tokenUser(r)
	}
	if r.URL.Query().Get("watch") == "true" {
		ctx, end := p.watches.add(r.Context(), user)
		defer end()
		r = r.WithContext(ctx)
	}
	fault, happens := p.Faults.findFault(user, r)
	if !happens {
		next.ServeHTTP(w, r)
		return
	}
	if !sleep(r.Context(), time.Duration(fault.Delay)) {
		return
	}
	if fault.Skew != 0 {
		if err := skewTimes(r, time.Duration(fault.Skew)); err != nil {
			writeStatus(w, http.StatusBadRequest, err.Error())
			return
		}
	}
	switch {
	case fault.Status != 0:
		writeStatus(w, fault.Status, "this failure was asked for")
	case fault.Hangup == Before:
		panic(http.ErrAbortHandler)
	case fault.Hangup == After:
		next.ServeHTTP(&discardResponse{header: http.Header{}}, r)
		panic(http.ErrAbortHandler)
	default:
		next.ServeHTTP(w, r)
	}
}

// certificateUser returns user and groups of the client's certificate.
func certificateUser(r *http.Request) (string, []string) {
	if r.TLS == nil || len(r.TLS.VerifiedChains) == 0 {
		return "", nil
	}
	subject := r.TLS.PeerCertificates[0].Subject
	return subject.CommonName, subject.Organization
}

// tokenUser returns the user of the client's token without verifying it; the API server does.
func tokenUser(r *http.Request) string {
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

func sleep(ctx context.Context, d time.Duration) bool {
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

// writeStatus responds with a Status object, as an API server does.
func writeStatus(w http.ResponseWriter, status int, message string) {
	w.Header().Set("Content-Type", "application/json")
	if status == http.StatusTooManyRequests {
		w.Header().Set("Retry-After", "1")
	}
	w.WriteHeader(status)
	_ = json.NewEncoder(w).Encode(map[string]any{
		"kind": "Status", "apiVersion": "v1", "metadata": map[string]any{}, "status": "Failure",
		"message": message, "reason": statusReason(status), "code": status,
	})
}

// discardResponse is a ResponseWriter that discards everything.
type discardResponse struct{ header http.Header }

func (d *discardResponse) Header() http.Header         { return d.header }
func (d *discardResponse) Write(b []byte) (int, error) { return len(b), nil }
func (d *discardResponse) WriteHeader(int)             {}
