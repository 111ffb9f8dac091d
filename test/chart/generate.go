// SPDX-FileCopyrightText: The Skyhook authors
// SPDX-License-Identifier: Apache-2.0

// Command chart writes config/, for those who install with kubectl instead of Helm: what the chart makes of its default
// values, and samples. Nothing there is written by hand. It copies the values of the chart to where its templates can read them.
package main

import (
	"bytes"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/yaml"

	"github.com/skyhook-k8s/skyhook/test/chart/render"
)

//go:generate go run .

const namespace = "skyhook"

// samples are the examples that kubectl apply -k config/samples brings.
var samples = []string{"canary.yaml", "nodeop.yaml", "simple.yaml"}

const header = "# Generated from the chart by `make generate`. Do not edit.\n"

func main() {
	if err := write(); err != nil {
		fmt.Fprintf(os.Stderr, "chart: %v\n", err)
		os.Exit(1)
	}
}

// write brings config/ up to date.
func write() error {
	root, err := render.Root()
	if err != nil {
		return err
	}
	files, err := config(root)
	if err != nil {
		return err
	}
	text, err := defaults(root)
	if err != nil {
		return err
	}
	if err := os.WriteFile(filepath.Join(root, defaultsFile), text, 0o644); err != nil {
		return fmt.Errorf("writing %s: %w", defaultsFile, err)
	}
	dir := filepath.Join(root, "config")
	if err := os.RemoveAll(dir); err != nil {
		return fmt.Errorf("clearing %s: %w", dir, err)
	}
	for _, name := range slices.Sorted(maps.Keys(files)) {
		file := filepath.Join(dir, name)
		if err := os.MkdirAll(filepath.Dir(file), 0o755); err != nil {
			return fmt.Errorf("writing %s: %w", file, err)
		}
		if err := os.WriteFile(file, files[name], 0o644); err != nil {
			return fmt.Errorf("writing %s: %w", file, err)
		}
	}
	return nil
}

// defaultsFile has the values of the chart once more: templates cannot read values.yaml, and compare values with their defaults.
const defaultsFile = "chart/files/defaults.yaml"

func defaults(root string) ([]byte, error) {
	text, err := os.ReadFile(filepath.Join(root, "chart", "values.yaml"))
	if err != nil {
		return nil, fmt.Errorf("reading the values: %w", err)
	}
	var values map[string]any
	if err := yaml.Unmarshal(text, &values); err != nil {
		return nil, fmt.Errorf("reading the values: %w", err)
	}
	out, err := yaml.Marshal(values)
	if err != nil {
		return nil, fmt.Errorf("writing the values: %w", err)
	}
	return append([]byte("# Generated from values.yaml by `make generate`. Do not edit.\n"), out...), nil
}

// config is what belongs into config/, by file.
func config(root string) (map[string][]byte, error) {
	install, err := manifests()
	if err != nil {
		return nil, err
	}
	files := map[string][]byte{
		"default/install.yaml":       install,
		"default/kustomization.yaml": kustomization("install.yaml"),
		"samples/kustomization.yaml": kustomization(samples...),
	}
	for _, name := range samples {
		text, err := os.ReadFile(filepath.Join(root, "examples", name))
		if err != nil {
			return nil, fmt.Errorf("reading a sample: %w", err)
		}
		files["samples/"+name] = append([]byte("# Generated from examples/"+name+" by `make generate`. Do not edit.\n"), text...)
	}
	return files, nil
}

func kustomization(resources ...string) []byte {
	return []byte(header + "apiVersion: kustomize.config.k8s.io/v1beta1\nkind: Kustomization\nresources:\n  - " + strings.Join(resources, "\n  - ") + "\n")
}

// manifests is everything that an installation without Helm consists of.
func manifests() ([]byte, error) {
	// Nothing precedes the removal with kubectl: it is refused while something needs the operator, and would delete policies all the same.
	result, err := render.Chart(render.Options{Release: "skyhook-operator", Namespace: namespace, Values: "{cleanup: {guardRemoval: true}, admissionWarnings: {create: false}, operatorPods: {restrict: false}}"})
	if err != nil {
		return nil, err
	}
	// Pods of packages are privileged; whoever enforces Pod Security Standards has to let them be so here.
	objects := []*unstructured.Unstructured{{Object: map[string]any{
		"apiVersion": "v1", "kind": "Namespace", "metadata": map[string]any{
			"name": namespace, "labels": map[string]any{"pod-security.kubernetes.io/enforce": "privileged", "app.kubernetes.io/part-of": "skyhook-operator"},
		},
	}}}
	objects = append(objects, result.Objects...)
	slices.SortStableFunc(objects, func(a, b *unstructured.Unstructured) int { return rank(a) - rank(b) })
	var out bytes.Buffer
	out.WriteString(header)
	for _, o := range objects {
		plain(o)
		text, err := yaml.Marshal(o.Object)
		if err != nil {
			return nil, fmt.Errorf("writing %s %s: %w", o.GetKind(), o.GetName(), err)
		}
		out.WriteString("---\n")
		out.Write(text)
	}
	return out.Bytes(), nil
}

// rank orders what kubectl creates, and deletes, from first to last: kinds and namespace before what is in them, and
// the rights of the operator at the end, so that they go last.
func rank(o *unstructured.Unstructured) int {
	order := []string{"CustomResourceDefinition", "Namespace", "", "ClusterRole", "ClusterRoleBinding"}
	if i := slices.Index(order, o.GetKind()); i >= 0 {
		return i
	}
	return slices.Index(order, "")
}

// plain takes away what only Helm reads.
func plain(o *unstructured.Unstructured) {
	for _, path := range [][]string{
		{"metadata", "labels", "app.kubernetes.io/managed-by"}, {"metadata", "labels", "helm.sh/chart"},
		{"metadata", "annotations", "helm.sh/resource-policy"},
		{"spec", "template", "metadata", "labels", "app.kubernetes.io/managed-by"}, {"spec", "template", "metadata", "labels", "helm.sh/chart"},
	} {
		unstructured.RemoveNestedField(o.Object, path...)
	}
}
