// SPDX-FileCopyrightText: The Skyhook authors
// SPDX-License-Identifier: Apache-2.0

// Mksbom writes what programs of a release consist of. Their folders are named by goreleaser:
//
//	go run ./hack/mksbom v1.2.3 dist/release dist/goreleaser/kubectl-skyhook_linux_amd64_v1/kubectl-skyhook
//
// It exists because syft, which goreleaser would run, writes the time and a random name into each list: no two builds would be equal.
package main

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"github.com/skyhook-k8s/skyhook/internal/packagecli/pkgimage"
)

func main() {
	if err := run(os.Args[1], os.Args[2], os.Args[3:]); err != nil {
		fmt.Fprintf(os.Stderr, "mksbom: %v\n", err)
		os.Exit(1)
	}
}

func run(version, to string, files []string) error {
	for _, file := range files {
		content, err := os.ReadFile(file)
		if err != nil {
			return fmt.Errorf("reading a program: %w", err)
		}
		folder := strings.Split(filepath.Base(filepath.Dir(file)), "_")
		if len(folder) < 3 {
			return fmt.Errorf("%s is not in a folder such as %s_linux_amd64_v1", file, filepath.Base(file))
		}
		name, system, arch := folder[0], folder[1], folder[2]
		list, err := pkgimage.ProgramSBOM(name, version, []pkgimage.Program{{Platform: system + "/" + arch, Content: content}})
		if err != nil {
			return err
		}
		out := filepath.Join(to, strings.Join([]string{name, version, system, arch}, "_")+".spdx.json")
		if err := os.WriteFile(out, list, 0o644); err != nil { //nolint:gosec // G306: a release is for everybody to read
			return fmt.Errorf("writing an SBOM: %w", err)
		}
	}
	return nil
}
