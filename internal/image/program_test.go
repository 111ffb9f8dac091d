// SPDX-FileCopyrightText: The Skyhook authors
// SPDX-License-Identifier: Apache-2.0

package image

import (
	"bytes"
	"context"
	"debug/elf"
	"encoding/binary"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"testing"

	v1 "github.com/google/go-containerregistry/pkg/v1"
)

func sharedTree(t *Tree) func(v1.Platform) ([]*Tree, error) {
	return func(v1.Platform) ([]*Tree, error) { return []*Tree{t}, nil }
}

// goModule is a module with a program that says its version.
func goModule(t *testing.T) string {
	t.Helper()
	dir := t.TempDir()
	for name, content := range map[string]string{
		"go.mod":  "module example.org/say\n\ngo 1.26\n",
		"main.go": "package main\n\nvar version = \"none\"\n\nfunc main() { println(version) }\n",
	} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(content), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	return dir
}

// TestCompile: the same source in two folders, under environments that would each change a program, gives one program.
func TestCompile(t *testing.T) {
	var programs [][]byte
	for _, env := range []map[string]string{
		{},
		{"GOFLAGS": "-race", "GOAMD64": "v3", "CGO_ENABLED": "1", "GOARCH": "arm", "GOOS": "windows", "GOEXPERIMENT": "nosuch"},
	} {
		for k, v := range env {
			t.Setenv(k, v)
		}
		out := filepath.Join(t.TempDir(), "say")
		p := Program{Module: goModule(t), Package: ".", Set: map[string]string{"main.version": "v7"}}
		if err := p.Compile(context.Background(), amd64, out); err != nil {
			t.Fatal(err)
		}
		program, err := os.ReadFile(out)
		if err != nil {
			t.Fatal(err)
		}
		programs = append(programs, program)
		if said, err := exec.Command(out).CombinedOutput(); runtime.GOARCH == "amd64" && string(said) != "v7\n" {
			t.Errorf("the program says %q, %v", said, err)
		}
		if bytes.Contains(program, []byte(p.Module)) {
			t.Errorf("the folder %s shows in the program", p.Module)
		}
	}
	if !bytes.Equal(programs[0], programs[1]) {
		t.Error("two programs from one source")
	}
}

func TestCompileRefuses(t *testing.T) {
	dir := goModule(t)
	for _, tc := range []struct {
		program  Program
		platform v1.Platform
		want     string
	}{
		{Program{Module: dir, Package: "."}, v1.Platform{OS: "plan9", Architecture: "amd64"}, "platform plan9/amd64 is not one of linux/amd64, linux/arm"},
		{Program{Module: dir, Package: "."}, v1.Platform{OS: "linux", Architecture: "z80"}, "platform linux/z80 is not one of"},
		{Program{Module: dir, Package: ".", Set: map[string]string{"main.version": "a b"}}, amd64, `the value "a b" for main.version contains a space`},
		{Program{Module: dir, Package: "./nothing"}, amd64, "compiling ./nothing for linux/amd64"},
	} {
		err := tc.program.Compile(context.Background(), tc.platform, filepath.Join(t.TempDir(), "out"))
		if err == nil || !strings.Contains(err.Error(), tc.want) {
			t.Errorf("got %v, want %q", err, tc.want)
		}
	}
	t.Setenv("PATH", t.TempDir())
	err := Program{Module: dir, Package: "."}.Compile(context.Background(), amd64, filepath.Join(t.TempDir(), "out"))
	if err == nil || !strings.Contains(err.Error(), "there is no go command in PATH; install Go") {
		t.Errorf("without Go: %v", err)
	}
}

// program is the smallest file that debug/elf reads: a header and, where it needs a loader, one program header.
func program(t *testing.T, machine elf.Machine, loader bool) string {
	t.Helper()
	h := elf.Header64{Type: uint16(elf.ET_EXEC), Machine: uint16(machine), Version: uint32(elf.EV_CURRENT), Ehsize: 64, Phentsize: 56, Phoff: 64}
	copy(h.Ident[:], elf.ELFMAG)
	h.Ident[elf.EI_CLASS], h.Ident[elf.EI_DATA], h.Ident[elf.EI_VERSION] = byte(elf.ELFCLASS64), byte(elf.ELFDATA2LSB), byte(elf.EV_CURRENT)
	if loader {
		h.Phnum = 1
	}
	var b bytes.Buffer
	err := errors.Join(binary.Write(&b, binary.LittleEndian, h), binary.Write(&b, binary.LittleEndian, elf.Prog64{Type: uint32(elf.PT_INTERP)}))
	file := filepath.Join(t.TempDir(), "program")
	if err = errors.Join(err, os.WriteFile(file, b.Bytes(), 0o755)); err != nil {
		t.Fatal(err)
	}
	return file
}

func TestCheckStatic(t *testing.T) {
	if err := CheckStatic(program(t, elf.EM_AARCH64, false), arm64); err != nil {
		t.Error(err)
	}
	if err := CheckStatic(program(t, elf.EM_AARCH64, false), amd64); err == nil || !strings.Contains(err.Error(), "it is for EM_AARCH64, not for linux/amd64") {
		t.Errorf("a program for another machine: %v", err)
	}
	if err := CheckStatic(program(t, elf.EM_X86_64, true), amd64); err == nil || !strings.Contains(err.Error(), "it is not static") {
		t.Errorf("a program with a loader: %v", err)
	}
	script := filepath.Join(t.TempDir(), "script")
	if err := os.WriteFile(script, []byte("#!/bin/sh\n"), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := CheckStatic(script, amd64); err == nil {
		t.Error("a script passes for a program")
	}
}
