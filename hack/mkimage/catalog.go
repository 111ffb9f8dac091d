// SPDX-FileCopyrightText: The Skyhook authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"encoding/pem"

	"golang.org/x/crypto/x509roots/fallback/bundle"

	"github.com/skyhook-k8s/skyhook/internal/image"
)

const source = "https://github.com/skyhook-k8s/skyhook"

// A product is an image with one program of ours.
type product struct {
	name    string
	title   string
	program string // the folder of its main package
	file    string // where the program is in the image
	links   []string
	entry   bool // the program is what the image runs
	user    string
	env     []string
	onShell bool // the shell image is below
	// limit is what the unpacked files of the image may weigh, and fileLimit what the program may, in MB of 10⁶ bytes.
	limit, fileLimit int64
	files            func(*image.Tree)
	dataModule       string // the Go module that files come from
}

// products are all but the packages, which are found in their folder.
func products() []product {
	return []product{
		{name: "operator", title: "skyhook-operator", program: "cmd/operator", file: "/manager", entry: true,
			user: "10001:10001", limit: 66, files: addRoots, dataModule: "golang.org/x/crypto/x509roots/fallback"},
		// The agent is root: it changes its root to that of the host.
		{name: "agent", title: "skyhook-agent", program: "cmd/skyhook-agent", file: "/usr/local/bin/skyhook-agent", entry: true,
			user: "0:0", limit: 16, fileLimit: 12, files: addScratchFolders},
		{name: "shell", title: "skyhook-shell", program: "cmd/shell", file: "/bin/sh", entry: true,
			user: "0:0", limit: 6, files: func(t *image.Tree) {
				addScratchFolders(t)
				t.Bytes("/etc/passwd", 0o644, []byte("root:x:0:0:root:/root:/bin/sh\nnobody:x:65534:65534:nobody:/:/bin/sh\n"))
				t.Bytes("/etc/group", 0o644, []byte("root:x:0:\nnobody:x:65534:\n"))
			}, links: []string{"bash", "cat", "chmod", "cp", "ls", "mkdir", "mv", "rm", "sleep"}},
		{name: "pause", title: "skyhook-pause", program: "cmd/pause", file: "/pause", entry: true,
			user: "65535:65535", limit: 3},
		{name: "stub", title: "skyhook-stub", program: "cmd/stub", file: "/agentless", entry: true,
			user: "0:0", env: []string{"EXIT_CODE=0"}, onShell: true, limit: 10, files: addPackageFolders},
		{name: "fault", title: "skyhook-fault", program: "cmd/stub", file: "/fault", entry: true,
			user: "0:0", env: []string{"EXIT_CODE=0"}, onShell: true, limit: 10, files: addPackageFolders},
	}
}

// addScratchFolders is what programs expect of any root.
func addScratchFolders(t *image.Tree) {
	t.Dir("/root", 0o700)
	t.Dir("/tmp", 0o1777)
}

// addRoots adds Mozilla's root certificates where programs on Linux look for them. The operator needs them for Prometheus servers behind
// https. Roots that may sign only some names or certificates are left out, because a file cannot say so.
func addRoots(t *image.Tree) {
	var file bytes.Buffer
	for root := range bundle.Roots() {
		if root.Constraint == nil {
			// Writing to memory cannot fail, and the block has no headers.
			_ = pem.Encode(&file, &pem.Block{Type: "CERTIFICATE", Bytes: root.Certificate})
		}
	}
	t.Bytes("/etc/ssl/certs/ca-certificates.crt", 0o644, file.Bytes())
}

// addPackageFolders are the empty folders of the image that the stub takes the place of, underscore included.
func addPackageFolders(t *image.Tree) {
	t.Dir("/skyhook_package/root_dir", 0o755)
	t.Dir("/skyhook_package/skyhook_dir", 0o755)
}

func productNames() []string {
	var all []string
	for _, p := range products() {
		all = append(all, p.name)
	}
	return append(all, "packages")
}
