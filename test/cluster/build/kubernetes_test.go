// SPDX-FileCopyrightText: The Skyhook authors
// SPDX-License-Identifier: Apache-2.0

package build

import (
	"context"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// TestKubernetesVersion checks that programs report the version of the go.mod that they are built from.
func TestKubernetesVersion(t *testing.T) {
	source, err := Source()
	if err != nil {
		t.Fatal(err)
	}
	hyperkube := filepath.Join(source, "hyperkube")
	pinned, err := readPinnedRelease(hyperkube)
	if err != nil {
		t.Fatal(err)
	}
	mod, err := os.ReadFile(filepath.Join(hyperkube, "go.mod"))
	if err != nil {
		t.Fatal(err)
	}
	for line := range strings.Lines(string(mod)) {
		if _, version, replaced := strings.Cut(line, " => k8s.io/"); replaced && !strings.HasSuffix(strings.TrimSpace(version), " "+pinned.libraries()) {
			t.Errorf("%s: with Kubernetes %s it must be %s", strings.TrimSpace(line), pinned, pinned.libraries())
		}
	}
	for _, want := range []string{"version.gitVersion=v1.33.4 ", "version.gitMinor=33 "} {
		if flags := (release{33, 4}).linkerFlags(); strings.Count(flags, want) != 2 {
			t.Errorf("the flags %q set %s not twice", flags, want)
		}
	}
}

func TestChooseRelease(t *testing.T) {
	pinned := release{37, 2}
	for value, want := range map[string]string{"": "v1.37.2", "v1.30.0": "v1.30.0", "v1.33.13": "v1.33.13", "v1.36.0": "v1.36.0"} {
		if got, err := chooseRelease(value, pinned); err != nil || got.String() != want {
			t.Errorf("%q gives %s, %v, and not %s", value, got, err, want)
		}
	}
	for _, value := range []string{"v1.29.9", "v1.38.0", "1.33.4", "v1.33", "v1.33.04", "v1.33.4-rc.0", "v2.33.4", "latest", " "} {
		want := "KUBERNETES=" + value + ": it must be a release of Kubernetes 1.30 to 1.37, such as v1.37.2; unset it for v1.37.2"
		if _, err := chooseRelease(value, pinned); err == nil || err.Error() != want {
			t.Errorf("%q gives the error %v, and not %s", value, err, want)
		}
	}
}

// TestWrongKubernetes: a wrong version is reported before anything is downloaded or built.
func TestWrongKubernetes(t *testing.T) {
	c := newTestCache(t)
	t.Setenv("KUBERNETES", "v1.29.0")
	if _, err := c.Kubernetes(context.Background()); err == nil || !strings.HasPrefix(err.Error(), "KUBERNETES=v1.29.0: it must be a release of Kubernetes 1.30 to 1.") {
		t.Errorf("the error is %v", err)
	}
	if left, _ := os.ReadDir(c.Dir); len(left) > 0 {
		t.Errorf("the cache contains %v", left)
	}
}

func TestRewriteModule(t *testing.T) {
	const published = `module k8s.io/kubernetes

go 1.22.0

require (
	go.etcd.io/etcd/server/v3 v3.5.10 // indirect
	k8s.io/api v0.0.0
)

replace (
	k8s.io/api => ./staging/src/k8s.io/api
	k8s.io/kube-proxy => ./staging/src/k8s.io/kube-proxy
)
`
	const want = `module github.com/skyhook-k8s/skyhook/test/cluster/hyperkube

go 1.22.0

require (
	go.etcd.io/etcd/server/v3 v3.5.10 // indirect
	k8s.io/api v0.0.0
)

replace (
	k8s.io/api => k8s.io/api v0.30.4
	k8s.io/kube-proxy => k8s.io/kube-proxy v0.30.4
)

require k8s.io/kubernetes v1.30.4
`
	if got, err := rewriteModule(published, release{30, 4}); err != nil || got != want {
		t.Errorf("got\n%s\n%v", got, err)
	}
	if _, err := rewriteModule("module k8s.io/kubernetes\n", release{30, 4}); err == nil {
		t.Error("a go.mod that replaces nothing gives no error")
	}
}

// TestRewriteMain: the source of hyperkube is valid for versions before and after the change of the kubelet's command.
func TestRewriteMain(t *testing.T) {
	source, err := Source()
	if err != nil {
		t.Fatal(err)
	}
	files, err := readFiles(filepath.Join(source, "hyperkube"), "main.go")
	if err != nil {
		t.Fatal(err)
	}
	if got, err := rewriteMain(files[0], release{34, 0}); err != nil || got != files[0] {
		t.Errorf("for 1.34 the source is changed, or fails: %v", err)
	}
	got, err := rewriteMain(files[0], release{33, 13})
	if err != nil {
		t.Fatal(err)
	}
	if strings.Contains(got, "context") || strings.Count(got, "kubelet.NewKubeletCommand()") != 1 {
		t.Errorf("for 1.33 the source is\n%s", got)
	}
	if _, err := rewriteMain("package main\n", release{33, 13}); err == nil {
		t.Error("a source without the command of the kubelet gives no error")
	}
}
