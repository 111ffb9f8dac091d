// SPDX-FileCopyrightText: The Skyhook authors
// SPDX-License-Identifier: Apache-2.0

package rollout

import (
	"crypto/sha256"
	"encoding/hex"
	"maps"
	"slices"
	"strings"
)

// Versions identify what the rollouts of a group roll out: a hash for each of them, as "ID=hash,ID=hash" in the order of the
// IDs. A group of one rollout may have the hash alone. They are empty when nothing is known.
type Versions string

// maxVersions bounds how many rollouts are told apart. Of more there is one hash.
const maxVersions = 64

// NewVersions returns the versions of one rollout in a group that several share.
func NewVersions(r Ref, hash string) Versions {
	if hash == "" {
		return ""
	}
	return Versions(versionsID(r) + "=" + hash)
}

func versionsID(r Ref) string { return shortHash(r.String(), 4) }

func shortHash(text string, bytes int) string {
	sum := sha256.Sum256([]byte(text))
	return hex.EncodeToString(sum[:bytes])
}

// split returns the hashes by ID; a hash alone has no ID.
func (v Versions) split() map[string]string {
	out := map[string]string{}
	for entry := range strings.SplitSeq(string(v), ",") {
		id, hash, hasID := strings.Cut(entry, "=")
		if !hasID {
			id, hash = "", entry
		}
		if hash != "" {
			out[id] = hash
		}
	}
	return out
}

// joinVersions is the inverse of split.
func joinVersions(hashes map[string]string) Versions {
	entries := make([]string, 0, len(hashes))
	for _, id := range slices.Sorted(maps.Keys(hashes)) {
		if id == "" {
			entries = append(entries, hashes[id])
			continue
		}
		entries = append(entries, id+"="+hashes[id])
	}
	return Versions(strings.Join(entries, ","))
}

// Merge returns the versions of both. Two hashes without IDs become one.
func (v Versions) Merge(o Versions) Versions {
	switch {
	case o == "" || v == o:
		return v
	case v == "":
		return o
	}
	all, others := v.split(), o.split()
	isMixed := all[""] != "" || others[""] != ""
	maps.Copy(all, others)
	if isMixed || len(all) > maxVersions {
		return Versions(shortHash(string(v)+"+"+string(o), 8))
	}
	return joinVersions(all)
}

// Restrict returns the versions of some rollouts, or all if none of these has any.
func (v Versions) Restrict(rollouts map[Ref]bool) Versions {
	hashes := v.split()
	kept := map[string]string{}
	for r := range rollouts {
		if id := versionsID(r); hashes[id] != "" {
			kept[id] = hashes[id]
		}
	}
	if len(kept) == 0 {
		return v
	}
	return joinVersions(kept)
}

// IsReplaced reports whether something else is rolled out now. When a rollout appears, that is new: batches begin with few nodes
// again. But it does not make a stopped group continue: for that a rollout of these versions has to change or to go.
func (v Versions) IsReplaced(now Versions, isStopped bool) bool {
	before, after := v.split(), now.split()
	for id, hash := range before {
		got, exists := after[id]
		isChanged := exists && got != hash
		hasGone := !exists && isStopped
		if isChanged || hasGone {
			return true
		}
	}
	hasNew := len(after) > 0 && slices.ContainsFunc(slices.Collect(maps.Keys(after)), func(id string) bool { return before[id] == "" })
	return hasNew && !isStopped
}

// HasIDs reports whether rollouts are told apart. Earlier operators stored one hash for all of a shared group.
func (v Versions) HasIDs() bool { return strings.Contains(string(v), "=") }
