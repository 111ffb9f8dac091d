// SPDX-FileCopyrightText: The Skyhook authors
// SPDX-License-Identifier: Apache-2.0

package nodeop_test

import (
	"slices"
	"strings"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/skyhook-k8s/skyhook/api/nodeop/v1alpha1"
	"github.com/skyhook-k8s/skyhook/internal/nodeop"
	"github.com/skyhook-k8s/skyhook/internal/pack"
)

// runKubelets simulates the kubelets and the Job controller.
func (w *environment) runKubelets() {
	for _, j := range w.jobs {
		w.runJob(j)
	}
	for _, p := range slices.Clone(w.pods) {
		switch {
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
	if findPod(w.pods, j.Name+"-x") == nil {
		yes := true
		w.pods = append(w.pods, &corev1.Pod{
			ObjectMeta: metav1.ObjectMeta{Name: j.Name + "-x", Namespace: j.Namespace, Labels: j.Spec.Template.Labels, CreationTimestamp: metav1.NewTime(w.now),
				OwnerReferences: []metav1.OwnerReference{{Kind: "Job", Name: j.Name, UID: j.UID, Controller: &yes}}},
			Spec: j.Spec.Template.Spec,
		})
		j.Status.Active = 1
		return
	}
	p := findPod(w.pods, j.Name+"-x")
	end := func(code int32, message string, kind batchv1.JobConditionType) {
		p.Status.Phase = corev1.PodSucceeded
		if code != 0 {
			p.Status.Phase = corev1.PodFailed
		}
		status := []corev1.ContainerStatus{{Name: nodeop.ContainerCommand, State: corev1.ContainerState{Terminated: &corev1.ContainerStateTerminated{ExitCode: code, Message: message}}}}
		p.Status.ContainerStatuses = status
		j.Status.Active = 0
		j.Status.Conditions = append(j.Status.Conditions, batchv1.JobCondition{Type: kind, Status: corev1.ConditionTrue})
	}
	switch w.commands[node] {
	case "fail":
		j.Status.Failed = *j.Spec.BackoffLimit + 1
		end(3, "no such file", batchv1.JobFailed)
	case "hang":
	default:
		end(0, w.output, batchv1.JobComplete)
	}
}

func (w *environment) runPreflight(p *corev1.Pod) {
	container := func(s corev1.ContainerState) {
		p.Status.ContainerStatuses = []corev1.ContainerStatus{{Name: nodeop.ContainerPreflight, State: s}}
	}
	switch word := w.checks[p.Spec.NodeName]; {
	case nodeop.IsPodFinished(p):
	case word == "hang" && len(p.Status.ContainerStatuses) > 0:
	case word == "hang":
		container(corev1.ContainerState{Running: &corev1.ContainerStateRunning{StartedAt: metav1.NewTime(w.now)}})
	case word == "!":
		p.Status.Phase = corev1.PodFailed
		container(corev1.ContainerState{Terminated: &corev1.ContainerStateTerminated{ExitCode: 4, Reason: "Error"}})
	default:
		p.Status.Phase = corev1.PodSucceeded
		container(corev1.ContainerState{Terminated: &corev1.ContainerStateTerminated{Message: word}})
	}
}

func (w *environment) runReboot(p *corev1.Pod) {
	n := w.node(p.Spec.NodeName)
	waits := slices.Contains(p.Spec.Containers[0].Args, "--after-file")
	ready := slices.ContainsFunc(w.jobs, func(j *batchv1.Job) bool {
		done, well := jobOutcome(j)
		return done && well && j.Spec.Template.Spec.NodeName == p.Spec.NodeName && slices.Contains(p.Spec.Containers[0].Args, j.Name)
	})
	if n == nil || nodeop.IsPodFinished(p) || waits && !ready {
		return
	}
	end := func(m pack.Message) {
		p.Status.Phase = corev1.PodSucceeded
		p.Status.ContainerStatuses = []corev1.ContainerStatus{{Name: nodeop.ContainerReboot, State: corev1.ContainerState{
			Terminated: &corev1.ContainerStateTerminated{Message: string(m.Encode())}}}}
	}
	switch w.rebootModes[n.Name] {
	case "never":
	case "lies":
		p.Status.Phase = corev1.PodSucceeded
	case "gone":
		n.Ready = false
	case "falls back", "came up":
		from := n.BootID
		n.BootID += "'"
		came := pack.Reboot{From: from, To: n.BootID, Version: "v4.1.0-k3s", System: pack.KairosActive}
		if w.rebootModes[n.Name] == "falls back" {
			came.Version, came.System = "v4.0.0-k3s", pack.KairosPassive
		}
		end(pack.Message{Outcome: pack.Succeeded, Reboot: &came})
	default:
		id := n.UID + " " + strings.Join(p.Spec.Containers[0].Args[:5], " ") // interrupt … --id ID
		proof, did := w.hostRecords[id]                                      // recorded on the host
		if !did {
			proof = pack.Reboot{From: n.BootID, To: n.BootID + "'"}
			n.BootID, w.hostRecords[id] = proof.To, proof
		}
		end(pack.Message{Outcome: pack.Succeeded, Reboot: &proof})
		if w.rebootModes[n.Name] == "twice" {
			n.BootID += "'"
		}
	}
}
