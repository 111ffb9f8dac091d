// SPDX-FileCopyrightText: The Skyhook authors
// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"context"
	"errors"
	"fmt"
	"math"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	typedcoordinationv1 "k8s.io/client-go/kubernetes/typed/coordination/v1"
	"k8s.io/client-go/tools/leaderelection/resourcelock"
	"k8s.io/client-go/tools/record"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/skyhook-k8s/skyhook/internal/options"
)

const oneStage = `
apiVersion: skyhook.nvidia.com/v1alpha1
kind: Skyhook
metadata: {name: one}
spec:
  nodeSelectors: {matchLabels: {pool: gpu}}
  packages: {tool: {version: 1.0.0, image: registry.example/tool}}
`

// leaseElsewhere is a lease that an operator of the predecessor holds in a namespace of its own.
func (s *fixture) leaseElsewhere(seconds int32, renewed time.Time) *coordinationv1.Lease {
	s.Helper()
	ctx := context.Background()
	namespace := s.newNamespace("operator")
	s.createPod(namespace, corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: "manager-x2x7z"}, Spec: corev1.PodSpec{ServiceAccountName: "operator"}})
	holder, at := "manager-x2x7z_0b8c", metav1.NewMicroTime(renewed)
	lease := &coordinationv1.Lease{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: options.LeaseName},
		Spec:       coordinationv1.LeaseSpec{HolderIdentity: &holder, LeaseDurationSeconds: &seconds, AcquireTime: &at, RenewTime: &at},
	}
	s.Must(s.Client.Create(ctx, lease))
	s.Cleanup(func() { s.Must(client.IgnoreNotFound(s.Client.Delete(ctx, lease))) })
	return lease
}

// newNamespace creates a namespace in which one account may patch nodes.
func (s *fixture) newNamespace(account string) string {
	s.Helper()
	ctx := context.Background()
	namespace := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{GenerateName: "predecessor-"}}
	s.Must(s.Client.Create(ctx, namespace))
	role := &rbacv1.ClusterRole{ObjectMeta: metav1.ObjectMeta{Name: namespace.Name}, Rules: []rbacv1.PolicyRule{{APIGroups: []string{""}, Resources: []string{"nodes"}, Verbs: []string{"patch"}}}}
	s.Must(s.Client.Create(ctx, role))
	s.Must(s.Client.Create(ctx, &rbacv1.ClusterRoleBinding{
		ObjectMeta: metav1.ObjectMeta{Name: namespace.Name},
		RoleRef:    rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: role.Name},
		Subjects:   []rbacv1.Subject{{Kind: "ServiceAccount", Namespace: namespace.Name, Name: account}},
	}))
	return namespace.Name
}

// createPod creates a pod with its status.
func (s *fixture) createPod(namespace string, p corev1.Pod) {
	s.Helper()
	status := p.Status
	p.Namespace, p.Spec.Containers = namespace, []corev1.Container{{Name: "c", Image: "registry.example/skyhook/operator"}}
	s.Must(s.Client.Create(context.Background(), &p))
	if p.Status = status; status.Phase != "" {
		s.Must(s.Client.Status().Update(context.Background(), &p))
	}
}

// requireUntouched checks that no operator has done anything for the Skyhook so far.
func (s *fixture) requireUntouched() {
	s.Helper()
	if got := s.GetSkyhook("one"); len(got.Finalizers) > 0 || got.Status.ObservedGeneration != 0 {
		s.Errorf("the operator that should wait wrote to the Skyhook: %v, %v", got.Finalizers, got.Status)
	}
	if pods := s.ListPods(); len(pods) > 0 {
		s.Errorf("the operator that should wait made %d pods", len(pods))
	}
}

// isReported reports whether the metric and an event name the namespace of the operator that leads.
func (s *fixture) isReported(namespace string) bool {
	s.Helper()
	events := &corev1.EventList{}
	s.Must(s.Client.List(context.Background(), events, client.InNamespace(s.Namespace)))
	for _, e := range events.Items {
		since := fmt.Sprintf("waiting since %s: an operator in namespace %s ", time.Unix(int64(s.gauge("skyhook_other_operator_since_seconds")), 0).UTC().Format(time.RFC3339), namespace)
		if e.Reason == reasonOtherOperator && e.InvolvedObject.Kind == "Lease" && strings.HasPrefix(e.Message, since) && s.gauge("skyhook_other_operator") == 1 {
			return true
		}
	}
	return false
}

// gauge adds up all series of a gauge.
func (s *fixture) gauge(name string) float64 {
	s.Helper()
	families, err := s.registry.Gather()
	s.Must(err)
	out := 0.0
	for _, f := range families {
		for _, m := range f.GetMetric() {
			if f.GetName() == name {
				out += m.GetGauge().GetValue()
			}
		}
	}
	return out
}

// TestOtherOperator: while the operator of another namespace holds its lease, ours touches nothing and says which; it goes on
// when that lease is released, deleted, or no longer renewed.
func TestOtherOperator(t *testing.T) {
	for _, c := range []struct {
		name  string
		elect bool
		end   func(s *fixture, lease *coordinationv1.Lease)
	}{
		{"released", true, func(s *fixture, lease *coordinationv1.Lease) { s.Patch(lease, `{"spec":{"holderIdentity":""}}`) }},
		{"deleted", true, func(s *fixture, lease *coordinationv1.Lease) { s.Must(s.Client.Delete(context.Background(), lease)) }},
		{"expired", true, func(s *fixture, lease *coordinationv1.Lease) { s.Patch(lease, `{"spec":{"leaseDurationSeconds":1}}`) }},
		{"released, without leader election", false, func(s *fixture, lease *coordinationv1.Lease) { s.Patch(lease, `{"spec":{"holderIdentity":null}}`) }},
	} {
		t.Run(c.name, func(t *testing.T) {
			s := newFixture(t, 1)
			s.options.LeaderElection = c.elect
			lease := s.leaseElsewhere(600, time.Now())
			s.Apply(oneStage)
			s.startOperator()
			s.Eventually("the other operator is reported", func() bool { return s.isReported(lease.Namespace) })
			at := metav1.NowMicro()
			lease.Spec.RenewTime = &at
			s.Must(s.Client.Update(context.Background(), lease))
			time.Sleep(3 * retryPeriod) // longer than a candidate waits between two attempts
			s.requireUntouched()
			c.end(s, lease)
			s.WaitComplete("one")
			if got := s.gauge("skyhook_other_operator") + s.gauge("skyhook_other_operator_since_seconds"); got != 0 {
				t.Errorf("the metric still is %v", got)
			}
		})
	}
}

// TestOtherOperatorGone: a lease that was not renewed for long, as stopped operators leave it, delays nothing; nor does
// any lease if the operator is told so.
func TestOtherOperatorGone(t *testing.T) {
	for name, wait := range map[string]bool{"long expired": true, "not waited for": false} {
		t.Run(name, func(t *testing.T) {
			s := newFixture(t, 1)
			s.options.LeaderElection, s.options.WaitForOthers = true, wait
			renewed := time.Now()
			if wait {
				renewed = renewed.Add(-time.Hour)
			}
			lease := s.leaseElsewhere(600, renewed)
			s.Apply(oneStage)
			s.startOperator()
			s.WaitComplete("one")
			if s.isReported(lease.Namespace) {
				t.Error("an operator is reported that does not lead, or is not waited for")
			}
		})
	}
}

// TestOtherOperatorLater: an operator that leads goes on when another one begins elsewhere, and two of ours never wait for each
// other: who waits holds no lease.
func TestOtherOperatorLater(t *testing.T) {
	s := newFixture(t, 1)
	s.options.LeaderElection = true
	s.Apply(oneStage)
	s.startOperator()
	s.WaitComplete("one")
	s.leaseElsewhere(600, time.Now())
	s.Patch(s.GetSkyhook("one"), `{"spec":{"packages":{"tool":{"version":"1.1.0"}}}}`)
	s.WaitComplete("one")
	s.stop()

	s.startOperator() // it waits now
	time.Sleep(3 * retryPeriod)
	lease := &coordinationv1.Lease{}
	s.Must(s.Client.Get(context.Background(), client.ObjectKey{Namespace: s.Namespace, Name: options.LeaseName}, lease))
	if holder := lease.Spec.HolderIdentity; holder != nil && *holder != "" {
		t.Errorf("an operator that waits holds its lease: %s", *holder)
	}
}

// TestForgedLease: a lease of somebody who runs no operator delays nothing, whatever it says, and however often it is renewed.
func TestForgedLease(t *testing.T) {
	s := newFixture(t, 1)
	s.options.LeaderElection = true
	lease := s.leaseElsewhere(math.MaxInt32, time.Now())
	s.Patch(lease, `{"spec":{"holderIdentity":"another-pod_0b8c"}}`)
	s.Apply(oneStage)
	s.startOperator()
	s.WaitComplete("one")
	if s.isReported(lease.Namespace) {
		t.Error("an operator is reported that does not exist")
	}
}

// TestOlderLeader: a leader goes on when another one has taken its lease later, and ends when it turns out that the other one was earlier.
func TestOlderLeader(t *testing.T) {
	s := newFixture(t, 1)
	s.options.LeaderElection, s.options.Registry = true, prometheus.NewRegistry()
	s.Apply(oneStage)
	ended := make(chan error, 1)
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	go func() { ended <- Run(ctx, s.config, s.options) }()
	s.WaitComplete("one")
	lease := s.leaseElsewhere(60, time.Now())
	select {
	case err := <-ended:
		t.Fatalf("the older operator ended: %v", err)
	case <-time.After(3 * retryPeriod):
	}
	s.Patch(lease, `{"spec":{"acquireTime":"2026-01-01T00:00:00.000000Z"}}`)
	select {
	case err := <-ended:
		if _, yields := errors.AsType[olderLeaderError](err); !yields || !strings.Contains(err.Error(), lease.Namespace) {
			t.Errorf("the younger operator ended with: %v", err)
		}
	case <-time.After(30 * time.Second):
		t.Fatal("the younger operator goes on")
	}
	own := &coordinationv1.Lease{}
	s.Must(s.Client.Get(context.Background(), client.ObjectKey{Namespace: s.Namespace, Name: options.LeaseName}, own))
	if holder := own.Spec.HolderIdentity; holder != nil && *holder != "" {
		t.Errorf("the operator that ended holds its lease: %s", *holder)
	}
}

// TestTwoOperatorsStart: of two operators that take the leases of their namespaces before they see each other's, one goes on.
func TestTwoOperatorsStart(t *testing.T) {
	ctx := context.Background()
	leases, err := typedcoordinationv1.NewForConfig(plane.Config)
	if err != nil {
		t.Fatal(err)
	}
	for name, apart := range map[string]time.Duration{"at the same time": 0, "one after the other": time.Millisecond} {
		namespaces := []string{plane.Namespace(t), plane.Namespace(t)}
		at := metav1.NewTime(time.Now().Truncate(time.Microsecond).Add(time.Nanosecond)) // a Lease has no nanoseconds
		var locks []*exclusiveLock
		for i, namespace := range namespaces {
			o := newOtherOperators(namespace, record.NewFakeRecorder(10), verboseLog())
			o.lister, o.runsOperator = leases, func(_ context.Context, l *otherLeader) (bool, error) {
				return slices.Contains(namespaces, l.Namespace), nil
			}
			o.markReady()
			lock, err := newExclusiveLock(plane.Config, o)
			if err != nil {
				t.Fatal(err)
			}
			if _, _, err := lock.Get(ctx); !apierrors.IsNotFound(err) {
				t.Fatalf("%s: the lease cannot be taken: %v", name, err)
			}
			taken := metav1.NewTime(at.Add(-time.Duration(i) * apart)) // the second by the API server is the first by the clocks
			if err := lock.Create(ctx, resourcelock.LeaderElectionRecord{HolderIdentity: lock.Identity(), LeaseDurationSeconds: 10, AcquireTime: taken, RenewTime: taken}); err != nil {
				t.Fatal(err)
			}
			locks = append(locks, lock)
		}
		first, second := locks[0].lookAgain(ctx), locks[1].lookAgain(ctx)
		if (first == nil) == (second == nil) || apart > 0 && second != nil {
			t.Errorf("%s: not one of two leads: %v, %v", name, first, second)
		}
	}
}

// TestLeaderWithoutRights: a leader that cannot find out who holds an older lease goes on, and ends when it sees an operator there. One
// that has just taken its lease ends in either case.
func TestLeaderWithoutRights(t *testing.T) {
	for _, unsure := range []error{errors.New("forbidden"), nil} {
		synctest.Test(t, func(t *testing.T) {
			o := newOtherOperators("here", record.NewFakeRecorder(10), verboseLog())
			o.runsOperator = func(context.Context, *otherLeader) (bool, error) { return unsure == nil, unsure }
			holder, older := "a_1", metav1.NewMicroTime(time.Now())
			o.observe(&coordinationv1.Lease{ObjectMeta: metav1.ObjectMeta{Namespace: "there"}, Spec: coordinationv1.LeaseSpec{
				HolderIdentity: &holder, AcquireTime: &older, RenewTime: &older, LeaseDurationSeconds: new(int32(10)),
			}})
			lock := &exclusiveLock{others: o}
			taken := older.Add(time.Millisecond)
			lock.taken.Store(&taken)
			if lock.lookAgain(t.Context()) == nil {
				t.Errorf("%v: a younger leader begins", unsure)
			}
			watching, stop := context.WithTimeout(t.Context(), 2*retryPeriod+time.Second)
			defer stop()
			ctx, end := context.WithCancelCause(watching)
			lock.watchOlderLeaders(ctx, end)
			if _, yields := errors.AsType[olderLeaderError](context.Cause(ctx)); yields != (unsure == nil) {
				t.Errorf("%v: %v", unsure, context.Cause(ctx))
			}
		})
	}
}

// TestLeaseTerms: when a lease counts as held, by the clock of this process.
func TestLeaseTerms(t *testing.T) {
	start := time.Date(2026, 11, 1, 12, 0, 0, 0, time.UTC)
	holder, nobody, stranger, unknown := "a_1", "", "b_1", "c_1"
	newLease := func(holder *string, seconds *int32, renewed time.Time) *coordinationv1.Lease {
		at := metav1.NewMicroTime(renewed)
		return &coordinationv1.Lease{ObjectMeta: metav1.ObjectMeta{Namespace: "n"}, Spec: coordinationv1.LeaseSpec{HolderIdentity: holder, LeaseDurationSeconds: seconds, RenewTime: &at}}
	}
	ten, years := int32(10), int32(math.MaxInt32)
	for _, c := range []struct {
		name   string
		leases map[time.Duration]*coordinationv1.Lease // by the time at which they are seen
		at     time.Duration
		held   bool
	}{
		{"renewed just now", map[time.Duration]*coordinationv1.Lease{0: newLease(&holder, &ten, start)}, 9 * time.Second, true},
		{"not renewed", map[time.Duration]*coordinationv1.Lease{0: newLease(&holder, &ten, start)}, 10 * time.Second, false},
		{"seen again, not renewed", map[time.Duration]*coordinationv1.Lease{0: newLease(&holder, &ten, start), 9 * time.Second: newLease(&holder, &ten, start)}, 10 * time.Second, false},
		{"renewed", map[time.Duration]*coordinationv1.Lease{0: newLease(&holder, &ten, start), 9 * time.Second: newLease(&holder, &ten, start.Add(8*time.Second))}, 18 * time.Second, true},
		{"a clock that is slow by minutes", map[time.Duration]*coordinationv1.Lease{0: newLease(&holder, &ten, start.Add(-4*time.Minute))}, 9 * time.Second, true},
		{"renewed long ago", map[time.Duration]*coordinationv1.Lease{0: newLease(&holder, &ten, start.Add(-6*time.Minute))}, 0, false},
		{"renewed long ago, then taken", map[time.Duration]*coordinationv1.Lease{0: newLease(&holder, &ten, start.Add(-6*time.Minute)), time.Second: newLease(&holder, &ten, start)}, 2 * time.Second, true},
		{"released", map[time.Duration]*coordinationv1.Lease{0: newLease(&nobody, &ten, start)}, 0, false},
		{"without a holder", map[time.Duration]*coordinationv1.Lease{0: newLease(nil, nil, start)}, 0, false},
		{"a term of years, for a minute", map[time.Duration]*coordinationv1.Lease{0: newLease(&holder, &years, start)}, 59 * time.Second, true},
		{"a term of years, after a minute", map[time.Duration]*coordinationv1.Lease{0: newLease(&holder, &years, start.Add(time.Hour))}, 60 * time.Second, false},
		{"no operator", map[time.Duration]*coordinationv1.Lease{0: newLease(&stranger, &ten, start)}, 0, false},
		{"who cannot be found out", map[time.Duration]*coordinationv1.Lease{0: newLease(&unknown, &ten, start)}, 0, true},
		{"without a term", map[time.Duration]*coordinationv1.Lease{0: newLease(&holder, nil, start)}, 14 * time.Second, true},
	} {
		var now time.Duration
		o := newOtherOperators("here", record.NewFakeRecorder(10), verboseLog())
		o.clock = func() time.Time { return start.Add(now) }
		o.runsOperator = func(_ context.Context, l *otherLeader) (bool, error) {
			if l.holder() == unknown {
				return false, errors.New("no answer")
			}
			return l.holder() != stranger, nil
		}
		o.markReady()
		for now = range 61 {
			now *= time.Second
			if lease := c.leases[now]; lease != nil {
				o.observe(lease)
			}
			if now == c.at {
				break
			}
		}
		got, err := o.findLeader(context.Background())
		if err != nil || (got != nil) != c.held {
			t.Errorf("%s: held by %v, %v; want held: %v", c.name, got, err, c.held)
		}
	}
}
