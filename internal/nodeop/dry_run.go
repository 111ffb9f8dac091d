// SPDX-FileCopyrightText: The Skyhook authors
// SPDX-License-Identifier: Apache-2.0

package nodeop

import "github.com/skyhook-k8s/skyhook/internal/node"

// DryRunObjects returns an object of each kind that a node needs. They are never created: the API server says of them whether it would
// refuse such objects.
func (c *Compiled) DryRunObjects(n *node.Node) Objects {
	rec := node.OpRecord{Admitted: true, Admission: 1, Job: c.op.objectName("", n, 1)}
	r := &renderer{c.op, n, &rec}
	out := Objects{Job: r.job()}
	if c.op.spec().Preflight != nil {
		out.Pods = append(out.Pods, r.preflightPod())
	}
	if c.op.reboots() {
		out.Pods = append(out.Pods, r.rebootPod(true))
	}
	for _, command := range c.op.proofs.Commands() {
		out.Pods = append(out.Pods, r.checkPod(command, c.op.commandPods(n, &rec, nil).Name(command)))
	}
	return out
}
