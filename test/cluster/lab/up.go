// SPDX-FileCopyrightText: The Skyhook authors
// SPDX-License-Identifier: Apache-2.0

package lab

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"github.com/skyhook-k8s/skyhook/test/cluster/build"
)

// Up brings a cluster up and returns when all its nodes are ready. When it fails, or ctx ends, it takes down what it
// brought up, and the error says what was wrong.
func Up(ctx context.Context, s Spec, to io.Writer) (*Cluster, error) {
	if err := s.Check(); err != nil {
		return nil, err
	}
	if !initialized {
		return nil, errors.New("bringing a cluster up: the program must call lab.Init first")
	}
	cache, err := build.Open(to)
	if err != nil {
		return nil, err
	}
	if err := s.Require(cache); err != nil {
		return nil, err
	}
	p, err := locate(s.Name)
	if err != nil {
		return nil, err
	}
	made, err := s.build(ctx, cache)
	if err != nil {
		return nil, err
	}
	unlock, err := p.lock()
	if err != nil {
		return nil, err
	}
	defer unlock()
	if _, err := p.status(ctx); err == nil {
		return nil, fmt.Errorf("cluster %s is up already: take it down with `down --name %s`, or choose another --name", s.Name, s.Name)
	}
	if err := p.remove(ctx); err != nil { // what a keeper that was killed left
		return nil, err
	}
	var tie *guard
	if s.Tied {
		if tie, err = startGuard(s.Name); err != nil {
			return nil, err
		}
	}
	c, err := p.bringUp(ctx, s, made, to)
	if err != nil {
		err = fmt.Errorf("bringing up cluster %s: %w", s.Name, build.Advice(err, p.dir))
		return nil, errors.Join(err, p.remove(context.WithoutCancel(ctx)), tie.release())
	}
	c.guard = tie
	return c, nil
}

// build fills the cache with what the cluster needs.
func (s Spec) build(ctx context.Context, cache *build.Cache) (artifacts, error) {
	var made artifacts
	steps := []struct {
		result *string
		needed bool
		make   func(context.Context) (string, error)
	}{
		{&made.Kubernetes, true, cache.Kubernetes},
		{&made.Containerd, len(s.hosts()) > 0, cache.Containerd},
		{&made.Pause, len(s.hosts()) > 0, cache.Pause},
		{&made.Root, len(s.hosts()) > 0, cache.Root},
		{&made.Kwok, s.Simulated > 0, cache.Kwok},
	}
	for _, step := range steps {
		if !step.needed {
			continue
		}
		var err error
		if *step.result, err = step.make(ctx); err != nil {
			return made, err
		}
	}
	return made, nil
}

// Build fills the cache with what such a cluster needs, and brings nothing up.
func Build(ctx context.Context, s Spec, to io.Writer) error {
	cache, err := build.Open(to)
	if err != nil {
		return err
	}
	if os.Geteuid() != 0 && !cache.RootMade() && len(s.hosts()) > 0 {
		return errors.New("the root file system of nodes can only be made by root: run it again with sudo, or with --nodes 0")
	}
	if err := s.requirePrograms(cache); err != nil {
		return err
	}
	_, err = s.build(ctx, cache)
	return err
}

func (p place) bringUp(ctx context.Context, s Spec, made artifacts, to io.Writer) (*Cluster, error) {
	began := time.Now()
	say := func(what string) { fmt.Fprintf(to, "%5.1f s  %s\n", time.Since(began).Seconds(), what) }
	if err := p.startKeeper(ctx, s, made); err != nil {
		return nil, err
	}
	c, err := Open(p.name)
	if err != nil {
		return nil, err
	}
	if err := c.waitAPI(ctx); err != nil {
		return nil, err
	}
	say("the API server answers")
	if err := c.simulate(ctx, s); err != nil {
		return nil, err
	}
	if err := c.waitNodes(ctx, s); err != nil {
		return nil, err
	}
	say(fmt.Sprintf("%d nodes are ready", len(s.hosts())+s.Simulated))
	return c, nil
}

// startKeeper starts this program once more, to hold the cluster when we are gone.
func (p place) startKeeper(ctx context.Context, s Spec, made artifacts) error {
	if err := os.MkdirAll(p.logs(), 0o755); err != nil {
		return fmt.Errorf("making the cluster's directory: %w", err)
	}
	if err := errors.Join(store(p.wish(), s), store(p.artifacts(), made)); err != nil {
		return err
	}
	log, err := os.Create(p.log("keeper"))
	if err != nil {
		return fmt.Errorf("starting the keeper: %w", err)
	}
	defer func() { _ = log.Close() }()
	cmd := exec.Command("/proc/self/exe") // the file may be gone: `go run` and `go test` remove it
	cmd.Dir = "/"
	cmd.Env = append(os.Environ(), keepVariable+"="+p.name)
	cmd.Stdout, cmd.Stderr = log, log
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true, Cloneflags: syscall.CLONE_NEWPID, Unshareflags: syscall.CLONE_NEWNS}
	if err := cmd.Start(); err != nil {
		return fmt.Errorf("starting the keeper: %w", err)
	}
	ended := make(chan error, 1)
	go func() {
		ended <- cmd.Wait()
		close(ended)
	}()
	if err := p.waitKeeper(ctx, ended); err != nil {
		_ = cmd.Process.Kill() // it may not have come far enough to be found otherwise
		for range ended {      // until it is gone
		}
		return err
	}
	return nil
}

// waitKeeper returns when the keeper answers, or says why it ended.
func (p place) waitKeeper(ctx context.Context, ended <-chan error) error {
	for {
		if _, err := p.status(ctx); err == nil {
			return nil
		}
		select {
		case err := <-ended:
			said, _ := os.ReadFile(p.log("keeper"))
			if text := strings.TrimSpace(string(said)); text != "" {
				return errors.New(text)
			}
			if free, unknown := build.Free(p.dir); unknown == nil && free < 1<<20 {
				err = syscall.ENOSPC // that is why it said nothing
			}
			return fmt.Errorf("the keeper ended and said nothing: %w", err)
		case <-ctx.Done():
			return ctx.Err()
		case <-time.After(50 * time.Millisecond):
		}
	}
}

// Down takes the cluster down. Nothing of it is left but what it pushed elsewhere.
func (c *Cluster) Down(ctx context.Context) error {
	if err := c.errNotOurs("taking a cluster down"); err != nil {
		return err
	}
	return errors.Join(Down(ctx, c.Name), c.guard.release())
}

// Down takes the cluster of that name down, or what is left of it. It is no error if there is none.
func Down(ctx context.Context, name string) error {
	if !clusterName.MatchString(name) {
		return fmt.Errorf("name %q: use at most 30 lower-case letters, digits and dashes", name)
	}
	if os.Geteuid() != 0 {
		return errors.New("this needs root, because the cluster's programs run as root: run it again with sudo")
	}
	p, err := locate(name)
	if err != nil {
		return err
	}
	unlock, err := p.lock()
	if err != nil {
		return err
	}
	defer unlock()
	return p.remove(ctx)
}

// remove ends the keeper, and with it the cluster, and removes the files. Whatever the keeper did not take with it is
// found through the control groups.
func (p place) remove(ctx context.Context) error {
	if err := p.ask(ctx, "POST", "/stop", nil, nil); err == nil {
		p.waitGone(ctx)
	}
	group, err := p.all()
	if err != nil {
		return err
	}
	err = errors.Join(group.Remove(), p.clean(), removeAll(p.socket()))
	_ = os.Remove(filepath.Dir(p.dir)) // stays while other clusters are in it
	if err != nil {
		return fmt.Errorf("taking down cluster %s: %w", p.name, err)
	}
	return nil
}

// waitGone waits a few seconds for the keeper to end by itself.
func (p place) waitGone(ctx context.Context) {
	for range 100 {
		if _, err := p.status(ctx); err != nil {
			return
		}
		time.Sleep(20 * time.Millisecond)
	}
}
