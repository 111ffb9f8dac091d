// SPDX-FileCopyrightText: The Skyhook authors
// SPDX-License-Identifier: Apache-2.0

package lab

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"golang.org/x/sys/unix"

	"github.com/skyhook-k8s/skyhook/test/cluster/cgroup"
)

// runDir holds a lock and a socket for each cluster on this machine.
const runDir = "/run/skyhook-test-cluster"

// A place is where one cluster keeps its files.
type place struct{ name, dir string }

// locate says where the cluster of that name is, whether it is up or not.
func locate(name string) (place, error) {
	state := os.Getenv("XDG_STATE_HOME")
	if state == "" {
		home, err := os.UserHomeDir()
		if err != nil {
			return place{}, fmt.Errorf("finding the directory for the cluster: %w; set XDG_STATE_HOME or HOME", err)
		}
		state = filepath.Join(home, ".local", "state")
	}
	if !filepath.IsAbs(state) {
		return place{}, fmt.Errorf("XDG_STATE_HOME=%s: it must be an absolute path", state)
	}
	return place{name: name, dir: filepath.Join(state, "skyhook-test-cluster", name)}, nil
}

func (p place) kubeconfig() string         { return filepath.Join(p.dir, "kubeconfig") }
func (p place) pki() string                { return filepath.Join(p.dir, "pki") }
func (p place) registry() string           { return filepath.Join(p.dir, "registry") }
func (p place) logs() string               { return filepath.Join(p.dir, "logs") }
func (p place) log(name string) string     { return filepath.Join(p.dir, "logs", name+".log") }
func (p place) node(name string) string    { return filepath.Join(p.dir, "nodes", name) }
func (p place) etcd() string               { return filepath.Join(p.dir, "etcd") }
func (p place) wish() string               { return filepath.Join(p.dir, "cluster.json") }
func (p place) socket() string             { return filepath.Join(runDir, p.name+".sock") }
func (p place) group() string              { return "skyhook-test-" + p.name }
func (p place) nodeGroup(i int) string     { return fmt.Sprintf("%s/node%d", p.group(), i) }
func (p place) keeperGroup() string        { return p.group() + "/keeper" }
func (p place) machine(i int) string       { return fmt.Sprintf("skyhook-%s-%d", p.name, i) }
func (p place) lockFile() string           { return filepath.Join(runDir, p.name+".lock") }
func (p place) artifacts() string          { return filepath.Join(p.dir, "artifacts.json") }
func (p place) at(dir string) place        { return place{name: p.name, dir: dir} }
func (p place) clean() error               { return removeAll(p.dir) }
func (p place) all() (cgroup.Group, error) { return cgroup.Open(p.group()) }

// lock keeps two programs from bringing the same cluster up or down at the same time.
func (p place) lock() (func(), error) {
	for {
		if err := os.MkdirAll(runDir, 0o755); err != nil {
			return nil, fmt.Errorf("making %s: %w", runDir, err)
		}
		f, err := os.OpenFile(p.lockFile(), os.O_CREATE|os.O_RDWR, 0o600)
		if errors.Is(err, fs.ErrNotExist) {
			continue // the last cluster went down meanwhile and took the directory with it
		}
		if err != nil {
			return nil, fmt.Errorf("locking cluster %s: %w", p.name, err)
		}
		if unix.Flock(int(f.Fd()), unix.LOCK_EX|unix.LOCK_NB) != nil {
			return nil, errors.Join(fmt.Errorf("cluster %s is being brought up or down by another program: wait for it, or choose another --name", p.name), f.Close())
		}
		var mine, there unix.Stat_t
		if unix.Fstat(int(f.Fd()), &mine) == nil && unix.Stat(p.lockFile(), &there) == nil && mine.Ino == there.Ino {
			return func() {
				_ = os.Remove(p.lockFile()) // while locked, so that nobody else can have it
				_ = f.Close()
				_ = os.Remove(runDir) // stays while another cluster has files in it
			}, nil
		}
		_ = f.Close() // whoever had the lock removed the file meanwhile
	}
}

// store writes a value for the keeper.
func store(path string, value any) error {
	content, err := json.MarshalIndent(value, "", "  ")
	if err == nil {
		err = os.WriteFile(path, content, 0o600)
	}
	if err != nil {
		return fmt.Errorf("writing %s: %w", path, err)
	}
	return nil
}

func load(path string, value any) error {
	content, err := os.ReadFile(path)
	if err == nil {
		err = json.Unmarshal(content, value)
	}
	if err != nil {
		return fmt.Errorf("reading %s: %w", path, err)
	}
	return nil
}

// Names lists the clusters that are up, or of which something is left.
func Names() ([]string, error) {
	p, err := locate("any")
	if err != nil {
		return nil, err
	}
	entries, err := os.ReadDir(filepath.Dir(p.dir))
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("listing clusters: %w", err)
	}
	var names []string
	for _, entry := range entries {
		names = append(names, entry.Name())
	}
	return names, nil
}
