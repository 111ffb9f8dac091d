// SPDX-FileCopyrightText: The Skyhook authors
// SPDX-License-Identifier: Apache-2.0

package policy

import (
	"reflect"
	"testing"
	"time"

	"sigs.k8s.io/yaml"

	"github.com/skyhook-k8s/skyhook/api/skyhook/v1alpha1"
	"github.com/skyhook-k8s/skyhook/internal/rollout"
)

// TestControls checks that each field changes one field of the groups, and an absent one none.
func TestControls(t *testing.T) {
	now := time.Date(2026, 5, 1, 12, 0, 0, 0, time.UTC) // a Friday
	template := func(more string) (rollout.Group, string) {
		t.Helper()
		p := &v1alpha1.DeploymentPolicy{}
		text := "metadata: {name: careful}\nspec:\n  default: {budget: {count: 1}}\n" + more
		if err := yaml.UnmarshalStrict([]byte(text), p); err != nil {
			t.Fatal(err)
		}
		g := NewGrouping(&Input{Rollout: rollout.ParseRef("Skyhook/demo"), Policy: p, Now: now})
		return g.template, g.PlaceOf(map[string]string{"rack": "r1"})
	}
	plain, place := template("")
	if want := (rollout.Group{Reset: true, Ledger: rollout.ParseRef("Skyhook/demo")}); !reflect.DeepEqual(plain, want) || place != "" {
		t.Errorf("without fields the group is %+v, in %q", plain, place)
	}
	closed := &rollout.Why{Reason: rollout.ReasonWindow, About: "DeploymentPolicy careful",
		Text: "every window of DeploymentPolicy careful is closed, the next opens 2026-05-01 22:00 UTC"}
	for more, change := range map[string]func(g *rollout.Group){
		"  soak: 10m":     func(g *rollout.Group) { g.Soak = 10 * time.Minute },
		"  soak: 0s":      func(*rollout.Group) {},
		"  paused: false": func(*rollout.Group) {},
		"  paused: true": func(g *rollout.Group) {
			g.Frozen = &rollout.Why{Reason: rollout.ReasonPaused, About: "DeploymentPolicy careful", Text: "DeploymentPolicy careful is paused"}
		},
		"  maxUnavailablePerTopology: {topologyKey: rack}":           func(g *rollout.Group) { g.Spread = rollout.Spread{Key: "rack", Limit: 1} },
		"  maxUnavailablePerTopology: {topologyKey: rack, count: 3}": func(g *rollout.Group) { g.Spread = rollout.Spread{Key: "rack", Limit: 3} },
		"  windows: {open: [{schedule: 0 0 * * 5, duration: 24h}]}":  func(*rollout.Group) {},
		"  windows: {open: [{schedule: \"0 22 * * *\", duration: 1h}]}": func(g *rollout.Group) {
			g.Frozen, g.Until = closed, time.Date(2026, 5, 1, 22, 0, 0, 0, time.UTC)
		},
		"  proof: {resources: [{name: nvidia.com/gpu}]}": func(*rollout.Group) {},
		"  resetBatchStateOnCompletion: false":           func(g *rollout.Group) { g.Reset = false },
	} {
		want := plain
		change(&want)
		got, place := template(more + "\n")
		if !reflect.DeepEqual(got, want) {
			t.Errorf("%s gives %+v, want %+v", more, got, want)
		}
		if (place == "r1") != (want.Spread.Limit > 0) {
			t.Errorf("%s: a node with rack=r1 is in %q", more, place)
		}
	}
}
