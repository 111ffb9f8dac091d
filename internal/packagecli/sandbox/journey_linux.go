// SPDX-FileCopyrightText: The Skyhook authors
// SPDX-License-Identifier: Apache-2.0

package sandbox

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"github.com/skyhook-k8s/skyhook/internal/pack"
)

// journey is a package's life on one host.
type journey struct {
	Order
	*host
	report        *Report
	pristine, now snapshot
	calls         int  // of systemctl, told of before
	broken        bool // nothing more can be learned

	pkg        Version
	config     map[string]string
	generation int // of the Skyhook
	run        int // of the package: its admission
	pods       int
}

// The modes of the parts of a life. The check comes after each.
var (
	installs   = []pack.Mode{pack.ModeApply, pack.ModeConfig}
	configures = []pack.Mode{pack.ModeConfig}
	upgrades   = []pack.Mode{pack.ModeUpgrade, pack.ModeConfig}
	uninstalls = []pack.Mode{pack.ModeUninstall}
)

// journeys takes the package through a new host, and from an older version through another one.
func (o Order) journeys() (Report, error) {
	r := Report{Package: o.Package.Name, Version: o.Package.Version, Host: o.where(), Stages: []Stage{}}
	settings, err := readSettings()
	if err != nil {
		return r, err
	}
	fresh, err := o.begin("new", settings, &r)
	if err != nil {
		return r, err
	}
	installed, err := fresh.fromNew()
	if err != nil {
		return r, err
	}
	if o.Older != nil {
		j, err := o.begin("upgraded", settings, &r)
		if err != nil {
			return r, err
		}
		if err := j.fromOlder(installed); err != nil {
			return r, err
		}
	}
	r.Notes = append(r.Notes, o.untried()...)
	r.Passed = true
	for _, s := range r.Stages {
		r.Passed = r.Passed && s.Passed
	}
	return r, nil
}

func (o Order) where() string {
	if o.Root != "" {
		return "a copy of " + o.Root
	}
	return "a host like " + o.Like
}

// untried says which parts of the package a trial like this one does not reach.
func (o Order) untried() []string {
	config, _ := pack.Load(os.DirFS(o.Package.Dir), pack.ModeApply, pack.Want{})
	var out []string
	if o.Spec.Interrupt == nil && len(config.Steps(pack.ModePostInterrupt))+len(config.Steps(pack.ModePostInterruptCheck)) > 0 {
		out = append(out, "post-interrupt was not tried: name an interrupt in "+SpecFile+", or with --interrupt")
	}
	if o.Older == nil && len(config.Steps(pack.ModeUpgrade))+len(config.Steps(pack.ModeUpgradeCheck)) > 0 {
		out = append(out, "upgrade was not tried: name an older version with --upgrade-from")
	}
	if len(o.Spec.Change) == 0 && len(config.Steps(pack.ModeConfig)) > 0 {
		out = append(out, "a change of the config was not tried: name one in "+SpecFile)
	}
	return out
}

func (o Order) begin(name string, settings map[string]string, r *Report) (*journey, error) {
	h, err := o.newHost(filepath.Join(o.Work, name), settings)
	if err != nil {
		return nil, err
	}
	j := &journey{Order: o, host: h, report: r, pkg: o.Package, config: o.Spec.Config, generation: 1}
	if j.pristine, err = h.look(nil); err != nil {
		return nil, err
	}
	j.now = j.pristine
	return j, nil
}

// fromNew is the life of a package that comes to a host, changes its config and goes. It returns the host as it is after
// the install.
func (j *journey) fromNew() (snapshot, error) {
	defer j.close()
	if err := j.stage("install", installs, nil); err != nil {
		return nil, err
	}
	installed := j.now
	if err := j.stage("install again", installs, j.unchanged("doing it again changed something")); err != nil {
		return nil, err
	}
	if len(j.Spec.Change) > 0 {
		j.config, j.generation = j.Spec.changed(), 2
		if err := j.stage("config change", configures, nil); err != nil {
			return nil, err
		}
		if err := j.stage("config change again", configures, j.unchanged("doing it again changed something")); err != nil {
			return nil, err
		}
		j.config, j.generation = j.Spec.Config, 3
		back := j.as(installed, "the host is not what it was with this config before")
		if err := j.stage("config back", configures, back); err != nil {
			return nil, err
		}
	}
	return installed, j.leave()
}

// fromOlder is the life of a package that comes in an older version. installed is how a host is that got the newer one
// at once.
func (j *journey) fromOlder(installed snapshot) error {
	defer j.close()
	j.pkg = *j.Older
	if err := j.stage("install "+j.pkg.Version, installs, nil); err != nil {
		return err
	}
	j.pkg, j.generation = j.Package, 2
	if err := j.stage("upgrade to "+j.pkg.Version, upgrades, nil); err != nil {
		return err
	}
	if !j.broken {
		if other := paths(j.now.since(installed)); len(other) > 0 {
			j.report.Notes = append(j.report.Notes, "an upgraded host differs from a new one in "+some(other))
		}
	}
	if err := j.stage("install "+j.pkg.Version+" again", installs, nil); err != nil {
		return err
	}
	return j.leave()
}

// leave uninstalls the package, and then once more: an uninstall has to cope with what is not there.
func (j *journey) leave() error {
	gone := j.as(j.pristine, "the uninstall left something")
	if err := j.stage("uninstall", uninstalls, gone); err != nil {
		return err
	}
	return j.stage("uninstall again", uninstalls, j.unchanged("doing it again changed something"))
}

// A demand looks at a stage that went well and notes what is wrong all the same.
type demand func(s *Stage)

// unchanged demands that the stage changed nothing.
func (j *journey) unchanged(problem string) demand {
	return func(s *Stage) {
		if len(s.Changes) > 0 {
			s.Problems = append(s.Problems, problem+": "+some(paths(s.Changes)))
		}
	}
}

// as demands that the host is as it was at some time.
func (j *journey) as(before snapshot, problem string) demand {
	return func(s *Stage) {
		if other := j.now.since(before); len(other) > 0 {
			s.Problems = append(s.Problems, problem+": "+some(paths(other)))
		}
	}
}

// stage runs modes with their checks and compares the host before and after. After a failure nothing more is run on this
// host, except for the uninstall, which has to cope with it.
func (j *journey) stage(name string, modes []pack.Mode, want demand) error {
	if j.broken && modes[0] != pack.ModeUninstall {
		return nil
	}
	s := Stage{Name: name, Runs: []Run{}}
	j.run++
	ok, err := j.modes(&s, modes)
	if err != nil {
		return fmt.Errorf("%s: %w", name, err)
	}
	before := j.now
	if j.now, err = j.look(before); err != nil {
		return fmt.Errorf("%s: %w", name, err)
	}
	s.Changes = j.now.since(before)
	if s.Calls, err = j.newCalls(); err != nil {
		return fmt.Errorf("%s: %w", name, err)
	}
	if !ok {
		j.broken = true
	} else if want != nil {
		want(&s)
	}
	s.Passed = ok && len(s.Problems) == 0
	j.report.Stages = append(j.report.Stages, s)
	return nil
}

// modes runs each mode and its check, as the pods of the operator do, and then the interrupt. Nothing comes after that of
// an uninstall.
func (j *journey) modes(s *Stage, modes []pack.Mode) (bool, error) {
	for _, m := range modes {
		if ok, err := j.pod(s, m); err != nil || !ok {
			return false, err
		}
	}
	if j.Spec.Interrupt == nil {
		return true, nil
	}
	if ok, err := j.interrupt(s); err != nil || !ok || modes[0] == pack.ModeUninstall {
		return ok, err
	}
	return j.pod(s, pack.ModePostInterrupt)
}

// newCalls are the calls of systemctl since the last time.
func (j *journey) newCalls() ([]string, error) {
	raw, err := j.root.ReadFile(stateDir + "/calls")
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

func paths(changes []Change) []string {
	var out []string
	for _, c := range changes {
		out = append(out, c.Path)
	}
	return out
}

// some lists the first of many words.
func some(words []string) string {
	const most = 10
	if len(words) <= most {
		return strings.Join(words, ", ")
	}
	return fmt.Sprintf("%s and %d more", strings.Join(words[:most], ", "), len(words)-most)
}
