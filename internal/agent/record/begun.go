// SPDX-FileCopyrightText: The Skyhook authors
// SPDX-License-Identifier: Apache-2.0

package record

import (
	"encoding/json"
	"fmt"
	"path"

	"github.com/skyhook-k8s/skyhook/internal/agent/host"
)

// begunFile is beside the record of a package while a stage of it is in progress.
const begunFile = "begun.json"

// Begun names the stage of a package that has begun and has not ended.
type Begun struct {
	Mode string `json:"mode"`
	Run  string `json:"run"`
}

// NoteBegun notes that a stage has begun. A power failure may lose the note: then it counts as not begun.
func (h *Held) NoteBegun(b Begun) error {
	if readBegun(h.Dir.ReadFile(begunFile)) == b {
		return nil
	}
	content, err := json.Marshal(b)
	if err != nil {
		return fmt.Errorf("encoding which stage of %s has begun: %w", h.name, err)
	}
	return h.Dir.WriteUnsynced(begunFile, string(content)+"\n", 0o600)
}

// ForgetBegun notes that no stage is in progress.
func (h *Held) ForgetBegun() error {
	if !h.Dir.Exists(begunFile) {
		return nil
	}
	return h.Dir.Delete(begunFile)
}

// ReadBegun returns the stage of a package that is in progress; an empty value for none.
func ReadBegun(root *host.Root, state, name string) Begun {
	if checkName(name) != nil {
		return Begun{}
	}
	return readBegun(root.ReadFile(path.Join(state, packagesDir, name, begunFile)))
}

func readBegun(content []byte, err error) (b Begun) {
	if err != nil || json.Unmarshal(content, &b) != nil {
		return Begun{}
	}
	return b
}
