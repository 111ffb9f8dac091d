// SPDX-FileCopyrightText: The Skyhook authors
// SPDX-License-Identifier: Apache-2.0

package world

import (
	"context"
	"fmt"
	"maps"
	"strings"

	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	apimeta "k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	utiljson "k8s.io/apimachinery/pkg/util/json"
	"k8s.io/apimachinery/pkg/util/strategicpatch"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/apiutil"
)

// Client is the operator's client. What the operator does not use is not there.
type Client struct {
	client.Client // nil
	server        *Server
}

// Client returns the client of the operator.
func (s *Server) Client() *Client { return &Client{server: s} }

// kindOf is the kind of an object or a list.
func (c *Client) kindOf(o runtime.Object) (Kind, error) {
	gvk, err := apiutil.GVKForObject(o, c.server.scheme)
	if err != nil {
		return Kind{}, err
	}
	gvk.Kind = strings.TrimSuffix(gvk.Kind, "List")
	return kindOf(gvk)
}

// encode returns the kind of an object, and its JSON form.
func (c *Client) encode(o client.Object) (Kind, content, error) {
	k, err := c.kindOf(o)
	if err != nil {
		return Kind{}, nil, err
	}
	raw, err := encode(o)
	return k, raw, err
}

// begin lets others act before a request, and perhaps refuse it.
func (s *Server) begin(r Request) error {
	if s.Intercept == nil {
		return nil
	}
	return s.Intercept(r)
}

func (s *Server) end(r Request, before, after content) {
	if s.OnWrite != nil {
		s.OnWrite(Write{Request: r, Before: before, After: after})
	}
}

// Get reads an object.
func (c *Client) Get(_ context.Context, key client.ObjectKey, o client.Object, _ ...client.GetOption) error {
	k, err := c.kindOf(o)
	if err != nil {
		return err
	}
	if err := c.server.begin(Request{Verb: "get", Kind: k, ObjectKey: key}); err != nil {
		return err
	}
	found, err := c.server.read(k, key)
	if err != nil {
		return err
	}
	return fill(o, found)
}

// List lists objects, all at once.
func (c *Client) List(_ context.Context, l client.ObjectList, options ...client.ListOption) error {
	k, err := c.kindOf(l)
	if err != nil {
		return err
	}
	if err := c.server.begin(Request{Verb: "list", Kind: k}); err != nil {
		return err
	}
	var o client.ListOptions
	o.ApplyOptions(options)
	if partial, ok := l.(*metav1.PartialObjectMetadataList); ok {
		for _, found := range c.server.list(k, &o) {
			m := metav1.PartialObjectMetadata{}
			if err := fill(&m, found); err != nil {
				return err
			}
			partial.Items = append(partial.Items, m)
		}
		return nil
	}
	if all, ok := l.(*unstructured.UnstructuredList); ok {
		for _, found := range c.server.list(k, &o) {
			all.Items = append(all.Items, unstructured.Unstructured{Object: runtime.DeepCopyJSON(found)})
		}
		return nil
	}
	var items []runtime.Object
	for _, found := range c.server.list(k, &o) {
		item, err := c.server.scheme.New(k.GroupVersionKind)
		if err != nil {
			return err
		}
		items = append(items, decode(found, item.(client.Object)))
	}
	return apimeta.SetList(l, items)
}

func (s *Server) list(k Kind, o *client.ListOptions) []content {
	var out []content
	for _, key := range s.keys(k) {
		c := s.objects[k.Kind][key]
		isElsewhere := o.Namespace != "" && key.Namespace != o.Namespace
		if !isElsewhere && matches(c, o.LabelSelector) && isOnNode(c, o) {
			out = append(out, c)
		}
	}
	return out
}

func matches(c content, s labels.Selector) bool {
	return s == nil || s.Matches(labels.Set(meta(c).GetLabels()))
}

func isOnNode(c content, o *client.ListOptions) bool {
	if o.FieldSelector == nil {
		return true
	}
	node, found := o.FieldSelector.RequiresExactMatch("spec.nodeName")
	return !found || nestedString(c, "spec", "nodeName") == node
}

// fill decodes into an object, which may be typed or metadata only.
func fill(o client.Object, c content) error {
	if u, ok := o.(*unstructured.Unstructured); ok {
		u.Object = runtime.DeepCopyJSON(c)
		return nil
	}
	if m, ok := o.(*metav1.PartialObjectMetadata); ok {
		c = content{"apiVersion": c["apiVersion"], "kind": c["kind"], "metadata": c["metadata"]}
		*m = metav1.PartialObjectMetadata{}
	}
	return runtime.DefaultUnstructuredConverter.FromUnstructured(runtime.DeepCopyJSON(c), o)
}

// Create creates an object.
func (c *Client) Create(_ context.Context, o client.Object, options ...client.CreateOption) error {
	k, raw, err := c.encode(o)
	if err != nil {
		return err
	}
	var given client.CreateOptions
	given.ApplyOptions(options)
	created, err := c.server.serveCreate(k, raw, len(given.DryRun) > 0)
	if err != nil {
		return err
	}
	return fill(o, created)
}

func (s *Server) serveCreate(k Kind, c content, isDryRun bool) (content, error) {
	r := Request{Verb: "create", Kind: k, ObjectKey: keyOf(c), DryRun: isDryRun}
	if err := s.begin(r); err != nil {
		return nil, err
	}
	created, err := s.prepare(k, c)
	if err != nil || isDryRun {
		return created, err
	}
	s.store(k, created)
	s.end(r, nil, created)
	return created, nil
}

// serveChange carries out an update or a patch of the operator.
func (s *Server) serveChange(r Request, edit func(content) error) (content, error) {
	if err := s.begin(r); err != nil {
		return nil, err
	}
	before, after, err := s.change(r.Kind, r.ObjectKey, r.Subresource, edit)
	if err != nil {
		return nil, err
	}
	s.end(r, before, after)
	return after, nil
}

// Update replaces an object.
func (c *Client) Update(_ context.Context, o client.Object, _ ...client.UpdateOption) error {
	k, raw, err := c.encode(o)
	if err != nil {
		return err
	}
	after, err := c.server.serveChange(Request{Verb: "update", Kind: k, ObjectKey: keyOf(raw)}, func(into content) error {
		clear(into)
		maps.Copy(into, raw)
		return nil
	})
	if err != nil {
		return err
	}
	return fill(o, after)
}

// Delete deletes an object.
func (c *Client) Delete(_ context.Context, o client.Object, options ...client.DeleteOption) error {
	k, err := c.kindOf(o)
	if err != nil {
		return err
	}
	var d client.DeleteOptions
	d.ApplyOptions(options)
	return c.server.serveDelete(Request{Verb: "delete", Kind: k, ObjectKey: client.ObjectKeyFromObject(o)}, *d.AsDeleteOptions())
}

func (s *Server) serveDelete(r Request, o metav1.DeleteOptions) error {
	if err := s.begin(r); err != nil {
		return err
	}
	before, after, err := s.delete(r.Kind, r.ObjectKey, o)
	if err != nil {
		return err
	}
	s.end(r, before, after)
	return nil
}

// Patch patches an object, or applies a ConfigMap.
func (c *Client) Patch(_ context.Context, o client.Object, patch client.Patch, _ ...client.PatchOption) error {
	return c.patch(o, patch, "")
}

func (c *Client) patch(o client.Object, patch client.Patch, subresource string) error {
	k, err := c.kindOf(o)
	if err != nil {
		return err
	}
	raw, err := patch.Data(o)
	if err != nil {
		return err
	}
	r := Request{Verb: "patch", Kind: k, Subresource: subresource, ObjectKey: client.ObjectKeyFromObject(o)}
	after, err := c.server.patch(r, patch.Type(), raw)
	if err != nil {
		return err
	}
	return fill(o, after)
}

func (s *Server) patch(r Request, patchType types.PatchType, raw []byte) (content, error) {
	if patchType == types.JSONPatchType {
		var steps []jsonPatchStep
		if err := utiljson.Unmarshal(raw, &steps); err != nil {
			return nil, apierrors.NewBadRequest(err.Error())
		}
		return s.serveChange(r, func(into content) error { return applySteps(into, steps) })
	}
	var patch content
	if err := utiljson.Unmarshal(raw, &patch); err != nil {
		return nil, apierrors.NewBadRequest(err.Error())
	}
	r.Patch = patch
	switch patchType {
	case types.MergePatchType:
		return s.serveChange(r, func(into content) error { mergeInto(into, patch); return nil })
	case types.StrategicMergePatchType:
		return s.serveChange(r, func(into content) error {
			merged, err := strategicpatch.StrategicMergeMapPatch(into, patch, corev1.Node{})
			if err != nil {
				return apierrors.NewBadRequest(err.Error())
			}
			maps.Copy(into, merged)
			return nil
		})
	case types.ApplyPatchType:
		return s.apply(r, patch)
	}
	return nil, apierrors.NewBadRequest(fmt.Sprintf("the world has no patch of type %s", patchType))
}

// apply is a server-side apply of an object that nobody else applies to: what is applied replaces what was.
func (s *Server) apply(r Request, applied content) (content, error) {
	if s.objects[r.Kind.Kind][r.ObjectKey] == nil {
		return s.serveCreate(r.Kind, applied, false)
	}
	return s.serveChange(r, func(into content) error {
		for _, part := range []string{"data", "binaryData", "immutable"} {
			if value, found := applied[part]; found {
				into[part] = value
			} else {
				delete(into, part)
			}
		}
		m, a := meta(into), meta(applied)
		m.SetLabels(a.GetLabels())
		m.SetAnnotations(a.GetAnnotations())
		m.SetOwnerReferences(a.GetOwnerReferences())
		return nil
	})
}

// mergeInto applies a JSON merge patch.
func mergeInto(into, patch content) {
	for key, value := range patch {
		inner, isMap := value.(map[string]any)
		switch {
		case value == nil:
			delete(into, key)
		case isMap:
			target, ok := into[key].(map[string]any)
			if !ok {
				target = content{}
			}
			mergeInto(target, inner)
			into[key] = target
		default:
			into[key] = value
		}
	}
}

// jsonPatchStep is one step of a JSON patch whose path leads through maps only.
type jsonPatchStep struct {
	Op    string `json:"op"`
	Path  string `json:"path"`
	Value any    `json:"value"`
}

func applySteps(into content, steps []jsonPatchStep) error {
	for _, step := range steps {
		path := strings.Split(strings.TrimPrefix(step.Path, "/"), "/")
		at := into
		for _, key := range path[:len(path)-1] {
			next, ok := at[key].(map[string]any)
			if !ok {
				return apierrors.NewBadRequest("there is no " + step.Path)
			}
			at = next
		}
		last := path[len(path)-1]
		switch _, found := at[last]; {
		case step.Op == "replace" && !found:
			return apierrors.NewBadRequest("there is no " + step.Path)
		case step.Op == "add" || step.Op == "replace":
			at[last] = runtime.DeepCopyJSONValue(step.Value)
		default:
			return apierrors.NewBadRequest("the world has no step " + step.Op)
		}
	}
	return nil
}

// SubResource returns the client of a subresource: evictions are created.
func (c *Client) SubResource(name string) client.SubResourceClient {
	return evictionClient{subresource: name, server: c.server}
}

type evictionClient struct {
	client.SubResourceClient // nil
	subresource              string
	server                   *Server
}

// Create evicts a pod.
func (e evictionClient) Create(_ context.Context, o, body client.Object, _ ...client.SubResourceCreateOption) error {
	eviction, isEviction := body.(*policyv1.Eviction)
	if !isEviction {
		return fmt.Errorf("the world creates no %s of a %T", e.subresource, o)
	}
	r := Request{Verb: "create", Kind: Pods, Subresource: e.subresource, ObjectKey: client.ObjectKeyFromObject(o)}
	return e.server.serveDelete(r, *eviction.DeleteOptions)
}

// Status returns the writer of the status subresource.
func (c *Client) Status() client.SubResourceWriter { return statusClient{c: c} }

type statusClient struct {
	client.SubResourceWriter // nil
	c                        *Client
}

// Patch patches a status.
func (s statusClient) Patch(_ context.Context, o client.Object, patch client.Patch, _ ...client.SubResourcePatchOption) error {
	return s.c.patch(o, patch, "status")
}

func nestedString(c content, path ...string) string {
	value, _ := nestedMap(c, path[:len(path)-1]...)[path[len(path)-1]].(string)
	return value
}
