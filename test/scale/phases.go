// SPDX-FileCopyrightText: The Skyhook authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"
)

// progress reports whether some work is complete, and how far it is.
type progress func(f *simulation, ctx context.Context) (isComplete bool, count string, err error)

// phase is one thing that is measured.
type phase struct {
	name       string
	needs      string // the phase that must run before it; empty for none
	isRollout  bool   // the bounds of rollouts without interrupts apply
	begin      func(*simulation, context.Context) error
	isComplete progress
}

// phaseRest is the phase in which nothing changes.
const phaseRest = "rest"

// phases lists the phases in the order in which they run.
var phases = []phase{
	{"install", "", true, (*simulation).install, (*simulation).isSkyhookComplete},
	{"upgrade", "install", true, (*simulation).upgrade, (*simulation).isSkyhookComplete},
	{"config", "install", true, (*simulation).changeConfig, (*simulation).isSkyhookComplete},
	{"reboot", "install", false, (*simulation).changeWithReboot, (*simulation).isSkyhookComplete},
	{"nodeop", "", false, (*simulation).createNodeOp, (*simulation).isNodeOpComplete},
	{name: phaseRest},
	{name: phaseDrift, needs: "install"},
	{"uninstall", "install", true, (*simulation).uninstall, (*simulation).isSkyhookGone},
}

// parsePhases returns the phases of a comma-separated list, in the order in which they run.
func parsePhases(list string) ([]phase, error) {
	names := strings.Split(list, ",")
	var out []phase
	for _, p := range phases {
		if !slices.Contains(names, p.name) {
			continue
		}
		if p.needs != "" && !slices.Contains(names, p.needs) {
			return nil, fmt.Errorf("-phases %s: %s needs %s: add it", list, p.name, p.needs)
		}
		out = append(out, p)
	}
	for _, name := range names {
		if !slices.ContainsFunc(phases, func(p phase) bool { return p.name == name }) {
			return nil, fmt.Errorf("-phases %s: there is no phase %q: use some of %s", list, name, joinPhases())
		}
	}
	return out, nil
}

// joinPhases returns the names of all phases.
func joinPhases() string {
	var names []string
	for _, p := range phases {
		names = append(names, p.name)
	}
	return strings.Join(names, ",")
}

// measurement is what a phase took.
type measurement struct {
	phase         phase
	took          time.Duration
	checks        int64 // pods that checked a node for drift
	before, after *sample
	largest       object // of all objects during the phase
	mostActive    int64  // pods and Jobs at the same time
}

// measurePhases runs the phases one after the other, and prints a row for each.
func (r *run) measurePhases(ctx context.Context, f *simulation, o *operator) error {
	printHead(os.Stdout)
	for _, p := range r.phases {
		fmt.Fprintf(os.Stderr, "%s %s of %d nodes\n", time.Now().UTC().Format(time.TimeOnly), p.name, r.nodes)
		m, err := r.measurePhase(ctx, f, o, p)
		if err != nil {
			return fmt.Errorf("measuring %s: %w", p.name, err)
		}
		r.printDetails(os.Stderr, m)
		r.printRow(os.Stdout, m)
	}
	return nil
}

// measurePhase measures the operator during one phase.
func (r *run) measurePhase(ctx context.Context, f *simulation, o *operator, p phase) (measurement, error) {
	m := measurement{phase: p}
	if err := o.waitIdle(ctx); err != nil { // what the phase before it left ends
		return m, err
	}
	f.mostActive.Store(f.active.Load())
	var err error
	if p.name == phaseDrift { // is not measured: the operator reads what it would have recorded long ago
		if err = f.startChecks(ctx); err == nil {
			err = sleep(ctx, driftWarmUp)
		}
		if err != nil {
			return m, err
		}
	}
	if err := o.resetPeak(); err != nil {
		return m, err
	}
	if m.before, err = o.takeSample(); err != nil {
		return m, err
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	if r.profile != "" {
		go o.writeProfiles(ctx, filepath.Join(r.profile, p.name))
	}
	watcher := f.watchSizes(ctx)
	began, checked := time.Now(), f.checks.Load()
	if p.name == phaseRest {
		err = sleep(ctx, r.restDuration)
	} else if p.name == phaseDrift {
		err = sleep(ctx, driftPeriods*r.restDuration)
	} else if err = p.begin(f, ctx); err == nil {
		err = f.waitUntil(ctx, o, p.isComplete)
	}
	m.took, m.mostActive, m.checks = time.Since(began), f.mostActive.Load(), f.checks.Load()-checked
	if err != nil {
		return m, err
	}
	if m.after, err = o.takeSample(); err != nil {
		return m, err
	}
	m.largest, err = watcher.stop(ctx)
	return m, err
}
