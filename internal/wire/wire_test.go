// SPDX-FileCopyrightText: The Skyhook authors
// SPDX-License-Identifier: Apache-2.0

package wire

import (
	"context"
	"encoding/pem"
	"fmt"
	"net"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
)

const protobufWatch = "application/vnd.kubernetes.protobuf;stream=watch"

// server is an API server that answers every request with one event about a node, and remembers who asked how.
type server struct {
	*httptest.Server
	mu    sync.Mutex
	asked map[string]*http.Request
}

func newServer(t *testing.T, media string) *server {
	t.Helper()
	event := framed(encoded(t, "ADDED", &corev1.Node{
		ObjectMeta: metav1.ObjectMeta{Name: "n"}, Status: corev1.NodeStatus{Phase: "cut"},
	}))
	s := &server{asked: map[string]*http.Request{}}
	s.Server = httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		s.mu.Lock()
		s.asked[r.URL.RequestURI()] = r
		s.mu.Unlock()
		w.Header().Set("Content-Type", media)
		_, _ = w.Write(event)
	}))
	s.EnableHTTP2 = true
	s.StartTLS()
	t.Cleanup(s.Close)
	return s
}

// config is how to reach it.
func (s *server) config() *rest.Config {
	ca := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: s.Certificate().Raw})
	return &rest.Config{
		Host: s.URL, BearerToken: "secret", UserAgent: "test", TLSClientConfig: rest.TLSClientConfig{CAData: ca},
		Impersonate: rest.ImpersonationConfig{UserName: "somebody"}, ContentConfig: rest.ContentConfig{ContentType: "application/vnd.kubernetes.protobuf"},
	}
}

// client is a client whose watches go through here.
func client(t *testing.T, config *rest.Config) *http.Client {
	t.Helper()
	watches, err := For(config)
	if err != nil {
		t.Fatal(err)
	}
	config.Wrap(watches)
	c, err := rest.HTTPClientFor(config)
	if err != nil {
		t.Fatal(err)
	}
	return c
}

// TestWatches holds which requests have a connection of their own, that all of them say who asks, once, and that
// nothing but watches is changed.
func TestWatches(t *testing.T) {
	s := newServer(t, protobufWatch)
	config := s.config()
	var mu sync.Mutex
	wrapped := 0
	config.Wrap(func(next http.RoundTripper) http.RoundTripper {
		return sent(func(r *http.Request) (*http.Response, error) {
			mu.Lock()
			wrapped++
			mu.Unlock()
			return next.RoundTrip(r)
		})
	})
	c := client(t, config)
	paths := map[string]int{ // and the version of HTTP
		"/api/v1/nodes?watch=true":                                                1,
		"/api/v1/nodes?resourceVersion=1&watch=1":                                 1,
		"/api/v1/namespaces/n/pods?watch=true":                                    1,
		"/api/v1/pods?labelSelector=a&watch=true":                                 1,
		"/apis/batch/v1/jobs?watch=true":                                          1,
		"/api/v1/pods?fieldSelector=spec.nodeName%3Dn&watch=true":                 2,
		"/api/v1/nodes?watch=false":                                               2,
		"/api/v1/nodes":                                                           2,
		"/api/v1/nodes/n?watch=true":                                              2,
		"/api/v1/configmaps?watch=true":                                           2,
		"/apis/metrics.k8s.io/v1beta1/nodes?watch=true":                           2,
		"/apis/skyhook.nvidia.com/v1alpha1/skyhooks?watch=true":                   2,
		"/apis/authorization.k8s.io/v1/namespaces/n/localsubjectaccessreviews?a=": 2,
	}
	for path, version := range paths {
		r, err := http.NewRequestWithContext(t.Context(), http.MethodGet, s.URL+path, nil)
		if err != nil {
			t.Fatal(err)
		}
		answer, err := c.Do(r)
		if err != nil {
			t.Fatal(err)
		}
		_ = answer.Body.Close()
		s.mu.Lock()
		got := s.asked[path]
		s.mu.Unlock()
		if got.ProtoMajor != version {
			t.Errorf("%s: HTTP/%d, want %d", path, got.ProtoMajor, version)
		}
		if !slices.Equal(got.Header["Authorization"], []string{"Bearer secret"}) || !slices.Equal(got.Header["Impersonate-User"], []string{"somebody"}) {
			t.Errorf("%s: asked by %v", path, got.Header)
		}
		_, isCut := answer.Body.(*stream)
		if want := version == 1 || strings.Contains(path, "fieldSelector"); isCut != want {
			t.Errorf("%s: cut down %v, want %v", path, isCut, want)
		}
	}
	if wrapped != len(paths) {
		t.Errorf("%d requests went %d times through what wraps them", len(paths), wrapped)
	}
}

type sent func(*http.Request) (*http.Response, error)

func (f sent) RoundTrip(r *http.Request) (*http.Response, error) { return f(r) }

// TestWatchesClient holds that a client of Kubernetes reads what is left, and that a body in another form is left alone.
func TestWatchesClient(t *testing.T) {
	config := newServer(t, protobufWatch).config()
	typed, err := kubernetes.NewForConfigAndClient(config, client(t, config))
	if err != nil {
		t.Fatal(err)
	}
	w, err := typed.CoreV1().Nodes().Watch(t.Context(), metav1.ListOptions{})
	if err != nil {
		t.Fatal(err)
	}
	defer w.Stop()
	e := <-w.ResultChan()
	if n, ok := e.Object.(*corev1.Node); !ok || n.Name != "n" || n.Status.Phase != "" {
		t.Errorf("read %v", e)
	}
	for _, media := range []string{"application/json", "application/vnd.kubernetes.protobuf", "application/vnd.kubernetes.protobuf;stream=other", "no/such;;"} {
		s := newServer(t, media)
		answer, err := client(t, s.config()).Get(s.URL + "/api/v1/nodes?watch=true")
		if err != nil {
			t.Fatal(err)
		}
		_ = answer.Body.Close()
		if _, isCut := answer.Body.(*stream); isCut {
			t.Errorf("%s was cut down", media)
		}
	}
}

// TestDial holds that the connections of watches are made as the configuration says, and that it is not changed itself.
func TestDial(t *testing.T) {
	s := newServer(t, protobufWatch)
	config := s.config()
	var mu sync.Mutex
	dialed := 0
	config.Dial = func(ctx context.Context, network, address string) (net.Conn, error) {
		mu.Lock()
		dialed++
		mu.Unlock()
		return (&net.Dialer{}).DialContext(ctx, network, address)
	}
	answer, err := client(t, config).Get(s.URL + "/api/v1/nodes?watch=true")
	if err != nil {
		t.Fatal(err)
	}
	_ = answer.Body.Close()
	if dialed != 1 || len(config.NextProtos) > 0 {
		t.Errorf("dialed %d times, speaks %v", dialed, config.NextProtos)
	}
	if _, err := For(&rest.Config{Host: s.URL, TLSClientConfig: rest.TLSClientConfig{CAFile: fmt.Sprintf("%s/none", t.TempDir())}}); err == nil {
		t.Error("a configuration that cannot be read was accepted")
	}
}
