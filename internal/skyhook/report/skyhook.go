// SPDX-FileCopyrightText: The Skyhook authors
// SPDX-License-Identifier: Apache-2.0

package report

// Event is an event on a node, on the Skyhook, or on both.
type Event struct {
	Node      string // empty: on the Skyhook only
	OnSkyhook bool   // on the Skyhook too
	Type      string // corev1.EventTypeNormal or corev1.EventTypeWarning
	Reason    string
	Message   string
}
