// SPDX-FileCopyrightText: The Skyhook authors
// SPDX-License-Identifier: Apache-2.0

package cluster

import (
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
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/component-helpers/scheduling/corev1/nodeaffinity"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/skyhook-k8s/skyhook/api/skyhook/v1alpha1"
	"github.com/skyhook-k8s/skyhook/internal/nodeop"
	"github.com/skyhook-k8s/skyhook/internal/policy"
	"github.com/skyhook-k8s/skyhook/internal/rollout"
	"github.com/skyhook-k8s/skyhook/internal/skyhook"
)

// Gate is what the health gates of a policy found.
type Gate struct {
	Closed  *rollout.Why      // nobody may begin
	Unready map[string]string // by node: what is missing there, as a sentence without a full stop
}

// gateTerm is how long the answer of a Prometheus counts.
const gateTerm = 15 * time.Second

// gates remembers what was asked. Losing it costs one question.
type gates struct {
	wanted  map[string]bool // policies for which somebody stood for admission; nil before the first plan: then all
	answers map[types.UID]gateAnswer
}

type gateAnswer struct {
	generation int64
	at         time.Time
	closed     *rollout.Why
}

// proving are the nodes, by policy, that are finished and whose batch is open, where the policy asks for pods on them.
func (o *Objects) proving() map[string]map[string]bool {
	out := map[string]map[string]bool{}
	for _, s := range o.Skyhooks {
		p, _ := o.policy(s)
		if p == nil || p.Spec.Health == nil || len(p.Spec.Health.DaemonSets) == 0 {
			continue
		}
		for _, n := range o.Nodes {
			if skyhook.Unsettled(s, p, n) {
				if out[p.Name] == nil {
					out[p.Name] = map[string]bool{}
				}
				out[p.Name][n.Name] = true
			}
		}
	}
	return out
}

func proves(proving map[string]map[string]bool, node string) bool {
	for _, nodes := range proving {
		if nodes[node] {
			return true
		}
	}
	return false
}

// askGates finds out what the nodes do not say themselves. A query is only asked while somebody waits to begin.
func (c *Cluster) askGates(ctx context.Context, o *Objects, proving map[string]map[string]bool, now time.Time) error {
	o.Gates = map[string]Gate{}
	answers := map[types.UID]gateAnswer{}
	used := map[string]bool{}
	for _, s := range o.Skyhooks {
		name, _ := skyhook.PolicyName(s, o.Config)
		used[name] = true
	}
	for _, op := range o.NodeOps {
		used[op.Spec.DeploymentPolicy] = true
	}
	var errs []error
	for _, p := range o.Policies {
		if !used[p.Name] || p.Spec.Health == nil {
			continue
		}
		g := Gate{}
		if len(p.Spec.Health.Prometheus) > 0 {
			a := c.answer(ctx, p, now)
			answers[p.UID], g.Closed = a, a.closed
			if c.gates.wanted[p.Name] {
				o.Again = sooner(o.Again, a.at.Add(gateTerm))
			}
		}
		var err error
		if g.Unready, err = c.unready(ctx, o, p, proving[p.Name]); err != nil {
			errs = append(errs, err)
		}
		o.Gates[p.Name] = g
	}
	c.gates.answers = answers
	return errors.Join(errs...)
}

// answer is what the queries of a policy say, asked again when it is old and somebody waits for it.
func (c *Cluster) answer(ctx context.Context, p *v1alpha1.DeploymentPolicy, now time.Time) gateAnswer {
	a, known := c.gates.answers[p.UID]
	fresh := known && a.generation == p.Generation && now.Before(a.at.Add(gateTerm))
	switch {
	case fresh:
		return a
	case c.gates.wanted != nil && !c.gates.wanted[p.Name]: // it is asked once somebody waits
		return gateAnswer{generation: -1, closed: &rollout.Why{Reason: rollout.ReasonHealthGate,
			About: policy.Kind + " " + p.Name, Text: "the health gates of " + policy.Kind + " " + p.Name + " are asked next"}}
	}
	return gateAnswer{generation: p.Generation, at: now, closed: query(ctx, p)}
}

// wantGates notes for which policies somebody stands for admission, and has their gates asked soon.
func (r *round) wantGates(plan rollout.Plan) {
	r.gates.wanted = map[string]bool{}
	for _, g := range plan.Groups {
		if g.Waiting == 0 {
			continue
		}
		kind, rest, _ := strings.Cut(g.Group, "/")
		name := rest[:max(0, strings.LastIndexByte(rest, '/'))]
		if kind != policy.Kind {
			for _, s := range r.o.Skyhooks {
				if kind == skyhook.Kind && s.Name == name {
					name, _ = skyhook.PolicyName(s, r.o.Config)
					break
				}
			}
			for _, op := range r.o.NodeOps {
				if nodeop.RolloutName(op) == kind+"/"+name {
					name = op.Spec.DeploymentPolicy
					break
				}
			}
		}
		r.gates.wanted[name] = true
	}
	for _, p := range r.o.Policies {
		if a, ok := r.gates.answers[p.UID]; ok && r.gates.wanted[p.Name] && a.generation != p.Generation {
			r.later(r.now)
		}
	}
}

// unready says of each of these nodes which DaemonSet of the gates has no ready pod there.
func (c *Cluster) unready(ctx context.Context, o *Objects, p *v1alpha1.DeploymentPolicy, nodes map[string]bool) (map[string]string, error) {
	out := map[string]string{}
	var errs []error
	for _, gate := range p.Spec.Health.DaemonSets {
		if len(nodes) == 0 {
			break
		}
		set := &appsv1.DaemonSet{}
		err := c.options.Live.Get(ctx, client.ObjectKey{Namespace: gate.Namespace, Name: gate.Name}, set)
		if err != nil && !apierrors.IsNotFound(err) {
			errs = append(errs, fmt.Errorf("reading DaemonSet %s/%s: %w", gate.Namespace, gate.Name, err))
		}
		for _, node := range slices.Sorted(maps.Keys(nodes)) {
			switch {
			case out[node] != "":
			case apierrors.IsNotFound(err):
				out[node] = fmt.Sprintf("DaemonSet %s/%s does not exist", gate.Namespace, gate.Name)
			case err != nil:
				out[node] = fmt.Sprintf("DaemonSet %s/%s cannot be read now", gate.Namespace, gate.Name)
			case selects(set, o.nodes[node]) && !readyOn(set, o.Workloads[node]):
				out[node] = fmt.Sprintf("DaemonSet %s/%s has no ready pod on the node", gate.Namespace, gate.Name)
			}
		}
	}
	return out, errors.Join(errs...)
}

// selects says that a DaemonSet asks for this node by its labels.
func selects(set *appsv1.DaemonSet, n *skyhook.Node) bool {
	node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: n.Name, Labels: n.Labels}}
	match, err := nodeaffinity.GetRequiredNodeAffinity(&corev1.Pod{Spec: set.Spec.Template.Spec}).Match(node)
	return match || err != nil
}

func readyOn(set *appsv1.DaemonSet, pods []*corev1.Pod) bool {
	return slices.ContainsFunc(pods, func(p *corev1.Pod) bool {
		owner := metav1.GetControllerOf(p)
		return owner != nil && owner.UID == set.UID && p.DeletionTimestamp == nil && slices.ContainsFunc(p.Status.Conditions, func(c corev1.PodCondition) bool {
			return c.Type == corev1.PodReady && c.Status == corev1.ConditionTrue
		})
	})
}

// closed is the gate for the whole fleet that a policy does not pass.
func (o *Objects) closed(p *v1alpha1.DeploymentPolicy) *rollout.Why {
	if p == nil {
		return nil
	}
	return o.Gates[p.Name].Closed
}

func (o *Objects) unready(p *v1alpha1.DeploymentPolicy) map[string]string {
	if p == nil {
		return nil
	}
	return o.Gates[p.Name].Unready
}
