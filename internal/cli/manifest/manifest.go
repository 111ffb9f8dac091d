// SPDX-FileCopyrightText: The Skyhook authors
// SPDX-License-Identifier: Apache-2.0

// Package manifest applies the CRDs to objects in files, as the API server does: unknown fields, defaults, the schema and the
// CEL rules. It needs no cluster.
package manifest

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"

	"k8s.io/apiextensions-apiserver/pkg/apis/apiextensions"
	crdv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"k8s.io/apiextensions-apiserver/pkg/apiserver/schema"
	"k8s.io/apiextensions-apiserver/pkg/apiserver/schema/cel"
	"k8s.io/apiextensions-apiserver/pkg/apiserver/schema/defaulting"
	"k8s.io/apiextensions-apiserver/pkg/apiserver/schema/listtype"
	"k8s.io/apiextensions-apiserver/pkg/apiserver/schema/pruning"
	"k8s.io/apiextensions-apiserver/pkg/apiserver/validation"
	apimachinery "k8s.io/apimachinery/pkg/api/validation"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	gvks "k8s.io/apimachinery/pkg/runtime/schema"
	utiljson "k8s.io/apimachinery/pkg/util/json"
	"k8s.io/apimachinery/pkg/util/validation/field"
	utilyaml "k8s.io/apimachinery/pkg/util/yaml"
	"sigs.k8s.io/yaml"

	"github.com/skyhook-k8s/skyhook/chart"
)

// What evaluating the CEL rules of one object may cost, as the API server has it.
const (
	costOfRule   = 1000000
	costOfObject = 10000000
)

// Object is one object of a file.
type Object struct {
	*unstructured.Unstructured
	File    string
	Known   bool     // one of our kinds
	Unknown []string // fields that no kind has: the API server drops them
	Wrong   []string // what the API server refuses, in sentences
}

// Name is how people call it: Skyhook demo.
func (o *Object) Name() string {
	if o.GetNamespace() != "" {
		return o.GetKind() + " " + o.GetNamespace() + "/" + o.GetName()
	}
	return o.GetKind() + " " + o.GetName()
}

// Validator are those of our kinds.
type Validator struct {
	kinds map[gvks.GroupVersionKind]*kind
}

type kind struct {
	structural *schema.Structural
	schema     validation.SchemaValidator
	cel        *cel.Validator // made when it is needed first: it costs time
	namespaced bool
}

// Load reads the rules.
func Load() (*Validator, error) {
	r := &Validator{kinds: map[gvks.GroupVersionKind]*kind{}}
	files, err := chart.CRDs.ReadDir("files/crds")
	if err != nil {
		return nil, fmt.Errorf("reading the CRDs: %w", err)
	}
	for _, f := range files {
		text, err := chart.CRDs.ReadFile("files/crds/" + f.Name())
		if err != nil {
			return nil, fmt.Errorf("reading the CRDs: %w", err)
		}
		if err := r.add(text); err != nil {
			return nil, fmt.Errorf("reading %s: %w", f.Name(), err)
		}
	}
	return r, nil
}

func (r *Validator) add(text []byte) error {
	d := &crdv1.CustomResourceDefinition{}
	if err := yaml.Unmarshal(text, d); err != nil {
		return err
	}
	for _, v := range d.Spec.Versions {
		props := &apiextensions.JSONSchemaProps{}
		if err := crdv1.Convert_v1_JSONSchemaProps_To_apiextensions_JSONSchemaProps(v.Schema.OpenAPIV3Schema, props, nil); err != nil {
			return err
		}
		structural, err := schema.NewStructural(props)
		if err != nil {
			return err
		}
		validator, _, err := validation.NewSchemaValidator(props)
		if err != nil {
			return err
		}
		gvk := gvks.GroupVersionKind{Group: d.Spec.Group, Version: v.Name, Kind: d.Spec.Names.Kind}
		r.kinds[gvk] = &kind{structural: structural, schema: validator, namespaced: d.Spec.Scope == crdv1.NamespaceScoped}
	}
	return nil
}

// Read reads the objects of a file. Lists are taken apart.
func (r *Validator) Read(file string, in io.Reader) ([]*Object, error) {
	text, err := io.ReadAll(in)
	if err != nil {
		return nil, fmt.Errorf("reading %s: %w", file, err)
	}
	var out []*Object
	docs := utilyaml.NewYAMLOrJSONDecoder(bytes.NewReader(text), 4096)
	for n := 1; ; n++ {
		u := &unstructured.Unstructured{}
		var raw runtime.RawExtension
		err := docs.Decode(&raw)
		if err == nil && len(raw.Raw) > 0 && string(raw.Raw) != "null" {
			err = utiljson.Unmarshal(raw.Raw, &u.Object)
		}
		switch {
		case errors.Is(err, io.EOF):
			return out, nil
		case err != nil:
			return nil, fmt.Errorf("reading %s, document %d: %w", file, n, err)
		case u.Object == nil:
			continue
		case u.GetKind() == "" || u.GetAPIVersion() == "":
			return nil, fmt.Errorf("reading %s, document %d: it has no apiVersion or no kind", file, n)
		case !u.IsList():
			out = append(out, r.validate(file, u))
			continue
		}
		err = u.EachListItem(func(item runtime.Object) error {
			if i, ok := item.(*unstructured.Unstructured); ok {
				out = append(out, r.validate(file, i))
			}
			return nil
		})
		if err != nil {
			return nil, fmt.Errorf("reading %s, document %d: %w", file, n, err)
		}
	}
}

// validate fills in defaults, and says what is wrong.
func (r *Validator) validate(file string, u *unstructured.Unstructured) *Object {
	o := &Object{Unstructured: u, File: file}
	k := r.kinds[u.GroupVersionKind()]
	if k == nil {
		return o
	}
	o.Known = true
	if k.namespaced && u.GetNamespace() == "" {
		u.SetNamespace("default")
	}
	if !k.namespaced {
		u.SetNamespace("")
	}
	o.Unknown = pruning.PruneWithOptions(u.Object, k.structural, true, schema.UnknownFieldPathOptions{TrackUnknownFieldPaths: true})
	slices.Sort(o.Unknown)
	defaulting.Default(u.Object, k.structural)
	var errs field.ErrorList
	for _, msg := range apimachinery.NameIsDNSSubdomain(u.GetName(), false) {
		if u.GetName() == "" {
			msg = "it is required"
		}
		errs = append(errs, field.Invalid(field.NewPath("metadata", "name"), u.GetName(), msg))
	}
	errs = append(errs, validation.ValidateCustomResource(nil, u.Object, k.schema)...)
	errs = append(errs, listtype.ValidateListSetsAndMaps(nil, k.structural, u.Object)...)
	if len(errs) == 0 { // as the API server: rules may count on the schema
		if k.cel == nil {
			k.cel = cel.NewValidator(k.structural, true, costOfRule)
		}
		found, _ := k.cel.Validate(context.Background(), nil, k.structural, u.Object, nil, costOfObject)
		errs = append(errs, found...)
	}
	for _, e := range errs {
		if text := describeError(e); !slices.Contains(o.Wrong, text) {
			o.Wrong = append(o.Wrong, text)
		}
	}
	slices.Sort(o.Wrong)
	return o
}

// describeError is an error without the value, which may be long.
func describeError(e *field.Error) string {
	detail := strings.TrimSpace(e.Detail)
	switch e.Type {
	case field.ErrorTypeRequired:
		detail = strings.TrimSpace("it is required " + detail)
	case field.ErrorTypeNotSupported, field.ErrorTypeTooLong, field.ErrorTypeTooMany, field.ErrorTypeDuplicate:
		detail = strings.TrimSpace(strings.TrimPrefix(e.ErrorBody(), ": "))
	}
	path := strings.TrimPrefix(strings.TrimPrefix(e.Field, "<nil>"), ".")
	if path == "" {
		return detail
	}
	return path + ": " + detail
}
