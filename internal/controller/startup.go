// SPDX-FileCopyrightText: The Skyhook authors
// SPDX-License-Identifier: Apache-2.0

package controller

import "context"

// startup is what a leader does before its first write: it waits until no other operator leads and no Skyhook must be migrated,
// removes the webhook configurations of an earlier operator, creates the default policy, and then runs the loop.
type startup struct {
	others    *otherOperators // nil where the lease of the leader waits for them, or nothing does
	migration *migrationCheck
	webhooks  *webhookRemover
	policy    *policyCreator
	loop      *Loop
}

// NeedLeaderElection reports that only the leader starts.
func (s startup) NeedLeaderElection() bool { return true }

// Start runs the loop until the context ends.
func (s startup) Start(ctx context.Context) error {
	if s.others != nil && !s.others.wait(ctx) || !s.migration.wait(ctx) {
		return nil
	}
	if !s.webhooks.removeAll(ctx) {
		go s.webhooks.retry(ctx)
	}
	if !s.policy.create(ctx) {
		go s.policy.retry(ctx)
	}
	return s.loop.Start(ctx)
}
