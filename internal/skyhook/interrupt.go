// SPDX-FileCopyrightText: The Skyhook authors
// SPDX-License-Identifier: Apache-2.0

package skyhook

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

// interruptStrength returns 0 for no interrupt.
func interruptStrength(i *v1alpha1.Interrupt) int {
	if i == nil {
		return 0
	}
	return slices.Index(strengths, i.Type) + 1
}

// normalised returns an interrupt with sorted, unique services, and only where its type uses services.
func normalised(i *v1alpha1.Interrupt) *v1alpha1.Interrupt {
	if i == nil {
		return nil
	}
	out := &v1alpha1.Interrupt{Type: i.Type}
	if i.Type == v1alpha1.InterruptService {
		out.Services = slices.Compact(slices.Sorted(slices.Values(i.Services)))
	}
	return out
}

// mergeInterrupts returns one interrupt that does the work of all; nil for none.
func mergeInterrupts(all ...*v1alpha1.Interrupt) *v1alpha1.Interrupt {
	var out *v1alpha1.Interrupt
	var services []string
	for _, i := range all {
		if i == nil {
			continue
		}
		if interruptStrength(i) > interruptStrength(out) {
			out = &v1alpha1.Interrupt{Type: i.Type}
		}
		if i.Type == v1alpha1.InterruptService {
			services = append(services, i.Services...)
		}
	}
	if out != nil {
		out.Services = services
	}
	return normalised(out)
}

// coversInterrupt reports whether i does the work of other.
func coversInterrupt(i, other *v1alpha1.Interrupt) bool {
	return sameInterrupt(mergeInterrupts(i, other), normalised(i))
}

func sameInterrupt(a, b *v1alpha1.Interrupt) bool {
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
		if slices.ContainsFunc(keys, func(key string) bool { return keyMatches(pattern, key) }) {
			out = append(out, &i)
		}
	}
	return mergeInterrupts(out...)
}

// keyMatches reports whether a key of configInterrupts matches a key, exactly or as a pattern.
func keyMatches(pattern, key string) bool {
	if pattern == key {
		return true
	}
	ok, err := path.Match(pattern, key)
	return err == nil && ok
}

// encodeInterrupt returns the interrupt as an argument of the agent.
func encodeInterrupt(i *v1alpha1.Interrupt) string {
	return pack.Interrupt{Type: pack.InterruptType(i.Type), Services: i.Services}.Encode()
}

// describeInterrupt describes an interrupt for users.
func describeInterrupt(i *v1alpha1.Interrupt) string {
	switch {
	case i == nil:
		return "nothing"
	case i.Type == v1alpha1.InterruptReboot:
		return "a reboot"
	case i.Type == v1alpha1.InterruptRestartAllServices:
		return "a restart of all services"
	case i.Type == v1alpha1.InterruptService:
		return "a restart of " + listNames(i.Services, 5)
	}
	return "an interrupt that does nothing"
}
