// SPDX-FileCopyrightText: The Skyhook authors
// SPDX-License-Identifier: Apache-2.0

package plan

import (
	"fmt"

	"github.com/skyhook-k8s/skyhook/api/skyhook/v1alpha1"
	"github.com/skyhook-k8s/skyhook/internal/node"
	"github.com/skyhook-k8s/skyhook/internal/rollout"
	"github.com/skyhook-k8s/skyhook/internal/skyhook/podstate"
)

// Reapplies reports whether the node's packages run again because it rebooted.
func (t *Target) Reapplies() bool {
	for _, st := range t.Steps {
		if st.Goal == node.GoalReapply && st.Stage == v1alpha1.StageApply {
			return true
		}
	}
	return false
}

// Target is a node of this Skyhook with everything known about it.
type Target struct {
	Node     *node.Node
	On       *node.SkyhookState
	Record   node.SkyhookRecord
	Pods     podstate.OnNode
	Steps    map[string]*Step // by id; nil for a node without work
	Edited   int
	Selected bool
	Stuck    *rollout.Why // a package cannot start because its dependency is uninstalled
	Wanted   Wanted
	Revision string // key of the packages that are finished on the node; empty while one is between two definitions

	Quiet rollout.Phase // the phase for which Words is empty, as noted by a pass; empty for none
}

// FindPod returns the pod of an entry of a nodeState: of the same package, version, stage and recorded run. The newest of
// several counts.
func FindPod(pods []*podstate.Pod, e Entry) *podstate.Pod {
	run := ""
	if e.Record != nil {
		run = e.Record.Run
	}
	for i := len(pods) - 1; i >= 0; i-- {
		for _, pod := range pods[i].Works() {
			t := pod.Tag
			if t.Name == e.Name && t.Version == e.Version && t.Stage == e.Stage && pod.Run == run {
				return pod
			}
		}
	}
	return nil
}

// FindStep returns the compiled step of a task; an error if there is none.
func (t *Target) FindStep(id string) (*Step, error) {
	if t == nil {
		return nil, fmt.Errorf("task %s is not owed on a node that is no target", id)
	}
	if t.Steps[id] == nil {
		return nil, fmt.Errorf("task %s is not owed on node %s", id, t.Node.Name)
	}
	return t.Steps[id], nil
}
