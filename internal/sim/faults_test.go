// SPDX-FileCopyrightText: The Skyhook authors
// SPDX-License-Identifier: Apache-2.0

package sim_test

import (
	"encoding/json"
	"flag"
	"fmt"
	"math/rand"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/skyhook-k8s/skyhook/internal/rollout"
	"github.com/skyhook-k8s/skyhook/internal/rollout/engine"
	"github.com/skyhook-k8s/skyhook/internal/sim"
)

var (
	seeds  = flag.Int("seeds", 300, "how many runs")
	first  = flag.Int64("first", 1, "seed of the first run")
	follow = flag.Bool("follow", false, "print everything that happens")
)

// TestRandomFaults runs rollouts with random faults and changes, checks the invariants at each step, then removes the
// faults and checks that all work finishes.
//
// The last snapshot of a seed that fails is written to a file, for Decide.
func TestRandomFaults(t *testing.T) {
	for i := range *seeds {
		seed := *first + int64(i)
		t.Run(fmt.Sprint(seed), func(t *testing.T) {
			t.Parallel()
			s := newFaultTest(t, seed)
			s.runWithFaults()
			s.runWithoutFaults()
		})
	}
}

// TestRandomFaultsAreRepeatable runs the same seed twice.
func TestRandomFaultsAreRepeatable(t *testing.T) {
	for seed := int64(1); seed <= 20; seed++ {
		one, two := newFaultTest(t, seed), newFaultTest(t, seed)
		one.keepsTrace, two.keepsTrace = true, true
		one.runWithFaults()
		two.runWithFaults()
		if a, b := strings.Join(one.trace, "\n"), strings.Join(two.trace, "\n"); a != b || a == "" {
			t.Fatalf("seed %d has two traces", seed)
		}
	}
}

// faultTest is a simulated cluster with faults, and its operators.
type faultTest struct {
	t          *testing.T
	seed       int64
	random     *rand.Rand
	cluster    *sim.Cluster
	desired    []*desiredRollout
	operators  []*operator
	rates      faultRates
	notReady   map[string]int            // ticks until a node is ready again
	cordoned   map[string]bool           // nodes that a user cordoned
	unclear    map[string]bool           // nodes for which it is unknown who cordoned them
	unproven   map[string]bool           // nodes of which something is not true that proofs ask for
	ended      map[string]bool           // interrupts that succeeded, by admission
	absent     map[rollout.Ref]int       // deleted owners of holds: ticks since then
	done       map[string]int            // admission in which an interrupt was last recorded as done, by node UID and task
	numbers    map[string]map[int]number // by rollout: the node of each number, since the end of the last rollout was stored
	damaged    map[string]damage         // records that cannot be read, by UID of rollout and node
	heldSince  map[string]time.Time      // by rollout and node UID
	protected  map[string]time.Time      // since when nodes have protected pods
	expired    map[string]int            // process that recorded the deadline of an object
	processes  int
	decisions  int
	serial     int
	last       rollout.Snapshot
	keepsTrace bool
	trace      []string
}

// faultRates has the probability of each fault, in percent.
type faultRates struct {
	lose, crash, split    int
	fail, hang, pull      int
	sick, boot, vanish    int
	cordon, edit, steer   int
	refuse, arrive, reset int
	slow, damage          int
	clock, forge          int
	unproven, drift       int
}

func newFaultTest(t *testing.T, seed int64) *faultTest {
	s := &faultTest{t: t, seed: seed, random: rand.New(rand.NewSource(seed)), notReady: map[string]int{}, cordoned: map[string]bool{},
		unclear: map[string]bool{}, unproven: map[string]bool{}, ended: map[string]bool{}, absent: map[rollout.Ref]int{}, done: map[string]int{}, numbers: map[string]map[int]number{}, damaged: map[string]damage{},
		heldSince: map[string]time.Time{}, protected: map[string]time.Time{}, expired: map[string]int{}}
	some := func(most int) int {
		if s.random.Intn(3) == 0 {
			return 0
		}
		return s.random.Intn(most + 1)
	}
	s.rates = faultRates{
		lose: some(45), crash: some(15), split: some(30), fail: some(30), hang: some(10), pull: some(10),
		sick: some(5), boot: some(3), vanish: some(2), cordon: some(5), edit: some(20), steer: some(12),
		refuse: some(60), arrive: some(20), reset: some(3), slow: some(30), damage: some(6),
		clock: some(60), forge: some(4),
		unproven: some(15), drift: some(12),
	}
	s.cluster = sim.New(rollout.Snapshot{Now: time.Date(2026, 1, 5, 8, 0, 0, 0, time.UTC)})
	s.cluster.SlowDeletion = true
	s.cluster.RefuseEviction = func(string, rollout.Pod) (string, time.Duration) {
		if s.chance(s.rates.refuse) {
			return "budget web forbids it", 5 * time.Second
		}
		return "", 0
	}
	for i := range 2 + s.random.Intn(6) {
		s.addNode(fmt.Sprintf("n%d", i))
	}
	for i := range 1 + s.random.Intn(3) {
		s.addRollout(i)
	}
	s.compileAll()
	s.operators = []*operator{{name: "A", s: s}, {name: "B", s: s}}
	for _, o := range s.operators {
		o.restart()
	}
	return s
}

func (s *faultTest) chance(percent int) bool { return s.random.Intn(100) < percent }

func (s *faultTest) logf(format string, args ...any) {
	if *follow || s.keepsTrace {
		line := s.cluster.State.Now.Format("15:04:05 ") + fmt.Sprintf(format, args...)
		s.trace = append(s.trace, line)
		if *follow {
			s.t.Log(line)
		}
	}
}

// failf reports a violated invariant, and how to reproduce it.
func (s *faultTest) failf(format string, args ...any) {
	s.t.Helper()
	path := filepath.Join(os.TempDir(), fmt.Sprintf("random-faults-%d.json", s.seed))
	data, err := json.MarshalIndent(s.last, "", " ")
	if err == nil {
		err = os.WriteFile(path, data, 0o600)
	}
	s.t.Fatalf("seed %d at %s: %s\nsnapshot: %s %v\nreplay: go test ./internal/sim -run TestRandomFaults -seeds 1 -first %d -follow -v",
		s.seed, s.cluster.State.Now.Format("15:04:05"), fmt.Sprintf(format, args...), path, err, s.seed)
}

// runWithFaults runs the operators while faults happen.
func (s *faultTest) runWithFaults() {
	for range 60 + s.random.Intn(120) {
		s.cluster.AdvanceClock(time.Duration(1+s.random.Intn(20)) * time.Second)
		s.injectFaults()
		s.compileAll()
		s.operate()
		s.checkCordons()
		if s.chance(10) {
			s.checkRest()
		}
	}
}

// operate lets the operators work: mostly one, sometimes two that both consider themselves the leader.
func (s *faultTest) operate() {
	a := s.operators[0]
	if len(a.pending) == 0 {
		a.decide()
	}
	a.finishWrites()
	if s.chance(s.rates.split) { // the old leader is slow, and a new one takes over
		for range s.random.Intn(6) {
			a.writeNext()
		}
		if s.chance(70) { // with faults before its first pass
			s.cluster.AdvanceClock(time.Duration(1+s.random.Intn(5)) * time.Second)
			s.injectFaults()
			if s.chance(50) {
				s.editRollout()
			}
			s.compileAll()
		}
		s.operators[0], s.operators[1] = s.operators[1], s.operators[0]
		b := s.operators[0]
		b.restart() // it is a new process
		b.decide()
		for len(b.pending) > 0 {
			switch {
			case s.chance(50):
				b.writeNext()
			case s.chance(50):
				a.finishWrites()
			default:
				a.writeNext()
			}
		}
		return
	}
	for len(a.pending) > 0 {
		a.writeNext()
	}
}

// checkRest checks that the plan becomes empty while nothing happens from outside: no task ends, no pod terminates and no
// object that is deleted goes. An action that changes nothing would be planned for ever.
func (s *faultTest) checkRest() {
	c := sim.New(s.cluster.State)
	c.SlowDeletion = true
	for node, pods := range s.cluster.Workloads {
		c.Workloads[node] = slices.Clone(pods)
	}
	var plan rollout.Plan
	for range 60 {
		v := c.View()
		plan = engine.Decide(v.Snapshot)
		isEmpty := len(plan.Actions)+len(plan.Ledgers) == 0
		if isEmpty && !sim.HasStatusChange(v, plan) {
			return
		}
		if err := c.Apply(v, plan); err != nil {
			s.failf("applying a plan without other writers: %v", err)
		}
	}
	s.last = c.View().Snapshot
	s.failf("the plan does not become empty: %s", s.describe(plan))
}
