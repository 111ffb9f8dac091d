// SPDX-FileCopyrightText: The Skyhook authors
// SPDX-License-Identifier: Apache-2.0

package pack

import (
	"fmt"
	"maps"
	"path"
	"regexp"
	"slices"
	"strings"
	"sync"
)

// findings collects problems of one file.
type findings struct {
	file     string
	problems Problems
}

func (f *findings) fail(rule, at, message, fix string) { f.add(Error, rule, at, message, fix) }

func (f *findings) warn(rule, at, message, fix string) { f.add(Warning, rule, at, message, fix) }

func (f *findings) add(s Severity, rule, at, message, fix string) {
	f.problems = append(f.problems, Problem{Severity: s, Rule: rule, File: f.file, Path: at, Message: message, Fix: fix})
}

// checkRules reports what a schema cannot say. root is the document itself, to
// tell what is absent from what the schema has refused.
func checkRules(c Config, root map[string]any, found *findings) {
	checkRootKeys(c, found)
	expected, _ := root["expected_config_files"].([]any)
	checkExpected(expected, found)
	if wrong, fix := c.Privileges.FindProblem(); wrong != "" {
		found.fail("privileges", "$.privileges", wrong, fix)
	}
	written, isObject := root["modes"].(map[string]any)
	if !isObject {
		return
	}
	checkModes(c, written, found)
	checked := checkedFiles(c)
	for _, m := range modes {
		checkMode(c, m, checked, found)
	}
}

// harmlessKeys are root keys outside the schema that are written on purpose.
var harmlessKeys = []string{"$schema", "root_dir"}

func checkRootKeys(c Config, found *findings) {
	known := slices.Sorted(maps.Keys(rootKeys))
	for key := range c.Extra {
		if slices.Contains(harmlessKeys, key) {
			continue
		}
		found.warn("unknown-root-key", "$"+pathMember(key),
			fmt.Sprintf("the key %s is not known%s; it has no effect", quoteValue(key), SuggestWord(key, known)), "remove it, or use one of "+joinWords(known))
	}
}

func checkExpected(files []any, found *findings) {
	seen := map[string]bool{}
	for i, file := range files {
		at := fmt.Sprintf("$.expected_config_files[%d]", i)
		name, isString := file.(string)
		switch {
		case !isString: // the schema says so
		case name == "" || name == "." || name == ".." || strings.ContainsAny(name, "/\x00") || len(name) > 253:
			found.fail("config-file-name", at, quoteValue(name)+" is not the name of a file in "+ConfigMapDir, "name a key of the configMap; keys have no folders")
		case seen[name]:
			found.warn("config-file-name", at, quoteValue(name)+" is there more than once", "remove one")
		}
		seen[name] = true
	}
}

// checkModes is about the modes as a whole.
func checkModes(c Config, written map[string]any, found *findings) {
	steps, actions := 0, 0
	for key := range written {
		m, known := ParseMode(key)
		if known && m.HasSteps() {
			_, isList := written[key].([]any)
			if !isList || len(c.Modes[m]) > 0 {
				steps++
			}
			if m.HasCheck() {
				actions++
			}
		}
	}
	if steps == 0 {
		found.fail("no-steps", "$.modes", "no mode has a step, so the package does nothing", "add a step to apply or config, and its check")
	}
	if actions == 0 && steps > 0 {
		found.fail("no-action", "$.modes", "there are only modes that look", "add one of uninstall, upgrade, apply, config and post-interrupt; an empty list will do")
	}
	if _, there := written[string(ModeInterrupt)]; there {
		found.warn("mode-interrupt", "$.modes.interrupt", "interrupts have no steps, so this has no effect", "move its steps to post-interrupt, and name the interrupt in the Skyhook")
	}
	for _, m := range modes {
		if !m.HasCheck() || len(c.Modes[m]) == 0 {
			continue
		}
		value, there := written[string(m.Check())]
		if _, isList := value.([]any); there && !isList {
			continue // the schema says so
		}
		if len(c.Modes[m.Check()]) == 0 {
			found.fail("missing-check", "$.modes"+pathMember(string(m)), fmt.Sprintf("%s has steps, but %s has none", m, m.Check()), fmt.Sprintf("add a step to %s that looks whether %s did its work", m.Check(), m))
		}
	}
}

// checkMode is about the steps of one mode.
func checkMode(c Config, m Mode, checked map[Mode]map[string]bool, found *findings) {
	titles, keys := map[string]int{}, map[string]int{}
	for i, s := range c.Modes[m] {
		at := fmt.Sprintf("$.modes%s[%d]", pathMember(string(m)), i)
		if s.Path == "" {
			continue // the schema says so
		}
		good := checkPath(s, at, found)
		checkArguments(s, m, at, found)
		checkEnv(s, at, found)
		checkCodes(s, at, found)
		checkTimeout(s, at, found)
		if !s.OnHost {
			found.warn("on-host", at+".on_host", "false has no effect: the step runs on the host like any other", `write "on_host": true`)
		}
		if first, twice := titles[s.Name]; twice && s.Name != "" {
			found.warn("duplicate-name", at+".name", fmt.Sprintf("step %d of %s has the same name %s", first+1, m, quoteValue(s.Name)), "give each step of a mode its own name")
		} else {
			titles[s.Name] = i
		}
		key := fmt.Sprintf("%q %q %q", s.File(), s.Arguments, s.Env)
		if first, twice := keys[key]; twice {
			found.warn("duplicate-step", at, fmt.Sprintf("step %d of %s runs the same file with the same arguments", first+1, m), "remove one, or tell them apart by an argument")
		} else {
			keys[key] = i
		}
		if good && m.HasCheck() && len(c.Modes[m.Check()]) > 0 && !hasCompanion(checked, m, s) {
			found.warn("companion-check", at+".path", fmt.Sprintf("no check runs %s", quoteValue(checkFileName(s.File()))), fmt.Sprintf("add it to %s", m.Check()))
		}
	}
}

// checkPath says whether the step's path can be looked up.
func checkPath(s Step, at string, found *findings) bool {
	problem, fix := checkPathForm(s.Path)
	if problem != "" {
		found.fail("step-path", at+".path", problem, fix)
	}
	return problem == ""
}

// checkPathForm says why a path does not name a file below StepDir, and what to do.
func checkPathForm(p string) (problem, fix string) {
	switch {
	case strings.ContainsRune(p, 0):
		return "it has a NUL character", "name a file below " + StepDir
	case path.IsAbs(p):
		return quoteValue(p) + " is an absolute path", fmt.Sprintf("name the file relative to %s, such as %s", StepDir, quoteValue(strings.TrimLeft(p, "/")))
	case slices.Contains(strings.Split(p, "/"), ".."):
		return quoteValue(p) + " has .. in it", "name a file below " + StepDir + " without .."
	case path.Clean(p) == "." || strings.HasSuffix(p, "/"):
		return quoteValue(p) + " is a folder", "name a file in it"
	}
	return "", ""
}

var variable = sync.OnceValue(func() *regexp.Regexp { return regexp.MustCompile(`^[A-Za-z_][A-Za-z0-9_]*$`) })

func checkArguments(s Step, m Mode, at string, found *findings) {
	for i, arg := range s.Arguments {
		at := fmt.Sprintf("%s.arguments[%d]", at, i)
		name, fromEnv := strings.CutPrefix(arg, EnvArgument)
		switch {
		case strings.ContainsRune(arg, 0):
			found.fail("env-argument", at, "it has a NUL character, which no argument can have", "remove it")
		case fromEnv && name == "":
			found.fail("env-argument", at, `"env:" names no variable`, "write env:NAME")
		case fromEnv && !variable().MatchString(name):
			found.warn("env-argument", at, fmt.Sprintf("%s is an unusual name for a variable", quoteValue(name)), "env:NAME is replaced as a whole; to join texts, use the step's env or the script")
		}
	}
	if !s.UpgradeStep {
		return
	}
	if !m.Upgrades() {
		found.fail("upgrade-step", at+".upgrade_step", fmt.Sprintf("%s is not upgrade or upgrade-check, so there are no versions to pass", m), `write "upgrade_step": false`)
	}
	if len(s.Arguments) > 0 {
		found.fail("upgrade-step", at+".arguments", "an upgrade_step gets the previous and the current version as its arguments and takes no others", `write "arguments": [], or "upgrade_step": false and read PREVIOUS_VERSION and CURRENT_VERSION`)
	}
}

// reserved are variables that the agent sets for every step.
var reserved = []string{EnvStepRoot, EnvSkyhookDir, EnvPreviousVersion, EnvCurrentVersion, EnvAnswer}

func checkEnv(s Step, at string, found *findings) {
	for name, value := range s.Env {
		at := at + ".env" + pathMember(name)
		switch {
		case name == "" || strings.ContainsAny(name, "=\x00"):
			found.fail("env-name", at, quoteValue(name)+" is not the name of a variable", "use letters, digits and _")
		case strings.ContainsRune(value, 0):
			found.fail("env-name", at, "its value has a NUL character, which no variable can have", "remove it")
		case slices.Contains(reserved, name):
			found.warn("env-reserved", at, name+" is set by the agent; this value has no effect", "remove it, or use another name")
		}
	}
}

func checkCodes(s Step, at string, found *findings) {
	for i, code := range s.ReturnCodes {
		if code != int(int32(code)) {
			continue // the schema says so
		}
		if code < 0 || code > 255 {
			found.warn("return-codes", fmt.Sprintf("%s.returncodes[%d]", at, i), fmt.Sprintf("no program exits with %d", code), "use exit codes from 0 to 255")
		}
	}
}

func checkTimeout(s Step, at string, found *findings) {
	if s.Timeout < 0 {
		found.fail("timeout", at+".timeout", "it is shorter than a millisecond or longer than 292 years", forms["timeout"].fix)
	}
}

// checkFileName is where the check of a step is by convention: dir/foo_check.sh
// for dir/foo.sh.
func checkFileName(file string) string {
	ext := path.Ext(path.Base(file))
	return strings.TrimSuffix(file, ext) + "_check" + ext
}

// checkedFiles are the files that each check runs.
func checkedFiles(c Config) map[Mode]map[string]bool {
	checked := map[Mode]map[string]bool{}
	for _, m := range modes {
		if !m.IsCheck() {
			continue
		}
		checked[m] = map[string]bool{}
		for _, s := range c.Modes[m] {
			checked[m][s.File()] = true
		}
	}
	return checked
}

// hasCompanion says whether some check runs the step's companion, or the
// mode's own check runs the same file.
func hasCompanion(checked map[Mode]map[string]bool, m Mode, s Step) bool {
	want := checkFileName(s.File())
	for _, files := range checked {
		if files[want] {
			return true
		}
	}
	return checked[m.Check()][s.File()]
}
