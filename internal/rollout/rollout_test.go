// SPDX-FileCopyrightText: The Skyhook authors
// SPDX-License-Identifier: Apache-2.0

package rollout

import "testing"

// TestIsCordonedByOthers: whose cordon a node has. One that was there before ours stays that of others.
func TestIsCordonedByOthers(t *testing.T) {
	ours, beside := []Hold{{}}, []Hold{{}, {WasCordoned: true}}
	for what, c := range map[string]struct {
		node Node
		want bool
	}{
		"schedulable":                         {Node{}, false},
		"cordoned":                            {Node{Cordoned: true}, true},
		"held":                                {Node{Cordoned: true, Holds: ours}, false},
		"cordoned before it was held":         {Node{Cordoned: true, Holds: beside}, true},
		"uncordoned though it is held":        {Node{Holds: beside}, false},
		"kept for its runtime-required taint": {Node{Cordoned: true, Kept: true}, false},
	} {
		if got := c.node.IsCordonedByOthers(); got != c.want {
			t.Errorf("%s: by others: %v, want %v", what, got, c.want)
		}
	}
}
