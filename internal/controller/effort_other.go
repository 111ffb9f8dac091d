// SPDX-FileCopyrightText: The Skyhook authors
// SPDX-License-Identifier: Apache-2.0

//go:build !linux

package controller

import "time"

// started is when this process began, about.
var started = time.Now()

// effort is how long this process has run, where nobody tells how long a thread has computed.
func effort() time.Duration { return time.Since(started) }
