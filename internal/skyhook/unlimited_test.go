// SPDX-FileCopyrightText: The Skyhook authors
// SPDX-License-Identifier: Apache-2.0

package skyhook

import (
	"fmt"
	"testing"

	"k8s.io/apimachinery/pkg/api/meta"

	"github.com/skyhook-k8s/skyhook/api/skyhook/v1alpha1"
	"github.com/skyhook-k8s/skyhook/internal/rollout"
	"github.com/skyhook-k8s/skyhook/internal/skyhook/report"
)

// TestUnlimited checks which Skyhooks have the condition Unlimited, that they are accepted and carried out all the same, and that
// it becomes an event once.
func TestUnlimited(t *testing.T) {
	const driver = `driver: {image: x, version: "1", interrupt: {type: reboot}}`
	const config = `limits: {image: x, version: "1", configMap: {a: b}, configInterrupts: {a: {type: service, services: [x]}}}`
	const plain = `plain: {image: x, version: "1"}`
	for _, c := range []struct {
		nodes     int
		spec      string
		byDefault string // the operator's policy
		want      string
	}{
		{11, "packages: {" + driver + ", " + plain + "}", "", "nothing limits how many of the 11 selected nodes package driver interrupts at the same time: set interruptionBudget or deploymentPolicy, or interruptionBudget.percent: 100 if that is meant"},
		{12, "packages: {" + driver + ", " + config + "}", "", "nothing limits how many of the 12 selected nodes one of 2 packages, such as driver, interrupts at the same time: set interruptionBudget or deploymentPolicy, or interruptionBudget.percent: 100 if that is meant"},
		{10, "packages: {" + driver + "}", "", ""},
		{11, "packages: {" + plain + "}", "", ""},
		{11, "interruptionBudget: {percent: 100}, packages: {" + driver + "}", "", ""},
		{11, "interruptionBudget: {count: 1}, packages: {" + driver + "}", "", ""},
		{11, "deploymentPolicy: careful, packages: {" + driver + "}", "", ""},
		{11, "packages: {" + driver + "}", "careful", ""},
	} {
		w := newTestCluster(t)
		w.config.DefaultPolicy = c.byDefault
		for i := range c.nodes {
			w.addNode(fmt.Sprintf("n%02d", i))
		}
		compiled := w.compile(w.apply("{metadata: {name: demo}, spec: {" + c.spec + "}}"))
		verdicts := rollout.Report{Rollout: compiled.Rollout.Ref}
		for _, target := range compiled.Rollout.Targets {
			verdicts.Verdicts = append(verdicts.Verdicts, rollout.Verdict{Node: target.Node, Phase: rollout.PhaseWaiting})
		}
		status := compiled.Status(verdicts, nil)
		got := ""
		if is := meta.FindStatusCondition(status.Conditions, v1alpha1.ConditionUnlimited); is != nil {
			got = is.Message
		}
		if got != c.want {
			t.Errorf("%d nodes, %s: the condition says %q, want %q", c.nodes, c.spec, got, c.want)
		}
		if c.want == "" {
			continue
		}
		accepted := meta.FindStatusCondition(status.Conditions, v1alpha1.ConditionAccepted)
		if compiled.Rollout.Broken != nil || accepted.Message != report.AcceptedText {
			t.Errorf("%s: it is broken (%v), or accepted with %q", c.spec, compiled.Rollout.Broken, accepted.Message)
		}
		first, again := compiled.Events(nil, v1alpha1.SkyhookStatus{}, status), compiled.Events(nil, status, status)
		if len(first) != 1 || first[0].Reason != v1alpha1.ConditionUnlimited || first[0].Message != c.want || len(again) != 0 {
			t.Errorf("%s: the events are %v, and later %v", c.spec, first, again)
		}
	}
}
