// SPDX-FileCopyrightText: The Skyhook authors
// SPDX-License-Identifier: Apache-2.0

package cluster

import (
	"slices"
	"strings"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/skyhook-k8s/skyhook/internal/node"
	"github.com/skyhook-k8s/skyhook/internal/skyhook/podstate"
)

// StripNode removes from a node, in place, what this program does not read: most of it. Heartbeats do not change what is
// left.
func StripNode(n *corev1.Node) *corev1.Node {
	n.ManagedFields = nil
	n.Spec = corev1.NodeSpec{Unschedulable: n.Spec.Unschedulable, Taints: n.Spec.Taints}
	var kept []corev1.NodeCondition
	for _, c := range n.Status.Conditions {
		switch {
		case node.IsOurCondition(c):
			c.LastHeartbeatTime = metav1.Time{}
			kept = append(kept, c)
		case c.Type == corev1.NodeReady:
			kept = append(kept, corev1.NodeCondition{Type: c.Type, Status: c.Status, LastTransitionTime: c.LastTransitionTime})
		default: // health gates may ask for it
			kept = append(kept, corev1.NodeCondition{Type: c.Type, Status: c.Status})
		}
	}
	var devices corev1.ResourceList
	for name, amount := range n.Status.Allocatable {
		if strings.ContainsRune(string(name), '/') {
			if devices == nil {
				devices = corev1.ResourceList{}
			}
			devices[name] = amount
		}
	}
	handlers := slices.DeleteFunc(slices.Clone(n.Status.RuntimeHandlers), func(h corev1.NodeRuntimeHandler) bool { return !node.MountsReadOnly(h) })
	n.Status = corev1.NodeStatus{RuntimeHandlers: handlers, Conditions: kept, Allocatable: devices, NodeInfo: corev1.NodeSystemInfo{
		BootID: n.Status.NodeInfo.BootID, KubeletVersion: n.Status.NodeInfo.KubeletVersion, ContainerRuntimeVersion: n.Status.NodeInfo.ContainerRuntimeVersion,
	}}
	return n
}

// StripPod removes from one of our pods, in place, how it is to run; how far it is remains. Of its conditions only the last change counts.
func StripPod(p *corev1.Pod) *corev1.Pod {
	p.ManagedFields = nil
	containers, ends := p.Spec.Containers, p.Status.ContainerStatuses
	podstate.TrimFiles(p)
	p.Spec = corev1.PodSpec{NodeName: p.Spec.NodeName, InitContainers: summariseSpecs(p.Spec.InitContainers)}
	statuses := summariseContainers(p.Status.InitContainerStatuses)
	for i, s := range p.Status.InitContainerStatuses {
		if podstate.RunsPackageImage(s.Name) {
			statuses[i].ImageID = s.ImageID
		}
	}
	p.Status = corev1.PodStatus{
		Phase: p.Status.Phase, Reason: p.Status.Reason, Message: p.Status.Message, Conditions: latestCondition(p.Status.Conditions),
		InitContainerStatuses: statuses, ContainerStatuses: summariseChecks(p),
	}
	keepPulls(p, containers, ends)
	return p
}

// latestCondition keeps the condition that changed last.
func latestCondition(conditions []corev1.PodCondition) []corev1.PodCondition {
	if len(conditions) == 0 {
		return nil
	}
	return []corev1.PodCondition{slices.MaxFunc(conditions, func(a, b corev1.PodCondition) int {
		return a.LastTransitionTime.Compare(b.LastTransitionTime.Time)
	})}
}

// summariseContainers returns how far containers are, and how they ended.
func summariseContainers(statuses []corev1.ContainerStatus) []corev1.ContainerStatus {
	out := make([]corev1.ContainerStatus, len(statuses))
	for i, s := range statuses {
		out[i] = corev1.ContainerStatus{
			Name: s.Name, Image: s.Image, RestartCount: s.RestartCount, State: s.State, LastTerminationState: s.LastTerminationState,
		}
	}
	return out
}

// summariseChecks returns how far a check of a node is, or the last stage of a compact pod; nothing for
// other pods, whose main container only waits.
func summariseChecks(p *corev1.Pod) []corev1.ContainerStatus {
	if !podstate.IsCheck(p) && !podstate.IsCompact(p) {
		return nil
	}
	return summariseContainers(p.Status.ContainerStatuses)
}

// StripNodeOpPod removes from a pod of a NodeOp or of its Job, in place, how it is to run.
func StripNodeOpPod(p *corev1.Pod) *corev1.Pod {
	p.ManagedFields = nil
	p.Spec = corev1.PodSpec{NodeName: p.Spec.NodeName}
	p.Status = corev1.PodStatus{
		Phase: p.Status.Phase, Reason: p.Status.Reason, Message: p.Status.Message,
		InitContainerStatuses: summariseContainers(p.Status.InitContainerStatuses), ContainerStatuses: summariseContainers(p.Status.ContainerStatuses),
	}
	return p
}

// StripJob removes from a Job of a NodeOp, in place, all but where it runs and how far it is.
func StripJob(j *batchv1.Job) *batchv1.Job {
	j.ManagedFields = nil
	j.Spec = batchv1.JobSpec{BackoffLimit: j.Spec.BackoffLimit, Template: corev1.PodTemplateSpec{Spec: corev1.PodSpec{NodeName: j.Spec.Template.Spec.NodeName}}}
	return j
}

// summariseSpecs returns which containers there are, which of them never end, and the image of a package.
func summariseSpecs(containers []corev1.Container) []corev1.Container {
	out := make([]corev1.Container, len(containers))
	for i, c := range containers {
		out[i] = corev1.Container{Name: c.Name, RestartPolicy: c.RestartPolicy}
		if podstate.RunsPackageImage(c.Name) {
			out[i].Image = c.Image
		}
	}
	return out
}

// StripWorkload removes from a workload's pod, in place, all fields but those that decide whether it blocks a drain.
func StripWorkload(p *corev1.Pod) *corev1.Pod {
	p.ManagedFields = nil
	var volumes []corev1.Volume
	for _, v := range p.Spec.Volumes {
		if v.EmptyDir != nil {
			volumes = append(volumes, corev1.Volume{Name: v.Name, VolumeSource: corev1.VolumeSource{EmptyDir: &corev1.EmptyDirVolumeSource{}}})
		}
	}
	p.Spec = corev1.PodSpec{
		NodeName: p.Spec.NodeName, NodeSelector: p.Spec.NodeSelector, Affinity: p.Spec.Affinity, ServiceAccountName: p.Spec.ServiceAccountName,
		Tolerations: p.Spec.Tolerations, Volumes: volumes, Priority: p.Spec.Priority, ActiveDeadlineSeconds: p.Spec.ActiveDeadlineSeconds,
	}
	var ready []corev1.PodCondition
	for _, c := range p.Status.Conditions {
		if c.Type == corev1.PodReady {
			ready = append(ready, corev1.PodCondition{Type: c.Type, Status: c.Status, LastTransitionTime: c.LastTransitionTime})
		}
	}
	p.Status = corev1.PodStatus{Phase: p.Status.Phase, Conditions: ready, StartTime: p.Status.StartTime}
	return p
}
