// SPDX-FileCopyrightText: The Skyhook authors
// SPDX-License-Identifier: Apache-2.0

package node

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/skyhook-k8s/skyhook/api/skyhook/v1alpha1"
)

var (
	// Stages are all stages, in the order of a package's life.
	Stages = []v1alpha1.Stage{
		v1alpha1.StageUninstall, v1alpha1.StageUninstallInterrupt, v1alpha1.StageUpgrade, v1alpha1.StageApply,
		v1alpha1.StageConfig, v1alpha1.StageInterrupt, v1alpha1.StagePostInterrupt,
	}
	// States are all states.
	States = []v1alpha1.State{
		v1alpha1.StateComplete, v1alpha1.StateInProgress, v1alpha1.StateSkipped, v1alpha1.StateErroring, v1alpha1.StateUnknown,
	}
)

// ParseState is the one reader of the annotation nodeState_<skyhook>. Entries without a version in their key are from
// before versions existed and mean nothing.
func ParseState(raw string) (v1alpha1.NodeState, error) {
	var state v1alpha1.NodeState
	if err := json.Unmarshal([]byte(raw), &state); err != nil {
		return nil, fmt.Errorf("it is not a JSON object of packages: %w", err)
	}
	for _, key := range slices.Sorted(maps.Keys(state)) {
		entry := state[key]
		name, version, versioned := strings.Cut(key, "|")
		if !versioned || name == "" || version == "" {
			delete(state, key)
			continue
		}
		if !slices.Contains(Stages, entry.Stage) {
			return nil, fmt.Errorf("%s has the stage %q, which does not exist", Truncate(key, 120), Truncate(string(entry.Stage), 40))
		}
		if !slices.Contains(States, entry.State) {
			return nil, fmt.Errorf("%s has the state %q, which does not exist", Truncate(key, 120), Truncate(string(entry.State), 40))
		}
		entry.Name, entry.Version = name, version
		state[key] = entry
	}
	return state, nil
}

// FormatState is the one writer of the annotation nodeState_<skyhook>: keys sorted, the fields of an entry in the order
// of PackageStatus, {} for none. Other programs compare it as text.
func FormatState(state v1alpha1.NodeState) string {
	if len(state) == 0 {
		return "{}"
	}
	return EncodeJSON(state)
}

// HashState ties a record to the text of the nodeState it was written with.
func HashState(raw string) string {
	sum := sha256.Sum256([]byte(raw))
	return hex.EncodeToString(sum[:6])
}

// EncodeJSON returns a value as JSON. It panics for values that JSON does not have.
func EncodeJSON(v any) string {
	b, err := json.Marshal(v)
	if err != nil {
		panic(err) // strings, numbers and times only
	}
	return string(b)
}
