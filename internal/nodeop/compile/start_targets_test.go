// SPDX-FileCopyrightText: The Skyhook authors
// SPDX-License-Identifier: Apache-2.0

package compile

import (
	"strconv"
	"testing"

	"github.com/skyhook-k8s/skyhook/internal/node"
)

// TestStartTargetsSize: the record of the nodes of a start is bounded, and tells nodes of the same name apart.
func TestStartTargetsSize(t *testing.T) {
	var nodes []*node.Node
	for i := range 10000 {
		nodes = append(nodes, &node.Node{Name: "n", UID: strconv.Itoa(i)})
	}
	recorded := newStartTargets(nodes)
	if len(recorded.Nodes) > 70<<10 {
		t.Errorf("10,000 nodes have %d bytes", len(recorded.Nodes))
	}
	members, err := parseStartTargets(recorded)
	if err != nil || len(members) != len(nodes) || !members[hashNode(nodes[7])] || members[hashNode(&node.Node{UID: "other"})] {
		t.Errorf("%d nodes, %v", len(members), err)
	}
}
