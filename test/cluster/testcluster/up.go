// SPDX-FileCopyrightText: The Skyhook authors
// SPDX-License-Identifier: Apache-2.0

package testcluster

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/skyhook-k8s/skyhook/test/cluster/build"
)

// Up brings a cluster up and returns when all its nodes are ready. If it fails or ctx ends, it takes everything down again.
func Up(ctx context.Context, s Spec, to io.Writer) (*Cluster, error) {
	if err := s.Check(); err != nil {
		return nil, err
	}
	if !initialized {
		return nil, errors.New("bringing a cluster up: the program must call testcluster.Init first")
	}
	cache, err := build.Open(to)
	if err != nil {
		return nil, err
	}
	if err := s.Require(cache); err != nil {
		return nil, err
	}
	p, err := locatePaths(s.Name)
	if err != nil {
		return nil, err
	}
	made, err := s.buildArtifacts(ctx, cache)
	if err != nil {
		return nil, err
	}
	unlock, err := p.acquireLock()
	if err != nil {
		return nil, err
	}
	defer unlock()
	if _, err := p.fetchStatus(ctx); err == nil {
		return nil, fmt.Errorf("cluster %s is up already: take it down with `down --name %s`, or choose another --name", s.Name, s.Name)
	}
	if err := p.removeCluster(ctx); err != nil { // leftovers of a killed supervisor
		return nil, err
	}
	var tie *watchdog
	if s.Tied {
		if tie, err = startWatchdog(s.Name); err != nil {
			return nil, err
		}
	}
	c, err := p.bringUp(ctx, s, made, to)
	if err != nil {
		err = fmt.Errorf("bringing up cluster %s: %w", s.Name, build.AdviseOnFullDisk(err, p.dir))
		return nil, errors.Join(err, p.removeCluster(context.WithoutCancel(ctx)), tie.stop())
	}
	c.watchdog = tie
	return c, nil
}

// buildArtifacts builds what the cluster needs, unless it is in the cache. Debian packages are downloaded and unpacked while
// programs are compiled, which takes all cores anyway.
func (s Spec) buildArtifacts(ctx context.Context, cache *build.Cache) (artifacts, error) {
	var made artifacts
	steps := []struct {
		result *string
		needed bool
		make   func(context.Context) (string, error)
	}{
		{&made.Kubernetes, true, cache.Kubernetes},
		{&made.Containerd, len(s.realNodes()) > 0, cache.Containerd},
		{&made.Pause, len(s.realNodes()) > 0, cache.Pause},
		{&made.Kwok, s.Simulated > 0, cache.Kwok},
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	var root sync.WaitGroup
	var rootErr error
	if len(s.realNodes()) > 0 {
		root.Go(func() {
			if made.Root, rootErr = cache.Root(ctx, build.Bookworm); rootErr == nil && len(s.Trixie) > 0 {
				made.Trixie, rootErr = cache.Root(ctx, build.Trixie)
			}
			if rootErr != nil {
				cancel() // nothing else is needed
			}
		})
	}
	var err error
	for _, step := range steps {
		if step.needed && err == nil {
			*step.result, err = step.make(ctx)
		}
	}
	if err != nil {
		cancel()
	}
	root.Wait()
	return made, errors.Join(rootErr, err)
}

// hasRoots reports whether the root file systems of all nodes are in the cache.
func (s Spec) hasRoots(cache *build.Cache) bool {
	return cache.HasRoot(build.Bookworm) && (len(s.Trixie) == 0 || cache.HasRoot(build.Trixie))
}

// Build fills the cache with what such a cluster needs.
func Build(ctx context.Context, s Spec, to io.Writer) error {
	cache, err := build.Open(to)
	if err != nil {
		return err
	}
	if os.Geteuid() != 0 && !s.hasRoots(cache) && len(s.realNodes()) > 0 {
		return errors.New("the root file system of nodes can only be made by root: run it again with sudo, or with --nodes 0")
	}
	if err := s.requirePrograms(cache); err != nil {
		return err
	}
	_, err = s.buildArtifacts(ctx, cache)
	return err
}

func (p clusterPaths) bringUp(ctx context.Context, s Spec, made artifacts, to io.Writer) (*Cluster, error) {
	began := time.Now()
	say := func(what string) { fmt.Fprintf(to, "%5.1f s  %s\n", time.Since(began).Seconds(), what) }
	if err := p.startSupervisor(ctx, s, made); err != nil {
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
	if err := c.createSimulatedNodes(ctx, s); err != nil {
		return nil, err
	}
	if err := c.waitNodes(ctx, s); err != nil {
		return nil, err
	}
	say(fmt.Sprintf("%d nodes are ready", len(s.realNodes())+s.Simulated))
	return c, nil
}

// startSupervisor starts this program again, as a supervisor that outlives it.
func (p clusterPaths) startSupervisor(ctx context.Context, s Spec, made artifacts) error {
	if err := os.MkdirAll(p.logs(), 0o755); err != nil {
		return fmt.Errorf("making the cluster's directory: %w", err)
	}
	if err := errors.Join(writeJSON(p.specFile(), s), writeJSON(p.artifactsFile(), made)); err != nil {
		return err
	}
	log, err := os.Create(p.log("supervisor"))
	if err != nil {
		return fmt.Errorf("starting the supervisor: %w", err)
	}
	defer func() { _ = log.Close() }()
	cmd := exec.Command("/proc/self/exe") // the file may be gone: `go run` and `go test` remove it
	cmd.Dir = "/"
	cmd.Env = append(os.Environ(), supervisorVariable+"="+p.name)
	cmd.Stdout, cmd.Stderr = log, log
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true, Cloneflags: syscall.CLONE_NEWPID, Unshareflags: syscall.CLONE_NEWNS}
	if err := cmd.Start(); err != nil {
		return fmt.Errorf("starting the supervisor: %w", err)
	}
	ended := make(chan error, 1)
	go func() {
		ended <- cmd.Wait()
		close(ended)
	}()
	if err := p.waitSupervisor(ctx, ended); err != nil {
		_ = cmd.Process.Kill() // it may not listen yet
		for range ended {      // until it is gone
		}
		return err
	}
	return nil
}

// waitSupervisor waits until the supervisor responds, or returns why it exited.
func (p clusterPaths) waitSupervisor(ctx context.Context, ended <-chan error) error {
	for {
		if _, err := p.fetchStatus(ctx); err == nil {
			return nil
		}
		select {
		case err := <-ended:
			said, _ := os.ReadFile(p.log("supervisor"))
			if text := strings.TrimSpace(string(said)); text != "" {
				return errors.New(text)
			}
			if free, unknown := build.FreeSpace(p.dir); unknown == nil && free < 1<<20 {
				err = syscall.ENOSPC // a full disk keeps it from logging
			}
			return fmt.Errorf("the supervisor exited and logged nothing: %w", err)
		case <-ctx.Done():
			return ctx.Err()
		case <-time.After(50 * time.Millisecond):
		}
	}
}

// Down takes the cluster down and removes all its files.
func (c *Cluster) Down(ctx context.Context) error {
	if err := c.errNotOurs("taking a cluster down"); err != nil {
		return err
	}
	return errors.Join(Down(ctx, c.Name), c.watchdog.stop())
}

// Down takes a cluster down, or what is left of it. It is no error if there is none.
func Down(ctx context.Context, name string) error {
	if !clusterName.MatchString(name) {
		return fmt.Errorf("name %q: use at most 30 lower-case letters, digits and dashes", name)
	}
	if os.Geteuid() != 0 {
		return errors.New("this needs root, because the cluster's programs run as root: run it again with sudo")
	}
	p, err := locatePaths(name)
	if err != nil {
		return err
	}
	unlock, err := p.acquireLock()
	if err != nil {
		return err
	}
	defer unlock()
	return p.removeCluster(ctx)
}

// removeCluster stops the supervisor, and with it the cluster, and removes the files. Remaining processes are found through the
// control groups.
func (p clusterPaths) removeCluster(ctx context.Context) error {
	if err := p.callSupervisor(ctx, "POST", "/stop", nil, nil); err == nil {
		p.waitGone(ctx)
	}
	group, err := p.openGroup()
	if err != nil {
		return err
	}
	err = errors.Join(group.Remove(), p.removeFiles(), removeDir(p.socket()))
	_ = os.Remove(filepath.Dir(p.dir)) // fails while other clusters are in it
	if err != nil {
		return fmt.Errorf("taking down cluster %s: %w", p.name, err)
	}
	return nil
}

// waitGone waits up to two seconds for the supervisor to exit.
func (p clusterPaths) waitGone(ctx context.Context) {
	for range 100 {
		if _, err := p.fetchStatus(ctx); err != nil {
			return
		}
		time.Sleep(20 * time.Millisecond)
	}
}
