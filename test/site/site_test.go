// SPDX-FileCopyrightText: The Skyhook authors
// SPDX-License-Identifier: Apache-2.0

// Package site tests the site of the documentation: it is built, every link has a target, and a browser shows and searches it.
package site

import (
	"io/fs"
	"net/url"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"golang.org/x/net/html"
)

// hugoVariable names the program hugo. `make site-test` builds it, which takes minutes the first time.
const hugoVariable = "SKYHOOK_HUGO"

const repository = "../.."

// buildSite builds the site of a checkout and returns its folder.
func buildSite(t *testing.T, checkout string) string {
	t.Helper()
	hugo := os.Getenv(hugoVariable)
	if hugo == "" {
		t.Skip("it needs Hugo: run make site-test")
	}
	program, out := filepath.Join(t.TempDir(), "mksite"), filepath.Join(t.TempDir(), "site")
	build := exec.Command("go", "build", "-o", program, "./hack/mksite")
	build.Dir = repository
	run := exec.Command(program, "--hugo", hugo, "--out", out)
	run.Dir = checkout
	for _, cmd := range []*exec.Cmd{build, run} {
		if text, err := cmd.CombinedOutput(); err != nil {
			t.Fatalf("%v: %v\n%s", cmd.Args, err, text)
		}
	}
	return out
}

// document is what the links of other pages need to know of a page.
type document struct {
	ids   map[string]bool
	links []string
}

// readDocuments reads all pages of a site, by path.
func readDocuments(t *testing.T, site string) map[string]*document {
	t.Helper()
	all := map[string]*document{}
	err := fs.WalkDir(os.DirFS(site), ".", func(name string, _ fs.DirEntry, err error) error {
		if err != nil || path.Ext(name) != ".html" {
			return err
		}
		f, err := os.Open(filepath.Join(site, name))
		if err != nil {
			return err
		}
		defer func() { _ = f.Close() }()
		root, err := html.Parse(f)
		if err != nil {
			return err
		}
		d := &document{ids: map[string]bool{}}
		for n := range root.Descendants() {
			for _, a := range n.Attr {
				switch a.Key {
				case "id":
					d.ids[a.Val] = true
				case "href", "src":
					d.links = append(d.links, a.Val)
				}
			}
		}
		all[name] = d
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return all
}

// findDeadLink says why a link of a page leads nowhere; empty when it has a target, or one that only the network knows.
func findDeadLink(site string, all map[string]*document, page, link string) string {
	u, err := url.Parse(link)
	if err != nil {
		return err.Error()
	}
	if u.IsAbs() {
		_, file, isOurs := strings.Cut(link, "github.com/skyhook-k8s/skyhook/tree/main/")
		file, _, _ = strings.Cut(file, "#")
		if _, err := os.Stat(filepath.Join(repository, file)); isOurs && err != nil {
			return "the repository has no such file"
		}
		return ""
	}
	target := page
	if u.Path != "" {
		target = path.Join(path.Dir(page), u.Path)
	}
	if _, err := os.Stat(filepath.Join(site, target)); err != nil || strings.HasPrefix(u.Path, "/") {
		return "the site has no such file"
	}
	if d := all[target]; u.Fragment != "" && (d == nil || !d.ids[u.Fragment]) {
		return "the page has no such heading"
	}
	return ""
}

// TestLinks checks every link of the site, with its heading.
func TestLinks(t *testing.T) {
	site := buildSite(t, repository)
	if all := readDocuments(t, site); len(all) < 40 || checkLinks(t, site, all) < 2000 {
		t.Errorf("only %d pages were found, or few links", len(all))
	}
}

// checkLinks checks every link of a site and returns how many there are.
func checkLinks(t *testing.T, site string, all map[string]*document) (count int) {
	t.Helper()
	for page, d := range all {
		for _, link := range d.links {
			count++
			if why := findDeadLink(site, all, page, link); why != "" {
				t.Errorf("%s links to %s: %s", page, link, why)
			}
		}
	}
	return count
}

// TestFindDeadLink checks the check.
func TestFindDeadLink(t *testing.T) {
	site := t.TempDir()
	if err := os.WriteFile(filepath.Join(site, "a.html"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	all := map[string]*document{"a.html": {ids: map[string]bool{"there": true}}}
	for link, isDead := range map[string]bool{
		"a.html": false, "a.html#there": false, "#there": false, "https://example.com/x": false,
		"https://github.com/skyhook-k8s/skyhook/tree/main/chart/values.yaml": false,
		"b.html": true, "a.html#gone": true, "#gone": true, "/a.html": true,
		"https://github.com/skyhook-k8s/skyhook/tree/main/chart/gone.yaml": true,
	} {
		if why := findDeadLink(site, all, "a.html", link); (why != "") != isDead {
			t.Errorf("%s: %q", link, why)
		}
	}
}

// TestVersions: the index leads to the newest release, and a page links to the same page of other versions.
func TestVersions(t *testing.T) {
	checkout := filepath.Join(t.TempDir(), "checkout")
	for _, args := range [][]string{
		{"clone", "--quiet", "--no-tags", repository, checkout},
		{"-C", checkout, "tag", "v0.9.0"}, {"-C", checkout, "tag", "v0.10.0"}, {"-C", checkout, "tag", "v0.11.0-rc.1"},
	} {
		if out, err := exec.Command("git", args...).CombinedOutput(); err != nil {
			t.Fatalf("git %v: %v\n%s", args, err, out)
		}
	}
	site := buildSite(t, checkout)
	all := readDocuments(t, site)
	checkLinks(t, site, all)
	if index := all["index.html"]; index == nil || !slices.Contains(index.links, "v0.10.0/index.html") {
		t.Errorf("the index links to %v", index)
	}
	var found []string
	for _, link := range all["v0.10.0/docs/install.html"].links {
		if strings.HasPrefix(link, "../../") {
			found = append(found, link)
		}
	}
	if got := strings.Join(found, " "); got != "../../main/docs/install.html ../../v0.9.0/docs/install.html" {
		t.Errorf("a page of v0.10.0 links to %s", got)
	}
}
