// SPDX-FileCopyrightText: The Skyhook authors
// SPDX-License-Identifier: Apache-2.0

package build

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
)

// versionVariable names the version of Kubernetes to build. Without it, that is the version of hyperkube/go.mod.
const versionVariable = "KUBERNETES"

// oldestMinor is the oldest minor version of Kubernetes that Skyhook supports. The newest is that of hyperkube/go.mod.
const oldestMinor = 30

// kubernetesPrograms are the names that the one Kubernetes binary answers to.
var kubernetesPrograms = []string{"etcd", "kube-apiserver", "kube-controller-manager", "kube-scheduler", "kube-proxy", "kubelet", "kubectl"}

var (
	kubernetesRequirement = regexp.MustCompile(`(?m)^\s+k8s\.io/kubernetes (v1\.\d+\.\d+)$`)
	kubernetesVersion     = regexp.MustCompile(`^v1\.(0|[1-9]\d?)\.(0|[1-9]\d{0,2})$`)
)

// release is a version of Kubernetes.
type release struct{ minor, patch int }

func parseRelease(version string) (release, bool) {
	parts := kubernetesVersion.FindStringSubmatch(version)
	if parts == nil {
		return release{}, false
	}
	minor, minorErr := strconv.Atoi(parts[1])
	patch, patchErr := strconv.Atoi(parts[2])
	return release{minor: minor, patch: patch}, minorErr == nil && patchErr == nil
}

// String returns the version as Kubernetes is tagged.
func (r release) String() string { return fmt.Sprintf("v1.%d.%d", r.minor, r.patch) }

// libraries returns the version of the modules that are released together with this version, such as k8s.io/api.
func (r release) libraries() string { return fmt.Sprintf("v0.%d.%d", r.minor, r.patch) }

// linkerFlags sets the version that the programs report; some clients refuse a server that reports none.
func (r release) linkerFlags() string {
	flags := "-s -w"
	for _, pkg := range []string{"k8s.io/component-base/version", "k8s.io/client-go/pkg/version"} {
		for _, v := range []string{"gitVersion=" + r.String(), "gitMajor=1", "gitMinor=" + strconv.Itoa(r.minor), "gitTreeState=clean", "gitCommit=skyhook", "buildDate=2026-01-01T00:00:00Z"} {
			flags += " -X " + pkg + "." + v
		}
	}
	return flags
}

// readPinnedRelease reads the version of Kubernetes in hyperkube/go.mod.
func readPinnedRelease(hyperkube string) (release, error) {
	mod, err := os.ReadFile(filepath.Join(hyperkube, "go.mod"))
	if err != nil {
		return release{}, err
	}
	if found := kubernetesRequirement.FindSubmatch(mod); found != nil {
		if pinned, valid := parseRelease(string(found[1])); valid {
			return pinned, nil
		}
	}
	return release{}, fmt.Errorf("%s/go.mod names no version of k8s.io/kubernetes", hyperkube)
}

// chooseRelease returns the version that value, of versionVariable, asks for.
func chooseRelease(value string, pinned release) (release, error) {
	if value == "" {
		return pinned, nil
	}
	chosen, valid := parseRelease(value)
	if !valid || chosen.minor < oldestMinor || chosen.minor > pinned.minor {
		return release{}, fmt.Errorf("%s=%s: it must be a release of Kubernetes 1.%d to 1.%d, such as %s; unset it for %s",
			versionVariable, value, oldestMinor, pinned.minor, pinned, pinned)
	}
	return chosen, nil
}

// Kubernetes returns the directory with etcd, the control plane, kubelet, kube-proxy and kubectl of the version that the
// environment variable KUBERNETES names.
func (c *Cache) Kubernetes(ctx context.Context) (string, error) {
	source, err := Source()
	if err != nil {
		return "", err
	}
	hyperkube := filepath.Join(source, "hyperkube")
	pinned, err := readPinnedRelease(hyperkube)
	if err != nil {
		return "", fmt.Errorf("building kubernetes: %w", err)
	}
	chosen, err := chooseRelease(os.Getenv(versionVariable), pinned)
	if err != nil {
		return "", err
	}
	files := []string{"go.mod", "go.sum", "main.go"}
	if chosen != pinned {
		files = []string{"main.go"} // the others are those of Kubernetes, which never change
	}
	inputs, err := readFiles(hyperkube, files...)
	if err != nil {
		return "", fmt.Errorf("building kubernetes: %w", err)
	}
	return c.getOrBuild(ctx, artifact{
		name: "kubernetes-" + chosen.String(), inputs: append(inputs, chosen.linkerFlags()), needed: 1 << 30,
		note: "about ten minutes on two cores, and 4 GiB of Go's build cache",
		make: func(ctx context.Context, dir string) error {
			if chosen == pinned {
				return c.buildHyperkube(ctx, chosen, hyperkube, dir)
			}
			return c.buildOtherRelease(ctx, chosen, hyperkube, dir)
		},
	})
}

// buildOtherRelease builds a version that hyperkube/go.mod does not pin, with a module that is generated for it.
func (c *Cache) buildOtherRelease(ctx context.Context, r release, hyperkube, dir string) error {
	module := filepath.Join(dir, ".module")
	if err := os.Mkdir(module, 0o755); err != nil {
		return err
	}
	if err := c.generateModule(ctx, r, hyperkube, module); err != nil {
		return fmt.Errorf("generating the module of Kubernetes %s: %w", r, err)
	}
	return errors.Join(c.buildHyperkube(ctx, r, module, dir, "-mod=mod"), os.RemoveAll(module))
}

// buildHyperkube builds the module in source, and links its program under each name that it answers to.
func (c *Cache) buildHyperkube(ctx context.Context, r release, source, dir string, flags ...string) error {
	arguments := append([]string{"build", "-trimpath", withoutDWARF, "-ldflags", r.linkerFlags(), "-o", filepath.Join(dir, "hyperkube")}, flags...)
	if err := c.runCommand(goCommand(ctx, source, append(arguments, ".")...)); err != nil {
		return err
	}
	for _, program := range kubernetesPrograms {
		if err := os.Symlink("hyperkube", filepath.Join(dir, program)); err != nil {
			return err
		}
	}
	return nil
}
