// SPDX-FileCopyrightText: The Skyhook authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	_ "embed"
	"fmt"
	"os"
	"path/filepath"
	"strings"
)

//go:embed mutations.txt
var listText string

// mutation is one planted fault: a replacement on one line of a file, and the rule that it breaks.
type mutation struct {
	line     int // in mutations.txt
	file     string
	old, new string
	rule     string
}

func (m mutation) String() string { return fmt.Sprintf("%s: %s", m.file, m.rule) }

// parseList reads lines of the form "file :: old => new :: rule". Lines that begin with # and empty lines are ignored.
func parseList(text string) ([]mutation, error) {
	var out []mutation
	for i, line := range strings.Split(text, "\n") {
		if line == "" || strings.HasPrefix(line, "#") {
			continue
		}
		parts := strings.Split(line, " :: ")
		if len(parts) != 3 {
			return nil, fmt.Errorf("mutations.txt:%d: write file :: old => new :: rule", i+1)
		}
		before, after, found := strings.Cut(parts[1], " => ")
		if !found || before == after {
			return nil, fmt.Errorf("mutations.txt:%d: write what is replaced and by what: old => new", i+1)
		}
		out = append(out, mutation{line: i + 1, file: parts[0], old: before, new: after, rule: parts[2]})
	}
	return out, nil
}

// apply returns the file with the fault in it. The replaced text must be there exactly once.
func (m mutation) apply(root string) ([]byte, error) {
	text, err := os.ReadFile(filepath.Join(root, m.file))
	if err != nil {
		return nil, fmt.Errorf("mutations.txt:%d: %w", m.line, err)
	}
	if n := strings.Count(string(text), m.old); n != 1 {
		return nil, fmt.Errorf("mutations.txt:%d: %s has %q %d times, not once: correct the line", m.line, m.file, m.old, n)
	}
	return []byte(strings.Replace(string(text), m.old, m.new, 1)), nil
}

// part returns every n-th mutation, from the k-th on; k counts from 0 and may be larger than n.
func part(all []mutation, k, n int) []mutation {
	var out []mutation
	for i, m := range all {
		if i%n == k%n {
			out = append(out, m)
		}
	}
	return out
}
