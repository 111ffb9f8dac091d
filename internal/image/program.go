// SPDX-FileCopyrightText: The Skyhook authors
// SPDX-License-Identifier: Apache-2.0

package image

import (
	"context"
	"debug/elf"
	"errors"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"

	v1 "github.com/google/go-containerregistry/pkg/v1"
)

// Program is a Go main package to compile for the platforms of an image.
type Program struct {
	Module  string            // folder of the Go module
	Package string            // import path or folder of the main package, e.g. ./cmd/skyhook-agent
	Set     map[string]string // string variables and their values, e.g. main.version
}

// machines maps the platforms a Program can be compiled for to the machine in the header of its ELF file.
var machines = map[string]elf.Machine{
	"amd64": elf.EM_X86_64, "arm64": elf.EM_AARCH64, "arm": elf.EM_ARM,
	"ppc64le": elf.EM_PPC64, "s390x": elf.EM_S390, "riscv64": elf.EM_RISCV,
}

// Compile writes the program for one platform to out: static, stripped, and independent of the machine it was
// compiled on. Settings in the environment that would change the result are overridden.
func (p Program) Compile(ctx context.Context, platform v1.Platform, out string) error {
	if _, known := machines[platform.Architecture]; !known || platform.OS != "linux" {
		return fmt.Errorf("compiling %s: platform %s is not one of linux/%s", p.Package, platform,
			strings.Join(slices.Sorted(maps.Keys(machines)), ", linux/"))
	}
	out, err := filepath.Abs(out)
	if err != nil {
		return fmt.Errorf("compiling %s: %w", p.Package, err)
	}
	link := []string{"-s", "-w", "-buildid="}
	for _, variable := range slices.Sorted(maps.Keys(p.Set)) {
		if strings.ContainsAny(p.Set[variable], " \t\n'\"") {
			return fmt.Errorf("compiling %s: the value %q for %s contains a space or a quote", p.Package, p.Set[variable], variable)
		}
		link = append(link, "-X", variable+"="+p.Set[variable])
	}
	cmd := exec.CommandContext(ctx, "go", "build", "-trimpath", "-buildvcs=false", "-gcflags=all=-dwarf=false",
		"-ldflags", strings.Join(link, " "), "-o", out, p.Package)
	cmd.Dir = p.Module
	cmd.Env = buildEnvironment(os.Environ(), platform)
	said, err := cmd.CombinedOutput()
	if errors.Is(err, exec.ErrNotFound) {
		return fmt.Errorf("compiling %s: there is no go command in PATH; install Go", p.Package)
	}
	if err != nil {
		return fmt.Errorf("compiling %s for %s: %w\n%s", p.Package, platform, err, strings.TrimSpace(string(said)))
	}
	return CheckStatic(out, platform)
}

// buildEnvironment returns the caller's environment with every variable set that affects the program.
func buildEnvironment(caller []string, platform v1.Platform) []string {
	variant := strings.TrimPrefix(platform.Variant, "v")
	if variant == "" || platform.Architecture != "arm" {
		variant = "7"
	}
	set := map[string]string{
		"CGO_ENABLED": "0", "GOOS": platform.OS, "GOARCH": platform.Architecture, "GOAMD64": "v1", "GOARM64": "v8.0",
		"GOARM": variant, "GOFLAGS": "-mod=readonly", "GOWORK": "off", "GOFIPS140": "off", "GOEXPERIMENT": "",
	}
	env := slices.DeleteFunc(slices.Clone(caller), func(kv string) bool {
		key, _, _ := strings.Cut(kv, "=")
		_, settled := set[key]
		return settled
	})
	for _, key := range slices.Sorted(maps.Keys(set)) {
		if set[key] != "" {
			env = append(env, key+"="+set[key])
		}
	}
	return env
}

// CheckStatic checks the header of a program: it is for this platform and needs no loader and no library.
func CheckStatic(file string, platform v1.Platform) error {
	f, err := elf.Open(file)
	if err != nil {
		return fmt.Errorf("checking program %s: %w", file, err)
	}
	machine := f.Machine
	loader := slices.ContainsFunc(f.Progs, func(p *elf.Prog) bool { return p.Type == elf.PT_INTERP })
	if err := f.Close(); err != nil {
		return fmt.Errorf("checking program %s: %w", file, err)
	}
	if machine != machines[platform.Architecture] {
		return fmt.Errorf("checking program %s: it is for %s, not for %s", file, machine, platform)
	}
	if loader {
		return fmt.Errorf("checking program %s: it is not static; an image from scratch has no loader for it", file)
	}
	return nil
}
