// SPDX-FileCopyrightText: The Skyhook authors
// SPDX-License-Identifier: Apache-2.0

package skyhook

import (
	"cmp"
	"fmt"
	"slices"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/skyhook-k8s/skyhook/api/skyhook/v1alpha1"
	"github.com/skyhook-k8s/skyhook/internal/node"
	"github.com/skyhook-k8s/skyhook/internal/rollout"
)

// wentBack is the first node that goes or went back from the packages of the spec, because they failed on it.
type wentBack struct {
	node    string // empty if only the status knows
	at      time.Time
	failure string
}

// text says why another node goes back too.
func (w *wentBack) text() string {
	if w.node == "" {
		return w.failure
	}
	return node.Truncate("they failed on "+w.node+": "+w.failure, 300)
}

// findRollback finds the first node that went back from the packages of the spec, by the records of all nodes. When that node is gone, the
// status still knows. With scope Rollout nothing new begins then.
func (k *keeper) findRollback() {
	c, s := k.Compiled, k.in.Skyhook
	for i, n := range c.in.Nodes {
		if known := k.known[i]; known != nil && !known.wentBack {
			continue
		}
		on := n.Skyhook(s.Name)
		if on.Record.Rollback == nil || on.Record.Rollback.Of != c.specKey() {
			continue
		}
		back := on.Record.Effective(n.UID, string(s.UID), on.StateHash, on.State).Rollback
		if back == nil || back.Others {
			continue
		}
		found := &wentBack{node: n.Name, at: back.At, failure: back.Text}
		if c.wentBack == nil || cmp.Or(found.at.Compare(c.wentBack.at), cmp.Compare(found.node, c.wentBack.node)) < 0 {
			c.wentBack = found
		}
	}
	c.Rollout.Rollback.Together = s.Spec.Rollback != nil && s.Spec.Rollback.Scope == v1alpha1.RollbackScopeRollout
	known := s.Status.Rollback
	if c.wentBack == nil && c.Rollout.Rollback.Together && known != nil && known.Key == c.specKey() {
		c.wentBack = &wentBack{failure: known.Message, at: known.Since.UTC()}
	}
	if c.Rollout.Rollback.Together && c.wentBack != nil {
		c.Rollout.Rollback.Cause = &rollout.Why{
			Reason: rollout.ReasonRolledBack, Since: c.wentBack.at,
			Text: node.Truncate("no further node gets "+c.describeRevision(c.specKey())+": "+c.wentBack.text(), 400),
		}
	}
}

// takeBack marks a node that is complete with the packages of the spec, and is to go back because they failed on another one. The mark is
// recorded when the node is admitted. Nodes that were complete before the rollout began keep what they have.
func (c *Compiled) takeBack(rec *node.SkyhookRecord, state v1alpha1.NodeState) {
	if c.Rollout.Rollback.Cause == nil || c.Rollout.Deleting || rec.Admitted || c.hasRolledBack(rec) {
		return
	}
	isOfRollout := rec.FinishedAt != nil && !c.Rollout.Since.IsZero() && !rec.FinishedAt.Before(c.Rollout.Since)
	isComplete := isOfRollout && revisionKey(finishedHashes(state, rec.Packages)) == c.specKey()
	if isComplete && c.hasWayBack(rec) && c.rollbackRefusal(rec, state, "") == "" {
		rec.Rollback = &node.Rollback{Of: c.specKey(), At: c.wentBack.at, Text: c.wentBack.text(), Others: true}
	}
}

// takenBackOn returns what is recorded at the admission of a node that goes back because of another one; nil for other nodes.
func (c *Compiled) takenBackOn(nodeName string) *node.Rollback {
	t := c.target(nodeName)
	if t == nil || !c.hasRolledBack(&t.rec) || !t.rec.Rollback.Others {
		return nil
	}
	return t.rec.Rollback
}

// rollbackStatus says from which packages nodes went back, and how many. What the status knows stays while it counts.
func (rep reporter) rollbackStatus() *v1alpha1.RollbackStatus {
	if rep.wentBack == nil || rep.Rollout.Deleting {
		return nil
	}
	out := &v1alpha1.RollbackStatus{Key: rep.specKey(), Message: node.Truncate(rep.wentBack.text(), 1024)}
	if at := metav1.NewTime(rep.wentBack.at); !at.IsZero() {
		out.Since = &at
	}
	out.Revision = rep.revisionNumber(out.Key)
	for i := range rep.all {
		t := rep.all[i]
		if !t.selected || !rep.hasRolledBack(&t.rec) {
			continue
		}
		if number := rep.revisionNumber(revisionKey(t.rec.Complete)); number > 0 && !slices.Contains(out.To, number) {
			out.To = append(out.To, number)
		}
		recorded := t.on.Record.Rollback
		if isBack := !t.rec.Admitted && recorded != nil && recorded.Of == out.Key; isBack {
			out.Nodes++
		} else {
			out.NodesLeft++
		}
	}
	slices.Sort(out.To)
	out.To = out.To[:min(len(out.To), 10)]
	return out
}

// revisionNumber returns the number of the revision with a key; 0 if it is not known.
func (c *Compiled) revisionNumber(key string) int64 {
	at := slices.IndexFunc(c.in.Revisions, func(r Revision) bool { return r.Key == key })
	if at < 0 {
		return 0
	}
	return c.in.Revisions[at].Number
}

// describeRollback says how many nodes went back, and from what.
func (rep reporter) describeRollback(is *v1alpha1.RollbackStatus) string {
	text := rep.describeRevision(is.Key) + " failed: "
	switch len(is.To) {
	case 0:
		text += countOf(is.Nodes, "node") + " went back"
	case 1:
		text += fmt.Sprintf("%s went back to revision %d", countOf(is.Nodes, "node"), is.To[0])
	default:
		text += fmt.Sprintf("%s went back to revisions from %d to %d", countOf(is.Nodes, "node"), is.To[0], is.To[len(is.To)-1])
	}
	if is.NodesLeft > 0 {
		text += fmt.Sprintf(", %d to follow", is.NodesLeft)
	}
	return text
}
