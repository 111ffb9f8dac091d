// SPDX-FileCopyrightText: The Skyhook authors
// SPDX-License-Identifier: Apache-2.0

package cluster

import (
	"sync"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/skyhook-k8s/skyhook/internal/skyhook"
)

// SharedStrings has strings that are the same on many nodes and pods, each once: names of labels and annotations, and most of their
// values. Objects that are decoded have strings of their own, and those are much of what a cache holds. The specs of init containers are
// the same for all pods of a stage, and large.
type SharedStrings struct {
	mu    sync.Mutex
	known map[string]string
	specs map[string][]corev1.Container // by what is kept of them
	key   []byte                        // memory of a key
}

// Limits of SharedStrings: values of one object alone must not stay for ever. The annotation of a pod that names its package has some 200
// bytes, and is the same on all nodes.
const (
	maxSharedStrings = 4_000
	maxSharedLength  = 256
	maxSharedSpecs   = 500
)

// NewSharedStrings knows no string yet.
func NewSharedStrings() *SharedStrings {
	return &SharedStrings{known: map[string]string{}, specs: map[string][]corev1.Container{}}
}

// StripNode removes from a node what is not read, and shares the strings that are left with other nodes.
func (s *SharedStrings) StripNode(n *corev1.Node) *corev1.Node {
	StripNode(n)
	s.mu.Lock()
	defer s.mu.Unlock()
	s.shareMeta(&n.ObjectMeta)
	for i := range n.Status.Conditions {
		s.shareCondition(&n.Status.Conditions[i])
	}
	info := &n.Status.NodeInfo
	info.KubeletVersion, info.ContainerRuntimeVersion = s.share(info.KubeletVersion), s.share(info.ContainerRuntimeVersion)
	return n
}

func (s *SharedStrings) shareCondition(c *corev1.NodeCondition) {
	c.Type, c.Status = corev1.NodeConditionType(s.share(string(c.Type))), corev1.ConditionStatus(s.share(string(c.Status)))
	c.Reason, c.Message = s.share(c.Reason), s.share(c.Message)
}

// StripPod removes from one of our pods what is not read, and shares the strings that are left with other pods. Of its conditions only
// the last change counts.
func (s *SharedStrings) StripPod(p *corev1.Pod) *corev1.Pod {
	s.mu.Lock()
	defer s.mu.Unlock()
	stripPod(p, s.summariseSpecs)
	s.shareMeta(&p.ObjectMeta)
	p.Spec.NodeName = s.share(p.Spec.NodeName)
	s.shareContainers(p.Spec.Containers)
	p.Status.Conditions = latestCondition(p.Status.Conditions)
	s.shareStatuses(p.Status.InitContainerStatuses)
	s.shareStatuses(p.Status.ContainerStatuses)
	return p
}

// summariseSpecs is what is kept of the specs of init containers, the same list for equal ones.
func (s *SharedStrings) summariseSpecs(containers []corev1.Container) []corev1.Container {
	s.key = s.key[:0]
	for i := range containers {
		c := &containers[i]
		s.key = append(append(s.key, c.Name...), 0)
		if skyhook.RunsPackageImage(c.Name) {
			s.key = append(s.key, c.Image...)
		}
		s.key = append(s.key, 0)
		if c.RestartPolicy != nil {
			s.key = append(s.key, *c.RestartPolicy...)
		}
		s.key = append(s.key, 0)
	}
	if known, ok := s.specs[string(s.key)]; ok {
		return known
	}
	if len(s.specs) >= maxSharedSpecs {
		clear(s.specs)
	}
	out := summariseSpecs(containers)
	s.shareContainers(out)
	s.specs[string(s.key)] = out
	return out
}

// latestCondition keeps the condition that changed last.
func latestCondition(conditions []corev1.PodCondition) []corev1.PodCondition {
	if len(conditions) == 0 {
		return nil
	}
	latest := conditions[0]
	for _, c := range conditions[1:] {
		if c.LastTransitionTime.After(latest.LastTransitionTime.Time) {
			latest = c
		}
	}
	return []corev1.PodCondition{latest}
}

func (s *SharedStrings) shareMeta(m *metav1.ObjectMeta) {
	m.Namespace, m.Labels, m.Annotations = s.share(m.Namespace), s.shareAll(m.Labels), s.shareAll(m.Annotations)
	for i := range m.OwnerReferences {
		o := &m.OwnerReferences[i]
		o.APIVersion, o.Kind, o.Name = s.share(o.APIVersion), s.share(o.Kind), s.share(o.Name)
	}
}

func (s *SharedStrings) shareContainers(containers []corev1.Container) {
	for i := range containers {
		c := &containers[i]
		c.Name, c.Image = s.share(c.Name), s.share(c.Image)
	}
}

func (s *SharedStrings) shareStatuses(statuses []corev1.ContainerStatus) {
	for i := range statuses {
		c := &statuses[i]
		c.Name, c.Image, c.ImageID = s.share(c.Name), s.share(c.Image), s.share(c.ImageID)
		if w := c.State.Waiting; w != nil {
			w.Reason = s.share(w.Reason)
		}
		if t := c.State.Terminated; t != nil {
			t.Reason = s.share(t.Reason)
		}
	}
}

func (s *SharedStrings) shareAll(m map[string]string) map[string]string {
	if m == nil {
		return nil
	}
	out := make(map[string]string, len(m))
	for key, value := range m {
		out[s.share(key)] = s.share(value)
	}
	return out
}

// share returns a string that equals text. When it knows as many as it may it begins anew: what is on many objects is soon known again.
func (s *SharedStrings) share(text string) string {
	if known, ok := s.known[text]; ok {
		return known
	}
	if len(text) > maxSharedLength {
		return text
	}
	if len(s.known) >= maxSharedStrings {
		clear(s.known)
	}
	s.known[text] = text
	return text
}
