// SPDX-FileCopyrightText: The Skyhook authors
// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"context"
	"errors"
)

// startup is what a leader does before its first write: it waits until no other operator leads and no Skyhook must be migrated,
// removes the webhook configurations of an earlier operator, creates the default policy, and then runs the loop.
type startup struct {
	others    *otherOperators
	lock      *exclusiveLock // nil without leader election
	migration *migrationCheck
	webhooks  *webhookRemover
	policy    *policyCreator
	loop      *Loop
}

// NeedLeaderElection reports that only the leader starts.
func (s startup) NeedLeaderElection() bool { return true }

// Start runs the loop until the context ends, or an older leader is seen, which is an error.
func (s startup) Start(ctx context.Context) error {
	ctx, end := context.WithCancelCause(ctx)
	defer end(nil)
	if !s.waitUntilAlone(ctx, end) || !s.migration.wait(ctx) {
		return findYield(ctx)
	}
	if !s.webhooks.removeAll(ctx) {
		go s.webhooks.retry(ctx)
	}
	if !s.policy.create(ctx) {
		go s.policy.retry(ctx)
	}
	return errors.Join(s.loop.Start(ctx), findYield(ctx))
}

// waitUntilAlone returns true when no other operator leads. With a lock it then goes on looking, and calls end for an older leader.
func (s startup) waitUntilAlone(ctx context.Context, end context.CancelCauseFunc) bool {
	if s.lock == nil {
		return s.others.wait(ctx)
	}
	for {
		err := s.lock.lookAgain(ctx)
		if err == nil {
			go s.lock.watchOlderLeaders(ctx, end)
			return true
		}
		if _, yields := errors.AsType[olderLeaderError](err); yields {
			end(err)
			return false
		}
		s.others.log.Error(err, "cannot find operators in other namespaces")
		if !sleep(ctx, retryPeriod) {
			return false
		}
	}
}

// findYield returns the error of an operator that yields to an older leader; nil when the context ended for another reason.
func findYield(ctx context.Context) error {
	if older, yields := errors.AsType[olderLeaderError](context.Cause(ctx)); yields {
		return older
	}
	return nil
}
