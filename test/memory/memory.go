// SPDX-FileCopyrightText: The Skyhook authors
// SPDX-License-Identifier: Apache-2.0

// Package memory is the oracle of fuzz targets: what is read from others costs no more memory than its size allows.
package memory

import (
	"runtime"
	"testing"
)

// Check fails a test if a function allocates more than so many bytes, in all.
func Check(t testing.TB, limit int, do func()) {
	t.Helper()
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	do()
	runtime.ReadMemStats(&after)
	if got := after.TotalAlloc - before.TotalAlloc; got > uint64(limit) {
		t.Errorf("%d bytes are allocated, and the limit is %d", got, limit)
	}
}
