// SPDX-FileCopyrightText: The Skyhook authors
// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"cmp"
	"fmt"
	"os"
	"path"
	"strconv"
	"strings"
	"time"

	"github.com/skyhook-k8s/skyhook/internal/agent/step"
	"github.com/skyhook-k8s/skyhook/internal/pack"
)

// Variables that only the agent uses, in addition to those of package pack.
const (
	// EnvGrace is the time between SIGTERM and SIGKILL for a step, such as 30s. If it is not set, a step that exceeds
	// its deadline gets defaultGrace, and a step whose agent is told to stop gets the grace period of the pod.
	EnvGrace = "SKYHOOK_AGENT_GRACE"
	// EnvMessageFile is the file for the result, in place of pack.MessageFile.
	EnvMessageFile = "SKYHOOK_TERMINATION_LOG"
)

const defaultGrace = 25 * time.Second

// Settings are the settings in the environment.
type Settings struct {
	// Env is the agent's environment. Steps get it without the variables of the agent's own container.
	Env map[string]string
	// Resource is empty when the variable is; ResourceErr is why it is invalid.
	Resource    pack.ResourceID
	ResourceErr error

	SourceDir, StateDir, LogDir string
	CompactPod
	// Privileges are those of the pod; none if it has all.
	Privileges pack.Privileges

	WriteLogs             bool
	BufferLimit           int
	CopyResolv, AlwaysRun bool
	RunID, InterruptID    string
	ReadOnlyRoot          string
	DriftChecks           []pack.Mode
	MessageLimit          int
	ConfigDigest, PodUID  string
	// Deadline applies unless there is a StageTimeout.
	Deadline     time.Time
	StageTimeout time.Duration
	Redact       []string
	// Grace is zero when it is not set.
	Grace       time.Duration
	MessageFile string
	// Warnings are invalid settings, for which defaults are used.
	Warnings []string
}

// CompactPod are the settings of a stage in a compact pod.
type CompactPod struct {
	// ImageDir is where the image of the package is mounted; empty if an init container copied the package.
	ImageDir string
	// WithCheck is true if the check of a stage runs after it.
	WithCheck bool
	// StopFile is the file that keeps a stage from beginning; empty for none.
	StopFile string
	// PreviousFile is what a stage waits for, SuccessFile what it creates when it has succeeded; empty for neither.
	PreviousFile, SuccessFile string
}

// ReadSettings reads the environment. An invalid setting is an error only for what needs it.
func ReadSettings(environ []string) Settings {
	env := map[string]string{}
	for _, pair := range environ {
		if name, value, ok := strings.Cut(pair, "="); ok && name != "" {
			env[name] = value
		}
	}
	s := Settings{
		Env:          env,
		SourceDir:    cmp.Or(env[pack.EnvDataDir], pack.ImageDir),
		StateDir:     cmp.Or(env[pack.EnvRootDir], pack.DefaultRootDir),
		LogDir:       cmp.Or(env[pack.EnvLogDir], pack.DefaultLogDir),
		WriteLogs:    cmp.Or(strings.ToLower(env[pack.EnvWriteLogs]), "true") == "true",
		CopyResolv:   strings.EqualFold(env[pack.EnvCopyResolv], "true"),
		AlwaysRun:    strings.EqualFold(env[pack.EnvAlwaysRun], "true"),
		RunID:        env[pack.EnvRunID],
		InterruptID:  env[pack.EnvInterruptID],
		ConfigDigest: env[pack.EnvConfigDigest],
		PodUID:       env[pack.EnvPodUID],
		Redact:       pack.SplitNames(env[pack.EnvRedact]),
		MessageFile:  env[EnvMessageFile],
		ReadOnlyRoot: env[pack.EnvReadOnlyRoot],
		CompactPod: CompactPod{
			ImageDir:     env[pack.EnvImageDir],
			WithCheck:    strings.EqualFold(env[pack.EnvWithCheck], "true"),
			StopFile:     env[pack.EnvStopFile],
			PreviousFile: env[pack.EnvPreviousFile],
			SuccessFile:  env[pack.EnvSuccessFile],
		},
		Privileges:  pack.SplitNames(env[pack.EnvPrivileges]),
		DriftChecks: parseDriftChecks(env[pack.EnvDriftChecks]),
	}
	if text := env[pack.EnvResourceID]; text != "" {
		s.Resource, s.ResourceErr = pack.ParseResourceID(text)
	}
	warn := func(format string, args ...any) { s.Warnings = append(s.Warnings, fmt.Sprintf(format, args...)) }
	s.BufferLimit = readNumber(env, pack.EnvBufferLimit, step.DefaultLimit, warn)
	s.MessageLimit = min(readNumber(env, pack.EnvMessageLimit, pack.MaxMessage, warn), pack.MaxMessage)
	s.Grace = readDuration(env, EnvGrace, warn)
	var err error
	if s.Deadline, err = pack.ParseDeadline(env[pack.EnvDeadline]); err != nil {
		warn("%s; there is no deadline", err)
	}
	s.StageTimeout = readDuration(env, pack.EnvStageTimeout, warn)
	if uid := s.PodUID; uid != "" && (path.Base(uid) != uid || uid == ".." || uid == "." || len(uid) > 64) {
		warn("%s is %.40q and not a UID; it is not used", pack.EnvPodUID, uid)
		s.PodUID = ""
	}
	return s
}

func readNumber(env map[string]string, name string, otherwise int, warn func(string, ...any)) int {
	text := env[name]
	if text == "" {
		return otherwise
	}
	n, err := strconv.Atoi(strings.TrimSpace(text))
	if err != nil || n < 1 {
		warn("%s is %.40q and not a number of bytes; %d is used", name, text, otherwise)
		return otherwise
	}
	return min(n, 1<<20)
}

func readDuration(env map[string]string, name string, warn func(string, ...any)) time.Duration {
	text := env[name]
	if text == "" {
		return 0
	}
	d, err := time.ParseDuration(text)
	if err != nil || d < 0 {
		warn("%s is %.40q and not a duration such as 30s; it is not used", name, text)
		return 0
	}
	return d
}

// releaseVersion is the package version in the Skyhook.
func (s *Settings) releaseVersion(config pack.Config) string {
	return cmp.Or(s.Resource.Version, config.Version)
}

// admissionID identifies the run that "done" refers to: the admission, or the generation of the Skyhook.
func (s *Settings) admissionID() string {
	if s.RunID != "" {
		return s.RunID
	}
	if s.Resource != (pack.ResourceID{}) {
		return "resource:" + s.Resource.String()
	}
	return ""
}

func readLocal(name string) (string, error) {
	content, err := os.ReadFile(name)
	return string(content), err
}
