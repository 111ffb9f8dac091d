// SPDX-FileCopyrightText: The Skyhook authors
// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/go-logr/logr"
	"github.com/prometheus/client_golang/prometheus"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/client-go/kubernetes/scheme"
	typedauthorizationv1 "k8s.io/client-go/kubernetes/typed/authorization/v1"
	typedcoordinationv1 "k8s.io/client-go/kubernetes/typed/coordination/v1"
	typedcorev1 "k8s.io/client-go/kubernetes/typed/core/v1"
	"k8s.io/client-go/rest"
	toolscache "k8s.io/client-go/tools/cache"
	"k8s.io/client-go/tools/leaderelection/resourcelock"
	"k8s.io/client-go/tools/record"
	"k8s.io/utils/ptr"

	"github.com/skyhook-k8s/skyhook/internal/options"
)

// maxClockSkew is how far the clocks of two nodes may differ. A lease that expired longer ago counts as free at first sight.
const maxClockSkew = 5 * time.Minute

// reasonOtherOperator is the reason of the event about an operator in another namespace.
const reasonOtherOperator = "OtherOperator"

// otherOperators watches the leases of operators in other namespaces. The predecessor's operator is usually in a namespace of
// its own, so the lease of this namespace alone does not keep the two from working on the same nodes.
type otherOperators struct {
	namespace    string // of this operator
	clock        func() time.Time
	log          logr.Logger
	events       resourcelock.EventRecorder
	gauge, since *prometheus.GaugeVec
	ready        chan struct{}                                     // closed when the leases are known, or cannot be
	lister       typedcoordinationv1.LeasesGetter                  // nil when this operator waits for nobody
	runsOperator func(context.Context, *otherLeader) (bool, error) // says whether the holder of a lease is an operator

	mu       sync.Mutex
	readied  bool
	leases   map[string]observedLease // by namespace
	reported string                   // namespace of the operator that was reported last; empty for none
}

// observedLease is a lease and the time by this process' clock at which it was seen to be renewed.
type observedLease struct {
	spec coordinationv1.LeaseSpec
	at   time.Time
}

// otherLeader is an operator of another namespace that leads.
type otherLeader struct {
	Namespace string
	Lease     coordinationv1.LeaseSpec
	unsure    error // why it is not known whether the holder is an operator; nil when it is one
}

func (l *otherLeader) holder() string { return ptr.Deref(l.Lease.HolderIdentity, "") }

// tookLeaseBefore reports whether the other operator is the older leader of two: of leases that were taken at the same moment, the one
// whose namespace comes first by name is. Both sides compare what is written in the leases, so they agree.
func (l *otherLeader) tookLeaseBefore(namespace string, taken time.Time) bool {
	theirs := ptr.Deref(l.Lease.AcquireTime, metav1.NewMicroTime(taken)).Truncate(time.Microsecond)
	return theirs.Before(taken) || theirs.Equal(taken) && l.Namespace < namespace
}

// startOtherOperators watches the leases of other namespaces until the context ends, if the operator waits for them. The function
// it returns stops its events.
func startOtherOperators(ctx context.Context, config *rest.Config, o Options) (*otherOperators, func(), error) {
	config = withProtobuf(config)
	leases, leasesErr := typedcoordinationv1.NewForConfig(config)
	core, coreErr := typedcorev1.NewForConfig(config)
	reviews, reviewsErr := typedauthorizationv1.NewForConfig(config)
	if err := errors.Join(leasesErr, coreErr, reviewsErr); err != nil {
		return nil, nil, fmt.Errorf("making a client for leases: %w", err)
	}
	broadcaster := record.NewBroadcaster(record.WithContext(context.WithoutCancel(ctx)))
	broadcaster.StartRecordingToSink(&typedcorev1.EventSinkImpl{Interface: core.Events("")})
	others := newOtherOperators(o.Skyhook.Namespace, broadcaster.NewRecorder(scheme.Scheme, corev1.EventSource{Component: eventComponent}), o.Log)
	if !o.WaitForOthers {
		others.markReady()
		return others, broadcaster.Shutdown, nil
	}
	others.lister, others.runsOperator = leases, (&holderFinder{core, reviews}).runsOperator
	if err := errors.Join(o.Registry.Register(others.gauge), o.Registry.Register(others.since), others.watch(ctx, leases.RESTClient())); err != nil {
		broadcaster.Shutdown()
		return nil, nil, err
	}
	return others, broadcaster.Shutdown, nil
}

// newOtherOperators makes a watcher for the operator of a namespace. It knows nothing until it is watching.
func newOtherOperators(namespace string, events resourcelock.EventRecorder, log logr.Logger) *otherOperators {
	return &otherOperators{
		namespace: namespace, clock: time.Now, log: log, events: events, ready: make(chan struct{}), leases: map[string]observedLease{},
		gauge: prometheus.NewGaugeVec(prometheus.GaugeOpts{
			Name: "skyhook_other_operator", Help: "1 while the operator of another namespace leads, so that this process waits.",
		}, []string{"namespace"}),
		since: prometheus.NewGaugeVec(prometheus.GaugeOpts{
			Name: "skyhook_other_operator_since_seconds", Help: "Unix time since which this process waits for the operator of another namespace.",
		}, []string{"namespace"}),
	}
}

// ofOtherNamespaces selects the leases of other namespaces. The operator's rights name them.
func (o *otherOperators) ofOtherNamespaces() fields.Selector {
	return fields.AndSelectors(fields.OneTermEqualSelector("metadata.name", options.LeaseName), fields.OneTermNotEqualSelector("metadata.namespace", o.namespace))
}

// watch watches the leases until the context ends. Without the right to do that, no other operator is known.
func (o *otherOperators) watch(ctx context.Context, c rest.Interface) error {
	leases := toolscache.NewSharedInformer(
		toolscache.NewListWatchFromClient(c, "leases", metav1.NamespaceAll, o.ofOtherNamespaces()), &coordinationv1.Lease{}, 0)
	handler, err := leases.AddEventHandler(toolscache.ResourceEventHandlerFuncs{
		AddFunc: o.observe, UpdateFunc: func(_, lease any) { o.observe(lease) }, DeleteFunc: o.forget,
	})
	if err != nil {
		return fmt.Errorf("watching leases: %w", err)
	}
	if err := leases.SetWatchErrorHandlerWithContext(func(ctx context.Context, r *toolscache.Reflector, err error) {
		toolscache.DefaultWatchErrorHandler(ctx, r, err)
		if apierrors.IsForbidden(err) && o.markReady() {
			o.log.Error(err, "cannot find operators in other namespaces: this operator leads even if one of them does")
		}
	}); err != nil {
		return fmt.Errorf("watching leases: %w", err)
	}
	go leases.RunWithContext(ctx)
	go func() {
		if toolscache.WaitForCacheSync(ctx.Done(), handler.HasSynced) {
			o.markReady()
		}
	}()
	return nil
}

// markReady records that the first list is complete. It reports whether that is new.
func (o *otherOperators) markReady() bool {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.readied {
		return false
	}
	o.readied = true
	close(o.ready)
	return true
}

// list notes the leases that the API server has now, if this operator waits for others. Without the right to list them there are none.
func (o *otherOperators) list(ctx context.Context) error {
	if o.lister == nil {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, leaseDuration)
	defer cancel()
	leases, err := o.lister.Leases(metav1.NamespaceAll).List(ctx, metav1.ListOptions{FieldSelector: o.ofOtherNamespaces().String()})
	if apierrors.IsForbidden(err) {
		return nil // the watch has said so
	}
	if err != nil {
		return fmt.Errorf("listing the leases of other namespaces: %w", err)
	}
	for i := range leases.Items {
		o.observe(&leases.Items[i])
	}
	return nil
}

// observe notes a lease that was created or changed.
func (o *otherOperators) observe(object any) {
	lease, ok := object.(*coordinationv1.Lease)
	if !ok {
		return
	}
	o.mu.Lock()
	defer o.mu.Unlock()
	now := o.clock()
	known, isKnown := o.leases[lease.Namespace]
	isRenewed := !isKnown || !known.spec.RenewTime.Equal(lease.Spec.RenewTime) || ptr.Deref(known.spec.HolderIdentity, "") != ptr.Deref(lease.Spec.HolderIdentity, "")
	switch {
	case !isKnown && isLongExpired(lease.Spec, now):
		known.at = time.Time{}
	case isRenewed:
		known.at = now
	}
	o.leases[lease.Namespace] = observedLease{lease.Spec, known.at}
}

// forget forgets a lease that was deleted.
func (o *otherOperators) forget(object any) {
	if last, ok := object.(toolscache.DeletedFinalStateUnknown); ok {
		object = last.Obj
	}
	if lease, ok := object.(*coordinationv1.Lease); ok {
		o.mu.Lock()
		defer o.mu.Unlock()
		delete(o.leases, lease.Namespace)
	}
}

// isLongExpired reports whether a lease has run out by every clock.
func isLongExpired(spec coordinationv1.LeaseSpec, now time.Time) bool {
	return spec.RenewTime == nil || spec.RenewTime.Add(options.LeaseTerm(spec)).Add(maxClockSkew).Before(now)
}

// findLeader returns the operator of another namespace that leads, and nil when there is none. It reports changes.
func (o *otherOperators) findLeader(ctx context.Context) (*otherLeader, error) {
	select {
	case <-ctx.Done():
		return nil, fmt.Errorf("finding operators in other namespaces: %w", ctx.Err())
	case <-o.ready:
	}
	found := o.findHeld(ctx, func(*otherLeader) bool { return true })
	o.report(found)
	return found, nil
}

// findHeld returns an operator that holds a lease of another namespace and that fits; nil without one. A holder of which it is not known
// whether it is an operator is returned where no operator is.
func (o *otherOperators) findHeld(ctx context.Context, fits func(*otherLeader) bool) *otherLeader {
	var unsure *otherLeader
	for _, lease := range o.listHeld() {
		if !fits(lease) {
			continue
		}
		runs, err := o.runsOperator(ctx, lease)
		if runs {
			return lease
		}
		if err != nil {
			o.log.Error(err, "cannot find out whether the holder of a lease is an operator", "otherNamespace", lease.Namespace, "holder", lease.holder())
			lease.unsure, unsure = err, lease
		}
	}
	return unsure
}

// listHeld lists the leases that somebody holds, by namespace.
func (o *otherOperators) listHeld() []*otherLeader {
	o.mu.Lock()
	defer o.mu.Unlock()
	var held []*otherLeader
	for _, namespace := range slices.Sorted(maps.Keys(o.leases)) {
		lease := o.leases[namespace]
		hasHolder := ptr.Deref(lease.spec.HolderIdentity, "") != ""
		if hasHolder && o.clock().Before(lease.at.Add(options.LeaseTerm(lease.spec))) {
			held = append(held, &otherLeader{Namespace: namespace, Lease: lease.spec})
		}
	}
	return held
}

// report logs which other operator leads, records an event and sets the metrics, when that has changed.
func (o *otherOperators) report(leader *otherLeader) {
	o.mu.Lock()
	defer o.mu.Unlock()
	namespace := ""
	if leader != nil {
		namespace = leader.Namespace
	}
	if namespace == o.reported {
		return
	}
	o.gauge.Reset()
	o.since.Reset()
	if leader == nil {
		o.log.Info("the operator of the other namespace no longer leads", "otherNamespace", o.reported)
	} else {
		since := o.clock()
		o.gauge.WithLabelValues(namespace).Set(1)
		o.since.WithLabelValues(namespace).Set(float64(since.Unix()))
		o.log.Info("waiting: the operator of another namespace leads", "otherNamespace", namespace, "holder", leader.holder(), "lease", options.LeaseName, "since", since)
		o.events.Eventf(newLeaseOf(o.namespace), corev1.EventTypeWarning, reasonOtherOperator,
			"waiting since %s: an operator in namespace %s holds the lease %s there (%s). Only one can work on the nodes: stop it, and this one goes on",
			since.UTC().Format(time.RFC3339), namespace, options.LeaseName, leader.holder())
	}
	o.reported = namespace
}

// newLeaseOf is the object of events about an operator that waits: the lease of its namespace.
func newLeaseOf(namespace string) *coordinationv1.Lease {
	return &coordinationv1.Lease{
		TypeMeta:   metav1.TypeMeta{APIVersion: coordinationv1.SchemeGroupVersion.String(), Kind: "Lease"},
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: options.LeaseName},
	}
}

// wait returns when no other operator leads. It returns false when the context ends first.
func (o *otherOperators) wait(ctx context.Context) bool {
	for {
		leader, err := o.findLeader(ctx)
		if err != nil {
			return false
		}
		if leader == nil {
			return true
		}
		if !sleep(ctx, retryPeriod) {
			return false
		}
	}
}
