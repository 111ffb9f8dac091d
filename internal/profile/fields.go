// SPDX-FileCopyrightText: The Skyhook authors
// SPDX-License-Identifier: Apache-2.0

package profile

import (
	"maps"
	"slices"
	"strings"

	"github.com/skyhook-k8s/skyhook/api/skyhook/v1alpha1"
	"github.com/skyhook-k8s/skyhook/internal/rollout"
)

// Fields are names of fields that an object leaves out and its profile filled in.
type Fields []string

// Names of fields that a profile fills in.
const (
	FieldAvoid       = "avoid"
	fieldBudget      = "interruptionBudget"
	fieldConcurrency = "concurrency"
	fieldUnavailable = "budget.countUnavailable"
	fieldThreshold   = "failureThreshold"
	fieldWait        = ".wait" // of drainConfig and drainOptions
	fieldMarks       = "nodeMarks"
	fieldReboots     = "shareReboots"
	fieldPreflight   = "preflight"
	fieldProof       = "proof"
	fieldRollback    = "rollback"
	fieldPins        = "pinImages" // a setting of the operator
)

var reasonsOfLimits = []rollout.Reason{rollout.ReasonBudget, rollout.ReasonTopology, rollout.ReasonBatch, rollout.ReasonStopped}

// reasons are those for which a node waits or fails because of what a field was filled in with.
var reasons = map[string][]rollout.Reason{
	fieldBudget:                reasonsOfLimits,
	fieldConcurrency:           reasonsOfLimits,
	fieldThreshold:             {rollout.ReasonStopped},
	"drainConfig" + fieldWait:  {rollout.ReasonProtectedPod},
	"drainOptions" + fieldWait: {rollout.ReasonProtectedPod},
	fieldReboots:               {rollout.ReasonSharedReboot},
	fieldProof:                 {rollout.ReasonProof, rollout.ReasonProofFailed},
	fieldRollback:              {rollout.ReasonRolledBack},
	fieldPins:                  {rollout.ReasonImageDigest},
	FieldAvoid:                 {rollout.ReasonInOthersCare},
}

// Has reports whether a field is one of them.
func (names Fields) Has(name string) bool { return slices.Contains(names, name) }

// Defaults are what the fields decided, and what is by the profile of the policy.
func (names Fields) Defaults(profile string, ofPolicy rollout.Defaults) rollout.Defaults {
	out := rollout.Defaults{}
	maps.Copy(out, ofPolicy)
	for _, name := range names {
		for _, reason := range reasons[name] {
			out[reason] = "profile " + profile + ": " + name
		}
	}
	return out
}

// Chosen is the profile of an object, why it applies, and what it filled in.
type Chosen struct {
	v1alpha1.ProfileStatus
	Fills Fields `json:"fills,omitempty"`
}

// String says which profile applies, and why.
func (c *Chosen) String() string { return string(c.Name) + " (" + string(c.Reason) + ")" }

// Describe also says what it filled in.
func (c *Chosen) Describe() string {
	if len(c.Fills) == 0 {
		return c.String()
	}
	return c.String() + " fills in " + strings.Join(c.Fills, ", ")
}
