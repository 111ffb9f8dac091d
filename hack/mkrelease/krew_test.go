// SPDX-FileCopyrightText: The Skyhook authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"fmt"
	"os"
	"strings"
	"testing"
	"text/template"

	"sigs.k8s.io/yaml"
)

// TestKrew fills in .krew.yaml as krew-release-bot does: the index gets every platform of a release, each with the
// archive that the release has for it and the program inside.
func TestKrew(t *testing.T) {
	const version = "v7.8.9"
	text, err := os.ReadFile("../../.krew.yaml")
	if err != nil {
		t.Fatal(err)
	}
	fill := template.FuncMap{"addURIAndSha": func(url, tag string) (string, error) {
		in, err := template.New("").Parse(url)
		if err != nil {
			return "", err
		}
		var out bytes.Buffer
		err = in.Execute(&out, map[string]string{"TagName": tag})
		return fmt.Sprintf("uri: %s\n    sha256: %s", out.String(), strings.Repeat("ab", 32)), err // the blanks are the bot's
	}}
	manifest, err := template.New("").Funcs(fill).Option("missingkey=error").Parse(string(text))
	if err != nil {
		t.Fatal(err)
	}
	var filled bytes.Buffer
	if err := manifest.Execute(&filled, map[string]string{"TagName": version}); err != nil {
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
	if err := yaml.UnmarshalStrict(filled.Bytes(), &plugin); err != nil {
		t.Fatalf("%v\n%s", err, filled.String())
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
		if name != base+extension || p.Bin != program || len(p.Sha256) != 64 || !strings.HasSuffix(at, "/releases/download/"+version) {
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
