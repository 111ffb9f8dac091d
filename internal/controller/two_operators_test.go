// SPDX-FileCopyrightText: The Skyhook authors
// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"context"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	typedcoordinationv1 "k8s.io/client-go/kubernetes/typed/coordination/v1"
	"k8s.io/client-go/tools/leaderelection/resourcelock"
	"k8s.io/client-go/tools/record"

	"github.com/skyhook-k8s/skyhook/internal/options"
)

// memoryLeases are the leases of a cluster, by namespace.
type memoryLeases map[string]*coordinationv1.Lease

// Leases returns the leases of a namespace.
func (m memoryLeases) Leases(namespace string) typedcoordinationv1.LeaseInterface {
	return leasesOf{all: m, namespace: namespace}
}

type leasesOf struct {
	typedcoordinationv1.LeaseInterface // nil
	all                                memoryLeases
	namespace                          string
}

func (l leasesOf) Get(context.Context, string, metav1.GetOptions) (*coordinationv1.Lease, error) {
	if lease := l.all[l.namespace]; lease != nil {
		return lease.DeepCopy(), nil
	}
	return nil, apierrors.NewNotFound(coordinationv1.Resource("leases"), options.LeaseName)
}

func (l leasesOf) Create(_ context.Context, lease *coordinationv1.Lease, _ metav1.CreateOptions) (*coordinationv1.Lease, error) {
	return l.Update(context.Background(), lease, metav1.UpdateOptions{})
}

func (l leasesOf) Update(_ context.Context, lease *coordinationv1.Lease, _ metav1.UpdateOptions) (*coordinationv1.Lease, error) {
	l.all[l.namespace] = lease.DeepCopy()
	return lease, nil
}

func (l leasesOf) List(_ context.Context, o metav1.ListOptions) (*coordinationv1.LeaseList, error) {
	selector, err := fields.ParseSelector(o.FieldSelector)
	out := &coordinationv1.LeaseList{}
	for namespace, lease := range l.all {
		if selector.Matches(fields.Set{"metadata.name": lease.Name, "metadata.namespace": namespace}) {
			out.Items = append(out.Items, *lease)
		}
	}
	return out, err
}

// installed is the operator of one namespace on its way to lead.
type installed struct {
	*exclusiveLock
	skew  time.Duration // of its clock
	step  int           // what it does next: look whether the lease is free, take it, look again; then it leads
	ended bool          // it was the younger one
}

// leads reports whether the operator may write.
func (o *installed) leads() bool { return o.step > 2 && !o.ended }

// act makes the next step.
func (o *installed) act(t *testing.T, now time.Time) {
	ctx := context.Background()
	switch o.step {
	case 0:
		if _, _, err := o.Get(ctx); !apierrors.IsNotFound(err) {
			return // another one leads: it waits
		}
	case 1:
		at := metav1.NewTime(now.Add(o.skew))
		if err := o.Create(ctx, resourcelock.LeaderElectionRecord{HolderIdentity: o.Identity(), LeaseDurationSeconds: 10, AcquireTime: at, RenewTime: at}); err != nil {
			t.Fatal(err)
		}
	default:
		o.ended = o.ended || o.lookAgain(ctx) != nil
	}
	o.step++
}

// TestTwoInstallations plays two operators in two namespaces, whose clocks differ and that begin at any moments, step by step in any order:
// never do both end, both lead only until the older one by their clocks was seen, and one that looks while the other leads waits.
func TestTwoInstallations(t *testing.T) {
	start := time.Now()
	both, waited := 0, 0
	for seed := range uint64(3000) {
		random := rand.New(rand.NewPCG(seed, 1))
		leases, namespaces := memoryLeases{}, []string{"a", "b"}
		var all []*installed
		for _, namespace := range namespaces {
			o := newOtherOperators(namespace, record.NewFakeRecorder(100), verboseLog())
			o.lister, o.clock = leases, func() time.Time { return start }
			o.runsOperator = func(context.Context, *otherLeader) (bool, error) { return true, nil }
			o.markReady()
			lock := &resourcelock.LeaseLock{LeaseMeta: metav1.ObjectMeta{Namespace: namespace, Name: options.LeaseName}, Client: leases, LockConfig: resourcelock.ResourceLockConfig{Identity: namespace + "_1"}}
			all = append(all, &installed{exclusiveLock: &exclusiveLock{Interface: lock, others: o}, skew: time.Duration(random.IntN(3)-1) * time.Second})
		}
		isSeen := random.IntN(2) == 0 // by the watches, at once
		for range 12 {
			o := all[random.IntN(2)]
			if isSeen {
				if err := o.others.list(context.Background()); err != nil {
					t.Fatal(err)
				}
			}
			o.act(t, start)
			if all[0].leads() && all[1].leads() {
				both++
			}
		}
		for i, o := range slices.Concat(all, all, all) { // until each has looked at what the other one wrote
			if o.step > 0 {
				o.act(t, start)
			} else if all[1-i%2].leads() {
				waited++
			}
		}
		if all[0].ended && all[1].ended || all[0].leads() && all[1].leads() {
			t.Fatalf("seed %d: leading %v and %v, ended %v and %v", seed, all[0].leads(), all[1].leads(), all[0].ended, all[1].ended)
		}
	}
	if both == 0 || waited == 0 {
		t.Errorf("it never happened that both led (%d) or that one waited (%d)", both, waited)
	}
}
