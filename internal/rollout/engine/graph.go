// SPDX-FileCopyrightText: The Skyhook authors
// SPDX-License-Identifier: Apache-2.0

package engine

import (
	"slices"
	"strings"

	"github.com/skyhook-k8s/skyhook/internal/rollout"
)

// graph has the dependencies of the tasks of a target, by index. Most targets of a rollout have the same tasks and share
// one graph.
type graph struct {
	tasks   []rollout.Task // that it was built from
	after   [][]int        // the tasks that each one waits for
	order   []int          // each after the tasks that it waits for
	problem string         // why the tasks cannot be ordered; empty if they can
}

// maxShapes limits how many graphs a rollout keeps.
const maxShapes = 8

func (r *rolloutState) findGraph(tasks []rollout.Task) *graph {
	for _, g := range r.graphs {
		if g.matchesTasks(tasks) {
			return g
		}
	}
	g := newGraph(tasks)
	if len(r.graphs) == maxShapes {
		r.graphs = r.graphs[1:]
	}
	r.graphs = append(r.graphs, g)
	return g
}

func (g *graph) matchesTasks(tasks []rollout.Task) bool {
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

func newGraph(tasks []rollout.Task) *graph {
	g := &graph{tasks: tasks, after: make([][]int, len(tasks))}
	index := make(map[string]int, len(tasks))
	for i := range tasks {
		if _, twice := index[tasks[i].ID]; twice {
			g.problem = "task " + tasks[i].ID + " is listed twice"
			return g
		}
		index[tasks[i].ID] = i
	}
	for i := range tasks {
		for _, id := range tasks[i].After {
			j, ok := index[id]
			if !ok {
				g.problem = tasks[i].Title() + " depends on " + id + ", which does not exist"
				return g
			}
			g.after[i] = append(g.after[i], j)
		}
	}
	g.sortTasks()
	return g
}

// sortTasks finds the order, or a cycle, which makes one impossible.
func (g *graph) sortTasks() {
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
		for _, j := range g.after[i] {
			if mark[j] == open {
				g.problem = g.describeCycle(path[slices.Index(path, j):])
				return false
			}
			if mark[j] == unseen && !visit(j) {
				return false
			}
		}
		mark[i] = closed
		path = path[:len(path)-1]
		g.order = append(g.order, i)
		return true
	}
	for i := range g.tasks {
		if mark[i] == unseen && !visit(i) {
			return
		}
	}
}

// describeCycle lists tasks that wait for each other.
func (g *graph) describeCycle(path []int) string {
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
