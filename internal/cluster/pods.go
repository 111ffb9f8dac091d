// SPDX-FileCopyrightText: The Skyhook authors
// SPDX-License-Identifier: Apache-2.0

package cluster

import (
	"cmp"
	"slices"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/types"

	"github.com/skyhook-k8s/skyhook/api/skyhook/v1alpha1"
	"github.com/skyhook-k8s/skyhook/internal/nodeop"
	"github.com/skyhook-k8s/skyhook/internal/rollout"
)

// DrainRules say which pods have to leave a node before it counts as quiet.
type DrainRules struct {
	Protected      labels.Selector // pods that are waited for and never touched; nil for none
	Force          bool            // bare pods, which nothing recreates, may be evicted
	DeleteEmptyDir bool            // pods that lose an emptyDir may be evicted
	SpareSystem    bool            // pods of kube-system stay
	SpareTolerant  bool            // pods that tolerate an unschedulable node stay: they would come right back
	SpareBare      bool            // without Force, bare pods stay where they are, and are in nobody's way
	BlockDaemons   bool            // DaemonSet pods are in the way for good
}

// SkyhookDrain are the rules of a Skyhook.
func SkyhookDrain(s *v1alpha1.Skyhook, protected labels.Selector) DrainRules {
	rules := DrainRules{Protected: protected, Force: true, DeleteEmptyDir: true, SpareSystem: true, SpareTolerant: true}
	if d := s.Spec.Drain; d != nil {
		rules.Force = d.Force == nil || *d.Force
		rules.DeleteEmptyDir = d.DeleteEmptyDirData == nil || *d.DeleteEmptyDirData
	}
	return rules
}

// InTheWay gives the pods that keep a node from being quiet, in a stable order. Ours says which pods are ours: those
// are never in the way. DaemonSet pods, mirror pods and finished pods are not either, as with kubectl drain.
func InTheWay(pods []*corev1.Pod, rules DrainRules, ours func(*corev1.Pod) bool, refused map[types.UID]Refusal) []rollout.Pod {
	var out []rollout.Pod
	for _, p := range pods {
		if nodeop.Over(p) || ours(p) {
			continue
		}
		r := rollout.Pod{Namespace: p.Namespace, Name: p.Name, UID: string(p.UID), Leaving: p.DeletionTimestamp != nil}
		if rules.Protected != nil && rules.Protected.Matches(labels.Set(p.Labels)) {
			r.Wait = true
			out = append(out, r)
			continue
		}
		evict, keep := rules.judge(p)
		if !evict && keep == "" {
			continue
		}
		r.Keep = keep
		if refusal, ok := refused[p.UID]; ok {
			r.Refused, r.RetryAt = refusal.Why, refusal.RetryAt
		}
		out = append(out, r)
	}
	slices.SortFunc(out, func(a, b rollout.Pod) int {
		return cmp.Or(cmp.Compare(a.Namespace, b.Namespace), cmp.Compare(a.Name, b.Name))
	})
	return out
}

// judge says whether a pod is to be evicted; if not, keep says why it blocks the node, or is empty when it does not. The
// rules are those of kubectl drain; a test asks kubectl itself about every kind of pod. (Linking kubectl here would
// double the program and its memory.)
func (r DrainRules) judge(p *corev1.Pod) (evict bool, keep string) {
	owner := metav1.GetControllerOf(p)
	_, mirror := p.Annotations[corev1.MirrorPodAnnotationKey]
	switch {
	case r.SpareSystem && p.Namespace == metav1.NamespaceSystem,
		r.SpareTolerant && toleratesCordon(p),
		mirror,
		r.SpareBare && !r.Force && owner == nil,
		!r.BlockDaemons && owner != nil && owner.Kind == "DaemonSet" && owner.APIVersion == appsv1.SchemeGroupVersion.String():
		return false, ""
	case owner != nil && owner.Kind == "DaemonSet" && owner.APIVersion == appsv1.SchemeGroupVersion.String():
		return false, "its DaemonSet would recreate it, and ignoreDaemonSets is false"
	case !r.DeleteEmptyDir && losesEmptyDir(p):
		return false, "it would lose its emptyDir volume, and deleteEmptyDirData is false"
	case !r.Force && owner == nil:
		return false, "nothing recreates it, and force is false"
	}
	return true, ""
}

func losesEmptyDir(p *corev1.Pod) bool {
	return slices.ContainsFunc(p.Spec.Volumes, func(v corev1.Volume) bool { return v.EmptyDir != nil })
}

// toleratesCordon says that a pod may be scheduled on a cordoned node.
func toleratesCordon(p *corev1.Pod) bool {
	return slices.ContainsFunc(p.Spec.Tolerations, func(t corev1.Toleration) bool {
		return t.Key == corev1.TaintNodeUnschedulable ||
			t.Key == "" && t.Operator == corev1.TolerationOpExists && (t.Effect == "" || t.Effect == corev1.TaintEffectNoSchedule)
	})
}
