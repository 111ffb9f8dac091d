// SPDX-FileCopyrightText: The Skyhook authors
// SPDX-License-Identifier: Apache-2.0

package nodeop_test

import (
	"slices"
	"strings"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"

	"github.com/skyhook-k8s/skyhook/api/nodeop/v1alpha1"
	"github.com/skyhook-k8s/skyhook/internal/nodeop"
	"github.com/skyhook-k8s/skyhook/internal/pack"
	"github.com/skyhook-k8s/skyhook/test/kubelet"
)

// runKubelets simulates the kubelets and the Job controller.
func (w *environment) runKubelets() {
	for _, j := range w.jobs {
		w.runJob(j)
	}
	for _, p := range slices.Clone(w.pods) {
		switch {
		case kubelet.HasEnded(p):
		case p.Labels[v1alpha1.LabelPreflight] == "true":
			w.runPreflight(p)
		case p.Labels[v1alpha1.LabelReboot] == "true":
			w.runReboot(p)
		}
	}
}

func (w *environment) runJob(j *batchv1.Job) {
	node := j.Spec.Template.Spec.NodeName
	if done, _ := jobOutcome(j); done || w.node(node) == nil {
		return
	}
	p := findPod(w.pods, podName(j, 1))
	if p == nil {
		w.startAttempt(j)
		return
	}
	switch w.commands[node] {
	case "fail":
		j.Status.Failed = *j.Spec.BackoffLimit + 1
		kubelet.EndAll(p, 3, "no such file", w.now)
		kubelet.EndJob(j, false, w.now)
	case "hang":
	default:
		if p.Spec.InitContainers != nil && p.Spec.InitContainers[0].Name == nodeop.ContainerBoot {
			kubelet.End(p, 0, 0, string(pack.Kairos{BootID: w.agentBoot(node)}.Encode()), w.now)
		}
		kubelet.EndAll(p, 0, w.output, w.now)
		kubelet.EndJob(j, true, w.now)
	}
}

func (w *environment) runPreflight(p *corev1.Pod) {
	switch word := w.checks[p.Spec.NodeName]; word {
	case "hang":
		kubelet.Create(p)
		kubelet.Begin(p, 0, w.now)
	case "!":
		kubelet.EndAll(p, 4, "", w.now)
	default:
		kubelet.EndAll(p, 0, word, w.now)
	}
}

func (w *environment) runReboot(p *corev1.Pod) {
	n := w.node(p.Spec.NodeName)
	waits := slices.Contains(p.Spec.Containers[0].Args, "--after-file")
	ready := slices.ContainsFunc(w.jobs, func(j *batchv1.Job) bool {
		done, well := jobOutcome(j)
		return done && well && j.Spec.Template.Spec.NodeName == p.Spec.NodeName && slices.Contains(p.Spec.Containers[0].Args, j.Name)
	})
	if n == nil || waits && !ready {
		return
	}
	end := func(came pack.Reboot) {
		kubelet.EndAll(p, 0, string(pack.Message{Outcome: pack.Succeeded, Reboot: &came}.Encode()), w.now)
	}
	switch w.rebootModes[n.Name] {
	case "never":
	case "lies":
		kubelet.EndAll(p, 0, "", w.now)
	case "gone":
		n.Ready = false
	case "falls back", "came up":
		from := n.BootID
		n.BootID += "'"
		came := pack.Reboot{From: from, To: n.BootID, Version: "v4.1.0-k3s", System: pack.KairosActive}
		if w.rebootModes[n.Name] == "falls back" {
			came.Version, came.System = "v4.0.0-k3s", pack.KairosPassive
		}
		end(came)
	default:
		id := n.UID + " " + strings.Join(p.Spec.Containers[0].Args[:5], " ") // interrupt … --id ID
		proof, did := w.hostRecords[id]                                      // recorded on the host
		if !did {
			proof = pack.Reboot{From: n.BootID, To: n.BootID + "'"}
			n.BootID, w.hostRecords[id] = proof.To, proof
		}
		end(proof)
		if w.rebootModes[n.Name] == "twice" {
			n.BootID += "'"
		}
	}
}
