// SPDX-FileCopyrightText: The Skyhook authors
// SPDX-License-Identifier: Apache-2.0

package sandbox

import (
	"fmt"
	"os"
	"slices"
	"strings"

	"github.com/skyhook-k8s/skyhook/internal/pack"
)

// lifecycle is the lifecycle of a package on one host.
type lifecycle struct {
	Request
	*host
	report           *Report
	initial, current snapshot
	calls            int  // calls of systemctl that were reported already
	failed           bool // a stage failed: later stages are skipped

	pkg        Version
	config     map[string]string
	generation int // of the Skyhook
	run        int // run id of the package
	pods       int
}

// The modes of each stage. The check of a mode follows it.
var (
	installs   = []pack.Mode{pack.ModeApply, pack.ModeConfig}
	configures = []pack.Mode{pack.ModeConfig}
	upgrades   = []pack.Mode{pack.ModeUpgrade, pack.ModeConfig}
	uninstalls = []pack.Mode{pack.ModeUninstall}
)

// runLifecycles installs the package on a new host, and upgrades it from an older version on another one.
func (o Request) runLifecycles(settings map[string]string) (Report, error) {
	r := Report{Package: o.Package.Name, Version: o.Package.Version, Host: o.describeHost(), Stages: []Stage{}}
	fresh, err := o.newLifecycle(newHostDir, settings, &r)
	if err != nil {
		return r, err
	}
	installed, err := fresh.testInstall()
	if err != nil {
		return r, err
	}
	if o.Older != nil {
		j, err := o.newLifecycle(upgradedHostDir, settings, &r)
		if err != nil {
			return r, err
		}
		if err := j.testUpgrade(installed); err != nil {
			return r, err
		}
	}
	r.Notes = append(r.Notes, o.listUntested()...)
	r.Passed = !slices.ContainsFunc(r.Stages, func(s Stage) bool { return !s.Passed })
	return r, nil
}

func (o Request) describeHost() string {
	if o.Root != "" {
		return "a copy of " + o.Root
	}
	return "a host like " + o.Distribution
}

// listUntested returns notes about modes of the package that this test does not run.
func (o Request) listUntested() []string {
	config, _ := pack.Load(os.DirFS(o.Package.Dir), pack.ModeApply, pack.Want{})
	var out []string
	if o.Spec.Interrupt == nil && len(config.Steps(pack.ModePostInterrupt))+len(config.Steps(pack.ModePostInterruptCheck)) > 0 {
		out = append(out, "post-interrupt was not tested: name an interrupt in "+SpecFile+", or with --interrupt")
	}
	if o.Older == nil && len(config.Steps(pack.ModeUpgrade))+len(config.Steps(pack.ModeUpgradeCheck)) > 0 {
		out = append(out, "upgrade was not tested: name an older version with --upgrade-from")
	}
	if len(o.Spec.Change) == 0 && len(config.Steps(pack.ModeConfig)) > 0 {
		out = append(out, "a change of the config was not tested: name one in "+SpecFile)
	}
	return out
}

func (o Request) newLifecycle(dir string, settings map[string]string, r *Report) (*lifecycle, error) {
	h, err := o.newHost(dir, settings)
	if err != nil {
		return nil, err
	}
	j := &lifecycle{Request: o, host: h, report: r, pkg: o.Package, config: o.Spec.Config, generation: 1}
	if j.initial, err = h.takeSnapshot(nil); err != nil {
		return nil, err
	}
	j.current = j.initial
	return j, nil
}

// testInstall installs the package, changes its config and uninstalls it. It returns the host after the install.
func (j *lifecycle) testInstall() (snapshot, error) {
	if err := j.testPreflight("preflight", nil); err != nil {
		return nil, err
	}
	if err := j.runStage("install", installs, nil); err != nil {
		return nil, err
	}
	installed := j.current
	if err := j.runStage("install again", installs, j.requireUnchanged("doing it again changed something")); err != nil {
		return nil, err
	}
	if len(j.Spec.Change) > 0 {
		j.config, j.generation = j.Spec.configAfterChange(), 2
		if err := j.runStage("config change", configures, nil); err != nil {
			return nil, err
		}
		if err := j.runStage("config change again", configures, j.requireUnchanged("doing it again changed something")); err != nil {
			return nil, err
		}
		j.config, j.generation = j.Spec.Config, 3
		back := j.requireSame(installed, "the host is not what it was with this config before")
		if err := j.runStage("config back", configures, back); err != nil {
			return nil, err
		}
	}
	if err := j.testPreflight("preflight again", j.requireNone); err != nil {
		return nil, err
	}
	return installed, j.testUninstall()
}

// testUpgrade installs the older version, upgrades and uninstalls it. installed is a host with a fresh install of the
// newer one.
func (j *lifecycle) testUpgrade(installed snapshot) error {
	j.pkg = *j.Older
	if err := j.runStage("install "+j.pkg.Version, installs, nil); err != nil {
		return err
	}
	j.pkg, j.generation = j.Package, 2
	if err := j.runStage("upgrade to "+j.pkg.Version, upgrades, nil); err != nil {
		return err
	}
	if !j.failed {
		if other := changedPaths(j.current.diffFrom(installed)); len(other) > 0 {
			j.report.Notes = append(j.report.Notes, "an upgraded host differs from a new one in "+listFirst(other))
		}
	}
	if err := j.runStage("install "+j.pkg.Version+" again", installs, nil); err != nil {
		return err
	}
	return j.testUninstall()
}

// testUninstall uninstalls the package twice: an uninstall must cope with missing files.
func (j *lifecycle) testUninstall() error {
	gone := j.requireSame(j.initial, "the uninstall left something")
	if err := j.runStage("uninstall", uninstalls, gone); err != nil {
		return err
	}
	return j.runStage("uninstall again", uninstalls, j.requireUnchanged("doing it again changed something"))
}

// requirement checks a successful stage and adds problems to it.
type requirement func(s *Stage)

// requireUnchanged requires that the stage changed nothing.
func (j *lifecycle) requireUnchanged(problem string) requirement {
	return func(s *Stage) {
		if len(s.Changes) > 0 {
			s.Problems = append(s.Problems, problem+": "+listFirst(changedPaths(s.Changes)))
		}
	}
}

// requireSame requires that the host equals an earlier snapshot.
func (j *lifecycle) requireSame(before snapshot, problem string) requirement {
	return func(s *Stage) {
		if other := j.current.diffFrom(before); len(other) > 0 {
			s.Problems = append(s.Problems, problem+": "+listFirst(changedPaths(other)))
		}
	}
}

// runStage runs modes with their checks. After a failure only the uninstall still runs on this host.
func (j *lifecycle) runStage(name string, modes []pack.Mode, want requirement) error {
	if j.failed && modes[0] != pack.ModeUninstall {
		return nil
	}
	return j.recordStage(name, func(s *Stage) (bool, error) { return j.runModes(s, modes) }, want)
}

// recordStage runs a stage, compares the host before and after, and adds the stage to the report.
func (j *lifecycle) recordStage(name string, run func(*Stage) (bool, error), want requirement) error {
	s := Stage{Name: name, Runs: []Run{}}
	j.run++
	ok, err := run(&s)
	if err != nil {
		return fmt.Errorf("%s: %w", name, err)
	}
	before := j.current
	if j.current, err = j.takeSnapshot(before); err != nil {
		return fmt.Errorf("%s: %w", name, err)
	}
	s.Changes = j.current.diffFrom(before)
	if s.Calls, err = j.readNewCalls(); err != nil {
		return fmt.Errorf("%s: %w", name, err)
	}
	if !ok {
		j.failed = true
	} else if want != nil {
		want(&s)
	}
	s.Passed = ok && len(s.Problems) == 0
	j.report.Stages = append(j.report.Stages, s)
	return nil
}

// runModes runs each mode and its check, as the operator's pods do, then the interrupt, and after it post-interrupt
// unless it is an uninstall.
func (j *lifecycle) runModes(s *Stage, modes []pack.Mode) (bool, error) {
	for _, m := range modes {
		if ok, err := j.runPod(s, m); err != nil || !ok {
			return false, err
		}
	}
	if j.Spec.Interrupt == nil {
		return true, nil
	}
	if ok, err := j.runInterrupt(s); err != nil || !ok || modes[0] == pack.ModeUninstall {
		return ok, err
	}
	return j.runPod(s, pack.ModePostInterrupt)
}

// readNewCalls returns the calls of systemctl since the last time.
func (j *lifecycle) readNewCalls() ([]string, error) {
	raw, err := readBounded(j.root.Open(stateDir + "/calls"))
	if err != nil {
		return nil, fmt.Errorf("reading the calls of systemctl: %w", err)
	}
	all := strings.Split(strings.TrimRight(string(raw), "\n"), "\n")
	if all[0] == "" {
		all = nil
	}
	out := all[min(j.calls, len(all)):]
	j.calls = len(all)
	return out, nil
}

func changedPaths(changes []Change) []string {
	var out []string
	for _, c := range changes {
		out = append(out, c.Path)
	}
	return out
}

// listFirst joins the first words and counts the rest.
func listFirst(words []string) string {
	const most = 10
	if len(words) <= most {
		return strings.Join(words, ", ")
	}
	return fmt.Sprintf("%s and %d more", strings.Join(words[:most], ", "), len(words)-most)
}
