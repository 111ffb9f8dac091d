// SPDX-FileCopyrightText: The Skyhook authors
// SPDX-License-Identifier: Apache-2.0

package nodeop

import (
	"strings"
	"testing"
)

// TestTruncateName: long names are cut, and no character is left that a name cannot end in.
func TestTruncateName(t *testing.T) {
	for _, name := range []string{"kairos-upgrade-node1", strings.Repeat("a", 57)} {
		if got := truncateName(name, 57); got != name {
			t.Errorf("%s is cut to %s", name, got)
		}
	}
	cut := truncateName(strings.Repeat("a", 43)+"."+strings.Repeat("b", 40), 57)
	if len(cut) > 57 || strings.Contains(cut, ".-") {
		t.Errorf("cut to %q", cut)
	}
}
