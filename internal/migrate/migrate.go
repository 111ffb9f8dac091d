// SPDX-FileCopyrightText: The Skyhook authors
// SPDX-License-Identifier: Apache-2.0

// Package migrate computes what a move from another operator to this one changes: NodeWright objects and their keys on
// nodes, in both directions, and manifests that do the same as kured. It reads and writes nothing itself.
package migrate

import (
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/skyhook-k8s/skyhook/api/skyhook/v1alpha1"
)

// Gap is something of the original that has no counterpart.
type Gap struct {
	Object string `json:"object"` // kind and name, such as NodeWright/demo
	Field  string `json:"field"`  // a field or a flag
	Text   string `json:"text"`   // what that means, and what to do
}

func (g Gap) String() string { return g.Object + ": " + g.Field + ": " + g.Text }

// Side is one of the two operators: where it keeps what it knows.
type Side struct {
	Group string
	Kind  string
	Taint corev1.Taint // the default of its runtime-required taint
}

// The two sides.
var (
	NodeWright = Side{Group: "nodewright.nvidia.com", Kind: "NodeWright", Taint: runtimeRequired("nodewright.nvidia.com")}
	Skyhook    = Side{Group: v1alpha1.Group, Kind: "Skyhook", Taint: runtimeRequired(v1alpha1.Group)}
)

func runtimeRequired(key string) corev1.Taint {
	return corev1.Taint{Key: key, Value: "runtime-required", Effect: corev1.TaintEffectNoSchedule}
}

// GVK is the kind of the side's main object.
func (s Side) GVK() schema.GroupVersionKind {
	return schema.GroupVersionKind{Group: s.Group, Version: "v1alpha1", Kind: s.Kind}
}

// PolicyGVK is the kind of the side's policies.
func (s Side) PolicyGVK() schema.GroupVersionKind {
	return schema.GroupVersionKind{Group: s.Group, Version: "v1alpha1", Kind: "DeploymentPolicy"}
}

// Key is an annotation or a label of the side.
func (s Side) Key(suffix string) string { return s.Group + "/" + suffix }

// Direction says from which side to which.
type Direction struct{ From, To Side }

// The two directions.
var (
	ToSkyhook    = Direction{From: NodeWright, To: Skyhook}
	ToNodeWright = Direction{From: Skyhook, To: NodeWright}
)

// rekey is a key of the one side as the other has it; a foreign key stays as it is.
func (d Direction) rekey(key string) string {
	if suffix, ok := strings.CutPrefix(key, d.From.Group+"/"); ok {
		return d.To.Key(suffix)
	}
	return key
}

// Suffixes of annotations on objects that only a migration reads or writes.
const (
	suffixMirroredFrom       = "mirrored-from"       // by NodeWright: the name of the Skyhook that the object was made from
	suffixMirroredGeneration = "mirrored-generation" // by NodeWright: its generation
	suffixLegacyMigratedAt   = "legacy-migrated-at"  // by NodeWright: its keys on nodes count since then
	suffixMigrating          = "migrating"           // by us: a migration is under way; the value that pause had before
	suffixMigratedFrom       = "migrated-from"       // by us: a migration is complete; kind and UID of the original
	suffixPause              = "pause"
	suffixDisable            = "disable"
)
