// SPDX-FileCopyrightText: The Skyhook authors
// SPDX-License-Identifier: Apache-2.0

package cluster

import (
	"context"
	"errors"
	"maps"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/skyhook-k8s/skyhook/api/skyhook/v1alpha1"
	"github.com/skyhook-k8s/skyhook/internal/cluster/gates"
	"github.com/skyhook-k8s/skyhook/internal/node"
	"github.com/skyhook-k8s/skyhook/internal/nodeop"
	"github.com/skyhook-k8s/skyhook/internal/policy"
	"github.com/skyhook-k8s/skyhook/internal/rollout"
	"github.com/skyhook-k8s/skyhook/internal/skyhook"
)

// findUnprovenNodes returns the finished nodes of an open batch, by policy, where the policy has gates on DaemonSets.
func findUnprovenNodes(o *Objects) map[string][]*corev1.Node {
	out := map[string][]*corev1.Node{}
	for _, s := range o.Skyhooks {
		p, _ := o.policyOfSkyhook(s)
		if p == nil || p.Spec.Health == nil || len(p.Spec.Health.DaemonSets) == 0 {
			continue
		}
		for _, n := range o.Nodes {
			if skyhook.Unsettled(s, p, n) {
				out[p.Name] = append(out[p.Name], &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: n.Name, Labels: n.Labels}})
			}
		}
	}
	return out
}

// findProvingNodes returns the nodes on which the pods of DaemonSets are waited for before they are given back, by rollout.
func findProvingNodes(o *Objects) map[rollout.Ref]gates.Pods {
	out := map[rollout.Ref]gates.Pods{}
	add := func(ref rollout.Ref, proofs node.Proofs, isProving func(*node.Node) bool) {
		need := gates.Pods{DaemonSets: proofs.DaemonSets()}
		if len(need.DaemonSets) == 0 {
			return
		}
		for _, n := range o.Nodes {
			if isProving(n) {
				need.Nodes = append(need.Nodes, &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: n.Name, Labels: n.Labels}})
			}
		}
		if len(need.Nodes) > 0 {
			out[ref] = need
		}
	}
	for _, s := range o.Skyhooks {
		p, _ := o.policyOfSkyhook(s)
		add(skyhook.Ref(s.Name), skyhook.Proofs(s, p), func(n *node.Node) bool { return skyhook.IsProving(s, n) })
	}
	for _, op := range o.NodeOps {
		p, _ := o.policyNamed(op.Spec.DeploymentPolicy)
		add(nodeop.Ref(op), nodeop.Proofs(op, p), func(n *node.Node) bool { return nodeop.IsProving(op, n) })
	}
	return out
}

// daemonSetInterval is how often DaemonSets are read again that nodes wait for. Their pods are watched, they themselves are not.
const daemonSetInterval = 30 * time.Second

// checkProofs finds out which pods of DaemonSets are missing on the nodes that are to be given back.
func (v *observer) checkProofs(ctx context.Context, o *Objects, proving map[rollout.Ref]gates.Pods, now time.Time) error {
	o.Proofs = make(map[rollout.Ref]map[string]string, len(proving))
	var errs []error
	for ref, need := range proving {
		missing, err := need.FindMissing(ctx, v.options.Live, o.Workloads)
		o.Proofs[ref] = missing
		if slices.ContainsFunc(slices.Collect(maps.Values(missing)), func(text string) bool { return text != "" }) {
			o.RetryAt = node.Earlier(o.RetryAt, now.Add(daemonSetInterval))
		}
		errs = append(errs, err)
	}
	return errors.Join(errs...)
}

// checkGates evaluates the health gates of the policies in use.
func (v *observer) checkGates(ctx context.Context, o *Objects, unproven map[string][]*corev1.Node, now time.Time) error {
	inUse := map[string]bool{}
	for _, s := range o.Skyhooks {
		name, _ := skyhook.PolicyName(s, o.Config)
		inUse[name] = true
	}
	for _, op := range o.NodeOps {
		inUse[op.Spec.DeploymentPolicy] = true
	}
	in := gates.Input{Live: v.options.Live, Unproven: unproven, Pods: o.Workloads, Now: now}
	in.Endpoints = gates.Endpoints{Allowed: o.Config.PrometheusEndpoints, Namespace: o.Config.Namespace, TokenFile: v.options.PrometheusTokenFile}
	for _, p := range o.Policies {
		if inUse[p.Name] {
			in.Policies = append(in.Policies, p)
		}
	}
	results, retryAt, err := v.gates.Check(ctx, in)
	o.Gates, o.RetryAt = results, node.Earlier(o.RetryAt, retryAt)
	for _, r := range results {
		if len(r.Unready) > 0 {
			o.RetryAt = node.Earlier(o.RetryAt, now.Add(daemonSetInterval))
		}
	}
	return err
}

// awaitGates notes for which policies nodes wait to be admitted, so that their gates are checked by the next pass.
func (p *pass) awaitGates(plan rollout.Plan) {
	awaited := map[string]bool{}
	for _, g := range plan.Groups {
		if g.Waiting > 0 {
			awaited[p.objects.policyOf(g.Group.Owner)] = true
		}
	}
	if p.gates.SetAwaited(awaited, p.objects.Policies) {
		p.inFlight.retry(p.now)
	}
}

// policyOf is the name of the policy that applies to the owner of a group.
func (o *Objects) policyOf(owner rollout.Ref) string {
	if owner.Kind == policy.Kind {
		return owner.Name
	}
	for _, s := range o.Skyhooks {
		if skyhook.Ref(s.Name) == owner {
			name, _ := skyhook.PolicyName(s, o.Config)
			return name
		}
	}
	for _, op := range o.NodeOps {
		if nodeop.Ref(op) == owner {
			return op.Spec.DeploymentPolicy
		}
	}
	return ""
}

// gatesOf is what the health gates of a policy found; nothing without a policy.
func (o *Objects) gatesOf(p *v1alpha1.DeploymentPolicy) gates.Result {
	if p == nil {
		return gates.Result{}
	}
	return o.Gates[p.Name]
}
