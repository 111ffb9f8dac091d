// SPDX-FileCopyrightText: The Skyhook authors
// SPDX-License-Identifier: Apache-2.0

package rollout

// Approval is whether a person let a group begin.
type Approval struct {
	Required bool     // nothing is admitted before; a rollout that is deleted needs none
	Of       Versions // what would begin now; it is not approved while that is unknown
	Given    Versions // what a person approved; empty for nothing
	By       string   // who approved Given
	Problem  string   // why what is recorded cannot be read
}

// Includes reports whether a rollout may begin: no approval is required, or a person approved exactly what it rolls out now.
func (a *Approval) Includes(r Ref) bool {
	if !a.Required {
		return true
	}
	now, given := a.Of.split(), a.Given.split()
	id := versionsID(r)
	if now[id] == "" {
		id = "" // the hash alone, of one rollout or of more than are told apart
	}
	return now[id] != "" && now[id] == given[id]
}
