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
	"strings"
	"testing"
	"time"

	"github.com/skyhook-k8s/skyhook/internal/rollout"
	"github.com/skyhook-k8s/skyhook/internal/sim"
)

var (
	seeds  = flag.Int("seeds", 300, "how many storms")
	first  = flag.Int64("first", 1, "seed of the first storm")
	follow = flag.Bool("follow", false, "print everything that happens")
)

// TestRandomFaults lets everything happen that can happen to a cluster, with seeded luck, and checks at each step that no
// promise is broken; then it lets the sun shine and checks that everything ends.
//
// A seed that fails leaves the snapshot that was decided about in a file: give it to Decide again.
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

// TestRandomFaultsAreRepeatable plays the same storm twice.
func TestRandomFaultsAreRepeatable(t *testing.T) {
	for seed := int64(1); seed <= 20; seed++ {
		one, two := newFaultTest(t, seed), newFaultTest(t, seed)
		one.keepsTrace, two.keepsTrace = true, true
		one.runWithFaults()
		two.runWithFaults()
		if a, b := strings.Join(one.trace, "\n"), strings.Join(two.trace, "\n"); a != b || a == "" {
			t.Fatalf("seed %d went two ways", seed)
		}
	}
}

// faultTest is a world in which things happen, and the operators that work in it.
type faultTest struct {
	t          *testing.T
	seed       int64
	random     *rand.Rand
	cluster    *sim.Cluster
	desired    []*desiredRollout
	operators  []*operator
	rates      faultRates
	notReady   map[string]int            // ticks until a node is ready again
	cordoned   map[string]bool           // nodes a person cordoned
	unclear    map[string]bool           // nodes where nobody can tell any more who cordoned them
	ended      map[string]bool           // interrupts that ended well, by admission
	absent     map[rollout.Ref]int       // owners of holds that are gone: ticks since
	done       map[string]int            // admission in which an interrupt was last recorded as done, by node UID and task
	numbers    map[string]map[int]number // by rollout: whose each number is, since the end of the last rollout was stored
	decisions  int
	serial     int
	last       rollout.Snapshot
	keepsTrace bool
	trace      []string
}

// faultRates is how likely bad things are, in percent.
type faultRates struct {
	lose, crash, split    int
	fail, hang, pull      int
	sick, boot, vanish    int
	cordon, edit, steer   int
	refuse, arrive, reset int
	slow                  int
}

func newFaultTest(t *testing.T, seed int64) *faultTest {
	s := &faultTest{t: t, seed: seed, random: rand.New(rand.NewSource(seed)), notReady: map[string]int{}, cordoned: map[string]bool{},
		unclear: map[string]bool{}, ended: map[string]bool{}, absent: map[rollout.Ref]int{}, done: map[string]int{}, numbers: map[string]map[int]number{}}
	some := func(most int) int {
		if s.random.Intn(3) == 0 {
			return 0
		}
		return s.random.Intn(most + 1)
	}
	s.rates = faultRates{
		lose: some(45), crash: some(15), split: some(30), fail: some(30), hang: some(10), pull: some(10),
		sick: some(5), boot: some(3), vanish: some(2), cordon: some(5), edit: some(20), steer: some(12),
		refuse: some(60), arrive: some(20), reset: some(3), slow: some(30),
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

// failf reports a promise that was not kept, and leaves what is needed to look into it.
func (s *faultTest) failf(format string, args ...any) {
	s.t.Helper()
	path := filepath.Join(os.TempDir(), fmt.Sprintf("storm-%d.json", s.seed))
	data, err := json.MarshalIndent(s.last, "", " ")
	if err == nil {
		err = os.WriteFile(path, data, 0o600)
	}
	s.t.Fatalf("seed %d at %s: %s\nsnapshot: %s %v\nreplay: go test ./internal/sim -run TestStorms -seeds 1 -first %d -follow -v",
		s.seed, s.cluster.State.Now.Format("15:04:05"), fmt.Sprintf(format, args...), path, err, s.seed)
}

// runWithFaults is the storm.
func (s *faultTest) runWithFaults() {
	for range 60 + s.random.Intn(120) {
		s.cluster.AdvanceClock(time.Duration(1+s.random.Intn(20)) * time.Second)
		s.injectFaults()
		s.compileAll()
		s.operate()
		s.checkCordons()
	}
}

// operate lets the operators work: mostly one, sometimes two that both believe they lead.
func (s *faultTest) operate() {
	a := s.operators[0]
	if len(a.pending) == 0 {
		a.decide()
	}
	a.finishWrites()
	if s.chance(s.rates.split) { // the old leader stands still, a new one goes on
		for range s.random.Intn(6) {
			a.writeNext()
		}
		if s.chance(70) { // and things have happened meanwhile
			s.cluster.AdvanceClock(time.Duration(1+s.random.Intn(5)) * time.Second)
			s.injectFaults()
			if s.chance(50) {
				s.editRollout()
			}
			s.compileAll()
		}
		s.operators[0], s.operators[1] = s.operators[1], s.operators[0]
		b := s.operators[0]
		b.pending, b.inFlight = nil, nil // it is a new process, or was not the leader for long
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
