// SPDX-FileCopyrightText: The Skyhook authors
// SPDX-License-Identifier: Apache-2.0

package skyhook

import (
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/skyhook-k8s/skyhook/api/skyhook/v1alpha1"
	"github.com/skyhook-k8s/skyhook/internal/node"
	"github.com/skyhook-k8s/skyhook/internal/rollout"
	"github.com/skyhook-k8s/skyhook/internal/skyhook/plan"
)

// nodeWithSkyhook returns a node on which the Skyhook demo completed two packages and holds a cordon.
func nodeWithSkyhook(t *testing.T, change func(state v1alpha1.NodeState, rec *node.SkyhookRecord)) *node.Node {
	t.Helper()
	state := v1alpha1.NodeState{
		"motd|1.0.0":   {Name: "motd", Version: "1.0.0", Image: "r/motd", Stage: v1alpha1.StageConfig, State: v1alpha1.StateComplete},
		"tuning|1.2.0": {Name: "tuning", Version: "1.2.0", Image: "r/tuning", Stage: v1alpha1.StagePostInterrupt, State: v1alpha1.StateComplete},
	}
	rec := node.SkyhookRecord{
		Node: "uid-n1", Skyhook: "uid-demo", Visit: node.Visit{Admission: 4, Admitted: true}, Held: &node.Held{At: time.Unix(1000, 0).UTC()},
		Packages: map[string]*node.PackageRecord{
			"motd|1.0.0":   {At: "config/complete", Goal: node.GoalInstall},
			"tuning|1.2.0": {At: "post-interrupt/complete"},
		},
	}
	if change != nil {
		change(state, &rec)
	}
	text := node.FormatState(state)
	rec.State = node.HashState(text)
	return node.Parse(&corev1.Node{
		ObjectMeta: metav1.ObjectMeta{
			Name: "n1", UID: "uid-n1",
			Annotations: map[string]string{
				v1alpha1.PrefixNodeState + "demo": text, v1alpha1.PrefixRecord + "demo": rec.String(),
				v1alpha1.PrefixStatus + "demo": "in_progress", v1alpha1.PrefixCordon + "demo": "true", v1alpha1.PrefixVersion + "demo": "v1",
				v1alpha1.PrefixNodeState + "other": "{}",
			},
			Labels: map[string]string{v1alpha1.PrefixStatus + "demo": "in_progress", "pool": "a"},
		},
		Spec: corev1.NodeSpec{Unschedulable: true},
	}, nil)
}

func TestInstalledDistinguishesFinishedFromComplete(t *testing.T) {
	got, err := nodeWithSkyhook(t, nil).Installed("demo")
	if err != nil || len(got) != 2 {
		t.Fatal(got, err)
	}
	if got[0].Name != "motd" || got[0].Finished {
		t.Errorf("motd owes its interrupt and is said to be finished: %+v", got[0])
	}
	if got[1].Name != "tuning" || !got[1].Finished {
		t.Errorf("tuning is through and is said not to be: %+v", got[1])
	}
}

func TestResetLeavesNothingOfOneSkyhook(t *testing.T) {
	n := nodeWithSkyhook(t, nil)
	after := n.With(n.Reset("demo", n.Holds(nil)))
	keys := slices.Sorted(maps.Keys(after.Annotations))
	if want := []string{v1alpha1.AnnotationKnown, v1alpha1.PrefixNodeState + "other"}; !slices.Equal(keys, want) {
		t.Errorf("annotations %v are left, want %v", keys, want)
	}
	if len(after.Labels) != 1 || after.Unschedulable {
		t.Errorf("labels %v are left, and the node is cordoned: %v", after.Labels, after.Unschedulable)
	}
	if e := after.Reset("demo", nil); !e.Empty() {
		t.Errorf("a second reset changes something: %+v", e)
	}
}

func TestResetKeepsTheCordonOfOthers(t *testing.T) {
	before := nodeWithSkyhook(t, func(_ v1alpha1.NodeState, rec *node.SkyhookRecord) { rec.Held.WasCordoned = true })
	if e := before.Reset("demo", before.Holds(nil)); e.Unschedulable != nil {
		t.Error("the node was cordoned before Skyhook came, and is given back")
	}
	n := nodeWithSkyhook(t, nil)
	if e := n.Reset("demo", append(n.Holds(nil), rollout.Hold{Owner: rollout.ParseRef("NodeOp/default/x")})); e.Unschedulable != nil {
		t.Error("a NodeOp holds the node, and it is given back")
	}
}

func TestResetNeedsNoReadableState(t *testing.T) {
	broken := "{"
	n := nodeWithSkyhook(t, nil)
	n = n.With(node.Edit{Annotations: map[string]*string{v1alpha1.PrefixNodeState + "demo": &broken}})
	if _, err := n.Installed("demo"); err == nil || !strings.Contains(err.Error(), "nodeState_demo cannot be read") {
		t.Errorf("the unreadable state gives %v", err)
	}
	if e := n.Reset("demo", n.Holds(nil)); e.Unschedulable == nil || e.Annotations[v1alpha1.PrefixNodeState+"demo"] != nil {
		t.Errorf("the unreadable state stays: %+v", e)
	}
}

// The next compilation has the tasks that a rerun asks for.
func TestRerunIsOwed(t *testing.T) {
	s := &v1alpha1.Skyhook{ObjectMeta: metav1.ObjectMeta{Name: "demo", UID: "uid-demo"}}
	s.Spec.Packages = map[string]v1alpha1.Package{
		"motd": {Version: "1.0.0", Image: "r/motd"}, "tuning": {Version: "1.2.0", Image: "r/tuning"},
	}
	finished := func(_ v1alpha1.NodeState, rec *node.SkyhookRecord) {
		for key, p := range rec.Packages {
			name, _, _ := plan.CutKey(key)
			d := plan.NewDefinition(name, s.Spec.Packages[name])
			p.Goal, p.Hash, p.Config = "", d.Hash, d.Config
		}
	}
	for _, c := range []struct {
		stage v1alpha1.Stage
		want  []string
	}{
		{"", []string{"tuning|1.2.0/apply", "tuning|1.2.0/config"}},
		{v1alpha1.StageConfig, []string{"tuning|1.2.0/config"}},
		{v1alpha1.StagePostInterrupt, []string{"tuning|1.2.0/post-interrupt"}},
	} {
		n := nodeWithSkyhook(t, finished)
		if owed := owes(s, n); len(owed) != 0 {
			t.Fatalf("before the rerun %v is owed", owed)
		}
		e, err := n.Rerun("demo", "tuning", "v1.2", c.stage)
		if err != nil {
			t.Fatal(err)
		}
		if owed := owes(s, n.With(e)); !slices.Equal(owed, c.want) {
			t.Errorf("after a rerun of stage %q %v is owed, want %v", c.stage, owed, c.want)
		}
	}
	n := nodeWithSkyhook(t, finished)
	if owed := owes(s, n.With(n.Restart("demo"))); len(owed) != 4 {
		t.Errorf("after a restart %v is owed, want all", owed)
	}
	if _, err := n.Rerun("demo", "tuning", "9.0.0", ""); err == nil || !strings.Contains(err.Error(), "does not record package tuning in version 9.0.0") {
		t.Errorf("a version that is not there gives %v", err)
	}
	only := n.With(must(n.Rerun("demo", "motd", "1.0.0", "")))
	if e := must(only.Rerun("demo", "tuning", "1.2.0", "")); e.Annotations[v1alpha1.PrefixNodeState+"demo"] != nil {
		t.Error("the last package leaves an empty annotation")
	}
}

func owes(s *v1alpha1.Skyhook, n *node.Node) []string {
	c := Compile(&plan.Input{Skyhook: s, Nodes: []*node.Node{n}})
	var out []string
	for _, t := range c.Rollout.Targets {
		for _, task := range t.Tasks {
			out = append(out, task.ID)
		}
	}
	slices.Sort(out)
	return out
}

func must(e node.Edit, err error) node.Edit {
	if err != nil {
		panic(err)
	}
	return e
}

// TestRerunBesideCompactPod runs packages again in the moment in which a compact pod has begun a stage that is not recorded yet. The pod
// works on, unless its own package is the one.
func TestRerunBesideCompactPod(t *testing.T) {
	const head = "metadata: {name: demo}\nspec:\n  packages:\n"
	const finished, failing, own = "    b: {version: 1.0.0, image: example.org/b}\n", "    c: {version: 1.0.0, image: example.org/c}\n", "    a: {version: 1.0.0, image: example.org/a}\n"
	for name, isKnown := range map[string]bool{"": true, "a": false, "b": true, "c": true} {
		w := newTestCluster(t)
		w.config.PodLayout = plan.LayoutCompact
		n := w.addNode("n1")
		w.drive(w.apply(head + finished))
		w.fails["c|1.0.0/apply"] = 1
		w.drive(w.apply(head + finished + failing))
		s := w.apply(head + finished + failing + own)
		w.hangs["a|1.0.0/apply"], w.hangs["c|1.0.0/apply"] = true, true
		w.drive(s)
		pod := w.podOf(s, "n1", "a|1.0.0/apply")
		w.endStage(pod, 0, "")
		if name != "" {
			e, err := node.Parse(n.DeepCopy(), nil).Rerun("demo", name, "1.0.0", "")
			if err != nil {
				t.Fatal(err)
			}
			w.write("n1", e)
		}
		target := w.compile(s).Rollout.Targets[0]
		isFound := slices.ContainsFunc(target.Tasks, func(k rollout.Task) bool {
			return k.ID == "a|1.0.0/config" && k.State == rollout.StateRunning && k.Object.Name == pod.Name && !k.Object.Queued
		})
		if isFound != isKnown {
			t.Errorf("after a rerun of %q the stage that runs is known: %v", name, isFound)
		}
	}
}
