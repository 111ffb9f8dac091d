// SPDX-FileCopyrightText: The Skyhook authors
// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	nodeopv1 "github.com/skyhook-k8s/skyhook/api/nodeop/v1alpha1"
	"github.com/skyhook-k8s/skyhook/internal/nodeop"
	"github.com/skyhook-k8s/skyhook/internal/output"
	"github.com/skyhook-k8s/skyhook/internal/rollout"
)

// endedNodeOp is the NodeOp of a rollout, once it has ended: nodes carry nothing of it any more, and its status is all there is
// to tell. It is nil for everything else.
func (s *view) endedNodeOp(r *rollout.Rollout) *nodeopv1.NodeOp {
	for _, o := range s.objects.NodeOps {
		if nodeop.Ref(o) == r.Ref && (o.Status.Phase == nodeopv1.PhaseCompleted || o.Status.Phase == nodeopv1.PhaseFailed) {
			return o
		}
	}
	return nil
}

// summarizeEnded is what the status of a NodeOp that has ended says.
func summarizeEnded(o *nodeopv1.NodeOp) rolloutStatus {
	st := rolloutStatus{
		Name: nodeop.Ref(o), Status: "complete", Ended: true, Nodes: int(o.Status.Total), Complete: int(o.Status.Completed + o.Status.Skipped),
		Failing: int(o.Status.Failed), Groups: []groupStatus{}, Reasons: []reasonCount{}, Failures: []failure{}, Working: []runningTask{},
	}
	if o.Status.Phase == nodeopv1.PhaseFailed {
		st.Status = "failed"
	}
	for _, node := range slices.Sorted(maps.Keys(o.Status.NodeStatuses)) {
		n := o.Status.NodeStatuses[node]
		if n.Phase != nodeopv1.PhaseFailed {
			continue
		}
		text := n.Message
		if n.ExitCode != nil {
			text += fmt.Sprintf(", exit code %d", *n.ExitCode)
		}
		if n.Output != "" {
			text += "; last output: " + strings.ReplaceAll(strings.TrimSpace(n.Output), "\n", " | ")
		}
		st.Failures = append(st.Failures, failure{Node: node, Task: "command", Attempts: int(max(n.Attempts, 1)), Final: true, Text: text})
	}
	return st
}

// explainEnded says how a NodeOp ended: each message of a failure once.
func explainEnded(o *nodeopv1.NodeOp) []explanation {
	name := shortName(nodeop.Ref(o))
	all := []explanation{{
		Subject: name, Phase: "ended", Reason: string(o.Status.Phase),
		Text: fmt.Sprintf("%d of %s done, %d skipped, %d failed", o.Status.Completed, output.Count(int(o.Status.Total), "node"), o.Status.Skipped, o.Status.Failed),
	}}
	at := map[string]int{}
	for _, f := range summarizeEnded(o).Failures {
		if i, told := at[f.Text]; told {
			all[i].Nodes++
			continue
		}
		at[f.Text] = len(all)
		all = append(all, explanation{
			Subject: name + " on " + f.Node, Nodes: 1, Phase: "failed", Reason: string(rollout.ReasonStageFailed), Text: f.Text,
			Help: "mend the cause, and create the NodeOp anew: one that has ended stays so",
		})
	}
	for i := range all {
		if all[i].Nodes > 1 {
			all[i].Subject += fmt.Sprintf(" and %d more", all[i].Nodes-1)
		}
	}
	return all
}
