// SPDX-FileCopyrightText: The Skyhook authors
// SPDX-License-Identifier: Apache-2.0

package plan

import (
	"maps"
	"path"
	"slices"

	"github.com/skyhook-k8s/skyhook/api/skyhook/v1alpha1"
	"github.com/skyhook-k8s/skyhook/internal/pack"
)

// strengths order the interrupts: a stronger one includes the weaker ones.
var strengths = []v1alpha1.InterruptType{
	v1alpha1.InterruptNoop, v1alpha1.InterruptService, v1alpha1.InterruptRestartAllServices, v1alpha1.InterruptReboot,
}

// InterruptStrength returns 0 for no interrupt.
func InterruptStrength(i *v1alpha1.Interrupt) int {
	if i == nil {
		return 0
	}
	return slices.Index(strengths, i.Type) + 1
}

// Normalised returns an interrupt with sorted, unique services, and only where its type uses services.
func Normalised(i *v1alpha1.Interrupt) *v1alpha1.Interrupt {
	if i == nil {
		return nil
	}
	out := &v1alpha1.Interrupt{Type: i.Type}
	if i.Type == v1alpha1.InterruptService {
		out.Services = slices.Compact(slices.Sorted(slices.Values(i.Services)))
	}
	return out
}

// MergeInterrupts returns one interrupt that does the work of all; nil for none.
func MergeInterrupts(all ...*v1alpha1.Interrupt) *v1alpha1.Interrupt {
	var out *v1alpha1.Interrupt
	var services []string
	for _, i := range all {
		if i == nil {
			continue
		}
		if InterruptStrength(i) > InterruptStrength(out) {
			out = &v1alpha1.Interrupt{Type: i.Type}
		}
		if i.Type == v1alpha1.InterruptService {
			services = append(services, i.Services...)
		}
	}
	if out != nil {
		out.Services = services
	}
	return Normalised(out)
}

// CoversInterrupt reports whether i does the work of other.
func CoversInterrupt(i, other *v1alpha1.Interrupt) bool {
	return SameInterrupt(MergeInterrupts(i, other), Normalised(i))
}

// SameInterrupt reports whether two interrupts do the same.
func SameInterrupt(a, b *v1alpha1.Interrupt) bool {
	if a == nil || b == nil {
		return a == b
	}
	return a.Type == b.Type && slices.Equal(a.Services, b.Services)
}

// configInterrupt merges the interrupts whose key or pattern matches a changed key. Keys without a match need no
// interrupt; the package's own interrupt is not used.
func configInterrupt(p v1alpha1.Package, keys []string) *v1alpha1.Interrupt {
	var out []*v1alpha1.Interrupt
	for _, pattern := range slices.Sorted(maps.Keys(p.ConfigInterrupts)) {
		i := p.ConfigInterrupts[pattern]
		if slices.ContainsFunc(keys, func(key string) bool { return KeyMatches(pattern, key) }) {
			out = append(out, &i)
		}
	}
	return MergeInterrupts(out...)
}

// KeyMatches reports whether a key of configInterrupts matches a key, exactly or as a pattern.
func KeyMatches(pattern, key string) bool {
	if pattern == key {
		return true
	}
	ok, err := path.Match(pattern, key)
	return err == nil && ok
}

// EncodeInterrupt returns the interrupt as an argument of the agent.
func EncodeInterrupt(i *v1alpha1.Interrupt) string {
	return pack.Interrupt{Type: pack.InterruptType(i.Type), Services: i.Services}.Encode()
}
