// SPDX-FileCopyrightText: The Skyhook authors
// SPDX-License-Identifier: Apache-2.0

package node

import (
	"encoding/json"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	nodeopv1 "github.com/skyhook-k8s/skyhook/api/nodeop/v1alpha1"
	"github.com/skyhook-k8s/skyhook/api/skyhook/v1alpha1"
	"github.com/skyhook-k8s/skyhook/internal/rollout"
)

const cordonDemo = v1alpha1.PrefixCordon + "demo"

var someTime = time.Date(2026, 5, 1, 12, 0, 0, 0, time.UTC)

// newNode returns a cordoned node with these annotations.
func newNode(annotations map[string]string) *corev1.Node {
	return &corev1.Node{
		ObjectMeta: metav1.ObjectMeta{Name: "n1", UID: "uid-n1", ResourceVersion: "1", Annotations: annotations},
		Spec:       corev1.NodeSpec{Unschedulable: true},
	}
}

// addNodeOpHold records the hold of a NodeOp.
func addNodeOpHold(n *corev1.Node, name string, uid types.UID, wasCordoned bool) {
	op := &nodeopv1.NodeOp{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: name, UID: uid}}
	n.Annotations[OpRecordKey(string(uid))] = OpRecord{
		Node: string(n.UID), NodeOp: nodeopv1.CordonedBy(op), Admitted: true, Held: &Held{At: someTime, WasCordoned: wasCordoned},
	}.String()
}

func TestResetUncordonsOnlyAfterTheLastHold(t *testing.T) {
	const first, second = "aaaaaaaa-0000-4000-8000-000000000001", "bbbbbbbb-0000-4000-8000-000000000002"
	n := newNode(map[string]string{cordonDemo: "true"})
	addNodeOpHold(n, "first", first, false)
	addNodeOpHold(n, "second", second, false)
	for _, held := range []int{3, 2} {
		parsed := Parse(n, nil)
		if holds := parsed.Holds(nil); len(holds) != held {
			t.Fatalf("the node has the holds %v, want %d", holds, held)
		}
		if e := parsed.Reset("demo", parsed.Holds(nil)); e.Unschedulable != nil {
			t.Errorf("with %d holds a reset uncordons the node", held)
		}
		delete(n.Annotations, OpRecordKey(first))
	}
	delete(n.Annotations, OpRecordKey(second))
	parsed := Parse(n, nil)
	if e := parsed.Reset("demo", parsed.Holds(nil)); e.Unschedulable == nil || *e.Unschedulable {
		t.Errorf("without other holds a reset leaves the node cordoned: %+v", e)
	}
}

func TestResetKeepsAnEarlierCordon(t *testing.T) {
	n := newNode(map[string]string{cordonDemo: "true"})
	n.Annotations[v1alpha1.PrefixRecord+"demo"] = SkyhookRecord{Node: "uid-n1", Held: &Held{At: someTime, WasCordoned: true}}.String()
	parsed := Parse(n, nil)
	if e := parsed.Reset("demo", parsed.Holds(nil)); e.Unschedulable != nil {
		t.Error("the node was cordoned before the Skyhook held it, and a reset uncordons it")
	}
}

// A hold stands in the record too: without its annotation the node is still held, and released with what was before.
func TestHoldWithoutItsAnnotation(t *testing.T) {
	n := newNode(map[string]string{v1alpha1.PrefixRecord + "demo": SkyhookRecord{Node: "uid-n1", Held: &Held{At: someTime}}.String()})
	parsed := Parse(n, nil)
	if holds := parsed.Holds(nil); len(holds) != 1 || holds[0].WasCordoned || !parsed.MayBeDrained() {
		t.Errorf("the holds are %+v", holds)
	}
	n.UID = "uid-of-a-new-node"
	if holds := Parse(n, nil).Holds(nil); len(holds) > 0 {
		t.Errorf("another node of the same name has the holds %+v", holds)
	}
}

// A record of an earlier node of the same name holds nothing.
func TestHoldsOfAnotherNodeDoNotCount(t *testing.T) {
	n := newNode(map[string]string{})
	addNodeOpHold(n, "check", "aaaaaaaa-0000-4000-8000-000000000001", false)
	n.UID = "uid-of-a-new-node"
	if holds := Parse(n, nil).Holds(nil); len(holds) > 0 {
		t.Errorf("the node has the holds %v", holds)
	}
}

func TestHoldOfADeletedNodeOpIsNamedWithItsUID(t *testing.T) {
	const uid = "aaaaaaaa-0000-4000-8000-000000000001"
	n := newNode(map[string]string{})
	addNodeOpHold(n, "check", uid, false)
	holds := Parse(n, nil).Holds(func(rollout.Ref, string) bool { return false })
	if len(holds) != 1 || holds[0].Owner.String() != "NodeOp/default/check@"+uid {
		t.Errorf("the holds are %v", holds)
	}
}

func TestParseReusesWhatHasNotChanged(t *testing.T) {
	n := newNode(map[string]string{v1alpha1.PrefixNodeState + "a": exampleState, v1alpha1.PrefixNodeState + "b": "{}"})
	before := Parse(n, nil)
	if Parse(n, before) != before {
		t.Error("the same version is parsed again")
	}
	n.ResourceVersion, n.Annotations = "2", maps.Clone(n.Annotations)
	n.Annotations[v1alpha1.PrefixNodeState+"b"] = "{"
	after := Parse(n, before)
	if after.Skyhook("b").Problem == "" || after.Skyhook("a").Problem != "" {
		t.Errorf("the problems are %q and %q", after.Skyhook("a").Problem, after.Skyhook("b").Problem)
	}
	if fresh := Parse(n, nil); fresh.Skyhook("a").Shape != after.Skyhook("a").Shape {
		t.Error("what is reused differs from what is parsed anew")
	}
	recreated := n.DeepCopy()
	recreated.UID = "uid-of-a-new-node"
	if Parse(recreated, after) == after {
		t.Error("a new node of the same name and version is taken for the old one")
	}
}

// Two edits and their sum lead to the same node, and to a patch of nothing else.
func TestPlusIsTheSumOfTwoEdits(t *testing.T) {
	taint := func(key string) corev1.Taint { return corev1.Taint{Key: key, Effect: corev1.TaintEffectNoSchedule} }
	object := newNode(map[string]string{"a": "1", "b": "1"})
	object.Spec.Taints = []corev1.Taint{taint("old"), taint("kept")}
	n := Parse(object, nil)
	first, second := Edit{AddTaints: []corev1.Taint{taint("new"), taint("short")}}, Edit{AddTaints: []corev1.Taint{taint("old")}, RemoveTaints: []corev1.Taint{taint("short")}}
	first.RemoveTaints = []corev1.Taint{taint("old")}
	first.SetAnnotation(n, "a", "2")
	first.RemoveAnnotation(n, "b")
	first.SetUnschedulable(n, false)
	second.SetAnnotation(n.With(first), "b", "3")
	second.SetUnschedulable(n.With(first), true)
	first.SetConditions = []corev1.NodeCondition{{Type: "x", Reason: "First"}, {Type: "y", Reason: "First"}}
	second.SetConditions = []corev1.NodeCondition{{Type: "x", Reason: "Second"}}
	second.RemoveConditions = []corev1.NodeConditionType{"y"}

	oneByOne, together := n.With(first).With(second), n.With(first.Plus(second))
	for _, part := range []struct {
		name      string
		got, want any
	}{
		{"annotations", together.Annotations, oneByOne.Annotations},
		{"taints", sortedTaints(together), sortedTaints(oneByOne)},
		{"conditions", together.Conditions, oneByOne.Conditions},
		{"unschedulable", together.Unschedulable, oneByOne.Unschedulable},
	} {
		if got, want := EncodeJSON(part.got), EncodeJSON(part.want); got != want {
			t.Errorf("%s: together %s, one by one %s", part.name, got, want)
		}
	}
	if n.Annotations["a"] != "1" || !n.Unschedulable || len(n.Taints) != 2 {
		t.Error("the edits changed the node they were made for")
	}
}

func sortedTaints(n *Node) []string {
	var out []string
	for _, t := range n.Taints {
		out = append(out, t.ToString())
	}
	return slices.Sorted(slices.Values(out))
}

// TestMergePatchNamesWhatChanges checks that a patch names nothing but what changes, and the version that it changes.
func TestMergePatchNamesWhatChanges(t *testing.T) {
	n := Parse(newNode(map[string]string{"a": "1"}), nil)
	e := Edit{}
	e.RemoveAnnotation(n, "a")
	e.SetAnnotation(n, "b", "") // changes nothing
	for _, c := range []struct {
		edit Edit
		want string
	}{
		{e, `{"metadata":{"annotations":{"a":null},"resourceVersion":"1","uid":"uid-n1"}}`},
		{Edit{AddTaints: []corev1.Taint{{Key: "k", Effect: corev1.TaintEffectNoExecute}}},
			`{"metadata":{"resourceVersion":"1","uid":"uid-n1"},"spec":{"taints":[{"key":"k","effect":"NoExecute"}]}}`},
	} {
		got, err := json.Marshal(c.edit.MergePatch(n))
		if err != nil || string(got) != c.want {
			t.Errorf("the patch is %s, %v; want %s", got, err, c.want)
		}
	}
}

// TestPatchWithStatus checks that it has the metadata and the conditions of an edit, for the version that it changes.
func TestPatchWithStatus(t *testing.T) {
	n := Parse(newNode(map[string]string{"a": "1"}), nil)
	e := Edit{SetConditions: []corev1.NodeCondition{{Type: "b", Status: corev1.ConditionTrue}}, RemoveConditions: []corev1.NodeConditionType{"c"}}
	e.RemoveAnnotation(n, "a")
	got, err := json.Marshal(e.PatchWithStatus(n))
	want := `{"metadata":{"annotations":{"a":null},"resourceVersion":"1","uid":"uid-n1"},"status":{"conditions":[{"$patch":"delete","type":"c"},` +
		`{"type":"b","status":"True","lastHeartbeatTime":null,"lastTransitionTime":null}]}}`
	if err != nil || string(got) != want {
		t.Errorf("the patch is %s, %v; want %s", got, err, want)
	}
}

func TestTruncateCountsCharacters(t *testing.T) {
	for _, c := range []struct{ text, want string }{
		{"short", "short"}, {"ääääää", "ääääää"}, {"a longer text", "a lon…"}, {"ääääääääää", "äääää…"},
	} {
		if got := Truncate(c.text, 6); got != c.want {
			t.Errorf("%s becomes %s, want %s", c.text, got, c.want)
		}
	}
	if got := Truncate(strings.Repeat("\xff", 20), 6); !utf8.ValidString(got) {
		t.Errorf("%q is not valid UTF-8", got)
	}
}

func TestEarlier(t *testing.T) {
	never, later := time.Time{}, someTime.Add(time.Second)
	for _, c := range []struct{ a, b, want time.Time }{
		{someTime, later, someTime}, {later, someTime, someTime}, {never, later, later}, {later, never, later}, {never, never, never},
	} {
		if got := Earlier(c.a, c.b); !got.Equal(c.want) {
			t.Errorf("of %v and %v: %v", c.a, c.b, got)
		}
	}
}

// A node is down in its reboot while it is not ready and an interrupt that reboots it is recorded.
func TestIsDownInReboot(t *testing.T) {
	rec, _ := newRecord()
	n := newNode(map[string]string{v1alpha1.PrefixRecord + "demo": rec.String()})
	if Parse(n, nil).IsDownInReboot("demo") {
		t.Error("no interrupt is recorded")
	}
	p := rec.Packages["running|1.0.0"]
	p.Interrupt, p.Payload, p.Boot = "some-id", &v1alpha1.Interrupt{Type: v1alpha1.InterruptReboot}, "boot-1"
	n = newNode(map[string]string{v1alpha1.PrefixRecord + "demo": rec.String()})
	if got := Parse(n, nil); !got.IsDownInReboot("demo") || got.IsDownInReboot("other") {
		t.Error("the node is not ready, and demo reboots it")
	}
	n.Status.Conditions = []corev1.NodeCondition{{Type: corev1.NodeReady, Status: corev1.ConditionTrue}}
	n.ResourceVersion = "2"
	if Parse(n, nil).IsDownInReboot("demo") {
		t.Error("the node is ready")
	}
}

// TestWithoutUnchanged puts edits together of which the second undoes the first, in part.
func TestWithoutUnchanged(t *testing.T) {
	n := &Node{Annotations: map[string]string{"a": "1", "b": "1"}, Labels: map[string]string{"l": "1"}, Unschedulable: true}
	two, yes, no := "2", true, false
	first := Edit{Annotations: map[string]*string{"a": &two, "b": &two, "new": &two}, Labels: map[string]*string{"l": nil}, Unschedulable: &no}
	after := n.With(first)
	var second Edit
	second.SetAnnotation(after, "a", "1")
	second.RemoveAnnotation(after, "new")
	second.SetLabel(after, "l", "1")
	second.SetUnschedulable(after, true)
	if got := first.Plus(second).WithoutUnchanged(n); len(got.Annotations) != 1 || got.Annotations["b"] != &two || len(got.Labels) != 0 || got.Unschedulable != nil {
		t.Errorf("what is left is %+v", got)
	}
	second.Unschedulable = &yes
	if !first.Plus(second).WithoutUnchanged(&Node{}).TouchesNode() {
		t.Error("on another node nothing is left")
	}
}
