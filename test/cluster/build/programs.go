// SPDX-FileCopyrightText: The Skyhook authors
// SPDX-License-Identifier: Apache-2.0

package build

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"runtime"
	"strings"
)

// Versions of what is not pinned by a go.mod of ours. `go install` checks them against the checksum database.
const (
	containerdVersion = "v2.4.2"
	kwokVersion       = "v0.8.0"
)

// kubernetesPrograms are the names that the one Kubernetes binary answers to.
var kubernetesPrograms = []string{"etcd", "kube-apiserver", "kube-controller-manager", "kube-scheduler", "kube-proxy", "kubelet", "kubectl"}

var kubernetesVersion = regexp.MustCompile(`(?m)^\s+k8s\.io/kubernetes (v1\.(\d+)\.\d+)$`)

// Kubernetes returns the directory with etcd, the control plane, kubelet, kube-proxy and kubectl.
func (c *Cache) Kubernetes(ctx context.Context) (string, error) {
	source, err := Source()
	if err != nil {
		return "", err
	}
	source = filepath.Join(source, "hyperkube")
	inputs, err := readFiles(source, "go.mod", "go.sum", "main.go")
	if err != nil {
		return "", fmt.Errorf("building kubernetes: %w", err)
	}
	version := kubernetesVersion.FindStringSubmatch(inputs[0])
	if version == nil {
		return "", fmt.Errorf("building kubernetes: %s/go.mod names no version of k8s.io/kubernetes", source)
	}
	flags := kubernetesFlags(version[1], version[2])
	return c.getOrBuild(ctx, artifact{
		name: "kubernetes-" + version[1], inputs: append(inputs, flags), needed: 1 << 30,
		note: "about ten minutes on two cores, and 4 GiB of Go's build cache",
		make: func(ctx context.Context, dir string) error {
			build := goCommand(ctx, source, "build", "-trimpath", "-ldflags", flags, "-o", filepath.Join(dir, "hyperkube"), ".")
			if err := c.runCommand(build); err != nil {
				return err
			}
			for _, program := range kubernetesPrograms {
				if err := os.Symlink("hyperkube", filepath.Join(dir, program)); err != nil {
					return err
				}
			}
			return nil
		},
	})
}

// kubernetesFlags sets the version that the programs report; some clients refuse a server that reports none.
func kubernetesFlags(version, minor string) string {
	flags := "-s -w"
	for _, pkg := range []string{"k8s.io/component-base/version", "k8s.io/client-go/pkg/version"} {
		for _, v := range []string{"gitVersion=" + version, "gitMajor=1", "gitMinor=" + minor, "gitTreeState=clean", "gitCommit=skyhook", "buildDate=2026-01-01T00:00:00Z"} {
			flags += " -X " + pkg + "." + v
		}
	}
	return flags
}

// Containerd returns the directory with containerd, its shim and ctr.
func (c *Cache) Containerd(ctx context.Context) (string, error) {
	module := "github.com/containerd/containerd/v2"
	return c.goInstall(ctx, installation{
		name: "containerd", version: containerdVersion, note: "about three minutes on two cores",
		tags:     "no_btrfs no_devmapper no_zfs no_tracing",
		flags:    "-s -w -X " + module + "/version.Version=" + containerdVersion,
		packages: []string{module + "/cmd/containerd", module + "/cmd/containerd-shim-runc-v2", module + "/cmd/ctr"},
	})
}

// Kwok returns the directory with kwok, which simulates kubelets.
func (c *Cache) Kwok(ctx context.Context) (string, error) {
	return c.goInstall(ctx, installation{
		name: "kwok", version: kwokVersion, note: "about three minutes on two cores",
		flags:    "-s -w -X sigs.k8s.io/kwok/pkg/consts.Version=" + kwokVersion,
		packages: []string{"sigs.k8s.io/kwok/cmd/kwok"},
	})
}

// installation describes programs that `go install` builds from one published module.
type installation struct {
	name, version, note, tags, flags string
	packages                         []string
}

func (c *Cache) goInstall(ctx context.Context, i installation) (string, error) {
	return c.getOrBuild(ctx, artifact{
		name: i.name + "-" + i.version, needed: 1 << 30, note: i.note,
		inputs: append([]string{i.version, i.tags, i.flags}, i.packages...),
		make: func(ctx context.Context, dir string) error {
			arguments := []string{"install", "-trimpath", "-tags", i.tags, "-ldflags", i.flags}
			for _, p := range i.packages {
				arguments = append(arguments, p+"@"+i.version)
			}
			install := goCommand(ctx, dir, arguments...)
			install.Env = append(install.Env, "GOBIN="+dir)
			return c.runCommand(install)
		},
	})
}

// goCommand runs the Go tool so that it builds static programs for this machine.
func goCommand(ctx context.Context, dir string, arguments ...string) *exec.Cmd {
	cmd := exec.CommandContext(ctx, "go", arguments...)
	cmd.Dir = dir
	cmd.Env = append(os.Environ(), "CGO_ENABLED=0", "GOBIN=", "GOOS=linux", "GOARCH="+runtime.GOARCH, "GOWORK=off")
	return cmd
}

// sources is the directory of this module's sources. The linker sets it where -trimpath removes it from the program.
var sources = ""

// Source returns the directory of this module's sources. They are needed at run time because hyperkube, a module of its own, is
// built on demand.
func Source() (string, error) {
	if sources != "" {
		return sources, nil
	}
	if _, file, _, found := runtime.Caller(0); found {
		if dir := filepath.Dir(filepath.Dir(file)); fileExists(filepath.Join(dir, "hyperkube", "go.mod")) {
			return dir, nil
		}
	}
	out, err := exec.Command("go", "list", "-m", "-f", "{{.Dir}}", "github.com/skyhook-k8s/skyhook/test/cluster").Output()
	if dir := strings.TrimSpace(string(out)); err == nil && fileExists(filepath.Join(dir, "hyperkube", "go.mod")) {
		return dir, nil
	}
	return "", errors.New("finding the sources of test/cluster: run this from a checkout of the repository, with Go in PATH")
}

func readFiles(dir string, names ...string) ([]string, error) {
	var all []string
	for _, name := range names {
		content, err := os.ReadFile(filepath.Join(dir, name))
		if err != nil {
			return nil, err
		}
		all = append(all, string(content))
	}
	return all, nil
}
