// SPDX-FileCopyrightText: The Skyhook authors
// SPDX-License-Identifier: Apache-2.0

package pack

// Outcome is how a run of the agent ended.
type Outcome string

// The outcomes.
const (
	// Succeeded: everything asked for was done, or there was nothing to do.
	Succeeded Outcome = "succeeded"
	// Failed: the package or the host is at fault; it counts as a failure.
	Failed Outcome = "failed"
	// Retry: nothing is known to be wrong; the same run is to be started
	// again and does not count as a failure.
	Retry Outcome = "retry"
)

// Class says why a run of the agent did not succeed. Each has an exit code of
// its own; an operator that knows only zero and not zero is served as well.
type Class string

// The classes.
const (
	// StepFailed: a step ended with an exit code it does not accept, by a signal, or could not be started.
	StepFailed Class = "StepFailed"
	// BadUsage: wrong arguments or flags.
	BadUsage Class = "BadUsage"
	// InvalidPackage: config.json or a file of the package breaks a rule.
	InvalidPackage Class = "InvalidPackage"
	// CheckFailed: one or more steps of a check mode failed.
	CheckFailed Class = "CheckFailed"
	// HostProblem: the host could not be read or written.
	HostProblem Class = "HostProblem"
	// HostFull: no space, inodes or quota left on the host.
	HostFull Class = "HostFull"
	// TimedOut: a step's timeout or the stage's deadline passed.
	TimedOut Class = "TimedOut"
	// InterruptFailed: a service could not be restarted, or a reboot was refused.
	InterruptFailed Class = "InterruptFailed"
	// MissingConfig: an expected config file or the variable of an env: argument is not there.
	MissingConfig Class = "MissingConfig"
	// RetryLater: another agent holds the package's lock, or the configMap mounted is not the one the stage was made for.
	RetryLater Class = "RetryLater"
	// NotBegun: the stage or interrupt was not begun, because the operator wants none to begin any more; see EnvStopFile.
	NotBegun Class = "NotBegun"
	// Stopped: the agent was told to stop (SIGTERM) before it was done.
	Stopped Class = "Stopped"
)

// classes is the table of exit codes, in their order. Codes never change.
var classes = []struct {
	class   Class
	code    int
	outcome Outcome
}{
	{"", 0, Succeeded},
	{StepFailed, 1, Failed},
	{BadUsage, 2, Failed},
	{InvalidPackage, 3, Failed},
	{CheckFailed, 4, Failed},
	{HostProblem, 5, Failed},
	{HostFull, 6, Failed},
	{TimedOut, 7, Failed},
	{InterruptFailed, 8, Failed},
	{MissingConfig, 9, Failed},
	{RetryLater, 75, Retry},
	{NotBegun, 76, Retry},
	{Stopped, 143, Retry},
}

// ExitCode is the agent's exit code; that of no class is 0, of an unknown one 1.
func (c Class) ExitCode() int {
	for _, row := range classes {
		if row.class == c {
			return row.code
		}
	}
	return StepFailed.ExitCode()
}

// Outcome is how a run of this class ended.
func (c Class) Outcome() Outcome {
	for _, row := range classes {
		if row.class == c {
			return row.outcome
		}
	}
	return Failed
}

// ClassOf finds the class of an exit code, for a run that left no Message. It
// is false for a code that no agent of ours chooses, such as 137.
func ClassOf(exitCode int) (Class, bool) {
	for _, row := range classes {
		if row.code == exitCode {
			return row.class, true
		}
	}
	return "", false
}
