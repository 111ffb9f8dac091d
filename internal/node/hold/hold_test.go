// SPDX-FileCopyrightText: The Skyhook authors
// SPDX-License-Identifier: Apache-2.0

package hold

import (
	"testing"
	"time"

	"github.com/skyhook-k8s/skyhook/internal/rollout"
)

var (
	now = time.Unix(1000, 0)
	a   = rollout.Ref{Kind: "Skyhook", Name: "a"}
	b   = rollout.Ref{Kind: "NodeOp", Namespace: "default", Name: "b"}
)

func TestCordonOfAnotherClientSurvivesEveryHold(t *testing.T) {
	foreign := Cordon{Unschedulable: true}
	both := foreign.Place(a, now).Place(b, now)
	for _, order := range [][]rollout.Ref{{a, b}, {b, a}} {
		c := both
		for _, owner := range order {
			c = c.Release(owner)
			if !c.Unschedulable {
				t.Errorf("released in the order %v, the node became schedulable with %s", order, owner)
			}
		}
	}
}

func TestNodeBecomesSchedulableWithTheLastHold(t *testing.T) {
	c := Cordon{}.Place(a, now).Place(b, now).Release(a)
	if !c.Unschedulable {
		t.Error("the node became schedulable while b holds it")
	}
	if c = c.Release(b); c.Unschedulable || len(c.Holds) > 0 {
		t.Errorf("after the last release: %+v", c)
	}
}

func TestPlace(t *testing.T) {
	held := rollout.Hold{Owner: a, WasCordoned: true}
	for _, c := range []struct {
		name   string
		before Cordon
		want   bool
	}{
		{"free", Cordon{}, false},
		{"cordoned by somebody else", Cordon{Unschedulable: true}, true},
		{"inherited", Cordon{Unschedulable: true, Holds: []rollout.Hold{held}}, true},
		{"our cordon", Cordon{Unschedulable: true, Holds: []rollout.Hold{{Owner: a}}}, false},
		{"made schedulable although it is held", Cordon{Holds: []rollout.Hold{held}}, false},
		{"a hold of the owner of which nothing is recorded", Cordon{Unschedulable: true, Holds: []rollout.Hold{{Owner: b}}}, false},
	} {
		got := c.before.Place(b, now)
		if !got.Unschedulable || got.Of(b).WasCordoned != c.want {
			t.Errorf("%s: %+v, want WasCordoned %v", c.name, got, c.want)
		}
		if !c.before.Unschedulable && got.Of(a).WasCordoned {
			t.Errorf("%s: an older hold still remembers a cordon", c.name)
		}
		if twice := got.Place(b, now.Add(time.Hour)); len(twice.Holds) != len(got.Holds) || !twice.Of(b).Since.Equal(got.Of(b).Since) {
			t.Errorf("%s: placed twice: %+v", c.name, twice)
		}
	}
}

func TestReleaseOfNobodyChangesNothing(t *testing.T) {
	c := Cordon{Unschedulable: true}
	if got := c.Release(a); !got.Unschedulable {
		t.Errorf("a foreign cordon was removed: %+v", got)
	}
}

func TestKeptCordonSurvivesHoldsUntilAPersonEndsIt(t *testing.T) {
	kept := Cordon{Unschedulable: true, Kept: true}
	if c := kept.Place(a, now).Release(a); !c.Unschedulable || !c.Kept {
		t.Errorf("a hold ended the cordon: %+v", c)
	}
	placedBefore := Cordon{}.Place(a, now)
	placedBefore.Kept = true // the taint is removed while a holds the node
	if c := placedBefore.Release(a); !c.Unschedulable {
		t.Errorf("the hold that was placed before ended the cordon: %+v", c)
	}
	ended := kept.Place(a, now)
	ended.Unschedulable = false // a person makes the node schedulable while a holds it
	if c := ended.Place(a, now).Release(a); c.Unschedulable || c.Kept {
		t.Errorf("the node stays cordoned although somebody made it schedulable: %+v", c)
	}
}
