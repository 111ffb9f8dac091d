// SPDX-FileCopyrightText: The Skyhook authors
// SPDX-License-Identifier: Apache-2.0

// Package gates evaluates health gates and proofs: Prometheus queries, DaemonSets that need a ready pod on a node, and expressions
// about objects of any kind.
package gates

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/component-helpers/scheduling/corev1/nodeaffinity"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/skyhook-k8s/skyhook/api/skyhook/v1alpha1"
	"github.com/skyhook-k8s/skyhook/internal/policy"
	"github.com/skyhook-k8s/skyhook/internal/rollout"
)

// AnswerLifetime is how long the answer of a Prometheus server counts.
const AnswerLifetime = 15 * time.Second

// Result is what the health gates of a policy found.
type Result struct {
	Closed *rollout.Why // set when no node may be admitted
	Failed *rollout.Why // set when a gate is false that stops the rollout
}

// Pods says which DaemonSets need a ready pod on which nodes.
type Pods struct {
	DaemonSets []string // namespace/name
	Nodes      []*corev1.Node
}

// Checker evaluates gates and remembers the answers of Prometheus servers. Losing them costs one query each.
type Checker struct {
	awaited map[string]bool // names of policies whose answers are needed; nil before the first plan, when all count as such
	answers map[types.UID]answer
}

type answer struct {
	generation int64
	resumed    string // Input.Resumed
	at         time.Time
	closed     *rollout.Why
	failed     *rollout.Why
}

// isCurrent reports whether an answer still counts. When somebody resumes a rollout, the gates are asked again.
func (a answer) isCurrent(p *v1alpha1.DeploymentPolicy, in Input) bool {
	isSame := a.generation == p.Generation && a.resumed == in.Resumed[p.Name]
	return isSame && in.Now.Before(a.at.Add(AnswerLifetime))
}

// Input is what a check needs.
type Input struct {
	Objects  client.Reader                // objects of any kind on the API server
	Policies []*v1alpha1.DeploymentPolicy // those that are in use
	Resumed  map[string]string            // by policy: what its users say about being resumed
	Now      time.Time

	Endpoints Endpoints
}

// Check evaluates the gates. It returns the results by policy, and when to check
// again; zero for never. Prometheus servers are only queried, and objects only read, while somebody needs the answer: see SetAwaited.
func (c *Checker) Check(ctx context.Context, in Input) (results map[string]Result, retryAt time.Time) {
	results = map[string]Result{}
	answers := map[types.UID]answer{}
	reader := newObjectReader(in.Objects)
	byAge := func(a, b *v1alpha1.DeploymentPolicy) int { return c.answers[a.UID].at.Compare(c.answers[b.UID].at) }
	for _, p := range slices.SortedStableFunc(slices.Values(in.Policies), byAge) {
		if p.Spec.Health == nil {
			continue
		}
		var result Result
		if len(p.Spec.Health.Prometheus) > 0 || len(p.Spec.Health.Objects) > 0 {
			a := c.currentAnswer(ctx, reader, p, in)
			answers[p.UID], result.Closed, result.Failed = a, a.closed, a.failed
			expires := a.at.Add(AnswerLifetime)
			if c.awaited[p.Name] && (retryAt.IsZero() || expires.Before(retryAt)) {
				retryAt = expires
			}
		}
		results[p.Name] = result
	}
	c.answers = answers
	return results, retryAt
}

// SetAwaited sets the policies whose answers are needed: nodes wait to be admitted, or are in flight while a gate may stop the
// rollout. It reports whether one of these policies needs a query that was not made yet.
func (c *Checker) SetAwaited(awaited map[string]bool, policies []*v1alpha1.DeploymentPolicy) (needsCheck bool) {
	c.awaited = awaited
	return slices.ContainsFunc(policies, func(p *v1alpha1.DeploymentPolicy) bool {
		a, ok := c.answers[p.UID]
		return ok && awaited[p.Name] && a.generation != p.Generation
	})
}

// currentAnswer returns what the queries of a policy say. They are made again when the answer is old and nodes
// wait for it, by the next pass if this one has read enough.
func (c *Checker) currentAnswer(ctx context.Context, reader *objectReader, p *v1alpha1.DeploymentPolicy, in Input) answer {
	a, known := c.answers[p.UID]
	if known && a.isCurrent(p, in) {
		return a
	}
	if c.awaited != nil && !c.awaited[p.Name] || reader.isExhausted() {
		return answer{generation: -1, closed: &rollout.Why{Reason: rollout.ReasonHealthGate,
			About: policy.Kind + " " + p.Name, Text: "the health gates of " + policy.Kind + " " + p.Name + " are asked next"}}
	}
	a = answer{generation: p.Generation, resumed: in.Resumed[p.Name], at: in.Now}
	found := queryAll(ctx, p, in.Endpoints)
	reader.reads += len(p.Spec.Health.Prometheus)
	found.add(reader.checkObjects(ctx, p, found))
	a.closed, a.failed = found.closed, found.failed
	return a
}

// MayStop reports whether a gate of a policy stops a rollout when it is false.
func MayStop(p *v1alpha1.DeploymentPolicy) bool {
	h := p.Spec.Health
	if h == nil {
		return false
	}
	return slices.ContainsFunc(h.Prometheus, func(g v1alpha1.PrometheusGate) bool { return g.OnFailure == v1alpha1.GateStop }) ||
		slices.ContainsFunc(h.Objects, func(g v1alpha1.ObjectGate) bool { return g.OnFailure == v1alpha1.GateStop })
}

// findings are the first gate that closes a group, and the first one that stops it.
type findings struct{ closed, failed *rollout.Why }

// add adds what was found later.
func (f *findings) add(o findings) {
	f.closed, f.failed = cmp.Or(f.closed, o.closed), cmp.Or(f.failed, o.failed)
}

// finding is why a gate does not pass; empty when it does.
type finding struct {
	text    string // a sentence without a full stop
	isFalse bool   // the answer is no; otherwise there is no answer
	object  *unstructured.Unstructured
}

// classify returns what a finding does to a group. A gate without an answer closes the group, and never stops it.
func (f finding) classify(p *v1alpha1.DeploymentPolicy, onFailure v1alpha1.GateFailure) findings {
	if f.text == "" {
		return findings{}
	}
	why := &rollout.Why{Reason: rollout.ReasonHealthGate, About: policy.Kind + " " + p.Name, Text: f.text}
	if f.isFalse && onFailure == v1alpha1.GateStop {
		return findings{failed: why}
	}
	return findings{closed: why}
}

// FindMissing says of each node which DaemonSet has no ready pod there, as a sentence without a full stop; empty for a node that has
// all. Pods are those on the nodes; a node whose pods are not listed is left out.
func (p Pods) FindMissing(ctx context.Context, live client.Reader, pods map[string][]*corev1.Pod) (map[string]string, error) {
	missing := map[string]string{}
	if len(p.Nodes) == 0 {
		return missing, nil
	}
	for _, node := range p.Nodes {
		if _, isListed := pods[node.Name]; isListed {
			missing[node.Name] = ""
		}
	}
	var errs []error
	for _, wanted := range p.DaemonSets {
		set, problem, err := readDaemonSet(ctx, live, wanted)
		errs = append(errs, err)
		for _, node := range p.Nodes {
			if text, isListed := missing[node.Name]; isListed && problem != "" {
				missing[node.Name] = cmp.Or(text, problem)
				continue
			}
			addMissing(missing, node, set, pods)
		}
	}
	return missing, errors.Join(errs...)
}

// FindUnready says of each node, by when it was admitted, which pod of a DaemonSet there is not ready, though it was when the node was admitted
// or came later; empty for a node without any. A node whose pods are not listed is left out.
func FindUnready(pods map[string][]*corev1.Pod, admitted map[string]time.Time) map[string]string {
	unready := map[string]string{}
	for name, at := range admitted {
		listed, isListed := pods[name]
		if !isListed {
			continue
		}
		unready[name] = ""
		for _, p := range listed {
			owner := metav1.GetControllerOf(p)
			if owner == nil || owner.Kind != "DaemonSet" || isReady(p) || wasUnready(p, at) {
				continue
			}
			text := fmt.Sprintf("pod %s/%s of DaemonSet %s is not ready", p.Namespace, p.Name, owner.Name)
			if unready[name] == "" || text < unready[name] {
				unready[name] = text
			}
		}
	}
	return unready
}

// AddTurnedAway adds to what is missing on nodes the DaemonSets that labels turned away there, until their pods are ready again. The nodes have the
// labels of before.
func AddTurnedAway(ctx context.Context, live client.Reader, missing map[string]string, pods map[string][]*corev1.Pod, nodes []*corev1.Node, labels map[string]string) error {
	var sets appsv1.DaemonSetList
	err := live.List(ctx, &sets)
	for _, node := range nodes {
		turned := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: node.Name, Labels: map[string]string{}}}
		maps.Copy(turned.Labels, node.Labels)
		maps.Copy(turned.Labels, labels)
		for i := range sets.Items {
			if !selectsNode(&sets.Items[i], turned) {
				addMissing(missing, node, &sets.Items[i], pods)
			}
		}
		if text, isListed := missing[node.Name]; isListed && err != nil {
			missing[node.Name] = cmp.Or(text, "DaemonSets cannot be listed now")
		}
	}
	return err
}

// addMissing notes that a DaemonSet that selects a node has no ready pod there, if nothing else is missing on the node.
func addMissing(missing map[string]string, node *corev1.Node, set *appsv1.DaemonSet, pods map[string][]*corev1.Pod) {
	text, isListed := missing[node.Name]
	if isListed && text == "" && selectsNode(set, node) && !hasReadyPod(set, pods[node.Name]) {
		missing[node.Name] = fmt.Sprintf("DaemonSet %s/%s has no ready pod on the node", set.Namespace, set.Name)
	}
}

// wasUnready reports whether a pod that is not ready was not ready at some time either.
func wasUnready(p *corev1.Pod, at time.Time) bool {
	return slices.ContainsFunc(p.Status.Conditions, func(c corev1.PodCondition) bool {
		return c.Type == corev1.PodReady && !c.LastTransitionTime.After(at)
	})
}

// readDaemonSet reads a DaemonSet. A problem is what to say of a node if that fails.
func readDaemonSet(ctx context.Context, live client.Reader, wanted string) (set *appsv1.DaemonSet, problem string, err error) {
	title := "DaemonSet " + wanted
	namespace, name, _ := strings.Cut(wanted, "/")
	set = &appsv1.DaemonSet{}
	switch err := live.Get(ctx, client.ObjectKey{Namespace: namespace, Name: name}, set); {
	case apierrors.IsNotFound(err):
		return nil, title + " does not exist", nil
	case err != nil:
		return nil, title + " cannot be read now", fmt.Errorf("reading %s: %w", title, err)
	}
	return set, "", nil
}

// selectsNode reports whether a DaemonSet selects this node by its labels.
func selectsNode(set *appsv1.DaemonSet, node *corev1.Node) bool {
	match, err := nodeaffinity.GetRequiredNodeAffinity(&corev1.Pod{Spec: set.Spec.Template.Spec}).Match(node)
	return match || err != nil
}

func hasReadyPod(set *appsv1.DaemonSet, pods []*corev1.Pod) bool {
	return slices.ContainsFunc(pods, func(p *corev1.Pod) bool {
		return p.DeletionTimestamp == nil && metav1.IsControlledBy(p, set) && isReady(p)
	})
}

func isReady(p *corev1.Pod) bool {
	return slices.ContainsFunc(p.Status.Conditions, func(c corev1.PodCondition) bool {
		return c.Type == corev1.PodReady && c.Status == corev1.ConditionTrue
	})
}
