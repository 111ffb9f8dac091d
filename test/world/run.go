// SPDX-FileCopyrightText: The Skyhook authors
// SPDX-License-Identifier: Apache-2.0

package world

import (
	"context"
	"fmt"
	"hash/fnv"
	"math/rand/v2"
	"slices"
	"time"

	"github.com/go-logr/logr"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/tools/record"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/skyhook-k8s/skyhook/api/skyhook/v1alpha1"
	"github.com/skyhook-k8s/skyhook/internal/cluster"
	"github.com/skyhook-k8s/skyhook/internal/controller"
	"github.com/skyhook-k8s/skyhook/internal/nodeop"
	"github.com/skyhook-k8s/skyhook/internal/skyhook/plan"
)

// Namespace is where the operator and the pods of Skyhooks are.
const Namespace = "skyhook"

// How long a run is.
const (
	busyTurns  = 32  // with events
	quietTurns = 400 // without: after these everything must have come to rest
)

// Run is one random run of a cluster. Everything in it follows from the seed and the events.
type Run struct {
	Seed   uint64
	Events []Event
	Trace  func(string) // called for each step; may be nil

	ctx            context.Context
	server         *Server
	now            time.Time
	turn           int
	isQuiet        bool                     // no further events
	typed          map[string]client.Object // decoded objects, by UID and version
	hosts          map[string]*host
	specs          map[string]content // of Skyhooks, before their last edit
	leader         *leader
	standby        *leader // another process, with what its caches showed when it began
	pending        []Event // that have not happened yet, in their order
	requests       int     // of this turn's pass
	provesTogether bool    // a node is validated when all that works there is complete
	crashes        bool    // nodes crash around the commands of NodeOps
	refusals       []refusal
	err            error // the first violation

	truth truth
}

// leader is an operator that leads.
type leader struct {
	loop        *controller.Loop
	caches      []*Cache
	clockOffset time.Duration
	next        time.Time
}

// Violation is a broken invariant.
type Violation struct {
	Rule string // its name
	Text string
	Turn int
}

func (v *Violation) Error() string { return fmt.Sprintf("turn %d: %s: %s", v.Turn, v.Rule, v.Text) }

// NewRun makes the run of a seed, with the causes that are allowed.
func NewRun(ctx context.Context, seed uint64, allowed func(Cause) bool) *Run {
	return &Run{Seed: seed, ctx: ctx, Events: makeEvents(seed, allowed)}
}

// With is a run of the same seed with other events.
func (r *Run) With(events []Event) *Run {
	return &Run{Seed: r.Seed, ctx: r.ctx, Events: events}
}

// random returns random numbers for one purpose: they do not depend on what else happened.
func (r *Run) random(purpose ...any) *rand.Rand { return randomFor(r.Seed, purpose...) }

func randomFor(seed uint64, purpose ...any) *rand.Rand {
	h := fnv.New64a()
	fmt.Fprint(h, purpose...)
	return rand.New(rand.NewPCG(seed, h.Sum64()))
}

func (r *Run) tracef(format string, args ...any) {
	if r.Trace != nil {
		r.Trace(fmt.Sprintf("%3d  ", r.turn) + fmt.Sprintf(format, args...))
	}
}

// violate notes the first violation.
func (r *Run) violate(rule, format string, args ...any) {
	if r.err == nil {
		r.err = &Violation{Rule: rule, Text: fmt.Sprintf(format, args...), Turn: r.turn}
		r.tracef("VIOLATION %v", r.err)
	}
}

// Play carries out the whole run and returns the first violation.
func (r *Run) Play() error {
	r.turn, r.isQuiet, r.err, r.refusals, r.standby, r.provesTogether, r.crashes = 0, false, nil, nil, nil, false, false
	r.now = time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)
	r.hosts, r.truth, r.pending, r.typed, r.specs = map[string]*host{}, newTruth(), r.Events, map[string]client.Object{}, map[string]content{}
	server, err := NewServer(func() time.Time { return r.now })
	if err != nil {
		return err
	}
	r.server = server
	server.Intercept, server.OnWrite = r.intercept, r.onWrite
	r.setUp()
	r.lead(0)
	for r.turn = 1; r.turn <= busyTurns && r.err == nil; r.turn++ {
		r.step()
	}
	if r.err == nil {
		r.endEvents()
		r.awaitRest()
	}
	return r.err
}

// lead lets the process on standby lead, whose clock is off by this much.
func (r *Run) lead(offset time.Duration) {
	if r.leader = r.standby; r.leader == nil {
		r.leader = r.newLeader()
	}
	r.leader.clockOffset, r.standby = offset, r.newLeader()
}

func (r *Run) newLeader() *leader {
	all, nodeOps := newCaches(r.server, Namespace)
	l := &leader{caches: []*Cache{all, nodeOps}}
	clock := func() time.Time { return r.now.Add(l.clockOffset) }
	api := r.server.Client()
	c := cluster.New(cluster.Options{
		Config: r.config(), NodeOps: nodeop.Config{AgentImage: "agent:v1", CopyDirRoot: "/var/lib/skyhook", LogRoot: "/var/log/skyhook", Namespace: Namespace},
		Live: api, Objects: api, Cached: all, CachedNodeOps: nodeOps, Client: api, Parallel: 1, Clock: clock, LedgerInterval: 500 * time.Millisecond,
		OnDifference: func(text string) { r.violate("what is kept is what would be compiled anew", "%s", text) },
	})
	l.loop = controller.NewLoop(c, recorder{r: r}, clock, logr.Discard(), r.checkPlan)
	return l
}

func (r *Run) config() plan.Config {
	return plan.Config{
		Namespace: Namespace, AgentImage: "agent:v1", PauseImage: "pause:3", CopyDirRoot: "/var/lib/skyhook", LogRoot: "/var/log/skyhook", Version: "v1.0.0",
		RuntimeTaint:    corev1.Taint{Key: v1alpha1.Group, Value: "runtime-required", Effect: corev1.TaintEffectNoSchedule},
		Profile:         []v1alpha1.Profile{v1alpha1.ProfileCompatible, v1alpha1.ProfileRecommended}[r.random("profile").IntN(2)],
		ReapplyOnReboot: r.random("reapply").IntN(4) == 0,
		PinImages:       []*bool{nil, new(true), new(false)}[r.random("pin images").IntN(3)],
		Prepull:         new(r.prepulls()),
		PodLayout:       []plan.PodLayout{"", plan.LayoutCompatible, plan.LayoutCompact}[r.random("pod layout").IntN(3)],
	}
}

// recorder keeps the events of the operator in the trace.
type recorder struct {
	record.EventRecorder // nil: the loop calls nothing else
	r                    *Run
}

// Event notes an event.
func (e recorder) Event(_ runtime.Object, eventType, reason, message string) {
	e.r.tracef("event %s %s %s", eventType, reason, message)
}

// step is one turn: what happens on hosts, what the caches show of it, and a pass of the leader.
func (r *Run) step() {
	r.requests = 0
	r.fireUpTo(-1)
	r.stepHosts()
	r.advanceCaches()
	r.pass()
	r.fireUpTo(1 << 30)
	r.refusals = slices.DeleteFunc(r.refusals, func(f refusal) bool { return f.until <= r.turn || f.left <= 0 })
	r.now = r.now.Add(time.Duration(1+r.random("clock", r.turn).IntN(15)) * time.Second)
}

func (r *Run) pass() {
	r.truth.beginPass()
	r.notePins()
	r.leader.next = r.leader.loop.RunPass(r.ctx)
	r.checkPass()
}

// advanceCaches shows the leader what happened, each kind up to another moment.
func (r *Run) advanceCaches() {
	for i, c := range r.leader.caches {
		c.advance(func(k Kind, lag int) int {
			random := r.random("cache", i, k.Kind, r.turn)
			if r.isQuiet || random.IntN(100) < 55 {
				return lag
			}
			return random.IntN(lag + 1)
		})
	}
}

// restTime is how long nothing must change until the cluster is at rest. What is asked for again in a moment, such as a status that was
// written a second ago, must not pass for rest, nor must a drain that waits for a protected pod.
// A stage that hangs is ended when its time is over, which may be later than others rest.
func (r *Run) restTime() time.Duration {
	for _, key := range r.server.keys(Pods) {
		pod := r.server.objects[Pods.Kind][key]
		if h := r.host(nestedString(pod, "spec", "nodeName")); h != nil && h.hung[string(meta(pod).GetUID())] {
			return plan.DefaultStageDeadline + 10*time.Minute
		}
	}
	return protectedFor + time.Minute
}

// awaitRest makes turns without events until the cluster has come to rest, and checks what must be true then.
func (r *Run) awaitRest() {
	for r.comesToRest(quietTurns) {
		if !r.deleteFailedNodeOps() && !r.resumeStopped() && !r.resetGivenBack() { // of which it was not said yet when events ended
			r.checkRest()
			return
		}
	}
	if r.err == nil {
		r.violate("everything finishes", "after %d turns without events something still changes: %s", quietTurns, r.describe())
	}
}

// comesToRest makes turns until nothing changes any more.
func (r *Run) comesToRest(turns int) bool {
	still, since := 0, r.now
	for range turns {
		r.turn++
		version := r.server.version
		r.step()
		if r.err != nil {
			return false
		}
		r.advanceCaches()
		if r.server.version != version {
			still, since = 0, r.now
			continue
		}
		if still++; still >= 4 && r.now.Sub(since) >= r.restTime() {
			return true
		}
		if r.wait(); still > 20 { // somebody is asked again and again
			r.now = r.now.Add(time.Minute)
		}
	}
	return false
}

// wait moves the clock to the time for which the leader asked, or by an hour.
func (r *Run) wait() {
	next := r.leader.next.Add(-r.leader.clockOffset)
	if r.leader.next.IsZero() || next.Sub(r.now) > time.Hour {
		next = r.now.Add(time.Hour)
	}
	if next.After(r.now) {
		r.now = next
	}
}

func (r *Run) setUp() {
	random := r.random("set up")
	nodes := 2 + random.IntN(3)
	for i := range nodes {
		r.addNode(fmt.Sprintf("n%d", i+1))
	}
	if r.random("daemon set").IntN(2) == 0 {
		r.addDaemonSet()
	}
	if random.IntN(2) == 0 {
		r.createAsUser(Policies, newPolicy(r.random("policy")))
	}
	r.createAsUser(Skyhooks, newSkyhook("base", r.random("base"), r.hasPolicy()))
	if random.IntN(3) == 0 {
		r.createAsUser(Skyhooks, newSkyhook("extra", r.random("extra"), r.hasPolicy()))
	}
	if random.IntN(3) == 0 {
		r.createAsUser(NodeOps, newNodeOp("op", r.random("op"), r.hasPolicy()))
	}
}

func (r *Run) hasPolicy() bool { return len(r.server.objects[Policies.Kind]) > 0 }

// addNode creates a node with a workload on it.
func (r *Run) addNode(name string) {
	n := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name, Labels: map[string]string{"pool": "gpu", "kubernetes.io/hostname": name}}}
	if err := r.create(Nodes, n); err != nil {
		r.violate("set up", "node %s: %v", name, err)
		return
	}
	r.truth.nodeSince[r.uidOf(nodeKey(name))] = r.turn
	controlled := true
	p := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Name: "app-" + name, Namespace: "default", OwnerReferences: []metav1.OwnerReference{
			{APIVersion: "apps/v1", Kind: "ReplicaSet", Name: "app", UID: "app", Controller: &controlled}}},
		Spec: corev1.PodSpec{NodeName: name, Containers: []corev1.Container{{Name: "app", Image: "app"}}},
	}
	if r.random("protected", name).IntN(3) == 0 {
		p.Annotations = map[string]string{v1alpha1.AnnotationDoNotInterrupt: "true"}
	}
	if err := r.create(Pods, p); err != nil && r.turn == 0 {
		r.violate("set up", "workload of %s: %v", name, err)
	}
	r.stepNode(keyOf(content{"metadata": map[string]any{"name": name}}))
}

// createAsUser creates an object as a user does. What the schema refuses is not there.
func (r *Run) createAsUser(k Kind, c content) {
	_, err := r.server.create(k, c)
	r.tracef("a user creates %s %s: %v", k.Kind, keyOf(c).Name, errText(err))
}

func errText(err error) string {
	if err == nil {
		return "ok"
	}
	return err.Error()
}
