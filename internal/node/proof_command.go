// SPDX-FileCopyrightText: The Skyhook authors
// SPDX-License-Identifier: Apache-2.0

package node

import (
	"cmp"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/skyhook-k8s/skyhook/api/skyhook/v1alpha1"
	"github.com/skyhook-k8s/skyhook/internal/rollout"
)

// ContainerProof is the container that runs the command of a proof.
const ContainerProof = "proof"

const (
	proofVolume    = "host-root"
	proofHostMount = "/host"
	proofNodeName  = "NODE_NAME"
)

// TaskCheck stands for these pods where tasks are named.
const TaskCheck = "proof"

// TaskDrift stands for the pod that checks a node for drift where tasks are named.
const TaskDrift = "drift"

// TaskPull stands for the pod that pulls images before their turn where tasks are named.
const TaskPull = "prepull"

// CommandPods are the pods on a node that run commands of proofs.
type CommandPods struct {
	Name   func(*v1alpha1.ProofCommand) string // of the pod that runs a command in this admission
	Prefix string                              // of the names that pods have in a plan
	All    []*corev1.Pod

	Refused map[string]Refusal // of the node, by task: see TaskCheck
	Now     time.Time
}

// find returns the pod of a command; nil if there is none.
func (c CommandPods) find(command *v1alpha1.ProofCommand) *corev1.Pod {
	at := slices.IndexFunc(c.All, func(p *corev1.Pod) bool { return p.Name == c.Name(command) })
	if at < 0 {
		return nil
	}
	return c.All[at]
}

// Commands returns the commands that are asked for.
func (ps Proofs) Commands() (out []*v1alpha1.ProofCommand) {
	for _, p := range ps {
		if p.Command != nil {
			out = append(out, p.Command)
		}
	}
	return out
}

// NeedsPod reports whether a pod runs a command that is still asked for. One that cannot run any more is replaced.
func (ps Proofs) NeedsPod(pods CommandPods, p *corev1.Pod) bool {
	return p.Status.Phase != corev1.PodFailed && slices.ContainsFunc(ps.Commands(), func(c *v1alpha1.ProofCommand) bool { return pods.Name(c) == p.Name })
}

// HashCommand returns what the name of a pod has of its command, so that another command is run by another pod.
func HashCommand(c *v1alpha1.ProofCommand) string {
	sum := sha256.Sum256([]byte(EncodeJSON(c)))
	return hex.EncodeToString(sum[:4])
}

// CommandPodSpec returns how the command of a proof is run on a node. It is repeated by the kubelet until it succeeds.
func CommandPodSpec(c *v1alpha1.ProofCommand, node string) corev1.PodSpec {
	env := make([]corev1.EnvVar, 0, len(c.Env)+1)
	for _, e := range c.Env {
		if e.Name != proofNodeName {
			env = append(env, corev1.EnvVar{Name: e.Name, Value: e.Value})
		}
	}
	env = append(env, corev1.EnvVar{Name: proofNodeName, Value: node})
	propagate := corev1.MountPropagationHostToContainer
	return corev1.PodSpec{
		NodeName: node, RestartPolicy: corev1.RestartPolicyOnFailure, HostPID: true, HostNetwork: true, AutomountServiceAccountToken: new(false),
		Containers: []corev1.Container{{
			Name: ContainerProof, Image: c.Image, Command: c.Command, Env: env,
			SecurityContext:          &corev1.SecurityContext{Privileged: new(true)},
			VolumeMounts:             []corev1.VolumeMount{{Name: proofVolume, MountPath: cmp.Or(c.HostMountPath, proofHostMount), MountPropagation: &propagate}},
			TerminationMessagePolicy: corev1.TerminationMessageFallbackToLogsOnError,
		}},
		Volumes: []corev1.Volume{{Name: proofVolume, VolumeSource: corev1.VolumeSource{HostPath: &corev1.HostPathVolumeSource{Path: "/"}}}},
	}
}

// findMissing says why the command of a proof has not succeeded; nil when it has. It reports whether its pod is to be created.
func (c CommandPods) findMissing(command *v1alpha1.ProofCommand) (why *rollout.Why, start bool) {
	p := c.find(command)
	if refused, isRefused := c.Refused[TaskCheck]; p == nil && isRefused {
		why := refused.Why()
		return &why, !c.Now.Before(refused.RetryAt())
	}
	if p == nil {
		return &rollout.Why{Reason: rollout.ReasonProof, Text: "the command of the proof starts next"}, true
	}
	missing := func(format string, args ...any) (*rollout.Why, bool) {
		return &rollout.Why{Reason: rollout.ReasonProof, About: "Pod " + p.Namespace + "/" + p.Name, Text: fmt.Sprintf(format, args...)}, false
	}
	switch {
	case p.DeletionTimestamp != nil:
		return missing("an earlier pod %s has to go first", p.Name)
	case p.Status.Phase == corev1.PodSucceeded:
		return nil, false
	case p.Status.Phase == corev1.PodFailed:
		return missing("the pod of the proof's command was ended: %s", Truncate(cmp.Or(p.Status.Message, p.Status.Reason, "it gives no reason"), maxCommandOutput))
	}
	at := slices.IndexFunc(p.Status.ContainerStatuses, func(s corev1.ContainerStatus) bool { return s.Name == ContainerProof })
	if at < 0 {
		return missing("the command of the proof has not started")
	}
	s := p.Status.ContainerStatuses[at]
	ended := cmp.Or(s.State.Terminated, s.LastTerminationState.Terminated)
	switch waiting := s.State.Waiting; {
	case ended != nil && ended.ExitCode != 0:
		return missing("%s", describeFailure(ended, s.RestartCount))
	case waiting != nil && waiting.Reason != "ContainerCreating" && waiting.Reason != "PodInitializing":
		return missing("the command of the proof cannot start: %s", Truncate(waiting.Reason+": "+waiting.Message, maxCommandOutput))
	}
	return missing("the command of the proof runs")
}

// maxCommandOutput is the most bytes of what a command said, in a reason.
const maxCommandOutput = 200

// describeFailure describes the last run of a command that failed, with the end of what it said.
func describeFailure(t *corev1.ContainerStateTerminated, restarts int32) string {
	text := fmt.Sprintf("the command of the proof ended with exit code %d", t.ExitCode)
	if t.Reason == "OOMKilled" {
		text = "the command of the proof used more memory than its limit"
	}
	if restarts > 0 {
		text += fmt.Sprintf(", and ran %d times", restarts+1)
	}
	said := strings.Join(strings.Fields(t.Message), " ")
	if said == "" {
		return text
	}
	if len(said) > maxCommandOutput {
		said = "…" + strings.ToValidUTF8(said[len(said)-maxCommandOutput:], "")
	}
	return text + ": " + said
}
