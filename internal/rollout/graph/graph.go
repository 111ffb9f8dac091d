// SPDX-FileCopyrightText: The Skyhook authors
// SPDX-License-Identifier: Apache-2.0

// Package graph orders the tasks of a target by what they depend on.
package graph

import (
	"slices"
	"strings"

	"github.com/skyhook-k8s/skyhook/internal/rollout"
)

// Graph has the dependencies of the tasks of a target, by index.
type Graph struct {
	tasks   []rollout.Task // that it was built from
	After   [][]int        // the tasks that each one waits for
	Order   []int          // each after the tasks that it waits for
	Problem string         // why the tasks cannot be ordered; empty if they can
}

// Shapes are graphs that were built a moment ago. Most targets of a rollout have the same tasks and share one.
type Shapes []*Graph

// maxShapes limits how many are kept.
const maxShapes = 8

// Of returns the graph of some tasks.
func (s *Shapes) Of(tasks []rollout.Task) *Graph {
	for _, g := range *s {
		if g.matchesTasks(tasks) {
			return g
		}
	}
	g := newGraph(tasks)
	if len(*s) == maxShapes {
		*s = (*s)[1:]
	}
	*s = append(*s, g)
	return g
}

func (g *Graph) matchesTasks(tasks []rollout.Task) bool {
	if len(g.tasks) != len(tasks) {
		return false
	}
	for i := range tasks {
		if !g.tasks[i].IsLike(&tasks[i]) {
			return false
		}
	}
	return true
}

func newGraph(tasks []rollout.Task) *Graph {
	g := &Graph{tasks: tasks, After: make([][]int, len(tasks))}
	index := make(map[string]int, len(tasks))
	for i := range tasks {
		if _, twice := index[tasks[i].ID]; twice {
			g.Problem = "task " + tasks[i].ID + " is listed twice"
			return g
		}
		index[tasks[i].ID] = i
	}
	for i := range tasks {
		for _, id := range tasks[i].After {
			j, ok := index[id]
			if !ok {
				g.Problem = tasks[i].Title() + " depends on " + id + ", which does not exist"
				return g
			}
			g.After[i] = append(g.After[i], j)
		}
	}
	g.sortTasks()
	return g
}

// sortTasks finds the order, or a cycle, which makes one impossible.
func (g *Graph) sortTasks() {
	const (
		unseen = iota
		open
		closed
	)
	mark := make([]int, len(g.tasks))
	var path []int
	var visit func(i int) bool
	visit = func(i int) bool {
		path = append(path, i)
		mark[i] = open
		for _, j := range g.After[i] {
			if mark[j] == open {
				g.Problem = g.describeCycle(path[slices.Index(path, j):])
				return false
			}
			if mark[j] == unseen && !visit(j) {
				return false
			}
		}
		mark[i] = closed
		path = path[:len(path)-1]
		g.Order = append(g.Order, i)
		return true
	}
	for i := range g.tasks {
		if mark[i] == unseen && !visit(i) {
			return
		}
	}
}

// describeCycle lists tasks that wait for each other.
func (g *Graph) describeCycle(path []int) string {
	var names []string
	for _, i := range path {
		names = append(names, g.tasks[i].Title())
		if len(names) == 8 && len(path) > 9 {
			names = append(names, "…")
			break
		}
	}
	names = append(names, g.tasks[path[0]].Title())
	return "tasks form a cycle: " + strings.Join(names, " → ")
}
