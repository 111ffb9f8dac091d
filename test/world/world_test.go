// SPDX-FileCopyrightText: The Skyhook authors
// SPDX-License-Identifier: Apache-2.0

package world

import (
	"bytes"
	"context"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"runtime/debug"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/go-logr/logr"
	ctrllog "sigs.k8s.io/controller-runtime/pkg/log"

	"github.com/skyhook-k8s/skyhook/internal/dump"
)

var (
	seeds  = flag.Uint64("seeds", 100, "how many runs")
	first  = flag.Uint64("first", 1, "seed of the first run")
	follow = flag.Bool("follow", false, "print every step of the smallest run that fails")
	only   = flag.String("causes", "", "only causes that contain one of these words, separated by commas; - for none")
)

func TestMain(m *testing.M) {
	debug.SetGCPercent(400)           // many small runs: memory is cheaper than time
	ctrllog.SetLogger(logr.Discard()) // a run that fails is repeated with -follow
	os.Exit(m.Run())
}

func isAllowed(c Cause) bool {
	return *only == "" || slices.ContainsFunc(strings.Split(*only, ","), func(word string) bool { return strings.Contains(string(c), word) })
}

// TestWorld plays random runs of whole clusters, as many at a time as there are processors. A run that breaks a rule is
// reduced to the events that matter, and what is left of its cluster is saved.
func TestWorld(t *testing.T) {
	s := search{until: *first + *seeds, next: *first}
	began := time.Now()
	var workers sync.WaitGroup
	for range runtime.GOMAXPROCS(0) {
		workers.Go(s.playAll)
	}
	workers.Wait()
	took := time.Since(began)
	t.Logf("%d runs in %s, %.0f per second", s.next-*first, took.Round(time.Second), float64(s.next-*first)/took.Seconds())
	if s.failed == nil {
		return
	}
	small := s.failed.Shrink()
	if *follow {
		small.Trace = func(line string) { fmt.Println(line) }
		_ = small.Play() // as before
	}
	path := filepath.Join(os.TempDir(), fmt.Sprintf("world-%d.yaml", small.Seed))
	text, err := small.Snapshot()
	if err == nil {
		err = os.WriteFile(path, text, 0o600)
	}
	t.Errorf("%s\nsnapshot: kubectl skyhook plan --from %s (%v)\nrepeat: go test ./test/world -first %d -seeds 1 -follow", small.Scenario(), path, err, small.Seed)
}

// search plays seeds in their order and keeps the first that fails.
type search struct {
	mu          sync.Mutex
	next, until uint64
	failed      *Run
}

func (s *search) playAll() {
	for {
		seed, found := s.take()
		if !found {
			return
		}
		r := NewRun(context.Background(), seed, isAllowed)
		if r.Play() != nil {
			s.fail(r)
		}
	}
}

func (s *search) take() (seed uint64, found bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.next >= s.until || s.failed != nil {
		return 0, false
	}
	s.next++
	return s.next - 1, true
}

func (s *search) fail(r *Run) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.failed == nil || r.Seed < s.failed.Seed {
		s.failed = r
	}
}

// TestSameSeedSameRun plays one seed twice and compares every step.
func TestSameSeedSameRun(t *testing.T) {
	play := func(seed uint64) string {
		var b strings.Builder
		r := NewRun(context.Background(), seed, isAllowed)
		r.Trace = func(line string) { b.WriteString(line + "\n") }
		fmt.Fprintln(&b, r.Play())
		return b.String()
	}
	for seed := range uint64(12) {
		one, two := strings.Split(play(seed), "\n"), strings.Split(play(seed), "\n")
		for i := range one {
			if i >= len(two) || one[i] != two[i] {
				t.Fatalf("seed %d, step %d: %q, and the second time %q", seed, i, one[i], two[min(i, len(two)-1)])
			}
		}
	}
}

// TestSnapshot saves the cluster of a run and reads it as the plugin does.
func TestSnapshot(t *testing.T) {
	r := NewRun(context.Background(), 3, func(Cause) bool { return false })
	if err := r.Play(); err != nil {
		t.Fatal(err)
	}
	text, err := r.Snapshot()
	if err != nil {
		t.Fatal(err)
	}
	read, err := dump.Read(bytes.NewReader(text))
	if err != nil {
		t.Fatal(err)
	}
	if got, want := len(read.Objects(Nodes.GroupVersionKind)), len(r.server.keys(Nodes)); got != want {
		t.Errorf("the file has %d nodes, and the cluster %d", got, want)
	}
}

// TestShrink checks that of many events only those are left without which the rule would not be broken.
func TestShrink(t *testing.T) {
	r := NewRun(context.Background(), 5, func(c Cause) bool { return c == EditSpec || c == Cordon })
	r.Events = append(r.Events, Event{Cause: "", Turn: busyTurns - 1, Request: -1})
	broken := Event{Cause: breakRule, Turn: 7, Request: -1}
	r.Events = append([]Event{broken}, r.Events...)
	slices.SortStableFunc(r.Events, func(a, b Event) int { return a.Turn - b.Turn })
	if r.Play() == nil {
		t.Fatal("no rule is broken")
	}
	if got := r.Shrink().Events; len(got) != 1 || got[0] != broken {
		t.Errorf("what is left is %v", got)
	}
}
