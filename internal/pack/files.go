// SPDX-FileCopyrightText: The Skyhook authors
// SPDX-License-Identifier: Apache-2.0

package pack

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"path"
	"slices"
	"strings"
)

// fileChecks says how a step's file is checked. An empty severity skips a check.
type fileChecks struct {
	content    Severity // of a file that cannot be started
	executable Severity // of a missing executable bit
	wholeFile  bool     // check more than the first line
}

// checkFiles checks the file of every step.
func checkFiles(pkg fs.FS, c Config, look func(Mode) fileChecks, found *findings) {
	if !hasSteps(c) {
		return
	}
	if _, err := fs.Stat(pkg, StepDir); errors.Is(err, fs.ErrNotExist) {
		found.problems = append(found.problems, Problem{Severity: Error, Rule: "missing-file", File: StepDir, Message: "it does not exist, so no step can run",
			Fix: "put the step files there; if they come with the base image, validate the built image"})
		return
	}
	closest := map[string]fileChecks{}
	for _, m := range modes {
		if !m.HasSteps() {
			continue
		}
		for i, s := range c.Modes[m] {
			at := fmt.Sprintf("$.modes%s[%d].path", pathMember(string(m)), i)
			file, ok := resolveStep(pkg, s, at, found)
			if !ok {
				continue
			}
			seen := closest[file]
			l := look(m)
			closest[file] = fileChecks{
				content: moreSevere(seen.content, l.content), executable: moreSevere(seen.executable, l.executable),
				wholeFile: seen.wholeFile || l.wholeFile,
			}
		}
	}
	for file, l := range closest {
		if l.content != "" {
			checkStart(pkg, file, l, found)
		}
	}
}

func moreSevere(a, b Severity) Severity {
	if a == Error || b == Error {
		return Error
	}
	return max(a, b)
}

func hasSteps(c Config) bool {
	for _, steps := range c.Modes {
		if len(steps) > 0 {
			return true
		}
	}
	return false
}

// resolveStep returns the regular file that a step runs, following links.
func resolveStep(pkg fs.FS, s Step, at string, found *findings) (string, bool) {
	if problem, _ := checkPathForm(s.Path); problem != "" || !fs.ValidPath(s.File()) {
		return "", false // reported already
	}
	name := path.Join(StepDir, s.File())
	file, err := resolveLinks(pkg, name)
	var leaves *leavesError
	switch {
	case errors.As(err, &leaves):
		found.fail("link-leaves", at, fmt.Sprintf("%s is a link that leaves the package: %s", name, leaves.reason), "put the file itself into the package")
		return "", false
	case errors.Is(err, fs.ErrNotExist):
		found.fail("missing-file", at, name+" does not exist"+suggestFile(pkg, name), "add the file, or correct the path")
		return "", false
	case err != nil:
		found.fail("unreadable", at, fmt.Sprintf("%s could not be looked up: %v", name, err), "")
		return "", false
	}
	info, err := fs.Stat(pkg, file)
	switch {
	case err != nil:
		found.fail("unreadable", at, fmt.Sprintf("%s could not be looked up: %v", name, err), "")
		return "", false
	case info.IsDir():
		found.fail("not-regular", at, name+" is a folder", "name a file in it")
		return "", false
	case !info.Mode().IsRegular():
		found.fail("not-regular", at, name+" is not a regular file", "put a script or program there")
		return "", false
	}
	return file, true
}

// suggestFile returns a clause that names a file with a similar name, or "".
func suggestFile(pkg fs.FS, name string) string {
	entries, err := fs.ReadDir(pkg, path.Dir(name))
	if err != nil {
		return ""
	}
	var there []string
	for _, e := range entries {
		there = append(there, e.Name())
	}
	return SuggestWord(path.Base(name), there)
}

// leavesError reports a link that leads out of the package.
type leavesError struct{ reason string }

func (e *leavesError) Error() string { return e.reason }

// resolveLinks resolves the links in name one component at a time, inside pkg.
func resolveLinks(pkg fs.FS, name string) (string, error) {
	const mostLinks = 40
	done, rest := ".", strings.Split(name, "/")
	for links := 0; len(rest) > 0; {
		part := rest[0]
		rest = rest[1:]
		switch part {
		case "", ".":
			continue
		case "..":
			if done == "." {
				return "", &leavesError{reason: "it points above the package"}
			}
			done = path.Dir(done)
			continue
		}
		next := path.Join(done, part)
		info, err := fs.Lstat(pkg, next)
		if err != nil {
			return "", err
		}
		if info.Mode()&fs.ModeSymlink == 0 {
			done = next
			continue
		}
		if links++; links > mostLinks {
			return "", fmt.Errorf("%s has too many links", name)
		}
		target, err := fs.ReadLink(pkg, next)
		if err != nil {
			return "", err
		}
		if path.IsAbs(target) {
			return "", &leavesError{reason: fmt.Sprintf("it points to %s", quoteValue(target))}
		}
		rest = append(strings.Split(target, "/"), rest...)
	}
	return done, nil
}

// checkStart checks whether the kernel could start the file.
func checkStart(pkg fs.FS, file string, l fileChecks, found *findings) {
	in := &findings{file: file}
	defer func() { found.problems = append(found.problems, in.problems...) }()
	most := int64(4096)
	if l.wholeFile {
		most = 1 << 20
	}
	content, err := readAtMost(pkg, file, most)
	if err != nil {
		in.fail("unreadable", "", "it could not be read: "+err.Error(), "")
		return
	}
	if info, err := fs.Stat(pkg, file); err == nil && info.Mode().Perm()&0o111 == 0 && l.executable != "" {
		in.add(l.executable, "not-executable", "", "it is not executable", "chmod +x "+file)
	}
	if bytes.HasPrefix(content, []byte("\x7fELF")) {
		return
	}
	if rule, message, fix := checkInterpreter(file, content); rule != "" {
		in.add(l.content, rule, "", message, fix)
		return
	}
	if l.wholeFile && bytes.Contains(content, []byte("\r\n")) {
		in.warn("crlf", "", "it has Windows line ends (CRLF), which most interpreters take as part of the text", "convert it with: sed -i 's/\\r$//' "+file)
	}
}

// checkInterpreter says what is wrong with the first line of a script, and how to
// correct it. The rule is empty when it is good.
func checkInterpreter(file string, content []byte) (rule, message, fix string) {
	const example = "start the file with #!/bin/bash or another interpreter of the host"
	line, _, _ := bytes.Cut(content, []byte("\n"))
	rest, ok := bytes.CutPrefix(line, []byte("#!"))
	switch {
	case len(content) == 0:
		return "shebang", "it is empty, so it cannot be started", example
	case bytes.HasPrefix(content, []byte("\xef\xbb\xbf")):
		return "shebang", "it starts with a byte order mark, so it cannot be started", "save it as UTF-8 without a byte order mark"
	case !ok:
		return "shebang", "its first line does not name an interpreter, so it cannot be started", example
	case bytes.HasSuffix(line, []byte("\r")):
		return "crlf", "its first line ends with CRLF, so its interpreter is not found", "convert it with: sed -i 's/\\r$//' " + file
	case len(line) > 255:
		return "shebang", "its first line is longer than 255 bytes, so the kernel cuts it", example
	}
	words := strings.Fields(string(rest))
	switch {
	case len(words) == 0:
		return "shebang", "its first line does not name an interpreter, so it cannot be started", example
	case !path.IsAbs(words[0]):
		return "shebang", fmt.Sprintf("its interpreter %s is not an absolute path", quoteValue(words[0])), example
	case words[0] == ImageDir || strings.HasPrefix(words[0], ImageDir+"/"):
		return "shebang", fmt.Sprintf("its interpreter %s is in the package image, but steps run on the host", quoteValue(words[0])), example
	case path.Base(words[0]) != "env":
		return "", "", ""
	case len(words) == 1:
		return "shebang", "its first line runs env without a program", "write #!/usr/bin/env bash, or name the interpreter itself"
	case len(words) > 2 && !strings.HasPrefix(words[1], "-S") && !strings.HasPrefix(words[1], "--split-string"):
		return "shebang", fmt.Sprintf("env gets %s as one word, so the interpreter is not found", quoteValue(strings.Join(words[1:], " "))), "write #!/usr/bin/env -S, or set options inside the script"
	}
	return "", "", ""
}

// checkTree checks shell scripts that no step names but that steps may call.
func checkTree(pkg fs.FS, c Config, found *findings) {
	steps := map[string]bool{}
	for _, list := range c.Modes {
		for _, s := range list {
			steps[path.Join(StepDir, s.File())] = true
		}
	}
	if info, err := fs.Stat(pkg, OverlayDir); err == nil && !info.IsDir() {
		found.problems = append(found.problems, Problem{Severity: Error, Rule: "not-regular", File: OverlayDir, Message: "it is not a folder", Fix: "put the files for the host's root below it"})
	}
	checkOverlay(pkg, c.Privileges, found)
	err := fs.WalkDir(pkg, ".", func(name string, d fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return err
		case d.IsDir() && name != "." && (strings.HasPrefix(d.Name(), ".") || name == OverlayDir || name == ConfigMapDir):
			return fs.SkipDir
		case !d.Type().IsRegular() || !strings.HasSuffix(name, ".sh") || steps[name]:
			return nil
		}
		info, err := d.Info()
		if err != nil {
			return err
		}
		if info.Mode().Perm()&0o111 == 0 {
			found.problems = append(found.problems, Problem{Severity: Warning, Rule: "not-executable", File: name, Message: "it is not executable; the agent sets that for step files only", Fix: "chmod +x " + name})
		}
		return nil
	})
	if err != nil {
		found.warn("unreadable", "", "not all files of the package could be looked at: "+err.Error(), "")
	}
}

// checkOverlay reports the files for the host's root that may not be written there.
func checkOverlay(pkg fs.FS, p Privileges, found *findings) {
	if p.IsFull() {
		return
	}
	_ = fs.WalkDir(pkg, OverlayDir, func(name string, d fs.DirEntry, err error) error {
		at := strings.TrimPrefix(name, OverlayDir)
		mayWrite := slices.ContainsFunc(p.Dirs(), func(dir string) bool { return strings.HasPrefix(at, dir+"/") })
		if err == nil && !d.IsDir() && !mayWrite {
			found.problems = append(found.problems, Problem{
				Severity: Error, Rule: "privileges", File: name, Message: "it is laid over " + at + ", which privileges do not name", Fix: "add " + path.Dir(at) + " to privileges",
			})
		}
		return nil
	})
}
