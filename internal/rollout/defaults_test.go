// SPDX-FileCopyrightText: The Skyhook authors
// SPDX-License-Identifier: Apache-2.0

package rollout

import (
	"strings"
	"testing"
)

// TestDefaults shows that a reason says once what decided it, before what a program printed, and also where it is long.
func TestDefaults(t *testing.T) {
	defaults := Defaults{ReasonRolledBack: "profile Recommended: rollback"}
	long := strings.Repeat("x", 2*MaxText)
	for _, c := range []struct{ text, want string }{
		{"tuning apply failed", "tuning apply failed (profile Recommended: rollback)"},
		{"tuning apply failed" + LastOutput + "no space | left", "tuning apply failed (profile Recommended: rollback)" + LastOutput + "no space | left"},
		{long, Truncate(long, MaxText-len(" (profile Recommended: rollback)")) + " (profile Recommended: rollback)"},
	} {
		why := Why{Reason: ReasonRolledBack, Text: c.text}
		for range 2 {
			if defaults.Explain(&why); why.Text != c.want || len(why.Text) > MaxText {
				t.Errorf("%q became %q, want %q", c.text, why.Text, c.want)
			}
		}
	}
	other := Why{Reason: ReasonProof, Text: "it is checked"}
	if defaults.Explain(&other); other.Text != "it is checked" {
		t.Errorf("it became %q", other.Text)
	}
}
