// SPDX-FileCopyrightText: The Skyhook authors
// SPDX-License-Identifier: Apache-2.0

package rollout

import (
	"fmt"
	"testing"
)

func TestVersions(t *testing.T) {
	of := func(name, hash string) Versions { return NewVersions(ParseRef("Skyhook/"+name), hash) }
	a1, a2, b1, c1 := of("a", "1"), of("a", "2"), of("b", "1"), of("c", "1")
	if a1.Merge(b1) != b1.Merge(a1) {
		t.Error("the order of two Skyhooks matters")
	}
	if a1.Merge("") != a1 || Versions("").Merge(a1) != a1 {
		t.Error("a rollout without versions changes those of a Skyhook")
	}
	for _, c := range []struct {
		name                string
		before, now         Versions
		replaced, continues bool // of a group that goes on, and of one that is stopped
	}{
		{"nothing", a1.Merge(b1), b1.Merge(a1), false, false},
		{"a Skyhook changes", a1.Merge(b1), a2.Merge(b1), true, true},
		{"a Skyhook appears", a1, a1.Merge(b1), true, false},
		{"a Skyhook goes", a1.Merge(b1), b1, false, true},
		{"another takes its place", a1, b1, true, true},
		{"without IDs", "1", "2", true, true},
	} {
		if got := c.before.IsReplaced(c.now, false); got != c.replaced {
			t.Errorf("%s: replaced %v", c.name, got)
		}
		if got := c.before.IsReplaced(c.now, true); got != c.continues {
			t.Errorf("%s: a stopped group continues: %v", c.name, got)
		}
	}
	both := a1.Merge(b1).Merge(c1)
	if got := both.Restrict(map[Ref]bool{ParseRef("Skyhook/b"): true, ParseRef("NodeOp/x/y"): true}); got != b1 {
		t.Errorf("of Skyhook b there is %q", got)
	}
	if got := both.Restrict(map[Ref]bool{ParseRef("NodeOp/x/y"): true}); got != both {
		t.Errorf("without a Skyhook that failed there is %q", got)
	}
	var many Versions
	for i := range maxVersions + 5 {
		many = many.Merge(of(fmt.Sprint(i), "0123456789abcdef"))
		if len(many) > 2048 {
			t.Fatalf("the versions of %d Skyhooks have %d bytes", i+1, len(many))
		}
	}
}
