// SPDX-FileCopyrightText: The Skyhook authors
// SPDX-License-Identifier: Apache-2.0

// Package controller runs the operator. It decides when a pass begins; a pass observes the cluster, has the engine decide,
// applies the plan and reports.
//
//	watches ──► requestPass ──► Observe ─► Snapshot ─► Decide ─► Apply ─► status, events, metrics, log
//
// Every watch requests the same pass, so a thousand events make one pass, and there is one writer. The loop paces itself
// by the CPU time of its passes. It does not poll: without requests it waits until the plan's next due time.
package controller

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net/http"
	"path/filepath"
	"time"

	"github.com/go-logr/logr"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	typedcorev1 "k8s.io/client-go/kubernetes/typed/core/v1"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/record"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/healthz"
	"sigs.k8s.io/controller-runtime/pkg/manager"
	"sigs.k8s.io/controller-runtime/pkg/metrics"
	metricsserver "sigs.k8s.io/controller-runtime/pkg/metrics/server"

	opv1 "github.com/skyhook-k8s/skyhook/api/nodeop/v1alpha1"
	"github.com/skyhook-k8s/skyhook/api/skyhook/v1alpha1"
	"github.com/skyhook-k8s/skyhook/internal/cluster"
	"github.com/skyhook-k8s/skyhook/internal/nodeop"
	"github.com/skyhook-k8s/skyhook/internal/skyhook/plan"
)

// eventComponent is the source component of events.
const eventComponent = "skyhook-controller"

// The lease. A leader that cannot renew it stops writing after renewDeadline, and no other one starts before leaseDuration.
// Candidates try every retryPeriod, or up to 2.2 times that, so one takes over within 15 seconds, also when the leader's node
// fails.
const (
	leaseDuration = 10 * time.Second
	renewDeadline = 9 * time.Second
	retryPeriod   = time.Second
)

// hangLimit is how long a pass may take before the process counts as unhealthy.
const hangLimit = time.Minute

// admitInterval is the least time between two rounds of admissions of one rollout, or of those that share a policy.
const admitInterval = 500 * time.Millisecond

// Options configure the operator.
type Options struct {
	Skyhook        plan.Config
	NodeOps        nodeop.Config
	Node           string // this process runs on; empty when unknown
	LeaderElection bool
	WaitForOthers  bool   // do not lead while the operator of another namespace does
	MetricsAddress string // "0" for none
	MetricsSecure  bool   // over TLS, and only to clients that the API server allows
	MetricsCertDir string // with tls.crt and tls.key; the operator signs a certificate itself when empty
	ProbeAddress   string // "0" for none
	PprofAddress   string // empty for none
	Parallel       int    // nodes that are written to at the same time; 0 for the default
	// spec, as JSON, with which the default policy is created if it does not exist; empty: it is not created
	DefaultPolicySpec string
	GuardRemoval      bool // have the API server refuse to delete the operator while something needs it
	Log               logr.Logger
	Registry          metrics.RegistererGatherer // where metrics are registered; the default registry when nil

	// PrometheusTokenFile has the bearer token for Prometheus servers that the configuration names; empty for none.
	PrometheusTokenFile string
}

// Run runs the operator until the context ends or the lease is lost.
func Run(ctx context.Context, config *rest.Config, o Options) error {
	collector := newMetricsCollector()
	config = rest.CopyConfig(config)
	config.QPS, config.Burst = -1, 0 // the number of parallel writes is the limit
	config.Wrap(func(next http.RoundTripper) http.RoundTripper {
		return countingTransport{next: next, writes: collector.apiWrites, onEviction: collector.countEviction}
	})
	if o.Registry == nil {
		o.Registry = metrics.Registry
	}
	if err := errors.Join(collector.registerAll(o.Registry), o.Registry.Register(newBuildInfo(o.Skyhook.Version))); err != nil {
		return fmt.Errorf("registering metrics: %w", err)
	}
	others, stopEvents, err := startOtherOperators(ctx, config, o)
	if err != nil {
		return err
	}
	defer stopEvents()
	m, err := newManager(config, others, o)
	if err != nil {
		return err
	}
	l, end, err := setUpLoop(ctx, m, others, collector, o)
	if err != nil {
		return err
	}
	defer end()
	if err := addProbes(m, l); err != nil {
		return err
	}
	if err := m.Start(ctx); err != nil {
		return fmt.Errorf("running the operator: %w", err)
	}
	return nil
}

// Scheme knows every kind that the operator reads or writes.
func Scheme() (*runtime.Scheme, error) {
	s := runtime.NewScheme()
	if err := errors.Join(clientgoscheme.AddToScheme(s), v1alpha1.AddToScheme(s), opv1.AddToScheme(s)); err != nil {
		return nil, fmt.Errorf("building the scheme: %w", err)
	}
	return s, nil
}

// storedManager is a manager with what its cache holds, and with its lock.
type storedManager struct {
	manager.Manager
	stores *stores
	lock   *exclusiveLock // nil without leader election
}

func newManager(config *rest.Config, others *otherOperators, o Options) (*storedManager, error) {
	scheme, err := Scheme()
	if err != nil {
		return nil, err
	}
	lock, err := newExclusiveLock(config, others)
	if err != nil {
		return nil, err
	}
	stored := newStores()
	lease, renew, retry := leaseDuration, renewDeadline, retryPeriod
	stop := 10 * time.Second
	metricsOptions := metricsserver.Options{BindAddress: o.MetricsAddress, CertDir: o.MetricsCertDir}
	if o.MetricsSecure {
		metricsOptions.SecureServing, metricsOptions.FilterProvider = true, guardMetrics
	}
	// The server would sign a certificate itself if there is none, and whoever verifies it would read no metrics.
	if _, err := tls.LoadX509KeyPair(filepath.Join(o.MetricsCertDir, "tls.crt"), filepath.Join(o.MetricsCertDir, "tls.key")); err != nil && o.MetricsCertDir != "" {
		return nil, fmt.Errorf("reading the certificate for metrics (METRICS_CERT_DIR): %w", err)
	}
	m, err := manager.New(config, manager.Options{
		Scheme: scheme, Logger: o.Log, Cache: cacheOptions(o.Skyhook.Namespace, stored),
		Metrics:                metricsOptions,
		HealthProbeBindAddress: o.ProbeAddress, PprofBindAddress: o.PprofAddress,
		LeaderElection: o.LeaderElection, LeaderElectionResourceLockInterface: lock,
		LeaderElectionReleaseOnCancel: true, // the process ends when Run returns
		LeaseDuration:                 &lease, RenewDeadline: &renew, RetryPeriod: &retry, GracefulShutdownTimeout: &stop,
	})
	if err != nil {
		return nil, fmt.Errorf("setting up the operator: %w", err)
	}
	if !o.LeaderElection {
		lock = nil
	}
	return &storedManager{m, stored, lock}, nil
}

// withProtobuf is a configuration for clients of built-in kinds only. Protobuf is smaller than JSON and decodes with less
// garbage.
func withProtobuf(config *rest.Config) *rest.Config {
	config = rest.CopyConfig(config)
	config.ContentType = runtime.ContentTypeProtobuf
	config.AcceptContentTypes = runtime.ContentTypeProtobuf + "," + runtime.ContentTypeJSON
	return config
}

// setUpLoop adds the loop to the manager. The function it returns stops what the manager does not.
func setUpLoop(ctx context.Context, m *storedManager, others *otherOperators, collector *metricsCollector, o Options) (*Loop, func(), error) {
	direct, err := client.New(m.GetConfig(), client.Options{HTTPClient: m.GetHTTPClient(), Scheme: m.GetScheme(), Mapper: m.GetRESTMapper()})
	if err != nil {
		return nil, nil, fmt.Errorf("making a client: %w", err)
	}
	core, err := typedcorev1.NewForConfigAndClient(withProtobuf(m.GetConfig()), m.GetHTTPClient())
	if err != nil {
		return nil, nil, fmt.Errorf("making a client: %w", err)
	}
	broadcaster := record.NewBroadcaster(record.WithContext(context.WithoutCancel(ctx)), record.WithCorrelatorOptions(record.CorrelatorOptions{SpamKeyFunc: spamKey}))
	requests := newPassRequests()
	l := newLoop(requests, collector, o.Log)
	watches := newWorkloadWatcher(core, requests.requestPass)
	storedOps := newStores()
	opCaches := nodeOpCacheOptions(storedOps)
	opCaches.HTTPClient, opCaches.Scheme, opCaches.Mapper = m.GetHTTPClient(), m.GetScheme(), m.GetRESTMapper()
	ops, err := cache.New(m.GetConfig(), opCaches)
	if err != nil {
		return nil, nil, fmt.Errorf("making a cache: %w", err)
	}
	l.cluster = cluster.New(cluster.Options{
		Config: o.Skyhook, NodeOps: o.NodeOps, Self: o.Node, Parallel: o.Parallel,
		Live: direct, Objects: direct, Cached: m.GetCache(), CachedNodeOps: ops, Workloads: watches,
		Client: &pullSecretClient{Client: direct, namespace: o.Skyhook.Namespace},
		Stores: cluster.Stores{
			Nodes:      func() []*corev1.Node { return listStored[*corev1.Node](m.stores) },
			Pods:       func() []*corev1.Pod { return listStored[*corev1.Pod](m.stores) },
			Jobs:       func() []*batchv1.Job { return listStored[*batchv1.Job](storedOps) },
			NodeOpPods: func() []*corev1.Pod { return listStored[*corev1.Pod](storedOps) },
		},
		OnPodCreate: func(node string) { collector.notePodCreated(node, time.Now()) },
		OnRequest:   func(node string, observed time.Time) { collector.noteRequest(node, observed, time.Now()) },
		OnComplete: func(node string) {
			if collector.awaitsRequest(node) {
				requests.requestSoon()
			} else {
				requests.requestPass()
			}
		},
		ApplyTimeout:   passTimeout,
		LedgerInterval: admitInterval, PrometheusTokenFile: o.PrometheusTokenFile,
	})
	l.reporter = newReporter(l.cluster, collector, broadcaster.NewRecorder(m.GetScheme(), corev1.EventSource{Component: eventComponent}), o.Log)
	broadcaster.StartRecordingToSink(&typedcorev1.EventSinkImpl{Interface: core.Events("")})
	end := func() {
		watches.stop()
		broadcaster.Shutdown()
	}
	first := startup{
		others: others, lock: m.lock,
		migration: &migrationCheck{client: direct, namespace: o.Skyhook.Namespace, events: others.events, log: o.Log},
		webhooks:  &webhookRemover{client: direct, namespace: o.Skyhook.Namespace, log: o.Log}, loop: l,
		policy: &policyCreator{client: direct, name: o.Skyhook.DefaultPolicy, spec: o.DefaultPolicySpec, log: o.Log},
	}
	removal := manager.RunnableFunc(func(ctx context.Context) error {
		configureRemovalGuard(ctx, direct, m.GetCache(), o)
		return nil
	})
	if err := errors.Join(m.Add(additionalCache{ops}), watcher{requests, collector, time.Now, o.Skyhook.Namespace}.watchAll(ctx, m.GetCache(), ops), m.Add(first), m.Add(removal)); err != nil {
		end()
		return nil, nil, fmt.Errorf("setting up the loop: %w", err)
	}
	return l, end, nil
}

// additionalCache is a second cache that the manager syncs like its own before it starts the loop.
type additionalCache struct{ cache.Cache }

// GetCache has the manager treat it as a cache.
func (f additionalCache) GetCache() cache.Cache { return f.Cache }

// addProbes adds the checks of /healthz and /readyz.
func addProbes(m manager.Manager, l *Loop) error {
	alive := func(*http.Request) error {
		if d := l.metrics.liveness.sinceStart(l.clock()); d > hangLimit {
			return fmt.Errorf("a pass of the loop has been running for %s", d.Round(time.Second))
		}
		return nil
	}
	ready := func(r *http.Request) error {
		ctx, cancel := context.WithTimeout(r.Context(), time.Second)
		defer cancel()
		if !m.GetCache().WaitForCacheSync(ctx) {
			return errors.New("the caches have not synced yet")
		}
		return nil
	}
	return errors.Join(
		m.AddHealthzCheck("ping", healthz.Ping), m.AddHealthzCheck("loop", alive),
		m.AddReadyzCheck("caches", ready),
	)
}
