// SPDX-FileCopyrightText: The Skyhook authors
// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"sync/atomic"
	"time"

	"k8s.io/apimachinery/pkg/util/uuid"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/leaderelection/resourcelock"

	"github.com/skyhook-k8s/skyhook/internal/options"
)

// exclusiveLock is the lease of this operator's namespace. It cannot be acquired while an operator of another namespace leads.
// Waiting operators do not hold it, so two operators of ours never wait for each other. A leader looks again: of two that took their
// leases at the same moment, neither could see the other, and the younger ends.
type exclusiveLock struct {
	resourcelock.Interface
	others *otherOperators
	leads  atomic.Bool
	taken  atomic.Pointer[time.Time] // when this process took the lease, as written there; nil before
}

// olderLeaderError ends an operator that turned out to be the younger of two leaders.
type olderLeaderError struct{ *otherLeader }

// Error names the older leader.
func (e olderLeaderError) Error() string {
	return fmt.Sprintf("an operator in namespace %s (%s) took its lease before this one did: this one ends, and waits for it", e.Namespace, e.holder())
}

// newExclusiveLock makes the lock of an operator.
func newExclusiveLock(config *rest.Config, others *otherOperators) (*exclusiveLock, error) {
	host, err := os.Hostname()
	if err != nil {
		return nil, fmt.Errorf("reading the host name: %w", err)
	}
	lock, err := resourcelock.NewFromKubeconfig(resourcelock.LeasesResourceLock, others.namespace, options.LeaseName,
		resourcelock.ResourceLockConfig{Identity: host + "_" + string(uuid.NewUUID()), EventRecorder: others.events}, config, renewDeadline)
	if err != nil {
		return nil, fmt.Errorf("making the lock of the leader: %w", err)
	}
	return &exclusiveLock{Interface: lock, others: others}, nil
}

// Get returns the record of the lease, or that of the other operator's, which is held as well.
func (l *exclusiveLock) Get(ctx context.Context) (*resourcelock.LeaderElectionRecord, []byte, error) {
	if l.leads.Load() {
		return l.Interface.Get(ctx)
	}
	other, err := l.others.findLeader(ctx)
	if err != nil {
		return nil, nil, err
	}
	if other == nil {
		return l.Interface.Get(ctx)
	}
	r := resourcelock.LeaseSpecToLeaderElectionRecord(&other.Lease)
	r.HolderIdentity = other.Namespace + "/" + r.HolderIdentity
	raw, err := json.Marshal(r)
	if err != nil {
		return nil, nil, fmt.Errorf("writing the record of a lease: %w", err)
	}
	return r, raw, nil
}

// Create creates the lease.
func (l *exclusiveLock) Create(ctx context.Context, r resourcelock.LeaderElectionRecord) error {
	err := l.Interface.Create(ctx, r)
	l.noteWrite(r, err)
	return err
}

// Update changes the lease.
func (l *exclusiveLock) Update(ctx context.Context, r resourcelock.LeaderElectionRecord) error {
	err := l.Interface.Update(ctx, r)
	l.noteWrite(r, err)
	return err
}

func (l *exclusiveLock) noteWrite(r resourcelock.LeaderElectionRecord, err error) {
	if err == nil {
		taken := r.AcquireTime.Truncate(time.Microsecond) // as a Lease has it
		l.taken.Store(&taken)
		l.leads.Store(r.HolderIdentity == l.Identity())
	}
}

// lookAgain asks the API server, after the lease was taken, for other leaders. Each of two writes its own lease before it reads the
// other's, so at least one sees both. It returns an olderLeaderError, or nil when this operator leads.
func (l *exclusiveLock) lookAgain(ctx context.Context) error {
	err := l.others.list(ctx)
	if older := l.findOlderLeader(ctx); err == nil && older != nil {
		return olderLeaderError{older}
	}
	return err
}

// findOlderLeader returns the leader of another namespace that took its lease earlier; nil without one.
func (l *exclusiveLock) findOlderLeader(ctx context.Context) *otherLeader {
	taken := l.taken.Load()
	return l.others.findHeld(ctx, func(o *otherLeader) bool { return taken != nil && o.tookLeaseBefore(l.others.namespace, *taken) })
}

// watchOlderLeaders calls end when an older leader is seen, until the context ends. A leader that can no longer find out who holds a
// lease, such as one whose rights are being removed, goes on: lookAgain has found nobody.
func (l *exclusiveLock) watchOlderLeaders(ctx context.Context, end context.CancelCauseFunc) {
	for sleep(ctx, retryPeriod) {
		if older := l.findOlderLeader(ctx); older != nil && older.unsure == nil {
			end(olderLeaderError{older})
		}
	}
}
