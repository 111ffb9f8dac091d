// SPDX-FileCopyrightText: The Skyhook authors
// SPDX-License-Identifier: Apache-2.0

package skyhook

import (
	"fmt"
	"strings"
	"testing"

	"github.com/skyhook-k8s/skyhook/api/skyhook/v1alpha1"
	"github.com/skyhook-k8s/skyhook/internal/node"
	"github.com/skyhook-k8s/skyhook/internal/rollout"
	"github.com/skyhook-k8s/skyhook/internal/skyhook/plan"
)

// TestTransitions is the documented table of states of one package on one node: the recorded state, the spec,
// the actions, and the recorded state after them.
func TestTransitions(t *testing.T) {
	const reboot, uninstall = "interrupt: {type: noop}", "uninstall: {enabled: true, apply: true}"
	for _, c := range []struct {
		stored string // stage/state, or version stage/state; empty for absent
		spec   string // of the package, besides its version 1.0.0
		does   []string
		want   string // entries, sorted
	}{
		{"", "", []string{"run apply"}, "1.0.0 apply/in_progress"},
		{"apply/in_progress", "", []string{"fail apply"}, "1.0.0 apply/erroring"},
		{"apply/erroring", "", []string{"end apply"}, "1.0.0 apply/complete"},
		{"apply/complete", "", []string{"run config"}, "1.0.0 config/in_progress"},
		{"upgrade/complete", "", []string{"run config"}, "1.0.0 config/in_progress"},
		{"config/in_progress", "", []string{"end config"}, "1.0.0 config/complete"},
		{"config/complete", "", nil, "1.0.0 config/complete"},
		{"config/in_progress", reboot, []string{"end config", "run interrupt"}, "1.0.0 interrupt/in_progress"},
		{"interrupt/in_progress", reboot, []string{"end interrupt"}, "1.0.0 interrupt/complete"},
		{"interrupt/complete", reboot, []string{"run post-interrupt"}, "1.0.0 post-interrupt/in_progress"},
		{"post-interrupt/in_progress", reboot, []string{"end post-interrupt"}, "1.0.0 post-interrupt/complete"},
		{"post-interrupt/complete", reboot, nil, "1.0.0 post-interrupt/complete"},
		{"0.9.0 config/complete", "", []string{"run upgrade"}, "0.9.0 config/complete, 1.0.0 upgrade/in_progress"},
		{"0.9.0 config/complete", "", []string{"run upgrade", "end upgrade"}, "1.0.0 upgrade/complete"},
		{"0.9.0 apply/erroring", "", []string{"run apply", "end apply"}, "1.0.0 apply/complete"},
		{"2.0.0 config/complete", "", []string{"run 2.0.0 uninstall"}, "1.0.0 uninstall/skipped, 2.0.0 uninstall/in_progress"},
		{"2.0.0 config/complete", "", []string{"run 2.0.0 uninstall", "end 2.0.0 uninstall"}, "1.0.0 uninstall/complete"},
		{"2.0.0 config/complete", "", []string{"run 2.0.0 uninstall", "end 2.0.0 uninstall", "run apply"}, "1.0.0 apply/in_progress"},
		{"config/complete", uninstall, []string{"run uninstall"}, "1.0.0 uninstall/in_progress"},
		{"config/complete", uninstall, []string{"run uninstall", "end uninstall"}, ""},
		{"apply/erroring", uninstall, []string{"run uninstall", "end uninstall"}, ""},
		{"config/complete", uninstall + ", " + reboot, []string{"run uninstall", "end uninstall"}, "1.0.0 uninstall-interrupt/in_progress"},
		{"config/complete", uninstall + ", " + reboot, []string{"run uninstall", "end uninstall", "run uninstall-interrupt", "end uninstall-interrupt"}, ""},
		{"uninstall/erroring", "", []string{"run apply"}, "1.0.0 apply/in_progress"},
		{"uninstall-interrupt/in_progress", reboot, []string{"run uninstall-interrupt"}, "1.0.0 uninstall-interrupt/in_progress"},
		{"uninstall-interrupt/complete", uninstall, nil, ""},
		{"", uninstall, nil, ""},
	} {
		t.Run(fmt.Sprintf("%s %s %s", c.stored, c.spec, strings.Join(c.does, ", ")), func(t *testing.T) {
			w := newTestCluster(t)
			spec := "version: 1.0.0, image: example.org/p"
			if c.spec != "" {
				spec += ", " + c.spec
			}
			s := w.apply("{metadata: {name: demo}, spec: {packages: {tuning: {" + spec + "}}}}")
			n := w.addNode("n1")
			if c.stored != "" {
				version, at, other := strings.Cut(c.stored, " ")
				if !other {
					version, at = "1.0.0", c.stored
				}
				stage, state, _ := strings.Cut(at, "/")
				n.Annotations["skyhook.nvidia.com/nodeState_demo"] = node.FormatState(v1alpha1.NodeState{"tuning|" + version: {
					Name: "tuning", Version: version, Image: "example.org/p", Stage: v1alpha1.Stage(stage), State: v1alpha1.State(state)}})
			}
			for _, word := range c.does {
				verb, stage, _ := strings.Cut(word, " ")
				version, rest, other := strings.Cut(stage, " ")
				if other {
					stage = rest
				} else {
					version = "1.0.0"
				}
				a := rollout.Action{Node: "n1", Task: "tuning|" + version + "/" + stage}
				switch verb {
				case "run":
					a.Verb = rollout.VerbRun
				case "end":
					a.Verb, a.State = rollout.VerbRecord, rollout.StateDone
				case "fail":
					a.Verb, a.State, a.Attempts = rollout.VerbRecord, rollout.StateFailing, 1
				}
				if pod := w.podOf(s, "n1", a.Task); pod != nil && verb == "end" {
					w.endPod(pod, 0, "")
				}
				w.applyAction(w.compile(s), a)
			}
			if got := entries(w, s); got != c.want {
				t.Errorf("it is %s, want %s", got, c.want)
			}
		})
	}
}

func entries(w *testCluster, s *v1alpha1.Skyhook) string {
	w.compile(s)
	state := node.Parse(w.node("n1"), nil).Skyhook("demo").State
	var out []string
	for _, key := range plan.SortedNames(state) {
		out = append(out, state[key].Version+" "+node.Position(state[key]))
	}
	return strings.Join(out, ", ")
}
