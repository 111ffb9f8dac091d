// SPDX-FileCopyrightText: The Skyhook authors
// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"os"
	"slices"
	"strings"
)

// mountTable lists where things are mounted: as this container sees it, and as the host's first process does.
type mountTable struct{ here, host []string }

// mounts reads both tables; what cannot be read is empty.
func mounts() mountTable {
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

// lostAfter lists what was mounted below root since before in this container's namespace only.
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
