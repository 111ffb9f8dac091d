// SPDX-FileCopyrightText: The Skyhook authors
// SPDX-License-Identifier: Apache-2.0

package nodeop

import (
	"fmt"
	"strings"
	"time"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/skyhook-k8s/skyhook/api/nodeop/v1alpha1"
	"github.com/skyhook-k8s/skyhook/internal/pack"
	"github.com/skyhook-k8s/skyhook/internal/rollout"
)

// objects are the Jobs and Pods of this NodeOp on one node.
type objects struct {
	jobs       []*batchv1.Job
	preflights []*corev1.Pod
	reboots    []*corev1.Pod
	workers    []*corev1.Pod // made by a Job
}

// objectsByNode sorts what is this NodeOp's by node.
func (c *Compiled) objectsByNode() map[string]objects {
	out := map[string]objects{}
	jobs := map[string]bool{}
	for _, j := range c.in.Jobs {
		if c.owned(j) {
			jobs[string(j.UID)] = true
			of := out[j.Spec.Template.Spec.NodeName]
			of.jobs = append(of.jobs, j)
			out[j.Spec.Template.Spec.NodeName] = of
		}
	}
	for _, p := range c.in.Pods {
		of := out[p.Spec.NodeName]
		owner := metav1.GetControllerOf(p)
		switch {
		case owner != nil && owner.Kind == "Job" && jobs[string(owner.UID)]:
			of.workers = append(of.workers, p)
		case !c.owned(p):
			continue
		case p.Labels[v1alpha1.LabelReboot] == "true":
			of.reboots = append(of.reboots, p)
		case p.Labels[v1alpha1.LabelPreflight] == "true":
			of.preflights = append(of.preflights, p)
		}
		out[p.Spec.NodeName] = of
	}
	return out
}

// Objects are named with their kind, as in "Job check-n1-abcde".
const (
	kindJob = "Job "
	kindPod = "Pod "
)

// job finds the Job the record names. One made for another node of the same name is not it.
func (t *target) job() *batchv1.Job {
	for _, j := range t.objects.jobs {
		if uid := j.Annotations[annotationNodeUID]; j.Name == t.rec.Job && (uid == "" || uid == t.node.UID) {
			return j
		}
	}
	return nil
}

func pod(of []*corev1.Pod, name string) *corev1.Pod {
	for _, p := range of {
		if p.Name == name {
			return p
		}
	}
	return nil
}

// Over says that everything in a pod has ended, well or not.
func Over(p *corev1.Pod) bool {
	return p.Status.Phase == corev1.PodSucceeded || p.Status.Phase == corev1.PodFailed
}

// strays are objects that belong to nothing that is owed. What has ended stays: its logs are read until the TTL.
func (c *Compiled) strays(t *target) (strays, going []string) {
	add := func(what string, m metav1.Object, done bool) {
		switch {
		case m.GetDeletionTimestamp() != nil && !done:
			going = append(going, what+m.GetName())
		case m.GetDeletionTimestamp() == nil:
			strays = append(strays, what+m.GetName())
		}
	}
	owed := t.rec.Admitted && t.problem == ""
	for _, j := range t.objects.jobs {
		if done, _ := finished(j); !done && !(owed && t.job() == j) {
			add(kindJob, j, done)
		}
	}
	for _, p := range t.objects.preflights {
		if !(owed && p.Name == c.preflightName(t) && !t.rec.Preflight.is(stepDone)) {
			add(kindPod, p, Over(p))
		}
	}
	for _, p := range t.objects.reboots {
		if !Over(p) && !(owed && c.reboots(t, p)) {
			add(kindPod, p, false)
		}
	}
	return strays, going
}

// reboots says that a pod is the one that reboots the node in this admission.
func (c *Compiled) reboots(t *target, p *corev1.Pod) bool {
	return p == c.rebootPod(t)
}

// rebootPod finds the pod that reboots: ours, or one of a predecessor when the admission was its.
func (c *Compiled) rebootPod(t *target) *corev1.Pod {
	if p := pod(t.objects.reboots, c.nameOf(containerReboot, t.node, t.rec.Admission)); p != nil {
		return p
	}
	if t.adopted || t.rec.Boot == "" {
		for _, p := range t.objects.reboots {
			if p.Annotations[annotationNodeUID] == "" && p.DeletionTimestamp == nil {
				return p
			}
		}
	}
	return nil
}

func (c *Compiled) preflightName(t *target) string {
	return c.nameOf(containerPreflight, t.node, max(1, t.rec.Admission))
}

// finished says whether a Job has ended, and how. Only then no pod of it runs any more.
func finished(j *batchv1.Job) (done, well bool) {
	for _, cond := range j.Status.Conditions {
		if cond.Status == corev1.ConditionTrue && (cond.Type == batchv1.JobComplete || cond.Type == batchv1.JobFailed) {
			return true, cond.Type == batchv1.JobComplete
		}
	}
	return false, false
}

// failedBecause is what a Job says of its failure.
func failedBecause(j *batchv1.Job) string {
	for _, cond := range j.Status.Conditions {
		if cond.Status == corev1.ConditionTrue && cond.Type == batchv1.JobFailed {
			return strings.TrimSuffix(bounded(strings.TrimPrefix(cond.Reason+": "+cond.Message, ": "), 300), ".")
		}
	}
	return ""
}

// run is what the command's latest run says of itself.
type run struct {
	exit    *int32
	output  string
	started time.Time
	waiting string // why it cannot start
	reason  rollout.Reason
}

// lastRun reads the newest pod of the Job.
func (t *target) lastRun() run {
	var newest *corev1.Pod
	for _, p := range t.objects.workers {
		if owner := metav1.GetControllerOf(p); owner.Name == t.rec.Job && (newest == nil || newest.CreationTimestamp.Before(&p.CreationTimestamp)) {
			newest = p
		}
	}
	if newest == nil {
		return run{}
	}
	out := run{}
	for _, s := range append(append([]corev1.ContainerStatus{}, newest.Status.InitContainerStatuses...), newest.Status.ContainerStatuses...) {
		if s.Name == containerCommand && s.State.Terminated != nil {
			code := s.State.Terminated.ExitCode
			out.exit, out.output = &code, bounded(strings.TrimSpace(s.State.Terminated.Message), 1000)
		}
		if s.State.Running != nil && out.started.IsZero() {
			out.started = s.State.Running.StartedAt.Time
		}
		if w := s.State.Waiting; w != nil && out.waiting == "" {
			out.reason, out.waiting = stuck(&s, w)
		}
	}
	return out
}

// stuck says why a container cannot start; nothing when it only takes its time.
func stuck(s *corev1.ContainerStatus, w *corev1.ContainerStateWaiting) (rollout.Reason, string) {
	message := bounded(strings.TrimSpace(w.Message), 200)
	if message == "" {
		message = w.Reason
	}
	switch w.Reason {
	case "ErrImagePull", "ImagePullBackOff", "InvalidImageName", "ErrImageNeverPull", "ImageInspectError", "RegistryUnavailable", "SignatureValidationFailed":
		return rollout.ReasonImagePull, fmt.Sprintf("image %s cannot be pulled: %s", s.Image, message)
	case "CreateContainerConfigError", "CreateContainerError", "RunContainerError", "ContainerCannotRun":
		return rollout.ReasonKubeletRejected, fmt.Sprintf("container %s cannot start: %s", s.Name, message)
	}
	return "", ""
}

// single reads the one container of a preflight or reboot pod.
func single(p *corev1.Pod) (state corev1.ContainerState, last *corev1.ContainerStateTerminated, why *rollout.Why) {
	for i := range p.Status.ContainerStatuses {
		s := &p.Status.ContainerStatuses[i]
		if s.Name != containerPreflight && s.Name != containerReboot {
			continue
		}
		if w := s.State.Waiting; w != nil {
			if reason, text := stuck(s, w); reason != "" {
				why = &rollout.Why{Reason: reason, Text: text, About: kindPod + p.Namespace + "/" + p.Name}
			}
		}
		last = s.LastTerminationState.Terminated
		if s.State.Terminated != nil {
			last = s.State.Terminated
		}
		return s.State, last, why
	}
	return corev1.ContainerState{}, nil, nil
}

// rebooted is what the agent says of a reboot; nil when it says nothing.
func rebooted(p *corev1.Pod) *pack.Reboot {
	_, last, _ := single(p)
	if last == nil || last.ExitCode != 0 {
		return nil
	}
	if m, ok := pack.DecodeMessage(last.Message); ok {
		return m.Reboot
	}
	return nil
}
