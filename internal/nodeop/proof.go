// SPDX-FileCopyrightText: The Skyhook authors
// SPDX-License-Identifier: Apache-2.0

package nodeop

import (
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/skyhook-k8s/skyhook/api/nodeop/v1alpha1"
	skyhookv1 "github.com/skyhook-k8s/skyhook/api/skyhook/v1alpha1"
	"github.com/skyhook-k8s/skyhook/internal/node"
)

// Proofs returns the proofs that a NodeOp and its policy ask for.
func Proofs(op *v1alpha1.NodeOp, p *skyhookv1.DeploymentPolicy) node.Proofs {
	if p == nil {
		return node.NewProofs(op.Spec.Proof)
	}
	return node.NewProofs(op.Spec.Proof, p.Spec.Proof)
}

// NewIsProving returns what reports whether all work of a NodeOp is done on a node and its proof is waited for.
func NewIsProving(o *v1alpha1.NodeOp) func(*node.Node) bool {
	op := newOperation(&Input{NodeOp: o})
	return func(n *node.Node) bool {
		rec, ok := op.recordOn(n)
		return ok && rec.Admitted && rec.Proving != nil
	}
}

// commandPods returns the pods on a node that run commands of proofs.
func (op *operation) commandPods(n *node.Node, rec *node.OpRecord, checks []*corev1.Pod) node.CommandPods {
	return node.CommandPods{Prefix: kindPod, All: checks, Name: func(c *skyhookv1.ProofCommand) string {
		return op.objectName(node.ContainerProof+"-"+nameSuffix(node.HashCommand(c)), n, rec.Admission)
	}}
}

// CheckPods returns the pods that run the commands of the proofs on a node and do not exist.
func (c *Compiled) CheckPods(n *node.Node) []*corev1.Pod {
	rec, _ := c.op.recordOn(n)
	var checks []*corev1.Pod
	if t := c.index[n.Name]; t != nil {
		checks = t.objects.checks
	}
	pods, r := c.op.commandPods(n, &rec, checks), &renderer{c.op, n, &rec}
	var out []*corev1.Pod
	for _, command := range c.op.proofs.Commands() {
		if name := pods.Name(command); findPod(checks, name) == nil {
			out = append(out, r.checkPod(command, name))
		}
	}
	return out
}

// checkPod runs the command of a proof.
func (r *renderer) checkPod(command *skyhookv1.ProofCommand, name string) *corev1.Pod {
	out := &corev1.Pod{
		TypeMeta:   metav1.TypeMeta{APIVersion: "v1", Kind: "Pod"},
		ObjectMeta: r.objectMeta(name),
		Spec:       node.CommandPodSpec(command, r.node.Name),
	}
	out.Labels[skyhookv1.LabelProof] = "True"
	out.Spec.Tolerations, out.Spec.ImagePullSecrets = r.tolerations(), r.spec().ImagePullSecrets
	return out
}

// recordProving records that all work is done and the proof is waited for.
func (r *recorder) recordProving() node.Edit {
	return r.editRecord(func(rec *node.OpRecord) {
		if rec.Proving == nil {
			rec.Proving = new(node.WholeSeconds(r.now))
		}
	})
}
