// SPDX-FileCopyrightText: The Skyhook authors
// SPDX-License-Identifier: Apache-2.0

package docs

import (
	"encoding/json"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// TestDevcontainer: the development container has the Go version of go.mod, and what CI installs.
func TestDevcontainer(t *testing.T) {
	dir, err := repositoryRoot()
	if err != nil {
		t.Fatal(err)
	}
	read := func(name string) string {
		text, err := os.ReadFile(filepath.Join(dir, name))
		if err != nil {
			t.Fatal(err)
		}
		return string(text)
	}
	var container struct {
		Image           string
		OnCreateCommand string
		RemoteUser      string
	}
	if err := json.Unmarshal([]byte(read(".devcontainer/devcontainer.json")), &container); err != nil {
		t.Fatal(err)
	}
	version := regexp.MustCompile(`(?m)^go (\d+\.\d+)`).FindStringSubmatch(read("go.mod"))
	if version == nil || !strings.HasPrefix(container.Image, "golang:"+version[1]+"-") {
		t.Errorf("the image is %s, and go.mod needs Go %v", container.Image, version)
	}
	for command := range strings.SplitSeq(container.OnCreateCommand, " && ") {
		if container.RemoteUser != "root" && !strings.HasPrefix(command, "sudo ") {
			t.Errorf("%s, who is not root, runs %q without sudo", container.RemoteUser, command)
		}
	}
	needed := regexp.MustCompile(`want=\(([^)]*)\)`).FindStringSubmatch(read("hack/packages.sh"))
	if needed == nil {
		t.Fatal("hack/packages.sh lists no packages")
	}
	for name := range strings.FieldsSeq(needed[1]) {
		isInImage := name == "make" || name == "git"
		if !isInImage && !strings.Contains(container.OnCreateCommand+" ", " "+name+" ") {
			t.Errorf("the development container does not install %s, which hack/packages.sh does", name)
		}
	}
}
