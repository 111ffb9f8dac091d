// SPDX-FileCopyrightText: The Skyhook authors
// SPDX-License-Identifier: Apache-2.0

package output

import (
	"errors"
	"fmt"
)

// Exit codes of commands that check something.
const (
	exitProblems   = 1
	exitNotChecked = 2
)

// ExitError is an error with an exit code of its own. When Err is nil, everything has been printed already.
type ExitError struct {
	Code int
	Err  error
}

func (e *ExitError) Error() string {
	if e.Err == nil {
		return fmt.Sprintf("exit code %d", e.Code)
	}
	return e.Err.Error()
}

func (e *ExitError) Unwrap() error { return e.Err }

// ProblemsFound ends a command that checked something and has printed what is wrong.
func ProblemsFound() error { return &ExitError{Code: exitProblems} }

// NotChecked ends a command that could not check what it was asked to check.
func NotChecked(err error) error {
	if err == nil {
		return nil
	}
	return &ExitError{Code: exitNotChecked, Err: err}
}

// ExitCode returns the exit code for the error of a command, and whether the error is still to be printed.
func ExitCode(err error) (code int, unprinted bool) {
	var exit *ExitError
	switch {
	case err == nil:
		return 0, false
	case errors.As(err, &exit):
		return exit.Code, exit.Err != nil
	}
	return 1, true
}
