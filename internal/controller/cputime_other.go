// SPDX-FileCopyrightText: The Skyhook authors
// SPDX-License-Identifier: Apache-2.0

//go:build !linux

package controller

import "time"

var processStart = time.Now()

// threadCPUTime is the age of the process, where the CPU time of a thread cannot be read.
func threadCPUTime() time.Duration { return time.Since(processStart) }
