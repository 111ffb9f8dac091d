// SPDX-FileCopyrightText: The Skyhook authors
// SPDX-License-Identifier: Apache-2.0

package world

import (
	"errors"
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	opv1 "github.com/skyhook-k8s/skyhook/api/nodeop/v1alpha1"
	"github.com/skyhook-k8s/skyhook/api/skyhook/v1alpha1"
)

// content is an object in its JSON form. What is stored is never changed, only replaced.
type content = map[string]any

// Kind is a kind of object that the Server stores.
type Kind struct {
	schema.GroupVersionKind
	Resource   string
	Namespaced bool
	Ours       bool // a CRD of ours: schema, generation
}

// The kinds of a Server, in the order in which a cache shows them.
var (
	Nodes      = Kind{GroupVersionKind: corev1.SchemeGroupVersion.WithKind("Node"), Resource: "nodes"}
	Pods       = Kind{GroupVersionKind: corev1.SchemeGroupVersion.WithKind("Pod"), Resource: "pods", Namespaced: true}
	ConfigMaps = Kind{GroupVersionKind: corev1.SchemeGroupVersion.WithKind("ConfigMap"), Resource: "configmaps", Namespaced: true}
	Jobs       = Kind{GroupVersionKind: schema.GroupVersionKind{Group: "batch", Version: "v1", Kind: "Job"}, Resource: "jobs", Namespaced: true}
	Skyhooks   = Kind{GroupVersionKind: v1alpha1.GroupVersion.WithKind("Skyhook"), Resource: "skyhooks", Ours: true}
	Policies   = Kind{GroupVersionKind: v1alpha1.GroupVersion.WithKind("DeploymentPolicy"), Resource: "deploymentpolicies", Ours: true}
	NodeOps    = Kind{GroupVersionKind: opv1.GroupVersion.WithKind("NodeOp"), Resource: "nodeops", Namespaced: true, Ours: true}
	Upgrades   = Kind{GroupVersionKind: opv1.GroupVersion.WithKind("NodeOpUpgrade"), Resource: "nodeopupgrades", Namespaced: true, Ours: true}

	// DaemonSets are listed and never watched.
	DaemonSets = Kind{GroupVersionKind: appsv1.SchemeGroupVersion.WithKind("DaemonSet"), Resource: "daemonsets", Namespaced: true}

	// Revisions are written and never watched.
	Revisions = Kind{GroupVersionKind: appsv1.SchemeGroupVersion.WithKind("ControllerRevision"), Resource: "controllerrevisions", Namespaced: true}

	allKinds = []Kind{Revisions, DaemonSets, Nodes, Pods, ConfigMaps, Jobs, Skyhooks, Policies, NodeOps, Upgrades}
)

// Request is one request to the Server, before it is carried out.
type Request struct {
	Verb        string // get, list, create, update, patch, delete
	Kind        Kind
	Subresource string // status, eviction
	client.ObjectKey
	Patch  content // of a merge patch
	DryRun bool
}

func (r Request) String() string {
	what := r.Kind.Resource
	if r.Subresource != "" {
		what += "/" + r.Subresource
	}
	return strings.TrimSuffix(fmt.Sprintf("%s %s %s", r.Verb, what, strings.TrimPrefix(r.ObjectKey.String(), "/")), " ")
}

// IsWrite reports whether a request may change something.
func (r Request) IsWrite() bool { return r.Verb != "get" && r.Verb != "list" }

// Write is a write of the operator that was carried out.
type Write struct {
	Request
	Before, After content // nil for none
}

// change is one step in the history of a kind: a new version of an object, or its end.
type change struct {
	key    client.ObjectKey
	object content // nil when it was removed
}

// Server is an API server in memory. It is for one goroutine.
type Server struct {
	Clock     func() time.Time
	Intercept func(Request) error // before a request of the operator; an error refuses it
	OnWrite   func(Write)         // after a write of the operator

	validate *validator
	scheme   *runtime.Scheme
	objects  map[string]map[client.ObjectKey]content // by Kind
	history  map[string][]change
	version  int
	uids     int
}

// NewServer makes an empty Server.
func NewServer(clock func() time.Time) (*Server, error) {
	v, scheme, err := loadShared()
	if err != nil {
		return nil, err
	}
	s := &Server{Clock: clock, validate: v, scheme: scheme, objects: map[string]map[client.ObjectKey]content{}, history: map[string][]change{}}
	for _, k := range allKinds {
		s.objects[k.Kind] = map[client.ObjectKey]content{}
	}
	return s, nil
}

func (k Kind) resource() schema.GroupResource {
	return schema.GroupResource{Group: k.Group, Resource: k.Resource}
}

func kindOf(gvk schema.GroupVersionKind) (Kind, error) {
	for _, k := range allKinds {
		if k.GroupVersionKind == gvk {
			return k, nil
		}
	}
	return Kind{}, fmt.Errorf("the world has no %s", gvk.Kind)
}

// keys are the names of the objects of a kind, sorted.
func (s *Server) keys(k Kind) []client.ObjectKey {
	return slices.SortedFunc(maps.Keys(s.objects[k.Kind]), func(a, b client.ObjectKey) int { return strings.Compare(a.String(), b.String()) })
}

func (s *Server) read(k Kind, key client.ObjectKey) (content, error) {
	if c := s.objects[k.Kind][key]; c != nil {
		return c, nil
	}
	return nil, apierrors.NewNotFound(k.resource(), key.Name)
}

func meta(c content) *unstructured.Unstructured { return &unstructured.Unstructured{Object: c} }

func keyOf(c content) client.ObjectKey {
	return client.ObjectKey{Namespace: meta(c).GetNamespace(), Name: meta(c).GetName()}
}

// create stores a new object.
func (s *Server) create(k Kind, c content) (content, error) {
	c, err := s.prepare(k, c)
	if err == nil {
		s.store(k, c)
	}
	return c, err
}

// prepare makes a new object as it will be stored.
func (s *Server) prepare(k Kind, c content) (content, error) {
	key := keyOf(c)
	if s.objects[k.Kind][key] != nil {
		return nil, apierrors.NewAlreadyExists(k.resource(), key.Name)
	}
	if k != ConfigMaps {
		delete(c, "status")
	}
	m := meta(c)
	m.SetGroupVersionKind(k.GroupVersionKind)
	unstructured.RemoveNestedField(c, "metadata", "deletionTimestamp")
	m.SetManagedFields(nil)
	m.SetCreationTimestamp(metav1.NewTime(s.Clock()))
	s.uids++
	m.SetUID(types.UID(fmt.Sprintf("%08x-0000-4000-8000-%012d", 0x9e3779b9*uint32(s.uids), s.uids)))
	if k.Ours || k == Jobs {
		m.SetGeneration(1)
	}
	if k == Pods {
		setDefault(c, int64(30), "spec", "terminationGracePeriodSeconds")
		setDefault(c, string(corev1.PodPending), "status", "phase")
	}
	return c, s.validate.object(k, c, nil)
}

func setDefault(c content, value any, path ...string) {
	if _, found, err := unstructured.NestedFieldNoCopy(c, path...); err == nil && !found {
		_ = unstructured.SetNestedField(c, value, path...) // the path exists in every pod
	}
}

func (s *Server) store(k Kind, c content) {
	s.version++
	meta(c).SetResourceVersion(strconv.Itoa(s.version))
	key := keyOf(c)
	s.objects[k.Kind][key] = c
	s.history[k.Kind] = append(s.history[k.Kind], change{key, c})
}

func (s *Server) remove(k Kind, key client.ObjectKey) {
	s.version++
	delete(s.objects[k.Kind], key)
	s.history[k.Kind] = append(s.history[k.Kind], change{key: key})
}

// change replaces an object by what edit makes of a copy of it, as an update or a patch does.
func (s *Server) change(k Kind, key client.ObjectKey, subresource string, edit func(content) error) (before, after content, err error) {
	before, err = s.read(k, key)
	if err != nil {
		return nil, nil, err
	}
	after = runtime.DeepCopyJSON(before)
	if err := edit(after); err != nil {
		return before, nil, err
	}
	if err := checkPreconditions(k, before, after); err != nil {
		return before, nil, err
	}
	keepForeignParts(k, subresource, before, after)
	if reflect.DeepEqual(before, after) || equality.Semantic.DeepEqual(before, after) {
		return before, before, nil
	}
	if err := s.validate.object(k, after, before); err != nil {
		return before, nil, err
	}
	if (k.Ours || k == Jobs) && !reflect.DeepEqual(before["spec"], after["spec"]) {
		meta(after).SetGeneration(meta(before).GetGeneration() + 1)
	}
	if k != Pods && meta(after).GetDeletionTimestamp() != nil && len(meta(after).GetFinalizers()) == 0 {
		s.remove(k, key)
		meta(after).SetResourceVersion(strconv.Itoa(s.version))
		return before, after, nil
	}
	s.store(k, after)
	return before, after, nil
}

// checkPreconditions compares the version and UID that a request names with those that are stored.
func checkPreconditions(k Kind, before, after content) error {
	was, is := meta(before), meta(after)
	if uid := is.GetUID(); uid != "" && uid != was.GetUID() {
		return apierrors.NewConflict(k.resource(), was.GetName(), fmt.Errorf("the UID in the precondition (%s) is not that of the object (%s)", uid, was.GetUID()))
	}
	if v := is.GetResourceVersion(); v != "" && v != was.GetResourceVersion() {
		return apierrors.NewConflict(k.resource(), was.GetName(), errors.New("the object has been modified; please apply your changes to the latest version and try again"))
	}
	return nil
}

// keepForeignParts undoes what a request must not change: metadata that the server sets, and the status or all but the
// status. Updates of the status of a node may change its metadata as well.
func keepForeignParts(k Kind, subresource string, before, after content) {
	was, is := meta(before), meta(after)
	switch {
	case subresource == "status" && k == Nodes:
		keepField("spec", before, after)
	case subresource == "status":
		kept := runtime.DeepCopyJSON(before)
		keepField("status", after, kept)
		clear(after)
		maps.Copy(after, kept)
		return
	case k != ConfigMaps:
		keepField("status", before, after)
	}
	after["apiVersion"], after["kind"] = before["apiVersion"], before["kind"]
	is.SetName(was.GetName())
	is.SetNamespace(was.GetNamespace())
	is.SetUID(was.GetUID())
	is.SetResourceVersion(was.GetResourceVersion())
	is.SetManagedFields(nil)
	for _, field := range []string{"generation", "creationTimestamp", "deletionTimestamp", "deletionGracePeriodSeconds"} {
		if value, found, _ := unstructured.NestedFieldNoCopy(before, "metadata", field); found {
			_ = unstructured.SetNestedField(after, value, "metadata", field) // metadata is a map
		} else {
			unstructured.RemoveNestedField(after, "metadata", field)
		}
	}
}

// keepField makes a field of one object what it is in another one, where it may be absent.
func keepField(field string, from, to content) {
	if value, found := from[field]; found {
		to[field] = value
		return
	}
	delete(to, field)
}

// delete deletes an object, or marks it until its finalizers are gone and its pod has ended.
func (s *Server) delete(k Kind, key client.ObjectKey, o metav1.DeleteOptions) (before, after content, err error) {
	before, err = s.read(k, key)
	if err != nil {
		return nil, nil, err
	}
	was := meta(before)
	if p := o.Preconditions; p != nil {
		if p.UID != nil && *p.UID != was.GetUID() {
			return before, before, apierrors.NewConflict(k.resource(), key.Name, fmt.Errorf("the UID in the precondition (%s) is not that of the object (%s)", *p.UID, was.GetUID()))
		}
		if p.ResourceVersion != nil && *p.ResourceVersion != was.GetResourceVersion() {
			return before, before, apierrors.NewConflict(k.resource(), key.Name, errors.New("the version in the precondition is not that of the object"))
		}
	}
	grace := int64(0)
	if k == Pods {
		grace = podGrace(before, o)
	}
	if grace == 0 && len(was.GetFinalizers()) == 0 {
		s.remove(k, key)
		return before, nil, nil
	}
	if was.GetDeletionTimestamp() != nil {
		before := was.GetDeletionGracePeriodSeconds()
		if before == nil || grace >= *before {
			return was.Object, was.Object, nil // it goes already
		}
	}
	after = runtime.DeepCopyJSON(before)
	meta(after).SetDeletionTimestamp(&metav1.Time{Time: s.Clock().Add(time.Duration(grace) * time.Second)})
	meta(after).SetDeletionGracePeriodSeconds(&grace)
	if k.Ours {
		meta(after).SetGeneration(was.GetGeneration() + 1)
	}
	s.store(k, after)
	return before, after, nil
}

// podGrace is the grace period of a deletion: that of the request, or of the pod. A pod that does not run needs none.
func podGrace(pod content, o metav1.DeleteOptions) int64 {
	grace, _, _ := unstructured.NestedInt64(pod, "spec", "terminationGracePeriodSeconds")
	if o.GracePeriodSeconds != nil {
		grace = *o.GracePeriodSeconds
	}
	phase, _, _ := unstructured.NestedString(pod, "status", "phase")
	isOver := phase == string(corev1.PodSucceeded) || phase == string(corev1.PodFailed)
	if node, _, _ := unstructured.NestedString(pod, "spec", "nodeName"); node == "" || isOver {
		return 0
	}
	return grace
}

// decode makes a typed object. Every call makes a new one.
func decode[T client.Object](c content, into T) T {
	if err := runtime.DefaultUnstructuredConverter.FromUnstructured(c, into); err != nil {
		panic(fmt.Sprintf("decoding %s: %v", meta(c).GetName(), err)) // it was validated
	}
	return into
}

func encode(o any) (content, error) {
	c, err := runtime.DefaultUnstructuredConverter.ToUnstructured(o)
	if err != nil {
		return nil, apierrors.NewBadRequest(err.Error())
	}
	return runtime.DeepCopyJSON(c), nil
}
