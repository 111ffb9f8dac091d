// SPDX-FileCopyrightText: The Skyhook authors
// SPDX-License-Identifier: Apache-2.0

package skyhook_test

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/skyhook-k8s/skyhook/test/e2e/suite"
)

// object is what tests read of nodes, pods and deployments.
type object struct {
	Metadata struct {
		Name, DeletionTimestamp string
	}
	Spec struct {
		NodeName      string
		Unschedulable bool
	}
	Status struct {
		AvailableReplicas int
		NodeInfo          struct{ BootID string }
	}
}

// watchObjects watches objects with kubectl, so that no change is missed, and calls handle for each, one after the other. The
// returned function ends the watch.
func watchObjects(t *testing.T, handle func(o object, deleted bool), args ...string) (stop func()) {
	t.Helper()
	cmd := cluster.KubectlCommand(append([]string{"get", "-w", "--output-watch-events", "-o", "json"}, args...)...)
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	done := make(chan struct{})
	go func() {
		defer close(done)
		for d := json.NewDecoder(out); ; {
			var e struct {
				Type   string
				Object object
			}
			if d.Decode(&e) != nil {
				return // the watch has ended
			}
			handle(e.Object, e.Type == "DELETED")
		}
	}()
	stop = sync.OnceFunc(func() {
		_ = cmd.Process.Kill() // it may have ended by itself
		<-done
		_ = cmd.Wait()
	})
	t.Cleanup(stop)
	return stop
}

// stringSet is a set that may be filled while it is read.
type stringSet struct {
	mu  sync.Mutex
	set map[string]bool
}

func (s *stringSet) add(value string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.set == nil {
		s.set = map[string]bool{}
	}
	s.set[value] = true
}

func (s *stringSet) list() []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Sorted(maps.Keys(s.set))
}

// collectPodNames collects the names of the pods in the operator's namespace that are not terminating.
func collectPodNames(t *testing.T) *stringSet {
	t.Helper()
	names := &stringSet{}
	watchObjects(t, func(o object, _ bool) {
		if o.Metadata.DeletionTimestamp == "" {
			names.add(o.Metadata.Name)
		}
	}, "pods", "-n", suite.OperatorNamespace)
	return names
}

// nodeWatch is what a watch of nodes recorded.
type nodeWatch struct {
	stop  func()
	nodes []string

	mu           sync.Mutex
	boots        map[string][]string // boot ids of each node, in order
	rebooted     []string            // nodes in the order of their reboots
	cordoned     map[string]bool
	mostCordoned int
}

// watchNodes records the boots of all nodes, and the cordons of those that are given.
func watchNodes(t *testing.T, nodes ...string) *nodeWatch {
	t.Helper()
	w := &nodeWatch{nodes: nodes, boots: map[string][]string{}, cordoned: map[string]bool{}}
	w.stop = watchObjects(t, w.record, "nodes")
	return w
}

func (w *nodeWatch) record(o object, _ bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	name, id := o.Metadata.Name, o.Status.NodeInfo.BootID
	if boots := w.boots[name]; !slices.Contains(boots, id) {
		w.boots[name] = append(boots, id)
		if len(boots) > 0 {
			w.rebooted = append(w.rebooted, name)
		}
	}
	if delete(w.cordoned, name); o.Spec.Unschedulable && slices.Contains(w.nodes, name) {
		w.cordoned[name] = true
	}
	w.mostCordoned = max(w.mostCordoned, len(w.cordoned))
}

// waitForReboot waits until one of the given nodes has rebooted.
func (w *nodeWatch) waitForReboot(t *testing.T) {
	t.Helper()
	suite.Eventually(t, "the first node reboots", func() error {
		w.mu.Lock()
		defer w.mu.Unlock()
		if len(w.rebooted) == 0 {
			return fmt.Errorf("none of %v has rebooted", w.nodes)
		}
		return nil
	})
}

// requireOneReboot stops the watch, and checks that each given node rebooted once, and that no two were cordoned together.
func (w *nodeWatch) requireOneReboot(t *testing.T) {
	t.Helper()
	w.stop()
	for _, n := range w.nodes {
		if len(w.boots[n]) != 2 {
			t.Errorf("node %s had the boots %v, want one before and one after a single reboot", n, w.boots[n])
		}
	}
	if w.mostCordoned != 1 {
		t.Errorf("%d nodes were cordoned at the same time, want 1", w.mostCordoned)
	}
}

// collectValues polls read until stop is called, and collects its different values. It is for what cannot be watched.
func collectValues(read func() (string, error)) (stop func() []string) {
	values, end := &stringSet{}, make(chan struct{})
	var wg sync.WaitGroup
	wg.Go(func() {
		for {
			if v, err := read(); err == nil && v != "" {
				values.add(v)
			}
			select {
			case <-end:
				return
			case <-time.After(100 * time.Millisecond):
			}
		}
	})
	return func() []string {
		close(end)
		wg.Wait()
		return values.list()
	}
}
