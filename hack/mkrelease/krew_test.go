// SPDX-FileCopyrightText: The Skyhook authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"crypto/sha256"
	"fmt"
	"os"
	"strings"
	"testing"

	"sigs.k8s.io/yaml"
)

// TestKrew checks that the index of plugins gets every platform of a release, each with the archive that the release has for it, its
// checksum and the program inside.
func TestKrew(t *testing.T) {
	const version = "v7.8.9"
	text, err := os.ReadFile("../../.krew.yaml")
	if err != nil {
		t.Fatal(err)
	}
	filled, err := fillKrewManifest(text, version, func(name string) ([]byte, error) { return []byte(name), nil })
	if err != nil {
		t.Fatal(err)
	}
	var plugin struct {
		APIVersion, Kind string
		Metadata         struct{ Name string }
		Spec             struct {
			Version, Homepage, ShortDescription, Description string
			Platforms                                        []struct {
				Selector         struct{ MatchLabels struct{ OS, Arch string } }
				URI, Sha256, Bin string
			}
		}
	}
	if err := yaml.UnmarshalStrict(filled, &plugin); err != nil {
		t.Fatalf("%v\n%s", err, filled)
	}
	if plugin.Kind != "Plugin" || plugin.Metadata.Name != "skyhook" || plugin.Spec.Version != version || len(plugin.Spec.ShortDescription) > 50 {
		t.Errorf("the index gets %+v", plugin)
	}
	offered := map[string]bool{}
	for _, p := range plugin.Spec.Platforms {
		platform := p.Selector.MatchLabels.OS + "/" + p.Selector.MatchLabels.Arch
		offered[platform] = true
		base, extension, program := archiveName(version, platform)
		at, name := p.URI[:strings.LastIndexByte(p.URI, '/')], p.URI[strings.LastIndexByte(p.URI, '/')+1:]
		if name != base+extension || p.Bin != program || p.Sha256 != fmt.Sprintf("%x", sha256.Sum256([]byte(name))) || !strings.HasSuffix(at, "/releases/download/"+version) {
			t.Errorf("%s: %s with %s and the checksum %q; a release has %s with %s", platform, p.URI, p.Bin, p.Sha256, base+extension, program)
		}
	}
	for _, platform := range platforms {
		if !offered[platform] {
			t.Errorf("%s is released and not offered", platform)
		}
		delete(offered, platform)
	}
	if len(offered) > 0 {
		t.Errorf("offered and not released: %v", offered)
	}
}
