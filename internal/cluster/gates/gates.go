// SPDX-FileCopyrightText: The Skyhook authors
// SPDX-License-Identifier: Apache-2.0

// Package gates evaluates the health gates of policies: Prometheus queries, and DaemonSets that need a ready pod on a node.
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
		if len(p.Spec.Health.Prometheus) > 0 {
			a := c.currentAnswer(ctx, p, in.Now, in.Endpoints)
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
func (c *Checker) currentAnswer(ctx context.Context, p *v1alpha1.DeploymentPolicy, now time.Time, endpoints Endpoints) answer {
	a, known := c.answers[p.UID]
	if known && a.generation == p.Generation && now.Before(a.at.Add(AnswerLifetime)) {
		return a
	}
	if c.awaited != nil && !c.awaited[p.Name] {
		return answer{generation: -1, closed: &rollout.Why{Reason: rollout.ReasonHealthGate,
			About: policy.Kind + " " + p.Name, Text: "the health gates of " + policy.Kind + " " + p.Name + " are asked next"}}
	}
	return answer{generation: p.Generation, at: now, closed: queryAll(ctx, p, endpoints)}
}

// checkDaemonSets says of each unproven node which DaemonSet of the gates has no ready pod there.
func checkDaemonSets(ctx context.Context, in Input, p *v1alpha1.DeploymentPolicy) (map[string]string, error) {
	unready := map[string]string{}
	nodes := in.Unproven[p.Name]
	if len(nodes) == 0 {
		return unready, nil
	}
	var errs []error
	for _, gate := range p.Spec.Health.DaemonSets {
		set := &appsv1.DaemonSet{}
		title := fmt.Sprintf("DaemonSet %s/%s", gate.Namespace, gate.Name)
		err := in.Live.Get(ctx, client.ObjectKey{Namespace: gate.Namespace, Name: gate.Name}, set)
		if err != nil && !apierrors.IsNotFound(err) {
			errs = append(errs, fmt.Errorf("reading %s: %w", title, err))
		}
		for _, node := range nodes {
			switch {
			case unready[node.Name] != "":
			case apierrors.IsNotFound(err):
				unready[node.Name] = title + " does not exist"
			case err != nil:
				unready[node.Name] = title + " cannot be read now"
			case selectsNode(set, node) && !hasReadyPod(set, in.Pods[node.Name]):
				unready[node.Name] = title + " has no ready pod on the node"
			}
		}
	}
	return unready, errors.Join(errs...)
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
