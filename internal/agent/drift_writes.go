// SPDX-FileCopyrightText: The Skyhook authors
// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"fmt"
	"reflect"
	"slices"
	"syscall"

	"github.com/skyhook-k8s/skyhook/internal/pack"
)

// noteWritten notes the delivered files that changed while the checks ran, and the check that did it, as far as that is known.
func (d *driftRun) noteWritten(before, after []differing) {
	note := func(changed, known []differing) {
		for _, f := range changed {
			isSame := func(k differing) bool { return k.Path == f.Path && reflect.DeepEqual(k.now, f.now) }
			isNoted := func(w pack.DriftWrite) bool { return w.Path == f.Path }
			if slices.ContainsFunc(known, isSame) || slices.ContainsFunc(d.found.Wrote, isNoted) {
				continue
			}
			w := d.wrote[f.Path]
			w.Path = f.Path
			d.found.Wrote = append(d.found.Wrote, w)
		}
	}
	note(after, before)
	note(before, after) // those that a check made what they should be
}

// noteMarks notes which delivered files have changed since the last time, after a step of a check. The first time no step has run.
func (d *driftRun) noteMarks(check pack.Mode, step string) {
	marks := map[string]string{}
	for _, f := range d.delivered() {
		marks[f.Path] = d.markOf(f.Path)
		if d.marks != nil && marks[f.Path] != d.marks[f.Path] {
			d.wrote[f.Path] = pack.DriftWrite{Check: check, Step: step}
		}
	}
	if d.marks = marks; d.wrote == nil {
		d.wrote = map[string]pack.DriftWrite{}
	}
}

// markOf returns what changes when a file is written, replaced or removed. The time of the change of an inode cannot be set back.
func (d *driftRun) markOf(at string) string {
	dir, leaf, err := d.files.Parent(at)
	if err != nil {
		return "absent"
	}
	defer dir.Close()
	st, err := dir.Lstat(leaf)
	if err != nil {
		return "absent"
	}
	sys, isKnown := st.Sys().(*syscall.Stat_t)
	if !isKnown {
		return ""
	}
	return fmt.Sprint(sys.Ino, sys.Ctim, sys.Size, st.Mode())
}
