// SPDX-FileCopyrightText: The Skyhook authors
// SPDX-License-Identifier: Apache-2.0

//go:build !linux

package sandbox

import (
	"context"
	"errors"
	"io"
)

var errLinux = errors.New("testing a package needs Linux: run it there, or in a Linux container")

// RunTest needs Linux.
func RunTest(context.Context, []string, Request, io.Writer) (Report, error) {
	return Report{}, errLinux
}

// ServeRequest needs Linux.
func ServeRequest(io.Reader, io.Writer) error { return errLinux }
