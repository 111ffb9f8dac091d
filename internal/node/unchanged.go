// SPDX-FileCopyrightText: The Skyhook authors
// SPDX-License-Identifier: Apache-2.0

package node

import (
	"cmp"
	"slices"
	"strings"
)

// Compare orders nodes by their creation, then their names.
func Compare(a, b *Node) int {
	return cmp.Or(a.Created.Compare(b.Created), strings.Compare(a.Name, b.Name))
}

// IndexByName returns the places of what belongs to nodes, by their names. The index of what was there before, nil for none, is used again
// if the nodes are the same.
func IndexByName[K comparable](before []K, index map[string]int, all []K, nodeOf func(K) *Node) map[string]int {
	isSame := func(a, b K) bool { return a == b || nodeOf(a).Name == nodeOf(b).Name }
	if index != nil && slices.EqualFunc(all, before, isSame) {
		return index
	}
	index = make(map[string]int, len(all))
	for i, k := range all {
		index[nodeOf(k).Name] = i
	}
	return index
}
