// SPDX-FileCopyrightText: The Skyhook authors
// SPDX-License-Identifier: Apache-2.0

package compile

import (
	"bytes"
	"crypto/sha256"
	"encoding/base64"
	"fmt"
	"slices"

	"k8s.io/apimachinery/pkg/labels"

	"github.com/skyhook-k8s/skyhook/api/nodeop/v1alpha1"
	"github.com/skyhook-k8s/skyhook/internal/node"
	"github.com/skyhook-k8s/skyhook/internal/nodeop"
	"github.com/skyhook-k8s/skyhook/internal/rollout"
)

const (
	startHashBytes  = 5     // of one node
	maxStartTargets = 39000 // nodes that fit into the status
)

// startHash is what the status records of a node: another node of the same name has another UID.
type startHash [startHashBytes]byte

func hashNode(n *node.Node) (out startHash) {
	sum := sha256.Sum256([]byte(n.UID))
	copy(out[:], sum[:])
	return out
}

// compileStart finds out which nodes belong to an operation that has the nodes of its start. While that is not recorded nothing starts. It is
// recorded by the status when the operation could start: it is valid, not suspended, and selects a node.
func (c *compiler) compileStart() {
	if !c.op.TargetsAtStart || !c.op.SelectsNodes() {
		return
	}
	if recorded := c.op.NodeOp.Status.Internal.StartTargets; recorded != nil {
		members, err := parseStartTargets(recorded)
		if err != nil {
			c.breakStart(err.Error())
			return
		}
		c.isMember = func(n *node.Node) bool { return members[hashNode(n)] }
		c.out.AllGone = len(c.in.Nodes) > 0 && !slices.ContainsFunc(c.in.Nodes, c.isMember)
		return
	}
	c.isStarting = true
	if c.out.Rollout.Broken != nil || nodeop.IsTrue(c.op.Spec().Suspend) {
		return
	}
	var selected []*node.Node
	for _, n := range c.in.Nodes {
		if c.selector.Matches(labels.Set(n.Labels)) {
			selected = append(selected, n)
		}
	}
	if len(selected) == 0 { // it starts with the first node
		return
	}
	if len(selected) > maxStartTargets {
		c.breakStart(fmt.Sprintf("nodeSelector selects %d nodes, and an operation that keeps to the nodes of its start records at most %d: select fewer", len(selected), maxStartTargets))
		return
	}
	c.out.Start = newStartTargets(selected)
}

func (c *compiler) breakStart(text string) {
	c.addProblem(rollout.ReasonInvalidSpec, text)
	if c.out.Rollout.Broken == nil {
		c.out.Rollout.Broken = &rollout.Why{Reason: rollout.ReasonInvalidSpec, Text: text}
	}
}

// selects reports whether a node belongs to the operation.
func (c *compiler) selects(n *node.Node) bool {
	isSelected := c.op.SelectsNodes() && c.selector.Matches(labels.Set(n.Labels))
	return isSelected && (c.isMember == nil || c.isMember(n))
}

func newStartTargets(nodes []*node.Node) *v1alpha1.StartTargets {
	hashes := make([]startHash, 0, len(nodes))
	for _, n := range nodes {
		hashes = append(hashes, hashNode(n))
	}
	slices.SortFunc(hashes, func(a, b startHash) int { return bytes.Compare(a[:], b[:]) })
	raw := make([]byte, 0, startHashBytes*len(hashes))
	for _, h := range hashes {
		raw = append(raw, h[:]...)
	}
	return &v1alpha1.StartTargets{Count: int32(len(hashes)), Nodes: base64.StdEncoding.EncodeToString(raw)}
}

func parseStartTargets(recorded *v1alpha1.StartTargets) (map[startHash]bool, error) {
	raw, err := base64.StdEncoding.DecodeString(recorded.Nodes)
	if err != nil || len(raw) != startHashBytes*int(recorded.Count) {
		return nil, fmt.Errorf("status.internal.startTargets cannot be read: remove it, and the nodes that are selected now belong to the operation")
	}
	out := make(map[startHash]bool, recorded.Count)
	for chunk := range slices.Chunk(raw, startHashBytes) {
		out[startHash(chunk)] = true
	}
	return out, nil
}

// awaitsStart is why nothing starts on a node whose membership is not recorded.
func awaitsStart() *rollout.Why {
	return &rollout.Why{Reason: rollout.ReasonLedger, Text: "the nodes of the start are being recorded"}
}
