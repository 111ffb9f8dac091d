// SPDX-FileCopyrightText: The Skyhook authors
// SPDX-License-Identifier: Apache-2.0

package page

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"maps"
	"time"

	"github.com/skyhook-k8s/skyhook/internal/cli/act"
	"github.com/skyhook-k8s/skyhook/internal/cli/look"
	"github.com/skyhook-k8s/skyhook/internal/cli/manifest"
	"github.com/skyhook-k8s/skyhook/internal/cli/session"
	"github.com/skyhook-k8s/skyhook/internal/dump"
	"github.com/skyhook-k8s/skyhook/internal/ui"
	"github.com/skyhook-k8s/skyhook/internal/view"
)

// pageComputes is how long a page computes a simulation. What is left of it then, nobody reads on a page: many waves of few nodes.
const pageComputes = 800 * time.Millisecond

// cachedForecast is a simulation of one version of the data.
type cachedForecast struct {
	*view.Forecast
	version int64
	took    time.Duration
}

// keepForecast is how long a simulation stays in memory that nobody looks at.
const keepForecast = time.Minute

// fleet returns the data of the page of all nodes.
func (s *uiSource) fleet(_ context.Context, name string) (*view.Fleet, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if name == "" {
		return s.view.NewFleet(nil), nil
	}
	if err := s.view.CheckName(name); err != nil {
		return nil, err
	}
	return s.view.NewFleet([]string{name}), nil
}

// node returns the data of the page of a node. Logs and events are read from the API server.
func (s *uiSource) node(ctx context.Context, name string) (*ui.Node, error) {
	s.mu.Lock()
	v := s.view
	n := v.Objects.Node(name)
	if n == nil {
		s.mu.Unlock()
		return nil, fmt.Errorf("%w: there is no node %q", view.ErrNotFound, name)
	}
	out := &ui.Node{Node: v.NewNode(n), Offers: s.offersOfNode(n), MayChange: s.mayChange}
	s.mu.Unlock()
	err := look.AddRead(ctx, s.factory, v, out.Node)
	out.Fetches = s.fetchesOf(out.Node)
	return out, err
}

// plan returns the data of the page of what comes next: for the cluster, and for a manifest that is not applied.
func (s *uiSource) plan(ctx context.Context, text []byte) (*ui.Plan, error) {
	s.mu.Lock()
	v, f := s.view, s.forecast("")
	s.mu.Unlock()
	out := &ui.Plan{Simulation: view.NewSimulation(v, f, nil)}
	if len(text) == 0 {
		return out, nil
	}
	edited, err := s.mergeText(ctx, text)
	if err != nil { // of the manifest: the page says so
		out.Problem = err.Error()
		return out, nil
	}
	out.Edited = view.NewSimulation(edited, edited.SimulateForPages(nil, pageComputes), nil)
	return out, nil
}

// mergeText returns the view with a manifest, as -f does.
func (s *uiSource) mergeText(ctx context.Context, text []byte) (*view.Cluster, error) {
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
		c, err = session.OpenCluster(ctx, s.factory, s.from.From)
	} else {
		c, err = session.StartReadingCluster(ctx, s.factory, s.watched)
	}
	if err != nil {
		return nil, err
	}
	if err := session.MergeManifests(ctx, s.factory, c, func() ([]*manifest.Object, error) { return objects, nil }); err != nil {
		return nil, err
	}
	return session.NewView(ctx, s.factory, c)
}

// policies returns the data of the page of policies.
func (s *uiSource) policies(context.Context) (*view.Policies, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.view.ListPolicies(), nil
}

// rollout returns the data of the page of a rollout.
func (s *uiSource) rollout(_ context.Context, name string) (*ui.Rollout, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	v := s.view
	if err := v.CheckName(name); err != nil {
		return nil, err
	}
	r := v.FindRollout(name)
	name = view.ShortName(r.Ref)
	f := s.forecast(name)
	out := &ui.Rollout{
		Status: view.DescribeRollout(v, r), Why: view.ExplainRollout(v, r), Offers: s.offersOfRollout(r),
		Simulation: view.NewSimulation(v, f, []string{name}),
	}
	out.Next = v.FindNext(r, &out.Status, out.Why, f)
	out.Track = v.ListTrack(r, &out.Status, out.Progress())
	if v.NodeOpOf(r) != nil && s.from.From == "" {
		out.Output = r.Ref.Path()
	}
	return out, nil
}

// find searches the names of everything.
func (s *uiSource) find(_ context.Context, text string) ([]view.Hit, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.view.Find(text), nil
}

// revision returns what history --revision and diff say of a revision.
func (s *uiSource) revision(ctx context.Context, name string, number int64) (string, error) {
	if s.from.From != "" {
		return "A dump has no packages of revisions.", nil
	}
	_, all, err := session.ReadRevisions(ctx, s.factory, name)
	if err != nil {
		return "", err
	}
	one, err := all.Find(number)
	if err != nil {
		return "", fmt.Errorf("%w: %w", view.ErrNotFound, err)
	}
	text, err := one.Format(name)
	if err != nil || one.Current {
		return text, err
	}
	difference, err := all.DiffTo(one)
	return difference + "\n" + text, err
}

// output returns what node-op logs prints.
func (s *uiSource) output(ctx context.Context, name string) (string, error) {
	if s.from.From != "" {
		return "A dump has no output.", nil
	}
	return act.PrintOutputs(ctx, s.factory, name)
}

// forecast simulates a rollout to its end, or all without a name. One that took long serves for a while, because a page that is open asks for each version.
func (s *uiSource) forecast(name string) *view.Forecast {
	old, ok := s.forecasts[name]
	if ok && (old.version == s.version || s.view.Dump.Taken.Sub(old.Start) < 20*old.took) {
		return old.Forecast
	}
	began := time.Now()
	var stop view.StopCondition
	if name != "" {
		stop = s.view.StopWhenDone([]string{name})
	}
	f := s.view.SimulateForPages(stop, pageComputes)
	if s.forecasts == nil {
		s.forecasts = map[string]cachedForecast{}
	}
	maps.DeleteFunc(s.forecasts, func(_ string, f cachedForecast) bool { return s.view.Dump.Taken.Sub(f.Start) > keepForecast })
	s.forecasts[name] = cachedForecast{f, s.version, time.Since(began)}
	return f
}
