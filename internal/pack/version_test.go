// SPDX-FileCopyrightText: The Skyhook authors
// SPDX-License-Identifier: Apache-2.0

package pack

import (
	"testing"

	"pgregory.net/rapid"
)

func TestCheckVersion(t *testing.T) {
	for _, good := range []string{"1.0.0", "0.2.1", "2024.12.19", "1.2.3-rc.1", "1.2.3+build.01", "1.2.3-x-y.0+z"} {
		if err := CheckVersion(good); err != nil {
			t.Error(err)
		}
	}
	for _, bad := range []string{"", "1.0", "1", "v1.0.0", "01.0.0", "2024.07.28", "1.0.0-", "1.0.0-01", "1.0.0+", "1.0.0.0", " 1.0.0", "1.0.x", "latest"} {
		if err := CheckVersion(bad); err == nil {
			t.Errorf("%q was accepted", bad)
		}
	}
	const want = `"1.0" is not a semantic version such as 1.2.3 or 1.2.3-rc.1`
	if err := CheckVersion("1.0"); err.Error() != want {
		t.Error(err)
	}
}

// TestVersionOrder: each line is one version written in several ways; the
// lines are in order.
func TestVersionOrder(t *testing.T) {
	order := [][]string{
		{""}, {"1.2.3.4"}, {"latest"}, {"v"}, // no versions, by their bytes
		{"0", "v0", "0.0.0", "00.0"},
		{"0.9.0-rc.1", "0.9-rc.01", "v0.9.0-rc.1+x"},
		{"0.9.0-rc.2"}, {"0.9.0-rc.10", "0.9.0-rc.010"}, {"0.9.0-rc.a"},
		{"0.9.0", "0.9", "0.9.0+build", "V0.9"},
		{"1.2.3-test"}, {"1.2.3"}, {"1.2.10"}, {"1.10.0"},
		{"2024.5.9", "2024.05.09"}, {"2024.5.10", "2024.05.10", "v2024.05.10"}, {"2024.12.1"},
	}
	for i, a := range order {
		for j, b := range order {
			for _, x := range a {
				for _, y := range b {
					want := 0
					if i < j {
						want = -1
					} else if i > j {
						want = 1
					}
					if got := CompareVersions(x, y); got != want {
						t.Errorf("%q against %q is %d, want %d", x, y, got, want)
					}
				}
			}
		}
	}
}

// TestVersionsInUse are tags seen in use.
func TestVersionsInUse(t *testing.T) {
	for _, s := range []string{"1.2", "1.2.3", "2.3.1-test", "3.3", "2024.7.7", "2024.7.7-test", "2024.05.10", "v1", "1.2.3-dev.sha1234567"} {
		if _, err := ParseVersion(s); err != nil {
			t.Error(err)
		}
	}
	const want = `"latest" is not a version such as 1.2.3, v1.2 or 2024.05.10`
	if _, err := ParseVersion("latest"); err == nil || err.Error() != want {
		t.Error(err)
	}
}

// TestVersionOrderIsTotal: any three strings agree on their order.
func TestVersionOrderIsTotal(t *testing.T) {
	part := rapid.OneOf(rapid.SampledFrom([]string{"", "0", "1", "01", "10", "a", "rc", "-"}), rapid.StringN(0, 3, 6))
	version := rapid.Custom(func(t *rapid.T) string {
		s := rapid.SampledFrom([]string{"", "v", "V"}).Draw(t, "v") + part.Draw(t, "major")
		for _, sep := range rapid.SliceOfN(rapid.SampledFrom([]string{".", "-", "+"}), 0, 4).Draw(t, "separators") {
			s += sep + part.Draw(t, "part")
		}
		return s
	})
	rapid.Check(t, func(t *rapid.T) {
		a, b, c := version.Draw(t, "a"), version.Draw(t, "b"), version.Draw(t, "c")
		if CompareVersions(a, b) != -CompareVersions(b, a) || CompareVersions(a, a) != 0 {
			t.Fatalf("%q and %q do not agree", a, b)
		}
		if CompareVersions(a, b) <= 0 && CompareVersions(b, c) <= 0 && CompareVersions(a, c) > 0 {
			t.Fatalf("%q ≤ %q ≤ %q, but not the first and the last", a, b, c)
		}
	})
}
