// SPDX-FileCopyrightText: The Skyhook authors
// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"context"
	"fmt"
	"io"
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

	"github.com/skyhook-k8s/skyhook/internal/cli/dump"
	"github.com/skyhook-k8s/skyhook/internal/cli/manifest"
)

// readFiles reads objects from files, from all files of folders, and from standard input for -.
func (a *factory) readFiles(files []string) ([]*manifest.Object, error) {
	all, err := manifest.Load()
	if err != nil {
		return nil, err
	}
	var out []*manifest.Object
	for _, name := range files {
		names, err := expandFolder(name)
		if err != nil {
			return nil, err
		}
		for _, file := range names {
			found, err := a.readFile(all, file)
			if err != nil {
				return nil, err
			}
			out = append(out, found...)
		}
	}
	return out, nil
}

func (a *factory) readFile(all *manifest.Validator, file string) ([]*manifest.Object, error) {
	if file == "-" {
		return all.Read("standard input", io.NopCloser(a.In))
	}
	in, err := os.Open(filepath.Clean(file))
	if err != nil {
		return nil, fmt.Errorf("reading files: %w", err)
	}
	defer in.Close()
	return all.Read(file, in)
}

// expandFolder gives the files of a folder, or the file itself.
func expandFolder(name string) ([]string, error) {
	if name == "-" {
		return []string{name}, nil
	}
	is, err := os.Stat(name)
	if err != nil {
		return nil, fmt.Errorf("reading files: %w", err)
	}
	if !is.IsDir() {
		return []string{name}, nil
	}
	entries, err := os.ReadDir(name)
	if err != nil {
		return nil, fmt.Errorf("reading files: %w", err)
	}
	var out []string
	for _, e := range entries {
		if slices.Contains([]string{".yaml", ".yml", ".json"}, filepath.Ext(e.Name())) && !e.IsDir() {
			out = append(out, filepath.Join(name, e.Name()))
		}
	}
	return out, nil
}

// startReading reads files in the background. What it gives waits for the end of that.
func (a *factory) startReading(files []string) func() ([]*manifest.Object, error) {
	var objects []*manifest.Object
	var err error
	var reading sync.WaitGroup
	if len(files) > 0 {
		reading.Go(func() { objects, err = a.readFiles(files) })
	}
	return func() ([]*manifest.Object, error) {
		reading.Wait()
		return objects, err
	}
}

// mergeManifests puts the objects of files over what a picture shows, as if they had been applied.
func (a *factory) mergeManifests(ctx context.Context, p *dump.Cluster, files func() ([]*manifest.Object, error)) error {
	objects, err := files()
	if err != nil {
		return err
	}
	for _, o := range objects {
		if !o.Known {
			a.Warn("%s: %s is of another kind and is left out", o.File, o.Name())
			continue
		}
		for _, field := range o.Unknown {
			a.Warn("%s: %s: %s is unknown and would be dropped", o.File, o.Name(), field)
		}
		if len(o.Wrong) > 0 {
			return fmt.Errorf("%s: %s would be refused: %s", o.File, o.Name(), strings.Join(o.Wrong, "; "))
		}
		if err := mergeManifest(ctx, p, o.Unstructured); err != nil {
			return fmt.Errorf("%s: %s: %w", o.File, o.Name(), err)
		}
	}
	return nil
}

// mergeManifest applies one object: what is there keeps its identity, its status and what others wrote into its metadata.
func mergeManifest(ctx context.Context, p *dump.Cluster, u *unstructured.Unstructured) error {
	s, err := dump.Scheme()
	if err != nil {
		return err
	}
	fresh, err := s.New(u.GroupVersionKind())
	if err != nil {
		return err
	}
	was, ok := fresh.DeepCopyObject().(client.Object)
	into, ok2 := fresh.(client.Object)
	if !ok || !ok2 {
		return fmt.Errorf("%T cannot be laid over anything", fresh)
	}
	if err := p.Find(ctx, client.ObjectKeyFromObject(u), was); err != nil && !apierrors.IsNotFound(err) {
		return err
	}
	is := u.DeepCopy()
	delete(is.Object, "status")
	is.SetUID(types.UID("planned-" + strings.ToLower(u.GetKind()) + "-" + u.GetName()))
	is.SetGeneration(1)
	is.SetCreationTimestamp(metav1.NewTime(p.Taken))
	if err := convertThrough(is, into); err != nil { // as the API server would give it back
		return err
	}
	if was.GetUID() != "" {
		before, err := runtime.DefaultUnstructuredConverter.ToUnstructured(was)
		if err != nil {
			return err
		}
		keepServerFields(is, &unstructured.Unstructured{Object: before})
	}
	laid, err := s.New(u.GroupVersionKind())
	if err != nil {
		return err
	}
	if err := runtime.DefaultUnstructuredConverter.FromUnstructured(is.Object, laid); err != nil {
		return err
	}
	if o, ok := laid.(client.Object); ok {
		return p.Put(o)
	}
	return nil
}

// convertThrough takes an object through its type, which drops what is empty.
func convertThrough(u *unstructured.Unstructured, through client.Object) error {
	if err := runtime.DefaultUnstructuredConverter.FromUnstructured(u.Object, through); err != nil {
		return err
	}
	object, err := runtime.DefaultUnstructuredConverter.ToUnstructured(through)
	u.Object = object
	return err
}

// keepServerFields keeps of what is there what an apply does not change.
func keepServerFields(is, was *unstructured.Unstructured) {
	annotations, labels, spec := was.GetAnnotations(), was.GetLabels(), is.Object["spec"]
	for key, value := range is.GetAnnotations() {
		if annotations == nil {
			annotations = map[string]string{}
		}
		annotations[key] = value
	}
	for key, value := range is.GetLabels() {
		if labels == nil {
			labels = map[string]string{}
		}
		labels[key] = value
	}
	generation := was.GetGeneration()
	if !equality.Semantic.DeepEqual(was.Object["spec"], spec) {
		generation++
	}
	is.Object["metadata"] = was.Object["metadata"]
	is.SetAnnotations(annotations)
	is.SetLabels(labels)
	is.SetGeneration(generation)
	if status, ok := was.Object["status"]; ok {
		is.Object["status"] = status
	}
}
