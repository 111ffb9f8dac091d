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
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/skyhook-k8s/skyhook/api/skyhook/v1alpha1"
	"github.com/skyhook-k8s/skyhook/internal/cluster/gates"
	"github.com/skyhook-k8s/skyhook/internal/node"
	"github.com/skyhook-k8s/skyhook/internal/nodeop"
	"github.com/skyhook-k8s/skyhook/internal/policy"
	"github.com/skyhook-k8s/skyhook/internal/rollout"
	"github.com/skyhook-k8s/skyhook/internal/skyhook/plan"
)

// provingNodes are the nodes of a rollout on which its proofs are waited for.
type provingNodes struct {
	proofs   node.Proofs
	labels   map[string]string // that are set on the nodes until then
	nodes    []*corev1.Node
	admitted map[string]time.Time // when each was
}

// findProvingNodes returns the nodes whose proofs ask for more than the Node object shows, by rollout.
func findProvingNodes(o *Objects) map[rollout.Ref]provingNodes {
	out := map[rollout.Ref]provingNodes{}
	add := func(ref rollout.Ref, proofs node.Proofs, marks v1alpha1.NodeMarks, provingSince func(*node.Node) *time.Time) {
		if !proofs.NeedsFindings() {
			return
		}
		need := provingNodes{proofs: proofs, labels: marks.StringLabels(), admitted: map[string]time.Time{}}
		for _, n := range o.Nodes {
			if at := provingSince(n); at != nil {
				need.admitted[n.Name] = *at
				need.nodes = append(need.nodes, &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: n.Name, Labels: n.Labels}})
			}
		}
		if len(need.nodes) > 0 {
			out[ref] = need
		}
	}
	for _, s := range o.Skyhooks {
		p, _ := o.policyOfSkyhook(s)
		add(plan.Ref(s.Name), plan.Proofs(s, p), plan.Marks(s, p), func(n *node.Node) *time.Time { return plan.ProvingSince(s, n) })
	}
	for _, op := range o.NodeOps {
		p, _ := o.policyNamed(op.Spec.DeploymentPolicy)
		operation := nodeop.NewOperation(op, p)
		add(operation.Owner, operation.Proofs, operation.Marks, operation.ProvingSince)
	}
	return out
}

// daemonSetInterval is how often DaemonSets are read again that nodes wait for. Their pods are watched, they themselves are not.
const daemonSetInterval = 30 * time.Second

// checkProofs finds out what the pods and objects around the nodes miss that are to be given back. Objects are read only for nodes
// whose pods miss nothing.
func (v *observer) checkProofs(ctx context.Context, o *Objects, proving map[rollout.Ref]provingNodes, now time.Time) error {
	o.Findings = make(map[rollout.Ref]node.Findings, len(proving))
	var errs []error
	var questions []gates.Question
	for _, ref := range slices.SortedFunc(maps.Keys(proving), rollout.Ref.Compare) {
		need := proving[ref]
		for i, proof := range need.proofs {
			found, err := findMissingPods(ctx, v.options.Live, o, proof, need)
			errs = append(errs, err)
			o.Findings[ref] = append(o.Findings[ref], found)
			for _, n := range need.nodes {
				switch text, isListed := found[n.Name]; {
				case text != "":
					o.RetryAt = node.Earlier(o.RetryAt, now.Add(daemonSetInterval))
				case isListed && len(proof.Objects) > 0:
					questions = append(questions, gates.Question{Rollout: ref, Proof: i, Node: n.Name, Checks: proof.Objects})
				}
			}
		}
	}
	asked := o.findAsked()
	answers, retryAt := v.objectChecks.Ask(ctx, v.options.Objects, slices.Concat(questions, asked), now)
	o.RetryAt = node.Earlier(o.RetryAt, retryAt)
	o.answers = make(map[askKey]gates.Answer, len(asked))
	for i, q := range asked {
		if answer, isAnswered := answers[len(questions)+i]; isAnswered {
			o.answers[askKey{q.Rollout, q.Node}] = answer
		}
	}
	for i, q := range questions {
		found := o.Findings[q.Rollout][q.Proof]
		if answer, isAnswered := answers[i]; isAnswered {
			found[q.Node] = answer.Missing
		} else {
			delete(found, q.Node)
		}
	}
	return errors.Join(errs...)
}

// findMissingPods returns which pods of the DaemonSets of a proof are missing, by node, those that labels turned away included.
func findMissingPods(ctx context.Context, live client.Reader, o *Objects, proof *v1alpha1.Proof, need provingNodes) (found map[string]string, err error) {
	switch {
	case proof.AsBefore:
		found = gates.FindUnready(o.Workloads, need.admitted)
	case len(proof.DaemonSets) > 0:
		found, err = gates.Pods{DaemonSets: proof.DaemonSets, Nodes: need.nodes}.FindMissing(ctx, live, o.Workloads)
	default:
		found = make(map[string]string, len(need.nodes))
		for _, n := range need.nodes {
			found[n.Name] = ""
		}
		return found, nil
	}
	if len(need.labels) > 0 {
		err = errors.Join(err, gates.AddTurnedAway(ctx, live, found, o.Workloads, need.nodes, need.labels))
	}
	return found, err
}

// checkGates evaluates the health gates of the policies in use.
func (v *observer) checkGates(ctx context.Context, o *Objects, now time.Time) {
	inUse := map[string]bool{}
	in := gates.Input{Objects: v.options.Objects, Now: now, Resumed: map[string]string{}}
	use := func(name string, user client.Object) {
		inUse[name] = true
		if at := user.GetAnnotations()[v1alpha1.AnnotationResume]; at != "" {
			in.Resumed[name] += string(user.GetUID()) + "=" + at + " "
		}
	}
	for _, s := range o.Skyhooks {
		name, _ := plan.PolicyName(s, o.Config)
		use(name, s)
	}
	for _, op := range o.NodeOps {
		use(op.Spec.DeploymentPolicy, op)
	}
	in.Endpoints = gates.Endpoints{Allowed: o.Config.PrometheusEndpoints, Namespace: o.Config.Namespace, TokenFile: v.options.PrometheusTokenFile}
	for _, p := range o.Policies {
		if inUse[p.Name] {
			use(p.Name, p)
			in.Policies = append(in.Policies, p)
		}
	}
	results, retryAt := v.gates.Check(ctx, in)
	o.Gates, o.RetryAt = results, node.Earlier(o.RetryAt, retryAt)
}

// awaitGates notes for which policies nodes wait to be admitted, or are in flight while a gate may stop the rollout, so that their
// gates are checked by the next pass.
func (p *pass) awaitGates(plan rollout.Plan) {
	mayStop := map[string]bool{}
	for _, by := range p.objects.Policies {
		mayStop[by.Name] = gates.MayStop(by)
	}
	awaited := map[string]bool{}
	for _, g := range plan.Groups {
		name := p.objects.policyOf(g.Group.Owner)
		if g.Waiting > 0 || g.InFlight > 0 && mayStop[name] {
			awaited[name] = true
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
		if plan.Ref(s.Name) == owner {
			name, _ := plan.PolicyName(s, o.Config)
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
