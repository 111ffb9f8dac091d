// SPDX-FileCopyrightText: The Skyhook authors
// SPDX-License-Identifier: Apache-2.0

package skyhook

import (
	"strconv"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/skyhook-k8s/skyhook/api/skyhook/v1alpha1"
	"github.com/skyhook-k8s/skyhook/internal/node"
)

// Proofs returns the proofs that a Skyhook and its policy ask for.
func Proofs(s *v1alpha1.Skyhook, p *v1alpha1.DeploymentPolicy) node.Proofs {
	if p == nil {
		return node.NewProofs(s.Spec.Proof)
	}
	return node.NewProofs(s.Spec.Proof, p.Spec.Proof)
}

// IsProving reports whether all work of a Skyhook is done on a node and its proof is waited for.
func IsProving(s *v1alpha1.Skyhook, n *node.Node) bool {
	rec := n.Skyhook(s.Name).Record
	return rec.Admitted && rec.Proving != nil && rec.Node == n.UID && rec.Skyhook == string(s.UID)
}

// commandPods returns the pods of a Skyhook on a node that run commands of proofs.
func (c *nodeCompiler) commandPods(n *node.Node, rec *node.SkyhookRecord) node.CommandPods {
	out := node.CommandPods{Now: c.facts.Now, Refused: c.refused, Name: func(command *v1alpha1.ProofCommand) string {
		return c.facts.proofPodName(n, rec.Admission, command)
	}}
	for _, pod := range c.pods.work {
		if pod.command != nil {
			out.All = append(out.All, pod.command)
		}
	}
	return out
}

// proofPodName returns the name of the pod that runs the command of a proof in an admission.
func (f *facts) proofPodName(n *node.Node, admission int, command *v1alpha1.ProofCommand) string {
	return safeName(maxPodName, f.Skyhook.Name, "proof", n.Name, strconv.Itoa(admission), node.HashCommand(command))
}

// isCheckPod reports whether a pod runs a command of a proof that is waited for.
func (c *nodeCompiler) isCheckPod(t *target, pod *podInfo) bool {
	if pod.command == nil || !t.selected || !IsProving(c.facts.Skyhook, t.node) {
		return false
	}
	return Proofs(c.facts.Skyhook, c.facts.Policy).NeedsPod(c.commandPods(t.node, &t.rec), pod.command)
}

// checkPods returns the pods that run the commands of the proofs on a node and are not among those that exist.
func (r renderer) checkPods(n *node.Node, exists func(name string) bool) []*corev1.Pod {
	admission := n.Skyhook(r.facts.Skyhook.Name).Record.Admission
	var out []*corev1.Pod
	for _, command := range Proofs(r.facts.Skyhook, r.facts.Policy).Commands() {
		if name := r.facts.proofPodName(n, admission, command); !exists(name) {
			out = append(out, r.checkPod(command, name, n))
		}
	}
	return out
}

// checkPod runs the command of a proof.
func (r renderer) checkPod(command *v1alpha1.ProofCommand, name string, n *node.Node) *corev1.Pod {
	return r.newCheckPod(name, v1alpha1.LabelProof, n, node.CommandPodSpec(command, n.Name))
}

// newCheckPod returns a pod that checks a node, marked by a label.
func (r renderer) newCheckPod(name, label string, n *node.Node, spec corev1.PodSpec) *corev1.Pod {
	s := r.facts.Skyhook
	out := &corev1.Pod{
		TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "Pod"},
		ObjectMeta: metav1.ObjectMeta{
			Name: name, Namespace: r.facts.Config.Namespace, OwnerReferences: ownerReferences(s),
			Labels: map[string]string{v1alpha1.LabelName: s.Name, v1alpha1.LabelNode: nodeLabel(n.Name), label: "True"},
		},
		Spec: spec,
	}
	out.Spec.ServiceAccountName, out.Spec.Tolerations = r.facts.Config.ServiceAccount, r.tolerations()
	if r.facts.Config.ImagePullSecret != "" {
		out.Spec.ImagePullSecrets = []corev1.LocalObjectReference{{Name: r.facts.Config.ImagePullSecret}}
	}
	return out
}

// recordProving records that all work is done and the proof is waited for.
func (r recorder) recordProving(n *node.Node) node.Edit {
	now := node.WholeSeconds(r.facts.Now)
	return editRecord(r.facts, n, func(_ v1alpha1.NodeState, rec *node.SkyhookRecord) {
		if rec.Proving == nil {
			rec.Proving = &now
		}
	})
}
