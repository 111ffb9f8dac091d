// SPDX-FileCopyrightText: The Skyhook authors
// SPDX-License-Identifier: Apache-2.0

package cluster

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"sigs.k8s.io/controller-runtime/pkg/client"

	oprender "github.com/skyhook-k8s/skyhook/internal/nodeop/render"
	"github.com/skyhook-k8s/skyhook/internal/rollout"
)

// objectDryRun is request.object of a dry run.
const objectDryRun = "dry run"

// acceptedFor is how long it counts that an object was accepted: a policy may begin to refuse it, and another operator would know that.
const acceptedFor = time.Minute

// dryRun is an object that is created with a dry run, and what identifies it: others with the same content are not created again.
type dryRun struct {
	content string
	object  client.Object
}

// dryRunObjects creates what the nodes to be admitted need with a dry run, each kind once, before the first of them is touched. A
// rollout of which something is refused admits nobody. A deletion is not asked about: what it needs is refused or not when it is created,
// and then it goes on without the node.
func (p *pass) dryRunObjects(ctx context.Context, plan rollout.Plan) {
	maps.DeleteFunc(p.accepted, func(content string, _ time.Time) bool { return !p.hasAccepted(content) })
	nodes := map[rollout.Ref][]string{}
	for _, a := range plan.Actions {
		s := p.compiled.Skyhooks[a.Rollout]
		if isDeleting := s != nil && s.Rollout.Deleting; a.Verb == rollout.VerbAdmit && !isDeleting {
			nodes[a.Rollout] = append(nodes[a.Rollout], a.Node)
		}
	}
	for _, name := range slices.SortedFunc(maps.Keys(nodes), rollout.Ref.Compare) {
		q := request{rollout: name, generation: p.objects.generationOf(name), object: objectDryRun}
		isAccepted, err := p.try(q, func() error { return p.runDryRuns(ctx, p.dryRunsOf(name, nodes[name])) })
		if !isAccepted {
			p.startsNothing[name] = true
			p.inFlight.retry(p.now) // the next pass blocks it
		}
		if err != nil {
			p.inFlight.recordError(name, err)
		}
	}
}

// dryRunsOf returns what the nodes need.
func (p *pass) dryRunsOf(name rollout.Ref, nodes []string) []dryRun {
	var out []dryRun
	by, isListed := p.compiled.Skyhooks[name], map[string]bool{}
	isKnown := func(content string) bool { return isListed[content] || p.hasAccepted(name.String()+" "+content) }
	for _, node := range nodes {
		n := p.objects.Node(node)
		if n == nil {
			continue
		}
		if by != nil {
			for content, pod := range by.DryRunPods(n, isKnown) {
				isListed[content] = true
				out = append(out, dryRun{name.String() + " " + content, pod})
			}
		}
		if op := p.compiled.NodeOps[name]; op != nil {
			objects := oprender.DryRunObjects(op.Operation, p.objects.opConfig, n)
			out = append(out, dryRun{name.String() + " " + op.Rollout.UID + " Job", objects.Job})
			for i, pod := range objects.Pods {
				out = append(out, dryRun{fmt.Sprintf("%s %s Pod %d", name, op.Rollout.UID, i), pod})
			}
		}
	}
	slices.SortFunc(out, func(a, b dryRun) int { return strings.Compare(a.content, b.content) })
	return out
}

// runDryRuns creates objects with a dry run until one is refused.
func (p *pass) runDryRuns(ctx context.Context, objects []dryRun) error {
	for _, t := range objects {
		if p.hasAccepted(t.content) {
			continue
		}
		err := p.dryRunObject(ctx, t.object)
		if isRefusedDryRun(err) {
			return err
		}
		if err != nil && !apierrors.IsAlreadyExists(err) {
			continue // it says nothing about the object
		}
		p.accepted[t.content] = p.now
	}
	return nil
}

// hasAccepted reports whether such an object was accepted a moment ago.
func (p *pass) hasAccepted(content string) bool {
	at, ok := p.accepted[content]
	return ok && p.now.Before(at.Add(acceptedFor))
}

func (p *pass) dryRunObject(ctx context.Context, o client.Object) error {
	if err := p.options.Client.Create(ctx, o, client.DryRunAll); err != nil {
		return fmt.Errorf("creating %s %s: %w", strings.ToLower(o.GetObjectKind().GroupVersionKind().Kind), o.GetName(), err)
	}
	return nil
}

// isRefusedDryRun reports whether such an object would be refused when it is really created. A quota may have room by then, and some
// webhooks allow no dry run.
func isRefusedDryRun(err error) bool {
	if !isRefused(err) {
		return false
	}
	text := err.Error()
	return !strings.Contains(text, "exceeded quota") && !strings.Contains(text, "does not support dry run")
}
