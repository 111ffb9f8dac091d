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
	since   time.Time // since when the Skyhook is not complete
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
func (f *facts) findRollback(nodes []*node.Node, known *v1alpha1.RollbackStatus, since time.Time) *wentBack {
	var first *wentBack
	s := f.Skyhook
	for _, n := range nodes {
		on := n.Skyhook(s.Name)
		if on.Record.Rollback == nil || on.Record.Rollback.Of != f.Key {
			continue
		}
		back := on.Record.Effective(n.UID, string(s.UID), on.StateHash, on.State).Rollback
		if back == nil || back.Others {
			continue
		}
		found := &wentBack{node: n.Name, at: back.At, failure: back.Text, since: since}
		if first == nil || cmp.Or(found.at.Compare(first.at), cmp.Compare(found.node, first.node)) < 0 {
			first = found
		}
	}
	if first == nil && f.goesBackTogether() && known != nil && known.Key == f.Key {
		first = &wentBack{failure: known.Message, at: known.Since.UTC(), since: since}
	}
	return first
}

// goesBackTogether reports whether all nodes of the rollout go back when the packages of the spec failed on one of them.
func (f *facts) goesBackTogether() bool {
	r := f.Skyhook.Spec.Rollback
	return r != nil && r.Scope == v1alpha1.RollbackScopeRollout
}

// rollbackCause says why no further node gets the packages of the spec; nil if nodes get them.
func (f *facts) rollbackCause() *rollout.Why {
	if !f.goesBackTogether() || f.WentBack == nil {
		return nil
	}
	return &rollout.Why{
		Reason: rollout.ReasonRolledBack, Since: f.WentBack.at,
		Text: node.Truncate("no further node gets "+f.describeRevision(f.Key)+": "+f.WentBack.text(), 400),
	}
}

// takeBack marks a node that is complete with the packages of the spec, and is to go back because they failed on another one. The mark is
// recorded when the node is admitted. Nodes that were complete before the rollout began keep what they have.
func (c *nodeCompiler) takeBack(rec *node.SkyhookRecord, state v1alpha1.NodeState) {
	if !c.facts.goesBackTogether() || c.facts.WentBack == nil || c.facts.Deleting || rec.Admitted || c.facts.hasRolledBack(rec) {
		return
	}
	isOfRollout := rec.FinishedAt != nil && !c.facts.WentBack.since.IsZero() && !rec.FinishedAt.Before(c.facts.WentBack.since)
	isComplete := isOfRollout && revisionKey(finishedHashes(state, rec.Packages)) == c.facts.Key
	if isComplete && c.facts.hasWayBack(rec) && c.rollbackRefusal(rec, state, nil) == "" {
		rec.Rollback = &node.Rollback{Of: c.facts.Key, At: c.facts.WentBack.at, Text: c.facts.WentBack.text(), Others: true}
	}
}

// takenBack returns what is recorded at the admission of a node that goes back because of another one; nil for other nodes.
func (r recorder) takenBack() *node.Rollback {
	t := r.target
	if t == nil || !r.facts.hasRolledBack(&t.rec) || !t.rec.Rollback.Others {
		return nil
	}
	return t.rec.Rollback
}

// rollbackStatus says from which packages nodes went back, and how many. What the status knows stays while it counts.
func (rep reporter) rollbackStatus() *v1alpha1.RollbackStatus {
	if rep.facts.WentBack == nil || rep.rollout.Deleting {
		return nil
	}
	out := &v1alpha1.RollbackStatus{Key: rep.facts.Key, Message: node.Truncate(rep.facts.WentBack.text(), 1024)}
	if at := metav1.NewTime(rep.facts.WentBack.at); !at.IsZero() {
		out.Since = &at
	}
	out.Revision = rep.facts.revisionNumber(out.Key)
	for i := range rep.targets {
		t := rep.targets[i]
		if !t.selected || !rep.facts.hasRolledBack(&t.rec) {
			continue
		}
		if number := rep.facts.revisionNumber(revisionKey(t.rec.Complete)); number > 0 && !slices.Contains(out.To, number) {
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
func (f *facts) revisionNumber(key string) int64 {
	at := slices.IndexFunc(f.Revisions, func(r Revision) bool { return r.Key == key })
	if at < 0 {
		return 0
	}
	return f.Revisions[at].Number
}

// describeRollback says how many nodes went back, and from what.
func (rep reporter) describeRollback(is *v1alpha1.RollbackStatus) string {
	text := rep.facts.describeRevision(is.Key) + " failed: "
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
