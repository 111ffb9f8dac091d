// SPDX-FileCopyrightText: The Skyhook authors
// SPDX-License-Identifier: Apache-2.0

package report

import (
	"github.com/skyhook-k8s/skyhook/api/skyhook/v1alpha1"
	"github.com/skyhook-k8s/skyhook/internal/node"
	"github.com/skyhook-k8s/skyhook/internal/skyhook/plan"
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

// Purpose returns the purpose of a task on a node; false when there is no such task.
func (rep Reporter) Purpose(nodeName, task string) (Purpose, bool) {
	t := rep.Target(nodeName)
	if t == nil || t.Steps[task] == nil {
		return Purpose{}, false
	}
	st := t.Steps[task]
	p := Purpose{Package: st.Name, Version: st.Version, Stage: st.Stage, Goal: st.Goal, Interrupt: st.Effect}
	if st.Goal == node.GoalConfig {
		p.Keys = rep.Facts.ChangedKeys(st.From, st.Keys, st.Definition)
	}
	for _, key := range plan.SortedNames(t.On.State) {
		if e := t.On.State[key]; e.Name == st.Name && e.Version != st.Version {
			p.From = e.Version
		}
	}
	return p, true
}

// StageOf returns the stage of a task of a Skyhook, by the task's id.
func StageOf(task string) v1alpha1.Stage {
	_, _, _, stage := plan.SplitTaskID(task)
	return stage
}
