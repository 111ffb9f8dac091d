// SPDX-FileCopyrightText: The Skyhook authors
// SPDX-License-Identifier: Apache-2.0

package controlplane

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
)

// builtAssets names the variable that envtest reads too: a directory with etcd and kube-apiserver.
const builtAssets = "KUBEBUILDER_ASSETS"

// assets returns the directory with etcd and kube-apiserver.
func assets(ctx context.Context) (string, error) {
	if dir := os.Getenv(builtAssets); dir != "" {
		if _, err := os.Stat(filepath.Join(dir, "kube-apiserver")); err != nil {
			return "", fmt.Errorf("using %s: %w; unset it to have the programs built", builtAssets, err)
		}
		return dir, nil
	}
	source, err := clusterSource()
	if err != nil {
		return "", err
	}
	cmd := exec.CommandContext(ctx, "go", "run", "-C", source, ".", "assets")
	cmd.Env = append(os.Environ(), "GOWORK=off")
	var out, said bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, io.MultiWriter(os.Stderr, &said) // a first build takes minutes: say so at once
	if err := cmd.Run(); err != nil {
		return "", fmt.Errorf("building etcd and kube-apiserver: %w: %s; or set %s to a directory that holds them",
			err, strings.TrimSpace(said.String()), builtAssets)
	}
	return strings.TrimSpace(out.String()), nil
}

// clusterSource finds test/cluster, upwards from the package under test.
func clusterSource() (string, error) {
	dir, err := os.Getwd()
	if err != nil {
		return "", fmt.Errorf("finding test/cluster: %w", err)
	}
	for {
		source := filepath.Join(dir, "test", "cluster")
		if _, err := os.Stat(filepath.Join(source, "go.mod")); err == nil {
			return source, nil
		}
		parent := filepath.Dir(dir)
		if parent == dir {
			return "", fmt.Errorf("finding test/cluster: it is in no directory above this one; set %s to a directory with etcd and kube-apiserver", builtAssets)
		}
		dir = parent
	}
}
