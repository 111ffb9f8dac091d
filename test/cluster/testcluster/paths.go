// SPDX-FileCopyrightText: The Skyhook authors
// SPDX-License-Identifier: Apache-2.0

package testcluster

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

// clusterPaths are the paths of one cluster's files.
type clusterPaths struct{ name, dir string }

// locatePaths returns the paths of a cluster, whether it is up or not.
func locatePaths(name string) (clusterPaths, error) {
	state := os.Getenv("XDG_STATE_HOME")
	if state == "" {
		home, err := os.UserHomeDir()
		if err != nil {
			return clusterPaths{}, fmt.Errorf("finding the directory for the cluster: %w; set XDG_STATE_HOME or HOME", err)
		}
		state = filepath.Join(home, ".local", "state")
	}
	if !filepath.IsAbs(state) {
		return clusterPaths{}, fmt.Errorf("XDG_STATE_HOME=%s: it must be an absolute path", state)
	}
	return clusterPaths{name: name, dir: filepath.Join(state, "skyhook-test-cluster", name)}, nil
}

func (p clusterPaths) kubeconfig() string               { return filepath.Join(p.dir, "kubeconfig") }
func (p clusterPaths) pki() string                      { return filepath.Join(p.dir, "pki") }
func (p clusterPaths) registry() string                 { return filepath.Join(p.dir, "registry") }
func (p clusterPaths) logs() string                     { return filepath.Join(p.dir, "logs") }
func (p clusterPaths) log(name string) string           { return filepath.Join(p.dir, "logs", name+".log") }
func (p clusterPaths) node(name string) string          { return filepath.Join(p.dir, "nodes", name) }
func (p clusterPaths) etcd() string                     { return filepath.Join(p.dir, "etcd") }
func (p clusterPaths) specFile() string                 { return filepath.Join(p.dir, "cluster.json") }
func (p clusterPaths) socket() string                   { return filepath.Join(runDir, p.name+".sock") }
func (p clusterPaths) group() string                    { return "skyhook-test-" + p.name }
func (p clusterPaths) nodeGroup(i int) string           { return fmt.Sprintf("%s/node%d", p.group(), i) }
func (p clusterPaths) supervisorGroup() string          { return p.group() + "/supervisor" }
func (p clusterPaths) machine(i int) string             { return fmt.Sprintf("skyhook-%s-%d", p.name, i) }
func (p clusterPaths) lockFile() string                 { return filepath.Join(runDir, p.name+".lock") }
func (p clusterPaths) artifactsFile() string            { return filepath.Join(p.dir, "artifacts.json") }
func (p clusterPaths) withDir(dir string) clusterPaths  { return clusterPaths{name: p.name, dir: dir} }
func (p clusterPaths) removeFiles() error               { return removeDir(p.dir) }
func (p clusterPaths) openGroup() (cgroup.Group, error) { return cgroup.Open(p.group()) }

// acquireLock prevents two programs from bringing the same cluster up or down at the same time.
func (p clusterPaths) acquireLock() (func(), error) {
	for {
		if err := os.MkdirAll(runDir, 0o755); err != nil {
			return nil, fmt.Errorf("making %s: %w", runDir, err)
		}
		f, err := os.OpenFile(p.lockFile(), os.O_CREATE|os.O_RDWR, 0o600)
		if errors.Is(err, fs.ErrNotExist) {
			continue // the last cluster went down and removed the directory
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
				_ = os.Remove(p.lockFile()) // while it is locked
				_ = f.Close()
				_ = os.Remove(runDir) // fails while another cluster has files in it
			}, nil
		}
		_ = f.Close() // the previous owner of the lock removed the file
	}
}

// writeJSON writes a file that the supervisor reads.
func writeJSON(path string, value any) error {
	content, err := json.MarshalIndent(value, "", "  ")
	if err == nil {
		err = os.WriteFile(path, content, 0o600)
	}
	if err != nil {
		return fmt.Errorf("writing %s: %w", path, err)
	}
	return nil
}

func readJSON(path string, value any) error {
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
	p, err := locatePaths("any")
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
