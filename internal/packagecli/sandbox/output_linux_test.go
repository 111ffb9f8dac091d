// SPDX-FileCopyrightText: The Skyhook authors
// SPDX-License-Identifier: Apache-2.0

package sandbox

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// TestOutputIsBounded: of an agent that writes without end, the end is kept, and that it was cut is said.
func TestOutputIsBounded(t *testing.T) {
	var said outputEnd
	for i := range 100_000 {
		if n, err := fmt.Fprintf(&said, "line %d\n", i); err != nil || n == 0 {
			t.Fatal(n, err)
		}
	}
	if len(said) != maxOutput || cap(said) > 4*maxOutput || !strings.HasPrefix(string(said), "(cut) ") || !strings.HasSuffix(string(said), "line 99998\nline 99999\n") {
		t.Errorf("%d bytes of %d are kept: %.40q", len(said), cap(said), said)
	}
}

// TestFilesOfStepsAreBounded: a step can make a file that is larger than memory.
func TestFilesOfStepsAreBounded(t *testing.T) {
	at := filepath.Join(t.TempDir(), "message")
	if err := os.WriteFile(at, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Truncate(at, 1<<40); err != nil {
		t.Fatal(err)
	}
	if content, err := readBounded(os.Open(at)); err != nil || len(content) != maxRead {
		t.Errorf("%d bytes are read: %v", len(content), err)
	}
}
