// SPDX-FileCopyrightText: The Skyhook authors
// SPDX-License-Identifier: Apache-2.0

package pack

import (
	"io/fs"
	"slices"
	"strings"
	"testing"
	"testing/fstest"
	"time"

	"github.com/google/go-cmp/cmp"
)

func TestResourceID(t *testing.T) {
	r := ResourceID{Owner: "my.cr-0b2c6c1e-2f8e-4b9e-9f3b-5b7f1a1f6a11-3", Package: "tuning", Version: "1.1.4-rc_1"}
	if got, err := ParseResourceID(r.String()); err != nil || got != r {
		t.Errorf("%+v, %v", got, err)
	}
	for in, want := range map[string]string{
		"":           `SKYHOOK_RESOURCE_ID is "": it must be {skyhook}-{uid}-{generation}_{package}_{version}`,
		"a_b":        `SKYHOOK_RESOURCE_ID is "a_b": it must be {skyhook}-{uid}-{generation}_{package}_{version}`,
		"a__1":       `SKYHOOK_RESOURCE_ID is "a__1": its three parts must be names without slashes`,
		"a_../x_1.0": `SKYHOOK_RESOURCE_ID is "a_../x_1.0": its three parts must be names without slashes`,
		"a_.._1.0":   `SKYHOOK_RESOURCE_ID is "a_.._1.0": its three parts must be names without slashes`,
	} {
		if _, err := ParseResourceID(in); err == nil || err.Error() != want {
			t.Errorf("%q: %v", in, err)
		}
	}
}

func TestDeadline(t *testing.T) {
	at := time.Date(2026, 1, 31, 13, 0, 0, 0, time.FixedZone("", 3600))
	if got := FormatDeadline(at); got != "2026-01-31T12:00:00Z" {
		t.Error(got)
	}
	if got, err := ParseDeadline("2026-01-31T12:00:00Z"); err != nil || !got.Equal(at) {
		t.Error(got, err)
	}
	if got, err := ParseDeadline(""); err != nil || !got.IsZero() {
		t.Error(got, err)
	}
	const want = `SKYHOOK_DEADLINE is "soon": it must be a time such as 2026-01-31T12:00:00Z`
	if _, err := ParseDeadline("soon"); err == nil || err.Error() != want {
		t.Error(err)
	}
}

func TestNames(t *testing.T) {
	list := []string{"TOKEN", "PASSWORD"}
	if got := SplitNames(JoinNames(list)); !slices.Equal(got, list) {
		t.Error(got)
	}
	if got := SplitNames(" TOKEN, PASSWORD,,\n"); !slices.Equal(got, list) {
		t.Error(got)
	}
	if got := SplitNames(""); len(got) != 0 {
		t.Error(got)
	}
}

func TestModes(t *testing.T) {
	for _, m := range Modes() {
		if got, ok := ParseMode(string(m)); !ok || got != m {
			t.Errorf("%s is %s, %v", m, got, ok)
		}
		if m.IsCheck() && (m.Check() != m || m.Action().Check() != m || m.Action().IsCheck()) {
			t.Errorf("%s: check %s, action %s", m, m.Check(), m.Action())
		}
	}
	if _, ok := ParseMode("Apply"); ok {
		t.Error("mode words are exact")
	}
	if ModeApply.Check() != ModeApplyCheck || ModeInterrupt.Check() != "" || ModeInterrupt.HasSteps() || ModePreflight.Check() != "" || !ModePreflight.HasSteps() || ModePreflight.HasCheck() {
		t.Error("wrong checks")
	}
	if !ModePreflight.IsReadOnly() || !ModeDrift.IsReadOnly() || !ModeApplyCheck.IsReadOnly() || ModeApply.IsReadOnly() || ModeInterrupt.IsReadOnly() {
		t.Error("wrong modes are read-only")
	}
	if !ModeUninstallCheck.Uninstalls() || ModeApply.Uninstalls() || !ModeUpgradeCheck.Upgrades() || ModeConfig.Upgrades() {
		t.Error("wrong kinds")
	}
	list := Modes()
	list[0] = "changed"
	if Modes()[0] != ModePreflight {
		t.Error("the list can be changed from outside")
	}
}

func TestConfigDigest(t *testing.T) {
	// Pinned: operator and agent of different releases must agree.
	for want, config := range map[string]map[string]string{
		"e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855": nil,
		"63662dceceaac3caee9e43ac15aa0c4c567225916cd9af28900e1dd71438b73e": {"b": "2", "a": "1"},
	} {
		if got := ConfigDigest(config); got != want {
			t.Errorf("%v has digest %s", config, got)
		}
	}
	seen := map[string]map[string]string{}
	for _, c := range []map[string]string{{}, {"a": ""}, {"": "a"}, {"a": "b"}, {"ab": ""}, {"a": "", "b": ""}, {"a": "b\x00"}, {"a": "\x00b"}} {
		d := ConfigDigest(c)
		if other, twice := seen[d]; twice {
			t.Errorf("%v and %v share a digest", c, other)
		}
		seen[d] = c
	}
}

// TestConfigDigestFS: the mount, with the kubelet's links, and a plain copy of
// it have the digest of the map.
func TestConfigDigestFS(t *testing.T) {
	config := map[string]string{"sysctl.conf": "a=1\n", "empty": ""}
	mount := fstest.MapFS{
		"..2026_01_31/sysctl.conf": {Data: []byte("a=1\n")},
		"..2026_01_31/empty":       {},
		"..data":                   {Data: []byte("..2026_01_31"), Mode: fs.ModeSymlink | 0o777},
		"sysctl.conf":              {Data: []byte("..data/sysctl.conf"), Mode: fs.ModeSymlink | 0o777},
		"empty":                    {Data: []byte("..data/empty"), Mode: fs.ModeSymlink | 0o777},
	}
	plain := fstest.MapFS{"sysctl.conf": {Data: []byte("a=1\n")}, "empty": {}}
	for name, dir := range map[string]fstest.MapFS{"mount": mount, "copy": plain} {
		got, err := ConfigDigestFS(dir)
		if err != nil || got != ConfigDigest(config) {
			t.Errorf("%s: %s, %v", name, got, err)
		}
	}
	if got, err := ConfigDigestFS(fstest.MapFS{"folder/file": {}}); err != nil || got != ConfigDigest(nil) {
		t.Errorf("a folder counts as a key: %s, %v", got, err)
	}
	if _, err := ConfigDigestFS(fstest.MapFS{"gone": {Data: []byte("nowhere"), Mode: fs.ModeSymlink | 0o777}}); err == nil {
		t.Error("a dangling link is no key")
	}
	large := &fstest.MapFile{Data: make([]byte, MaxConfig/2+1)}
	if _, err := ConfigDigestFS(fstest.MapFS{"a": large, "b": large}); err == nil || !strings.Contains(err.Error(), "config file b: with it the files of its folder have more than 4 MiB") {
		t.Errorf("files without a bound: %v", err)
	}
	gone, err := fs.Sub(plain, "nowhere")
	if err != nil {
		t.Fatal(err)
	}
	if got, err := ConfigDigestFS(gone); err != nil || got != ConfigDigest(nil) {
		t.Errorf("a folder that is not there is not an empty config: %s, %v", got, err)
	}
}

func TestClosest(t *testing.T) {
	words := []string{"apply", "apply-check", "config", "post-interrupt", "uninstall"}
	for in, want := range map[string]string{
		"aply": "apply", "appyl": "apply", "Apply_Check": "apply-check", "postinterrupt": "post-interrupt", "un-install": "uninstall",
		"configure": "config", "reboot": "", "": "", "x": "", "apply": "",
	} {
		if got := Closest(in, words); got != want {
			t.Errorf("closest to %q is %q, want %q", in, got, want)
		}
	}
	if diff := cmp.Diff([]string{"", "a", "a and b", "a, b and c"}, []string{joinWords(nil), joinWords([]string{"a"}), joinWords([]string{"a", "b"}), joinWords([]string{"a", "b", "c"})}); diff != "" {
		t.Error(diff)
	}
}
