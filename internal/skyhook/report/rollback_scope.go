// SPDX-FileCopyrightText: The Skyhook authors
// SPDX-License-Identifier: Apache-2.0

package report

import (
	"fmt"
	"slices"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/skyhook-k8s/skyhook/api/skyhook/v1alpha1"
	"github.com/skyhook-k8s/skyhook/internal/node"
	"github.com/skyhook-k8s/skyhook/internal/skyhook/plan"
)

// rollbackStatus says from which packages nodes went back, and how many. What the status knows stays while it counts.
func (rep Reporter) rollbackStatus() *v1alpha1.RollbackStatus {
	if rep.Facts.WentBack == nil || rep.Rollout.Deleting {
		return nil
	}
	out := &v1alpha1.RollbackStatus{Key: rep.Facts.Key, Message: node.Truncate(rep.Facts.WentBack.Text(), 1024)}
	if at := metav1.NewTime(rep.Facts.WentBack.At); !at.IsZero() {
		out.Since = &at
	}
	out.Revision = rep.Facts.RevisionNumber(out.Key)
	for i := range rep.Targets {
		t := rep.Targets[i]
		if !t.Selected || !rep.Facts.HasRolledBack(&t.Record) {
			continue
		}
		if number := rep.Facts.RevisionNumber(plan.RevisionKey(t.Record.Complete)); number > 0 && !slices.Contains(out.To, number) {
			out.To = append(out.To, number)
		}
		recorded := t.On.Record.Rollback
		if isBack := !t.Record.Admitted && recorded != nil && recorded.Of == out.Key; isBack {
			out.Nodes++
		} else {
			out.NodesLeft++
		}
	}
	slices.Sort(out.To)
	out.To = out.To[:min(len(out.To), 10)]
	return out
}

// describeRollback says how many nodes went back, and from what.
func (rep Reporter) describeRollback(is *v1alpha1.RollbackStatus) string {
	text := rep.Facts.DescribeRevision(is.Key) + " failed: "
	switch len(is.To) {
	case 0:
		text += countOf(int(is.Nodes), "node") + " went back"
	case 1:
		text += fmt.Sprintf("%s went back to revision %d", countOf(int(is.Nodes), "node"), is.To[0])
	default:
		text += fmt.Sprintf("%s went back to revisions from %d to %d", countOf(int(is.Nodes), "node"), is.To[0], is.To[len(is.To)-1])
	}
	if is.NodesLeft > 0 {
		text += fmt.Sprintf(", %d to follow", is.NodesLeft)
	}
	return text
}
