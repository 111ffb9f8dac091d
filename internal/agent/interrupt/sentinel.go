// SPDX-FileCopyrightText: The Skyhook authors
// SPDX-License-Identifier: Apache-2.0

package interrupt

import (
	"bytes"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"time"
)

// The name and content of a sentinel file are those of earlier manifests.
var (
	sentinelName = regexp.MustCompile(`-[0-9]{9,}$`)
	sentinelText = []byte("Job completed")
)

// CreateSentinel creates the file that an interrupt waits for with --after-file: path with the seconds of now, so that
// every file has its own name. A host has one at a time: others are left over from cancelled work and are removed.
func CreateSentinel(path string, now time.Time) (made string, err error) {
	made = path + "-" + strconv.FormatInt(now.Unix(), 10)
	removeSentinels(filepath.Dir(made))
	if err := os.WriteFile(made, fmt.Appendf(nil, "%s at %s\n", sentinelText, now.UTC().Format(time.RFC3339)), 0o600); err != nil {
		return "", fmt.Errorf("making the file that an interrupt waits for: %w", err)
	}
	return made, nil
}

// removeSentinels removes sentinel files. Errors are ignored, because a remaining file does no harm.
func removeSentinels(folder string) {
	found, err := os.ReadDir(folder)
	if err != nil {
		return
	}
	for _, e := range found {
		path := filepath.Join(folder, e.Name())
		if e.Type().IsRegular() && sentinelName.MatchString(e.Name()) && isSentinel(path) {
			_ = os.Remove(path)
		}
	}
}

func isSentinel(path string) bool {
	f, err := os.Open(path)
	if err != nil {
		return false
	}
	defer func() { _ = f.Close() }()
	begins := make([]byte, len(sentinelText))
	_, err = io.ReadFull(f, begins)
	return err == nil && bytes.Equal(begins, sentinelText)
}
