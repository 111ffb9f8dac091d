// SPDX-FileCopyrightText: The Skyhook authors
// SPDX-License-Identifier: Apache-2.0

package dump

import (
	"fmt"
	"maps"
	"reflect"
	"regexp"
	"slices"
	"strings"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/skyhook-k8s/skyhook/api/skyhook/v1alpha1"
	"github.com/skyhook-k8s/skyhook/internal/cluster"
	"github.com/skyhook-k8s/skyhook/internal/skyhook/render"
)

// Redacted returns a copy without the values of environment variables, and without everything that no decision reads. Equal
// values get equal replacements, so that the copy leads to the same decisions.
func (c *Cluster) Redacted() (*Cluster, error) {
	out, err := New(nil, c.Taken)
	if err != nil {
		return nil, err
	}
	out.Plugin, out.Operator = c.Plugin, c.Operator
	out.Operator.PrometheusEndpoints = strings.Fields(RedactURLs(strings.Join(c.Operator.PrometheusEndpoints, " ")))
	replacements := map[string]string{}
	redact := func(value string) string {
		if replacements[value] == "" {
			replacements[value] = fmt.Sprintf("redacted-%d", len(replacements)+1)
		}
		return replacements[value]
	}
	var hooks []*v1alpha1.Skyhook
	var configMaps []*corev1.ConfigMap
	var objects []client.Object
	for _, gvk := range dumpedKinds {
		for _, o := range c.Objects(gvk) {
			c, ok := o.DeepCopyObject().(client.Object)
			if !ok {
				return nil, fmt.Errorf("%s %s cannot be copied", gvk.Kind, o.GetName())
			}
			stripObject(c, out.Operator.Namespace)
			objects = append(objects, c)
			switch c := c.(type) {
			case *v1alpha1.Skyhook:
				hooks = append(hooks, c)
			case *corev1.ConfigMap:
				configMaps = append(configMaps, c)
			default:
				redactEnv(reflect.ValueOf(c), redact)
			}
		}
	}
	renamed := newReplacer(render.Redact(hooks, configMaps, c.Operator.Skyhook(""), redact))
	replaced := slices.Collect(maps.Values(replacements))
	for _, s := range hooks { // what is in no definition
		redactEnv(reflect.ValueOf(s), func(value string) string {
			if slices.Contains(replaced, value) {
				return value
			}
			return redact(value)
		})
	}
	err = forEach(len(objects), func(i int) error {
		trimMetadata(objects[i], renamed)
		return out.Put(objects[i])
	})
	if err != nil {
		return nil, err
	}
	return out, nil
}

var userinfo = regexp.MustCompile(`://[^/\s"]+@`)

// RedactURLs replaces the user and the password of all URLs in a text, such as those of Prometheus servers and those in messages.
func RedactURLs(text string) string { return userinfo.ReplaceAllLiteralString(text, "://redacted@") }

// redactEnv replaces the values of all environment variables in a part of an object, of whatever kind it is.
func redactEnv(part reflect.Value, redact func(string) string) {
	switch part.Kind() {
	case reflect.Pointer, reflect.Interface:
		if !part.IsNil() {
			redactEnv(part.Elem(), redact)
		}
	case reflect.Slice:
		for i := range part.Len() {
			redactEnv(part.Index(i), redact)
		}
	case reflect.Map:
		for entries := part.MapRange(); entries.Next(); {
			value := reflect.New(part.Type().Elem()).Elem()
			value.Set(entries.Value())
			redactEnv(value, redact)
			part.SetMapIndex(entries.Key(), value)
		}
	case reflect.Struct:
		for i := range part.NumField() {
			if part.Type().Field(i).IsExported() {
				redactEnv(part.Field(i), redact)
			}
		}
		if value := part.FieldByName("Value"); part.Type().Name() == "EnvVar" && value.String() != "" {
			value.SetString(redact(value.String()))
		}
	}
}

// newReplacer replaces hashes of values by hashes of their replacements.
func newReplacer(hashes map[string]string) *strings.Replacer {
	var pairs []string
	for from, to := range hashes {
		pairs = append(pairs, from, to)
	}
	return strings.NewReplacer(pairs...)
}

// trimMetadata removes from the metadata of an object what no decision reads.
func trimMetadata(o client.Object, renamed *strings.Replacer) {
	o.SetManagedFields(nil)
	o.SetSelfLink("")
	annotations := maps.Clone(o.GetAnnotations())
	maps.DeleteFunc(annotations, func(key, _ string) bool {
		return !strings.Contains(key, v1alpha1.Group+"/") && !strings.Contains(key, "kairos.io/") && key != corev1.MirrorPodAnnotationKey
	})
	for key, value := range annotations {
		annotations[key] = RedactURLs(renamed.Replace(value))
	}
	o.SetAnnotations(annotations)
}

// stripObject removes from an object what no decision reads. The operator is in the namespace.
func stripObject(o client.Object, namespace string) {
	switch o := o.(type) {
	case *corev1.Node:
		cluster.StripNode(o)
	case *corev1.Pod:
		if o.Namespace == namespace && o.Labels[v1alpha1.LabelName] != "" {
			cluster.StripPod(o)
			return
		}
		cluster.StripWorkload(o)
	case *batchv1.Job:
		cluster.StripJob(o)
	}
}
