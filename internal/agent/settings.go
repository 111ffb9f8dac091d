// SPDX-FileCopyrightText: The Skyhook authors
// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"fmt"
	"os"
	"path"
	"strconv"
	"strings"
	"time"

	"github.com/skyhook-k8s/skyhook/internal/agent/step"
	"github.com/skyhook-k8s/skyhook/internal/pack"
)

// Variables that only the agent knows, beside those of package pack.
const (
	// EnvGrace is how long a step has between SIGTERM and SIGKILL, such as 30s. Unless it is set, a step whose time is up
	// has defaultGrace, and one whose agent is told to stop has until the agent is killed: the pod's own grace decides.
	EnvGrace = "SKYHOOK_AGENT_GRACE"
	// EnvMessageFile is where the result is left, in place of pack.MessageFile.
	EnvMessageFile = "SKYHOOK_TERMINATION_LOG"
)

const defaultGrace = 25 * time.Second

// Settings is what the environment says.
type Settings struct {
	// Env is the agent's whole environment; steps see it but for what belongs to the agent's own container.
	Env map[string]string
	// Resource is empty when the variable is; ResourceErr says what is wrong with it.
	Resource    pack.ResourceID
	ResourceErr error

	SourceDir, StateDir, LogDir string
	WriteLogs                   bool
	BufferLimit                 int
	CopyResolv, AlwaysRun       bool
	RunID, InterruptID          string
	ConfigDigest, PodUID        string
	Deadline                    time.Time
	Redact                      []string
	// Grace is zero when nobody set it.
	Grace       time.Duration
	MessageFile string
	// Warnings are settings that could not be used; a default stands in for each.
	Warnings []string
}

// ReadSettings reads the environment. What cannot be understood stops nothing that does not need it.
func ReadSettings(environ []string) Settings {
	env := map[string]string{}
	for _, pair := range environ {
		if name, value, ok := strings.Cut(pair, "="); ok && name != "" {
			env[name] = value
		}
	}
	s := Settings{
		Env:          env,
		SourceDir:    or(env[pack.EnvDataDir], pack.ImageDir),
		StateDir:     or(env[pack.EnvRootDir], pack.DefaultRootDir),
		LogDir:       or(env[pack.EnvLogDir], pack.DefaultLogDir),
		WriteLogs:    or(strings.ToLower(env[pack.EnvWriteLogs]), "true") == "true",
		CopyResolv:   strings.EqualFold(env[pack.EnvCopyResolv], "true"),
		AlwaysRun:    strings.EqualFold(env[pack.EnvAlwaysRun], "true"),
		RunID:        env[pack.EnvRunID],
		InterruptID:  env[pack.EnvInterruptID],
		ConfigDigest: env[pack.EnvConfigDigest],
		PodUID:       env[pack.EnvPodUID],
		Redact:       pack.SplitNames(env[pack.EnvRedact]),
		MessageFile:  env[EnvMessageFile],
	}
	if text := env[pack.EnvResourceID]; text != "" {
		s.Resource, s.ResourceErr = pack.ParseResourceID(text)
	}
	s.BufferLimit = s.number(pack.EnvBufferLimit, step.DefaultLimit)
	s.Grace = s.duration(EnvGrace, 0)
	var err error
	if s.Deadline, err = pack.ParseDeadline(env[pack.EnvDeadline]); err != nil {
		s.Warnings = append(s.Warnings, err.Error()+"; there is no deadline")
	}
	s.PodUID = s.plainName(pack.EnvPodUID, s.PodUID)
	return s
}

func (s *Settings) number(name string, otherwise int) int {
	text, ok := s.Env[name]
	if !ok || text == "" {
		return otherwise
	}
	n, err := strconv.Atoi(strings.TrimSpace(text))
	if err != nil || n < 1 {
		s.Warnings = append(s.Warnings, fmt.Sprintf("%s is %.40q and not a number of bytes; %d is used", name, text, otherwise))
		return otherwise
	}
	return min(n, 1<<20)
}

func (s *Settings) duration(name string, otherwise time.Duration) time.Duration {
	text, ok := s.Env[name]
	if !ok || text == "" {
		return otherwise
	}
	d, err := time.ParseDuration(text)
	if err != nil || d < 0 {
		s.Warnings = append(s.Warnings, fmt.Sprintf("%s is %.40q and not a duration such as 30s; it is not used", name, text))
		return otherwise
	}
	return d
}

// plainName drops a value that would not be one file name.
func (s *Settings) plainName(name, value string) string {
	if value != "" && (path.Base(value) != value || value == ".." || value == "." || len(value) > 64) {
		s.Warnings = append(s.Warnings, fmt.Sprintf("%s is %.40q and not a UID; it is not used", name, value))
		return ""
	}
	return value
}

// release is the version of the package as the Skyhook names it.
func (s *Settings) release(config pack.Config) string { return or(s.Resource.Version, config.Version) }

// run is what "done" refers to: the admission; without one, the Skyhook's generation.
func (s *Settings) run() string {
	if s.RunID != "" {
		return s.RunID
	}
	if s.Resource != (pack.ResourceID{}) {
		return "resource:" + s.Resource.String()
	}
	return ""
}

func or(text, otherwise string) string {
	if text == "" {
		return otherwise
	}
	return text
}

func readLocal(name string) (string, error) {
	content, err := os.ReadFile(name)
	return string(content), err
}
