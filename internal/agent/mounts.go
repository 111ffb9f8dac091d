// SPDX-FileCopyrightText: The Skyhook authors
// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"os"
	"slices"
	"strings"
)

// mountTable lists the mount points of this container and of the host's init process.
type mountTable struct{ here, host []string }

// readMounts reads both tables. A table that cannot be read is empty.
func readMounts() mountTable {
	return mountTable{here: mountPoints("/proc/self/mountinfo"), host: mountPoints("/proc/1/mountinfo")}
}

func mountPoints(file string) []string {
	content, err := os.ReadFile(file)
	if err != nil {
		return nil
	}
	var points []string
	for line := range strings.Lines(string(content)) {
		if fields := strings.Fields(line); len(fields) > 4 {
			points = append(points, fields[4])
		}
	}
	return points
}

// lostAfter lists what was mounted below root since before, but only in the mount namespace of this container.
func (m mountTable) lostAfter(before mountTable, root string) []string {
	if len(m.host) == 0 || root == "/" {
		return nil
	}
	var lost []string
	for _, point := range m.here {
		onHost, below := strings.CutPrefix(point, root+"/")
		if below && !slices.Contains(before.here, point) && !slices.Contains(m.host, "/"+onHost) {
			lost = append(lost, "/"+onHost)
		}
	}
	return lost
}
