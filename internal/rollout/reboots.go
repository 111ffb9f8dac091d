// SPDX-FileCopyrightText: The Skyhook authors
// SPDX-License-Identifier: Apache-2.0

package rollout

import "slices"

// SharedReboot is what a node records of a target that awaits a reboot together with others, see Rollout.SharesReboots. It is recorded
// when everything that comes before the reboot is recorded.
type SharedReboot struct {
	Boot  string   `json:"boot"`            // the boot that the reboot ends; it counts as soon as the node is ready in another one
	Tasks []string `json:"tasks,omitempty"` // IDs of the interrupts that it carries out; empty after a task ran
}

// AfterRun returns what is recorded when a task of the target runs: the reboot counts for no interrupt any more, because the task may be
// one that comes before it.
func (r *SharedReboot) AfterRun() *SharedReboot {
	if r == nil {
		return nil
	}
	return &SharedReboot{Boot: r.Boot}
}

// Includes reports whether a node that is in a boot carried out an interrupt with the reboot.
func (r *SharedReboot) Includes(task, boot string) bool {
	return r != nil && boot != "" && r.Boot != boot && slices.Contains(r.Tasks, task)
}
