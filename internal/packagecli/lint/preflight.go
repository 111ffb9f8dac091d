// SPDX-FileCopyrightText: The Skyhook authors
// SPDX-License-Identifier: Apache-2.0

package lint

import (
	"bytes"
	"cmp"
	"io/fs"
	"path"
	"slices"
	"strings"

	"mvdan.cc/sh/v3/syntax"

	"github.com/skyhook-k8s/skyhook/internal/pack"
)

// checkAnswer reports a preflight in which no file of the package can give an answer.
func checkAnswer(pkg fs.FS, c pack.Config) pack.Problems {
	if len(c.Steps(pack.ModePreflight)) == 0 {
		return nil
	}
	mayAnswer := false
	// Unreadable files are reported by the rules of the package format.
	_ = fs.WalkDir(pkg, pack.StepDir, func(name string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return nil //nolint:nilerr // see above
		}
		if info, err := fs.Stat(pkg, name); err == nil && info.Size() > maxScript {
			mayAnswer = true // a program
			return fs.SkipAll
		}
		content, err := fs.ReadFile(pkg, name)
		if err == nil && bytes.Contains(content, []byte(pack.EnvAnswer)) {
			mayAnswer = true
			return fs.SkipAll
		}
		return nil
	})
	if mayAnswer {
		return nil
	}
	return pack.Problems{{
		Severity: pack.Error, Rule: "no-answer", File: pack.ConfigFile, Path: "$.modes.preflight",
		Message: "no step gives an answer", Fix: `append a line such as "none: REASON" or "reboot: REASON" to the file "$` + pack.EnvAnswer + `"`,
	}}
}

// checkPreflight warns of what changes the host in a step that may only look. A path that begins with an unknown variable is left alone.
func (s *script) checkPreflight(file *syntax.File) {
	known := findConstants(file)
	syntax.Walk(file, func(n syntax.Node) bool {
		switch n := n.(type) {
		case *syntax.Redirect:
			if to := begin(n.Word, known); slices.Contains(writingRedirects, n.Op) && isOnHost(to) {
				s.warnOfWrite(n, n.Op.String()+" "+to)
			}
		case *syntax.CallExpr:
			if len(n.Args) == 0 {
				return true
			}
			if what := describeChange(n, known); what != "" {
				s.warnOfWrite(n, what)
			}
		}
		return true
	})
}

func (s *script) warnOfWrite(at syntax.Node, what string) {
	s.warn("preflight-writes", at, what+" changes the host, and a preflight can only look",
		`leave that to apply or config, and append an answer to "$`+pack.EnvAnswer+`"`)
}

var writingRedirects = []syntax.RedirOperator{syntax.RdrOut, syntax.AppOut, syntax.RdrInOut, syntax.RdrClob, syntax.RdrAll, syntax.AppAll}

// isOnHost reports whether a path is one of the host that a preflight cannot write.
func isOnHost(at string) bool {
	return path.IsAbs(at) && !strings.HasPrefix(at, "/tmp/") && !strings.HasPrefix(at, "/dev/")
}

// findConstants returns the variables that a script assigns once, with how their value begins.
func findConstants(file *syntax.File) map[string]string {
	known, assigned := map[string]string{}, map[string]int{}
	syntax.Walk(file, func(n syntax.Node) bool {
		if a, ok := n.(*syntax.Assign); ok && a.Name != nil && a.Value != nil {
			assigned[a.Name.Value]++
			known[a.Name.Value] = begin(a.Value, nil)
		}
		return true
	})
	for name, n := range assigned {
		if n > 1 {
			delete(known, name)
		}
	}
	return known
}

// begin returns how a word begins, up to its first expansion that is not known.
func begin(w *syntax.Word, known map[string]string) string {
	if w == nil {
		return ""
	}
	out := ""
	for _, part := range flatten(w.Parts) {
		text, isWhole := "", false
		switch p := part.(type) {
		case *syntax.Lit:
			text, isWhole = p.Value, true
		case *syntax.SglQuoted:
			text, isWhole = p.Value, true
		case *syntax.ParamExp:
			if p.Param != nil && p.Exp == nil {
				text = known[p.Param.Value]
			}
		}
		if out += text; !isWhole {
			break
		}
	}
	return out
}

// flatten returns the parts of a word without double quotes.
func flatten(parts []syntax.WordPart) (out []syntax.WordPart) {
	for _, part := range parts {
		if q, ok := part.(*syntax.DblQuoted); ok {
			out = append(out, q.Parts...)
		} else {
			out = append(out, part)
		}
	}
	return out
}

// Programs that write to all paths of their command line, and to the last one.
var (
	writesAll  = strings.Fields("chgrp chmod chown mkdir mv rm rmdir shred tee touch truncate unlink")
	writesLast = strings.Fields("cp install ln rsync")
)

// verbsThatChange are the verbs of programs that otherwise look.
var verbsThatChange = map[string][]string{
	"systemctl": strings.Fields("start stop restart try-restart reload reload-or-restart kill enable disable reenable mask unmask preset " +
		"daemon-reload daemon-reexec reset-failed set-property set-default isolate edit revert link"),
	"service": strings.Fields("start stop restart reload force-reload"),
	"apt-get": strings.Fields("install remove purge upgrade dist-upgrade full-upgrade autoremove update"),
	"dnf":     strings.Fields("install remove erase update upgrade downgrade swap"),
	"zypper":  strings.Fields("install in remove rm update up patch dup"),
	"dpkg":    strings.Fields("-i --install -r --remove -P --purge --configure"),
	"rpm":     strings.Fields("-i -U -Uvh -ivh -e --install --upgrade --erase"),
	"sysctl":  strings.Fields("-w --write -p --load --system"),
}

// sameVerbs are programs with the verbs of another one.
var sameVerbs = map[string]string{"apt": "apt-get", "aptitude": "apt-get", "yum": "dnf"}

// alwaysChange are programs that do nothing else.
var alwaysChange = strings.Fields("groupadd groupdel groupmod insmod modprobe rmmod swapoff umount update-grub update-initramfs useradd userdel usermod")

// describeChange returns what a command changes on the host, as far as its words tell; empty if nothing.
func describeChange(call *syntax.CallExpr, known map[string]string) string {
	words := literals(call.Args)
	program, rest := path.Base(words[0]), words[1:]
	verbs := verbsThatChange[cmp.Or(sameVerbs[program], program)]
	isVerb := func(w string) bool {
		return slices.Contains(verbs, w) || program == "sysctl" && strings.Contains(w, "=")
	}
	if slices.Contains(alwaysChange, program) {
		return program
	}
	if i := slices.IndexFunc(rest, isVerb); i >= 0 {
		return program + " " + rest[i]
	}
	for _, w := range findTargets(program, call.Args[1:]) {
		if to := begin(w, known); isOnHost(to) {
			return program + " " + to
		}
	}
	return ""
}

// findTargets returns the words of a command line that may name what the program writes to.
func findTargets(program string, args []*syntax.Word) []*syntax.Word {
	switch {
	case slices.Contains(writesAll, program):
		return args
	case slices.Contains(writesLast, program):
		return args[max(0, len(args)-1):]
	case program == "sed" && slices.ContainsFunc(literals(args), func(w string) bool { return strings.HasPrefix(w, "-i") || w == "--in-place" }):
		return args
	}
	return nil
}
