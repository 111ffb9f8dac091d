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

// TestStorms lets everything happen that can happen to a cluster, with seeded luck, and checks at each step that no
// promise is broken; then it lets the sun shine and checks that everything ends.
//
// A seed that fails leaves the snapshot that was decided about in a file: give it to Decide again.
func TestStorms(t *testing.T) {
	for i := range *seeds {
		seed := *first + int64(i)
		t.Run(fmt.Sprint(seed), func(t *testing.T) {
			t.Parallel()
			s := newStorm(t, seed)
			s.blow()
			s.calm()
		})
	}
}

// TestStormsAreRepeatable plays the same storm twice.
func TestStormsAreRepeatable(t *testing.T) {
	for seed := int64(1); seed <= 20; seed++ {
		one, two := newStorm(t, seed), newStorm(t, seed)
		one.keep, two.keep = true, true
		one.blow()
		two.blow()
		if a, b := strings.Join(one.trace, "\n"), strings.Join(two.trace, "\n"); a != b || a == "" {
			t.Fatalf("seed %d went two ways", seed)
		}
	}
}

// storm is a world in which things happen, and the operators that work in it.
type storm struct {
	t       *testing.T
	seed    int64
	r       *rand.Rand
	w       *sim.World
	wishes  []*wish
	ops     []*operator
	luck    luck
	sick    map[string]int            // ticks until a node is ready again
	human   map[string]bool           // nodes a person cordoned
	unclear map[string]bool           // nodes where nobody can tell any more who cordoned them
	ended   map[string]bool           // interrupts that ended well, by admission
	absent  map[rollout.Ref]int       // owners of holds that are gone: ticks since
	done    map[string]int            // admission in which an interrupt was last recorded as done, by node UID and task
	numbers map[string]map[int]number // by rollout: whose each number is, since the end of the last rollout was stored
	looks   int
	serial  int
	last    rollout.Snapshot
	keep    bool
	trace   []string
}

// luck is how likely bad things are, in percent.
type luck struct {
	lose, crash, split    int
	fail, hang, pull      int
	sick, boot, vanish    int
	cordon, edit, steer   int
	refuse, arrive, reset int
	slow                  int
}

func newStorm(t *testing.T, seed int64) *storm {
	s := &storm{t: t, seed: seed, r: rand.New(rand.NewSource(seed)), sick: map[string]int{}, human: map[string]bool{},
		unclear: map[string]bool{}, ended: map[string]bool{}, absent: map[rollout.Ref]int{}, done: map[string]int{}, numbers: map[string]map[int]number{}}
	some := func(most int) int {
		if s.r.Intn(3) == 0 {
			return 0
		}
		return s.r.Intn(most + 1)
	}
	s.luck = luck{
		lose: some(45), crash: some(15), split: some(30), fail: some(30), hang: some(10), pull: some(10),
		sick: some(5), boot: some(3), vanish: some(2), cordon: some(5), edit: some(20), steer: some(12),
		refuse: some(60), arrive: some(20), reset: some(3), slow: some(30),
	}
	s.w = sim.New(rollout.Snapshot{Now: time.Date(2026, 1, 5, 8, 0, 0, 0, time.UTC)})
	s.w.Linger = true
	s.w.Refuse = func(string, rollout.Pod) (string, time.Duration) {
		if s.chance(s.luck.refuse) {
			return "budget web forbids it", 5 * time.Second
		}
		return "", 0
	}
	for i := range 2 + s.r.Intn(6) {
		s.addNode(fmt.Sprintf("n%d", i))
	}
	for i := range 1 + s.r.Intn(3) {
		s.addWish(i)
	}
	s.refit()
	s.ops = []*operator{{name: "A", s: s}, {name: "B", s: s}}
	return s
}

func (s *storm) chance(percent int) bool { return s.r.Intn(100) < percent }

func (s *storm) say(format string, args ...any) {
	if *follow || s.keep {
		line := s.w.Truth.Now.Format("15:04:05 ") + fmt.Sprintf(format, args...)
		s.trace = append(s.trace, line)
		if *follow {
			s.t.Log(line)
		}
	}
}

// broken reports a promise that was not kept, and leaves what is needed to look into it.
func (s *storm) broken(format string, args ...any) {
	s.t.Helper()
	path := filepath.Join(os.TempDir(), fmt.Sprintf("storm-%d.json", s.seed))
	data, err := json.MarshalIndent(s.last, "", " ")
	if err == nil {
		err = os.WriteFile(path, data, 0o600)
	}
	s.t.Fatalf("seed %d at %s: %s\nsnapshot: %s %v\nreplay: go test ./internal/sim -run TestStorms -seeds 1 -first %d -follow -v",
		s.seed, s.w.Truth.Now.Format("15:04:05"), fmt.Sprintf(format, args...), path, err, s.seed)
}

// blow is the storm.
func (s *storm) blow() {
	for range 60 + s.r.Intn(120) {
		s.w.Pass(time.Duration(1+s.r.Intn(20)) * time.Second)
		s.happen()
		s.refit()
		s.operate()
		s.checkCordons()
	}
}

// operate lets the operators work: mostly one, sometimes two that both believe they lead.
func (s *storm) operate() {
	a := s.ops[0]
	if len(a.pending) == 0 {
		a.look()
	}
	a.land()
	if s.chance(s.luck.split) { // the old leader stands still, a new one goes on
		for range s.r.Intn(6) {
			a.write()
		}
		if s.chance(70) { // and things have happened meanwhile
			s.w.Pass(time.Duration(1+s.r.Intn(5)) * time.Second)
			s.happen()
			if s.chance(50) {
				s.edit()
			}
			s.refit()
		}
		s.ops[0], s.ops[1] = s.ops[1], s.ops[0]
		b := s.ops[0]
		b.pending, b.flights = nil, nil // it is a new process, or was not the leader for long
		b.look()
		for len(b.pending) > 0 {
			switch {
			case s.chance(50):
				b.write()
			case s.chance(50):
				a.land()
			default:
				a.write()
			}
		}
		return
	}
	for len(a.pending) > 0 {
		a.write()
	}
}
