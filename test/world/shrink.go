// SPDX-FileCopyrightText: The Skyhook authors
// SPDX-License-Identifier: Apache-2.0

package world

import (
	"bytes"
	"errors"
	"fmt"
	"slices"
	"strings"

	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/skyhook-k8s/skyhook/internal/dump"
	"github.com/skyhook-k8s/skyhook/internal/options"
)

// Shrink leaves out the events of a failed run without which it breaks the same rule, and returns the run that is left.
func (r *Run) Shrink() *Run {
	rule := ruleOf(r.err)
	best := r
	for _, size := range []int{8, 4, 2, 1} {
		for at := 0; at < len(best.Events); {
			fewer := best.With(slices.Delete(slices.Clone(best.Events), at, min(at+size, len(best.Events))))
			if ruleOf(fewer.Play()) == rule {
				best = fewer
			} else {
				at += size
			}
		}
	}
	return best
}

// ruleOf is the name of the rule that a run broke.
func ruleOf(err error) string {
	if v, isViolation := errors.AsType[*Violation](err); isViolation {
		return v.Rule
	}
	return ""
}

// Scenario is the run in words: its events and what it broke.
func (r *Run) Scenario() string {
	var b strings.Builder
	fmt.Fprintf(&b, "seed %d", r.Seed)
	for _, e := range r.Events {
		fmt.Fprintf(&b, "\n  %s", e)
	}
	fmt.Fprintf(&b, "\n%v", r.err)
	return b.String()
}

// Snapshot is the cluster as it is at the end of the run, in the format of kubectl skyhook dump.
func (r *Run) Snapshot() ([]byte, error) {
	d, err := dump.New(nil, r.now)
	if err != nil {
		return nil, err
	}
	d.Operator = dump.Operator{Source: "world", Options: *options.Defaults()}
	d.Operator.Namespace, d.Operator.Profile = Namespace, string(r.config().Profile)
	for _, k := range allKinds {
		for _, key := range r.server.keys(k) {
			o, err := r.server.scheme.New(k.GroupVersionKind)
			if err != nil {
				return nil, err
			}
			if err := d.Put(decode(r.server.objects[k.Kind][key], o.(client.Object))); err != nil {
				return nil, err
			}
		}
	}
	var out bytes.Buffer
	err = d.Write(&out)
	return out.Bytes(), err
}
