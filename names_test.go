// SPDX-FileCopyrightText: The Skyhook authors
// SPDX-License-Identifier: Apache-2.0

package skyhook

import (
	"encoding/json"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/skyhook-k8s/skyhook/internal/published"
)

// foreignNames are the names of images that are not ours, and where they may stand: paths begin with one of places, or are any if there
// are none.
var foreignNames = []struct {
	prefixes, places []string
	why              string
}{
	{[]string{"ghcr.io/acme", "ghcr.io/Acme", "quay.io/acme", "nvcr.io/acme", "docker.io/acme", "ghcr.io/team", "ghcr.io/Team", "docker.io/team", "docker.io/somebody"}, nil,
		"an owner that nobody is, for what users publish themselves"},
	{[]string{"ghcr.io/x", "nvcr.io/x", "ghcr.io/a", "quay.io/a", "nvcr.io/a", "docker.io/p", "docker.io/library/p"}, []string{"api/", "internal/", "test/"}, "the shortest name that a test can have"},
	{[]string{"registry.k8s.io/pause"}, nil, "Kubernetes' image of a container that waits, which nodes have already"},
	{[]string{"registry.k8s.io/kubectl"}, []string{"docs/tasks/"}, "Kubernetes' image of kubectl, for a CronJob of the reader"},
	{[]string{"busybox", "docker.io/library/busybox"}, nil, "the default of NodeOps, which existing manifests rely on, and the first image that people think of"},
	{[]string{"quay.io/kairos/opensuse"}, nil, "an operating system: what an upgrade of Kairos installs"},
	{[]string{"ghcr.io/nvidia/skyhook", "ghcr.io/nvidia/skyhook-packages"}, []string{"api/testdata/examples/", "test/e2e/install/takeover_test.go"}, "a predecessor's documents and records, kept as data"},
	{[]string{"ghcr.io/nvidia/nodewright", "ghcr.io/kubereboot/kured", "docker.io/alpine/kubectl"}, []string{"internal/cli/testdata/migrate/", "test/chart/"}, "what a migration or an upgrade finds"},
	{[]string{"quay.io/brancz/kube-rbac-proxy"}, []string{"test/chart/live/testdata/predecessor/"}, "a predecessor's release, kept as data"},
	{[]string{"ghcr.io/devcontainers/features"}, []string{".devcontainer/"}, "no image of ours: a tool of editors"},
	{[]string{"docker.io/ghcr.io"}, []string{"test/docs/kyverno/"}, "a name that only looks like ours, which a policy has to refuse"},
}

var (
	// A name on a public registry, and the name in a field image of a manifest.
	registryNames = regexp.MustCompile(`\b(?:ghcr|nvcr|quay|docker|gcr)\.io/[A-Za-z0-9][A-Za-z0-9._/-]*|\bregistry\.k8s\.io/[a-z0-9._/-]+|\b(?:public\.ecr\.aws|mcr\.microsoft\.com)/[a-z0-9._/-]+`)
	imageFields   = regexp.MustCompile(`\b[iI]mage: *["']?([a-z0-9][a-z0-9._/-]*)`)
	// A package of ours in a manifest: version and image are fields of one object, on two lines or on one.
	packageVersions = regexp.MustCompile(`version: "?([0-9][0-9a-zA-Z.+-]*)"?(?:,|\n) *image: "?` + regexp.QuoteMeta(published.Images) + `/packages/([a-z-]+)`)
)

// TestNames finds each name of an image in the tree that is neither below the names of internal/published nor explained above.
func TestNames(t *testing.T) {
	used := map[string]bool{}
	for file, text := range trackedFiles(t) {
		found := registryNames.FindAllString(text, -1)
		if isManifest(file) && !strings.HasPrefix(file, "docs/") { // pages also quote parts
			for _, m := range imageFields.FindAllStringSubmatch(text, -1) {
				if first, _, _ := strings.Cut(m[1], "/"); !strings.Contains(first, ".") {
					found = append(found, m[1])
				}
			}
		}
		for _, name := range found {
			if name = strings.TrimRight(name, "./-"); isBelow(name, published.Images, published.Charts) || isBelow(published.Images, name) {
				continue
			}
			why, isKnown := explain(file, name)
			if !isKnown {
				t.Errorf("%s names %s: our images are below %s; what has to name those of others stands in foreignNames with a reason", file, name, published.Images)
			}
			used[why] = true
		}
	}
	for _, f := range foreignNames {
		if !used[f.why] {
			t.Errorf("foreignNames: nothing names %s any more: remove it", strings.Join(f.prefixes, ", "))
		}
	}
}

// TestPackageVersions checks that manifests which users apply name versions of our packages that are published from this tree.
func TestPackageVersions(t *testing.T) {
	checked := 0
	for file, text := range trackedFiles(t) {
		if !isManifest(file) {
			continue
		}
		for _, m := range packageVersions.FindAllStringSubmatch(text, -1) {
			checked++
			var config struct {
				Version string `json:"package_version"`
			}
			data, err := os.ReadFile(filepath.Join("packages", m[2], "config.json"))
			if err == nil {
				err = json.Unmarshal(data, &config)
			}
			if err != nil {
				t.Errorf("%s names the package %s: %v", file, m[2], err)
			} else if config.Version != m[1] {
				t.Errorf("%s names version %s of the package %s, and its config.json has %s", file, m[1], m[2], config.Version)
			}
		}
	}
	if checked < 20 {
		t.Errorf("only %d packages of ours were found in manifests", checked)
	}
}

// isManifest reports whether a file has manifests for users.
func isManifest(file string) bool {
	folder, _, _ := strings.Cut(file, "/")
	return slices.Contains([]string{".yaml", ".md"}, path.Ext(file)) && (folder == file || slices.Contains([]string{"chart", "config", "docs", "examples", "packages"}, folder))
}

func isBelow(name string, prefixes ...string) bool {
	return slices.ContainsFunc(prefixes, func(p string) bool { return name == p || strings.HasPrefix(name, p+"/") })
}

func explain(file, name string) (why string, isKnown bool) {
	for _, f := range foreignNames {
		isHere := func(place string) bool { return strings.HasPrefix(file, place) }
		if isBelow(name, f.prefixes...) && (f.places == nil || slices.ContainsFunc(f.places, isHere)) {
			return f.why, true
		}
	}
	return "", false
}

// trackedFiles are the files of the tree that Git knows, but for this one.
func trackedFiles(t *testing.T) map[string]string {
	t.Helper()
	list, err := exec.Command("git", "ls-files", "-z", "--cached", "--others", "--exclude-standard").Output()
	if err != nil {
		t.Fatalf("git ls-files: %v", err)
	}
	files := map[string]string{}
	for name := range strings.SplitSeq(strings.Trim(string(list), "\x00"), "\x00") {
		text, err := os.ReadFile(name)
		if os.IsNotExist(err) || name == "names_test.go" {
			continue // a file that is deleted and not committed yet
		}
		if err != nil {
			t.Fatal(err)
		}
		files[name] = string(text)
	}
	return files
}
