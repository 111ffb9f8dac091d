// SPDX-FileCopyrightText: The Skyhook authors
// SPDX-License-Identifier: Apache-2.0

package skyhook

import (
	"slices"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/utils/ptr"

	"github.com/skyhook-k8s/skyhook/api/skyhook/v1alpha1"
	"github.com/skyhook-k8s/skyhook/internal/policy"
	"github.com/skyhook-k8s/skyhook/internal/rollout"
	"github.com/skyhook-k8s/skyhook/internal/skyhook/plan"
)

// Compile turns a Skyhook into a rollout. An invalid Skyhook gives Problems and a Broken rollout that is rebuilt
// from the records of the nodes, so that it keeps its holds.
func Compile(in *plan.Input) *Compiled { return CompileAfter(nil, in) }

// CompileAfter is Compile in a pass that follows another one: nodes that have not changed since are not compiled again. Nodes and pods
// must be the same pointers if they are the same version, and are not changed.
func CompileAfter(before *Compiled, in *plan.Input) *Compiled {
	f := plan.NewFacts(in)
	c := &Compiled{facts: f, stored: &in.Skyhook.Status, clusterNodes: in.Nodes, Rollout: newRollout(in), Problems: checkSpec(in, f.Packages), extra: map[string]*plan.Definition{}}
	if i := slices.IndexFunc(c.Problems, func(p plan.Problem) bool { return p.Refuses }); i >= 0 && !f.Deleting {
		c.Rollout.Broken = &rollout.Why{Reason: c.Problems[i].Reason, Text: c.Problems[i].Text}
	}
	f.Standing = c.Rollout.Paused || c.Rollout.Broken != nil
	f.WentBack = f.FindRollback(in.Nodes, c.stored.Rollback, c.Rollout.Since)
	c.Rollout.Rollback.Together, c.Rollout.Rollback.Cause = f.GoesBackTogether(), f.RollbackCause()
	selected, count := selectNodes(in)
	c.warnUnlimited(count)
	groups := newGrouping(f, in, selected)
	c.addNodes(in, selected, groups, memoOf(before, f))
	c.Groups, c.Ledger = groups.Groups(c.Rollout.Targets), groups.Ledger()
	c.Removed = f.Deleting && len(c.Rollout.Targets) == 0
	return c
}

// newRollout returns the rollout of a Skyhook without its targets.
func newRollout(in *plan.Input) rollout.Rollout {
	s := in.Skyhook
	return rollout.Rollout{
		Ref: plan.Ref(s.Name), UID: string(s.UID), Sequence: plan.Kind,
		Priority: priority(s), Barrier: s.Spec.Sequencing == v1alpha1.SequencingAll,
		Paused: hasAnnotation(s, v1alpha1.AnnotationPause) || hasAnnotation(s, v1alpha1.AnnotationDisable), Yields: hasAnnotation(s, v1alpha1.AnnotationDisable),
		Deleting: s.DeletionTimestamp != nil, Serial: s.Spec.Serial,
		Taint:      rollout.Taint{Required: s.Spec.RuntimeRequired, NewNodes: s.Spec.RuntimeRequired && s.Spec.AutoTaintNewNodes, CordonAfter: s.Spec.RuntimeRequired && s.Spec.RuntimeRequiredCordonAfter},
		CheckLimit: checkLimit(s),
		Drain:      drainOptions(s.Spec.DrainConfig), Numbering: rollout.Numbering{Stored: true, Next: int(s.Status.NodeOrderOffset)}, Since: owesSince(s),
		Announce: announces(s, in.Policy), SharesReboots: ptr.Deref(s.Spec.ShareReboots, false),
	}
}

// selectNodes says which nodes the Skyhook selects, and how many.
func selectNodes(in *plan.Input) (selected []bool, count int) {
	selector, err := metav1.LabelSelectorAsSelector(in.Skyhook.Spec.NodeSelectors.Kubernetes())
	if err != nil { // checkSpec reported it: the rollout is broken and selects no node
		selector = labels.Nothing()
	}
	selected = make([]bool, len(in.Nodes))
	for i, n := range in.Nodes {
		if selected[i] = selector.Matches(labels.Set(n.Labels)); selected[i] {
			count++
		}
	}
	return selected, count
}

func hasAnnotation(s *v1alpha1.Skyhook, annotation string) bool {
	return s.Annotations[annotation] == "true"
}

func priority(s *v1alpha1.Skyhook) int {
	if s.Spec.Priority == 0 {
		return 200
	}
	return int(s.Spec.Priority)
}

func drainOptions(d *v1alpha1.DrainConfig) rollout.Drain {
	out := rollout.Drain{OnTimeout: rollout.DrainWait}
	if d == nil {
		return out
	}
	if d.Timeout != nil {
		out.Timeout = d.Timeout.Duration
	}
	if d.LoadBalancerDelay != nil {
		out.LoadBalancerDelay = d.LoadBalancerDelay.Duration
	}
	if d.OnTimeout != "" {
		out.OnTimeout = rollout.DrainTimeout(d.OnTimeout)
	}
	out.Delete = d.DisableEviction != nil && *d.DisableEviction
	policy.AddPodOptions(&out, &d.DrainPodOptions)
	return out
}

// owesSince returns since when the Skyhook is not complete, from its status; zero when it is complete.
func owesSince(s *v1alpha1.Skyhook) time.Time {
	ready := meta.FindStatusCondition(s.Status.Conditions, v1alpha1.ConditionReady)
	switch {
	case ready == nil:
		return s.CreationTimestamp.Time
	case ready.Status == metav1.ConditionFalse:
		return ready.LastTransitionTime.Time
	}
	return time.Time{}
}
