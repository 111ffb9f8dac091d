// SPDX-FileCopyrightText: The Skyhook authors
// SPDX-License-Identifier: Apache-2.0

package render

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"helm.sh/helm/v4/pkg/chart/loader"
	chartv2 "helm.sh/helm/v4/pkg/chart/v2"
	crdv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"sigs.k8s.io/yaml"

	"github.com/skyhook-k8s/skyhook/internal/cli/manifest"
)

// listing is what Artifact Hub shows of a chart: https://artifacthub.io/docs/topics/annotations/helm/
type listing struct {
	CRDs []struct {
		Kind        string `json:"kind"`
		Version     string `json:"version"`
		Name        string `json:"name"`
		DisplayName string `json:"displayName"`
		Description string `json:"description"`
	}
	Images []struct {
		Name      string   `json:"name"`
		Image     string   `json:"image"`
		Platforms []string `json:"platforms"`
	}
	Links    []hubLink
	Examples []map[string]any
}

type hubLink struct {
	Name string `json:"name"`
	URL  string `json:"url"`
}

func readListing(t *testing.T, about *chartv2.Metadata) (l listing) {
	t.Helper()
	for key, into := range map[string]any{"crds": &l.CRDs, "images": &l.Images, "links": &l.Links, "crdsExamples": &l.Examples} {
		if err := yaml.UnmarshalStrict([]byte(about.Annotations["artifacthub.io/"+key]), into); err != nil {
			t.Errorf("artifacthub.io/%s: %v", key, err)
		}
	}
	return l
}

// TestListing: what Artifact Hub shows is what the chart contains.
func TestListing(t *testing.T) {
	root, err := Root()
	if err != nil {
		t.Fatal(err)
	}
	loaded, err := loader.Load(filepath.Join(root, "chart"))
	if err != nil {
		t.Fatal(err)
	}
	about := loaded.(*chartv2.Chart).Metadata
	l := readListing(t, about)
	rendered := renderedText(t, renderChart(t, ""))
	for _, image := range l.Images {
		if !strings.Contains(rendered, `"`+image.Image+`"`) || !strings.HasSuffix(image.Image, ":"+about.AppVersion) {
			t.Errorf("the chart does not have the image %s", image.Image)
		}
	}
	var listed, contained []string
	for _, crd := range l.CRDs {
		listed = append(listed, fmt.Sprintf("%s %s %s", crd.Name, crd.Kind, crd.Version))
		if crd.DisplayName == "" || crd.Description == "" {
			t.Errorf("%s has no name or description", crd.Kind)
		}
	}
	for _, o := range renderChart(t, "").Objects {
		if o.GetKind() != "CustomResourceDefinition" {
			continue
		}
		var crd crdv1.CustomResourceDefinition
		text, err := yaml.Marshal(o.Object)
		if err == nil {
			err = yaml.Unmarshal(text, &crd)
		}
		if err != nil {
			t.Fatal(err)
		}
		contained = append(contained, fmt.Sprintf("%s %s %s", crd.Name, crd.Spec.Names.Kind, crd.Spec.Versions[0].Name))
	}
	slices.Sort(listed)
	slices.Sort(contained)
	if !slices.Equal(listed, contained) || len(l.Images) != 2 || len(l.Links) == 0 {
		t.Errorf("the chart has the CRDs\n%q\nand lists\n%q, %d images and %d links", contained, listed, len(l.Images), len(l.Links))
	}
	if key := about.Annotations["artifacthub.io/signKey"]; key != "" {
		t.Errorf("the chart names the PGP key %q, and has no provenance file: cosign signs it without a key", key)
	}
	hasSignatures := slices.ContainsFunc(l.Links, func(link hubLink) bool {
		return strings.HasSuffix(link.URL, "/docs/release-process.md#verify-a-release")
	})
	if !hasSignatures {
		t.Errorf("no link of %+v says how signatures are verified", l.Links)
	}
	checkExamples(t, l.Examples)
	_, icon, _ := strings.Cut(about.Icon, "/skyhook-k8s/skyhook/main/")
	if _, err := os.Stat(filepath.Join(root, icon)); err != nil || icon == "" {
		t.Errorf("the icon %s is no file of the repository: %v", about.Icon, err)
	}
	if len(about.Maintainers) == 0 {
		t.Error("the chart names no maintainer")
	}
}

// checkExamples validates examples as the API server does.
func checkExamples(t *testing.T, examples []map[string]any) {
	t.Helper()
	validator, err := manifest.Load()
	if err != nil {
		t.Fatal(err)
	}
	for _, example := range examples {
		text, err := yaml.Marshal(example)
		if err != nil {
			t.Fatal(err)
		}
		objects, err := validator.Read("crdsExamples", bytes.NewReader(text))
		if err != nil || len(objects) != 1 {
			t.Fatalf("%d objects, %v, in\n%s", len(objects), err, text)
		}
		if o := objects[0]; !o.IsKnown || len(o.UnknownFields)+len(o.Problems) > 0 {
			t.Errorf("%s: %v %v", o.Name(), o.UnknownFields, o.Problems)
		}
	}
}

// TestReadme: the chart's README, which make generate writes, describes every value.
func TestReadme(t *testing.T) {
	root, err := Root()
	if err != nil {
		t.Fatal(err)
	}
	page, err := os.ReadFile(filepath.Join(root, "chart", "README.md"))
	if err != nil {
		t.Fatal(err)
	}
	described := map[string]bool{}
	for line := range strings.Lines(string(page)) {
		if cells := strings.Split(line, " | "); len(cells) == 4 && strings.TrimRight(cells[3], " |\n") != "" {
			described[strings.TrimPrefix(cells[0], "| ")] = true
		}
	}
	var values map[string]any
	if err := yaml.Unmarshal(valuesFile(t), &values); err != nil {
		t.Fatal(err)
	}
	for _, leaf := range leafPaths("", values) {
		isDescribed := false
		for key := range described {
			isDescribed = isDescribed || leaf == key || strings.HasPrefix(leaf, key+".")
		}
		if !isDescribed {
			t.Errorf("chart/README.md does not describe %s: write a comment that begins with # -- above it, and run make generate", leaf)
		}
	}
}
