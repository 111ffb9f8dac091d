// SPDX-FileCopyrightText: The Skyhook authors
// SPDX-License-Identifier: Apache-2.0

package engine_test

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/skyhook-k8s/skyhook/internal/rollout"
	"github.com/skyhook-k8s/skyhook/internal/rollout/engine"
	"github.com/skyhook-k8s/skyhook/internal/sim"
)

// runBatches runs a rollout of one task until nothing changes, and lists the nodes that were admitted together. Nodes in
// failing fail for good; all others succeed. A rollout that goes on for far more passes than it has nodes never ends.
func runBatches(w *sim.Cluster, name rollout.Ref, failing []string) string {
	var out strings.Builder
	idle, most := 0, 100+100*len(w.FindRollout(name).Targets)
	for passes := 0; idle < 3; passes++ {
		if passes > most {
			return out.String() + "it does not come to rest\n"
		}
		v := w.View()
		p := engine.Decide(v.Snapshot)
		var admitted []string
		for _, a := range p.Actions {
			if a.Verb == rollout.VerbAdmit && a.Rollout == name {
				admitted = append(admitted, a.Node)
			}
		}
		if len(admitted) > 0 {
			fmt.Fprintf(&out, "%d: %s\n", len(admitted), strings.Join(admitted, " "))
		}
		if err := w.Apply(v, p); err != nil {
			return out.String() + err.Error()
		}
		idle++
		if len(p.Actions) > 0 || sim.HasStatusChange(v, p) {
			idle = 0
		}
		advanceClock(w, time.Second)
		if finishTasks(w, name.String(), failing) {
			idle = 0
		}
	}
	return out.String()
}

// finishTasks lets all running tasks succeed or fail for good, and reports whether there were any.
func finishTasks(w *sim.Cluster, name string, failing []string) bool {
	changed := false
	r := w.FindRollout(rollout.ParseRef(name))
	for _, t := range r.Targets {
		for j := range t.Tasks {
			k := &t.Tasks[j]
			if k.Object.Name == "" || k.State != rollout.StateRunning {
				continue
			}
			changed = true
			if !slices.Contains(failing, t.Node) {
				w.SucceedTask(t, k)
				continue
			}
			for range 3 {
				failTask(w, k, false, rollout.Why{Reason: rollout.ReasonStageFailed, Text: k.Label + " exited with 1"})
			}
		}
	}
	return changed
}
