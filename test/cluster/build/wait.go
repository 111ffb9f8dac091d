// SPDX-FileCopyrightText: The Skyhook authors
// SPDX-License-Identifier: Apache-2.0

package build

import (
	"context"
	"os"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

// waitLock polls for the lock, because a blocking flock could not be interrupted.
func waitLock(ctx context.Context, f *os.File) error {
	tick := time.NewTicker(200 * time.Millisecond)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-tick.C:
			if unix.Flock(int(f.Fd()), unix.LOCK_EX|unix.LOCK_NB) == nil {
				return nil
			}
		}
	}
}

// tailBuffer keeps the end of a program's output.
type tailBuffer struct{ bytes []byte }

const tailSize = 4096

func (t *tailBuffer) Write(p []byte) (int, error) {
	t.bytes = append(t.bytes, p...)
	if over := len(t.bytes) - tailSize; over > 0 {
		t.bytes = append([]byte(nil), t.bytes[over:]...)
	}
	return len(p), nil
}

func (t *tailBuffer) lastLines() string { return strings.TrimSpace(string(t.bytes)) }
