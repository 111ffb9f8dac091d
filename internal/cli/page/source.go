// SPDX-FileCopyrightText: The Skyhook authors
// SPDX-License-Identifier: Apache-2.0

package page

import (
	"context"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/skyhook-k8s/skyhook/internal/cli/session"
	"github.com/skyhook-k8s/skyhook/internal/dump"
	"github.com/skyhook-k8s/skyhook/internal/node"
	"github.com/skyhook-k8s/skyhook/internal/ui"
	"github.com/skyhook-k8s/skyhook/internal/view"
)

// uiSource is the data behind the pages: the cluster with the decision of the engine, as the other commands have it.
type uiSource struct {
	factory   *session.Factory
	log       *warningLog // what the factory warns of; the pages show it
	from      session.ViewOptions
	cluster   string
	mayChange bool
	watched   *watchedCluster // nil for a dump

	isFollowing bool // the view was read from watches

	mu        sync.Mutex // guards what follows
	view      *view.Cluster
	version   int64
	warnings  []string
	forecasts map[string]cachedForecast // by rollout
	problem   string                    // why the view is old; empty when it is not
	changed   chan struct{}             // closed with the next version or problem
}

func newUISource(f *session.Factory, from session.ViewOptions) *uiSource {
	factory, printer, log := *f, *f.Printer, &warningLog{}
	factory.Printer, printer.ErrOut = &printer, log
	return &uiSource{
		factory: &factory, log: log, from: from, cluster: nameCluster(f, from),
		changed: make(chan struct{}),
	}
}

// warningLog keeps what a command would print to standard error.
type warningLog struct {
	mu    sync.Mutex
	lines []string
}

// Write keeps whole lines, each once.
func (l *warningLog) Write(text []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for line := range strings.Lines(string(text)) {
		line = strings.TrimPrefix(strings.TrimSpace(line), "warning: ")
		if line != "" && !slices.Contains(l.lines, line) {
			l.lines = append(l.lines, line)
		}
	}
	return len(text), nil
}

// take returns the lines since the last time.
func (l *warningLog) take() []string {
	l.mu.Lock()
	defer l.mu.Unlock()
	lines := l.lines
	l.lines = nil
	return lines
}

// nameCluster returns the name of the context, or of the file that is read.
func nameCluster(f *session.Factory, from session.ViewOptions) string {
	if from.From != "" {
		return filepath.Base(from.From)
	}
	if name := *f.KubeFlags.Context; name != "" {
		return name
	}
	config, err := f.KubeFlags.ToRawKubeConfigLoader().RawConfig()
	if err != nil || config.CurrentContext == "" {
		return "this cluster"
	}
	return config.CurrentContext
}

// load reads everything, and decides.
func (s *uiSource) load(ctx context.Context, open func() (*dump.Cluster, error)) error {
	c, err := open()
	if err != nil {
		return err
	}
	var parsed []*node.Node
	switch { // only this function changes the view
	case s.isFollowing:
		parsed = s.view.Objects.Nodes
	case s.watched != nil: // a node that was listed has labels of its own, which would stay beside those of the watch until it changes
		parsed = []*node.Node{}
	}
	v, err := session.NewViewAfter(ctx, s.factory, c, parsed)
	if err != nil {
		return err
	}
	c.Forget() // of a cluster: pages read what is compiled from its objects
	s.mu.Lock()
	defer s.mu.Unlock()
	s.view, s.version, s.warnings, s.problem = v, s.version+1, s.log.take(), ""
	s.isFollowing = s.watched != nil
	s.announce()
	return nil
}

// loadDirectly reads the file, or every list from the API server.
func (s *uiSource) loadDirectly(ctx context.Context) error {
	return s.load(ctx, func() (*dump.Cluster, error) { return session.OpenCluster(ctx, s.factory, s.from.From) })
}

// announce lets everybody know who waits for a change.
func (s *uiSource) announce() {
	close(s.changed)
	s.changed = make(chan struct{})
}

// The pace of reading.
const (
	refreshInterval = 5 * time.Second        // when nothing changes: times pass, and windows open
	minLoadInterval = 100 * time.Millisecond // between two changes
)

// follow reads the cluster again whenever something changed there, until the context ends.
func (s *uiSource) follow(ctx context.Context) error {
	var err error
	if s.watched, err = newWatchedCluster(ctx, s.factory); err != nil {
		return err
	}
	isSynced := s.watched.start(ctx)
	go func() {
		for ctx.Err() == nil {
			began := time.Now()
			if isSynced() { // until then the first view stays
				s.reload(ctx)
			}
			rest := max(minLoadInterval, time.Since(began)) // at most half of a core
			select {
			case <-ctx.Done():
			case <-time.After(rest):
			}
			select {
			case <-ctx.Done():
			case <-s.watched.changed:
			case <-time.After(refreshInterval):
			}
		}
	}()
	return nil
}

// reload reads what the watches have. After an error the last view stays, and the pages say so.
func (s *uiSource) reload(ctx context.Context) {
	s.mu.Lock()   // a simulation takes as much memory as a view: one after the other
	s.mu.Unlock() //nolint:staticcheck // it only waits
	err := s.watched.ping(ctx)
	if err == nil {
		err = s.load(ctx, func() (*dump.Cluster, error) { return session.StartReadingCluster(ctx, s.factory, s.watched) })
	}
	if err != nil {
		s.mu.Lock()
		defer s.mu.Unlock()
		s.problem = err.Error()
		s.announce()
	}
}

func (s *uiSource) pages() ui.Pages {
	p := ui.Pages{Context: s.context, Fleet: s.fleet, Rollout: s.rollout, Node: s.node, Plan: s.plan, Policies: s.policies, Find: s.find, Revision: s.revision, Output: s.output}
	if s.mayChange {
		p.Change = s.change
	}
	return p
}

// context returns what every page shows.
func (s *uiSource) context() ui.Context {
	s.mu.Lock()
	defer s.mu.Unlock()
	c := ui.Context{
		Cluster: s.cluster, Taken: s.view.Dump.Taken, Version: s.version, Warnings: s.warnings, Problem: s.problem, Rollouts: []string{},
	}
	if s.from.From == "" {
		c.Changed = s.changed
	}
	for i := range s.view.Snapshot.Rollouts {
		c.Rollouts = append(c.Rollouts, view.ShortName(s.view.Snapshot.Rollouts[i].Ref))
	}
	return c
}
