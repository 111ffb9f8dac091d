// SPDX-FileCopyrightText: The Skyhook authors
// SPDX-License-Identifier: Apache-2.0

package world

import (
	"errors"
	"fmt"
	"reflect"
	"strings"
	"sync"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	apivalidation "k8s.io/apimachinery/pkg/api/validation"
	metavalidation "k8s.io/apimachinery/pkg/apis/meta/v1/validation"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/skyhook-k8s/skyhook/internal/cli/manifest"
	"github.com/skyhook-k8s/skyhook/internal/controller"
)

// shared is made once for all runs: compiling the rules of the CRDs takes long.
var shared struct {
	once   sync.Once
	crds   *validator
	scheme *runtime.Scheme
	err    error
}

func loadShared() (*validator, *runtime.Scheme, error) {
	shared.once.Do(func() {
		crds, crdErr := manifest.Load()
		scheme, schemeErr := controller.Scheme()
		shared.crds, shared.scheme, shared.err = &validator{crds}, scheme, errors.Join(crdErr, schemeErr)
	})
	return shared.crds, shared.scheme, shared.err
}

// validator refuses what an API server refuses: what the schema and the rules of our CRDs say, the limits of metadata, and
// of pods and ConfigMaps the rules that a front end could break.
type validator struct{ crds *manifest.Validator }

// object validates a new object, or with before a change of one.
func (v *validator) object(k Kind, c, before content) error {
	errs := validateMetadata(c)
	switch {
	case k.Ours:
		isSameSpec := before != nil && reflect.DeepEqual(before["spec"], c["spec"])
		isSame := isSameSpec && reflect.DeepEqual(before["status"], c["status"])
		if isSame || isSameSpec && !isSampled(before) {
			break
		}
		old := meta(before)
		if before == nil {
			old = nil
		}
		for _, text := range v.crds.Validate(meta(c), old).Problems {
			path, detail, _ := strings.Cut(text, ": ")
			errs = append(errs, field.Invalid(field.NewPath(path), "", detail))
		}
	case k == Pods && before == nil:
		errs = append(errs, validatePod(decode(c, &corev1.Pod{}))...)
	case k == ConfigMaps:
		errs = append(errs, validateConfigMap(c, before)...)
	}
	if len(errs) > 0 {
		return apierrors.NewInvalid(k.GroupKind(), meta(c).GetName(), errs)
	}
	return nil
}

// isSampled selects every third status to be validated, which takes long. One that is refused would be refused again.
func isSampled(before content) bool {
	version := meta(before).GetResourceVersion()
	return (version[len(version)-1]-'0')%3 == 0
}

func validateMetadata(c content) field.ErrorList {
	m, path := meta(c), field.NewPath("metadata")
	errs := apivalidation.ValidateAnnotations(m.GetAnnotations(), path.Child("annotations"))
	errs = append(errs, metavalidation.ValidateLabels(m.GetLabels(), path.Child("labels"))...)
	for _, msg := range apivalidation.NameIsDNSSubdomain(m.GetName(), false) {
		errs = append(errs, field.Invalid(path.Child("name"), m.GetName(), msg))
	}
	return errs
}

// podFields are the fields that an environment variable may refer to, except single labels and annotations.
var podFields = map[string]bool{
	"metadata.name": true, "metadata.namespace": true, "metadata.uid": true, "spec.nodeName": true, "spec.serviceAccountName": true,
	"status.hostIP": true, "status.hostIPs": true, "status.podIP": true, "status.podIPs": true,
}

func validatePod(p *corev1.Pod) field.ErrorList {
	var errs field.ErrorList
	spec := field.NewPath("spec")
	if len(p.Spec.Containers) == 0 {
		errs = append(errs, field.Required(spec.Child("containers"), ""))
	}
	volumes := map[string]bool{}
	for i, v := range p.Spec.Volumes {
		path := spec.Child("volumes").Index(i).Child("name")
		for _, msg := range validation.IsDNS1123Label(v.Name) {
			errs = append(errs, field.Invalid(path, v.Name, msg))
		}
		if volumes[v.Name] {
			errs = append(errs, field.Duplicate(path, v.Name))
		}
		volumes[v.Name] = true
	}
	names := map[string]bool{}
	for part, containers := range map[string][]corev1.Container{"initContainers": p.Spec.InitContainers, "containers": p.Spec.Containers} {
		for i := range containers {
			path := spec.Child(part).Index(i)
			if names[containers[i].Name] {
				errs = append(errs, field.Duplicate(path.Child("name"), containers[i].Name))
			}
			names[containers[i].Name] = true
			errs = append(errs, validateContainer(&containers[i], volumes, path)...)
		}
	}
	return errs
}

func validateContainer(c *corev1.Container, volumes map[string]bool, path *field.Path) field.ErrorList {
	var errs field.ErrorList
	for _, msg := range validation.IsDNS1123Label(c.Name) {
		errs = append(errs, field.Invalid(path.Child("name"), c.Name, msg))
	}
	if c.Image == "" {
		errs = append(errs, field.Required(path.Child("image"), ""))
	}
	mounted := map[string]bool{}
	for i, m := range c.VolumeMounts {
		at := path.Child("volumeMounts").Index(i)
		if !volumes[m.Name] {
			errs = append(errs, field.NotFound(at.Child("name"), m.Name))
		}
		if mounted[m.MountPath] {
			errs = append(errs, field.Invalid(at.Child("mountPath"), m.MountPath, "must be unique"))
		}
		mounted[m.MountPath] = true
	}
	for i, e := range c.Env {
		at := path.Child("env").Index(i)
		if e.Name == "" {
			errs = append(errs, field.Required(at.Child("name"), ""))
		}
		errs = append(errs, validateEnvSource(&e, at.Child("valueFrom"))...)
	}
	return errs
}

func validateEnvSource(e *corev1.EnvVar, path *field.Path) field.ErrorList {
	s := e.ValueFrom
	if s == nil {
		return nil
	}
	var errs field.ErrorList
	sources := 0
	for _, isSet := range []bool{s.FieldRef != nil, s.ResourceFieldRef != nil, s.ConfigMapKeyRef != nil, s.SecretKeyRef != nil} {
		if isSet {
			sources++
		}
	}
	if sources != 1 || e.Value != "" {
		errs = append(errs, field.Invalid(path, "", "must specify exactly one source, and no value"))
	}
	if r := s.FieldRef; r != nil {
		isOfMap := strings.HasPrefix(r.FieldPath, "metadata.labels['") || strings.HasPrefix(r.FieldPath, "metadata.annotations['")
		if !podFields[r.FieldPath] && !isOfMap {
			errs = append(errs, field.NotSupported(path.Child("fieldRef", "fieldPath"), r.FieldPath, []string{"metadata.name"}))
		}
	}
	if r := s.SecretKeyRef; r != nil && (r.Name == "" || r.Key == "") {
		errs = append(errs, field.Required(path.Child("secretKeyRef"), "name and key"))
	}
	if r := s.ConfigMapKeyRef; r != nil && (r.Name == "" || r.Key == "") {
		errs = append(errs, field.Required(path.Child("configMapKeyRef"), "name and key"))
	}
	return errs
}

// maxConfigMap is the most that a ConfigMap may hold.
const maxConfigMap = 1 << 20

func validateConfigMap(c, before content) field.ErrorList {
	var errs field.ErrorList
	m := decode(c, &corev1.ConfigMap{})
	total := 0
	for key, value := range m.Data {
		total += len(value)
		for _, msg := range validation.IsConfigMapKey(key) {
			errs = append(errs, field.Invalid(field.NewPath("data").Key(key), key, msg))
		}
	}
	if total > maxConfigMap {
		errs = append(errs, field.TooLong(field.NewPath(""), "", maxConfigMap))
	}
	if before != nil && before["immutable"] == true && !reflect.DeepEqual(before["data"], c["data"]) {
		errs = append(errs, field.Forbidden(field.NewPath("data"), fmt.Sprintf("ConfigMap %s is immutable", m.Name)))
	}
	return errs
}
