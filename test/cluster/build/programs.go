// SPDX-FileCopyrightText: The Skyhook authors
// SPDX-License-Identifier: Apache-2.0

package build

import (
	"cmp"
	"context"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
)

// Versions of what is not pinned by a go.mod of ours. `go install` checks them against the checksum database.
const (
	containerdVersion = "v2.4.2"
	kwokVersion       = "v0.8.0"
)

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
			arguments := []string{"install", "-trimpath", withoutDWARF, "-tags", i.tags, "-ldflags", i.flags}
			for _, p := range i.packages {
				arguments = append(arguments, p+"@"+i.version)
			}
			install := goCommand(ctx, dir, arguments...)
			install.Env = append(install.Env, "GOBIN="+dir)
			return c.runCommand(install)
		},
	})
}

// withoutDWARF saves a tenth of the time to compile. The linker would leave out that information anyway.
const withoutDWARF = "-gcflags=all=-dwarf=false"

// goCommand runs the Go tool so that it builds static programs for this machine. With less garbage collection it is a fifth faster.
func goCommand(ctx context.Context, dir string, arguments ...string) *exec.Cmd {
	cmd := exec.CommandContext(ctx, "go", arguments...)
	cmd.Dir, cmd.Env = dir, append(os.Environ(), "CGO_ENABLED=0", "GOBIN=", "GOOS=linux", "GOARCH="+runtime.GOARCH, "GOWORK=off", "GOGC="+cmp.Or(os.Getenv("GOGC"), "400"))
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
