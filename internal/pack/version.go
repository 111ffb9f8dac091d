// SPDX-FileCopyrightText: The Skyhook authors
// SPDX-License-Identifier: Apache-2.0

package pack

import (
	"cmp"
	"fmt"
	"strings"

	"github.com/Masterminds/semver/v3"
)

// CheckVersion accepts what config.json accepts: semantic version 2.0 in full,
// without a leading v.
func CheckVersion(s string) error {
	if _, err := semver.StrictNewVersion(s); err != nil {
		return fmt.Errorf("%s is not a semantic version such as 1.2.3 or 1.2.3-rc.1", quoteValue(s))
	}
	return nil
}

// ParseVersion reads a version as the Skyhook resource takes it: one to three
// numbers, with or without a leading v and leading zeros (v1, 1.2, 2024.05.10),
// then an optional pre-release and build.
func ParseVersion(s string) (*semver.Version, error) {
	v, err := semver.NewVersion(normalizeVersion(s))
	if err != nil {
		return nil, fmt.Errorf("%s is not a version such as 1.2.3, v1.2 or 2024.05.10", quoteValue(s))
	}
	return v, nil
}

// CompareVersions orders any two strings: -1, 0 or 1. Versions that ParseVersion
// reads follow the precedence of semantic versions, where missing numbers are 0
// and the build does not count, so v1, 1.0 and 1.0.0+x are equal. Strings that
// are no versions come before all versions, in the order of their bytes.
func CompareVersions(a, b string) int {
	if a == b {
		return 0
	}
	va, errA := ParseVersion(a)
	vb, errB := ParseVersion(b)
	switch {
	case errA != nil && errB != nil:
		return cmp.Compare(a, b)
	case errA != nil:
		return -1
	case errB != nil:
		return 1
	}
	return va.Compare(vb)
}

// normalizeVersion drops what semantic versions do not allow but people write: a
// capital V, and leading zeros of numbers, those of a pre-release included.
func normalizeVersion(s string) string {
	if strings.HasPrefix(s, "V") {
		s = "v" + s[1:]
	}
	rest, build, hasBuild := strings.Cut(s, "+")
	core, pre, hasPre := strings.Cut(rest, "-")
	if !hasPre {
		return s
	}
	parts := strings.Split(pre, ".")
	for i, part := range parts {
		if leadingDigits(part) == len(part) && len(part) > 1 {
			parts[i] = strings.TrimLeft(part[:len(part)-1], "0") + part[len(part)-1:]
		}
	}
	s = core + "-" + strings.Join(parts, ".")
	if hasBuild {
		s += "+" + build
	}
	return s
}
