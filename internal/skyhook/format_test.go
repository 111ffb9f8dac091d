// SPDX-FileCopyrightText: The Skyhook authors
// SPDX-License-Identifier: Apache-2.0

package skyhook

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"

	"github.com/skyhook-k8s/skyhook/internal/pack"
	"github.com/skyhook-k8s/skyhook/internal/rollout"
)

// formatRollout prints a compiled rollout.
func formatRollout(c *Compiled) string {
	var b strings.Builder
	if c.Rollout.Broken != nil {
		fmt.Fprintf(&b, "broken: %s: %s\n", c.Rollout.Broken.Reason, c.Rollout.Broken.Text)
	}
	for _, t := range c.Rollout.Targets {
		var marks []string
		mark := func(on bool, word string) {
			if on {
				marks = append(marks, word)
			}
		}
		mark(t.Visit.Admitted, "admitted")
		mark(!t.Drain.HeldAt.IsZero(), "held")
		mark(t.Leaving, "leaving")
		mark(t.Visit.Skipped, "skipped")
		if t.Blocked != nil {
			marks = append(marks, fmt.Sprintf("blocked %s: %s", t.Blocked.Reason, t.Blocked.Text))
		}
		if len(t.Tasks) == 0 {
			marks = append(marks, "nothing left")
		}
		fmt.Fprintf(&b, "%s: %s\n", t.Node, strings.Join(marks, ", "))
		for _, task := range t.Tasks {
			b.WriteString("  " + formatTask(task) + "\n")
		}
		for _, q := range t.Objects.Queues {
			fmt.Fprintf(&b, "  goes on %s%s%s\n", q.Object, map[bool]string{true: ", unwanted"}[q.Unwanted], map[bool]string{true: ", recalled"}[q.Recalled])
		}
		for _, s := range t.Objects.Orphans {
			fmt.Fprintf(&b, "  stray %s\n", s)
		}
	}
	return b.String()
}

func formatTask(task rollout.Task) string {
	out := task.ID
	if task.State != rollout.StatePending || task.Recorded != rollout.StatePending {
		out += fmt.Sprintf(" %s (recorded %s)", task.State, task.Recorded)
	}
	switch task.Need {
	case rollout.NeedDrained:
		out += " drained"
	case rollout.NeedAlone:
		out += fmt.Sprintf(" alone strength=%d", task.Strength)
	}
	for _, f := range []struct {
		on   bool
		word string
	}{
		{task.Lost, "lost"},
		{task.Object.Stale, "stale"},
		{task.Object.Dead, "dead"},
		{task.Object.Leaving, "leaving"},
		{task.Object.Queued, "queued"},
		{task.Object.Unpulled, "unpulled"},
		{task.Exclusive != "", "exclusive"},
		{!task.ExclusiveUntil.IsZero(), "delays-others"},
	} {
		if f.on {
			out += " " + f.word
		}
	}
	if task.CoveredBy != "" {
		out += " covered by " + task.CoveredBy
	}
	if task.Attempts.Failed > 0 {
		out += fmt.Sprintf(" attempts=%d", task.Attempts.Failed)
	}
	if len(task.After) > 0 {
		out += " after " + strings.Join(task.After, ", ")
	}
	if task.Why != nil {
		out += fmt.Sprintf(" [%s: %s]", task.Why.Reason, task.Why.Text)
	}
	return out
}

// lines prints a map in the order of its keys.
func lines(m map[string]string) string {
	var b strings.Builder
	for _, key := range slices.Sorted(maps.Keys(m)) {
		fmt.Fprintf(&b, "%s=%s\n", key, m[key])
	}
	return b.String()
}

// compactEnv are the variables that containers of a compact pod have in addition.
var compactEnv = []string{pack.EnvImageDir, pack.EnvWithCheck, pack.EnvStopFile, pack.EnvPreviousFile, pack.EnvSuccessFile, pack.EnvMessageLimit}

// formatContainers prints what a pod runs, in order, and what it mounts.
func formatContainers(p *corev1.Pod) string {
	var b strings.Builder
	for kind, containers := range [][]corev1.Container{p.Spec.InitContainers, p.Spec.Containers} {
		for _, c := range containers {
			var env []string
			for _, e := range c.Env {
				if slices.Contains(compactEnv, e.Name) {
					env = append(env, e.Name+"="+e.Value)
				}
			}
			fmt.Fprintf(&b, "%s %s %s %s\n", []string{"init", "main"}[kind], c.Name, strings.Join(c.Args[:min(len(c.Args), 1)], " "), strings.Join(env, " "))
		}
	}
	for _, v := range p.Spec.Volumes {
		if v.Image != nil {
			fmt.Fprintf(&b, "image volume %s %s\n", v.Name, v.Image.Reference)
		}
	}
	return b.String()
}
