// SPDX-FileCopyrightText: The Skyhook authors
// SPDX-License-Identifier: Apache-2.0

package build

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"
)

var (
	moduleLine      = regexp.MustCompile(`(?m)^module k8s\.io/kubernetes$`)
	stagedDirectory = regexp.MustCompile(`=> \./staging/src/(k8s\.io/\S+)`)
)

// generateModule writes the sources of hyperkube for a version of Kubernetes to dir. Its go.mod and go.sum are those of that
// version, so that every other module has the version that Kubernetes was released with. The Go tool checks Kubernetes and
// the libraries that are released with it against the checksum database, and everything else against Kubernetes' own go.sum.
func (c *Cache) generateModule(ctx context.Context, r release, hyperkube, dir string) error {
	kubernetes, err := downloadKubernetes(ctx, r, dir)
	if err != nil {
		return err
	}
	published, err := readFiles(kubernetes, "go.mod", "go.sum")
	if err != nil {
		return err
	}
	mod, err := rewriteModule(published[0], r)
	if err != nil {
		return err
	}
	source, err := readFiles(hyperkube, "main.go")
	if err != nil {
		return err
	}
	program, err := rewriteMain(source[0], r)
	if err != nil {
		return err
	}
	for name, content := range map[string]string{"go.mod": mod, "go.sum": published[1], "main.go": program} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(content), 0o644); err != nil {
			return err
		}
	}
	return nil
}

// downloadKubernetes returns the directory with the module of a version of Kubernetes. workDir lies in no module.
func downloadKubernetes(ctx context.Context, r release, workDir string) (string, error) {
	out, runErr := goCommand(ctx, workDir, "mod", "download", "-json", "k8s.io/kubernetes@"+r.String()).Output()
	var downloaded struct{ Dir, Error string }
	if err := json.Unmarshal(out, &downloaded); err != nil {
		return "", fmt.Errorf("go mod download k8s.io/kubernetes@%s: %w", r, runErr)
	}
	if downloaded.Error != "" || runErr != nil {
		return "", fmt.Errorf("go mod download: %s", downloaded.Error)
	}
	return downloaded.Dir, nil
}

// rewriteModule turns the go.mod of a version of Kubernetes into one of a module that uses that version. Kubernetes takes its
// libraries from folders that its module does not contain; here they are the modules of the same release.
func rewriteModule(mod string, r release) (string, error) {
	if !moduleLine.MatchString(mod) || !stagedDirectory.MatchString(mod) {
		return "", fmt.Errorf("the go.mod of Kubernetes %s has another form than those of 1.%d and later: it must be module k8s.io/kubernetes and replace modules by ./staging/src", r, oldestMinor)
	}
	mod = moduleLine.ReplaceAllString(mod, "module github.com/skyhook-k8s/skyhook/test/cluster/hyperkube")
	mod = stagedDirectory.ReplaceAllString(mod, "=> ${1} "+r.libraries())
	return mod + "\nrequire k8s.io/kubernetes " + r.String() + "\n", nil
}

// rewriteMain adapts the source of hyperkube to a version of Kubernetes: before 1.34 the command of the kubelet took no context.
func rewriteMain(source string, r release) (string, error) {
	if r.minor >= 34 {
		return source, nil
	}
	const importLine, call = "\t\"context\"\n", "NewKubeletCommand(context.Background())"
	if strings.Count(source, importLine) != 1 || strings.Count(source, call) != 1 || strings.Count(source, "context.") != 1 {
		return "", fmt.Errorf("main.go of hyperkube must import context and use it once, in %s: adapt rewriteMain", call)
	}
	return strings.NewReplacer(importLine, "", call, "NewKubeletCommand()").Replace(source), nil
}
