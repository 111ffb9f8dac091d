// SPDX-FileCopyrightText: The Skyhook authors
// SPDX-License-Identifier: Apache-2.0

package compile

import (
	"testing"
	"time"
)

func TestRetryDelay(t *testing.T) {
	for failed, want := range map[int32]time.Duration{1: 10 * time.Second, 2: 20 * time.Second, 6: 320 * time.Second, 7: 10 * time.Minute, 1000: 10 * time.Minute} {
		if got := retryDelay(failed); got != want {
			t.Errorf("after %d failures the delay is %s, not %s", failed, got, want)
		}
	}
}
