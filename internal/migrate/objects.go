// SPDX-FileCopyrightText: The Skyhook authors
// SPDX-License-Identifier: Apache-2.0

package migrate

import (
	"fmt"
	"maps"
	"strings"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
)

// Convert returns an object of the one side as an object of the other, without status, owners and finalizers, and what is
// lost. Labels and annotations of the side are renamed, all others stay.
func (d Direction) Convert(o *unstructured.Unstructured) (*unstructured.Unstructured, []Gap) {
	gvk := d.To.GVK()
	if o.GetKind() == d.From.PolicyGVK().Kind {
		gvk = d.To.PolicyGVK()
	}
	spec, _, _ := unstructured.NestedMap(o.Object, "spec")
	if spec == nil {
		spec = map[string]any{}
	}
	c := &fieldConverter{object: o.GetKind() + "/" + o.GetName(), spec: spec}
	switch {
	case gvk == d.To.PolicyGVK() && d.To == NodeWright:
		c.dropPolicyFields()
	case d.To == Skyhook && gvk == d.To.GVK():
		c.convertToSkyhook()
	case d.To == NodeWright:
		c.convertToNodeWright()
	}
	if d.To == Skyhook {
		spec["profile"] = "Compatible" // what worked with the defaults of its operator keeps them
	} else {
		delete(spec, "profile")
	}
	out := &unstructured.Unstructured{Object: map[string]any{"spec": spec}}
	out.SetGroupVersionKind(gvk)
	out.SetName(o.GetName())
	out.SetLabels(d.convertKeys(o.GetLabels()))
	out.SetAnnotations(d.convertKeys(o.GetAnnotations()))
	return out, c.gaps
}

// convertKeys renames keys, and leaves out those that belong to the original only.
func (d Direction) convertKeys(keys map[string]string) map[string]string {
	var out map[string]string
	for key, value := range keys {
		switch {
		case key == corev1.LastAppliedConfigAnnotation, key == d.From.Key("version"), d.isMigrationKey(key), strings.HasPrefix(key, d.To.Group+"/"):
			continue
		}
		if out == nil {
			out = map[string]string{}
		}
		out[d.rekey(key)] = value
	}
	return out
}

func (d Direction) isMigrationKey(key string) bool {
	switch suffix, _ := strings.CutPrefix(key, d.From.Group+"/"); suffix {
	case suffixMirroredFrom, suffixMirroredGeneration, suffixLegacyMigratedAt, suffixMigrating, suffixMigratedFrom:
		return true
	}
	return false
}

// IsMirrorOf reports whether NodeWright made the object from the Skyhook or the policy of the same name.
func IsMirrorOf(nodeWright *unstructured.Unstructured) bool {
	return nodeWright.GetAnnotations()[NodeWright.Key(suffixMirroredFrom)] == nodeWright.GetName()
}

// CountsAlone reports whether only the object's own keys on nodes count, so that a key that is absent is absent. Otherwise
// NodeWright had made the object from a Skyhook and had not taken over that one's keys yet.
func CountsAlone(nodeWright *unstructured.Unstructured) bool {
	return !IsMirrorOf(nodeWright) || nodeWright.GetAnnotations()[NodeWright.Key(suffixLegacyMigratedAt)] != ""
}

// MarkMigrating returns the annotations of the target while its migration is under way: it is paused, and remembers whether
// it was before.
func (d Direction) MarkMigrating(wanted map[string]string) map[string]string {
	out := map[string]string{}
	maps.Copy(out, wanted)
	out[d.To.Key(suffixMigrating)] = "pause=" + wanted[d.To.Key(suffixPause)]
	out[d.To.Key(suffixPause)] = "true"
	return out
}

// IsMigrating reports whether a migration of the target has begun and not ended.
func (d Direction) IsMigrating(target *unstructured.Unstructured) bool {
	_, is := target.GetAnnotations()[d.To.Key(suffixMigrating)]
	return is
}

// IsMigrated reports whether the migration of the target from this original has ended.
func (d Direction) IsMigrated(target, original *unstructured.Unstructured) bool {
	return !d.IsMigrating(target) && target.GetAnnotations()[d.To.Key(suffixMigratedFrom)] == d.origin(original)
}

// FinishAnnotations are the changes of the target's annotations that end its migration; nil removes one.
func (d Direction) FinishAnnotations(target, original *unstructured.Unstructured) map[string]*string {
	origin := d.origin(original)
	out := map[string]*string{d.To.Key(suffixMigrating): nil, d.To.Key(suffixMigratedFrom): &origin}
	pause, _ := strings.CutPrefix(target.GetAnnotations()[d.To.Key(suffixMigrating)], "pause=")
	out[d.To.Key(suffixPause)] = nil
	if pause != "" {
		out[d.To.Key(suffixPause)] = &pause
	}
	return out
}

func (d Direction) origin(original *unstructured.Unstructured) string {
	return strings.ToLower(d.From.Kind) + "/" + string(original.GetUID())
}

// DropStale removes the marks of a target that a person had set there and the original does not have.
func (d Direction) DropStale(current, wanted map[string]string) map[string]string {
	out := maps.Clone(current)
	if _, ok := wanted[d.To.Key(suffixDisable)]; !ok {
		delete(out, d.To.Key(suffixDisable))
	}
	return out
}

// KeepMarks are the wanted annotations of a target whose migration is under way: it stays paused, and its mark stays.
func (d Direction) KeepMarks(wanted, current map[string]string) map[string]string {
	out := d.MarkMigrating(wanted)
	out[d.To.Key(suffixMigrating)] = current[d.To.Key(suffixMigrating)]
	return out
}

// AddKeys returns labels or annotations with each key of the one side under the name of the other too.
func (d Direction) AddKeys(keys map[string]string) map[string]string {
	out := map[string]string{}
	maps.Copy(out, keys)
	for key, value := range keys {
		if strings.HasPrefix(key, d.From.Group+"/") {
			out[d.rekey(key)] = value
		}
	}
	return out
}

// NewObjectRule returns what is copied on nodes for an object; alone as CountsAlone says.
func NewObjectRule(o *unstructured.Unstructured, alone bool) (ObjectRule, error) {
	rule := ObjectRule{Alone: alone, Interrupts: map[string]bool{}, UID: string(o.GetUID()), Generation: o.GetGeneration()}
	packages, _, _ := unstructured.NestedMap(o.Object, "spec", "packages")
	for name, p := range packages {
		fields, _ := p.(map[string]any)
		rule.Interrupts[name] = fields["interrupt"] != nil
	}
	var spec struct {
		NodeSelectors metav1.LabelSelector `json:"nodeSelectors"`
	}
	raw, _, _ := unstructured.NestedMap(o.Object, "spec")
	if err := runtime.DefaultUnstructuredConverter.FromUnstructured(map[string]any{"nodeSelectors": raw["nodeSelectors"]}, &spec); err != nil {
		return ObjectRule{}, fmt.Errorf("spec.nodeSelectors: %w", err)
	}
	var err error
	if rule.Nodes, err = metav1.LabelSelectorAsSelector(&spec.NodeSelectors); err != nil {
		return ObjectRule{}, fmt.Errorf("spec.nodeSelectors: %w", err)
	}
	return rule, nil
}
