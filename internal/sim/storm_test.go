// SPDX-FileCopyrightText: The Skyhook authors
// SPDX-License-Identifier: Apache-2.0

package sim_test

import (
	"encoding/json"
	"errors"
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
	absent  map[string]int            // owners of holds that are gone: ticks since
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
}

func newStorm(t *testing.T, seed int64) *storm {
	s := &storm{t: t, seed: seed, r: rand.New(rand.NewSource(seed)), sick: map[string]int{}, human: map[string]bool{},
		unclear: map[string]bool{}, ended: map[string]bool{}, absent: map[string]int{}, done: map[string]int{}, numbers: map[string]map[int]number{}}
	some := func(most int) int {
		if s.r.Intn(3) == 0 {
			return 0
		}
		return s.r.Intn(most + 1)
	}
	s.luck = luck{
		lose: some(45), crash: some(15), split: some(30), fail: some(30), hang: some(10), pull: some(10),
		sick: some(5), boot: some(3), vanish: some(2), cordon: some(5), edit: some(20), steer: some(12),
		refuse: some(60), arrive: some(20), reset: some(3),
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
		b.pending = nil
		b.look()
		for len(b.pending) > 0 {
			if s.chance(50) {
				b.write()
			} else {
				a.write()
			}
		}
		return
	}
	for len(a.pending) > 0 {
		a.write()
	}
}

// operator looks, decides, and writes one thing after the other.
type operator struct {
	name    string
	s       *storm
	view    sim.View
	plan    rollout.Plan
	looked  int
	since   time.Time
	pending []func()
	stopped map[string]bool // nodes on which something went wrong
	refused map[string]bool // ledgers somebody else wrote
}

func (o *operator) look() {
	s := o.s
	s.derive()
	o.view, o.since, o.looked = s.w.View(), s.w.Truth.Now, s.looks
	for i := range o.view.Rollouts { // what runs on some nodes could not be listed yet
		for j := range o.view.Rollouts[i].Targets {
			if t := &o.view.Rollouts[i].Targets[j]; t.PodsSeen && s.chance(10) {
				t.Pods, t.PodsSeen = nil, false
			}
		}
	}
	o.plan = s.decide(o.view.Snapshot)
	o.stopped, o.refused = map[string]bool{}, map[string]bool{}
	o.pending = nil
	for _, l := range o.plan.Ledgers {
		o.pending = append(o.pending, func() { o.ledger(l) })
	}
	o.pending = append(o.pending, o.shuffled()...)
	at := s.r.Intn(len(o.pending) + 1)
	if at < len(o.plan.Ledgers) {
		at = len(o.pending)
	}
	o.pending = slices.Insert(o.pending, at, o.save)
}

// shuffled are the writes to nodes: in order on each node, in any order between nodes.
func (o *operator) shuffled() []func() {
	byNode, names := map[string][]rollout.Action{}, []string{}
	for _, a := range o.plan.Actions {
		if byNode[a.Node] == nil {
			names = append(names, a.Node)
		}
		byNode[a.Node] = append(byNode[a.Node], a)
	}
	var out []func()
	for len(names) > 0 {
		i := o.s.r.Intn(len(names))
		a := byNode[names[i]][0]
		out = append(out, func() { o.do(a) })
		if byNode[names[i]] = byNode[names[i]][1:]; len(byNode[names[i]]) == 0 {
			names = slices.Delete(names, i, i+1)
		}
	}
	return out
}

// write does the next thing, unless the operator dies first or has taken too long to still be allowed to.
func (o *operator) write() {
	if len(o.pending) == 0 {
		return
	}
	if o.s.chance(o.s.luck.crash) || o.s.w.Truth.Now.Sub(o.since) > rollout.SeatTerm/2 {
		o.s.say("%s dies", o.name)
		o.pending = nil
		return
	}
	next := o.pending[0]
	o.pending = o.pending[1:]
	next()
}

func (o *operator) ledger(l rollout.Ledger) {
	err := sim.ErrConflict
	if o.remembersAlike(l.Name) {
		err = o.s.w.Write(l)
	}
	if o.s.chance(o.s.luck.lose) {
		err = errors.New("lost") // it may have been written all the same
	}
	o.refused[l.Name] = err != nil
	o.s.say("%s ledger %s epoch %d: %v", o.name, l.Name, l.Epoch, err)
}

// remembersAlike says that what the groups of a ledger learned is as the operator saw it: it is stored in the same
// object, so that a write of the one refuses an older write of the other.
func (o *operator) remembersAlike(ledger string) bool {
	for _, g := range o.view.Groups {
		if stored := o.s.group(g.Name); g.Ledger == ledger && stored != nil && stored.Memory != g.Memory {
			return false
		}
	}
	return true
}

func (o *operator) save() {
	if o.s.chance(o.s.luck.lose) {
		return
	}
	for i := range o.plan.Groups { // statuses are written with the resource version of the snapshot, or our own since
		g, stored := &o.plan.Groups[i], o.s.group(o.plan.Groups[i].Group)
		before := o.groupSeen(g.Group)
		if stored == nil || before == nil || o.s.epoch(stored.Ledger) > o.epochWritten(stored.Ledger) || stored.Memory != before.Memory {
			continue
		}
		if stored.Memory != g.Memory {
			o.s.say("%s memory of %s: %+v", o.name, g.Group, g.Memory)
		}
		stored.Memory = g.Memory
	}
	for _, r := range o.plan.Reports {
		to, before := o.s.w.Rollout(r.Rollout), o.s.rolloutSeen(o.view, r.Rollout)
		if to != nil && to.UID == before.UID && to.NextOrder == before.NextOrder {
			to.NextOrder = r.NextOrder
			if r.NextOrder == 0 && before.NextOrder > 0 {
				o.s.numbersEnd(o, to)
			}
		}
	}
}

func (o *operator) groupSeen(name string) *rollout.Group {
	for i := range o.view.Groups {
		if o.view.Groups[i].Name == name {
			return &o.view.Groups[i]
		}
	}
	return nil
}

// epochWritten is the newest epoch of a ledger this operator knows of.
func (o *operator) epochWritten(name string) int64 {
	var epoch int64
	for _, l := range o.view.Ledgers {
		if l.Name == name {
			epoch = l.Epoch
		}
	}
	for _, l := range o.plan.Ledgers {
		if l.Name == name && !o.refused[name] {
			epoch = l.Epoch
		}
	}
	return epoch
}

func (o *operator) do(a rollout.Action) {
	s := o.s
	if a.Ledger != "" && o.refused[a.Ledger] {
		o.stopped[a.Node] = true
	}
	if o.stopped[a.Node] {
		return
	}
	if s.chance(s.luck.lose) {
		o.stopped[a.Node] = true
		s.say("%s %s %s %s %s: lost", o.name, a.Rollout, a.Node, a.Verb, a.Task)
		return
	}
	broken := s.checkBefore(o.view, a)
	err := s.w.Do(o.view, a)
	s.say("%s %s %s %s %s%s: %v (%s)", o.name, a.Rollout, a.Node, a.Verb, a.Task, a.Pod.Name, err, a.Why.Reason)
	if err != nil {
		o.stopped[a.Node] = true
		return
	}
	if broken != "" {
		s.broken("%s did %s of %s for %s on %s: %s", o.name, a.Verb, a.Task, a.Rollout, a.Node, broken)
	}
	if t := s.w.Target(a.Rollout, a.Node); t != nil && a.Verb == rollout.Record && a.State == rollout.Done {
		s.done[t.UID+a.Task] = t.Admission
	}
	s.checkAfter(a)
	if a.Verb == rollout.Admit {
		s.checkNumber(o, a)
	}
	if a.Verb == rollout.Retire && a.Wipe {
		s.wiped(a)
	}
}
