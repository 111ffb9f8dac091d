// SPDX-FileCopyrightText: The Skyhook authors
// SPDX-License-Identifier: Apache-2.0

package nodeop_test

import (
	"flag"
	"fmt"
	"hash/fnv"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/yaml"

	"github.com/skyhook-k8s/skyhook/api/nodeop/v1alpha1"
	skyhookv1 "github.com/skyhook-k8s/skyhook/api/skyhook/v1alpha1"
	"github.com/skyhook-k8s/skyhook/internal/node"
	"github.com/skyhook-k8s/skyhook/internal/nodeop"
	"github.com/skyhook-k8s/skyhook/internal/nodeop/compile"
	"github.com/skyhook-k8s/skyhook/internal/nodeop/record"
	"github.com/skyhook-k8s/skyhook/internal/nodeop/render"
	"github.com/skyhook-k8s/skyhook/internal/nodeop/report"
	"github.com/skyhook-k8s/skyhook/internal/pack"
	"github.com/skyhook-k8s/skyhook/internal/policy"
	"github.com/skyhook-k8s/skyhook/internal/rollout"
	"github.com/skyhook-k8s/skyhook/internal/rollout/engine"
	"github.com/skyhook-k8s/skyhook/internal/rollout/timing"
)

var update = flag.Bool("update", false, "rewrite the golden files; review the diff")

func compareGolden(t *testing.T, name, got string) {
	t.Helper()
	path := "testdata/" + name
	if *update {
		if err := os.WriteFile(path, []byte(got), 0o644); err != nil {
			t.Fatal(err)
		}
		return
	}
	want, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if string(want) != got {
		t.Errorf("%s differs; rewrite it with -update. It is now\n%s", path, got)
	}
}

// environment is a cluster in memory: nodes, NodeOps, a Job controller and kubelets with configurable behaviour.
type environment struct {
	t      testing.TB
	now    time.Time
	nodes  []*node.Node
	ops    []*v1alpha1.NodeOp
	policy *skyhookv1.DeploymentPolicy // of all NodeOps; nil for none

	targetsAtStart bool // of all NodeOps
	jobs           []*batchv1.Job
	pods           []*corev1.Pod
	created        []string                  // every Job and Pod that was created
	actions        []string                  // actions
	events         []report.Event            // recorded
	workloads      map[string][]rollout.Pod  // workloads by node
	commands       map[string]string         // how the command ends by node: "" succeeds, "fail", "hang"
	checks         map[string]string         // the message of the check by node; "!" fails, "hang" does not end
	output         string                    // the termination message of a command that succeeds
	skew           time.Duration             // of the operator's clock
	durations      *timing.Durations         // of the present process; nil in tests in which the operator has one process
	agentBoot      func(node string) string  // what the container before a command says: "" for an older agent
	rebootModes    map[string]string         // how a node reboots: "" does, "never", "twice", "lies" (the pod succeeds without a reboot), "gone" (not ready), "came up" or "falls back" (an upgraded system)
	hostRecords    map[string]pack.Reboot    // records on hosts, by node and id
	namespaces     []string                  // that the operator watches
	loses          func(rollout.Action) bool // actions that are lost
	hides          func(*corev1.Pod) bool    // pods that are not observed yet
	last           rollout.Plan
	writesStatus   bool          // statuses are written
	findings       node.Findings // of proofs
	otherRollouts  []rollout.Rollout
	otherGroups    []rollout.Group // of the others
}

func newEnvironment(t testing.TB, nodes ...string) *environment {
	w := &environment{t: t, now: time.Date(2026, 1, 2, 3, 0, 0, 0, time.UTC), workloads: map[string][]rollout.Pod{}, commands: map[string]string{},
		checks: map[string]string{}, rebootModes: map[string]string{}, hostRecords: map[string]pack.Reboot{}, writesStatus: true}
	w.agentBoot = func(name string) string { return w.node(name).BootID }
	for _, n := range nodes {
		w.addNode(n)
	}
	return w
}

func (w *environment) addNode(name string) *node.Node {
	n := &node.Node{Name: name, UID: "uid-" + name, Created: w.now, Labels: map[string]string{}, Annotations: map[string]string{}, Ready: true, BootID: "boot-1"}
	if strings.HasPrefix(name, "cp") {
		n.Labels["node-role.kubernetes.io/control-plane"] = ""
	}
	w.nodes = append(w.nodes, n)
	return n
}

func (w *environment) node(name string) *node.Node {
	for _, n := range w.nodes {
		if n.Name == name {
			return n
		}
	}
	return nil
}

func (w *environment) removeNode(name string) {
	w.nodes = slices.DeleteFunc(w.nodes, func(n *node.Node) bool { return n.Name == name })
	w.pods = slices.DeleteFunc(w.pods, func(p *corev1.Pod) bool { return p.Spec.NodeName == name })
}

func (w *environment) applyYAML(text string) *v1alpha1.NodeOp {
	w.t.Helper()
	o := &v1alpha1.NodeOp{}
	if err := yaml.UnmarshalStrict([]byte(text), o); err != nil {
		w.t.Fatal(err)
	}
	return w.addNodeOp(o)
}

// nameHash is the first part of the UID of a NodeOp.
func nameHash(name string) uint64 {
	h := fnv.New64a()
	_, _ = h.Write([]byte(name))
	return h.Sum64() >> 32
}

func findPod(pods []*corev1.Pod, name string) *corev1.Pod {
	for _, p := range pods {
		if p.Name == name {
			return p
		}
	}
	return nil
}

// jobOutcome says whether a Job has ended, and how.
func jobOutcome(j *batchv1.Job) (finished, succeeded bool) {
	c := nodeop.FinalCondition(j)
	return c != nil, c != nil && c.Type == batchv1.JobComplete
}

func (w *environment) addNodeOp(o *v1alpha1.NodeOp) *v1alpha1.NodeOp {
	if o.Namespace == "" {
		o.Namespace = "default"
	}
	if o.UID == "" {
		o.UID = types.UID(fmt.Sprintf("%08x-0000-4000-8000-%012d", nameHash(o.Name), len(w.ops)+1))
	}
	o.Generation = 1
	w.ops = append(w.ops, o)
	return o
}

func (w *environment) input(o *v1alpha1.NodeOp) *compile.Input {
	op := nodeop.NewOperation(o, w.policy)
	op.TargetsAtStart = w.targetsAtStart
	in := &compile.Input{
		Operation: op, Jobs: w.jobs, Pods: w.pods, Now: w.now.Add(w.skew), Durations: w.durations, Namespaces: w.namespaces, Findings: w.findings,
	}
	if w.hides != nil {
		in.Pods = slices.DeleteFunc(slices.Clone(w.pods), w.hides)
	}
	for _, n := range w.nodes {
		in.Nodes = append(in.Nodes, n.With(node.Edit{}))
	}
	return in
}

// testConfig is the configuration of the operator in these tests.
var testConfig = nodeop.Config{AgentImage: "example.org/agent:v1", CopyDirRoot: "/var/lib/skyhook", LogRoot: "/var/log/skyhook"}

func (w *environment) compile(o *v1alpha1.NodeOp) *nodeop.Compiled {
	return compile.Compile(w.input(o))
}

// pass observes, decides and applies once, and returns the number of actions.
func (w *environment) pass() int {
	w.t.Helper()
	s := rollout.Snapshot{Now: w.now.Add(w.skew), Rollouts: slices.Clone(w.otherRollouts), Groups: slices.Clone(w.otherGroups)}
	compiled := map[rollout.Ref]*nodeop.Compiled{}
	for _, o := range w.ops {
		c := w.compile(o)
		compiled[c.Rollout.Ref] = c
		for i := range c.Rollout.Targets {
			if t := c.Rollout.Targets[i]; !t.Drain.HeldAt.IsZero() {
				t.Drain.PodsSeen, t.Drain.Pods = true, w.workloads[t.Node]
			}
		}
		s.Rollouts = append(s.Rollouts, c.Rollout)
		s.Groups, s.Ledgers = append(s.Groups, c.Groups...), append(s.Ledgers, c.Ledger)
	}
	for _, n := range w.nodes {
		m := rollout.Node{Name: n.Name, UID: n.UID, Created: n.Created, Ready: n.Ready, Cordoned: n.Unschedulable, BootID: n.BootID}
		m.Holds = w.listHolds(n)
		s.Nodes = append(s.Nodes, m)
	}
	w.durations.Measure(&s)
	s.Times = rollout.NewTimes(s.Rollouts)
	w.last = engine.Decide(s)
	w.durations.RecordDrains(s, w.last)
	done := 0
	for _, l := range w.last.Ledgers {
		for _, o := range w.ops {
			if nodeop.Ref(o) == l.Owner {
				o.Status.Internal.Admission = policy.ToAdmission(l)
			}
		}
	}
	for _, o := range w.ops { // edits without an action come first
		for _, e := range compiled[nodeop.Ref(o)].Edits {
			w.applyEdit(w.node(e.Node), e.Edit)
			done++
		}
	}
	var acted []rollout.Action
	stopped := map[string]bool{} // actions on the node after a lost one are lost too
	for _, a := range w.last.Actions {
		stopped[a.Node] = stopped[a.Node] || w.loses != nil && w.loses(a)
		if c := compiled[a.Rollout]; c != nil && !stopped[a.Node] {
			w.applyAction(c, a)
			acted = append(acted, a)
			done++
		}
	}
	for _, o := range w.ops {
		c := compiled[nodeop.Ref(o)]
		for _, l := range c.Limits {
			for _, j := range w.jobs { // what the pass saw is not changed
				if j.Name == l.Job.Name {
					j.Spec.BackoffLimit = &l.BackoffLimit
				}
			}
			done++
		}
		for _, r := range w.last.Reports {
			if r.Rollout == c.Rollout.Ref && w.writesStatus && !c.Removed {
				status := report.Status(c, r, w.last.Groups)
				w.checkVerdict(o.Name, &status)
				w.events = append(w.events, report.Events(c, acted, o.Status, status)...)
				if o.Status.Phase != status.Phase {
					done++
				}
				o.Status = status
			}
		}
	}
	w.ops = slices.DeleteFunc(w.ops, func(o *v1alpha1.NodeOp) bool { return compiled[nodeop.Ref(o)].Removed })
	return done
}

func (w *environment) listHolds(n *node.Node) []rollout.Hold {
	return n.With(node.Edit{}).Holds(func(_ rollout.Ref, uid string) bool {
		return slices.ContainsFunc(w.ops, func(o *v1alpha1.NodeOp) bool { return string(o.UID) == uid })
	})
}

func (w *environment) applyEdit(n *node.Node, e node.Edit) {
	for key, value := range e.Annotations {
		if value == nil {
			delete(n.Annotations, key)
		} else {
			n.Annotations[key] = *value
		}
	}
	if e.Unschedulable != nil {
		n.Unschedulable = *e.Unschedulable
	}
}

func (w *environment) applyAction(c *nodeop.Compiled, a rollout.Action) {
	w.t.Helper()
	w.actions = append(w.actions, strings.TrimSpace(fmt.Sprintf("%s %s %s %s", a.Node, a.Verb, a.Task, a.State)))
	n := w.node(a.Node)
	if n == nil {
		return
	}
	e, err := record.Change(a, &record.Input{
		Operation: c.Operation, Node: n.With(node.Edit{}), Holds: w.listHolds(n), Known: c.Node(a.Node), Now: c.Now,
	})
	if err != nil {
		w.t.Fatal(err)
	}
	w.applyEdit(n, e)
	switch a.Verb {
	case rollout.VerbRun:
		objects, err := render.TaskObjects(c.Operation, testConfig, a.Task, n.With(node.Edit{}))
		if err != nil {
			w.t.Fatal(err)
		}
		w.createObjects(objects)
	case rollout.VerbEvict:
		w.workloads[a.Node] = slices.DeleteFunc(w.workloads[a.Node], func(p rollout.Pod) bool { return p.Name == a.Pod.Name })
	case rollout.VerbSweep:
		w.sweepObject(a.Object)
	}
}

func (w *environment) sweepObject(object string) {
	name, isJob := nodeop.SplitObjectName(object)
	if isJob {
		w.jobs = slices.DeleteFunc(w.jobs, func(j *batchv1.Job) bool { return j.Name == name && !nodeop.IsJobKept(j) })
	} else {
		w.pods = slices.DeleteFunc(w.pods, func(p *corev1.Pod) bool { return p.Name == name && !nodeop.IsPodKept(p) })
	}
}

func (w *environment) createObjects(o render.Objects) {
	for _, p := range o.Pods {
		if findPod(w.pods, p.Name) == nil {
			p.UID, p.CreationTimestamp = types.UID("pod-"+p.Name), metav1.NewTime(w.now)
			w.pods = append(w.pods, p)
			w.created = append(w.created, "Pod "+p.Name)
		}
	}
	if j := o.Job; j != nil && !slices.ContainsFunc(w.jobs, func(k *batchv1.Job) bool { return k.Name == j.Name }) {
		j.UID, j.CreationTimestamp = types.UID("job-"+j.Name), metav1.NewTime(w.now)
		w.jobs = append(w.jobs, j)
		w.created = append(w.created, "Job "+j.Name)
	}
}

// tick is a pass, and ten seconds for kubelets and controllers.
func (w *environment) tick() int {
	w.t.Helper()
	done := w.pass()
	w.now = w.now.Add(10 * time.Second)
	w.runKubelets()
	return done
}

// runToEnd repeats turns until nothing changes any more.
func (w *environment) runToEnd() {
	w.t.Helper()
	quiet := 0
	for range 600 {
		if w.tick() > 0 {
			quiet = 0
		} else if quiet++; quiet > 3 {
			if w.last.Next.IsZero() {
				return
			}
			w.now = w.last.Next.Add(-w.skew)
		}
	}
	w.t.Fatalf("it does not end:\n%s", strings.Join(w.actions[max(0, len(w.actions)-30):], "\n"))
}

func (w *environment) countCreated(prefix string) int {
	n := 0
	for _, m := range w.created {
		if strings.HasPrefix(m, prefix) {
			n++
		}
	}
	return n
}

// actionOrder lists the nodes in the order of an action.
func (w *environment) actionOrder(verb string) string {
	var out []string
	for _, l := range w.actions {
		if node, rest, _ := strings.Cut(l, " "); rest == verb {
			out = append(out, node)
		}
	}
	return strings.Join(out, " ")
}

func (w *environment) hasWarning(reason string) bool {
	return slices.ContainsFunc(w.events, func(e report.Event) bool { return e.Reason == reason && e.Type == corev1.EventTypeWarning })
}

// checkVerdict reports conditions that contradict the verdict.
func (w *environment) checkVerdict(name string, s *v1alpha1.NodeOpStatus) {
	w.t.Helper()
	has := func(kind string) bool { return meta.IsStatusConditionTrue(s.Conditions, kind) }
	isDeleting := s.Verdict == skyhookv1.VerdictDeleting
	switch {
	case s.Verdict == "" || s.Reason == "",
		has(skyhookv1.ConditionStalled) != (s.Verdict == skyhookv1.VerdictFailed),
		has(skyhookv1.ConditionReconciling) != (s.Verdict == skyhookv1.VerdictProgressing || isDeleting),
		!isDeleting && has(v1alpha1.ConditionReady) != (s.Verdict == skyhookv1.VerdictReady),
		s.Phase == v1alpha1.PhaseFailed && !isDeleting && s.Verdict != skyhookv1.VerdictFailed:
		w.t.Errorf("NodeOp %s in phase %s is %q (%s), and its conditions are %+v", name, s.Phase, s.Verdict, s.Reason, s.Conditions)
	}
}
