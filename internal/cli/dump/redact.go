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
	"github.com/skyhook-k8s/skyhook/internal/skyhook"
)

// Redacted is a copy without the values of environment variables, and without everything that no decision looks at. The
// same value gets the same word, so that what was equal stays equal and what differed differs: the copy leads to the
// same decisions.
func (p *Cluster) Redacted() (*Cluster, error) {
	out, err := New(nil, p.Taken)
	if err != nil {
		return nil, err
	}
	out.Plugin, out.Operator = p.Plugin, p.Operator
	words := map[string]string{}
	hide := func(value string) string {
		if words[value] == "" {
			words[value] = fmt.Sprintf("redacted-%d", len(words)+1)
		}
		return words[value]
	}
	var hooks []*v1alpha1.Skyhook
	var frozen []*corev1.ConfigMap
	var rest []client.Object
	for _, gvk := range dumpedKinds {
		for _, o := range p.Objects(gvk) {
			c, ok := o.DeepCopyObject().(client.Object)
			if !ok {
				return nil, fmt.Errorf("%s %s cannot be copied", gvk.Kind, o.GetName())
			}
			rest = append(rest, c)
			switch c := c.(type) {
			case *v1alpha1.Skyhook:
				hooks = append(hooks, c)
			case *corev1.ConfigMap:
				frozen = append(frozen, c)
			case *nodeopv1.NodeOp:
				for i := range c.Spec.Env {
					if c.Spec.Env[i].Value != "" {
						c.Spec.Env[i].Value = hide(c.Spec.Env[i].Value)
					}
				}
			}
		}
	}
	renamed := newReplacer(skyhook.Redact(hooks, frozen, p.Operator.Skyhook(""), hide))
	err = forEach(len(rest), func(i int) error {
		p.trimObject(rest[i], renamed)
		return out.Put(rest[i])
	})
	if err != nil {
		return nil, err
	}
	return out, nil
}

// newReplacer writes the new hashes where the old ones are.
func newReplacer(hashes map[string]string) *strings.Replacer {
	var pairs []string
	for from, to := range hashes {
		pairs = append(pairs, from, to)
	}
	return strings.NewReplacer(pairs...)
}

// trimObject drops from an object what nobody looks at.
func (p *Cluster) trimObject(o client.Object, renamed *strings.Replacer) {
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
		if o.Namespace == p.Operator.Namespace && o.Labels[v1alpha1.LabelName] != "" {
			cluster.StripPod(o)
			return
		}
		cluster.StripWorkload(o)
	}
}
