// SPDX-FileCopyrightText: The Skyhook authors
// SPDX-License-Identifier: Apache-2.0

package pack

import "strings"

// Mode is what the agent does with a package: a stage of its lifecycle, or
// the check of one. It is the first word of the agent's command line.
type Mode string

// The modes, in the order a package meets them.
const (
	ModePreflight          Mode = "preflight" // looks and answers, before a node takes its turn; see Preflight
	ModeUninstall          Mode = "uninstall"
	ModeUninstallCheck     Mode = "uninstall-check"
	ModeUpgrade            Mode = "upgrade"
	ModeUpgradeCheck       Mode = "upgrade-check"
	ModeApply              Mode = "apply"
	ModeApplyCheck         Mode = "apply-check"
	ModeConfig             Mode = "config"
	ModeConfigCheck        Mode = "config-check"
	ModeInterrupt          Mode = "interrupt" // has no steps; see Interrupt
	ModePostInterrupt      Mode = "post-interrupt"
	ModePostInterruptCheck Mode = "post-interrupt-check"
)

var modes = []Mode{
	ModePreflight,
	ModeUninstall, ModeUninstallCheck,
	ModeUpgrade, ModeUpgradeCheck,
	ModeApply, ModeApplyCheck,
	ModeConfig, ModeConfigCheck,
	ModeInterrupt,
	ModePostInterrupt, ModePostInterruptCheck,
}

// Modes lists all modes in the order a package meets them.
func Modes() []Mode { return append([]Mode(nil), modes...) }

// ParseMode finds the mode with this name. An unknown word is not an error for
// the agent: one that is older than a stage does nothing for it.
func ParseMode(word string) (Mode, bool) {
	for _, m := range append(Modes(), ModeDrift) {
		if string(m) == word {
			return m, true
		}
	}
	return "", false
}

const checkSuffix = "-check"

// IsCheck says whether the mode looks at the host without changing it.
func (m Mode) IsCheck() bool { return strings.HasSuffix(string(m), checkSuffix) }

// IsReadOnly says whether the mode changes nothing on the host.
func (m Mode) IsReadOnly() bool { return m.IsCheck() || m == ModeDrift || m == ModePreflight }

// HasCheck says whether the mode acts on the host, so that another mode checks it.
func (m Mode) HasCheck() bool { return m.HasSteps() && !m.IsCheck() && m != ModePreflight }

// Check is the mode that checks this one; a check is its own check, and
// interrupt and preflight have none.
func (m Mode) Check() Mode {
	if m.IsCheck() {
		return m
	}
	if !m.HasCheck() {
		return ""
	}
	return m + checkSuffix
}

// Action is the mode without "-check".
func (m Mode) Action() Mode { return Mode(strings.TrimSuffix(string(m), checkSuffix)) }

// HasSteps says whether config.json can hold steps for the mode.
func (m Mode) HasSteps() bool { return m != ModeInterrupt && m != ModeDrift }

// Uninstalls says whether the mode takes the package away: the overlay and the
// expected config files do not matter then.
func (m Mode) Uninstalls() bool { return m.Action() == ModeUninstall }

// Upgrades says whether PREVIOUS_VERSION and CURRENT_VERSION are given.
func (m Mode) Upgrades() bool { return m.Action() == ModeUpgrade }
