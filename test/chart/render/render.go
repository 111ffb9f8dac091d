// SPDX-FileCopyrightText: The Skyhook authors
// SPDX-License-Identifier: Apache-2.0

// Package render renders the chart with Helm's own library, without a cluster.
package render

import (
	"bytes"
	"cmp"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"path/filepath"
	"slices"

	"helm.sh/helm/v4/pkg/action"
	"helm.sh/helm/v4/pkg/chart/common"
	"helm.sh/helm/v4/pkg/chart/loader"
	v1 "helm.sh/helm/v4/pkg/release/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/util/yaml"
	"sigs.k8s.io/controller-runtime/pkg/client"
	sigsyaml "sigs.k8s.io/yaml"
)

// Options say what to render.
type Options struct {
	Values     string // YAML
	Release    string // skyhook when empty
	Namespace  string // skyhook when empty
	Kubernetes string // version of the cluster; a recent one when empty
}

// Result is what the chart makes of its values.
type Result struct {
	Objects []*unstructured.Unstructured
	Hooks   []*unstructured.Unstructured
	Notes   string
}

// Root finds the repository, upwards from the working directory.
func Root() (string, error) {
	dir, err := os.Getwd()
	if err != nil {
		return "", fmt.Errorf("finding the chart: %w", err)
	}
	for ; ; dir = filepath.Dir(dir) {
		if _, err := os.Stat(filepath.Join(dir, "chart", "Chart.yaml")); err == nil {
			return dir, nil
		}
		if dir == filepath.Dir(dir) {
			return "", errors.New("finding the chart: there is no chart/Chart.yaml here or in a directory above")
		}
	}
}

// Chart renders the chart as helm template does.
func Chart(o Options) (*Result, error) {
	root, err := Root()
	if err != nil {
		return nil, err
	}
	chart, err := loader.Load(filepath.Join(root, "chart"))
	if err != nil {
		return nil, fmt.Errorf("loading the chart: %w", err)
	}
	var values map[string]any
	if err := sigsyaml.Unmarshal([]byte(o.Values), &values); err != nil {
		return nil, fmt.Errorf("reading values: %w", err)
	}
	install := action.NewInstall(action.NewConfiguration(action.ConfigurationSetLogger(slog.DiscardHandler)))
	install.DryRunStrategy = action.DryRunClient
	install.ReleaseName, install.Namespace = cmp.Or(o.Release, "skyhook"), cmp.Or(o.Namespace, "skyhook")
	if install.KubeVersion, err = common.ParseKubeVersion(cmp.Or(o.Kubernetes, "v1.36.0")); err != nil {
		return nil, fmt.Errorf("reading the version of Kubernetes: %w", err)
	}
	out, err := install.Run(chart, values)
	if err != nil {
		return nil, err
	}
	release, ok := out.(*v1.Release)
	if !ok {
		return nil, fmt.Errorf("rendering gave a %T instead of a release", out)
	}
	r := &Result{Notes: release.Info.Notes}
	if r.Objects, err = Parse([]byte(release.Manifest)); err != nil {
		return nil, err
	}
	for _, h := range release.Hooks {
		objects, err := Parse([]byte(h.Manifest))
		if err != nil {
			return nil, err
		}
		r.Hooks = append(r.Hooks, objects...)
	}
	return r, nil
}

// Parse reads a stream of manifests.
func Parse(text []byte) ([]*unstructured.Unstructured, error) {
	var out []*unstructured.Unstructured
	d := yaml.NewYAMLOrJSONDecoder(bytes.NewReader(text), 4096)
	for {
		u := &unstructured.Unstructured{}
		err := d.Decode(&u.Object)
		if errors.Is(err, io.EOF) {
			return out, nil
		}
		if err != nil {
			return nil, fmt.Errorf("reading manifests: %w", err)
		}
		if len(u.Object) > 0 {
			out = append(out, u)
		}
	}
}

// Find is the object of this kind and name; nil when there is none.
func (r *Result) Find(kind, name string) *unstructured.Unstructured {
	all := slices.Concat(r.Objects, r.Hooks)
	i := slices.IndexFunc(all, func(u *unstructured.Unstructured) bool { return u.GetKind() == kind && u.GetName() == name })
	if i < 0 {
		return nil
	}
	return all[i]
}

// Into reads an object strictly into its type, so that a field the type does not know is an error.
func Into(u *unstructured.Unstructured, into client.Object) error {
	raw, err := sigsyaml.Marshal(u.Object)
	if err != nil {
		return fmt.Errorf("writing %s %s: %w", u.GetKind(), u.GetName(), err)
	}
	if err := sigsyaml.UnmarshalStrict(raw, into); err != nil {
		return fmt.Errorf("reading %s %s: %w", u.GetKind(), u.GetName(), err)
	}
	return nil
}
