// SPDX-FileCopyrightText: The Skyhook authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"
)

func TestFindUnchanged(t *testing.T) {
	const memory = `00400000-02001000 r-xp 00000000 08:01 42                                 /manager
Size:              28676 kB
Anonymous:             0 kB
VmFlags: rd ex mr mw me sd
02001000-03f84000 r--p 01c01000 08:01 42                                 /manager
Anonymous:             0 kB
03f84000-03f86000 r--p 03b84000 08:01 42                                 /manager
Anonymous:             8 kB
03f86000-0402d000 rw-p 03b86000 08:01 42                                 /manager
Anonymous:             0 kB
0402d000-0605a000 rw-p 00000000 00:00 0
Anonymous:             0 kB
7f0000000000-7f0000001000 r--p 00000000 08:01 43                         /manager.other
Anonymous:             0 kB
7ffc00000000-7ffc00021000 rw-p 00000000 00:00 0                          [stack]
Anonymous:             0 kB
`
	got, err := findUnchanged(strings.NewReader(memory), "/manager")
	want := []memoryRange{{0x400000, 0x2001000}, {0x2001000, 0x3f84000}}
	if err != nil || !slices.Equal(got, want) {
		t.Errorf("found %x, %v, want %x", got, err, want)
	}
	if _, err := findUnchanged(strings.NewReader("nowhere r--p 0 08:01 42 /manager\n"), "/manager"); err == nil {
		t.Error("a range that cannot be read is no error")
	}
}

// The pages of the program are not mapped any more, and the process goes on with those that it needs.
func TestReleaseProgram(t *testing.T) {
	before := mappedFiles(t)
	if err := releaseProgram(); err != nil {
		t.Fatal(err)
	}
	if after := mappedFiles(t); after >= before {
		t.Errorf("%d KiB of files are mapped, %d before", after, before)
	}
}

// mappedFiles returns how many KiB of files are mapped in this process.
func mappedFiles(t *testing.T) (kib int) {
	t.Helper()
	status, err := os.ReadFile("/proc/self/status")
	if err != nil {
		t.Fatal(err)
	}
	for _, line := range strings.Split(string(status), "\n") {
		if _, err := fmt.Sscanf(line, "RssFile: %d kB", &kib); err == nil {
			return kib
		}
	}
	t.Fatal("the kernel does not say how much of files is mapped")
	return 0
}
