// SPDX-FileCopyrightText: The Skyhook authors
// SPDX-License-Identifier: Apache-2.0

package record

import (
	"github.com/skyhook-k8s/skyhook/api/skyhook/v1alpha1"
	"github.com/skyhook-k8s/skyhook/internal/node"
	"github.com/skyhook-k8s/skyhook/internal/rollout"
	"github.com/skyhook-k8s/skyhook/internal/skyhook/plan"
)

// noteComplete notes at an admission what is complete on the node, so that it can go back to that if its packages changed. What was
// given back unproven does not count, nor what it went back from. Nothing is known to be complete where somebody removed the nodeState, and
// that is no first install.
func (r Recorder) noteComplete(on *node.SkyhookState, state v1alpha1.NodeState, rec *node.SkyhookRecord) {
	if r.Facts.IsOutdated(rec.Rollback) {
		rec.Rollback = nil
	}
	isEnabled := r.Facts.RollsBackFor(v1alpha1.RollbackStageFailed) || r.Facts.RollsBackFor(v1alpha1.RollbackProofFailed)
	switch {
	case !isEnabled:
		rec.First, rec.Complete, rec.Rollback = false, nil, nil
	case rec.FinishedAt != nil && rec.Has == r.Facts.Key: // something is only run again: there is nothing to go back to
		rec.First, rec.Complete = false, nil
	case len(state) == 0:
		isReset := rec.State != "" && rec.State != on.StateHash
		rec.First, rec.Complete = !isReset, nil
	case rec.FinishedAt != nil:
		rec.First = false
		if hashes := plan.FinishedHashes(state, rec.Packages); hashes != nil && !rec.Unproven {
			rec.Complete = hashes
		}
	}
}

// recordRollback records that the node goes back.
func (r Recorder) recordRollback(a rollout.Action, n *node.Node) node.Edit {
	back := node.Rollback{Of: r.Facts.Key, At: node.WholeSeconds(r.Facts.Now), Text: node.Truncate(a.Why.Text, 300)}
	if a.Why.Reason == rollout.ReasonRolledBack {
		if back.Others = true; r.Facts.WentBack != nil {
			back.Text = r.Facts.WentBack.Text()
		}
	}
	e := EditRecord(r.Facts, n, func(_ v1alpha1.NodeState, rec *node.SkyhookRecord) {
		if !r.Facts.HasRolledBack(rec) {
			rec.Rollback = &back
			rec.Proving, rec.Reboot, rec.Queues = nil, nil, nil
		}
	})
	e.SetSkyhookStatus(n, r.Facts.Skyhook.Name, v1alpha1.StatusErroring)
	return e
}

// takenBack returns what is recorded at the admission of a node that goes back because of another one; nil for other nodes.
func (r Recorder) takenBack() *node.Rollback {
	t := r.Target
	if t == nil || !r.Facts.HasRolledBack(&t.Record) || !t.Record.Rollback.Others {
		return nil
	}
	return t.Record.Rollback
}
