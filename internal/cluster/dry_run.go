// SPDX-FileCopyrightText: The Skyhook authors
// SPDX-License-Identifier: Apache-2.0

package cluster

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"sigs.k8s.io/controller-runtime/pkg/client"

	oprender "github.com/skyhook-k8s/skyhook/internal/nodeop/render"
	"github.com/skyhook-k8s/skyhook/internal/rollout"
)

// objectDryRun is request.object of a dry run.
const objectDryRun = "dry run"

// maxAccepted bounds how many accepted objects are remembered. Forgetting them costs one request each.
const maxAccepted = 10000

// dryRun is an object that is created with a dry run, and what identifies it: others with the same content are not created again.
type dryRun struct {
	content string
	object  client.Object
}

// dryRunObjects creates what the nodes to be admitted need with a dry run, each kind once, before the first of them is touched. A
// rollout of which something is refused admits nobody.
func (p *pass) dryRunObjects(ctx context.Context, plan rollout.Plan) {
	nodes := map[rollout.Ref][]string{}
	for _, a := range plan.Actions {
		if a.Verb == rollout.VerbAdmit {
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
	isKnown := func(content string) bool { return isListed[content] || p.accepted[name.String()+" "+content] }
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
		if p.accepted[t.content] {
			continue
		}
		err := p.dryRunObject(ctx, t.object)
		if isRefusedDryRun(err) {
			return err
		}
		if err != nil && !apierrors.IsAlreadyExists(err) {
			continue // it says nothing about the object
		}
		if len(p.accepted) >= maxAccepted {
			clear(p.accepted)
		}
		p.accepted[t.content] = true
	}
	return nil
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
