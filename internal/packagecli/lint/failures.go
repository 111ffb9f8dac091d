// SPDX-FileCopyrightText: The Skyhook authors
// SPDX-License-Identifier: Apache-2.0

package lint

import (
	"path"
	"slices"
	"strings"

	"mvdan.cc/sh/v3/syntax"
)

// excused are the commands whose failure does not end a script with set -e: before || and &&, after ! and in conditions.
func excused(file *syntax.File) map[*syntax.CallExpr]bool {
	out := map[*syntax.CallExpr]bool{}
	excuse := func(n syntax.Node) {
		syntax.Walk(n, func(n syntax.Node) bool {
			if call, ok := n.(*syntax.CallExpr); ok {
				out[call] = true
			}
			return true
		})
	}
	syntax.Walk(file, func(n syntax.Node) bool {
		var conditions []*syntax.Stmt
		switch n := n.(type) {
		case *syntax.BinaryCmd:
			if n.Op == syntax.OrStmt || n.Op == syntax.AndStmt {
				conditions = []*syntax.Stmt{n.X}
			}
		case *syntax.Stmt:
			if n.Negated {
				conditions = []*syntax.Stmt{n}
			}
		case *syntax.IfClause:
			conditions = n.Cond
		case *syntax.WhileClause:
			conditions = n.Cond
		}
		for _, c := range conditions {
			excuse(c)
		}
		return true
	})
	return out
}

// ends warns of commands that fail in a second attempt although nothing is wrong, for example because the file is
// gone or the service stopped already.
func (s *script) ends(call *syntax.CallExpr, words []string) {
	switch path.Base(words[0]) {
	case "rm":
		forced := slices.ContainsFunc(words[1:], func(w string) bool {
			return w == "--force" || strings.HasPrefix(w, "-") && !strings.HasPrefix(w, "--") && strings.Contains(w, "f")
		})
		if len(words) > 1 && !forced {
			s.warn("rm-without-f", call, "rm fails when the file is gone already, and a step may run twice", "write rm -f")
		}
	case "systemctl":
		if slices.Contains(words[1:], "status") {
			s.warn("status", call, "systemctl status fails when the service does not run, and that ends the script",
				"ask with systemctl is-active in an if, or leave it out")
		}
	}
}

// upgrades warns of commands that change more of a host than the package is for.
func (s *script) upgrades(call *syntax.CallExpr, words []string) {
	everything := func(verb string) {
		s.warn("full-upgrade", call, words[0]+" "+verb+" upgrades everything on the host, its kernel and its container runtime too",
			"name the packages it is about, or leave it out")
	}
	at := slices.IndexFunc(words[1:], func(w string) bool { return !strings.HasPrefix(w, "-") }) + 1
	if at == 0 {
		return
	}
	verb := words[at]
	named := slices.ContainsFunc(words[at+1:], func(w string) bool { return !strings.HasPrefix(w, "-") })
	switch program := path.Base(words[0]); {
	case verb == "autoremove":
		s.warn("autoremove", call, words[0]+" autoremove removes packages that others may have installed", "remove by name what the package installed")
	case strings.HasPrefix(program, "apt") && slices.Contains([]string{"upgrade", "dist-upgrade", "full-upgrade", "safe-upgrade"}, verb):
		everything(verb)
	case !strings.HasPrefix(program, "apt") && !named && slices.Contains([]string{"update", "upgrade", "up", "dup", "dist-upgrade", "distro-sync"}, verb):
		everything(verb)
	}
}

// unquoted warns of expansions that the shell splits at blanks, where a path is meant.
func (s *script) unquoted(call *syntax.CallExpr) {
	for _, w := range call.Args[1:] {
		for _, part := range w.Parts {
			p, ok := part.(*syntax.ParamExp)
			if !ok || p.Length || p.Param == nil || strings.ContainsAny(p.Param.Value, "#?$!") {
				continue
			}
			s.warn("unquoted", w, "$"+p.Param.Value+" is split at blanks and * in it stands for files", `write it in double quotes`)
		}
	}
}
