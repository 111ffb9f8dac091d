// SPDX-FileCopyrightText: The Skyhook authors
// SPDX-License-Identifier: Apache-2.0

package rollout

import (
	"cmp"
	"strings"
)

// Ref names the object that a rollout, a hold or a ledger belongs to. Namespace is empty for kinds without one. It is
// stored and printed as "Kind/name" or "Kind/namespace/name".
type Ref struct {
	Kind, Namespace, Name string
}

// ParseRef reads what String wrote. A text without a kind is a name alone.
func ParseRef(text string) Ref {
	kind, name, hasKind := strings.Cut(text, "/")
	if !hasKind {
		return Ref{Name: text}
	}
	namespace, inNamespace, isNamespaced := strings.Cut(name, "/")
	if !isNamespaced {
		return Ref{Kind: kind, Name: name}
	}
	return Ref{Kind: kind, Namespace: namespace, Name: inNamespace}
}

// String is the stored form, for example "Skyhook/demo" or "NodeOp/default/check".
func (r Ref) String() string {
	if r.Kind == "" && r.Namespace == "" {
		return r.Name
	}
	return r.Kind + "/" + r.Path()
}

// Path is the reference without its kind: "demo" or "default/check".
func (r Ref) Path() string {
	if r.Namespace == "" {
		return r.Name
	}
	return r.Namespace + "/" + r.Name
}

// Title is the form for sentences: "Skyhook demo" or "NodeOp default/check".
func (r Ref) Title() string {
	return strings.Replace(r.String(), "/", " ", 1)
}

// IsZero reports whether the reference names nothing.
func (r Ref) IsZero() bool { return r == Ref{} }

// Compare orders references like their stored forms.
func (r Ref) Compare(other Ref) int {
	if r == other {
		return 0
	}
	return cmp.Compare(r.String(), other.String())
}

// MarshalText writes the stored form.
func (r Ref) MarshalText() ([]byte, error) { return []byte(r.String()), nil }

// UnmarshalText reads the stored form.
func (r *Ref) UnmarshalText(text []byte) error {
	*r = ParseRef(string(text))
	return nil
}

// GroupRef names a group: a compartment of the object that keeps its budget. It is stored and printed as the owner's
// reference followed by "/compartment".
type GroupRef struct {
	Owner       Ref
	Compartment string
}

// ParseGroupRef reads what String wrote.
func ParseGroupRef(text string) GroupRef {
	last := strings.LastIndex(text, "/")
	if last < 0 {
		return GroupRef{Compartment: text}
	}
	return GroupRef{Owner: ParseRef(text[:last]), Compartment: text[last+1:]}
}

// String is the stored form, for example "Skyhook/demo/__default__".
func (g GroupRef) String() string {
	if g.Owner.IsZero() {
		return g.Compartment
	}
	return g.Owner.String() + "/" + g.Compartment
}

// Name is the compartment as people write it: that of the nodes which no compartment selects is the default.
func (g GroupRef) Name() string {
	if g.Compartment == "__default__" {
		return "default"
	}
	return g.Compartment
}

// Compare orders references like their stored forms.
func (g GroupRef) Compare(other GroupRef) int {
	if g == other {
		return 0
	}
	return cmp.Compare(g.String(), other.String())
}

// IsZero reports whether the reference names nothing.
func (g GroupRef) IsZero() bool { return g == GroupRef{} }

// MarshalText writes the stored form.
func (g GroupRef) MarshalText() ([]byte, error) { return []byte(g.String()), nil }

// UnmarshalText reads the stored form.
func (g *GroupRef) UnmarshalText(text []byte) error {
	*g = ParseGroupRef(string(text))
	return nil
}
