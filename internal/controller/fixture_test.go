// SPDX-FileCopyrightText: The Skyhook authors
// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"net/http"
	"os"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/go-logr/logr"
	"github.com/go-logr/logr/funcr"
	"github.com/prometheus/client_golang/prometheus"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	ctrllog "sigs.k8s.io/controller-runtime/pkg/log"

	"github.com/skyhook-k8s/skyhook/api/skyhook/v1alpha1"
	"github.com/skyhook-k8s/skyhook/internal/skyhook/plan"
	"github.com/skyhook-k8s/skyhook/test/controlplane"
	"github.com/skyhook-k8s/skyhook/test/testenv"
)

var plane *controlplane.Plane

func TestMain(m *testing.M) {
	ctrllog.SetLogger(logr.Discard())
	os.Exit(controlplane.Main(m, &plane, controlplane.Options{CRDs: []string{"../../chart/files/crds"}}))
}

// fixture is an environment with a kubelet in which operators run.
type fixture struct {
	*testenv.Env
	kubelet  *testenv.Kubelet
	registry *prometheus.Registry // of the operator that runs
	stop     func()               // ends it
	options  Options              // for operators that are started
	config   *rest.Config         // likewise
}

func newFixture(t *testing.T, nodes int) *fixture {
	t.Helper()
	w := testenv.New(t, plane, nodes)
	return &fixture{Env: w, kubelet: w.StartKubelet(), stop: func() {}, config: plane.Config, options: Options{
		MetricsAddress: "0", ProbeAddress: "0", Log: verboseLog(), WaitForOthers: true,
		Skyhook: plan.Config{
			Namespace: w.Namespace, AgentImage: "registry.example/agent:v1", PauseImage: "registry.example/pause:3",
			CopyDirRoot: "/var/lib/skyhook", LogRoot: "/var/log/skyhook",
			RuntimeTaint: corev1.Taint{Key: v1alpha1.Group, Value: "runtime-required", Effect: corev1.TaintEffectNoSchedule},
		},
	}}
}

// startOperator runs an operator until the test ends or stop is called.
func (s *fixture) startOperator() {
	s.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	o := s.options
	s.registry = prometheus.NewRegistry()
	o.Registry = s.registry
	config := s.config
	label := runLabelled(func(context.Context) { ended <- Run(ctx, config, o) })
	stopped := false
	s.stop = func() {
		cancel()
		if stopped {
			return
		}
		stopped = true
		if err := <-ended; err != nil {
			s.Errorf("the operator ended: %v", err)
		}
		checkLeaks(s, label)
	}
	s.Cleanup(s.stop)
}

// verboseLog is a log that go test -v prints.
func verboseLog() logr.Logger {
	if !testing.Verbose() {
		return logr.Discard()
	}
	return funcr.New(func(_, line string) { fmt.Println(time.Now().Format("05.000"), line) }, funcr.Options{})
}

// waitNoPods waits until every pod is gone.
func (s *fixture) waitNoPods() {
	s.Helper()
	s.Eventually("no pod is left", func() bool { return len(s.ListPods()) == 0 })
}

// sumCounter adds up all series of a counter.
func sumCounter(t *testing.T, r *prometheus.Registry, name string) float64 {
	t.Helper()
	families, err := r.Gather()
	if err != nil {
		t.Fatal(err)
	}
	out := 0.0
	for _, f := range families {
		for _, m := range f.GetMetric() {
			if f.GetName() == name {
				out += m.GetCounter().GetValue()
			}
		}
	}
	return out
}

// requestRecorder records the write requests of an operator.
type requestRecorder struct {
	mu  sync.Mutex
	all []recordedRequest
}

type recordedRequest struct {
	at         time.Time
	method     string
	path, body string
	answer     int // HTTP status; 0 if there is none
}

func (l *requestRecorder) wrap(c *rest.Config) *rest.Config {
	c = rest.CopyConfig(c)
	c.Wrap(func(next http.RoundTripper) http.RoundTripper { return recordingTransport{l, next} })
	return c
}

func (l *requestRecorder) requests() []recordedRequest {
	l.mu.Lock()
	defer l.mu.Unlock()
	return slices.Clone(l.all)
}

type recordingTransport struct {
	l    *requestRecorder
	next http.RoundTripper
}

func (l recordingTransport) RoundTrip(r *http.Request) (*http.Response, error) {
	if r.Method == http.MethodGet || r.Body == nil || r.URL.Query().Has("dryRun") {
		return l.next.RoundTrip(r)
	}
	body, err := io.ReadAll(r.Body)
	if err != nil {
		return nil, err
	}
	r.Body = io.NopCloser(bytes.NewReader(body))
	l.l.mu.Lock()
	index := len(l.l.all)
	l.l.all = append(l.l.all, recordedRequest{at: time.Now(), method: r.Method, path: r.URL.Path, body: string(body)})
	l.l.mu.Unlock()
	answer, err := l.next.RoundTrip(r)
	if err == nil {
		l.l.mu.Lock()
		l.l.all[index].answer = answer.StatusCode
		l.l.mu.Unlock()
	}
	return answer, err
}

// collectLines is a log that a test reads when nothing writes to it any more.
func collectLines(lines *[]string) logr.Logger {
	var mu sync.Mutex
	return funcr.New(func(_, line string) {
		mu.Lock()
		defer mu.Unlock()
		*lines = append(*lines, line)
	}, funcr.Options{})
}

func newTypedClient(t *testing.T) kubernetes.Interface {
	t.Helper()
	c, err := kubernetes.NewForConfig(plane.Config)
	if err != nil {
		t.Fatal(err)
	}
	return c
}
