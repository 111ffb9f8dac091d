// SPDX-FileCopyrightText: The Skyhook authors
// SPDX-License-Identifier: Apache-2.0

package host

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"strconv"
	"strings"
	"time"
)

// bootFile is read through the root mount, because a host that is itself a container has its own.
const bootFile = "/proc/sys/kernel/random/boot_id"

// BootID is the ID of the current boot of the host. A different ID proves a reboot.
func (r *Root) BootID() (string, error) {
	content, err := r.ReadFile(bootFile)
	if errors.Is(err, fs.ErrNotExist) {
		content, err = os.ReadFile(bootFile)
	}
	if err != nil {
		return "", fmt.Errorf("reading the host's boot id: %w", err)
	}
	id := strings.TrimSpace(string(content))
	if id == "" || len(id) > 64 {
		return "", fmt.Errorf("reading the host's boot id: %s does not hold one", bootFile)
	}
	return id, nil
}

// BootTime is when the host was started, to the second.
func (r *Root) BootTime() (time.Time, error) {
	content, err := r.ReadFile("/proc/stat")
	if errors.Is(err, fs.ErrNotExist) {
		content, err = os.ReadFile("/proc/stat")
	}
	if err != nil {
		return time.Time{}, fmt.Errorf("reading when the host was started: %w", err)
	}
	for line := range strings.SplitSeq(string(content), "\n") {
		if text, ok := strings.CutPrefix(line, "btime "); ok {
			seconds, err := strconv.ParseInt(strings.TrimSpace(text), 10, 64)
			if err != nil {
				break
			}
			return time.Unix(seconds, 0), nil
		}
	}
	return time.Time{}, errors.New("reading when the host was started: /proc/stat has no btime")
}
