// SPDX-FileCopyrightText: The Skyhook authors
// SPDX-License-Identifier: Apache-2.0

package faults

import (
	"bufio"
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"io"
	"log"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/skyhook-k8s/skyhook/test/cluster/pki"
)

// environment is a proxy, a fake API server behind it that returns the user of each request, and certificates for clients.
type environment struct {
	proxy     *Proxy
	url       string
	authority *pki.Authority
	trust     *x509.CertPool
	reached   atomic.Int32 // requests that reached the API server
}

func newEnvironment(t *testing.T) *environment {
	t.Helper()
	s := &environment{trust: x509.NewCertPool()}
	var err error
	if s.authority, err = pki.NewAuthority("test"); err != nil {
		t.Fatal(err)
	}
	s.trust.AppendCertsFromPEM(s.authority.Certificate)
	front, err := pki.NewAuthority("front")
	if err != nil {
		t.Fatal(err)
	}
	backend := httptest.NewUnstartedServer(http.HandlerFunc(s.serveAPI))
	backend.TLS = &tls.Config{Certificates: []tls.Certificate{s.issueCertificate(t, s.authority, "kube-apiserver")}, ClientAuth: tls.RequestClientCert}
	backend.EnableHTTP2 = true
	backend.StartTLS()
	t.Cleanup(backend.Close)
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	trust := Trust{Serving: s.issueCertificate(t, s.authority, "kube-apiserver"), Vouching: s.issueCertificate(t, front, "front"), Authority: s.trust}
	s.proxy = New(backend.Listener.Addr().String(), trust, (&net.Dialer{}).DialContext, log.New(io.Discard, "", 0))
	served := make(chan struct{})
	go func() {
		defer close(served)
		_ = s.proxy.Serve(listener) // ends with an error, that it was closed
	}()
	t.Cleanup(func() {
		_ = s.proxy.Close()
		<-served
	})
	s.url = "https://" + listener.Addr().String()
	return s
}

// serveAPI responds with the user of the request; at /watch it writes twice, at /exec it changes the protocol.
func (s *environment) serveAPI(w http.ResponseWriter, r *http.Request) {
	s.reached.Add(1)
	switch {
	case r.URL.Path == "/watch":
		_, _ = fmt.Fprintln(w, "one")
		w.(http.Flusher).Flush()
		<-r.Context().Done()
	case r.Header.Get("Upgrade") != "":
		w.Header().Set("Connection", "Upgrade")
		w.Header().Set("Upgrade", r.Header.Get("Upgrade"))
		w.WriteHeader(http.StatusSwitchingProtocols)
		c, buffered, err := w.(http.Hijacker).Hijack()
		if err != nil {
			return
		}
		defer func() { _ = c.Close() }()
		line, _ := buffered.ReadString('\n')
		_, _ = fmt.Fprintf(c, "heard %s", line)
	default:
		vouched := ""
		if len(r.TLS.PeerCertificates) > 0 {
			vouched = r.TLS.PeerCertificates[0].Subject.CommonName
		}
		_, _ = fmt.Fprintf(w, "user=%s groups=%s by=%s authorization=%s", r.Header.Get("X-Remote-User"),
			strings.Join(r.Header["X-Remote-Group"], ","), vouched, r.Header.Get("Authorization"))
	}
}

func (s *environment) issueCertificate(t *testing.T, a *pki.Authority, user string, groups ...string) tls.Certificate {
	t.Helper()
	pair, err := a.Issue(pki.Subject{Name: user, Groups: groups, Hosts: []string{"127.0.0.1"}})
	if err != nil {
		t.Fatal(err)
	}
	keyed, err := tls.X509KeyPair(pair.Certificate, pair.Key)
	if err != nil {
		t.Fatal(err)
	}
	return keyed
}

func (s *environment) newClient(certificates ...tls.Certificate) *http.Client {
	return &http.Client{Transport: &http.Transport{ForceAttemptHTTP2: true, TLSClientConfig: &tls.Config{RootCAs: s.trust, Certificates: certificates}}}
}

func get(t *testing.T, c *http.Client, url string, headers ...string) (int, string, error) {
	t.Helper()
	request, err := http.NewRequest(http.MethodGet, url, nil)
	if err != nil {
		t.Fatal(err)
	}
	for i := 0; i < len(headers); i += 2 {
		request.Header.Set(headers[i], headers[i+1])
	}
	response, err := c.Do(request)
	if err != nil {
		return 0, "", err
	}
	defer func() { _ = response.Body.Close() }()
	body, err := io.ReadAll(response.Body)
	return response.StatusCode, string(body), err
}

// Users keep their identity, and cannot impersonate others.
func TestIdentity(t *testing.T) {
	s := newEnvironment(t)
	named := s.newClient(s.issueCertificate(t, s.authority, "system:node:n1", "system:nodes", "more"))
	for _, c := range []struct {
		client  *http.Client
		headers []string
		want    string
	}{
		{named, nil, "user=system:node:n1 groups=more,system:nodes by=front authorization="},
		{s.newClient(), []string{"Authorization", "Bearer a.b.c"}, "user= groups= by= authorization=Bearer a.b.c"},
		{s.newClient(), []string{"X-Remote-User", "admin", "X-Remote-Group", "system:masters"}, "user= groups= by= authorization="},
		{named, []string{"X-Remote-User", "admin", "X-Remote-Extra-Scopes", "all"}, "user=system:node:n1 groups=more,system:nodes by=front authorization="},
	} {
		if status, body, err := get(t, c.client, s.url+"/api", c.headers...); err != nil || status != http.StatusOK || body != c.want {
			t.Errorf("with %v the API server sees %q (%d, %v), want %q", c.headers, body, status, err, c.want)
		}
	}
	stranger, err := pki.NewAuthority("stranger")
	if err != nil {
		t.Fatal(err)
	}
	if _, body, err := get(t, s.newClient(s.issueCertificate(t, stranger, "admin", "system:masters")), s.url+"/api"); err == nil && body != "user= groups= by= authorization=" {
		t.Errorf("a certificate of another authority was believed: %s", body)
	}
}

func TestFaultsHappen(t *testing.T) {
	s := newEnvironment(t)
	admin := s.newClient(s.issueCertificate(t, s.authority, "admin"))
	claims := base64.RawURLEncoding.EncodeToString([]byte(`{"sub":"system:serviceaccount:skyhook:operator"}`))
	token := []string{"Authorization", "Bearer h." + claims + ".s"}
	for _, c := range []struct {
		name    string
		fault   Fault
		headers []string
		status  int   // 0: the connection is hung up
		reached int32 // whether the API server hears of it
	}{
		{"status", Fault{User: "^admin$", Status: 503}, nil, 503, 0},
		{"another user", Fault{User: "^nobody$", Status: 503}, nil, 200, 1},
		{"user of a token", Fault{User: "^system:serviceaccount:skyhook:", Status: 429}, token, 429, 0},
		{"hang up before", Fault{Hangup: Before}, nil, 0, 0},
		{"hang up after", Fault{Hangup: After}, nil, 0, 1},
		{"delay", Fault{Delay: 1}, nil, 200, 1},
	} {
		t.Run(c.name, func(t *testing.T) {
			client := admin
			if c.headers != nil {
				client = s.newClient()
			}
			if err := s.proxy.Faults.Replace([]Fault{c.fault}); err != nil {
				t.Fatal(err)
			}
			s.reached.Store(0)
			status, body, err := get(t, client, s.url+"/api", c.headers...)
			if status != c.status || (err != nil) != (c.status == 0) {
				t.Errorf("got %d, %v", status, err)
			}
			if s.reached.Load() != c.reached {
				t.Errorf("the API server heard of it %d times", s.reached.Load())
			}
			var answer struct {
				Kind, Status string
				Code         int
			}
			if status >= 400 && (json.Unmarshal([]byte(body), &answer) != nil || answer.Kind != "Status" || answer.Status != "Failure" || answer.Code != c.status) {
				t.Errorf("the answer is %s, not as an API server would", body)
			}
		})
	}
}

// A delayed request does not reach the API server early, and not at all when the client gives up.
func TestGivingUp(t *testing.T) {
	s := newEnvironment(t)
	if err := s.proxy.Faults.Replace([]Fault{{Delay: Duration(1 << 60)}}); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, s.url+"/api", nil)
	if err != nil {
		t.Fatal(err)
	}
	done := make(chan error, 1)
	go func() {
		response, err := s.newClient().Do(request)
		if err == nil {
			_ = response.Body.Close()
		}
		done <- err
	}()
	for len(s.proxy.Faults.Counts()) == 0 || s.proxy.Faults.Counts()[0].Happened == 0 {
		select {
		case err := <-done:
			t.Fatalf("the request ended before it was delayed: %v", err)
		case <-time.After(time.Millisecond):
		}
	}
	cancel()
	if err := <-done; err == nil || s.reached.Load() != 0 {
		t.Errorf("the request ended with %v and reached the API server %d times", err, s.reached.Load())
	}
}

func TestWatchIsHeardAtOnce(t *testing.T) {
	s := newEnvironment(t)
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, s.url+"/watch", nil)
	if err != nil {
		t.Fatal(err)
	}
	response, err := s.newClient().Do(request)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = response.Body.Close() }()
	if line, err := bufio.NewReader(response.Body).ReadString('\n'); err != nil || line != "one\n" {
		t.Errorf("the watch says %q, %v", line, err)
	}
}

// exec and port-forward change the protocol on their connection, with SPDY as well as with WebSocket.
func TestUpgrade(t *testing.T) {
	s := newEnvironment(t)
	for _, protocol := range []string{"SPDY/3.1", "websocket"} {
		c, err := tls.Dial("tcp", strings.TrimPrefix(s.url, "https://"), &tls.Config{RootCAs: s.trust, NextProtos: []string{"http/1.1"}})
		if err != nil {
			t.Fatal(err)
		}
		_, _ = fmt.Fprintf(c, "GET /exec HTTP/1.1\r\nHost: api\r\nConnection: Upgrade\r\nUpgrade: %s\r\n\r\n", protocol)
		reader := bufio.NewReader(c)
		response, err := http.ReadResponse(reader, nil)
		if err != nil || response.StatusCode != http.StatusSwitchingProtocols {
			t.Fatalf("%s: %v, %v", protocol, response, err)
		}
		_, _ = fmt.Fprintln(c, "ls")
		if line, err := reader.ReadString('\n'); err != nil || line != "heard ls\n" {
			t.Errorf("%s: the other side says %q, %v", protocol, line, err)
		}
		_ = response.Body.Close()
		_ = c.Close()
	}
}
