// SPDX-FileCopyrightText: The Skyhook authors
// SPDX-License-Identifier: Apache-2.0

package agent

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

// What a sentinel is called and says, as in manifests older than this program.
var (
	sentinelName = regexp.MustCompile(`-[0-9]{9,}$`)
	sentinelText = []byte("Job completed")
)

// MakeSentinel makes the file that an interrupt waits for with --after-file, path and the seconds of now. Each is another,
// so that none is taken for an earlier one's. A host has one at a time: others were left by work that was called off, and
// go.
func MakeSentinel(path string, now time.Time) (made string, err error) {
	made = path + "-" + strconv.FormatInt(now.Unix(), 10)
	dropSentinels(filepath.Dir(made))
	if err := os.WriteFile(made, fmt.Appendf(nil, "%s at %s\n", sentinelText, now.UTC().Format(time.RFC3339)), 0o600); err != nil {
		return "", fmt.Errorf("making the file that an interrupt waits for: %w", err)
	}
	return made, nil
}

// dropSentinels removes what can be removed; what cannot is in nobody's way.
func dropSentinels(folder string) {
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
