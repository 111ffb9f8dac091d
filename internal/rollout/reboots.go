// SPDX-FileCopyrightText: The Skyhook authors
// SPDX-License-Identifier: Apache-2.0

package rollout

import "slices"

// SharedReboot is what a node records of a target that awaits a reboot together with others, see Rollout.SharesReboots. It is recorded
// when everything that comes before the reboot is recorded.
type SharedReboot struct {
	Boot  string   `json:"boot"`            // that the node reported then
	Ended []string `json:"ended,omitempty"` // other boots in which something before the reboot ended: the node may not have reported them yet
	Tasks []string `json:"tasks,omitempty"` // IDs of the interrupts that it carries out; empty after a task ran
}

// NewSharedReboot returns what a node that reports a boot records. What comes before the reboot ended in the other boots; those that are
// unknown are empty.
func NewSharedReboot(boot string, tasks []string, ended ...string) *SharedReboot {
	ended = slices.DeleteFunc(ended, func(other string) bool { return other == "" || other == boot })
	slices.Sort(ended)
	return &SharedReboot{boot, slices.Compact(ended), tasks}
}

// AfterRun returns what is recorded when a task of the target runs: the reboot counts for no interrupt any more, because the task may be
// one that comes before it.
func (r *SharedReboot) AfterRun() *SharedReboot {
	if r == nil {
		return nil
	}
	return &SharedReboot{Boot: r.Boot, Ended: r.Ended}
}

// IsOver reports whether a node that is in a boot has rebooted since everything before the reboot ended, whoever rebooted it.
func (r *SharedReboot) IsOver(boot string) bool {
	return r != nil && boot != "" && r.Boot != boot && !slices.Contains(r.Ended, boot)
}

// Includes reports whether a node that is in a boot carried out an interrupt with the reboot.
func (r *SharedReboot) Includes(task, boot string) bool {
	return r.IsOver(boot) && slices.Contains(r.Tasks, task)
}
