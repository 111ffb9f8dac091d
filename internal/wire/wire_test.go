// SPDX-FileCopyrightText: The Skyhook authors
// SPDX-License-Identifier: Apache-2.0

package wire

import (
	"context"
	"crypto/tls"
	"encoding/pem"
	"net"
	"net/http"
	"net/http/httptest"
	"net/http/httptrace"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"testing"

	"golang.org/x/sys/unix"
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
	watches, err := New(config)
	if err != nil {
		t.Fatal(err)
	}
	config.Wrap(watches.Before)
	c, err := rest.HTTPClientFor(config)
	if err != nil {
		t.Fatal(err)
	}
	return c
}

// TestWatches holds which requests are watches that are cut down, and which have a connection of their own; that all of
// them say who asks, once, and that nothing else is changed.
func TestWatches(t *testing.T) {
	s := newServer(t, protobufWatch)
	config := s.config()
	token := filepath.Join(t.TempDir(), "token") // as a pod has it: it is renewed now and then
	if err := os.WriteFile(token, []byte("secret"), 0o600); err != nil {
		t.Fatal(err)
	}
	config.BearerToken, config.BearerTokenFile = "", token
	wrapped := 0
	config.Wrap(func(next http.RoundTripper) http.RoundTripper {
		return sent(func(r *http.Request) (*http.Response, error) {
			wrapped++
			return next.RoundTrip(r)
		})
	})
	c := client(t, config)
	const cut, alone = true, true
	paths := map[string]struct{ cut, alone bool }{
		"/api/v1/nodes?watch=true":                                                {cut, alone},
		"/api/v1/nodes?resourceVersion=1&watch=1":                                 {cut, alone},
		"/api/v1/namespaces/n/pods?watch=true":                                    {cut, alone},
		"/api/v1/pods?labelSelector=a&watch=true":                                 {cut, alone},
		"/apis/batch/v1/jobs?watch=true":                                          {cut, alone},
		"/api/v1/pods?fieldSelector=spec.nodeName%3Dn&watch=true":                 {cut: cut},
		"/api/v1/nodes?watch=false":                                               {},
		"/api/v1/nodes":                                                           {},
		"/api/v1/nodes/n?watch=true":                                              {},
		"/api/v1/configmaps?watch=true":                                           {},
		"/apis/metrics.k8s.io/v1beta1/nodes?watch=true":                           {},
		"/apis/skyhook.nvidia.com/v1alpha1/skyhooks?watch=true":                   {},
		"/apis/authorization.k8s.io/v1/namespaces/n/localsubjectaccessreviews?a=": {},
	}
	for path, want := range paths {
		answer := get(t, c, s.URL+path)
		s.mu.Lock()
		got := s.asked[path]
		s.mu.Unlock()
		if !slices.Equal(got.Header["Authorization"], []string{"Bearer secret"}) || !slices.Equal(got.Header["Impersonate-User"], []string{"somebody"}) {
			t.Errorf("%s: asked by %v", path, got.Header)
		}
		if _, isCut := answer.Body.(*stream); isCut != want.cut || (got.ProtoMajor == 1) != want.alone {
			t.Errorf("%s: cut down %v, HTTP/%d, want %+v", path, isCut, got.ProtoMajor, want)
		}
		_ = answer.Body.Close()
	}
	if wrapped != len(paths) {
		t.Errorf("%d requests went %d times through what wraps them", len(paths), wrapped)
	}
}

// TestOwnPods: less is read of the pods that are watched by their labels than of workloads, which are watched node by node.
func TestOwnPods(t *testing.T) {
	for query, want := range map[string]bool{"labelSelector=a&watch=true": false, "fieldSelector=spec.nodeName%3Dn&watch=true": true} {
		r, err := http.NewRequestWithContext(t.Context(), http.MethodGet, "https://127.0.0.1/api/v1/pods?"+query, nil)
		if err != nil {
			t.Fatal(err)
		}
		k, isFiltered := findKind(r)
		if _, hasTolerations := k.kept[2][22]; !isFiltered || hasTolerations != want {
			t.Errorf("%s: filtered %v, tolerations are kept %v, want %v", query, isFiltered, hasTolerations, want)
		}
	}
}

func get(t *testing.T, c *http.Client, url string) *http.Response {
	t.Helper()
	r, err := http.NewRequestWithContext(t.Context(), http.MethodGet, url, nil)
	if err != nil {
		t.Fatal(err)
	}
	answer, err := c.Do(r)
	if err != nil {
		t.Fatal(err)
	}
	return answer
}

// TestOneWatch holds that only a watch of all nodes leaves out what it said before, and only one at a time: what another
// was told, this one was not.
func TestOneWatch(t *testing.T) {
	s := newServer(t, protobufWatch)
	c := client(t, s.config())
	leavesOut := func(path string) (bool, func()) {
		answer := get(t, c, s.URL+path)
		return answer.Body.(*stream).dedup != nil, func() {
			_ = answer.Body.Close()
			_ = answer.Body.Close() // clients do
		}
	}
	for _, path := range []string{"/api/v1/pods?watch=true", "/api/v1/nodes?labelSelector=a&watch=true", "/api/v1/nodes?fieldSelector=a&watch=true"} {
		if so, end := leavesOut(path); so {
			t.Errorf("%s leaves out what was said before", path)
			end()
		}
	}
	first, end := leavesOut("/api/v1/nodes?watch=true")
	second, endSecond := leavesOut("/api/v1/nodes?watch=true")
	endSecond()
	third, endThird := leavesOut("/api/v1/nodes?watch=true")
	endThird()
	end()
	fourth, endFourth := leavesOut("/api/v1/nodes?watch=true")
	endFourth()
	if !first || second || third || !fourth {
		t.Errorf("the first leaves out %v, one beside it %v and %v, one after it %v", first, second, third, fourth)
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

// TestDial holds that the connection of nodes is made as the configuration says, that it is not changed itself, and that
// one that cannot be used is refused.
func TestDial(t *testing.T) {
	s := newServer(t, protobufWatch)
	config := s.config()
	dialed := 0
	config.Dial = func(ctx context.Context, network, address string) (net.Conn, error) {
		dialed++
		return (&net.Dialer{}).DialContext(ctx, network, address)
	}
	_ = get(t, client(t, config), s.URL+"/api/v1/nodes?watch=true").Body.Close()
	if dialed != 1 || len(config.NextProtos) > 0 {
		t.Errorf("dialed %d times, speaks %v", dialed, config.NextProtos)
	}
	if _, err := New(&rest.Config{Host: s.URL, TLSClientConfig: rest.TLSClientConfig{CAFile: filepath.Join(t.TempDir(), "none")}}); err == nil {
		t.Error("a configuration that cannot be read was accepted")
	}
}

// TestDeadConnection holds that the kernel asks whether the API server is still there when nothing comes from it, and gives
// a connection up after half a minute, as HTTP/2 does on the other one.
func TestDeadConnection(t *testing.T) {
	s := newServer(t, protobufWatch)
	w, err := New(s.config())
	if err != nil {
		t.Fatal(err)
	}
	var options [4]int
	trace := &httptrace.ClientTrace{GotConn: func(got httptrace.GotConnInfo) {
		encrypted, _ := got.Conn.(*tls.Conn)
		raw, err := encrypted.NetConn().(*net.TCPConn).SyscallConn()
		if err != nil {
			t.Error(err)
			return
		}
		_ = raw.Control(func(fd uintptr) {
			for i, option := range [][2]int{
				{unix.SOL_SOCKET, unix.SO_KEEPALIVE}, {unix.IPPROTO_TCP, unix.TCP_KEEPIDLE}, {unix.IPPROTO_TCP, unix.TCP_KEEPINTVL}, {unix.IPPROTO_TCP, unix.TCP_KEEPCNT},
			} {
				if options[i], err = unix.GetsockoptInt(int(fd), option[0], option[1]); err != nil {
					t.Error(err)
				}
			}
		})
	}}
	r, err := http.NewRequestWithContext(httptrace.WithClientTrace(t.Context(), trace), http.MethodGet, s.URL+"/api/v1/nodes?watch=true", nil)
	if err != nil {
		t.Fatal(err)
	}
	answer, err := w.Before(nil).RoundTrip(r)
	if err != nil {
		t.Fatal(err)
	}
	_ = answer.Body.Close()
	on, idle, interval, count := options[0], options[1], options[2], options[3]
	if on != 1 || idle+interval*count != 30 {
		t.Errorf("asked %v after %d s, then every %d s, %d times", on == 1, idle, interval, count)
	}
}
