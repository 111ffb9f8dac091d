// SPDX-FileCopyrightText: The Skyhook authors
// SPDX-License-Identifier: Apache-2.0

package rollout_test

import (
	"encoding/json"
	"testing"

	"github.com/skyhook-k8s/skyhook/internal/rollout"
)

// TestRefRoundTrip checks the text form of references in annotations, statuses and dumps.
func TestRefRoundTrip(t *testing.T) {
	for text, want := range map[string]rollout.Ref{
		"":                        {},
		"demo":                    {Name: "demo"},
		"Skyhook/demo":            {Kind: "Skyhook", Name: "demo"},
		"DeploymentPolicy/canary": {Kind: "DeploymentPolicy", Name: "canary"},
		"NodeOp/default/check":    {Kind: "NodeOp", Namespace: "default", Name: "check"},
	} {
		if got := rollout.ParseRef(text); got != want || got.String() != text {
			t.Errorf("%q is parsed as %+v and written as %q", text, got, got)
		}
	}
	for text, want := range map[string]rollout.GroupRef{
		"":                                 {},
		"g":                                {Compartment: "g"},
		"Skyhook/demo/__default__":         {Owner: rollout.ParseRef("Skyhook/demo"), Compartment: "__default__"},
		"NodeOp/default/check/__default__": {Owner: rollout.ParseRef("NodeOp/default/check"), Compartment: "__default__"},
	} {
		if got := rollout.ParseGroupRef(text); got != want || got.String() != text {
			t.Errorf("%q is parsed as %+v and written as %q", text, got, got)
		}
	}
	type stored struct {
		Group rollout.GroupRef `json:"group,omitzero"`
		By    rollout.Ref      `json:"by"`
	}
	for text, want := range map[string]stored{
		`{"by":"Skyhook/demo"}`: {By: rollout.ParseRef("Skyhook/demo")},
		`{"group":"Skyhook/demo/gpu","by":"NodeOp/default/check"}`: {rollout.ParseGroupRef("Skyhook/demo/gpu"), rollout.ParseRef("NodeOp/default/check")},
	} {
		var got stored
		if err := json.Unmarshal([]byte(text), &got); err != nil || got != want {
			t.Errorf("%s is parsed as %+v: %v", text, got, err)
		}
		if raw, err := json.Marshal(want); err != nil || string(raw) != text {
			t.Errorf("%+v is written as %s: %v", want, raw, err)
		}
	}
}
