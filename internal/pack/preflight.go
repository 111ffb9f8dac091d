// SPDX-FileCopyrightText: The Skyhook authors
// SPDX-License-Identifier: Apache-2.0

package pack

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"strings"
)

// Variables of the steps of a preflight.
const (
	// EnvPreflight is true for them, and for the checks that run after the answer "none".
	EnvPreflight = "SKYHOOK_PREFLIGHT"
	// EnvAnswer names the file to which they append their answers; see ParseAnswers.
	EnvAnswer = "SKYHOOK_ANSWER"
)

// Answer is what a package needs on one node.
type Answer string

// The answers, from the weakest to the strongest.
const (
	AnswerNone    Answer = "none"    // nothing is to be done
	AnswerConfig  Answer = "config"  // the config stage is enough
	AnswerApply   Answer = "apply"   // the stages are enough, without an interrupt
	AnswerService Answer = "service" // and services must restart
	AnswerReboot  Answer = "reboot"  // and the node must reboot
	AnswerBlocked Answer = "blocked" // the node must not be worked on now
)

var answers = []Answer{AnswerNone, AnswerConfig, AnswerApply, AnswerService, AnswerReboot, AnswerBlocked}

// Answers lists all answers, from the weakest to the strongest.
func Answers() []Answer { return slices.Clone(answers) }

// Compare orders answers by their strength, as cmp.Compare does. What is no answer is weaker than all.
func (a Answer) Compare(b Answer) int {
	return cmp.Compare(slices.Index(answers, a), slices.Index(answers, b))
}

// Preflight is the answer of a package for one node.
type Preflight struct {
	Answer   Answer   `json:"answer,omitempty"` // empty if Absent
	Services []string `json:"services,omitempty"`
	Reason   string   `json:"reason,omitempty"`
	Wrong    bool     `json:"wrong,omitempty"`  // the answer is none, but a check fails; Reason says which and why
	Absent   bool     `json:"absent,omitempty"` // the package has no steps for the mode

	Privileges Privileges `json:"privileges,omitempty"` // that config.json declares
}

// Most of what a message has of an answer, in bytes of JSON.
const (
	longestReason    = 200
	shortestReason   = 60
	longestUnits     = 200
	preflightExample = `a line is "none: REASON", "config: REASON", "apply: REASON", "service NAME[,NAME…]: REASON", "reboot: REASON" or "blocked: REASON"`
)

// ParseAnswers reads the lines that the steps of a preflight left. The strongest answer counts; the services of several are united.
func ParseAnswers(text string) (Preflight, error) {
	var found Preflight
	for line := range strings.Lines(text) {
		if line = strings.TrimSpace(line); line == "" {
			continue
		}
		p, err := parseAnswer(line)
		if err != nil {
			return Preflight{}, fmt.Errorf("the answer %s %w; %s", quoteValue(line), err, preflightExample)
		}
		found = found.join(p)
	}
	if found.Answer == "" {
		return found, fmt.Errorf("no step has answered: append a line to the file that %s names; %s", EnvAnswer, preflightExample)
	}
	if !found.namesFit() {
		return found, fmt.Errorf("the answers name services of more than %d bytes: name fewer, or answer reboot", longestUnits)
	}
	return found, nil
}

func parseAnswer(line string) (Preflight, error) {
	before, reason, _ := strings.Cut(line, ": ")
	word, names, _ := strings.Cut(before, " ")
	p := Preflight{Answer: Answer(word), Reason: strings.TrimSpace(reason)}
	switch {
	case !slices.Contains(answers, Answer(strings.TrimSuffix(word, ":"))):
		return p, fmt.Errorf("does not begin with a known word%s", SuggestWord(word, answerWords()))
	case p.Reason == "":
		return p, errors.New("has no reason after a colon and a space")
	case p.Answer != AnswerService && names != "":
		return p, errors.New("names something before the colon, which only service does")
	case p.Answer != AnswerService:
		return p, nil
	}
	for name := range strings.SplitSeq(names, ",") {
		name = strings.TrimSpace(name)
		if reason := InvalidServiceReason(name); reason != "" {
			return p, fmt.Errorf("names a service wrongly: %s", reason)
		}
		p.Services = append(p.Services, name)
	}
	p.Services = uniqueStrings(p.Services)
	return p, nil
}

func answerWords() []string {
	var out []string
	for _, a := range answers {
		out = append(out, string(a))
	}
	return out
}

// join is the stronger one of two answers, or both if they are equally strong.
func (p Preflight) join(other Preflight) Preflight {
	switch order := p.Answer.Compare(other.Answer); {
	case order < 0:
		return other
	case order == 0:
		p.Services = uniqueStrings(append(p.Services, other.Services...))
		if p.Reason != other.Reason {
			p.Reason += "; " + other.Reason
		}
	}
	return p
}

func (p Preflight) namesFit() bool { return len(marshalCompact(p.Services)) <= longestUnits }

// IsKnown reports whether the package has said what it needs, or that it has no steps for that.
func (p *Preflight) IsKnown() bool { return p.Absent != slices.Contains(answers, p.Answer) }

// HasPrivileges reports whether what it says of privileges counts, also of a package that could not answer; none mean everything.
func (p *Preflight) HasPrivileges() bool { return p.IsKnown() || len(p.Privileges) > 0 }

// clip returns what a message has of it; nil for what is neither an answer nor, of steps that failed, what the package declares.
func (p *Preflight) clip() *Preflight {
	if p == nil || !p.namesFit() || !p.HasPrivileges() {
		return nil
	}
	if wrong, _ := p.Privileges.FindProblem(); wrong != "" {
		return nil
	}
	out := *p
	out.Reason = clipToJSON(p.Reason, longestReason)
	return &out
}

// shortenPreflight shortens what is not needed to act on an answer, and reports whether there was something.
func (w *wireMessage) shortenPreflight() bool {
	switch p := w.Preflight; {
	case p == nil:
		return false
	case len(p.Reason) > shortestReason:
		p.Reason = clipToJSON(p.Reason, len(p.Reason)-20)
	case w.Boot+w.Step+w.Signal+w.Reason != "":
		w.Boot, w.Step, w.Signal, w.Reason = "", "", "", ""
	case w.Package+w.Version != "": // the container says so, too
		w.Package, w.Version = "", ""
	case len(p.Privileges) > 0: // then the package has all, as if it had declared none
		p.Privileges = nil
	default:
		return false
	}
	return true
}
