// SPDX-FileCopyrightText: The Skyhook authors
// SPDX-License-Identifier: Apache-2.0

package node

import (
	"time"

	"github.com/skyhook-k8s/skyhook/internal/pack"
)

// Answer is what a node remembers of the preflight of a package. Without an answer nothing is known: the reason says why.
type Answer struct {
	Hash string    `json:"hash"` // of the definition that was asked
	At   time.Time `json:"at"`
	Boot string    `json:"boot,omitempty"` // of the node
	pack.Preflight
}
