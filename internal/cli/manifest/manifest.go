// SPDX-FileCopyrightText: The Skyhook authors
// SPDX-License-Identifier: Apache-2.0

// Package manifest reads objects from files and validates them as the API server does: it applies the defaults, the schema
// and the CEL rules of the CRDs, and finds unknown fields. It needs no cluster.
package manifest

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"reflect"
	"slices"
	"strings"
	"sync"

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

// Cost limits of CEL rules, as in the API server.
const (
	costOfRule   = 1000000
	costOfObject = 10000000
)

// Object is one object of a file.
type Object struct {
	*unstructured.Unstructured
	File          string
	IsKnown       bool     // it is one of our kinds
	UnknownFields []string // fields that the API server drops
	Problems      []string // why the API server refuses it

	structural *schema.Structural
}

// Name returns kind and name, such as Skyhook demo.
func (o *Object) Name() string {
	name := cmp.Or(o.GetName(), o.GetGenerateName()+"…")
	if o.GetNamespace() != "" {
		name = o.GetNamespace() + "/" + name
	}
	return o.GetKind() + " " + name
}

// Validator validates objects of our kinds.
type Validator struct {
	kinds map[gvks.GroupVersionKind]*crdVersion
}

type crdVersion struct {
	structural *schema.Structural
	schema     validation.SchemaValidator
	namespaced bool

	compileRules sync.Once // on first use, because that is slow
	cel          *cel.Validator
}

// Load reads the CRDs.
func Load() (*Validator, error) {
	r := &Validator{kinds: map[gvks.GroupVersionKind]*crdVersion{}}
	files, err := chart.CRDs.ReadDir("files/crds")
	if err != nil {
		return nil, fmt.Errorf("reading the CRDs: %w", err)
	}
	for _, f := range files {
		text, err := chart.CRDs.ReadFile("files/crds/" + f.Name())
		if err != nil {
			return nil, fmt.Errorf("reading the CRDs: %w", err)
		}
		if err := r.addCRD(text); err != nil {
			return nil, fmt.Errorf("reading %s: %w", f.Name(), err)
		}
	}
	return r, nil
}

func (r *Validator) addCRD(text []byte) error {
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
		r.kinds[gvk] = &crdVersion{structural: structural, schema: validator, namespaced: d.Spec.Scope == crdv1.NamespaceScoped}
	}
	return nil
}

// Read reads and validates the objects of a file, including those in lists.
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

// validate sets defaults, and finds problems of an object of a file.
func (r *Validator) validate(file string, u *unstructured.Unstructured) *Object {
	o := r.Validate(u, nil)
	o.File = file
	return o
}

// Validate sets defaults, drops unknown fields and finds problems, as the API server does with an object of our kinds that
// is created; with old, that is changed.
func (r *Validator) Validate(u, old *unstructured.Unstructured) *Object {
	o := &Object{Unstructured: u}
	k := r.kinds[u.GroupVersionKind()]
	if k == nil {
		return o
	}
	o.IsKnown, o.structural = true, k.structural
	if k.namespaced && u.GetNamespace() == "" {
		u.SetNamespace("default")
	}
	if !k.namespaced {
		u.SetNamespace("")
	}
	o.UnknownFields = pruning.PruneWithOptions(u.Object, k.structural, true, schema.UnknownFieldPathOptions{TrackUnknownFieldPaths: true})
	slices.Sort(o.UnknownFields)
	defaulting.Default(u.Object, k.structural)
	var errs field.ErrorList
	if u.GetName() == "" && u.GetGenerateName() != "" {
		u.SetName(u.GetGenerateName() + "xxxxx") // as the API server does, with other letters
		defer u.SetName("")
	}
	for _, msg := range apimachinery.NameIsDNSSubdomain(u.GetName(), false) {
		if u.GetName() == "" {
			msg = "it is required"
		}
		errs = append(errs, field.Invalid(field.NewPath("metadata", "name"), u.GetName(), msg))
	}
	errs = append(errs, validation.ValidateCustomResource(nil, u.Object, k.schema)...)
	errs = append(errs, listtype.ValidateListSetsAndMaps(nil, k.structural, u.Object)...)
	isSameSpec := old != nil && reflect.DeepEqual(old.Object["spec"], u.Object["spec"])
	if len(errs) == 0 && !isSameSpec { // CEL rules rely on the schema, and no status has any
		errs = append(errs, k.applyRules(u, old)...)
	}
	for _, e := range errs {
		if text := describeError(e); !slices.Contains(o.Problems, text) {
			o.Problems = append(o.Problems, text)
		}
	}
	slices.Sort(o.Problems)
	return o
}

// applyRules applies the CEL rules.
func (k *crdVersion) applyRules(u, old *unstructured.Unstructured) field.ErrorList {
	k.compileRules.Do(func() { k.cel = cel.NewValidator(k.structural, true, costOfRule) })
	var before any
	if old != nil {
		before = old.Object
	}
	errs, _ := k.cel.Validate(context.Background(), nil, k.structural, u.Object, before, costOfObject)
	return errs
}

// describeError formats an error without the value, which may be long, and with the path once.
func describeError(e *field.Error) string {
	detail := strings.TrimSpace(strings.TrimPrefix(e.Detail, e.Field+" in body "))
	if strings.HasSuffix(detail, `of type string: "boolean"`) {
		detail += ". YAML reads y, yes, on, n, no and off as booleans: quote it"
	}
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
