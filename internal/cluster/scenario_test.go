// SPDX-FileCopyrightText: The Skyhook authors
// SPDX-License-Identifier: Apache-2.0

package cluster

import (
	"context"
	"fmt"
	"net/http"
	"os"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/go-logr/logr"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"
	ctrllog "sigs.k8s.io/controller-runtime/pkg/log"

	"github.com/skyhook-k8s/skyhook/api/skyhook/v1alpha1"
	"github.com/skyhook-k8s/skyhook/internal/cluster/gates"
	"github.com/skyhook-k8s/skyhook/internal/nodeop"
	"github.com/skyhook-k8s/skyhook/internal/rollout"
	"github.com/skyhook-k8s/skyhook/internal/rollout/engine"
	"github.com/skyhook-k8s/skyhook/internal/skyhook/plan"
	"github.com/skyhook-k8s/skyhook/test/controlplane"
	"github.com/skyhook-k8s/skyhook/test/testenv"
)

var plane *controlplane.Plane

func TestMain(m *testing.M) {
	ctrllog.SetLogger(logr.Discard())
	os.Exit(controlplane.Main(m, &plane, controlplane.Options{CRDs: []string{"../../chart/files/crds", "testdata/neighbours"}}))
}

// scenario is an environment in which a test makes passes. Its clock moves only when the test moves it.
type scenario struct {
	*testenv.Env
	cluster  *Cluster
	now      time.Time
	requests *recorder

	statusesHang  bool                                      // statuses are not answered
	deletionsHang bool                                      // deletions are not answered
	wrapTransport func(http.RoundTripper) http.RoundTripper // see wrapRequests; nil to leave it
}

func newScenario(t *testing.T, nodes int) *scenario {
	t.Helper()
	s := &scenario{Env: testenv.New(t, plane, nodes), now: time.Now(), requests: &recorder{}}
	s.cluster = s.newCluster(s.requests)
	return s
}

// wrapRequests passes the requests of the scenario's Cluster, and of those made later, through another transport.
func (s *scenario) wrapRequests(wrap func(next http.RoundTripper) http.RoundTripper) {
	s.Helper()
	s.wrapTransport = wrap
	s.cluster = s.newCluster(s.requests)
}

// newCluster makes another Cluster, as a second operator would have.
func (s *scenario) newCluster(r *recorder) *Cluster {
	s.Helper()
	config := rest.CopyConfig(s.Config)
	config.Wrap(func(next http.RoundTripper) http.RoundTripper {
		if s.wrapTransport != nil {
			next = s.wrapTransport(next)
		}
		return recordingTransport{r, next}
	})
	c, err := client.New(config, client.Options{Scheme: s.Client.Scheme()})
	s.Must(err)
	return New(Options{
		Live: c, Objects: c, Client: c, Clock: func() time.Time { return s.now },
		NodeOps: nodeop.Config{AgentImage: "registry.example/agent:v1", CopyDirRoot: "/var/lib/skyhook", LogRoot: "/var/log/skyhook"},
		Config: plan.Config{
			Namespace: s.Namespace, AgentImage: "registry.example/agent:v1", PauseImage: "registry.example/pause:3",
			CopyDirRoot: "/var/lib/skyhook", LogRoot: "/var/log/skyhook",
			PrometheusEndpoints: []string{gates.AnyEndpoint},
			RuntimeTaint:        corev1.Taint{Key: v1alpha1.Group, Value: "runtime-required", Effect: corev1.TaintEffectNoSchedule},
		},
	})
}

// decide observes and decides.
func (s *scenario) decide(c *Cluster) (*Compiled, rollout.Plan) {
	s.Helper()
	o, err := c.Observe(context.Background())
	s.Must(err)
	compiled := c.Compile(o, s.now)
	return compiled, engine.Decide(compiled.Snapshot)
}

// pass observes, decides, applies and updates statuses.
func (s *scenario) pass() Outcome {
	s.Helper()
	o, plan := s.decide(s.cluster)
	out, err := s.cluster.Apply(context.Background(), o, plan)
	s.Must(err)
	s.updateStatuses(o, plan)
	return out
}

func (s *scenario) updateStatuses(o *Compiled, plan rollout.Plan) {
	s.Helper()
	for _, h := range o.Objects.Skyhooks {
		by := o.Skyhook(h)
		for _, r := range plan.Reports {
			if r.Rollout == by.Rollout.Ref && !by.Removed {
				_, err := s.cluster.UpdateSkyhookStatus(context.Background(), h, by.Status(r, plan.Groups))
				s.Must(err)
			}
		}
	}
}

// finish makes passes, with kubelets in between, until one has nothing to do.
func (s *scenario) finish() {
	s.Helper()
	for range 60 {
		if done := s.pass().AllActions(); len(done) == 0 && len(s.ListPods()) == 0 {
			return
		}
		s.now = s.now.Add(time.Second)
		s.SettlePods()
	}
	s.Fatalf("after 60 passes there is still something to do; pods %v", s.podNames())
}

// podNodes are the nodes that our pods run on.
func (s *scenario) podNodes() []string {
	var out []string
	for _, p := range s.ListPods() {
		out = append(out, p.Spec.NodeName)
	}
	slices.Sort(out)
	return out
}

func (s *scenario) podNames() []string {
	var out []string
	for _, p := range s.ListPods() {
		out = append(out, p.Name)
	}
	slices.Sort(out)
	return out
}

// state is everything that matters about nodes, pods, ConfigMaps and Skyhooks, as text. Times are left out.
func (s *scenario) state() string {
	s.Helper()
	var b strings.Builder
	nodes, maps, hooks := &corev1.NodeList{}, &corev1.ConfigMapList{}, &v1alpha1.SkyhookList{}
	s.Must(s.Client.List(context.Background(), nodes))
	s.Must(s.Client.List(context.Background(), maps, client.InNamespace(s.Namespace)))
	s.Must(s.Client.List(context.Background(), hooks))
	for _, n := range nodes.Items {
		fmt.Fprintf(&b, "node %s %v %v %v %v\n", n.Name, n.Annotations, n.Labels, n.Spec.Unschedulable, n.Spec.Taints)
		for _, c := range n.Status.Conditions {
			fmt.Fprintf(&b, "  %s %s %s\n", c.Type, c.Status, c.Reason)
		}
	}
	for _, p := range s.ListPods() {
		fmt.Fprintf(&b, "pod %s %s %v\n", p.Name, p.UID, p.DeletionTimestamp != nil)
	}
	for _, m := range maps.Items {
		fmt.Fprintf(&b, "ConfigMap %s %s %v\n", m.Name, m.UID, m.Data)
	}
	for _, h := range hooks.Items {
		fmt.Fprintf(&b, "Skyhook %s %v %v\n", h.Name, h.Finalizers, h.Status.Internal.Admission)
	}
	return b.String()
}

// recorder remembers write requests in their order, as "verb resource name".
type recorder struct {
	mu  sync.Mutex
	all []string
}

func (r *recorder) list() []string {
	r.mu.Lock()
	defer r.mu.Unlock()
	return slices.Clone(r.all)
}

func (r *recorder) reset() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.all = nil
}

type recordingTransport struct {
	r    *recorder
	next http.RoundTripper
}

func (t recordingTransport) RoundTrip(q *http.Request) (*http.Response, error) {
	if q.Method != http.MethodGet && !q.URL.Query().Has("dryRun") {
		t.r.mu.Lock()
		parts := strings.Split(q.URL.Path, "/")
		if i := slices.Index(parts, "namespaces"); i >= 0 && len(parts) > i+2 {
			parts = parts[i+2:]
		} else {
			parts = parts[slices.Index(parts, "v1")+1+slices.Index(parts, "v1alpha1")+1:]
		}
		t.r.all = append(t.r.all, q.Method+" "+strings.Join(parts, "/"))
		t.r.mu.Unlock()
	}
	return t.next.RoundTrip(q)
}

const demo = `
apiVersion: skyhook.nvidia.com/v1alpha1
kind: Skyhook
metadata: {name: demo}
spec:
  nodeSelectors: {matchLabels: {pool: gpu}}
  packages:
    tuning:
      version: 1.1.0
      image: registry.example/packages/shellscript
      configMap: {apply.sh: "echo hello"}
`

const driver = `
apiVersion: skyhook.nvidia.com/v1alpha1
kind: Skyhook
metadata: {name: driver}
spec:
  nodeSelectors: {matchLabels: {pool: gpu}}
  packages:
    kernel:
      version: 1.0.0
      image: registry.example/packages/kernel
      interrupt: {type: reboot}
`

func workload(name, node string) string {
	return fmt.Sprintf(`
apiVersion: v1
kind: Pod
metadata: {name: %s, namespace: default, labels: {app: %s}}
spec:
  nodeName: %s
  terminationGracePeriodSeconds: 30
  containers: [{name: main, image: registry.example/app:1}]
`, name, name, node)
}
