// SPDX-FileCopyrightText: The Skyhook authors
// SPDX-License-Identifier: Apache-2.0

package cluster

import (
	"context"
	"encoding/json"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/serializer"
	"k8s.io/apimachinery/pkg/types"
	utilruntime "k8s.io/apimachinery/pkg/util/runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	opv1 "github.com/skyhook-k8s/skyhook/api/nodeop/v1alpha1"
	"github.com/skyhook-k8s/skyhook/api/skyhook/v1alpha1"
)

// narrow asks for an answer that tells an object's metadata and nothing else; an API server may answer more.
const narrow = "application/vnd.kubernetes.protobuf;as=PartialObjectMetadata;g=meta.k8s.io;v=v1," +
	"application/json;as=PartialObjectMetadata;g=meta.k8s.io;v=v1,application/json"

// narrowly reads such answers.
var narrowly = func() runtime.Decoder {
	scheme := runtime.NewScheme()
	utilruntime.Must(metav1.AddMetaToScheme(scheme))
	utilruntime.Must(corev1.AddToScheme(scheme))
	return serializer.NewCodecFactory(scheme).UniversalDeserializer()
}()

// createPod creates a pod, whose metadata becomes what the API server gave it. The rest is as it was sent.
func (c *Cluster) createPod(ctx context.Context, p *corev1.Pod) error {
	result := c.options.Core.RESTClient().Post().Namespace(p.Namespace).Resource("pods").SetHeader("Accept", narrow).Body(p).Do(ctx)
	if err := result.Error(); err != nil {
		return err
	}
	raw, err := result.Raw()
	if err != nil {
		return err
	}
	answer, _, err := narrowly.Decode(raw, nil, nil)
	if err != nil {
		return fmt.Errorf("reading the answer: %w", err)
	}
	created, ok := answer.(metav1.ObjectMetaAccessor)
	if !ok {
		return fmt.Errorf("reading the answer: it is a %T", answer)
	}
	meta := created.GetObjectMeta()
	p.UID, p.ResourceVersion, p.Generation, p.CreationTimestamp = meta.GetUID(), meta.GetResourceVersion(), meta.GetGeneration(), meta.GetCreationTimestamp()
	p.Labels, p.Annotations, p.Finalizers, p.OwnerReferences = meta.GetLabels(), meta.GetAnnotations(), meta.GetFinalizers(), meta.GetOwnerReferences()
	return nil
}

// deletePod deletes a pod, the one that was observed and no later one of its name. One that is gone is no error.
func (c *Cluster) deletePod(ctx context.Context, p *corev1.Pod) error {
	err := c.options.Core.RESTClient().Delete().Namespace(p.Namespace).Resource("pods").Name(p.Name).SetHeader("Accept", narrow).
		Body(&metav1.DeleteOptions{Preconditions: &metav1.Preconditions{UID: &p.UID}}).Do(ctx).Error()
	if err != nil && !apierrors.IsNotFound(err) && !apierrors.IsConflict(err) {
		return fmt.Errorf("deleting pod %s: %w", p.Name, err)
	}
	return nil
}

// wholeStatus is a patch that puts the status of an object in the place of what is there, if the object still is the
// version that was seen. To say what differs costs more than to say it all.
func wholeStatus(was, changed client.Object) (client.Patch, error) {
	var status any
	switch o := changed.(type) {
	case *v1alpha1.Skyhook:
		status = &o.Status
	case *v1alpha1.DeploymentPolicy:
		status = &o.Status
	case *opv1.NodeOp:
		status = &o.Status
	case *opv1.NodeOpUpgrade:
		status = &o.Status
	default:
		return nil, fmt.Errorf("a %T has no status of ours", changed)
	}
	raw, err := json.Marshal([]any{
		map[string]any{"op": "replace", "path": "/metadata/resourceVersion", "value": was.GetResourceVersion()},
		map[string]any{"op": "add", "path": "/status", "value": status},
	})
	if err != nil {
		return nil, fmt.Errorf("encoding the status: %w", err)
	}
	return client.RawPatch(types.JSONPatchType, raw), nil
}

// onlyAdmission is a patch of the admissions in a status, if the object still is the version that was seen.
func onlyAdmission(was client.Object, before, after any) (client.Patch, error) {
	old, err := fields(before)
	if err != nil {
		return nil, err
	}
	admission, err := fields(after)
	if err != nil {
		return nil, err
	}
	for key := range old { // what is not said in a merge patch stays
		if admission[key] == nil {
			admission[key] = json.RawMessage("null")
		}
	}
	raw, err := json.Marshal(map[string]any{
		"metadata": map[string]any{"resourceVersion": was.GetResourceVersion()}, "status": map[string]any{"admission": admission},
	})
	if err != nil {
		return nil, fmt.Errorf("encoding the admissions: %w", err)
	}
	return client.RawPatch(types.MergePatchType, raw), nil
}

// fields are the fields of an object, as they are on the wire.
func fields(o any) (map[string]json.RawMessage, error) {
	var out map[string]json.RawMessage
	raw, err := json.Marshal(o)
	if err == nil {
		err = json.Unmarshal(raw, &out)
	}
	if err != nil {
		return nil, fmt.Errorf("encoding the admissions: %w", err)
	}
	return out, nil
}
