// SPDX-FileCopyrightText: The Skyhook authors
// SPDX-License-Identifier: Apache-2.0

package plan

import (
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/yaml"

	"github.com/skyhook-k8s/skyhook/api/skyhook/v1alpha1"
	"github.com/skyhook-k8s/skyhook/internal/node"
	"github.com/skyhook-k8s/skyhook/internal/pack"
)

// tableCase is an entry of tuning 1.0.0 and what is left for it. The package has the configMap a: "1".
type tableCase struct {
	entry     string              // stage/state
	record    *node.PackageRecord // nil when nothing is recorded
	interrupt string              // of the package now; empty for none
	row       string              // of stageTable
	left      string              // stages, in order
}

func stageTableCases() []tableCase {
	service := &v1alpha1.Interrupt{Type: v1alpha1.InterruptService, Services: []string{"a"}}
	run := func(goal node.Goal, change func(*node.PackageRecord)) *node.PackageRecord {
		p := &node.PackageRecord{Goal: goal, Hash: "current", Config: "current", Run: "1", Generation: 1, Effect: service}
		if change != nil {
			change(p)
		}
		return p
	}
	finished := func(change func(*node.PackageRecord)) *node.PackageRecord {
		p := &node.PackageRecord{Hash: "current", Config: "current", Boot: "boot-1"}
		if change != nil {
			change(p)
		}
		return p
	}
	otherConfig := func(p *node.PackageRecord) { p.Config = "other" }
	started := func(p *node.PackageRecord) { p.Interrupt, p.Payload = "id", service }
	const restart = "interrupt: {type: service, services: [a]}"
	return []tableCase{
		{entry: "uninstall/in_progress", row: "uninstall no longer wanted", left: "apply, config"},
		{entry: "uninstall-interrupt/in_progress", interrupt: restart, row: "uninstalled but for the interrupt",
			left: "uninstall-interrupt, apply, config, interrupt, post-interrupt"},
		{entry: "apply/in_progress", row: "apply to complete", left: "apply, config"},
		{entry: "apply/erroring", row: "apply to complete", left: "apply, config"},
		{entry: "apply/unknown", row: "apply to complete", left: "apply, config"},
		{entry: "upgrade/in_progress", row: "upgrade to complete", left: "upgrade, config"},
		{entry: "apply/complete", row: "applied or upgraded", left: "config"},
		{entry: "apply/complete", record: run(node.GoalInstall, func(p *node.PackageRecord) { p.Hash = "edited" }),
			row: "applied with an earlier image or environment", left: "apply, config"},
		{entry: "upgrade/complete", interrupt: restart, row: "applied or upgraded", left: "config, interrupt, post-interrupt"},

		{entry: "config/complete", row: "finished, without a record"},
		{entry: "post-interrupt/complete", record: finished(func(p *node.PackageRecord) { p.Boot = "boot-0" }), interrupt: restart,
			row: "finished before the node booted", left: "apply, config, interrupt, post-interrupt"},
		{entry: "config/complete", record: finished(otherConfig), row: "finished with another configMap", left: "config"},
		{entry: "config/complete", record: finished(func(p *node.PackageRecord) { p.Hash = "other" }), row: "finished with another definition"},
		{entry: "config/complete", record: finished(nil), row: "finished"},
		{entry: "post-interrupt/complete", record: finished(nil), interrupt: restart, row: "finished"},

		{entry: "config/in_progress", record: run(node.GoalInstall, nil), row: "config to complete, or changed since", left: "config"},
		{entry: "config/complete", record: run(node.GoalInstall, otherConfig), interrupt: restart, row: "config to complete, or changed since",
			left: "config, interrupt, post-interrupt"},
		{entry: "config/complete", record: run(node.GoalInstall, func(p *node.PackageRecord) { p.Effect = nil }), interrupt: restart,
			row: "config complete, without an interrupt"},
		{entry: "config/complete", record: run(node.GoalInstall, nil), row: "config complete", left: "interrupt, post-interrupt"},

		{entry: "interrupt/complete", record: run(node.GoalInstall, otherConfig), row: "interrupt done, configMap changed since", left: "config"},
		{entry: "interrupt/complete", record: run(node.GoalInstall, nil), row: "interrupt done", left: "post-interrupt"},
		{entry: "interrupt/in_progress", record: run(node.GoalInstall, func(p *node.PackageRecord) { started(p); otherConfig(p) }),
			row: "interrupt started, configMap changed since", left: "interrupt, config"},
		{entry: "interrupt/in_progress", record: run(node.GoalInstall, started), row: "interrupt started", left: "interrupt, post-interrupt"},
		{entry: "interrupt/skipped", record: run(node.GoalInstall, func(p *node.PackageRecord) { p.By = "other|1.0.0/interrupt" }),
			row: "interrupt started", left: "interrupt, post-interrupt"},
		{entry: "interrupt/in_progress", record: run(node.GoalInstall, otherConfig), row: "interrupt to start, configMap changed", left: "config"},
		{entry: "interrupt/erroring", record: run(node.GoalInstall, func(p *node.PackageRecord) { started(p); p.Hash = "other" }),
			row: "interrupt no longer wanted", left: "post-interrupt"},
		{entry: "interrupt/erroring", record: run(node.GoalInstall, func(p *node.PackageRecord) { started(p); p.Hash = "other" }), interrupt: restart,
			row: "interrupt to start", left: "interrupt, post-interrupt"},
		{entry: "interrupt/in_progress", record: run(node.GoalInstall, nil), row: "interrupt to start", left: "interrupt, post-interrupt"},

		{entry: "post-interrupt/in_progress", record: run(node.GoalInstall, otherConfig), row: "post-interrupt to complete, configMap changed", left: "config"},
		{entry: "post-interrupt/erroring", record: run(node.GoalInstall, nil), row: "post-interrupt to complete", left: "post-interrupt"},
	}
}

// TestStageTable has a case for every row of stageTable.
func TestStageTable(t *testing.T) {
	reached := map[string]bool{}
	for _, c := range stageTableCases() {
		reached[c.row] = true
		t.Run(c.entry+" "+c.row, func(t *testing.T) {
			row, left := continueFrom(t, c)
			if row != c.row || left != c.left {
				t.Errorf("row %q with %q left, want row %q with %q left", row, left, c.row, c.left)
			}
		})
	}
	for _, row := range stageTable {
		if !reached[row.name] {
			t.Errorf("no case reaches the row %q", row.name)
		}
	}
}

// TestStageTableIsTotal finds a row for every entry that a nodeState can have, with and without a record.
func TestStageTableIsTotal(t *testing.T) {
	for _, stage := range node.Stages {
		for _, state := range []v1alpha1.State{v1alpha1.StateComplete, v1alpha1.StateInProgress, v1alpha1.StateSkipped, v1alpha1.StateErroring, v1alpha1.StateUnknown} {
			for _, rec := range []*node.PackageRecord{nil, {}, {Goal: node.GoalInstall}, {Goal: node.GoalConfig}} {
				if row, _ := continueFrom(t, tableCase{entry: string(stage) + "/" + string(state), record: rec}); row == "" {
					t.Errorf("no row for %s/%s with the record %+v", stage, state, rec)
				}
			}
		}
	}
}

// continueFrom returns the row of stageTable that an entry matches, and the stages that are left.
func continueFrom(t *testing.T, c tableCase) (row, left string) {
	t.Helper()
	s := &v1alpha1.Skyhook{}
	text := `{metadata: {name: demo, uid: uid-demo}, spec: {packages: {tuning: {version: 1.0.0, image: example.org/p, configMap: {a: "1"}, ` + c.interrupt + `}}}}`
	if err := yaml.UnmarshalStrict([]byte(text), s); err != nil {
		t.Fatal(err)
	}
	f := NewFacts(&Input{Skyhook: s, Config: Config{ReapplyOnReboot: true}, Definitions: map[string]*Definition{}})
	want := f.Packages["tuning"]

	stage, state, _ := strings.Cut(c.entry, "/")
	e := Entry{key: "tuning|1.0.0", PackageStatus: v1alpha1.PackageStatus{
		Name: "tuning", Version: "1.0.0", Image: "example.org/p", Stage: v1alpha1.Stage(stage), State: v1alpha1.State(state)}}
	if c.record != nil {
		rec := *c.record
		if rec.Hash == "current" {
			rec.Hash = want.Hash
		}
		if rec.Config == "current" {
			rec.Config = want.Config
		}
		if rec.Hash == "edited" {
			earlier := want.Package
			earlier.Env = []v1alpha1.EnvVar{{Name: "A", Value: "earlier"}}
			d := NewDefinition("tuning", earlier)
			rec.Hash, f.Frozen[d.Hash] = d.Hash, d
		}
		e.Record = &rec
	}
	booted := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "n1", UID: "node-n1"}}
	booted.Status.NodeInfo.BootID = "boot-1"
	n := node.Parse(booted, nil)
	diff := f.DiffPackages(&Target{Node: n, On: n.Skyhook("demo")})
	row, _ = diff.newPosition(want, e).transition()
	removal, install := diff.resumeSteps(want, e)
	var stages []string
	for _, st := range append(removal, install...) {
		stages = append(stages, string(st.Stage))
	}
	return row, strings.Join(stages, ", ")
}

// TestVersionTable has a case for every row of versionTable: an entry beside the spec, which wants version 1.0.0.
func TestVersionTable(t *testing.T) {
	recorded, unbegun := &node.PackageRecord{Goal: node.GoalInstall}, &node.PackageRecord{Goal: node.GoalInstall, Unbegun: true}
	reached := map[versionRole]bool{}
	for _, c := range []struct {
		version, entry string
		record         *node.PackageRecord
		current        v1alpha1.Stage // of the version of the spec; empty for none
		want           versionRole
	}{
		{version: "1.0", entry: "uninstall/skipped", want: roleForgotten},
		{version: "0.9.0", entry: "uninstall/complete", want: roleForgotten},
		{version: "2.0.0", entry: "apply/in_progress", record: unbegun, want: roleForgotten},
		{version: "0.9.0", entry: "upgrade/erroring", record: unbegun, current: "config", want: roleForgotten},
		{version: "1.0", entry: "apply/in_progress", record: unbegun, current: "apply", want: roleCurrent},
		{version: "1.0.0", entry: "uninstall/complete", current: "config", want: roleCurrent},
		{version: "1.0", entry: "config/complete", current: "config", want: roleCurrent},
		{version: "2.0.0", entry: "config/complete", want: roleUninstall},
		{version: "2.0.0", entry: "uninstall/in_progress", record: recorded, current: "uninstall", want: roleUninstall},
		{version: "2.0.0", entry: "config/complete", current: "config", want: roleIgnored}, // a predecessor left it
		{version: "0.9.0", entry: "uninstall-interrupt/in_progress", want: roleInterrupt},
		{version: "0.9.0", entry: "apply/in_progress", record: recorded, current: "config", want: roleOverwriting},
		{version: "0.9.0", entry: "apply/complete", record: recorded, current: "upgrade", want: rolePrevious}, // it is being upgraded
		{version: "0.9.0", entry: "apply/in_progress", record: recorded, current: "upgrade", want: roleIgnored},
		{version: "0.9.0", entry: "config/complete", want: rolePrevious},
		{version: "0.9.0", entry: "upgrade/erroring", want: rolePrevious},
		{version: "0.9.0", entry: "apply/erroring", want: roleIgnored},
	} {
		reached[c.want] = true
		stage, state, _ := strings.Cut(c.entry, "/")
		v := recordedVersion{
			Entry: Entry{PackageStatus: v1alpha1.PackageStatus{Stage: v1alpha1.Stage(stage), State: v1alpha1.State(state)}, Record: c.record},
			order: pack.CompareVersions(c.version, "1.0.0"), isOwnKey: c.version == "1.0.0",
		}
		if c.current != "" {
			v.current = &Entry{PackageStatus: v1alpha1.PackageStatus{Stage: c.current}}
		}
		if got := v.role(); got != c.want {
			t.Errorf("%s at %s is %s, want %s", c.version, c.entry, got, c.want)
		}
	}
	for _, row := range versionTable {
		if !reached[row.role] {
			t.Errorf("no case reaches the role %q", row.role)
		}
	}
}
