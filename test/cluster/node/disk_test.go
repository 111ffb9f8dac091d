// SPDX-FileCopyrightText: The Skyhook authors
// SPDX-License-Identifier: Apache-2.0

package node

import (
	"errors"
	"os"
	"path/filepath"
	"testing"

	"golang.org/x/sys/unix"
)

// A small disk can be filled, and is none that a program takes for memory.
func TestSmallDisk(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("mounting needs root")
	}
	dir := t.TempDir()
	at := Node{Dir: dir}.smallDisk("/var/lib/skyhook")
	if err := mountSmallDisk(at); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		for _, path := range []string{at, at + ".memory"} {
			if err := unix.Unmount(path, 0); err != nil {
				t.Error(err)
			}
		}
	})
	var st unix.Statfs_t
	if err := unix.Statfs(at, &st); err != nil || st.Type == unix.TMPFS_MAGIC {
		t.Errorf("the file system has type %x, %v", st.Type, err)
	}
	if err := os.WriteFile(filepath.Join(at, "full"), make([]byte, 65<<20), 0o600); !errors.Is(err, unix.ENOSPC) {
		t.Errorf("writing 65 MiB ended with %v, want no space left", err)
	}
	if err := errors.Join(os.Remove(filepath.Join(at, "full")), os.WriteFile(filepath.Join(at, "a"), []byte("a"), 0o600)); err != nil {
		t.Errorf("writing after the disk was full: %v", err)
	}
}
