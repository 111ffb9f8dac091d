// SPDX-FileCopyrightText: The Skyhook authors
// SPDX-License-Identifier: Apache-2.0

package lint

import (
	"strings"
	"testing"
	"testing/fstest"

	"github.com/cockroachdb/datadriven"

	"github.com/skyhook-k8s/skyhook/internal/pack"
)

// TestRules shows what each rule finds and what it leaves alone. Input is one script; the words of the command say which
// interpreter its first line names, and whether it is a step.
func TestRules(t *testing.T) {
	datadriven.RunTest(t, "testdata/rules.txt", func(_ *testing.T, d *datadriven.TestData) string {
		c := pack.Config{Modes: map[pack.Mode][]pack.Step{}}
		switch {
		case d.HasArg("step"):
			c.Modes[pack.ModeUninstall] = []pack.Step{{Path: "s.sh"}}
		case d.HasArg("preflight"):
			c.Modes[pack.ModePreflight] = []pack.Step{{Path: "s.sh"}}
		case d.HasArg("check"):
			c.Modes[pack.ModeUninstallCheck] = []pack.Step{{Path: "s.sh"}}
		}
		text := d.Input
		if d.Cmd != "none" {
			text = "#!/" + strings.ReplaceAll(d.Cmd, "--", " ") + "\n" + text
		}
		var b strings.Builder
		for _, p := range Scripts(fstest.MapFS{"skyhook_dir/s.sh": {Data: []byte(text)}}, c) {
			b.WriteString(p.String() + " [" + p.Rule + "]\n    fix: " + p.Fix + "\n")
		}
		if b.Len() == 0 {
			return "nothing\n"
		}
		return b.String()
	})
}

func TestOnlyScriptsOfThePackage(t *testing.T) {
	bad := &fstest.MapFile{Data: []byte("#!/bin/bash\nif\n")}
	found := Scripts(fstest.MapFS{
		"skyhook_dir/lib/called.sh": bad, "skyhook_dir/step": bad, "skyhook_dir/notes.txt": bad, "skyhook_dir/tool.py": bad,
		"root_dir/usr/bin/x.sh": bad, "testdata/x.sh": bad, ".git/x.sh": bad, "configmaps/x.sh": bad,
	}, pack.Config{Modes: map[pack.Mode][]pack.Step{pack.ModeUninstall: {{Path: "./step"}}}})
	var files []string
	for _, p := range found {
		files = append(files, p.File)
	}
	if got := strings.Join(files, " "); got != "skyhook_dir/lib/called.sh skyhook_dir/step" {
		t.Errorf("looked at %s", got)
	}
}

func TestCoverage(t *testing.T) {
	one := []pack.Step{{}}
	c := pack.Config{Modes: map[pack.Mode][]pack.Step{pack.ModeApply: one, pack.ModeApplyCheck: {{}, {}}, pack.ModeUninstallCheck: one}}
	got := Coverage(c)
	if len(got) != 5 || got[0] != (Stage{Stage: pack.ModeApply, Steps: 1, Checks: 2}) || got[1].Note == "" || got[4].Note != "" {
		t.Errorf("coverage is %+v", got)
	}
	found := Scripts(fstest.MapFS{}, c)
	if len(found) != 1 || found[0].Rule != "no-uninstall" {
		t.Errorf("a package that undoes nothing gives %v", found)
	}
}
