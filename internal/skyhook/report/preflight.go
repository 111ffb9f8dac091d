// SPDX-FileCopyrightText: The Skyhook authors
// SPDX-License-Identifier: Apache-2.0

package report

import (
	"fmt"
	"strings"

	corev1 "k8s.io/api/core/v1"

	"github.com/skyhook-k8s/skyhook/api/skyhook/v1alpha1"
	"github.com/skyhook-k8s/skyhook/internal/node"
	"github.com/skyhook-k8s/skyhook/internal/pack"
	"github.com/skyhook-k8s/skyhook/internal/rollout"
	"github.com/skyhook-k8s/skyhook/internal/skyhook/plan"
)

// preflightEvent returns the event for what the packages of a node said; nil if none of them has a preflight, or what was right is proven.
func (rep Reporter) preflightEvent(a rollout.Action, t *plan.Target) *Event {
	answers, isDone := rep.Facts.ReadAnswers(t, t.Pods.FindCheck(a.Object)), len(t.Steps) == 0
	if isDone {
		plan.ProveAnswers(answers)
	}
	e := &Event{Node: a.Node, Type: corev1.EventTypeNormal, Reason: v1alpha1.EventPreflight}
	var texts []string
	for _, key := range plan.SortedNames(answers) {
		answer := answers[key]
		if answer.Wrong {
			e.Type, e.Reason, e.OnSkyhook = corev1.EventTypeWarning, v1alpha1.EventPreflightWrong, true
		}
		if !answer.Absent && (answer.Wrong || !isDone) {
			texts = append(texts, DescribeAnswer(key, answer))
		}
	}
	if len(texts) == 0 {
		return nil
	}
	e.Message = node.Truncate(strings.Join(texts, "; "), 1000)
	return e
}

// DescribeAnswer says what a package, given as name|version, said that it needs.
func DescribeAnswer(key string, a node.Answer) string {
	name, _, _ := plan.CutKey(key)
	switch {
	case a.Wrong:
		return fmt.Sprintf("%s is wrong, so all of its work runs: %s", name, a.Reason)
	case a.Answer == "":
		return fmt.Sprintf("%s is unknown, so all of its work runs: %s", name, a.Reason)
	}
	return fmt.Sprintf("%s %s: %s", name, describeNeed(a), a.Reason)
}

func describeNeed(a node.Answer) string {
	switch a.Answer {
	case pack.AnswerNone:
		return "needs nothing"
	case pack.AnswerConfig:
		return "needs its config stage"
	case pack.AnswerApply:
		return "needs its stages, and no interrupt"
	case pack.AnswerService:
		return "needs its stages, and a restart of " + strings.Join(a.Services, ", ")
	case pack.AnswerReboot:
		return "needs its stages, and a reboot"
	}
	return "must not work there now"
}

// Answers counts, for each package of the spec that has a preflight, the nodes by what it said last, with wrong for one that was; nil when
// nobody asks.
func (rep Reporter) Answers() map[string]map[string]int {
	if !rep.Facts.Asks() {
		return nil
	}
	out := map[string]map[string]int{}
	for _, t := range rep.Targets {
		for key, a := range t.Record.Preflight {
			name, _, _ := plan.CutKey(key)
			if def := rep.Facts.Packages[name]; def == nil || def.Hash != a.Hash || a.Absent {
				continue
			}
			word := string(a.Answer)
			switch {
			case a.Wrong:
				word = "wrong"
			case word == "":
				word = "unknown"
			}
			if out[name] == nil {
				out[name] = map[string]int{}
			}
			out[name][word]++
		}
	}
	return out
}
