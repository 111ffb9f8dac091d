// SPDX-FileCopyrightText: The Skyhook authors
// SPDX-License-Identifier: Apache-2.0

// Package drain decides which pods have to leave a node before it counts as drained, and remembers refused evictions.
package drain

import (
	"cmp"
	"slices"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/component-helpers/scheduling/corev1/nodeaffinity"
	"k8s.io/utils/ptr"

	opv1 "github.com/skyhook-k8s/skyhook/api/nodeop/v1alpha1"
	"github.com/skyhook-k8s/skyhook/api/skyhook/v1alpha1"
	"github.com/skyhook-k8s/skyhook/internal/node"
	"github.com/skyhook-k8s/skyhook/internal/nodeop"
	"github.com/skyhook-k8s/skyhook/internal/rollout"
	"github.com/skyhook-k8s/skyhook/internal/skyhook"
)

// Rules say which pods block a node and which may be evicted.
type Rules struct {
	Protected          labels.Selector // pods that are waited for and never evicted; nil for none
	Force              bool            // pods without a controller, which nothing recreates, may be evicted
	DeleteEmptyDirData bool            // pods that lose an emptyDir may be evicted
	IgnoreSystem       bool            // pods of kube-system stay
	IgnoreTolerating   bool            // pods that tolerate an unschedulable node stay: they would come right back
	IgnoreBare         bool            // without Force, pods without a controller stay and do not block the node
	DaemonSetsBlock    bool            // DaemonSet pods block the node for good
	HonorDoNotDisrupt  bool            // Karpenter's annotation protects pods like ours
	Only               labels.Selector // pods that have to leave: all others stay; nil for all
	TurnsAway          *corev1.Node    // its labels turn pods of DaemonSets away, which are waited for; nil for a node without such labels
}

// On returns the rules for a node: with the labels of nodeMarks it turns pods of DaemonSets away.
func (r Rules) On(n *node.Node) Rules {
	if n != nil && n.HasSetLabels() {
		r.TurnsAway = &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: n.Name, Labels: n.Labels}}
	}
	return r
}

// turnsAway reports whether the labels of the node turn a pod of a DaemonSet away: its controller deletes it.
func (r Rules) turnsAway(p *corev1.Pod) bool {
	if r.TurnsAway == nil || !isDaemonSetPod(p) {
		return false
	}
	match, err := nodeaffinity.GetRequiredNodeAffinity(p).Match(r.TurnsAway)
	return err == nil && !match
}

// SkyhookRules are the rules of a Skyhook. An error means that one of its selectors is invalid.
func SkyhookRules(s *v1alpha1.Skyhook) (Rules, error) {
	protected, err := skyhook.Protected(s)
	if err != nil {
		return Rules{}, err
	}
	only, err := skyhook.LeavingPods(s)
	if err != nil {
		return Rules{}, err
	}
	rules := Rules{Protected: protected, Force: true, DeleteEmptyDirData: true, IgnoreSystem: true, IgnoreTolerating: true, Only: only}
	if d := s.Spec.DrainConfig; d != nil {
		rules.Force = ptr.Deref(d.Force, true)
		rules.DeleteEmptyDirData = ptr.Deref(d.DeleteEmptyDirData, true)
		rules.DaemonSetsBlock = !ptr.Deref(d.IgnoreDaemonSets, true)
		rules.HonorDoNotDisrupt = ptr.Deref(d.HonorDoNotDisrupt, false)
	}
	return rules, nil
}

// NodeOpRules are the rules of a NodeOp. Nothing blocks a node when the NodeOp does not drain it. An error means that one of its selectors
// is invalid.
func NodeOpRules(d *opv1.DrainOptions) (rules Rules, drains bool, err error) {
	if d == nil || !ptr.Deref(d.Enabled, false) {
		return Rules{}, false, nil
	}
	rules = Rules{
		Force: ptr.Deref(d.Force, false), IgnoreBare: true, DeleteEmptyDirData: ptr.Deref(d.DeleteEmptyDirData, false),
		DaemonSetsBlock: !ptr.Deref(d.IgnoreDaemonSets, true), HonorDoNotDisrupt: ptr.Deref(d.HonorDoNotDisrupt, false),
	}
	selectors, err := nodeop.ParseDrainSelectors(d)
	rules.Protected, rules.Only = selectors.Protected, selectors.Only
	return rules, true, err
}

// BlockingPods returns the pods that keep a node from being drained, in a stable order. Our own pods never do, nor do
// DaemonSet pods, mirror pods and finished pods, as with kubectl drain.
func (r Rules) BlockingPods(pods []*corev1.Pod, isOurs func(*corev1.Pod) bool, refused map[types.UID]Refusal) []rollout.Pod {
	var out []rollout.Pod
	for _, p := range pods {
		if nodeop.IsPodFinished(p) || isOurs(p) {
			continue
		}
		blocking := rollout.Pod{Namespace: p.Namespace, Name: p.Name, UID: string(p.UID)}
		setEnd(&blocking, p)
		if r.turnsAway(p) {
			blocking.Leaving, blocking.TurnedAway = true, true
			out = append(out, blocking)
			continue
		}
		blocking.Protection, blocking.Stays = r.protectionOf(p), r.ignores(p)
		blocking.Wait = blocking.Protection != ""
		if blocking.Stays && !blocking.Wait {
			continue
		}
		if !blocking.Stays {
			blocking.Keep, blocking.Priority = r.reasonToKeep(p), ptr.Deref(p.Spec.Priority, 0)
			answer, isAsked := refused[p.UID]
			blocking.Refused, blocking.Denied, blocking.RetryAt, blocking.Asked = answer.Why, answer.Denied, answer.RetryAt, isAsked
		}
		out = append(out, blocking)
	}
	slices.SortFunc(out, func(a, b rollout.Pod) int {
		return cmp.Or(cmp.Compare(a.Namespace, b.Namespace), cmp.Compare(a.Name, b.Name))
	})
	return out
}

// IgnoredBarePods names the pods without a controller that are left running because the rules do not force.
func (r Rules) IgnoredBarePods(pods []*corev1.Pod, isOurs func(*corev1.Pod) bool) []string {
	var out []string
	for _, p := range pods {
		isBare := metav1.GetControllerOf(p) == nil && !isMirrorPod(p)
		if isBare && !r.Force && !isOurs(p) && !nodeop.IsPodFinished(p) {
			out = append(out, p.Namespace+"/"+p.Name)
		}
	}
	return out
}

// maxFinalizers limits the finalizers that are named.
const maxFinalizers = 3

// setEnd sets when a pod ends, as far as that is known: one that is being deleted at the end of its grace period, others when their
// activeDeadlineSeconds are over.
func setEnd(out *rollout.Pod, p *corev1.Pod) {
	if p.DeletionTimestamp != nil {
		out.Leaving, out.LeavesAt = true, p.DeletionTimestamp.Time
		out.Finalizers = p.Finalizers[:min(len(p.Finalizers), maxFinalizers)]
	}
	if limit := p.Spec.ActiveDeadlineSeconds; limit != nil && p.Status.StartTime != nil {
		out.EndsAt = p.Status.StartTime.Add(time.Duration(*limit) * time.Second)
	}
}

// protectionOf returns what says that a pod must not be interrupted; empty for others. The annotations do not protect pods of DaemonSets
// and mirror pods, which never end.
func (r Rules) protectionOf(p *corev1.Pod) string {
	isOptional := isDaemonSetPod(p) || isMirrorPod(p)
	switch {
	case r.Protected != nil && r.Protected.Matches(labels.Set(p.Labels)):
		return rollout.ProtectedByLabels
	case isOptional:
		return ""
	case p.Annotations[v1alpha1.AnnotationDoNotInterrupt] == "true":
		return rollout.ProtectedByAnnotation
	case r.HonorDoNotDisrupt && p.Annotations[v1alpha1.AnnotationDoNotDisrupt] == "true":
		return rollout.ProtectedByDoNotDisrupt
	}
	return ""
}

// ignores reports whether a pod stays and does not block the node. These rules and those of reasonToKeep are kubectl
// drain's; a test compares them with kubectl itself. Linking kubectl here would double the program and its memory.
func (r Rules) ignores(p *corev1.Pod) bool {
	switch {
	case isMirrorPod(p):
		return true
	case r.Only != nil && !r.Only.Matches(labels.Set(p.Labels)):
		return true
	case r.IgnoreSystem && p.Namespace == metav1.NamespaceSystem:
		return true
	case isDaemonSetPod(p): // it always tolerates a cordon
		return !r.DaemonSetsBlock
	case r.IgnoreTolerating && toleratesCordon(p):
		return true
	}
	return r.IgnoreBare && !r.Force && metav1.GetControllerOf(p) == nil
}

// reasonToKeep says why a blocking pod must not be evicted; empty when it may be.
func (r Rules) reasonToKeep(p *corev1.Pod) string {
	switch {
	case isDaemonSetPod(p):
		return rollout.KeepDaemonSet
	case !r.DeleteEmptyDirData && hasEmptyDir(p):
		return rollout.KeepEmptyDir
	case !r.Force && metav1.GetControllerOf(p) == nil:
		return rollout.KeepUnmanaged
	}
	return ""
}

func isMirrorPod(p *corev1.Pod) bool {
	_, mirror := p.Annotations[corev1.MirrorPodAnnotationKey]
	return mirror
}

func isDaemonSetPod(p *corev1.Pod) bool {
	owner := metav1.GetControllerOf(p)
	return owner != nil && owner.Kind == "DaemonSet" && owner.APIVersion == appsv1.SchemeGroupVersion.String()
}

func hasEmptyDir(p *corev1.Pod) bool {
	return slices.ContainsFunc(p.Spec.Volumes, func(v corev1.Volume) bool { return v.EmptyDir != nil })
}

// toleratesCordon reports whether a pod may be scheduled on a cordoned node.
func toleratesCordon(p *corev1.Pod) bool {
	return slices.ContainsFunc(p.Spec.Tolerations, func(t corev1.Toleration) bool {
		if t.Key == corev1.TaintNodeUnschedulable {
			return true
		}
		toleratesAll := t.Key == "" && t.Operator == corev1.TolerationOpExists
		return toleratesAll && (t.Effect == "" || t.Effect == corev1.TaintEffectNoSchedule)
	})
}
