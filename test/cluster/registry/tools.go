// SPDX-FileCopyrightText: The Skyhook authors
// SPDX-License-Identifier: Apache-2.0

package registry

import (
	"debug/elf"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"strings"

	v1 "github.com/google/go-containerregistry/pkg/v1"
)

// Tools returns an image with a shell and the usual tools of this machine's busybox. Its wget crashes, use nc; its cp -r does not
// overwrite symbolic links.
func Tools() (v1.Image, error) {
	path, err := exec.LookPath("busybox")
	if err != nil {
		return nil, errors.New("creating an image with tools: busybox cannot be found: apt-get install -y busybox-static")
	}
	if err := requireStatic(path); err != nil {
		return nil, err
	}
	program, err := os.ReadFile(path)
	if err != nil {
		return nil, fmt.Errorf("creating an image with tools: %w", err)
	}
	names, err := exec.Command(path, "--list").Output()
	if err != nil {
		return nil, fmt.Errorf("creating an image with tools: busybox --list: %w", err)
	}
	files := map[string]File{
		"bin/busybox": {Content: program, Mode: 0o755},
		"etc/passwd":  {Content: []byte("root:x:0:0:root:/root:/bin/sh\n"), Mode: 0o644},
	}
	for _, name := range strings.Fields(string(names)) {
		if name != "busybox" {
			files["bin/"+name] = File{Link: "busybox"}
		}
	}
	return Image(files, "/bin/sh")
}

// requireStatic returns an error for a program that needs shared libraries.
func requireStatic(path string) error {
	f, err := elf.Open(path)
	if err != nil {
		return fmt.Errorf("creating an image with tools: %w", err)
	}
	defer func() { _ = f.Close() }()
	if libraries, err := f.ImportedLibraries(); err != nil || len(libraries) > 0 {
		return fmt.Errorf("creating an image with tools: %s needs libraries: apt-get install -y busybox-static", path)
	}
	return nil
}
