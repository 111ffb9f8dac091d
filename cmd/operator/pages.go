// SPDX-FileCopyrightText: The Skyhook authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bufio"
	"fmt"
	"io"
	"os"
	"strings"

	"golang.org/x/sys/unix"
)

// memoryRange is a part of the memory of this process.
type memoryRange struct{ start, end uintptr }

// releaseProgram has the kernel unmap the pages of the program file. Half of them are touched only while the process starts:
// initialisers of packages, and types that are registered. Those that are used again are mapped again from the page cache, in about a
// millisecond; the others no longer count as memory of the process.
func releaseProgram() error {
	program, err := os.Readlink("/proc/self/exe")
	if err != nil {
		return fmt.Errorf("finding the program file: %w", err)
	}
	maps, err := os.Open("/proc/self/smaps")
	if err != nil {
		return fmt.Errorf("reading the memory map: %w", err)
	}
	defer maps.Close()
	ranges, err := findUnchanged(maps, program)
	if err != nil {
		return fmt.Errorf("reading the memory map: %w", err)
	}
	for _, r := range ranges {
		if _, _, errno := unix.Syscall(unix.SYS_MADVISE, r.start, r.end-r.start, unix.MADV_DONTNEED); errno != 0 {
			return fmt.Errorf("unmapping pages of the program: %w", errno)
		}
	}
	return nil
}

// findUnchanged returns where a memory map has a file without the right to write, and no page of it was changed before that right was
// taken away, as a dynamic linker does. Such pages are those of the file: they can be dropped and read again.
func findUnchanged(memoryMap io.Reader, file string) ([]memoryRange, error) {
	var out []memoryRange
	var last *memoryRange // of the file, until it is known whether it was changed
	lines := bufio.NewScanner(memoryMap)
	for lines.Scan() {
		fields := strings.Fields(lines.Text())
		switch {
		case len(fields) == 3 && fields[0] == "Anonymous:": // pages that are no longer those of the file
			if last != nil && fields[1] == "0" {
				out = append(out, *last)
			}
			last = nil
		case len(fields) == 6 && fields[5] == file && !strings.Contains(fields[1], "w"): // range, rights, offset, device, inode, file
			last = &memoryRange{}
			if _, err := fmt.Sscanf(fields[0], "%x-%x", &last.start, &last.end); err != nil {
				return nil, fmt.Errorf("%q: %w", fields[0], err)
			}
		}
	}
	return out, lines.Err()
}
