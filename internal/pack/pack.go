// SPDX-FileCopyrightText: The Skyhook authors
// SPDX-License-Identifier: Apache-2.0

// Package pack is the package format (config.json) and the words that the
// operator and the agent exchange: modes, environment variables, interrupts,
// exit codes and the result a container leaves behind.
//
// A Config is read by Parse (the document alone), Load (a package folder, for
// running one mode of it) or Validate (a package folder, for its author). All
// three return every problem they find at once; a Config must not be run while
// its Problems are Failed.
package pack

import (
	"encoding/json"
	"path"
	"time"
)

// SchemaVersion is the one version of config.json there is.
const SchemaVersion = "v1"

// The folders and files of a package, relative to its root (/skyhook-package in
// the image, SKYHOOK_DIR on the host).
const (
	// ConfigFile describes the package.
	ConfigFile = "config.json"
	// StepDir holds the step files; STEP_ROOT points to it.
	StepDir = "skyhook_dir"
	// OverlayDir is laid over the host's root; it is optional.
	OverlayDir = "root_dir"
	// ConfigMapDir holds one file for each key of the Skyhook's configMap.
	ConfigMapDir = "configmaps"
	// NodeMetadataDir holds labels.json, annotations.json and packages.json of the node.
	NodeMetadataDir = "node-metadata"
	// DeliveryFile, in a package on the host, shows that an agent of ours put it there: it takes the next copy from
	// beside the place, see EnvPodUID.
	DeliveryFile = ".skyhook-delivery.json"
	// ImageDir is where a package image keeps the package.
	ImageDir = "/skyhook-package"
)

// Config is config.json.
type Config struct {
	SchemaVersion string
	Name          string
	Version       string // semantic version 2.0, no leading v
	// ExpectedConfigFiles names files that must be in ConfigMapDir before any
	// mode but uninstall and uninstall-check runs.
	ExpectedConfigFiles []string
	// Rollback false means that no rollback undoes what the package did; nil when absent, which is like true.
	Rollback *bool
	// Privileges are what the steps may do on the host; none when absent, which means everything.
	Privileges Privileges
	Modes      map[Mode][]Step
	// Extra keeps the root keys that the schema does not name, so that writing
	// a Config gives back what was read.
	Extra map[string]json.RawMessage
}

// Steps are the steps of a mode in the order they run.
func (c Config) Steps(m Mode) []Step { return c.Modes[m] }

// RefusesRollback reports whether a node does not go back if that would change the package.
func (c Config) RefusesRollback() bool { return c.Rollback != nil && !*c.Rollback }

// Step is one script (or program) of a package and how to run it.
type Step struct {
	Name        string   // for people
	Path        string   // relative to StepDir; see File
	Arguments   []string // an argument env:NAME is replaced by that variable's value
	ReturnCodes []int    // exit codes that mean success
	OnHost      bool     // accepted; steps always run on the host
	Env         map[string]string
	// Idempotence true means that the step may run again at any time, since the
	// package takes care of it; false, that the agent does not run it again.
	Idempotence bool
	// UpgradeStep appends the previous and the current version to the
	// arguments; only in upgrade and upgrade-check.
	UpgradeStep bool
	// Timeout limits one run of the step; zero means no limit of its own.
	Timeout time.Duration
	// RequiresInterrupt is accepted and has no effect; nil when absent.
	RequiresInterrupt *bool
}

// File is the step's path relative to StepDir in its shortest form.
func (s Step) File() string { return path.Clean(s.Path) }

// Title is how messages name a step: its name, else its path.
func (s Step) Title() string {
	if s.Name != "" {
		return s.Name
	}
	return s.Path
}
