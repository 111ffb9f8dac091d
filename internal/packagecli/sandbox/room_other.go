// SPDX-FileCopyrightText: The Skyhook authors
// SPDX-License-Identifier: Apache-2.0

//go:build !linux

package sandbox

import (
	"context"
	"errors"
	"io"
)

var errLinux = errors.New("trying a package out needs Linux: run it there, or in a Linux container")

// Try needs Linux.
func Try(context.Context, []string, Order, io.Writer) (Report, error) { return Report{}, errLinux }

// Serve needs Linux.
func Serve(io.Reader, io.Writer) error { return errLinux }
