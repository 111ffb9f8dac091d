// SPDX-FileCopyrightText: The Skyhook authors
// SPDX-License-Identifier: Apache-2.0

package pack

import (
	"io/fs"
	"os"
	"path/filepath"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// TestRealFolder: rules hold on a real file system, where links are followed
// by the kernel unless we look first.
func TestRealFolder(t *testing.T) {
	dir := t.TempDir()
	root, _ := sound(t)
	write := func(name, content string, mode fs.FileMode) {
		t.Helper()
		name = filepath.Join(dir, name)
		if err := os.MkdirAll(filepath.Dir(name), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(name, []byte(content), mode); err != nil {
			t.Fatal(err)
		}
	}
	link := func(target, name string) {
		t.Helper()
		if err := os.Symlink(target, filepath.Join(dir, name)); err != nil {
			t.Fatal(err)
		}
	}
	write(ConfigFile, string(marshalCompact(root)), 0o644)
	write("shared/real.sh", "#!/bin/sh\n", 0o755)
	if err := os.Mkdir(filepath.Join(dir, StepDir), 0o755); err != nil {
		t.Fatal(err)
	}
	link("../shared", StepDir+"/lib")
	link("lib/real.sh", StepDir+"/install.sh")
	link("/bin/sh", StepDir+"/install_check.sh")

	opened, err := os.OpenRoot(dir)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = opened.Close() })
	const want = `error: config.json $.modes['apply-check'][0].path: skyhook_dir/install_check.sh is a link that leaves the package: it points to "/bin/sh"
    fix: put the file itself into the package
not valid: 1 error, 0 warnings
`
	for name, pkg := range map[string]fs.FS{"folder": os.DirFS(dir), "root": opened.FS()} {
		_, found := Validate(pkg, Want{})
		if diff := cmp.Diff(want, found.Text()); diff != "" {
			t.Errorf("%s: %s", name, diff)
		}
		_, found = Load(pkg, ModeApply, Want{})
		if diff := cmp.Diff(want, found.Text()); diff != "" {
			t.Errorf("%s: %s", name, diff)
		}
	}

	if err := os.Remove(filepath.Join(dir, StepDir, "install_check.sh")); err != nil {
		t.Fatal(err)
	}
	write(StepDir+"/install_check.sh", "#!/bin/sh\n", 0o600)
	for mode, want := range map[fs.FileMode]string{
		0o600: "error: skyhook_dir/install_check.sh: it is not executable\n    fix: chmod +x skyhook_dir/install_check.sh\nnot valid: 1 error, 0 warnings\n",
		0o700: "valid: 0 errors, 0 warnings\n",
	} {
		if err := os.Chmod(filepath.Join(dir, StepDir, "install_check.sh"), mode); err != nil {
			t.Fatal(err)
		}
		if _, found := Validate(os.DirFS(dir), Want{}); found.Text() != want {
			t.Errorf("mode %o: %s", mode, found.Text())
		}
	}
}

// TestOtherName: a description may be called by another name.
func TestOtherName(t *testing.T) {
	_, files := sound(t)
	files["other.json"] = files[StepDir+"/install.sh"]
	if _, found := Validate(files, Want{File: "other.json"}); found[0].File != "other.json" || found[0].Rule != "json-syntax" {
		t.Error(found.Text())
	}
	delete(files, "other.json")
	if _, found := Load(files, ModeApply, Want{}); found.Text() != "error: config.json: it does not exist\n    fix: put it into the root of the package\nnot valid: 1 error, 0 warnings\n" {
		t.Error(found.Text())
	}
}
