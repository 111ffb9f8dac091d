// SPDX-FileCopyrightText: The Skyhook authors
// SPDX-License-Identifier: Apache-2.0

package ui

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"crypto/sha512"
	"encoding/base64"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"sync"
	"testing"

	"github.com/chromedp/chromedp"
)

// axe-core has the rules of accessibility that are checked beside checks.js. npm gets it once, and it is kept outside of the tree.
const (
	axeVersion   = "4.14.1"
	axeIntegrity = "FHfa+lmNjQZfJz1q8wKqIDwC6DExcHt/pkjNQb09a3NPjCKg2rhu5qb2S4r76ASyFNNtuFooJpZe37OgudVGtQ==" // the SHA-512 of its archive
	axeProgram   = "package/axe.min.js"
)

// loadAxe returns the script of axe-core.
var loadAxe = sync.OnceValues(func() (string, error) {
	cache, err := os.UserCacheDir()
	if err != nil {
		return "", err
	}
	dir := filepath.Join(cache, "skyhook-tools", "axe-core-"+axeVersion)
	file := filepath.Join(dir, "axe-core-"+axeVersion+".tgz")
	if _, err := os.Stat(file); errors.Is(err, os.ErrNotExist) {
		if err := os.MkdirAll(dir, 0o755); err != nil {
			return "", err
		}
		if text, err := exec.Command("npm", "pack", "--silent", "--pack-destination", dir, "axe-core@"+axeVersion).CombinedOutput(); err != nil {
			return "", fmt.Errorf("npm pack axe-core@%s: %w: %s", axeVersion, err, text)
		}
	}
	raw, err := os.ReadFile(file)
	if err != nil {
		return "", err
	}
	if sum := sha512.Sum512(raw); base64.StdEncoding.EncodeToString(sum[:]) != axeIntegrity {
		return "", fmt.Errorf("%s has another checksum than axe-core %s: delete it", file, axeVersion)
	}
	return extract(raw, axeProgram)
})

// extract returns a file of a compressed archive.
func extract(archive []byte, name string) (string, error) {
	packed, err := gzip.NewReader(bytes.NewReader(archive))
	if err != nil {
		return "", err
	}
	for files := tar.NewReader(packed); ; {
		header, err := files.Next()
		if err != nil {
			return "", fmt.Errorf("looking for %s: %w", name, err)
		}
		if header.Name == name {
			text, err := io.ReadAll(files)
			return string(text), err
		}
	}
}

// runAxe applies the rules of axe-core to a page. The value lists what is wrong, and what a person must look at is no part of it.
const runAxe = `axe.run(document, {resultTypes: ['violations'], runOnly: ['wcag2a', 'wcag2aa', 'wcag21a', 'wcag21aa', 'wcag22aa', 'best-practice']})
  .then((found) => found.violations.flatMap((rule) => rule.nodes.map((node) => rule.impact + ' ' + rule.id + ': ' + node.target.join(' ') + ': ' + (node.failureSummary || '').replaceAll('\n', ' '))))`

// checkAccessibility applies all rules to the page that is open.
func (b *browser) checkAccessibility(t *testing.T, name string) {
	t.Helper()
	for _, wrong := range evaluate[[]string](b, checks) {
		t.Errorf("%s: %s", name, wrong)
	}
	script, err := loadAxe()
	if err != nil {
		if _, missing := exec.LookPath("npm"); missing == nil && os.Getenv("GITHUB_ACTIONS") != "" {
			t.Fatal(err) // its machines have npm and the network
		}
		t.Logf("%s: without axe-core: %v", name, err)
		return
	}
	b.run(chromedp.Evaluate(script+"; null", nil))
	for _, wrong := range evaluate[[]string](b, runAxe) {
		t.Errorf("%s: %s", name, wrong)
	}
}
