// SPDX-FileCopyrightText: The Skyhook authors
// SPDX-License-Identifier: Apache-2.0

package skyhook

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/skyhook-k8s/skyhook/api/skyhook/v1alpha1"
	"github.com/skyhook-k8s/skyhook/internal/node"
	"github.com/skyhook-k8s/skyhook/internal/pack"
	"github.com/skyhook-k8s/skyhook/internal/rollout"
	"github.com/skyhook-k8s/skyhook/internal/rollout/engine"
	"github.com/skyhook-k8s/skyhook/internal/skyhook/plan"
	"github.com/skyhook-k8s/skyhook/internal/skyhook/podstate"
)

const simple = `{metadata: {name: demo}, spec: {packages: {tuning: {version: 1.0.0, image: example.org/p, configMap: {a: "1"}}}}}`

// TestRecordCounts checks that nodeState wins over the record.
func TestRecordCounts(t *testing.T) {
	complete := v1alpha1.PackageStatus{Stage: v1alpha1.StageConfig, State: v1alpha1.StateComplete}
	failing := v1alpha1.PackageStatus{Stage: v1alpha1.StageApply, State: v1alpha1.StateErroring}
	state := v1alpha1.NodeState{"a|1": complete, "b|1": failing}
	rec := node.SkyhookRecord{
		Node: "n", Skyhook: "s", State: node.HashState(node.FormatState(state)), Visit: node.Visit{Admission: 3, Admitted: true}, Held: &node.Held{WasCordoned: true},
		Packages: map[string]*node.PackageRecord{"a|1": {At: "config/complete"}, "b|1": {At: "apply/erroring", Goal: node.GoalInstall}},
	}
	for _, c := range []struct {
		name          string
		node, skyhook string
		text          string
		state         v1alpha1.NodeState
		admitted      bool
		packages      string
		held          bool
	}{
		{"as it was written", "n", "s", node.FormatState(state), state, true, "a|1 b|1", true},
		{"one entry was changed", "n", "s", "changed", v1alpha1.NodeState{"a|1": failing, "b|1": failing}, true, "b|1", true},
		{"one entry was removed", "n", "s", "changed", v1alpha1.NodeState{"a|1": complete}, true, "a|1", true},
		{"only the text was changed", "n", "s", " " + node.FormatState(state), state, true, "a|1 b|1", true},
		{"nodeState was deleted", "n", "s", "", nil, false, "", true},
		{"nodeState was emptied", "n", "s", "{}", v1alpha1.NodeState{}, false, "", true},
		{"another Skyhook of that name", "n", "s2", node.FormatState(state), state, false, "a|1", true},
		{"another node of that name", "n2", "s", node.FormatState(state), state, false, "", false},
	} {
		got := rec.Effective(c.node, c.skyhook, node.HashState(c.text), c.state)
		if got.Admitted != c.admitted || strings.Join(plan.SortedNames(got.Packages), " ") != c.packages || (got.Held != nil) != c.held {
			t.Errorf("%s: admitted %v, packages %v, held %v", c.name, got.Admitted, plan.SortedNames(got.Packages), got.Held != nil)
		}
		if got.Admission != 3 {
			t.Errorf("%s: admission %d: numbers never come again", c.name, got.Admission)
		}
	}
	empty := node.SkyhookRecord{Node: "n", Skyhook: "s", State: node.HashState("{}"), Visit: node.Visit{Admitted: true}}
	if !empty.Effective("n", "s", node.HashState("{}"), v1alpha1.NodeState{}).Admitted {
		t.Error("a node without packages is no longer admitted before it is released")
	}
}

// TestSizes checks that a package that its ConfigMaps or pods cannot carry is refused.
func TestSizes(t *testing.T) {
	long := func(size int) string { return strings.Repeat("x", size) }
	for _, c := range []struct {
		env, config int
		want        string
	}{
		{100 << 10, 800 << 10, ""},
		{600 << 10, 0, "env of package tuning has "},
		{200 << 10, 900 << 10, "env and configMap of package tuning have "},
		{0, 1000 << 10, "configMap of package tuning has "},
	} {
		var variables []string
		for i := 0; i < c.env; i += 100 << 10 {
			variables = append(variables, fmt.Sprintf("{name: V%d, value: %s}", i, long(100<<10)))
		}
		w := newTestCluster(t)
		s := w.apply(fmt.Sprintf("{metadata: {name: demo}, spec: {packages: {tuning: {version: 1.0.0, image: example.org/p, env: [%s], configMap: {a: %q}}}}}",
			strings.Join(variables, ", "), long(c.config)))
		var got []string
		for _, p := range w.compile(s).Problems {
			got = append(got, p.Text)
		}
		if text := strings.Join(got, "; "); !strings.HasPrefix(text, c.want) || (text == "") != (c.want == "") {
			t.Errorf("%d bytes of env and %d of configMap: %q, want %q", c.env, c.config, text, c.want)
		}
	}
}

func env(p *corev1.Pod, name string) string {
	for _, c := range p.Spec.InitContainers {
		for _, e := range c.Env {
			if e.Name == name {
				return e.Value
			}
		}
	}
	return ""
}

// TestRunIDs checks that the id stays within one admission, and changes with the next, after a reset and for a new Skyhook.
func TestRunIDs(t *testing.T) {
	ids := map[string]string{}
	note := func(w *testCluster, name string) {
		for _, p := range w.pods {
			ids[name] = env(p, pack.EnvRunID)
		}
	}
	w := newTestCluster(t)
	s := w.apply(simple)
	w.addNode("n1")
	w.hangs["tuning|1.0.0/apply"] = true
	w.drive(s)
	note(w, "first apply")
	w.pods = nil
	w.drive(s)
	note(w, "apply after a lost pod")
	w.hangs = map[string]bool{"tuning|1.0.0/config": true}
	w.drive(s)
	note(w, "config of the same admission")
	w.pods, w.hangs = nil, map[string]bool{}
	delete(w.node("n1").Annotations, v1alpha1.PrefixNodeState+"demo")
	w.bumpVersion(w.node("n1"))
	w.hangs["tuning|1.0.0/apply"] = true
	w.drive(s)
	note(w, "after a reset")
	w.pods, w.hangs = nil, map[string]bool{}
	w.drive(s)
	w.apply(`{metadata: {name: demo}, spec: {packages: {tuning: {version: 1.0.0, image: example.org/p, configMap: {a: "2"}}}}}`)
	w.hangs["tuning|1.0.0/config"] = true
	w.drive(w.skyhooks[0])
	note(w, "the next admission")
	w.pods, w.hangs = nil, map[string]bool{}
	w.skyhooks = nil
	s = w.apply(simple)
	s.UID = "another"
	delete(w.node("n1").Annotations, v1alpha1.PrefixNodeState+"demo")
	w.bumpVersion(w.node("n1"))
	w.hangs["tuning|1.0.0/apply"] = true
	w.drive(s)
	note(w, "the Skyhook made anew")
	if ids["first apply"] == "" || ids["first apply"] != ids["apply after a lost pod"] || ids["first apply"] != ids["config of the same admission"] {
		t.Errorf("ids of one admission differ: %v", ids)
	}
	seen := map[string]string{}
	for _, name := range []string{"first apply", "after a reset", "the next admission", "the Skyhook made anew"} {
		if before := seen[ids[name]]; before != "" {
			t.Errorf("%s has the id of %s: %s", name, before, ids[name])
		}
		seen[ids[name]] = name
	}
}

// TestInterruptIDs checks that a retried reboot keeps its id, whatever was edited meanwhile, and that two reboots in one
// admission have two ids.
func TestInterruptIDs(t *testing.T) {
	w := newTestCluster(t)
	two := `{metadata: {name: demo}, spec: {packages: {
		one: {version: 1.0.0, image: example.org/p, interrupt: {type: reboot}},
		two: {version: 1.0.0, image: example.org/%s, interrupt: {type: reboot}, dependsOn: {one: 1.0.0}}}}}`
	s := w.apply(fmt.Sprintf(two, "p"))
	w.addNode("n1")
	w.hangs["one|1.0.0/interrupt"] = true
	w.drive(s)
	first := env(w.pods[0], pack.EnvInterruptID)
	dir := w.pods[0].Spec.InitContainers[0].Args[2]
	w.pods = nil
	s = w.apply(fmt.Sprintf(two, "q"))
	w.drive(s)
	if again := env(w.pods[0], pack.EnvInterruptID); again != first || first == "" {
		t.Errorf("the id was %q and is %q after the pod was lost and the spec edited", first, again)
	}
	if again := w.pods[0].Spec.InitContainers[0].Args[2]; again != dir {
		t.Errorf("the copy directory was %s and is %s", dir, again)
	}
	w.hangs = map[string]bool{"two|1.0.0/interrupt": true}
	w.drive(s)
	if second := env(w.pods[len(w.pods)-1], pack.EnvInterruptID); second == first || second == "" {
		t.Errorf("the second reboot of one admission has the id of the first: %q", second)
	}
}

// TestInterruptIDAfterEdit: the host interrupts once for each id. A reboot that did not come back in time, and an edit after which the
// stages before it run again, lead to another reboot, which the host must not take for the first.
func TestInterruptIDAfterEdit(t *testing.T) {
	w := newTestCluster(t)
	const spec = `{metadata: {name: demo}, spec: {packages: {one: {version: 1.0.0, image: example.org/p, interrupt: {type: reboot}, configInterrupts: {a: {type: reboot}}, configMap: {a: "%s"}}}}}`
	s := w.apply(fmt.Sprintf(spec, "1"))
	w.addNode("n1")
	w.hangs["one|1.0.0/interrupt"] = true
	w.drive(s)
	first := env(w.pods[0], pack.EnvInterruptID)
	w.pods = nil
	w.applyAction(w.compile(s), rollout.Action{Node: "n1", Verb: rollout.VerbRecord, Task: "one|1.0.0/interrupt", State: rollout.StateFailing, Attempts: 1})
	s = w.apply(fmt.Sprintf(spec, "2"))
	w.now = w.now.Add(time.Minute)
	if does := w.drive(s); !strings.Contains(does, "one|1.0.0/config") {
		t.Fatalf("the config stage does not run again: %s", does)
	}
	if second := env(w.pods[len(w.pods)-1], pack.EnvInterruptID); second == first || second == "" || first == "" {
		t.Errorf("the reboot after the edit has id %q, the one before it %q", second, first)
	}
}

// TestFrozenDefinitions checks that definitions stay exactly as long as a node records them; the documented ConfigMap has
// the content of the spec.
func TestFrozenDefinitions(t *testing.T) {
	w := newTestCluster(t)
	s := w.apply(simple)
	w.addNode("n1")
	w.drive(s)
	all := func() (out []*corev1.ConfigMap) {
		for _, name := range plan.SortedNames(w.maps) {
			out = append(out, w.maps[name])
		}
		return out
	}
	old := w.compile(s).facts.Packages["tuning"]
	s = w.apply(strings.Replace(simple, `a: "1"`, `a: "2"`, 1))
	c := w.compile(s)
	if gone := c.Superfluous(all()); len(gone) > 0 {
		t.Errorf("%v go while n1 records the old definition", gone)
	}
	if got := w.maps["demo-tuning-1.0.0"].Data["a"]; got != "2" {
		t.Errorf("the documented ConfigMap holds %q", got)
	}
	frozen, ok := plan.ParseDefinition(w.maps[plan.DefinitionName("demo", old)])
	if !ok || frozen.Hash != old.Hash || frozen.Package.ConfigMap["a"] != "1" || frozen.PodHash != old.PodHash {
		t.Errorf("the frozen definition came back as %+v", frozen)
	}
	w.drive(s)
	if gone := w.compile(s).Superfluous(all()); !slices.Equal(gone, []string{plan.DefinitionName("demo", old)}) {
		t.Errorf("%v are superfluous once no node records the old definition", gone)
	}
	spoilt := w.maps[plan.DefinitionName("demo", old)].DeepCopy()
	spoilt.Data["a"] = "3"
	if _, ok := plan.ParseDefinition(spoilt); ok {
		t.Error("a definition that does not have its hash is believed")
	}
	if _, ok := plan.ParseDefinition(w.maps["demo-tuning-1.0.0"]); ok {
		t.Error("a package ConfigMap is taken for a definition")
	}
	s = w.apply(`{metadata: {name: demo}, spec: {packages: {}}}`)
	w.drive(s)
	gone := w.compile(s).Superfluous(append(all(), w.compile(s).NodeMetadata(&node.Node{Name: "vanished"}), &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: "somebody-elses"}}))
	if len(gone) != 4 || slices.Contains(gone, "somebody-elses") {
		t.Errorf("%v go after everything was removed", gone)
	}
}

// TestDefinitionOfRemoval checks that the definition of a removal that has not begun stays: no node records it when an earlier
// Skyhook of that name was deleted before the package was complete.
func TestDefinitionOfRemoval(t *testing.T) {
	w := newTestCluster(t)
	n := w.addNode("n1")
	w.drive(w.apply(simple))
	delete(n.Annotations, v1alpha1.PrefixRecord+"demo")
	w.bumpVersion(n)
	w.recreate(strings.Replace(simple, "1.0.0", "0.9.0", 1))
	s := w.skyhooks[0]
	if c := w.compile(s); len(c.extra) != 1 {
		t.Fatalf("the removal has the definitions %v", c.extra)
	}
	if gone := w.compile(s).Superfluous(slices.Collect(maps.Values(w.maps))); len(gone) > 0 {
		t.Errorf("%v go before the removal", gone)
	}
}

// TestLostDefinition checks that every key counts as changed when the old definition is lost.
func TestLostDefinition(t *testing.T) {
	text := `{metadata: {name: demo}, spec: {packages: {tuning: {version: 1.0.0, image: example.org/p, interrupt: {type: reboot},
		configInterrupts: {a: {type: service, services: [cron]}}, configMap: {a: "1", b: "%s"}}}}}`
	w := newTestCluster(t)
	s := w.apply(fmt.Sprintf(text, "1"))
	w.addNode("n1")
	w.drive(s)
	w.maps = map[string]*corev1.ConfigMap{}
	s = w.apply(fmt.Sprintf(text, "2"))
	if got, want := w.drive(s), "n1 tuning|1.0.0/config\nn1 tuning|1.0.0/interrupt service cron\nn1 tuning|1.0.0/post-interrupt"; got != want {
		t.Errorf("it ran\n%s\nwant\n%s", got, want)
	}
}

// TestServerDefaults checks that defaults of the API server do not make a pod outdated.
func TestServerDefaults(t *testing.T) {
	w := newTestCluster(t)
	s := w.apply(`{metadata: {name: demo}, spec: {packages: {tuning: {version: 1.0.0, image: example.org/p,
		env: [{name: NODE, valueFrom: {fieldRef: {fieldPath: spec.nodeName}}}], resources: {cpuRequest: 0.1, cpuLimit: 1000m, memoryRequest: 1Mi, memoryLimit: 1024Ki}}}}}`)
	w.addNode("n1")
	w.hangs["tuning|1.0.0/apply"] = true
	w.drive(s)
	for i := range w.pods[0].Spec.InitContainers {
		c := &w.pods[0].Spec.InitContainers[i]
		c.TerminationMessagePath, c.ImagePullPolicy = "/dev/termination-log", corev1.PullIfNotPresent
		for j := range c.Env {
			if f := c.Env[j].ValueFrom; f != nil && f.FieldRef != nil {
				f.FieldRef.APIVersion = "v1"
			}
		}
	}
	w.pods[0].Spec.InitContainers = append(w.pods[0].Spec.InitContainers, corev1.Container{Name: "injected"})
	c := w.compile(s)
	if got := c.Rollout.Targets[0]; len(got.Objects.Orphans) > 0 || got.Tasks[0].Object.Stale {
		t.Errorf("the pod is given up: %+v", got)
	}
}

// TestAttempts checks that failed attempts count until an edit, a rerun or a new admission.
func TestAttempts(t *testing.T) {
	text := `{metadata: {name: demo}, spec: {packages: {tuning: {version: 1.0.0, image: example.org/%s, retries: 1}}}}`
	w := newTestCluster(t)
	s := w.apply(fmt.Sprintf(text, "p"))
	w.addNode("n1")
	w.hangs["tuning|1.0.0/apply"] = true
	w.drive(s)
	w.endPod(w.pods[0], 1, "")
	w.applyAction(w.compile(s), rollout.Action{Verb: rollout.VerbRecord, Node: "n1", Task: "tuning|1.0.0/apply", State: rollout.StateFailing, Attempts: 2})
	w.pods = nil
	task := func() rollout.Task { return w.compile(w.skyhooks[0]).Rollout.Targets[0].Tasks[0] }
	if got := task(); got.Attempts.Failed != 2 || got.Attempts.Noted != 2 || got.Retries != 2 || !got.Bounded || got.Attempts.FailedAt.IsZero() || got.Recorded != rollout.StateFailing {
		t.Errorf("after two failed attempts the task is %+v", got)
	}
	w.applyAction(w.compile(s), rollout.Action{Verb: rollout.VerbRun, Node: "n1", Task: "tuning|1.0.0/apply"})
	w.endPod(w.pods[0], 1, "")
	if got := task(); got.Attempts.Failed != 3 {
		t.Errorf("a pod that fails after two failed ones makes %d attempts", got.Attempts.Failed)
	}
	w.pods = nil
	w.apply(fmt.Sprintf(text, "q"))
	if got := task(); got.Attempts.Failed != 0 || !got.Attempts.FailedAt.IsZero() {
		t.Errorf("after an edit the task is %+v", got)
	}
}

// TestEqualQuantities writes quantities in other ways: it is the same definition, and the running pod stays.
func TestEqualQuantities(t *testing.T) {
	const spec = `{metadata: {name: demo}, spec: {packages: {tuning: {version: 1.0.0, image: example.org/p, resources: {%s},
		env: [{name: CPU, valueFrom: {resourceFieldRef: {resource: limits.memory, divisor: %s}}}]}}}}`
	w := newTestCluster(t)
	s := w.apply(fmt.Sprintf(spec, "cpuRequest: 500m, cpuLimit: 4, memoryRequest: 512Mi, memoryLimit: 1Gi", "1Mi"))
	w.addNode("n1")
	w.hangs["tuning|1.0.0/apply"] = true
	w.drive(s)
	before := w.compile(s).facts.Packages["tuning"].Hash
	s = w.apply(fmt.Sprintf(spec, `cpuRequest: "0.5", cpuLimit: 4000m, memoryRequest: "536870912", memoryLimit: 1024Mi`, `"1048576"`))
	c := w.compile(s)
	if after := c.facts.Packages["tuning"].Hash; after != before {
		t.Errorf("the definition %s became %s", before, after)
	}
	if task := c.Rollout.Targets[0].Tasks[0]; task.Object.Stale || len(c.Rollout.Targets[0].Objects.Orphans) > 0 {
		t.Errorf("the pod is replaced: %s", formatRollout(c))
	}
	if got := fmt.Sprint(c.facts.Packages["tuning"].Package.Resources.CPULimit.String(), " ", c.facts.Packages["tuning"].Package.Resources.MemoryRequest.String()); got != "4 512Mi" {
		t.Errorf("resources are %s, want 4 512Mi", got)
	}
	s = w.apply(fmt.Sprintf(spec, "cpuRequest: 500m, cpuLimit: 5, memoryRequest: 512Mi, memoryLimit: 1Gi", "1Mi"))
	if w.compile(s).facts.Packages["tuning"].Hash == before {
		t.Error("another limit is the same definition")
	}
}

// TestTaintAfterReboot taints a runtime-required node again when it booted for other reasons than an interrupt.
func TestTaintAfterReboot(t *testing.T) {
	for _, reapply := range []bool{true, false} {
		w := newTestCluster(t)
		w.config.ReapplyOnReboot = reapply
		s := w.apply(`{metadata: {name: demo}, spec: {runtimeRequired: true, autoTaintNewNodes: true, packages: {tuning: {version: 1.0.0, image: example.org/p}}}}`)
		n := w.addNode("n1")
		w.drive(s)
		n.Status.NodeInfo.BootID = w.nextBoot(n.Status.NodeInfo.BootID)
		w.bumpVersion(n)
		c := w.compile(s)
		plan := engine.Decide(rollout.Snapshot{
			Now: w.now, Groups: c.Groups, Ledgers: []rollout.Ledger{c.Ledger}, Rollouts: []rollout.Rollout{c.Rollout},
			Nodes: []rollout.Node{{Name: "n1", UID: string(n.UID), Ready: true, BootID: n.Status.NodeInfo.BootID, Known: true}},
		})
		tainted := slices.ContainsFunc(plan.Actions, func(a rollout.Action) bool { return a.Verb == rollout.VerbTaint })
		if tainted != reapply {
			t.Errorf("with REAPPLY_ON_REBOOT=%v the node is tainted: %v", reapply, tainted)
		}
	}
}

// TestPodOfEarlierName takes a pod over whose name an earlier version chose: it is awaited, and none is created beside it.
func TestPodOfEarlierName(t *testing.T) {
	w := newTestCluster(t)
	s := w.apply(simple)
	w.addNode("n1")
	w.applyAction(w.compile(s), rollout.Action{Verb: rollout.VerbAdmit, Node: "n1"})
	w.applyAction(w.compile(s), rollout.Action{Verb: rollout.VerbRun, Node: "n1", Task: "tuning|1.0.0/apply"})
	pod := w.pods[0]
	pod.Name = plan.EarlierSafeName(plan.MaxPodName, "demo", "tuning", "1.0.0", "apply", "n1")
	if task := w.compile(s).Rollout.Targets[0].Tasks[0]; task.Object.Name != pod.Name || task.State != rollout.StateRunning || task.Lost {
		t.Errorf("the task is %+v", task)
	}
	pod.Annotations[podstate.AnnotationRun] = "earlier"
	task := w.compile(s).Rollout.Targets[0].Tasks[0]
	if !task.Object.Leaving || task.Why == nil || !strings.Contains(task.Why.Text, "an earlier pod "+pod.Name+" has to go first") {
		t.Errorf("beside a pod of an earlier run the task is %+v", task)
	}
}

// TestKeptRecordIsBounded deletes a Skyhook with thousands of keys in its configMaps: what stays on the node fits into its annotations.
func TestKeptRecordIsBounded(t *testing.T) {
	var packages []string
	for _, name := range []string{"aa", "bb", "cc"} {
		var keys []string
		for i := range 200 {
			keys = append(keys, fmt.Sprintf("k%d%s: x", i, strings.Repeat("y", 240)))
		}
		packages = append(packages, fmt.Sprintf("%s: {version: 1.0.0, image: example.org/p, configMap: {%s}}", name, strings.Join(keys, ", ")))
	}
	w := newTestCluster(t)
	s := w.apply(fmt.Sprintf("{metadata: {name: demo}, spec: {packages: {%s}}}", strings.Join(packages, ", ")))
	w.addNode("n1")
	w.drive(s)
	s.DeletionTimestamp = &metav1.Time{Time: w.now}
	e, err := w.compile(s).Change(rollout.Action{Verb: rollout.VerbRetire, Node: "n1", Wipe: true}, node.Parse(w.node("n1"), nil), nil)
	if err != nil {
		t.Fatal(err)
	}
	kept := e.Annotations[v1alpha1.PrefixRecord+"demo"]
	if kept == nil || len(*kept) > 40<<10 || !strings.Contains(*kept, `"cc|1.0.0"`) {
		t.Errorf("the record that stays is %v", kept)
	}
}
