// SPDX-FileCopyrightText: The Skyhook authors
// SPDX-License-Identifier: Apache-2.0

package record

import (
	"maps"

	"github.com/skyhook-k8s/skyhook/api/skyhook/v1alpha1"
	"github.com/skyhook-k8s/skyhook/internal/node"
	"github.com/skyhook-k8s/skyhook/internal/rollout"
	"github.com/skyhook-k8s/skyhook/internal/skyhook/plan"
	"github.com/skyhook-k8s/skyhook/internal/skyhook/podstate"
)

// recordDrift records what a check found, and requests the stages that repair it, if the Skyhook wants that.
func (r Recorder) recordDrift(a rollout.Action, n *node.Node) node.Edit {
	t := r.Target
	if t == nil || r.Facts.Skyhook.Spec.Drift == nil {
		return node.Edit{}
	}
	last := r.Facts.DriftOf(t)
	rec := node.DriftRecord{Node: n.UID, Skyhook: string(r.Facts.Skyhook.UID), CheckedAt: node.WholeSeconds(r.Facts.Now), Repairs: last.RecentRepairs(r.Facts.Now)}
	if pod := t.Pods.FindCheck(a.Object); pod != nil {
		rec.Packages = r.Facts.ReadDrift(t, pod)
	}
	if len(rec.Drifted()) > 0 {
		rec.Pod = a.Object
	}
	edit := node.Edit{}
	if r.Facts.Skyhook.Spec.Drift.Mode == v1alpha1.DriftRepair {
		edit = r.requestRepairs(&rec, n)
	} else {
		clearRepairs(&rec)
	}
	edit.SetAnnotation(n, v1alpha1.PrefixDrift+r.Facts.Skyhook.Name, rec.String())
	return edit
}

func clearRepairs(rec *node.DriftRecord) {
	for key, found := range rec.Packages {
		found.Repair = ""
		rec.Packages[key] = found
	}
}

// requestRepairs returns the edit after which the packages that drifted run again, as a person would request it. What drifts again and
// again is only reported, and so is what drifted on a node that went back.
func (r Recorder) requestRepairs(rec *node.DriftRecord, n *node.Node) node.Edit {
	edit, after := node.Edit{}, n
	rec.Packages = maps.Clone(rec.Packages)
	for _, key := range rec.Drifted() {
		found := rec.Packages[key]
		name, version, _ := plan.CutKey(key)
		switch {
		case found.Repair == "":
		case r.Facts.HasRolledBack(&n.Skyhook(r.Facts.Skyhook.Name).Record):
			found.Repair = ""
		case !rec.MayRepair(name, r.Facts.Now):
			found.Repair = ""
			found.Text = node.Truncate("it drifts again after three repairs within a day, and is only reported: "+found.Text, podstate.MaxDriftText)
		default:
			e, err := after.Rerun(r.Facts.Skyhook.Name, name, version, v1alpha1.Stage(found.Repair))
			if err != nil { // the package is not there any more
				found.Repair = ""
				break
			}
			edit, after = edit.Plus(e), after.With(e)
			rec.Repairs = rec.NoteRepair(name, r.Facts.Now)
		}
		rec.Packages[key] = found
	}
	return edit
}
