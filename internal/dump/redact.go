// SPDX-FileCopyrightText: The Skyhook authors
// SPDX-License-Identifier: Apache-2.0

package dump

import (
	"fmt"
	"maps"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	nodeopv1 "github.com/skyhook-k8s/skyhook/api/nodeop/v1alpha1"
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
			objects = append(objects, c)
			switch c := c.(type) {
			case *v1alpha1.Skyhook:
				hooks = append(hooks, c)
			case *corev1.ConfigMap:
				configMaps = append(configMaps, c)
			case *nodeopv1.NodeOp:
				for i := range c.Spec.Env {
					if c.Spec.Env[i].Value != "" {
						c.Spec.Env[i].Value = redact(c.Spec.Env[i].Value)
					}
				}
			}
		}
	}
	renamed := newReplacer(render.Redact(hooks, configMaps, c.Operator.Skyhook(""), redact))
	err = forEach(len(objects), func(i int) error {
		c.trimObject(objects[i], renamed)
		return out.Put(objects[i])
	})
	if err != nil {
		return nil, err
	}
	return out, nil
}

// newReplacer replaces hashes of values by hashes of their replacements.
func newReplacer(hashes map[string]string) *strings.Replacer {
	var pairs []string
	for from, to := range hashes {
		pairs = append(pairs, from, to)
	}
	return strings.NewReplacer(pairs...)
}

// trimObject removes from an object what no decision reads.
func (c *Cluster) trimObject(o client.Object, renamed *strings.Replacer) {
	o.SetManagedFields(nil)
	o.SetSelfLink("")
	annotations := maps.Clone(o.GetAnnotations())
	maps.DeleteFunc(annotations, func(key, _ string) bool {
		return !strings.Contains(key, v1alpha1.Group+"/") && !strings.Contains(key, "kairos.io/") && key != corev1.MirrorPodAnnotationKey
	})
	for key, value := range annotations {
		annotations[key] = renamed.Replace(value)
	}
	o.SetAnnotations(annotations)
	switch o := o.(type) {
	case *corev1.Node:
		cluster.StripNode(o)
	case *corev1.Pod:
		if o.Namespace == c.Operator.Namespace && o.Labels[v1alpha1.LabelName] != "" {
			cluster.StripPod(o)
			return
		}
		cluster.StripWorkload(o)
	}
}
