// SPDX-FileCopyrightText: The Skyhook authors
// SPDX-License-Identifier: Apache-2.0

package cluster

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/skyhook-k8s/skyhook/internal/rollout"
)

// objectTrial is request.object of a trial.
const objectTrial = "trial"

// maxTrials bounds how many accepted objects are remembered. Forgetting them costs one request each.
const maxTrials = 10000

// trial is an object that is created with a dry run, and what identifies it: others with the same content are not tried again.
type trial struct {
	content string
	object  client.Object
}

// tryObjects creates what the nodes to be admitted need with a dry run, each kind once, before the first of them is touched. A
// rollout of which something is refused admits nobody.
func (p *pass) tryObjects(ctx context.Context, plan rollout.Plan) {
	nodes := map[rollout.Ref][]string{}
	for _, a := range plan.Actions {
		if a.Verb == rollout.VerbAdmit {
			nodes[a.Rollout] = append(nodes[a.Rollout], a.Node)
		}
	}
	for _, name := range slices.SortedFunc(maps.Keys(nodes), rollout.Ref.Compare) {
		q := request{rollout: name, generation: p.objects.generationOf(name), object: objectTrial}
		isAccepted, err := p.try(q, func() error { return p.tryAll(ctx, p.trialsOf(name, nodes[name])) })
		if !isAccepted {
			p.standstill[name] = true
			p.inFlight.retry(p.now) // the next pass blocks it
		}
		if err != nil {
			p.inFlight.recordError(name, err)
		}
	}
}

// trialsOf returns what the nodes need.
func (p *pass) trialsOf(name rollout.Ref, nodes []string) []trial {
	var out []trial
	for _, node := range nodes {
		n := p.objects.nodes[node]
		if n == nil {
			continue
		}
		if by := p.objects.skyhooks[name]; by != nil {
			for content, pod := range by.Trials(n) {
				out = append(out, trial{name.String() + " " + content, pod})
			}
		}
		if op := p.objects.nodeOps[name]; op != nil {
			objects := op.Trials(n)
			out = append(out, trial{name.String() + " " + op.Rollout.UID + " Job", objects.Job})
			for i, pod := range objects.Pods {
				out = append(out, trial{fmt.Sprintf("%s %s Pod %d", name, op.Rollout.UID, i), pod})
			}
		}
	}
	slices.SortFunc(out, func(a, b trial) int { return strings.Compare(a.content, b.content) })
	return out
}

// tryAll tries objects until one is refused.
func (p *pass) tryAll(ctx context.Context, trials []trial) error {
	for _, t := range trials {
		if p.accepted[t.content] {
			continue
		}
		err := p.tryObject(ctx, t.object)
		if isRefusedTrial(err) {
			return err
		}
		if err != nil && !apierrors.IsAlreadyExists(err) {
			continue // it says nothing about the object
		}
		if len(p.accepted) >= maxTrials {
			clear(p.accepted)
		}
		p.accepted[t.content] = true
	}
	return nil
}

func (p *pass) tryObject(ctx context.Context, o client.Object) error {
	var err error
	if pod, isPod := o.(*corev1.Pod); isPod {
		err = p.createPod(ctx, pod, dryRunAll)
	} else {
		err = p.options.Client.Create(ctx, o, client.DryRunAll)
	}
	if err != nil {
		return fmt.Errorf("creating %s %s: %w", strings.ToLower(o.GetObjectKind().GroupVersionKind().Kind), o.GetName(), err)
	}
	return nil
}

// isRefusedTrial reports whether such an object would be refused when it is really created. A quota may have room by then, and some
// webhooks allow no dry run.
func isRefusedTrial(err error) bool {
	if !isRefused(err) {
		return false
	}
	text := err.Error()
	return !strings.Contains(text, "exceeded quota") && !strings.Contains(text, "does not support dry run")
}
