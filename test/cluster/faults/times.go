// SPDX-FileCopyrightText: The Skyhook authors
// SPDX-License-Identifier: Apache-2.0

package faults

import (
	"bytes"
	"fmt"
	"io"
	"net/http"
	"regexp"
	"strings"
	"time"
)

// writtenTime finds the times in JSON as Kubernetes writes them.
var writtenTime = regexp.MustCompile(`\d{4}-\d{2}-\d{2}T\d{2}:\d{2}:\d{2}(?:\.\d+)?Z`)

// skewTimes adds a duration to each time in a body of JSON. Other bodies stay as they are: in protobuf the length of a field
// would change.
func skewTimes(r *http.Request, by time.Duration) error {
	if r.Body == nil || !strings.Contains(r.Header.Get("Content-Type"), "json") {
		return nil
	}
	body, err := io.ReadAll(r.Body)
	if err != nil {
		return fmt.Errorf("reading the body to change its times: %w", err)
	}
	body = writtenTime.ReplaceAllFunc(body, func(text []byte) []byte {
		at, err := time.Parse(time.RFC3339Nano, string(text))
		if err != nil {
			return text // such as day 99 in a text that only looks like a time
		}
		layout := time.RFC3339
		if bytes.ContainsRune(text, '.') {
			layout = "2006-01-02T15:04:05.000000Z07:00" // what MicroTime reads
		}
		return []byte(at.Add(by).UTC().Format(layout))
	})
	r.Body, r.ContentLength = io.NopCloser(bytes.NewReader(body)), int64(len(body))
	r.Header.Del("Content-Length")
	return nil
}
