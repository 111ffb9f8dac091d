// SPDX-FileCopyrightText: The Skyhook authors
// SPDX-License-Identifier: Apache-2.0

package pack

import (
	"fmt"
	"strings"
	"time"
)

// Variables that the agent reads. They are the contract between the operator's
// pods and the agent.
const (
	// EnvResourceID is {skyhook}-{uid}-{generation}_{package}_{version}; see ResourceID.
	EnvResourceID = "SKYHOOK_RESOURCE_ID"
	// EnvDataDir is where the package is when the agent copies it itself. Default /skyhook-package.
	EnvDataDir = "SKYHOOK_DATA_DIR"
	// EnvRootDir is the folder on the host for records, flags and history. Default /etc/skyhook.
	EnvRootDir = "SKYHOOK_ROOT_DIR"
	// EnvLogDir is the folder on the host for logs. Default /var/log/skyhook.
	EnvLogDir = "SKYHOOK_LOG_DIR"
	// EnvWriteLogs set to anything but true keeps step logs off the host. Default true.
	EnvWriteLogs = "SKYHOOK_AGENT_WRITE_LOGS"
	// EnvBufferLimit bounds the bytes of a step's output that are held at once. Default 8192.
	EnvBufferLimit = "SKYHOOK_AGENT_BUFFER_LIMIT"
	// EnvCopyResolv set to true copies the container's /etc/resolv.conf to the host. Default false.
	EnvCopyResolv = "COPY_RESOLV"
	// EnvAlwaysRun set to true runs every step, done before or not. Default false.
	EnvAlwaysRun = "OVERLAY_ALWAYS_RUN_STEP"

	// EnvRunID names the admission. Within one a finished step is skipped,
	// across two it runs again.
	EnvRunID = "SKYHOOK_RUN_ID"
	// EnvInterruptID names one interrupt of one admission: a reboot with the
	// same id happens once.
	EnvInterruptID = "SKYHOOK_INTERRUPT_ID"
	// EnvConfigDigest is the ConfigDigest of the configMap the stage was
	// compiled for. The agent retries later while the mounted one differs.
	EnvConfigDigest = "SKYHOOK_CONFIG_DIGEST"
	// EnvDeadline is when the stage must have ended; see ParseDeadline. The agent sets it for steps, by the clock of the node.
	EnvDeadline = "SKYHOOK_DEADLINE"
	// EnvStageTimeout is how long the stage may take, such as 30m0s. It overrides EnvDeadline, which the operator sets by its own
	// clock, for agents that do not know the timeout.
	EnvStageTimeout = "SKYHOOK_STAGE_TIMEOUT"
	// EnvRedact lists the variables whose values are secret; see SplitNames.
	EnvRedact = "SKYHOOK_REDACT"
	// EnvPodUID is the pod's UID. The init container copies the package to
	// the copy directory with "." and this UID appended; the agent moves it in place.
	EnvPodUID = "SKYHOOK_POD_UID"
)

// Variables of a pod in which several stages run one after the other, and the package is mounted from its image.
const (
	// EnvImageDir is where the image of the package is mounted read-only. The package is in its directory skyhook-package, or, if there is
	// no config.json there, in its root. The configMap and the metadata of the node are mounted below EnvDataDir, as always.
	EnvImageDir = "SKYHOOK_IMAGE_DIR"
	// EnvWithCheck set to true makes a stage and its check one container: after a stage that succeeded the agent runs its check.
	EnvWithCheck = "SKYHOOK_WITH_CHECK"
	// EnvStopFile is a file that is empty as long as the stage may begin. With any text in it, nothing is begun; see NotBegun.
	EnvStopFile = "SKYHOOK_STOP_FILE"
	// EnvPreviousFile is a file that exists when the stage before this one, in the same pod, has succeeded. The agent waits for it.
	EnvPreviousFile = "SKYHOOK_PREVIOUS_FILE"
	// EnvSuccessFile is a file that the agent creates when the stage, and its check, have succeeded.
	EnvSuccessFile = "SKYHOOK_SUCCESS_FILE"
)

// Variables that steps see besides the package's own.
const (
	// EnvStepRoot is StepDir of the package on the host.
	EnvStepRoot = "STEP_ROOT"
	// EnvSkyhookDir is the package on the host, and the step's working directory.
	EnvSkyhookDir = "SKYHOOK_DIR"
	// EnvPreviousVersion is given in upgrade and upgrade-check: the version that
	// was installed, UnknownVersion, or Uninstalled.
	EnvPreviousVersion = "PREVIOUS_VERSION"
	// EnvCurrentVersion is given in upgrade and upgrade-check: the version of this package.
	EnvCurrentVersion = "CURRENT_VERSION"
	// EnvNodeOrder is the node's place in the rollout, counted from 0. The
	// operator sets it and the agent passes it on.
	EnvNodeOrder = "SKYHOOK_NODE_ORDER"
)

// Values of EnvPreviousVersion that are not versions.
const (
	UnknownVersion = "unknown"
	Uninstalled    = "uninstalled"
)

// EnvArgument is the prefix of an argument that is replaced by a variable's value.
const EnvArgument = "env:"

// DefaultRootDir, DefaultLogDir and DefaultRootMount apply when nothing else is given.
const (
	DefaultRootDir   = "/etc/skyhook"
	DefaultLogDir    = "/var/log/skyhook"
	DefaultRootMount = "/root"
)

// ResourceID says for which package of which Skyhook the agent works. Package
// and Version are those of the Skyhook resource, not of config.json.
type ResourceID struct {
	Owner   string // {skyhook}-{uid}-{generation}
	Package string
	Version string
}

// String is the value of EnvResourceID.
func (r ResourceID) String() string {
	return r.Owner + "_" + r.Package + "_" + r.Version
}

// ParseResourceID reads the value of EnvResourceID.
func ParseResourceID(s string) (ResourceID, error) {
	parts := strings.SplitN(s, "_", 3)
	if len(parts) != 3 {
		return ResourceID{}, fmt.Errorf("%s is %s: it must be {skyhook}-{uid}-{generation}_{package}_{version}", EnvResourceID, quoteValue(s))
	}
	r := ResourceID{Owner: parts[0], Package: parts[1], Version: parts[2]}
	for _, part := range parts {
		if part == "" || part == "." || part == ".." || strings.ContainsAny(part, "/\x00") {
			return ResourceID{}, fmt.Errorf("%s is %s: its three parts must be names without slashes", EnvResourceID, quoteValue(s))
		}
	}
	return r, nil
}

// FormatDeadline is the value of EnvDeadline.
func FormatDeadline(t time.Time) string { return t.UTC().Format(time.RFC3339) }

// ParseDeadline reads the value of EnvDeadline; an empty one is no deadline.
func ParseDeadline(s string) (time.Time, error) {
	if s == "" {
		return time.Time{}, nil
	}
	t, err := time.Parse(time.RFC3339, s)
	if err != nil {
		return time.Time{}, fmt.Errorf("%s is %s: it must be a time such as 2026-01-31T12:00:00Z", EnvDeadline, quoteValue(s))
	}
	return t.UTC(), nil
}

// JoinNames is the value of EnvRedact.
func JoinNames(names []string) string { return strings.Join(names, ",") }

// SplitNames reads the value of EnvRedact: names separated by commas or blanks.
func SplitNames(s string) []string {
	return strings.FieldsFunc(s, func(r rune) bool { return r == ',' || r == ' ' || r == '\t' || r == '\n' })
}

// quoteValue quotes and shortens a value for a message.
func quoteValue(s string) string {
	const most = 80
	if r := []rune(s); len(r) > most {
		s = string(r[:most]) + "…"
	}
	return fmt.Sprintf("%q", s)
}
