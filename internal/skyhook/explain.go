// SPDX-FileCopyrightText: The Skyhook authors
// SPDX-License-Identifier: Apache-2.0

package skyhook

import (
	"github.com/skyhook-k8s/skyhook/api/skyhook/v1alpha1"
	"github.com/skyhook-k8s/skyhook/internal/node"
)

// Purpose describes why a task runs.
type Purpose struct {
	Package, Version string
	Stage            v1alpha1.Stage
	Goal             node.Goal
	From             string              // previous version, if it differs
	Keys             []string            // of the configMap that changed; GoalConfig only
	Interrupt        *v1alpha1.Interrupt // in effect for the package; nil for none
}

// purpose returns the purpose of a task on a node; false when there is no such task.
func (rep reporter) purpose(nodeName, task string) (Purpose, bool) {
	t := rep.target(nodeName)
	if t == nil || t.steps[task] == nil {
		return Purpose{}, false
	}
	st := t.steps[task]
	p := Purpose{Package: st.name, Version: st.version, Stage: st.stage, Goal: st.goal, Interrupt: st.effect}
	if st.goal == node.GoalConfig {
		p.Keys = rep.facts.changedKeys(st.from, st.keys, st.def)
	}
	for _, key := range sortedNames(t.on.State) {
		if e := t.on.State[key]; e.Name == st.name && e.Version != st.version {
			p.From = e.Version
		}
	}
	return p, true
}

// StageOf returns the stage of a task of a Skyhook, by the task's id.
func StageOf(task string) v1alpha1.Stage {
	_, _, _, stage := splitTaskID(task)
	return stage
}
