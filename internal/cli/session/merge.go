// SPDX-FileCopyrightText: The Skyhook authors
// SPDX-License-Identifier: Apache-2.0

package session

import (
	"context"
	"fmt"
	"io"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"

	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/skyhook-k8s/skyhook/api/skyhook/v1alpha1"
	"github.com/skyhook-k8s/skyhook/internal/cli/manifest"
	"github.com/skyhook-k8s/skyhook/internal/dump"
	"github.com/skyhook-k8s/skyhook/internal/policy"
)

// ReadManifests reads objects from files, from all files of folders, and from standard input for -.
func ReadManifests(f *Factory, names []string) ([]*manifest.Object, error) {
	validator, err := manifest.Load()
	if err != nil {
		return nil, err
	}
	var objects []*manifest.Object
	for _, name := range names {
		files, err := expandFolder(name)
		if err != nil {
			return nil, err
		}
		for _, file := range files {
			found, err := readManifest(f, validator, file)
			if err != nil {
				return nil, err
			}
			objects = append(objects, found...)
		}
	}
	return objects, nil
}

func readManifest(f *Factory, validator *manifest.Validator, file string) ([]*manifest.Object, error) {
	if file == "-" {
		return validator.Read("standard input", io.NopCloser(f.In))
	}
	in, err := os.Open(filepath.Clean(file))
	if err != nil {
		return nil, fmt.Errorf("reading files: %w", err)
	}
	defer in.Close()
	return validator.Read(file, in)
}

// expandFolder returns the manifests of a folder, or the name itself for a file.
func expandFolder(name string) ([]string, error) {
	if name == "-" {
		return []string{name}, nil
	}
	info, err := os.Stat(name)
	if err != nil {
		return nil, fmt.Errorf("reading files: %w", err)
	}
	if !info.IsDir() {
		return []string{name}, nil
	}
	entries, err := os.ReadDir(name)
	if err != nil {
		return nil, fmt.Errorf("reading files: %w", err)
	}
	var files []string
	for _, e := range entries {
		if slices.Contains([]string{".yaml", ".yml", ".json"}, filepath.Ext(e.Name())) && !e.IsDir() {
			files = append(files, filepath.Join(name, e.Name()))
		}
	}
	return files, nil
}

// startReading reads files in the background. The returned function waits for the result.
func startReading(f *Factory, files []string) func() ([]*manifest.Object, error) {
	var objects []*manifest.Object
	var err error
	var group sync.WaitGroup
	if len(files) > 0 {
		group.Go(func() { objects, err = ReadManifests(f, files) })
	}
	return func() ([]*manifest.Object, error) {
		group.Wait()
		return objects, err
	}
}

// MergeManifests merges objects of files into a cluster, as if they had been applied.
func MergeManifests(ctx context.Context, f *Factory, c *dump.Cluster, read func() ([]*manifest.Object, error)) error {
	objects, err := read()
	if err != nil {
		return err
	}
	for _, o := range objects {
		if !o.IsKnown {
			f.Warn("%s: %s is of another kind and is left out", o.File, o.Name())
			continue
		}
		for _, field := range o.UnknownFields {
			f.Warn("%s: %s: %s is unknown and would be dropped", o.File, o.Name(), field)
		}
		if len(o.Problems) > 0 {
			return fmt.Errorf("%s: %s would be refused: %s", o.File, o.Name(), strings.Join(o.Problems, "; "))
		}
		merged, err := mergeManifest(ctx, c, o.Unstructured)
		if err != nil {
			return fmt.Errorf("%s: %s: %w", o.File, o.Name(), err)
		}
		if p, ok := merged.(*v1alpha1.DeploymentPolicy); ok {
			if problems := policy.FindProblems(p, c.Taken); len(problems) > 0 {
				return fmt.Errorf("%s: %s", o.File, strings.Join(problems, "; "))
			}
		}
	}
	return nil
}

// mergeManifest applies one object. An existing object keeps its identity, its status and the metadata of other writers.
func mergeManifest(ctx context.Context, c *dump.Cluster, u *unstructured.Unstructured) (client.Object, error) {
	existing, err := newObject(u)
	if err != nil {
		return nil, err
	}
	if err := c.Find(ctx, client.ObjectKeyFromObject(u), existing); err != nil && !apierrors.IsNotFound(err) {
		return nil, err
	}
	applied := u.DeepCopy()
	delete(applied.Object, "status")
	applied.SetUID(types.UID("planned-" + strings.ToLower(u.GetKind()) + "-" + u.GetName()))
	applied.SetGeneration(1)
	applied.SetCreationTimestamp(metav1.NewTime(c.Taken))
	if err := dropEmptyFields(applied); err != nil {
		return nil, err
	}
	if existing.GetUID() != "" {
		raw, err := runtime.DefaultUnstructuredConverter.ToUnstructured(existing)
		if err != nil {
			return nil, err
		}
		keepServerFields(applied, &unstructured.Unstructured{Object: raw})
	}
	merged, err := newObject(u)
	if err != nil {
		return nil, err
	}
	if err := runtime.DefaultUnstructuredConverter.FromUnstructured(applied.Object, merged); err != nil {
		return nil, err
	}
	return merged, c.Put(merged)
}

// newObject returns an empty object of the same type.
func newObject(u *unstructured.Unstructured) (client.Object, error) {
	scheme, err := dump.Scheme()
	if err != nil {
		return nil, err
	}
	o, err := scheme.New(u.GroupVersionKind())
	if err != nil {
		return nil, err
	}
	object, ok := o.(client.Object)
	if !ok {
		return nil, fmt.Errorf("%T is no object", o)
	}
	return object, nil
}

// dropEmptyFields converts an object to its type and back, so that it equals what the API server returns.
func dropEmptyFields(u *unstructured.Unstructured) error {
	typed, err := newObject(u)
	if err != nil {
		return err
	}
	if err := runtime.DefaultUnstructuredConverter.FromUnstructured(u.Object, typed); err != nil {
		return err
	}
	u.Object, err = runtime.DefaultUnstructuredConverter.ToUnstructured(typed)
	return err
}

// keepServerFields copies the fields that an apply does not change.
func keepServerFields(applied, existing *unstructured.Unstructured) {
	annotations := mergeMaps(existing.GetAnnotations(), applied.GetAnnotations())
	labels := mergeMaps(existing.GetLabels(), applied.GetLabels())
	generation := existing.GetGeneration()
	if !equality.Semantic.DeepEqual(existing.Object["spec"], applied.Object["spec"]) {
		generation++
	}
	applied.Object["metadata"] = existing.Object["metadata"]
	applied.SetAnnotations(annotations)
	applied.SetLabels(labels)
	applied.SetGeneration(generation)
	if status, ok := existing.Object["status"]; ok {
		applied.Object["status"] = status
	}
}

func mergeMaps(base, changes map[string]string) map[string]string {
	if base == nil {
		return changes
	}
	maps.Copy(base, changes)
	return base
}
