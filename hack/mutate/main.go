// SPDX-FileCopyrightText: The Skyhook authors
// SPDX-License-Identifier: Apache-2.0

// Command mutate plants the faults of mutations.txt one by one and checks that scenarios and random runs notice each. It
// changes no file: go test reads the mutated file from an overlay. It fails when a fault is not noticed, when its line
// is not in the tree any more, and when it does not compile.
//
//	go run ./hack/mutate                  # all of them
//	go run ./hack/mutate -part 3/12       # every twelfth, from the fourth on
//	go run ./hack/mutate -only admit.go   # those whose file or rule contains a text
package main

import (
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"time"
)

func main() {
	partOf := flag.String("part", "0/1", "K/N: every N-th fault, from the K-th on")
	only := flag.String("only", "", "only faults whose file or rule contains this text")
	parallel := flag.Int("parallel", 2, "how many faults are tried at the same time")
	flag.Parse()
	if err := run(*partOf, *only, *parallel); err != nil {
		fmt.Fprintln(os.Stderr, "mutate:", err)
		os.Exit(1)
	}
}

func run(partOf, only string, parallel int) error {
	var k, n int
	if _, err := fmt.Sscanf(partOf, "%d/%d", &k, &n); err != nil || k < 0 || n < 1 {
		return fmt.Errorf("-part %s: write K/N, such as 3/12", partOf)
	}
	all, err := parseList(listText)
	if err != nil {
		return err
	}
	var chosen []mutation
	for _, m := range part(all, k, n) {
		if strings.Contains(m.String(), only) {
			chosen = append(chosen, m)
		}
	}
	dir, err := os.MkdirTemp("", "mutate")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	began := time.Now()
	failures := tryAll(chosen, dir, max(1, parallel))
	fmt.Printf("%d of %d faults noticed in %s\n", len(chosen)-len(failures), len(chosen), time.Since(began).Round(time.Second))
	return errors.Join(failures...)
}

// tryAll tries several faults at a time and returns what is wrong with those that were not noticed.
func tryAll(all []mutation, dir string, parallel int) []error {
	var mu sync.Mutex
	var failures []error
	var workers sync.WaitGroup
	queue := make(chan mutation)
	for range parallel {
		workers.Go(func() {
			for m := range queue {
				began := time.Now()
				by, err := m.try(dir)
				mu.Lock()
				if err != nil {
					failures = append(failures, err)
					fmt.Printf("FAIL  %5.1fs  %v\n", time.Since(began).Seconds(), err)
				} else {
					fmt.Printf("ok    %5.1fs  %s (noticed by %s)\n", time.Since(began).Seconds(), m, by)
				}
				mu.Unlock()
			}
		})
	}
	for _, m := range all {
		queue <- m
	}
	close(queue)
	workers.Wait()
	return failures
}

// try plants the fault and runs the tests until one notices it.
func (m mutation) try(dir string) (noticedBy string, err error) {
	text, err := m.apply(".")
	if err != nil {
		return "", err
	}
	overlay, err := m.writeOverlay(dir, text)
	if err != nil {
		return "", err
	}
	for _, tests := range testsFor(m.file) {
		out, err := exec.Command("go", append([]string{"test", "-failfast", "-timeout", "5m", "-overlay", overlay}, tests...)...).CombinedOutput()
		var failed *exec.ExitError
		switch {
		case err == nil:
			continue
		case !errors.As(err, &failed):
			return "", fmt.Errorf("running go test: %w", err)
		case strings.Contains(string(out), "[build failed]") || strings.Contains(string(out), "[setup failed]"):
			return "", fmt.Errorf("mutations.txt:%d: the fault does not compile: %s", m.line, strings.TrimSpace(string(out)))
		}
		return tests[0], nil
	}
	return "", fmt.Errorf("mutations.txt:%d: no test notices it: %s", m.line, m)
}

// writeOverlay writes the mutated file, and the file that go test reads the replacement from.
func (m mutation) writeOverlay(dir string, text []byte) (string, error) {
	mutated := filepath.Join(dir, fmt.Sprintf("%d.go", m.line))
	if err := os.WriteFile(mutated, text, 0o600); err != nil {
		return "", err
	}
	original, err := filepath.Abs(m.file)
	if err != nil {
		return "", err
	}
	raw, err := json.Marshal(map[string]any{"Replace": map[string]string{original: mutated}})
	if err != nil {
		return "", err
	}
	overlay := filepath.Join(dir, fmt.Sprintf("%d.json", m.line))
	return overlay, os.WriteFile(overlay, raw, 0o600)
}
