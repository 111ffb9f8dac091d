// SPDX-FileCopyrightText: The Skyhook authors
// SPDX-License-Identifier: Apache-2.0

package rollout

// Taint is what a rollout does with the runtime-required taint.
type Taint struct {
	Required    bool // an unfinished target keeps it on its node
	NewNodes    bool // with Required: new nodes get it
	CordonAfter bool // with Required: a node is cordoned when it is removed, until a person makes it schedulable
}
