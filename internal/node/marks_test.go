// SPDX-FileCopyrightText: The Skyhook authors
// SPDX-License-Identifier: Apache-2.0

package node

import (
	"maps"
	"slices"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/skyhook-k8s/skyhook/api/skyhook/v1alpha1"
	"github.com/skyhook-k8s/skyhook/internal/rollout"
)

const (
	holderA = "Skyhook/a"
	holderB = "Skyhook/b"
)

var allMarks = v1alpha1.NodeMarks{Marks: []v1alpha1.NodeMark{
	v1alpha1.MarkConditions, v1alpha1.MarkExcludeFromLoadBalancers, v1alpha1.MarkDisableScaleDown, v1alpha1.MarkDoNotDisrupt, v1alpha1.MarkDescription,
}}

// markedNode is a node with labels and annotations of others.
func markedNode(labels, annotations map[string]string) *Node {
	n := &corev1.Node{}
	n.Name, n.UID, n.Labels, n.Annotations = "n1", "uid-n1", labels, annotations
	return Parse(n, nil)
}

// hold places a hold with marks as one edit.
func (n *Node) hold(skyhook string, options v1alpha1.NodeMarks) *Node {
	e := n.PlaceMarks("Skyhook/"+skyhook, NewMarks(options, Description{By: "Skyhook " + skyhook, Why: "driver needs the node drained", Since: time.Unix(0, 0).UTC()}))
	e.SetAnnotation(n, v1alpha1.PrefixCordon+skyhook, "true")
	return n.With(e)
}

// release removes a hold, and its marks in the same edit.
func (n *Node) release(skyhook string) *Node {
	e := Edit{}
	e.RemoveAnnotation(n, v1alpha1.PrefixCordon+skyhook)
	return n.With(e.Plus(n.With(e).RemoveUnheldMarks()))
}

func (n *Node) edited(labels, annotations map[string]*string) *Node {
	return n.With(Edit{Labels: labels, Annotations: annotations})
}

func TestMarksAreRestored(t *testing.T) {
	for _, before := range []struct {
		name                string
		labels, annotations map[string]string
	}{
		{"nothing", map[string]string{}, map[string]string{}},
		{"other keys", map[string]string{"zone": "a"}, map[string]string{"note": "x"}},
		{"the same marks of somebody else", map[string]string{v1alpha1.LabelExcludeBalancers: ""},
			map[string]string{v1alpha1.AnnotationScaleDown: "true", v1alpha1.AnnotationDoNotDisrupt: "true"}},
		{"opposite marks of somebody else", map[string]string{v1alpha1.LabelExcludeBalancers: "false"},
			map[string]string{v1alpha1.AnnotationScaleDown: "false", v1alpha1.AnnotationDoNotDisrupt: "false"}},
	} {
		n := markedNode(before.labels, before.annotations)
		held := n.hold("a", allMarks).hold("b", allMarks)
		for key, value := range before.labels {
			if held.Labels[key] != value {
				t.Errorf("%s: label %s was overwritten with %q", before.name, key, held.Labels[key])
			}
		}
		for key, value := range before.annotations {
			if held.Annotations[key] != value {
				t.Errorf("%s: annotation %s was overwritten with %q", before.name, key, held.Annotations[key])
			}
		}
		if _, isExcluded := held.Labels[v1alpha1.LabelExcludeBalancers]; !isExcluded {
			t.Errorf("%s: the held node has no label for load balancers", before.name)
		}
		for _, order := range [][]string{{"a", "b"}, {"b", "a"}} {
			after := held.release(order[0]).release(order[1])
			if !maps.Equal(after.Labels, before.labels) || !maps.Equal(after.Annotations, before.annotations) {
				t.Errorf("%s: after the releases %v: labels %v, annotations %v", before.name, order, after.Labels, after.Annotations)
			}
		}
	}
}

func TestMarksGoWithTheLastHold(t *testing.T) {
	held := markedNode(nil, nil).hold("a", allMarks).hold("b", allMarks)
	one := held.release("a")
	if one.Labels[v1alpha1.LabelExcludeBalancers] == "" || one.Annotations[v1alpha1.AnnotationScaleDown] != "true" {
		t.Errorf("marks went with the first hold: %v %v", one.Labels, one.Annotations)
	}
	if got, want := one.Annotations[v1alpha1.AnnotationMaintenance], `{"by":"Skyhook b","why":"driver needs the node drained","since":"1970-01-01T00:00:00Z"}`; got != want {
		t.Errorf("the description is %s, want that of the other holder: %s", got, want)
	}
	mixed := markedNode(nil, nil).hold("a", allMarks).hold("b", v1alpha1.NodeMarks{}).release("a")
	if mixed.Labels[v1alpha1.LabelExcludeBalancers] != "" || mixed.HasMarks() {
		t.Errorf("b asks for no marks, and they stayed: %v %v", mixed.Labels, mixed.Annotations)
	}
}

func TestMarksThatAnotherClientChangesBecomeTheirs(t *testing.T) {
	no, theirs := "false", "theirs"
	held := markedNode(nil, nil).hold("a", allMarks)
	changed := held.edited(map[string]*string{v1alpha1.LabelExcludeBalancers: &theirs},
		map[string]*string{v1alpha1.AnnotationScaleDown: &no, v1alpha1.AnnotationDoNotDisrupt: nil})
	after := changed.release("a")
	if after.Labels[v1alpha1.LabelExcludeBalancers] != theirs || after.Annotations[v1alpha1.AnnotationScaleDown] != no {
		t.Errorf("what somebody changed was removed: %v %v", after.Labels, after.Annotations)
	}
	yes := "true"
	noted := changed.With(changed.RemoveUnheldMarks())
	again := noted.edited(nil, map[string]*string{v1alpha1.AnnotationDoNotDisrupt: &yes}).release("a")
	if again.Annotations[v1alpha1.AnnotationDoNotDisrupt] != yes {
		t.Error("a mark that somebody removed and set again was removed")
	}
}

func TestMarksOfAnotherNodeOrUnreadableOnesAreNotOurs(t *testing.T) {
	record := markedNode(nil, nil).hold("a", allMarks).Annotations[v1alpha1.AnnotationNodeMarks]
	for _, text := range []string{record + "x", "null", "", `{"node":"uid-other"}`, record[:len(record)/2]} {
		n := markedNode(nil, map[string]string{v1alpha1.AnnotationScaleDown: "true", v1alpha1.AnnotationNodeMarks: text})
		after := n.With(n.RemoveUnheldMarks())
		if after.Annotations[v1alpha1.AnnotationScaleDown] != "true" || after.HasMarks() {
			t.Errorf("record %q: %v", text, after.Annotations)
		}
	}
	lost := markedNode(nil, nil).hold("a", allMarks).edited(nil, map[string]*string{v1alpha1.AnnotationNodeMarks: nil}).release("a")
	if lost.HasMarks() || len(lost.Labels) > 0 {
		t.Errorf("the record was lost, and marks with our name stayed: %v %v", lost.Labels, lost.Annotations)
	}
}

func TestPlacingMarksTwiceChangesNothing(t *testing.T) {
	held := markedNode(nil, nil).hold("a", allMarks)
	later := NewMarks(allMarks, Description{By: "Skyhook a", Since: time.Unix(99, 0)})
	if e := held.PlaceMarks(holderA, later).WithoutUnchanged(held); !e.Empty() {
		t.Errorf("placed twice: %+v", e)
	}
	if e := held.RemoveUnheldMarks(); !e.Empty() {
		t.Errorf("nothing was released: %+v", e)
	}
}

// TestSetLabels follows labels that a hold sets: they replace what the node had until the work is done, and one that somebody changes is his.
func TestSetLabels(t *testing.T) {
	const deploy, paused = "example.com/deploy", "paused"
	options := v1alpha1.NodeMarks{Labels: map[string]v1alpha1.LabelValue{deploy: paused, "example.com/new": "x"}}
	prove := func(n *Node, skyhook string, since *time.Time) *Node {
		e := Edit{}
		rec := SkyhookRecord{Node: n.UID}
		rec.Proving = since
		e.SetAnnotation(n, v1alpha1.PrefixRecord+skyhook, EncodeJSON(rec))
		return n.With(e.Plus(n.With(e).RemoveUnheldMarks()))
	}
	settled := func(n *Node) *Node { return n.With(n.RemoveUnheldMarks()) }
	before := map[string]string{deploy: "true", "zone": "a"}
	at := time.Unix(5, 0).UTC()
	n := markedNode(maps.Clone(before), nil)
	expect := func(what string, n *Node, want map[string]string, isSet bool) {
		t.Helper()
		if !maps.Equal(n.Labels, want) || n.HasSetLabels() != isSet {
			t.Errorf("%s: the labels are %v (set: %v), want %v", what, n.Labels, n.HasSetLabels(), want)
		}
		if e := n.RemoveUnheldMarks(); !e.WithoutUnchanged(n).Empty() {
			t.Errorf("%s: it changes again: %+v", what, e)
		}
	}
	set := map[string]string{deploy: paused, "zone": "a", "example.com/new": "x"}
	held := settled(n.hold("a", options))
	expect("held", held, set, true)
	expect("released", held.release("a"), before, false)
	proving := prove(held, "a", &at)
	expect("proving", proving, before, false)
	expect("works again", prove(proving, "a", nil), set, true)
	expect("proven", proving.release("a"), before, false)

	both := settled(held.hold("b", v1alpha1.NodeMarks{Labels: map[string]v1alpha1.LabelValue{deploy: "stopped"}}))
	expect("two holders: the first by name counts", both, set, true)
	expect("the second works on", prove(both, "a", &at), map[string]string{deploy: "stopped", "zone": "a"}, true)
	expect("the second is left", both.release("a"), map[string]string{deploy: "stopped", "zone": "a"}, true)
	expect("none is left", both.release("a").release("b"), before, false)

	theirs := settled(held.edited(map[string]*string{deploy: new("theirs")}, nil))
	expect("changed by somebody", theirs, map[string]string{deploy: "theirs", "zone": "a", "example.com/new": "x"}, true)
	expect("and released", theirs.release("a"), map[string]string{deploy: "theirs", "zone": "a"}, false)
	expect("removed by somebody", settled(held.edited(map[string]*string{deploy: nil}, nil)).release("a"), map[string]string{"zone": "a"}, false)
	late := settled(proving.edited(map[string]*string{deploy: new("false")}, nil))
	expect("changed while it is proven", prove(late, "a", nil), map[string]string{deploy: "false", "zone": "a", "example.com/new": "x"}, true)
	expect("reset", held.With(held.Reset("a", held.Holds(nil))), before, false)
}

func TestResetRemovesMarks(t *testing.T) {
	held := markedNode(nil, nil).hold("a", allMarks)
	held = held.With(held.Announce([]Announced{{Holder: holderA, State: rollout.NodeDraining, Conditions: true}}, time.Unix(5, 0)))
	after := held.With(held.Reset("a", held.Holds(nil)))
	if after.HasMarks() || len(after.Labels) > 0 || len(after.Conditions) > 0 {
		t.Errorf("after the reset: %v %v %v", after.Labels, after.Annotations, after.Conditions)
	}
	both := held.hold("b", allMarks)
	if one := both.With(both.Reset("a", both.Holds(nil))); one.Labels[v1alpha1.LabelExcludeBalancers] == "" {
		t.Error("the reset of one Skyhook removed the marks of another one")
	}
}

// types are the lifecycle conditions of a node that are ours, in the order of Kubernetes.
func (n *Node) types() []corev1.NodeConditionType {
	var out []corev1.NodeConditionType
	for _, t := range lifecycleConditions {
		if slices.ContainsFunc(n.Conditions, func(c corev1.NodeCondition) bool { return c.Type == t && c.Status == corev1.ConditionTrue }) {
			out = append(out, t)
		}
	}
	return out
}

func TestLifecycleConditions(t *testing.T) {
	now := time.Unix(5, 0)
	planned := Announced{Holder: holderA, Title: "Skyhook a", State: rollout.NodePlanned, Conditions: true, Taints: true}
	draining, drained := planned, planned
	draining.State, drained.State = rollout.NodeDraining, rollout.NodeDrained
	other := Announced{Holder: holderB, Title: "Skyhook b", State: rollout.NodePlanned, Conditions: true}
	free := markedNode(nil, nil)
	held := free.hold("a", allMarks)
	wasDrained := held.With(held.Announce([]Announced{drained}, now))
	tainted := free.With(free.Announce([]Announced{planned}, now))
	const (
		isPlanned  = corev1.NodeMaintenancePlanned
		isDraining = corev1.NodeDrainInProgress
		isDrained  = corev1.NodeDrained
		isAtWork   = corev1.NodeMaintenanceInProgress
	)
	for _, c := range []struct {
		name      string
		node      *Node
		announced []Announced
		want      []corev1.NodeConditionType
		taint     bool
	}{
		{"nothing", free, nil, nil, false},
		{"still to come", free, []Announced{planned}, []corev1.NodeConditionType{isPlanned}, true},
		{"the hold was not written", free, []Announced{draining}, []corev1.NodeConditionType{isPlanned}, true},
		{"not to come any more", tainted, nil, nil, false},
		{"its turn has come", tainted.hold("a", allMarks), []Announced{draining}, []corev1.NodeConditionType{isPlanned, isDraining}, false},
		{"draining", held, []Announced{draining}, []corev1.NodeConditionType{isPlanned, isDraining}, false},
		{"drained", held, []Announced{drained}, []corev1.NodeConditionType{isDrained, isAtWork}, false},
		{"as before", wasDrained, nil, []corev1.NodeConditionType{isDrained, isAtWork}, false},
		{"drained again", wasDrained, []Announced{draining}, []corev1.NodeConditionType{isPlanned, isDraining}, false},
		{"another one comes next", wasDrained, []Announced{other}, []corev1.NodeConditionType{isPlanned, isDrained, isAtWork}, false},
		{"released", wasDrained.release("a"), nil, nil, false},
		{"a holder without conditions", free.hold("a", v1alpha1.NodeMarks{}), []Announced{drained}, nil, false},
	} {
		got := c.node.With(c.node.Announce(c.announced, now))
		if !slices.Equal(got.types(), c.want) || got.HasTaint(MaintenancePlanned) != c.taint {
			t.Errorf("%s: %v, tainted %v; want %v, %v", c.name, got.types(), got.HasTaint(MaintenancePlanned), c.want, c.taint)
		}
		if again := got.Announce(c.announced, now.Add(time.Hour)); !again.Empty() {
			t.Errorf("%s: announced twice: %+v", c.name, again)
		}
	}
}

func TestForeignLifecycleConditionsStay(t *testing.T) {
	raw := &corev1.Node{}
	raw.Name, raw.UID = "n1", "uid-n1"
	raw.Status.Conditions = []corev1.NodeCondition{
		{Type: corev1.NodeMaintenancePlanned, Status: corev1.ConditionFalse, Reason: "Admin"},
		{Type: corev1.NodeDrained, Status: corev1.ConditionTrue, Reason: "Other"},
	}
	held := Parse(raw, nil).hold("a", allMarks)
	for _, state := range []rollout.MaintenanceState{rollout.NodePlanned, rollout.NodeDraining, rollout.NodeDrained} {
		e := held.Announce([]Announced{{Holder: holderA, State: state, Conditions: true}}, time.Unix(5, 0))
		for _, c := range e.SetConditions {
			if c.Type == corev1.NodeMaintenancePlanned || c.Type == corev1.NodeDrained {
				t.Errorf("%s: condition %s of somebody else is overwritten", state, c.Type)
			}
		}
		if len(e.RemoveConditions) > 0 {
			t.Errorf("%s: removes %v", state, e.RemoveConditions)
		}
	}
}
