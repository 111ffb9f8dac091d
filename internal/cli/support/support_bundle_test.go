// SPDX-FileCopyrightText: The Skyhook authors
// SPDX-License-Identifier: Apache-2.0

package support

import (
	"errors"
	"strings"
	"testing"
)

// TestBundleHasNoPasswordsOfURLs: neither a log nor what could not be collected has one. The dump redacts itself.
func TestBundleHasNoPasswordsOfURLs(t *testing.T) {
	const url = "https://person:hunter2@prometheus.example.com/tenant"
	b := &bundle{}
	b.add("logs/operator.txt", []byte("asking "+url+"\n"), errors.New("asking "+url))
	b.add(dumpFile, []byte(url), nil)
	if got := string(b.files[0].content) + strings.Join(b.problems, ""); strings.Contains(got, "hunter2") || strings.Count(got, "https://redacted@prometheus.example.com/tenant") != 2 {
		t.Error(got)
	}
	if got := string(b.files[1].content); got != url {
		t.Errorf("%s: its files of configMap would have other digests", got)
	}
}
