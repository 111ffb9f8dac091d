// SPDX-FileCopyrightText: The Skyhook authors
// SPDX-License-Identifier: Apache-2.0

package compile

import (
	"fmt"
	"slices"
	"strings"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/skyhook-k8s/skyhook/api/nodeop/v1alpha1"
	"github.com/skyhook-k8s/skyhook/internal/node"
	"github.com/skyhook-k8s/skyhook/internal/nodeop"
	"github.com/skyhook-k8s/skyhook/internal/pack"
	"github.com/skyhook-k8s/skyhook/internal/rollout"
)

// nodeObjects are the Jobs and pods of a NodeOp on one node.
type nodeObjects struct {
	jobs       []*batchv1.Job
	preflights []*corev1.Pod
	reboots    []*corev1.Pod
	workers    []*corev1.Pod // made by the Job controller
}

// groupObjects selects the objects of the NodeOp on some nodes, and groups them by node.
func (c *compiler) groupObjects(nodes []*node.Node) {
	all := make([]nodeObjects, len(nodes))
	c.objects = make(map[string]*nodeObjects, len(nodes))
	for i, n := range nodes {
		c.objects[n.Name] = &all[i]
	}
	if len(nodes) == 0 {
		return
	}
	ours := map[types.UID]bool{}
	for _, j := range c.in.Jobs {
		if !c.op.Owns(j) {
			continue
		}
		ours[j.UID] = true
		if on := c.objects[j.Spec.Template.Spec.NodeName]; on != nil {
			on.jobs = append(on.jobs, j)
		}
	}
	for _, p := range c.in.Pods {
		on := c.objects[p.Spec.NodeName]
		if on == nil {
			continue
		}
		owner := metav1.GetControllerOfNoCopy(p)
		switch {
		case owner != nil && owner.Kind == "Job" && ours[owner.UID]:
			on.workers = append(on.workers, p)
		case !c.op.Owns(p):
		case p.Labels[v1alpha1.LabelReboot] == "true":
			on.reboots = append(on.reboots, p)
		case p.Labels[v1alpha1.LabelPreflight] == "true":
			on.preflights = append(on.preflights, p)
		}
	}
}

func (o *nodeObjects) findJob(name, nodeUID string) *batchv1.Job {
	for _, j := range o.jobs {
		uid := j.Annotations[nodeop.AnnotationNodeUID]
		if j.Name == name && (uid == "" || uid == nodeUID) {
			return j
		}
	}
	return nil
}

// findUnfinishedJob finds a Job that has not ended, such as one for an earlier node of that name.
func (o *nodeObjects) findUnfinishedJob() *batchv1.Job {
	for _, j := range o.jobs {
		if finished, _ := jobOutcome(j); !finished {
			return j
		}
	}
	return nil
}

// findPredecessorReboot finds the reboot pod of a predecessor, which does not note the UID of the node.
func (o *nodeObjects) findPredecessorReboot() *corev1.Pod {
	for _, p := range o.reboots {
		if p.Annotations[nodeop.AnnotationNodeUID] == "" && p.DeletionTimestamp == nil {
			return p
		}
	}
	return nil
}

func findPod(pods []*corev1.Pod, name string) *corev1.Pod {
	for _, p := range pods {
		if p.Name == name {
			return p
		}
	}
	return nil
}

func jobOutcome(j *batchv1.Job) (finished, succeeded bool) {
	cond := nodeop.FinalCondition(j)
	return cond != nil, cond != nil && cond.Type == batchv1.JobComplete
}

// jobFailure is the reason and message of a failed Job; empty for any other.
func jobFailure(j *batchv1.Job) string {
	cond := nodeop.FinalCondition(j)
	if cond == nil || cond.Type != batchv1.JobFailed {
		return ""
	}
	text := strings.TrimPrefix(cond.Reason+": "+cond.Message, ": ")
	return strings.TrimSuffix(node.Truncate(text, 300), ".")
}

// commandRun is the state of the newest pod of a Job.
type commandRun struct {
	exit    *int32
	output  string
	boot    string // in which it runs, as the container before the command said
	waiting string // why a container cannot start
	reason  rollout.Reason
}

func (o *nodeObjects) lastRun(job string) commandRun {
	var newest *corev1.Pod
	for _, p := range o.workers {
		isOlder := newest != nil && !newest.CreationTimestamp.Before(&p.CreationTimestamp)
		if metav1.GetControllerOf(p).Name == job && !isOlder {
			newest = p
		}
	}
	out := commandRun{}
	if newest == nil {
		return out
	}
	for _, s := range slices.Concat(newest.Status.InitContainerStatuses, newest.Status.ContainerStatuses) {
		switch ended := s.State.Terminated; {
		case ended == nil:
		case s.Name == nodeop.ContainerCommand:
			out.exit, out.output = new(ended.ExitCode), node.Truncate(strings.TrimSpace(ended.Message), 1000)
		case s.Name == nodeop.ContainerBoot:
			found, _ := pack.DecodeKairos(ended.Message)
			out.boot = found.BootID
		}
		if s.State.Waiting != nil && out.waiting == "" {
			out.reason, out.waiting = startFailure(&s)
		}
	}
	return out
}

// startFailure says why a waiting container cannot start; nothing when it only takes time.
func startFailure(s *corev1.ContainerStatus) (rollout.Reason, string) {
	w := s.State.Waiting
	message := node.Truncate(strings.TrimSpace(w.Message), 200)
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

// podRun is the state of the only container of a preflight or reboot pod.
type podRun struct {
	started *metav1.Time                     // nil before the first start
	ended   *corev1.ContainerStateTerminated // the last time
	why     *rollout.Why                     // why it cannot start
}

func readPodRun(p *corev1.Pod) podRun {
	isOurs := func(s corev1.ContainerStatus) bool {
		return s.Name == nodeop.ContainerPreflight || s.Name == nodeop.ContainerReboot
	}
	at := slices.IndexFunc(p.Status.ContainerStatuses, isOurs)
	if at < 0 {
		return podRun{}
	}
	s := &p.Status.ContainerStatuses[at]
	out := podRun{ended: s.LastTerminationState.Terminated}
	if s.State.Terminated != nil {
		out.ended = s.State.Terminated
	}
	if s.State.Waiting != nil {
		if reason, text := startFailure(s); reason != "" {
			out.why = &rollout.Why{Reason: reason, Text: text, About: nodeop.PrefixPod + p.Namespace + "/" + p.Name}
		}
	}
	switch {
	case s.State.Running != nil:
		out.started = &s.State.Running.StartedAt
	case out.ended != nil:
		out.started = &out.ended.StartedAt
	}
	return out
}

// readRebootProof is what the agent reports about a reboot; nil when it reports nothing.
func readRebootProof(p *corev1.Pod) *pack.Reboot {
	ended := readPodRun(p).ended
	if ended == nil || ended.ExitCode != 0 {
		return nil
	}
	if m, ok := pack.DecodeMessage(ended.Message); ok {
		return m.Reboot
	}
	return nil
}
