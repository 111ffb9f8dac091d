// SPDX-FileCopyrightText: The Skyhook authors
// SPDX-License-Identifier: Apache-2.0

package nodeop_test

import (
	"flag"
	"fmt"
	"math/rand"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/skyhook-k8s/skyhook/api/nodeop/v1alpha1"
	"github.com/skyhook-k8s/skyhook/internal/node"
	"github.com/skyhook-k8s/skyhook/internal/rollout"
	"github.com/skyhook-k8s/skyhook/internal/rollout/timing"
)

var (
	seeds     = flag.Int("seeds", 200, "how many random runs TestRandomRuns simulates")
	firstSeed = flag.Int64("seed", 1, "the first of them")
)

// TestRandomRuns simulates random runs of two NodeOps, and of a Skyhook's rollout on the same nodes, with the real engine:
// lost actions and statuses, failing commands, checks and reboots, nodes that are removed and added, suspensions,
// deletions, operators with wrong clocks, recorded times of the far future. During and after a run:
//
//   - at most one of them is in progress on a node;
//   - at most concurrency nodes are in progress;
//   - a Job is created once per admission of a node;
//   - a final phase does not change;
//   - no deadline passes, because nothing takes long by the clock of the cluster;
//   - after a deletion no node keeps a record or stays cordoned.
func TestRandomRuns(t *testing.T) {
	for i := range *seeds {
		seed := *firstSeed + int64(i)
		isRight := t.Run(fmt.Sprint(seed), func(t *testing.T) {
			simulateRun(t, rand.New(rand.NewSource(seed)))
		})
		if !isRight {
			t.Fatalf("repeat it with -run TestRandomRuns -seeds 1 -seed %d", seed)
		}
	}
}

func simulateRun(t *testing.T, luck *rand.Rand) {
	w := newEnvironment(t, "cp1", "n2", "n3", "n4")
	chance := func(percent int) bool { return luck.Intn(100) < percent }
	between := &otherRollout{w: w}
	w.loses = func(rollout.Action) bool { return chance(8) }
	w.durations = timing.NewDurations()
	var limits []int
	for i := range 2 {
		limits = append(limits, luck.Intn(3))
		preflight := ""
		if chance(50) {
			preflight = ", preflight: {command: [y]}"
		}
		w.applyYAML(fmt.Sprintf(`{metadata: {name: op%d}, spec: {command: [x], concurrency: %d, cordon: %v, rebootOnSuccess: %v, uncordonOnFailure: %v, stopOnFailure: %v, backoffLimit: 1%s}}`,
			i, limits[i], chance(50), chance(50), chance(50), chance(30), preflight))
	}
	ops := slices.Clone(w.ops)
	finals := map[string]v1alpha1.NodeOpStatus{}
	for turn := range 50 {
		if chance(15) {
			n := []string{"cp1", "n2", "n3", "n4"}[luck.Intn(4)]
			w.commands[n], w.checks[n], w.rebootModes[n] = []string{"", "fail", "hang"}[luck.Intn(3)], []string{"", "!", "skip"}[luck.Intn(3)], []string{"", "never", "lies", "twice"}[luck.Intn(4)]
		}
		if chance(4) && w.node("n4") != nil {
			w.removeNode("n4")
		} else if chance(10) && w.node("n4") == nil {
			w.addNode("n4").UID = fmt.Sprint("uid-", turn)
		}
		if chance(5) {
			yes := chance(50)
			w.ops[luck.Intn(len(w.ops))].Spec.Suspend = &yes
		}
		if chance(6) { // another process
			w.durations = timing.NewDurations()
			w.skew = []time.Duration{0, 2 * time.Hour, -3 * time.Hour, 26 * time.Hour}[luck.Intn(4)]
		}
		if chance(5) {
			forgeTimes(w.nodes[luck.Intn(len(w.nodes))])
		}
		w.writesStatus = !chance(20)
		between.turn(chance(30))
		w.tick()
		checkInvariants(t, w, ops, limits, finals)
		checkDeadlines(t, w)
	}
	w.loses, w.writesStatus = nil, true
	clear(w.commands)
	clear(w.checks)
	clear(w.rebootModes)
	for _, n := range w.nodes {
		n.Ready = true
	}
	for range 4 { // hanging commands end now
		w.tick()
	}
	now := metav1.NewTime(w.now)
	for _, o := range w.ops {
		no := false
		o.Spec.Suspend, o.DeletionTimestamp = &no, &now
	}
	between.end()
	w.runToEnd()
	if len(w.ops) > 0 {
		t.Errorf("%d NodeOps are not gone", len(w.ops))
	}
	for _, n := range w.nodes {
		if n.Unschedulable || len(n.Annotations) > 0 {
			t.Errorf("%s is left cordoned=%v with %v", n.Name, n.Unschedulable, n.Annotations)
		}
	}
}

var recordedTime = regexp.MustCompile(`"20\d\d-[^"]*Z"`)

// forgeTimes moves the times that a node records to the far future.
func forgeTimes(n *node.Node) {
	for key, value := range n.Annotations {
		if strings.HasPrefix(key, v1alpha1.PrefixRecord) {
			n.Annotations[key] = recordedTime.ReplaceAllString(value, `"2099-01-01T00:00:00Z"`)
		}
	}
}

// checkDeadlines checks that the last plan ends nothing because it takes too long.
func checkDeadlines(t *testing.T, w *environment) {
	t.Helper()
	for _, a := range w.last.Actions {
		switch a.Why.Reason {
		case rollout.ReasonDeadline, rollout.ReasonRebootTimeout, rollout.ReasonRebootNotStarted:
			t.Errorf("%s of %s on %s: %s", a.Verb, a.Task, a.Node, a.Why.Text)
		}
	}
}

// checkInvariants checks the invariants of TestRandomRuns.
func checkInvariants(t *testing.T, w *environment, ops []*v1alpha1.NodeOp, limits []int, finals map[string]v1alpha1.NodeOpStatus) {
	t.Helper()
	at := map[string]int{}
	for i, o := range ops {
		flying := 0
		for _, n := range w.nodes {
			if p := readRecord(n, o); p.Admitted {
				at[n.Name]++
				if !w.failedOn(n, p) {
					flying++
				}
			}
		}
		if limits[i] > 0 && flying > limits[i] {
			t.Errorf("%s has %d nodes in flight, and concurrency is %d", o.Name, flying, limits[i])
		}
		if was, ok := finals[o.Name]; ok && was.Phase != o.Status.Phase {
			t.Errorf("%s was %s and is %s", o.Name, was.Phase, o.Status.Phase)
		}
		if o.Status.Phase == v1alpha1.PhaseCompleted || o.Status.Phase == v1alpha1.PhaseFailed {
			finals[o.Name] = *o.Status.DeepCopy()
		}
	}
	for _, r := range w.otherRollouts {
		for _, target := range r.Targets {
			if target.Visit.Admitted {
				at[target.Node]++
			}
		}
	}
	for n, many := range at {
		if many > 1 {
			t.Errorf("%d are at work on %s", many, n)
		}
	}
	jobs := map[string]bool{}
	for _, m := range w.created {
		if jobs[m] && strings.HasPrefix(m, "Job ") {
			t.Errorf("%s was made twice", m)
		}
		jobs[m] = true
	}
	for _, j := range w.jobs {
		running := 0
		for _, k := range w.jobs {
			if done, _ := jobOutcome(k); !done && k.OwnerReferences[0].UID == j.OwnerReferences[0].UID && k.Spec.Template.Spec.NodeName == j.Spec.Template.Spec.NodeName {
				running++
			}
		}
		if running > 1 {
			t.Errorf("%d Jobs run on %s", running, j.Spec.Template.Spec.NodeName)
		}
	}
}

// failedOn reports whether the operation has failed on a node: then the admission does not count against concurrency.
func (w *environment) failedOn(n *node.Node, r node.OpRecord) bool {
	for _, p := range w.pods {
		if p.Spec.NodeName == n.Name && p.Labels[v1alpha1.LabelPreflight] == "true" && (p.Status.Phase == corev1.PodFailed || r.Preflight.Is(node.StepFailing)) {
			return true
		}
	}
	for _, j := range w.jobs {
		if done, well := jobOutcome(j); j.Name == r.Job && done && !well {
			return true
		}
	}
	return r.Preflight.Is(node.StepFailing) || r.Command.Is(node.StepFailing) || r.Reboot.Is(node.StepFailing)
}

func readRecord(n *node.Node, o *v1alpha1.NodeOp) node.OpRecord {
	r, err := node.ParseNodeOpRecord(n.Annotations[node.OpRecordKey(string(o.UID))])
	if err != nil || r.Node != n.UID {
		return node.OpRecord{}
	}
	return r
}

// otherRollout is the rollout of a Skyhook that has work for every node at times.
type otherRollout struct {
	w    *environment
	busy map[string]bool
}

func (b *otherRollout) turn(owes bool) {
	if b.busy == nil {
		b.busy = map[string]bool{}
	}
	for _, a := range b.w.last.Actions {
		if a.Rollout.Name == "between" && a.Verb == rollout.VerbAdmit {
			b.busy[a.Node] = true
		}
		if a.Rollout.Name == "between" && a.Verb == rollout.VerbRetire {
			delete(b.busy, a.Node)
		}
	}
	r := rollout.Rollout{Ref: rollout.ParseRef("Skyhook/between"), Sequence: "Skyhook", Priority: 200, Paused: !owes}
	for _, n := range b.w.nodes {
		state := rollout.StatePending
		if b.busy[n.Name] {
			state = rollout.StateDone
		}
		r.Targets = append(r.Targets, &rollout.Target{Node: n.Name, UID: n.UID, Group: rollout.ParseGroupRef("between"), Visit: rollout.Visit{Admitted: b.busy[n.Name]}, Tasks: []rollout.Task{{ID: "apply", State: state, Recorded: state}}})
	}
	b.w.otherRollouts = []rollout.Rollout{r}
	b.w.otherGroups = []rollout.Group{{Ref: rollout.ParseGroupRef("between"), Limit: 1, Pace: rollout.Pace{Kind: rollout.PaceWindow}}}
}

func (b *otherRollout) end() { b.w.otherRollouts, b.w.otherGroups = nil, nil }
