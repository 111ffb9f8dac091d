// SPDX-FileCopyrightText: The Skyhook authors
// SPDX-License-Identifier: Apache-2.0

package skyhook_test

import (
	"encoding/json"
	"maps"
	"os/exec"
	"slices"
	"sync"
	"testing"
	"time"
)

// thing is what stories look at in nodes, pods and deployments.
type thing struct {
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

// follow watches objects with kubectl, so that nothing that happens to them is missed. note is called for each change,
// one after the other; gone says that the object was deleted. What it returns ends the watch.
func follow(t *testing.T, note func(o thing, gone bool), args ...string) (stop func()) {
	t.Helper()
	cmd := exec.Command(kubectl, append([]string{"--kubeconfig", cluster.Kubeconfig, "get", "-w", "--output-watch-events", "-o", "json"}, args...)...)
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
				Object thing
			}
			if d.Decode(&e) != nil {
				return // the watch has ended
			}
			note(e.Object, e.Type == "DELETED")
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

// names is a set of names that a watch fills.
type names struct {
	mu  sync.Mutex
	set map[string]bool
}

func (n *names) add(name string) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.set == nil {
		n.set = map[string]bool{}
	}
	n.set[name] = true
}

func (n *names) list() []string {
	n.mu.Lock()
	defer n.mu.Unlock()
	return slices.Sorted(maps.Keys(n.set))
}

// podsSeen collects the names of the pods in the operator's namespace that are not on their way out.
func podsSeen(t *testing.T) *names {
	t.Helper()
	n := &names{}
	follow(t, func(o thing, _ bool) {
		if o.Metadata.DeletionTimestamp == "" {
			n.add(o.Metadata.Name)
		}
	}, "pods", "-n", "skyhook")
	return n
}

// sampled collects the different values that ask gives until stop is called. It is for what cannot be watched.
func sampled(ask func() (string, error)) (stop func() []string) {
	values, end := &names{}, make(chan struct{})
	var wg sync.WaitGroup
	wg.Go(func() {
		for {
			if v, err := ask(); err == nil && v != "" {
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
