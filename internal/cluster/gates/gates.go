// SPDX-FileCopyrightText: The Skyhook authors
// SPDX-License-Identifier: Apache-2.0

// Package gates evaluates health gates and proofs: Prometheus queries, DaemonSets that need a ready pod on a node, and expressions
// about objects of any kind.
package gates

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
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
	Closed  *rollout.Why      // set when no node may be admitted
	Unready map[string]string // by node: what is missing there, as a sentence without a full stop
}

// Pods says which DaemonSets need a ready pod on which nodes.
type Pods struct {
	DaemonSets []v1alpha1.DaemonSetProof
	Nodes      []*corev1.Node
}

// Checker evaluates gates and remembers the answers of Prometheus servers. Losing them costs one query each.
type Checker struct {
	awaited map[string]bool // names of policies with nodes that wait to be admitted; nil before the first plan, when all count as such
	answers map[types.UID]answer
}

type answer struct {
	generation int64
	at         time.Time
	closed     *rollout.Why
}

// Input is what a check needs.
type Input struct {
	Live     client.Reader                // the API server itself
	Objects  client.Reader                // objects of any kind on the API server
	Policies []*v1alpha1.DeploymentPolicy // those that are in use
	Unproven map[string][]*corev1.Node    // by policy: finished nodes of an open batch, which need the DaemonSets' pods
	Pods     map[string][]*corev1.Pod     // by node, of the unproven nodes
	Now      time.Time

	Endpoints Endpoints
}

// Check evaluates the gates that the nodes do not answer themselves. It returns the results by policy, and when to check
// again; zero for never. Prometheus is only queried while nodes wait to be admitted.
func (c *Checker) Check(ctx context.Context, in Input) (results map[string]Result, retryAt time.Time, err error) {
	results = map[string]Result{}
	answers := map[types.UID]answer{}
	var errs []error
	for _, p := range in.Policies {
		if p.Spec.Health == nil {
			continue
		}
		var result Result
		if len(p.Spec.Health.Prometheus) > 0 || len(p.Spec.Health.Objects) > 0 {
			a := c.currentAnswer(ctx, p, in)
			answers[p.UID], result.Closed = a, a.closed
			expires := a.at.Add(AnswerLifetime)
			if c.awaited[p.Name] && (retryAt.IsZero() || expires.Before(retryAt)) {
				retryAt = expires
			}
		}
		result.Unready, err = checkDaemonSets(ctx, in, p)
		errs = append(errs, err)
		results[p.Name] = result
	}
	c.answers = answers
	return results, retryAt, errors.Join(errs...)
}

// SetAwaited sets the policies with nodes that wait to be admitted. It reports whether one of these policies needs a
// query that was not made yet.
func (c *Checker) SetAwaited(awaited map[string]bool, policies []*v1alpha1.DeploymentPolicy) (needsCheck bool) {
	c.awaited = awaited
	return slices.ContainsFunc(policies, func(p *v1alpha1.DeploymentPolicy) bool {
		a, ok := c.answers[p.UID]
		return ok && awaited[p.Name] && a.generation != p.Generation
	})
}

// currentAnswer returns what the queries of a policy say. They are made again when the answer is old and nodes
// wait for it.
func (c *Checker) currentAnswer(ctx context.Context, p *v1alpha1.DeploymentPolicy, in Input) answer {
	a, known := c.answers[p.UID]
	if known && a.generation == p.Generation && in.Now.Before(a.at.Add(AnswerLifetime)) {
		return a
	}
	if c.awaited != nil && !c.awaited[p.Name] {
		return answer{generation: -1, closed: &rollout.Why{Reason: rollout.ReasonHealthGate,
			About: policy.Kind + " " + p.Name, Text: "the health gates of " + policy.Kind + " " + p.Name + " are asked next"}}
	}
	closed := queryAll(ctx, p, in.Endpoints)
	if closed == nil {
		closed = checkObjects(ctx, in.Objects, p)
	}
	return answer{generation: p.Generation, at: in.Now, closed: closed}
}

// checkDaemonSets says of each unproven node which DaemonSet of the gates has no ready pod there.
func checkDaemonSets(ctx context.Context, in Input, p *v1alpha1.DeploymentPolicy) (map[string]string, error) {
	need := Pods{Nodes: in.Unproven[p.Name]}
	for _, gate := range p.Spec.Health.DaemonSets {
		need.DaemonSets = append(need.DaemonSets, v1alpha1.DaemonSetProof{Namespace: gate.Namespace, Name: gate.Name})
	}
	missing, err := need.FindMissing(ctx, in.Live, in.Pods)
	for _, node := range need.Nodes {
		text, isListed := missing[node.Name]
		switch {
		case !isListed && len(need.DaemonSets) > 0:
			missing[node.Name] = "the pods on the node are not listed yet"
		case text == "":
			delete(missing, node.Name)
		}
	}
	return missing, err
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
		sets, problem, err := readDaemonSets(ctx, live, wanted)
		errs = append(errs, err)
		for _, node := range p.Nodes {
			text, isListed := missing[node.Name]
			if !isListed || text != "" {
				continue
			}
			if missing[node.Name] = problem; problem == "" {
				missing[node.Name] = findUnready(sets, node, pods[node.Name])
			}
		}
	}
	return missing, errors.Join(errs...)
}

// readDaemonSets reads one DaemonSet, or all that are selected. A problem is what to say of a node if that fails or none exists.
func readDaemonSets(ctx context.Context, live client.Reader, wanted v1alpha1.DaemonSetProof) (sets []appsv1.DaemonSet, problem string, err error) {
	if wanted.Selector == nil {
		title := fmt.Sprintf("DaemonSet %s/%s", wanted.Namespace, wanted.Name)
		set := appsv1.DaemonSet{}
		switch err := live.Get(ctx, client.ObjectKey{Namespace: wanted.Namespace, Name: wanted.Name}, &set); {
		case apierrors.IsNotFound(err):
			return nil, title + " does not exist", nil
		case err != nil:
			return nil, title + " cannot be read now", fmt.Errorf("reading %s: %w", title, err)
		}
		return []appsv1.DaemonSet{set}, "", nil
	}
	selector, err := metav1.LabelSelectorAsSelector(wanted.Selector.Kubernetes())
	if err != nil {
		return nil, "the selector of DaemonSets in " + wanted.Namespace + " cannot be used", nil
	}
	title := fmt.Sprintf("DaemonSets %s in %s", selector, wanted.Namespace)
	var list appsv1.DaemonSetList
	if err := live.List(ctx, &list, client.InNamespace(wanted.Namespace), client.MatchingLabelsSelector{Selector: selector}); err != nil {
		return nil, title + " cannot be read now", fmt.Errorf("reading %s: %w", title, err)
	}
	if len(list.Items) == 0 {
		return nil, "there are no " + title, nil
	}
	return list.Items, "", nil
}

// findUnready says which of some DaemonSets needs a pod on a node and has no ready one; empty for none.
func findUnready(sets []appsv1.DaemonSet, node *corev1.Node, pods []*corev1.Pod) string {
	for i := range sets {
		if selectsNode(&sets[i], node) && !hasReadyPod(&sets[i], pods) {
			return fmt.Sprintf("DaemonSet %s/%s has no ready pod on the node", sets[i].Namespace, sets[i].Name)
		}
	}
	return ""
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
