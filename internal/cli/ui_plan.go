// SPDX-FileCopyrightText: The Skyhook authors
// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"bytes"
	"cmp"
	"context"
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/skyhook-k8s/skyhook/internal/cli/dump"
	"github.com/skyhook-k8s/skyhook/internal/cli/manifest"
	"github.com/skyhook-k8s/skyhook/internal/ui"
)

// plan returns the data of the page of what comes next: for the cluster, and for a manifest that is not applied.
func (s *uiSource) plan(ctx context.Context, text []byte) (*ui.Plan, error) {
	s.mu.Lock()
	v, f := s.view, s.forecast("")
	s.mu.Unlock()
	simulation := newSimulation(v, f, nil)
	out := &ui.Plan{Simulation: simulation, Now: simulation.Now, Before: simulation.listBars(), Manifest: string(text)}
	if len(text) == 0 {
		return out, nil
	}
	edited, err := s.mergeText(ctx, text)
	if err != nil { // of the manifest: the page says so
		out.Problem = err.Error()
		return out, nil
	}
	simulation = newSimulation(edited, edited.simulateForPages(nil, uiComputes), nil)
	out.Edited, out.After = simulation, simulation.listBars()
	return out, nil
}

// mergeText returns the view with a manifest, as -f does.
func (s *uiSource) mergeText(ctx context.Context, text []byte) (*view, error) {
	validator, err := manifest.Load()
	if err != nil {
		return nil, err
	}
	objects, err := validator.Read("the manifest", io.NopCloser(bytes.NewReader(text)))
	if err != nil {
		return nil, err
	}
	if len(objects) == 0 {
		return nil, fmt.Errorf("the manifest has no object")
	}
	var c *dump.Cluster
	if s.watched == nil {
		c, err = openCluster(ctx, s.factory, s.from.from)
	} else {
		c, err = startReadingCluster(ctx, s.factory, s.watched)
	}
	if err != nil {
		return nil, err
	}
	if err := mergeManifests(ctx, s.factory, c, func() ([]*manifest.Object, error) { return objects, nil }); err != nil {
		return nil, err
	}
	return newView(ctx, s.factory, c)
}

// listBars returns the waves of all rollouts, by time.
func (s *simulation) listBars() []ui.Bar {
	out := []ui.Bar{}
	for i := range s.Rollouts {
		r := &s.Rollouts[i]
		for _, w := range r.Waves {
			out = append(out, ui.Bar{Rollout: shortName(r.Name), Group: w.Group, Wave: w.Number, Nodes: w.Nodes, WaveTimes: w.WaveTimes})
		}
	}
	slices.SortStableFunc(out, func(a, b ui.Bar) int { return cmp.Or(a.From.Compare(b.From), strings.Compare(a.Rollout, b.Rollout)) })
	return out
}

// policies returns the data of the page of policies.
func (s *uiSource) policies(context.Context) (*ui.Policies, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.view.listPolicies(), nil
}
