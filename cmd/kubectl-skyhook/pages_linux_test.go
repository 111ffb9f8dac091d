// SPDX-FileCopyrightText: The Skyhook authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"os"
	"strings"
	"testing"
)

// TestTakeLargePages holds that the kernel was asked for large pages, where it has any.
func TestTakeLargePages(t *testing.T) {
	if _, err := os.Stat("/sys/kernel/mm/transparent_hugepage/enabled"); err != nil {
		t.Skip("this kernel has no large pages: ", err)
	}
	takeLargePages()
	maps, err := os.ReadFile("/proc/self/smaps")
	if err != nil {
		t.Fatal(err)
	}
	for line := range strings.Lines(string(maps)) {
		if flags, found := strings.CutPrefix(line, "VmFlags:"); found && strings.Contains(flags, " hg") {
			return
		}
	}
	t.Error("no memory of this process may have large pages")
}
