// SPDX-FileCopyrightText: The Skyhook authors
// SPDX-License-Identifier: Apache-2.0

package pack

import (
	"encoding/json"
	"io/fs"
	"strconv"
	"strings"
	"testing"
	"testing/fstest"

	"github.com/cockroachdb/datadriven"
)

// sound is a package without a fault; each case of testdata/rules.txt spoils it.
func sound(t *testing.T) (map[string]any, fstest.MapFS) {
	t.Helper()
	step := func(name, path string) map[string]any {
		return map[string]any{
			"name": name, "path": path, "arguments": []any{}, "returncodes": []any{json.Number("0")},
			"on_host": true, "env": map[string]any{}, "idempotence": true, "upgrade_step": false,
		}
	}
	script := func() *fstest.MapFile { return &fstest.MapFile{Data: []byte("#!/bin/bash\n"), Mode: 0o755} }
	return map[string]any{
			"schema_version": "v1", "package_name": "demo", "package_version": "1.2.3",
			"expected_config_files": []any{},
			"modes": map[string]any{
				"apply":       []any{step("install", "install.sh")},
				"apply-check": []any{step("installed", "install_check.sh")},
			},
		}, fstest.MapFS{
			"skyhook_dir/install.sh":       script(),
			"skyhook_dir/install_check.sh": script(),
		}
}

// TestRules pins the message of every rule. Commands are validate, load MODE
// (as the agent does) and parse (the document alone); lines spoil the package:
//
//	set PATH JSON, del PATH      a place in config.json, with / between its parts
//	text QUOTED                  config.json as a whole
//	file NAME QUOTED, rm NAME    a file, executable
//	chmod MODE NAME, mkdir NAME, link NAME TARGET
//	want name|version VALUE
func TestRules(t *testing.T) {
	datadriven.RunTest(t, "testdata/rules.txt", func(t *testing.T, d *datadriven.TestData) string {
		root, files := sound(t)
		text, want, gone := "", Want{}, false
		for _, line := range strings.Split(d.Input, "\n") {
			verb, rest, _ := strings.Cut(line, " ")
			name, value, _ := strings.Cut(rest, " ")
			switch verb {
			case "set", "del":
				edit(t, root, name, value, verb == "del")
			case "text":
				text = unquote(t, rest)
			case "file":
				files[name] = &fstest.MapFile{Data: []byte(unquote(t, value)), Mode: 0o755}
			case "rm":
				delete(files, name)
				gone = gone || name == ConfigFile
			case "chmod":
				mode, err := strconv.ParseUint(name, 8, 32)
				if err != nil {
					t.Fatal(err)
				}
				files[value].Mode = fs.FileMode(mode)
			case "mkdir":
				files[name] = &fstest.MapFile{Mode: fs.ModeDir | 0o755}
			case "fifo":
				files[name] = &fstest.MapFile{Mode: fs.ModeNamedPipe | 0o644}
			case "link":
				files[name] = &fstest.MapFile{Data: []byte(value), Mode: fs.ModeSymlink | 0o777}
			case "want":
				if name == "name" {
					want.Name = value
				} else {
					want.Version = value
				}
			case "":
			default:
				t.Fatalf("unknown line %q", line)
			}
		}
		if text == "" {
			text = string(marshalCompact(root))
		}
		if !gone {
			files[ConfigFile] = &fstest.MapFile{Data: []byte(text)}
		}
		var found Problems
		switch d.Cmd {
		case "validate":
			_, found = Validate(files, want)
		case "load":
			_, found = Load(files, Mode(d.CmdArgs[0].Key), want)
		case "parse":
			_, found = Parse([]byte(text))
		default:
			t.Fatalf("unknown command %q", d.Cmd)
		}
		out := found.Text()
		if again := found.removeRepeated().Text(); again != out {
			t.Errorf("not in a stable order:\n%s", out)
		}
		return out
	})
}

// edit sets or deletes one place of the document.
func edit(t *testing.T, root map[string]any, place, value string, remove bool) {
	t.Helper()
	parts := strings.Split(place, "/")
	var at any = root
	for _, p := range parts[:len(parts)-1] {
		if list, ok := at.([]any); ok {
			at = list[index(t, p)]
			continue
		}
		at = at.(map[string]any)[p]
	}
	last := parts[len(parts)-1]
	if remove {
		delete(at.(map[string]any), last)
		return
	}
	dec := json.NewDecoder(strings.NewReader(value))
	dec.UseNumber()
	var v any
	if err := dec.Decode(&v); err != nil {
		t.Fatalf("%s: %v", value, err)
	}
	if list, ok := at.([]any); ok {
		list[index(t, last)] = v
		return
	}
	at.(map[string]any)[last] = v
}

func index(t *testing.T, s string) int {
	t.Helper()
	i, err := strconv.Atoi(s)
	if err != nil {
		t.Fatal(err)
	}
	return i
}

func unquote(t *testing.T, s string) string {
	t.Helper()
	u, err := strconv.Unquote(s)
	if err != nil {
		t.Fatalf("%s: %v", s, err)
	}
	return u
}
