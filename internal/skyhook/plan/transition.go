// SPDX-FileCopyrightText: The Skyhook authors
// SPDX-License-Identifier: Apache-2.0

package plan

import (
	"slices"

	"github.com/skyhook-k8s/skyhook/api/skyhook/v1alpha1"
	"github.com/skyhook-k8s/skyhook/internal/node"
)

// This file is the state machine of one package on one node, as three tables:
//
//   - versionTable: what a recorded version means when the spec wants a version;
//   - stageTable: which stages are left for the version that the spec wants;
//   - successTable: what is recorded when a stage succeeds.
//
// In the first two the first row that matches counts. TestTransitionTables has a case for every row.

// versionRole is what a recorded version means for the version that the spec wants.
type versionRole string

const (
	roleCurrent     versionRole = "current"     // the version of the spec
	rolePrevious    versionRole = "previous"    // installed and lower: it is upgraded
	roleUninstall   versionRole = "uninstall"   // installed and higher: it is uninstalled, then the spec's is applied
	roleInterrupt   versionRole = "interrupt"   // uninstalled but for its interrupt, then the spec's is applied
	roleOverwriting versionRole = "overwriting" // it began to replace the current version, which is applied again
	roleForgotten   versionRole = "forgotten"   // nothing of it began, or it waited for an uninstall that the spec no longer wants
	roleIgnored     versionRole = "ignored"     // it was never installed
)

// appliesAgain reports whether the version of the spec begins with apply because of a version in this role.
func (r versionRole) appliesAgain() bool {
	return r == roleUninstall || r == roleInterrupt || r == roleOverwriting
}

// recordedVersion is an entry beside the version that the spec wants.
type recordedVersion struct {
	Entry
	order    int    // below 0: lower than the version of the spec
	isOwnKey bool   // it is spelt as in the spec
	current  *Entry // of the version of the spec; nil for none
}

var versionTable = []struct {
	role versionRole
	when func(recordedVersion) bool
}{
	{roleForgotten, func(v recordedVersion) bool { return v.isParked() && !v.isOwnKey || v.isUnbegun() && v.order != 0 }},
	{roleCurrent, func(v recordedVersion) bool { return v.order == 0 }},
	{roleUninstall, func(v recordedVersion) bool { return v.order > 0 && (v.Record != nil || v.current == nil) }},
	{roleInterrupt, func(v recordedVersion) bool { return v.order < 0 && v.Stage == v1alpha1.StageUninstallInterrupt }},
	{roleOverwriting, func(v recordedVersion) bool {
		return v.order < 0 && v.isApplying() && v.beganAfterCurrent() || v.wasCutOff()
	}},
	{rolePrevious, func(v recordedVersion) bool { return v.order < 0 && v.wasInstalled() }},
	{roleIgnored, func(recordedVersion) bool { return true }},
}

// role returns the role of the version in the first row that matches.
func (v recordedVersion) role() versionRole {
	for _, row := range versionTable {
		if row.when(v) {
			return row.role
		}
	}
	return roleIgnored
}

// isParked reports whether a version waits for the uninstall of a higher one.
func (e Entry) isParked() bool {
	return e.Stage == v1alpha1.StageUninstall && (e.State == v1alpha1.StateSkipped || e.State == v1alpha1.StateComplete)
}

// isApplying reports whether the record says that the package is being applied and has not completed it.
func (e Entry) isApplying() bool {
	return e.Stage == v1alpha1.StageApply && e.State != v1alpha1.StateComplete && e.Record != nil && e.Record.Goal != ""
}

// beganAfterCurrent reports whether the version of the spec was in place before the apply of this one began: a completed
// apply or upgrade drops the entries of other versions.
func (v recordedVersion) beganAfterCurrent() bool {
	if v.current == nil {
		return false
	}
	return v.current.Stage == v1alpha1.StageConfig || v.current.Stage == v1alpha1.StageInterrupt || v.current.Stage == v1alpha1.StagePostInterrupt
}

// wasCutOff reports whether the Skyhook was deleted while this version was applied, beside one that was in place: what is kept then has
// the record of that one alone.
func (v recordedVersion) wasCutOff() bool {
	isUnfinished := (v.Stage == v1alpha1.StageApply || v.Stage == v1alpha1.StageUpgrade) && v.State != v1alpha1.StateComplete
	return isUnfinished && v.Record == nil && v.current != nil && v.current.Record != nil && v.current.Record.Kept
}

// wasInstalled reports whether the package completed its apply or upgrade and is not being uninstalled.
func (e Entry) wasInstalled() bool {
	switch e.Stage {
	case v1alpha1.StageApply:
		return e.State == v1alpha1.StateComplete
	case v1alpha1.StageUninstall, v1alpha1.StageUninstallInterrupt:
		return false
	}
	return true
}

// position is where the node stands with the version of the spec.
type position struct {
	Entry
	Work       // of the recorded run; by the stage when none is recorded
	inRun bool // a run is recorded and has not finished

	programChanged   bool // since the stage of the run began: its image, agent or environment
	configChanged    bool // since the config stage of the run, or since the package finished
	interruptStarted bool // or another package's interrupt covers it
	rebooted         bool // since the package finished, other than by our interrupts
	edited           bool // since the package finished, in a way that affects its pods
}

func (p position) isDone() bool { return p.State == v1alpha1.StateComplete }

// isFinished reports whether the package is through its last stage.
func (p position) isFinished() bool {
	return p.isDone() && !p.inRun && (p.Stage == v1alpha1.StageConfig || p.Stage == v1alpha1.StagePostInterrupt)
}

// interruptSource is where the interrupt in effect for the coming stages comes from.
type interruptSource int

const (
	ownInterrupt      interruptSource = iota // the package's interrupt
	recordedInterrupt                        // the interrupt of the recorded run
	computedInterrupt                        // by the goal: the package's, or that of the changed keys
)

// continuation is what is left for a package. The zero value is nothing.
type continuation struct {
	start     v1alpha1.Stage // the first stage that is left; empty for none
	goal      node.Goal      // empty: the goal of the recorded run
	interrupt interruptSource

	removeFirst bool // the stages that are left of the uninstall come before
	configAfter bool // only the first stage is left, then the config stage
	adopt       bool // the package is finished, and a record of it is missing
	countEdit   bool // the package is finished, and its definition changed
}

// stageTable lists what is left for the version of the spec, by the recorded stage. A row without stages is for any stage.
var stageTable = []struct {
	name   string
	stages []v1alpha1.Stage
	when   func(position) bool // nil for always
	then   continuation
}{
	{"uninstall no longer wanted", at(v1alpha1.StageUninstall), nil,
		continuation{start: v1alpha1.StageApply, goal: node.GoalInstall}},
	{"uninstalled but for the interrupt", at(v1alpha1.StageUninstallInterrupt), nil,
		continuation{removeFirst: true, start: v1alpha1.StageApply, goal: node.GoalInstall}},
	{"applied with an earlier image or environment", at(v1alpha1.StageApply, v1alpha1.StageUpgrade), func(p position) bool { return p.isDone() && p.programChanged },
		continuation{start: v1alpha1.StageApply}},
	{"applied or upgraded", at(v1alpha1.StageApply, v1alpha1.StageUpgrade), position.isDone,
		continuation{start: v1alpha1.StageConfig}},
	{"apply to complete", at(v1alpha1.StageApply), nil,
		continuation{start: v1alpha1.StageApply}},
	{"upgrade to complete", at(v1alpha1.StageUpgrade), nil,
		continuation{start: v1alpha1.StageUpgrade}},

	{"finished, without a record", nil, func(p position) bool { return p.isFinished() && p.Record == nil },
		continuation{adopt: true}},
	{"finished before the node booted", nil, func(p position) bool { return p.isFinished() && p.rebooted },
		continuation{start: v1alpha1.StageApply, goal: node.GoalReapply}},
	{"finished with another configMap", nil, func(p position) bool { return p.isFinished() && p.configChanged },
		continuation{start: v1alpha1.StageConfig, goal: node.GoalConfig, interrupt: computedInterrupt}},
	{"finished with another definition", nil, func(p position) bool { return p.isFinished() && p.edited },
		continuation{countEdit: true}},
	{"finished", nil, position.isFinished,
		continuation{}},

	{"config to complete, or changed since", at(v1alpha1.StageConfig), func(p position) bool { return !p.isDone() || p.configChanged },
		continuation{start: v1alpha1.StageConfig, interrupt: computedInterrupt}},
	{"config complete, without an interrupt", at(v1alpha1.StageConfig), func(p position) bool { return p.Effect == nil },
		continuation{adopt: true}},
	{"config complete", at(v1alpha1.StageConfig), nil,
		continuation{start: v1alpha1.StageInterrupt, interrupt: recordedInterrupt}},

	{"interrupt done, configMap changed since", at(v1alpha1.StageInterrupt), func(p position) bool { return p.isDone() && p.configChanged },
		continuation{start: v1alpha1.StageConfig, goal: node.GoalConfig, interrupt: computedInterrupt}},
	{"interrupt done", at(v1alpha1.StageInterrupt), position.isDone,
		continuation{start: v1alpha1.StagePostInterrupt, interrupt: recordedInterrupt}},
	{"interrupt started, configMap changed since", at(v1alpha1.StageInterrupt), func(p position) bool { return p.interruptStarted && p.configChanged },
		continuation{start: v1alpha1.StageInterrupt, interrupt: recordedInterrupt, configAfter: true}},
	{"interrupt started", at(v1alpha1.StageInterrupt), func(p position) bool { return p.interruptStarted },
		continuation{start: v1alpha1.StageInterrupt, interrupt: recordedInterrupt}},
	{"interrupt to start, configMap changed", at(v1alpha1.StageInterrupt), func(p position) bool { return p.configChanged },
		continuation{start: v1alpha1.StageConfig, interrupt: computedInterrupt}},
	{"interrupt no longer wanted", at(v1alpha1.StageInterrupt), func(p position) bool { return p.Effect == nil },
		continuation{start: v1alpha1.StagePostInterrupt, interrupt: recordedInterrupt}},
	{"interrupt to start", at(v1alpha1.StageInterrupt), nil,
		continuation{start: v1alpha1.StageInterrupt, interrupt: recordedInterrupt}},

	{"post-interrupt to complete, configMap changed", at(v1alpha1.StagePostInterrupt), func(p position) bool { return p.configChanged },
		continuation{start: v1alpha1.StageConfig, goal: node.GoalConfig, interrupt: computedInterrupt}},
	{"post-interrupt to complete", at(v1alpha1.StagePostInterrupt), nil,
		continuation{start: v1alpha1.StagePostInterrupt, interrupt: recordedInterrupt}},
}

func at(stages ...v1alpha1.Stage) []v1alpha1.Stage { return stages }

// transition returns the first row of stageTable that matches.
func (p position) transition() (name string, then continuation) {
	for _, row := range stageTable {
		if (row.stages == nil || slices.Contains(row.stages, p.Stage)) && (row.when == nil || row.when(p)) {
			return row.name, row.then
		}
	}
	return "", continuation{} // no such stage: node.ParseState refuses it
}

// newPosition reads where the node stands with the version of the spec.
func (w *Diff) newPosition(want *Definition, e Entry) position {
	p := position{Entry: e, Work: Work{Goal: node.GoalReapply, Effect: Normalised(want.Package.Interrupt)}}
	switch e.Stage {
	case v1alpha1.StageApply:
		p.Goal = node.GoalInstall
	case v1alpha1.StageUpgrade:
		p.Goal = node.GoalUpgrade
	}
	switch {
	case e.Record == nil:
	case e.Record.Goal != "":
		p.inRun = true
		p.Work = Work{Goal: e.Record.Goal, From: e.Record.From, Keys: e.Record.Keys, Effect: e.Record.Effect}
		if begun := w.facts.Definition(e.Record.Hash); begun != nil {
			p.programChanged = begun.program != want.program
		}
		p.configChanged = e.Record.Config != "" && e.Record.Config != want.Config
		p.interruptStarted = e.Record.Interrupt != "" && e.IsUnderWay() || e.State == v1alpha1.StateSkipped
	case p.isFinished():
		p.rebooted = w.hasRebooted(e.Record)
		p.configChanged = e.Record.Config != want.Config
		p.edited = e.Record.Hash != want.Hash && w.facts.Edits(e.Record.Hash, want)
	}
	if e.Stage == v1alpha1.StageInterrupt && !p.isDone() {
		w.refreshInterrupt(want, &p)
	}
	return p
}

// refreshInterrupt computes the interrupt again when the recorded one is lost, or when it failed and the edit of the
// package may have fixed it.
func (w *Diff) refreshInterrupt(want *Definition, p *position) {
	isLost := p.Effect == nil
	mayBeFixed := p.hasFailed() && p.Record != nil && p.Record.Hash != want.Hash
	if isLost || mayBeFixed {
		p.Effect, p.interruptStarted = w.interruptFor(want, p.Work), false
	}
}

// success is what is recorded beside "complete" when a stage succeeds.
type success struct {
	dropsOtherVersions bool           // this version replaces the others
	finishesPackage    bool           // nothing is left of the run
	removesPackage     bool           // the package is uninstalled
	completesInterrupt bool           // and those of other packages that it covers
	next               v1alpha1.Stage // the entry moves on to this stage; empty when the next pass does it
}

// successTable is what is recorded when a stage succeeds, without and with an interrupt in effect for the package.
var successTable = map[v1alpha1.Stage]struct{ without, with success }{
	v1alpha1.StageApply:              {success{dropsOtherVersions: true}, success{dropsOtherVersions: true}},
	v1alpha1.StageUpgrade:            {success{dropsOtherVersions: true}, success{dropsOtherVersions: true}},
	v1alpha1.StageConfig:             {success{finishesPackage: true}, success{}},
	v1alpha1.StageInterrupt:          {success{completesInterrupt: true}, success{completesInterrupt: true}},
	v1alpha1.StagePostInterrupt:      {success{finishesPackage: true}, success{finishesPackage: true}},
	v1alpha1.StageUninstall:          {success{removesPackage: true}, success{next: v1alpha1.StageUninstallInterrupt}},
	v1alpha1.StageUninstallInterrupt: {success{completesInterrupt: true}, success{completesInterrupt: true}},
}

func successOf(stage v1alpha1.Stage, interrupt *v1alpha1.Interrupt) success {
	if interrupt != nil {
		return successTable[stage].with
	}
	return successTable[stage].without
}
