// SPDX-FileCopyrightText: The Skyhook authors
// SPDX-License-Identifier: Apache-2.0

package lint

import (
	"path"
	"slices"
	"strings"

	"mvdan.cc/sh/v3/syntax"

	"github.com/skyhook-k8s/skyhook/internal/pack"
)

// checkHabits warns of commands that often go wrong on hosts.
func (s *script) checkHabits(file *syntax.File) {
	errexit := strings.Contains(firstLine(s.text), " -e")
	mayFail := excused(file)
	syntax.Walk(file, func(n syntax.Node) bool {
		call, ok := n.(*syntax.CallExpr)
		if !ok || len(call.Args) == 0 {
			return true
		}
		words := literals(call.Args)
		if len(words) > 0 && words[0] == "set" && setsFlag(words[1:], 'e', "errexit") {
			errexit = true
		}
		s.call(call, words)
		if s.action && errexit && !mayFail[call] {
			s.ends(call, words)
		}
		return true
	})
	if s.action && !errexit && len(file.Stmts) > 1 {
		s.add(pack.Warning, "no-errexit", 0, "a command that fails in the middle goes unnoticed", "write set -eu as its first command")
	}
}

func firstLine(text string) string {
	first, _, _ := strings.Cut(text, "\n")
	return first
}

// literals returns the words of a call; a word with an expansion is empty.
func literals(args []*syntax.Word) []string {
	out := make([]string, len(args))
	for i, w := range args {
		out[i] = w.Lit()
	}
	return out
}

// setsFlag reports whether the arguments of set switch an option on.
func setsFlag(args []string, letter rune, name string) bool {
	for i, a := range args {
		if strings.HasPrefix(a, "-") && !strings.HasPrefix(a, "--") && strings.ContainsRune(a[1:], letter) {
			return true
		}
		if a == name && i > 0 && strings.HasPrefix(args[i-1], "-") && strings.HasSuffix(args[i-1], "o") {
			return true
		}
	}
	return false
}

// call checks one command.
func (s *script) call(call *syntax.CallExpr, words []string) {
	program := path.Base(words[0])
	switch program {
	case "set":
		if setsFlag(words[1:], 'x', "xtrace") {
			s.warn("traces", call, "set -x writes every value into the log, secrets too", "remove it")
		}
	case "[[", "declare", "typeset", "shopt", "source":
		if s.lang == syntax.LangPOSIX {
			s.addBashism(call.Pos().Line(), words[0])
		}
	case "sudo":
		s.warn("sudo", call, "steps run as root, and a host may have no sudo", "leave sudo out")
	case "rm":
		s.removal(call, words)
		s.unquoted(call)
	case "cp", "mv", "ln", "mkdir", "rmdir", "chmod", "chown", "install", "touch", "tee":
		s.unquoted(call)
	case "mount":
		if len(words) > 1 {
			s.warn("mount", call, "a file system mounted by a step is gone when its pod ends", "install a systemd .mount unit")
		}
	case "apt", "apt-get", "aptitude":
		s.asks(call, words, []string{"install", "remove", "purge", "upgrade", "dist-upgrade", "full-upgrade", "autoremove"},
			[]string{"-y", "--yes", "--assume-yes", "-qq", "-yq", "-qy", "-yqq", "-qqy"})
		s.upgrades(call, words)
	case "yum", "dnf", "zypper":
		s.asks(call, words, []string{"install", "remove", "erase", "update", "upgrade", "downgrade", "swap"},
			[]string{"-y", "--assumeyes", "-n", "--non-interactive", "-yq", "-qy"})
		s.upgrades(call, words)
	case "reboot", "poweroff", "halt":
		s.boots(call, program)
	case "shutdown":
		if !slices.Contains(words, "-c") {
			s.boots(call, program)
		}
	case "systemctl":
		for _, w := range words[1:] {
			if w == "reboot" || w == "poweroff" || w == "halt" || w == "kexec" {
				s.boots(call, "systemctl "+w)
			}
		}
	}
}

func (s *script) boots(call *syntax.CallExpr, what string) {
	s.warn("reboot-in-step", call, what+" ends the stage in its middle, on a node that may not be drained",
		"let the Skyhook say interrupt: {type: reboot}, and check in post-interrupt")
}

// asks warns of package managers that prompt: a step has no standard input.
func (s *script) asks(call *syntax.CallExpr, words, verbs, yes []string) {
	verb := slices.IndexFunc(words, func(w string) bool { return slices.Contains(verbs, w) })
	if verb < 0 || slices.ContainsFunc(words, func(w string) bool { return w == "" || slices.Contains(yes, w) }) {
		return // an expanded word may hold the flag
	}
	s.warn("asks", call, words[0]+" "+words[verb]+" asks before it goes on, and nobody answers", "add "+yes[0])
}

// removal warns of rm -r of a path that is / or close to it when a variable is empty.
func (s *script) removal(call *syntax.CallExpr, words []string) {
	recursive := slices.ContainsFunc(words[1:], func(w string) bool {
		return w == "--recursive" || strings.HasPrefix(w, "-") && !strings.HasPrefix(w, "--") && strings.ContainsAny(w, "rR")
	})
	if !recursive {
		return
	}
	for _, w := range call.Args[1:] {
		parts := w.Parts
		if len(parts) > 0 {
			if q, ok := parts[0].(*syntax.DblQuoted); ok {
				parts = append(slices.Clone(q.Parts), parts[1:]...)
			}
		}
		if len(parts) < 2 {
			continue
		}
		p, isParam := parts[0].(*syntax.ParamExp)
		rest, isText := parts[1].(*syntax.Lit)
		if isParam && isText && strings.HasPrefix(rest.Value, "/") && p.Exp == nil {
			s.warn("unsafe-rm", w, "rm -r of $"+p.Param.Value+"/… removes folders of the root when the variable is empty",
				"write ${"+p.Param.Value+":?}"+rest.Value)
		}
	}
}
