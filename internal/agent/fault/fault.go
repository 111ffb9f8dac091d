// SPDX-FileCopyrightText: The Skyhook authors
// SPDX-License-Identifier: Apache-2.0

// Package fault says why a run of the agent did not succeed: every error has a class, from which the exit code and the operator's reaction follow.
package fault

import (
	"context"
	"errors"
	"fmt"
	"log/slog"

	"github.com/skyhook-k8s/skyhook/internal/agent/host"
	"github.com/skyhook-k8s/skyhook/internal/pack"
)

// Fault is why a run did not succeed.
type Fault struct {
	Class pack.Class
	// Step is the step that caused it, with its exit code, signal and last lines.
	Step   string
	Exit   *int
	Signal string
	Lines  []string
	Err    error
}

func (f *Fault) Error() string { return f.Err.Error() }

// Unwrap is the cause.
func (f *Fault) Unwrap() error { return f.Err }

// Causes of a context that ends a run.
var (
	ErrStopped  = errors.New("the agent was told to stop")
	ErrDeadline = errors.New("the stage's deadline passed")
)

// New returns an error with a class.
func New(class pack.Class, format string, args ...any) error {
	return &Fault{Class: class, Err: fmt.Errorf(format, args...)}
}

// Classify turns any error into a Fault.
func Classify(err error) *Fault {
	var f *Fault
	switch {
	case errors.Is(err, host.ErrFull):
		return &Fault{Class: pack.HostFull, Err: err}
	case errors.As(err, &f):
		return f
	case errors.Is(err, ErrStopped):
		return &Fault{Class: pack.Stopped, Err: err}
	case errors.Is(err, ErrDeadline), errors.Is(err, context.DeadlineExceeded):
		return &Fault{Class: pack.TimedOut, Err: err}
	case pack.IsInvalid(err):
		return &Fault{Class: pack.InvalidPackage, Err: err}
	}
	return &Fault{Class: pack.HostProblem, Err: err}
}

// LogIgnored logs the error of a file for people, on which nothing depends.
func LogIgnored(log *slog.Logger, err error) {
	if err != nil {
		log.Warn("a file for people could not be written", "error", err)
	}
}
