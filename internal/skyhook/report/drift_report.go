// SPDX-FileCopyrightText: The Skyhook authors
// SPDX-License-Identifier: Apache-2.0

package report

import (
	"fmt"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"

	"github.com/skyhook-k8s/skyhook/api/skyhook/v1alpha1"
	"github.com/skyhook-k8s/skyhook/internal/node"
	"github.com/skyhook-k8s/skyhook/internal/rollout"
	"github.com/skyhook-k8s/skyhook/internal/skyhook/plan"
)

// Drift returns what the last check for drift found on a node, as far as it still counts.
func (rep Reporter) Drift(nodeName string) node.DriftRecord {
	t := rep.Target(nodeName)
	if t == nil || rep.Facts.Skyhook.Spec.Drift == nil {
		return node.DriftRecord{}
	}
	return rep.Facts.DriftOf(t)
}

// DriftedNodes counts, for each package of the spec, the nodes on which it is not as it was left; nil when nobody looks.
func (rep Reporter) DriftedNodes() map[string]int {
	if rep.Facts.Skyhook.Spec.Drift == nil {
		return nil
	}
	out := map[string]int{}
	for name := range rep.Facts.Packages {
		out[name] = 0
	}
	for i := range rep.Targets {
		names := map[string]bool{}
		for _, key := range rep.Facts.DriftOf(rep.Targets[i]).Drifted() {
			name, _, _ := plan.CutKey(key)
			names[name] = true
		}
		for name := range names {
			if _, isOfSpec := out[name]; isOfSpec {
				out[name]++
			}
		}
	}
	return out
}

// setDrifted sets the condition that names the nodes that drifted. It has nothing that changes with each check.
func (rep Reporter) setDrifted(t *conditionWriter) {
	if rep.Facts.Skyhook.Spec.Drift == nil {
		return
	}
	var drifted, unknown []string
	first := map[string]string{}
	for i := range rep.Targets {
		target := rep.Targets[i]
		rec := rep.Facts.DriftOf(target)
		keys := rec.Drifted()
		switch {
		case len(keys) > 0:
			drifted = append(drifted, target.Node.Name)
			first[target.Node.Name] = describePackageDrift(keys[0], rec.Packages[keys[0]])
		case len(rec.Packages) > 0:
			unknown = append(unknown, target.Node.Name)
			key := plan.SortedNames(rec.Packages)[0]
			first[target.Node.Name] = describePackageDrift(key, rec.Packages[key])
		}
	}
	slices.Sort(drifted)
	slices.Sort(unknown)
	text := "every package that was checked is as it was left"
	if len(drifted) > 0 {
		text = fmt.Sprintf("packages are not as they were left on %s: %s; %s: %s", countOf(len(drifted), "node"), formatNames(drifted), drifted[0], first[drifted[0]])
	}
	if len(unknown) > 0 {
		text += fmt.Sprintf("; packages cannot be checked on %s: %s; %s: %s", countOf(len(unknown), "node"), formatNames(unknown), unknown[0], first[unknown[0]])
	}
	reason := v1alpha1.ReasonNoDrift
	if len(drifted) > 0 {
		reason = v1alpha1.ReasonNodesDrifted
	}
	t.set(v1alpha1.ConditionDrifted, len(drifted) > 0, reason, text)
}

func describePackageDrift(key string, found node.PackageDrift) string {
	text := "package " + strings.Replace(key, "|", " ", 1) + ": " + found.Text
	if found.Repair != "" {
		text += "; it runs again from stage " + found.Repair
	}
	return text
}

// driftEvent returns the event for what a check found: something new, or that what had drifted is as it was left. It is nil when there
// is nothing new.
func (rep Reporter) driftEvent(a rollout.Action) *Event {
	t := rep.Target(a.Node)
	if t == nil {
		return nil
	}
	pod := t.Pods.FindCheck(a.Object)
	if pod == nil {
		return nil
	}
	before, found := rep.Facts.DriftOf(t), node.DriftRecord{Packages: rep.Facts.ReadDrift(t, pod)}
	was, is := before.Drifted(), found.Drifted()
	name := rep.Facts.Skyhook.Name
	var texts []string
	for _, key := range is {
		if !slices.Contains(was, key) {
			texts = append(texts, describePackageDrift(key, withoutRepair(found.Packages[key])))
		}
	}
	switch {
	case len(texts) > 0:
		return &Event{Node: a.Node, OnSkyhook: true, Type: corev1.EventTypeWarning, Reason: v1alpha1.EventDrift,
			Message: node.Truncate(fmt.Sprintf("the node is not as Skyhook %s left it: %s", name, strings.Join(texts, "; ")), 1000)}
	case len(was) > 0 && len(found.Packages) == 0:
		return &Event{Node: a.Node, Type: corev1.EventTypeNormal, Reason: v1alpha1.EventDrift, Message: "the node is as Skyhook " + name + " left it again"}
	}
	return nil
}

func withoutRepair(found node.PackageDrift) node.PackageDrift {
	found.Repair = ""
	return found
}
