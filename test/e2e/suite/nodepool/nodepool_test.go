// SPDX-FileCopyrightText: The Skyhook authors
// SPDX-License-Identifier: Apache-2.0

package nodepool_test

import (
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"github.com/skyhook-k8s/skyhook/test/e2e/suite/nodepool"
)

// queue queues a request for each test; its name ends with the number of nodes.
func queue(p *nodepool.Pool, tests ...string) map[string]*nodepool.Request {
	requests := map[string]*nodepool.Request{}
	for _, test := range tests {
		requests[test] = p.Queue(test, int(test[len(test)-1]-'0'))
	}
	return requests
}

// requireOwners checks which tests have the nodes a, b, c and so on.
func requireOwners(t *testing.T, p *nodepool.Pool, want string) {
	t.Helper()
	var got []string
	for n := range len(strings.Fields(want)) {
		owner := p.Owner(string(rune('a' + n)))
		if owner == "" {
			owner = "-"
		}
		got = append(got, owner)
	}
	if strings.Join(got, " ") != want {
		t.Fatalf("the nodes belong to %v, want %s", got, want)
	}
}

// TestOrder: requests for more nodes come first, and smaller ones leave them what they need.
func TestOrder(t *testing.T) {
	p := &nodepool.Pool{}
	r := queue(p, "t1", "u1", "v1", "x2", "y2")
	requireOwners(t, p, "- - -")
	p.Open([]string{"a", "b", "c"})
	requireOwners(t, p, "x2 x2 t1")
	r["t1"].Release()
	requireOwners(t, p, "x2 x2 u1")
	r["x2"].Release()
	requireOwners(t, p, "y2 y2 u1")
	r["y2"].Release()
	requireOwners(t, p, "v1 - u1")
}

// TestSmallPool: in a pool of two nodes a request for both is not passed by those for one.
func TestSmallPool(t *testing.T) {
	p := &nodepool.Pool{}
	r := queue(p, "t1", "x2")
	p.Open([]string{"a", "b"})
	requireOwners(t, p, "x2 x2")
	u := queue(p, "y2")
	r["x2"].Release()
	requireOwners(t, p, "y2 y2")
	u["y2"].Release()
	requireOwners(t, p, "t1 -")
}

// TestRandomOrder releases in random orders: every request is granted, with as many nodes as it wants.
func TestRandomOrder(t *testing.T) {
	for seed := range uint64(200) {
		luck := rand.New(rand.NewPCG(seed, 0))
		p, open, counts := &nodepool.Pool{}, map[string]*nodepool.Request{}, map[string]int{}
		size := 2 + luck.IntN(4)
		for i := range 20 {
			test := fmt.Sprint(i)
			counts[test] = 1 + luck.IntN(size)
			open[test] = p.Queue(test, counts[test])
		}
		nodes := strings.Fields("a b c d e")[:size]
		p.Open(nodes)
		for len(open) > 0 {
			has := map[string]int{}
			for _, n := range nodes {
				has[p.Owner(n)]++
			}
			delete(has, "")
			if len(has) == 0 {
				t.Fatalf("seed %d: %d requests wait for ever", seed, len(open))
			}
			tests := slices.Sorted(maps.Keys(has))
			test := tests[luck.IntN(len(tests))]
			if got := open[test].Wait(); len(got) != counts[test] || has[test] != counts[test] {
				t.Fatalf("seed %d: test %s has %v and owns %d, want %d", seed, test, got, has[test], counts[test])
			}
			open[test].Release()
			delete(open, test)
		}
	}
}
