// SPDX-FileCopyrightText: The Skyhook authors
// SPDX-License-Identifier: Apache-2.0

package pack

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
)

// Severity says whether a package can be run in spite of a problem.
type Severity string

// The severities.
const (
	Error   Severity = "error"
	Warning Severity = "warning"
)

// Problem is one thing wrong with a package, and what to do about it.
type Problem struct {
	Severity Severity `json:"severity"`
	// Rule names the rule for programs; it does not change between releases.
	Rule string `json:"rule"`
	// File is relative to the package's root.
	File string `json:"file"`
	// Path is the JSON path in config.json, such as $.modes.apply[0].path.
	Path    string `json:"path,omitempty"`
	Message string `json:"message"`
	Fix     string `json:"fix,omitempty"`
}

// String is the problem in one line, without its fix.
func (p Problem) String() string {
	at := p.File
	if p.Path != "" {
		at += " " + p.Path
	}
	return fmt.Sprintf("%s: %s: %s", p.Severity, at, p.Message)
}

// Problems are all problems found at once, in a stable order.
type Problems []Problem

// Failed says whether one of them is an error.
func (ps Problems) Failed() bool { return len(ps.Only(Error)) > 0 }

// Only are the problems of one severity.
func (ps Problems) Only(s Severity) Problems {
	var only Problems
	for _, p := range ps {
		if p.Severity == s {
			only = append(only, p)
		}
	}
	return only
}

// Err is nil when nothing is an error, else a *InvalidError.
func (ps Problems) Err() error {
	if found := ps.Only(Error); len(found) > 0 {
		return &InvalidError{Problems: found}
	}
	return nil
}

// InvalidError is a package that cannot be run.
type InvalidError struct{ Problems Problems }

// Error is the first problem in full and how many more there are.
func (e *InvalidError) Error() string {
	if len(e.Problems) == 0 {
		return "the package is not valid"
	}
	p := e.Problems[0]
	s := p.File
	if p.Path != "" {
		s += " " + p.Path
	}
	s += ": " + p.Message
	if more := len(e.Problems) - 1; more > 0 {
		s += fmt.Sprintf(" (and %s)", countOf(more, "more error"))
	}
	return s
}

// IsInvalid says whether err is about the package and not about reading it.
func IsInvalid(err error) bool {
	var e *InvalidError
	return errors.As(err, &e)
}

// Text is one or two lines for each problem and a last line that counts them.
func (ps Problems) Text() string {
	var b strings.Builder
	for _, p := range ps {
		fmt.Fprintln(&b, p)
		if p.Fix != "" {
			fmt.Fprintf(&b, "    fix: %s\n", p.Fix)
		}
	}
	fmt.Fprintln(&b, ps.Summary())
	return b.String()
}

// Summary counts the problems.
func (ps Problems) Summary() string {
	failed, warned := len(ps.Only(Error)), len(ps.Only(Warning))
	verdict := "valid"
	if failed > 0 {
		verdict = "not valid"
	}
	return fmt.Sprintf("%s: %s, %s", verdict, countOf(failed, "error"), countOf(warned, "warning"))
}

// JSON is {"valid": …, "errors": n, "warnings": n, "problems": […]}.
func (ps Problems) JSON() ([]byte, error) {
	list := ps
	if list == nil {
		list = Problems{}
	}
	return json.MarshalIndent(struct {
		Valid    bool     `json:"valid"`
		Errors   int      `json:"errors"`
		Warnings int      `json:"warnings"`
		Problems Problems `json:"problems"`
	}{!ps.Failed(), len(ps.Only(Error)), len(ps.Only(Warning)), list}, "", "  ")
}

// sortByPlace orders problems by place and drops repetitions.
func (ps Problems) sortByPlace() Problems {
	out := slices.Clone(ps)
	slices.SortFunc(out, func(a, b Problem) int {
		return cmp.Or(
			cmp.Compare(fileRank(a.File), fileRank(b.File)),
			compareNatural(a.File, b.File),
			compareNatural(a.Path, b.Path),
			cmp.Compare(a.Severity, b.Severity),
			cmp.Compare(a.Rule, b.Rule),
			cmp.Compare(a.Message, b.Message),
		)
	})
	return slices.Compact(out)
}

// mostProblems is how many are told of one package.
const mostProblems = 200

// removeRepeated is what is told: in order, and not without bound.
func (ps Problems) removeRepeated() Problems {
	all := ps.sortByPlace()
	if len(all) <= mostProblems {
		return all
	}
	rest := all[mostProblems:]
	severity := Warning
	if rest.Failed() {
		severity = Error
	}
	return append(all[:mostProblems:mostProblems], Problem{
		Severity: severity, Rule: "more", File: rest[0].File, Message: fmt.Sprintf("there are %s", countOf(len(rest), "more problem")), Fix: "correct those above and look again",
	})
}

func fileRank(file string) int {
	if file == ConfigFile {
		return 0
	}
	return 1
}

// compareNatural compares numbers inside strings by value, so that [2] precedes [10].
func compareNatural(a, b string) int {
	for len(a) > 0 && len(b) > 0 {
		da, db := leadingDigits(a), leadingDigits(b)
		if da > 0 && db > 0 {
			na, nb := strings.TrimLeft(a[:da], "0"), strings.TrimLeft(b[:db], "0")
			if c := cmp.Or(cmp.Compare(len(na), len(nb)), cmp.Compare(na, nb), cmp.Compare(da, db)); c != 0 {
				return c
			}
			a, b = a[da:], b[db:]
			continue
		}
		if a[0] != b[0] {
			return cmp.Compare(a[0], b[0])
		}
		a, b = a[1:], b[1:]
	}
	return cmp.Compare(len(a), len(b))
}

func leadingDigits(s string) int {
	n := 0
	for n < len(s) && s[n] >= '0' && s[n] <= '9' {
		n++
	}
	return n
}

func countOf(n int, noun string) string {
	if n != 1 {
		noun += "s"
	}
	return fmt.Sprintf("%d %s", n, noun)
}
