// SPDX-FileCopyrightText: The Skyhook authors
// SPDX-License-Identifier: Apache-2.0

package nodeop

import "strings"

// The label and annotations that say which Kairos a node runs.
const (
	annotationVersion  = "kairos.io/version"
	labelPrefix        = "kairos.io/software-version-prefix"
	labelSoftware      = "kairos.io/software-version"
	mostLabelledLength = 63
)

// versionOf is the version of Kairos that a node runs, as its labels say; empty when they do not.
func versionOf(n *Node) string {
	version := n.Annotations[annotationVersion]
	if version == "" {
		return ""
	}
	return version + "-" + n.Labels[labelPrefix] + n.Labels[labelSoftware]
}

// sanitise is a text as a label can carry it.
func sanitise(s string) string {
	s = strings.Map(func(r rune) rune {
		if r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z' || r >= '0' && r <= '9' || strings.ContainsRune("-_.", r) {
			return r
		}
		return '-'
	}, s)
	s = strings.Trim(s, "-_.")
	if len(s) > mostLabelledLength {
		s = strings.Trim(s[:mostLabelledLength], "-_.")
	}
	return s
}
