// SPDX-FileCopyrightText: The Skyhook authors
// SPDX-License-Identifier: Apache-2.0

package licenses

import (
	"os"
	"slices"
	"strings"
	"testing"
)

// TestCollect collects the licences of a small program of this repository.
func TestCollect(t *testing.T) {
	modules, err := Collect(t.Context(), "../..", Build{"shell", "linux/amd64"}, Build{"pause", "linux/amd64"})
	if err != nil {
		t.Fatal(err)
	}
	var paths []string
	for _, m := range modules {
		paths = append(paths, m.Path)
		wantPrograms := []string{"shell"}
		if m.Path == StandardLibrary {
			wantPrograms = []string{"pause", "shell"}
		}
		wantLicense := "BSD-3-Clause"
		if m.Path == "github.com/dustin/go-humanize" {
			wantLicense = "MIT"
		}
		if !slices.Equal(m.Licenses, []string{wantLicense}) || !slices.Equal(m.Programs, wantPrograms) || m.Version == "" {
			t.Errorf("%s %s has the licences %v and is part of %v", m.Path, m.Version, m.Licenses, m.Programs)
		}
	}
	if want := []string{"github.com/dustin/go-humanize", "github.com/u-root/u-root", "golang.org/x/sys", "golang.org/x/term", "mvdan.cc/sh/v3", StandardLibrary}; !slices.Equal(paths, want) {
		t.Errorf("the modules are %v, want %v", paths, want)
	}
}

// TestIdentify checks which licences are refused.
func TestIdentify(t *testing.T) {
	apache := readText(t, "../../LICENSE")
	const gpl = "This program is free software: you can redistribute it and/or modify it under the terms of the GNU General Public License as " +
		"published by the Free Software Foundation, either version 3 of the License, or (at your option) any later version.\n"
	for name, c := range map[string]struct {
		files []File
		want  string // in the error, or the licences
	}{
		"known":      {[]File{{"LICENSE", apache}}, "Apache-2.0"},
		"notice":     {[]File{{"LICENSE", apache}, {"NOTICE", "Copyright Ada"}}, "Apache-2.0"},
		"none":       {nil, "module example.org/x has no licence"},
		"noticeOnly": {[]File{{"NOTICE", "Copyright Ada"}}, "module example.org/x has no licence"},
		"unknown":    {[]File{{"LICENSE", "Only on Tuesdays, and never for profit."}}, "LICENSE is no known licence"},
		"notAllowed": {[]File{{"LICENSE", apache}, {"sub/COPYING", gpl}}, "sub/COPYING is GPL-3.0-or-later, which is not among the allowed licences"},
	} {
		m := Module{Path: "example.org/x", Files: c.files}
		got := ""
		if err := m.identify(); err != nil {
			got = err.Error()
		} else {
			got = strings.Join(m.Licenses, " ")
		}
		if !strings.Contains(got, c.want) {
			t.Errorf("%s: %q, want %q", name, got, c.want)
		}
	}
}

// TestChoice checks that a choice holds only for the licences that somebody read.
func TestChoice(t *testing.T) {
	const path, name = "github.com/spdx/tools-golang", "LICENSE.code"
	m := Module{Path: path, Files: []File{{name, readText(t, "../../LICENSE")}}}
	if err := m.identify(); err != nil || !slices.Equal(m.Licenses, []string{"Apache-2.0"}) {
		t.Errorf("one allowed licence: %v, %v", m.Licenses, err)
	}
	modules, err := Collect(t.Context(), "../..", Build{"kubectl-skyhook", "linux/amd64"})
	if err != nil {
		t.Fatal(err)
	}
	i := slices.IndexFunc(modules, func(m Module) bool { return m.Path == path })
	if i < 0 || !slices.Equal(modules[i].Licenses, []string{"Apache-2.0"}) {
		t.Fatalf("the plugin has no %s with the chosen licence", path)
	}
	other := Module{Path: "example.org/fork", Files: modules[i].Files}
	if err := other.identify(); err == nil || !strings.Contains(err.Error(), "GPL-2.0") {
		t.Errorf("the same file elsewhere gives %v", err)
	}
}

func TestTexts(t *testing.T) {
	got := string(Texts([]Module{
		{Path: "a", Version: "v1", Files: []File{{"LICENSE", "free\r\n"}, {"NOTICE", "by Ada"}}},
		{Path: "b", Version: "v2", Files: []File{{"COPYING", "free"}}},
	}))
	if strings.Count(got, "\nfree\n") != 1 || !strings.Contains(got, "\na v1 (LICENSE)\nb v2 (COPYING)\n---") || !strings.Contains(got, "\na v1 (NOTICE)\n") {
		t.Errorf("the texts are\n%s", got)
	}
}

func readText(t *testing.T, file string) string {
	t.Helper()
	text, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}
