// SPDX-FileCopyrightText: The Skyhook authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"encoding/json"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"testing"

	v1 "github.com/google/go-containerregistry/pkg/v1"

	"github.com/skyhook-k8s/skyhook/internal/image"
)

// TestRun checks that the SBOM of a program names the Go it was built with, and only what is in the list.
func TestRun(t *testing.T) {
	built, out := filepath.Join(t.TempDir(), "pause_linux_arm64_v8.0"), t.TempDir()
	if err := os.Mkdir(built, 0o700); err != nil {
		t.Fatal(err)
	}
	file := filepath.Join(built, "pause")
	if err := (image.Program{Module: "../..", Package: "./cmd/pause"}).Compile(t.Context(), v1.Platform{OS: "linux", Architecture: "arm64"}, file); err != nil {
		t.Fatal(err)
	}
	if err := run("v1.2.3", out, []string{file}); err != nil {
		t.Fatal(err)
	}
	content, err := os.ReadFile(filepath.Join(out, "pause_v1.2.3_linux_arm64.spdx.json"))
	if err != nil {
		t.Fatal(err)
	}
	var d struct {
		SpdxVersion   string
		Packages      []struct{ SPDXID, Name, VersionInfo string }
		Relationships []struct{ SpdxElementID, RelatedSpdxElement string }
	}
	if err := json.Unmarshal(content, &d); err != nil {
		t.Fatal(err)
	}
	ids, hasGo, hasProgram := []string{"SPDXRef-DOCUMENT"}, false, false
	for _, p := range d.Packages {
		ids = append(ids, p.SPDXID)
		hasGo = hasGo || p.Name == "std" && p.VersionInfo == strings.TrimPrefix(runtime.Version(), "go")
		hasProgram = hasProgram || p.Name == "pause (linux/arm64)" && p.VersionInfo == "v1.2.3"
	}
	if d.SpdxVersion != "SPDX-2.3" || !hasGo || !hasProgram {
		t.Errorf("it is %s and names Go: %v, the program: %v", d.SpdxVersion, hasGo, hasProgram)
	}
	for _, r := range d.Relationships {
		if !slices.Contains(ids, r.SpdxElementID) || !slices.Contains(ids, r.RelatedSpdxElement) {
			t.Errorf("%v names what is not there", r)
		}
	}
	if len(slices.Compact(slices.Sorted(slices.Values(ids)))) != len(ids) {
		t.Error("it names something twice")
	}
}
