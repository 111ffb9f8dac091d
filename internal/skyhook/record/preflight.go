// SPDX-FileCopyrightText: The Skyhook authors
// SPDX-License-Identifier: Apache-2.0

package record

import (
	"fmt"
	"maps"
	"reflect"

	"github.com/skyhook-k8s/skyhook/api/skyhook/v1alpha1"
	"github.com/skyhook-k8s/skyhook/internal/node"
	"github.com/skyhook-k8s/skyhook/internal/pack"
	"github.com/skyhook-k8s/skyhook/internal/rollout"
	"github.com/skyhook-k8s/skyhook/internal/skyhook/plan"
)

// recordAnswers records how much of their work the packages of a node need. One that needs nothing is complete. One that did less than its
// definition says, and needs something afterwards, runs again as that says.
func (r Recorder) recordAnswers(a rollout.Action, n *node.Node) (node.Edit, error) {
	t := r.Target
	answers, isDone := r.Facts.ReadAnswers(t, t.Pods.FindCheck(a.Object)), len(t.Steps) == 0
	if isDone {
		plan.ProveAnswers(answers)
	}
	if isRecorded(answers, n.Skyhook(r.Facts.Skyhook.Name).Record.Preflight) {
		return node.Edit{}, nil
	}
	e := EditRecord(r.Facts, n, func(state v1alpha1.NodeState, rec *node.SkyhookRecord) {
		if rec.Preflight == nil {
			rec.Preflight = map[string]node.Answer{}
		}
		maps.DeleteFunc(rec.Preflight, func(_ string, old node.Answer) bool { return r.Facts.ByHash[old.Hash] == nil })
		maps.Copy(rec.Preflight, answers)
		for key, answer := range answers {
			if !isDone && answer.Answer == pack.AnswerNone && !answer.Wrong {
				completePackage(key, r.Facts.ByHash[answer.Hash], state, rec, n)
			}
		}
	})
	after := n.With(e)
	for key, answer := range answers {
		if !isDone || !answer.Wrong {
			continue
		}
		name, version, _ := plan.CutKey(key)
		again, err := after.Rerun(r.Facts.Skyhook.Name, name, version, v1alpha1.StageApply)
		if err != nil {
			return node.Edit{}, fmt.Errorf("running package %s again, whose preflight was wrong: %w", name, err)
		}
		e, after = e.Plus(again), after.With(again)
	}
	if !isDone && plan.NeedNothing(t, answers) {
		e.SetSkyhookStatus(n, r.Facts.Skyhook.Name, v1alpha1.StatusComplete)
	}
	return e, nil
}

func isRecorded(answers, recorded map[string]node.Answer) bool {
	for key, a := range answers {
		if !reflect.DeepEqual(recorded[key], a) {
			return false
		}
	}
	return true
}

// runAgain records that a package did less than was needed, and has it run again as its definition says.
func runAgain(st *plan.Step, state v1alpha1.NodeState, rec *node.SkyhookRecord) {
	answer := rec.Preflight[st.Key]
	answer.Wrong, answer.Reason = true, "a check of stage "+string(st.Stage)+" failed; it had said "+string(answer.Answer)+": "+answer.Reason
	rec.Preflight[st.Key] = answer
	entry := state[st.Key]
	entry.Stage, entry.State, entry.Restarts = v1alpha1.StageApply, v1alpha1.StateInProgress, 0
	state[st.Key] = entry
	delete(rec.Packages, st.Key)
}

// completePackage records that a package is as it should be, and replaces its other versions.
func completePackage(key string, def *plan.Definition, state v1alpha1.NodeState, rec *node.SkyhookRecord, n *node.Node) {
	maps.DeleteFunc(state, func(other string, e v1alpha1.PackageStatus) bool { return e.Name == def.Package.Name && other != key })
	entry := v1alpha1.PackageStatus{
		Name: def.Package.Name, Version: string(def.Package.Version), Image: def.Package.Image, ContainerSHA: def.Package.ContainerSHA,
		Stage: v1alpha1.StageConfig, State: v1alpha1.StateComplete,
	}
	if before := state[key]; before.Stage == v1alpha1.StagePostInterrupt {
		entry.Stage = before.Stage
	}
	state[key] = entry
	p := &node.PackageRecord{At: node.Position(entry), Hash: def.Hash, Config: def.Config, Boot: n.BootID, Privileges: rec.Preflight[key].Privileges}
	if before := rec.Packages[key]; before != nil {
		p.Generation, p.Done, p.Refuses = before.Generation, before.Done, before.Refuses
	}
	rec.Packages[key] = p
}
