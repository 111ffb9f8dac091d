// SPDX-FileCopyrightText: The Skyhook authors
// SPDX-License-Identifier: Apache-2.0

package pack

import (
	"cmp"
	"fmt"
	"path"
	"slices"
	"strings"
)

// EnvPrivileges has the privileges of the pod for its steps, with commas between them; it is not set for those with all.
const EnvPrivileges = "SKYHOOK_PRIVILEGES"

// Privileges are what the steps of a package may do on a host: directories that they may write, and words for more. None at all mean everything.
type Privileges []string

// The words.
const (
	PrivilegeSysctl   = "sysctl"   // write /proc/sys
	PrivilegeServices = "services" // ask systemd
	PrivilegeReboot   = "reboot"   // and have it reboot the host
	PrivilegeFull     = "full"     // everything
)

// PrivilegeFiles is the class of a package that writes directories and nothing else.
const PrivilegeFiles = "files"

// privilegeClasses are the classes of packages, from the weakest to the strongest.
var privilegeClasses = []string{PrivilegeFiles, PrivilegeSysctl, PrivilegeServices, PrivilegeReboot, PrivilegeFull}

// Most of a declaration.
const (
	maxPrivileges     = 16  // entries
	maxPrivilegeBytes = 400 // of all together
)

// reservedDirs are directories of the host that no pod gets to write by name.
var reservedDirs = []string{"/", "/proc", "/sys", "/dev", "/run", "/var/run", "/tmp"}

// IsFull reports whether a package may do everything.
func (p Privileges) IsFull() bool { return len(p) == 0 || p.Has(PrivilegeFull) }

// Has reports whether an entry is declared.
func (p Privileges) Has(entry string) bool { return slices.Contains(p, entry) }

// AskSystemd reports whether the steps may ask systemd.
func (p Privileges) AskSystemd() bool { return p.Has(PrivilegeServices) || p.Has(PrivilegeReboot) }

// Dirs returns the directories, each once.
func (p Privileges) Dirs() []string {
	sorted := slices.Compact(slices.Sorted(slices.Values(p)))
	return slices.DeleteFunc(sorted, func(entry string) bool { return !strings.HasPrefix(entry, "/") })
}

// Class returns the strongest of what is declared.
func (p Privileges) Class() string {
	if p.IsFull() {
		return PrivilegeFull
	}
	return slices.MaxFunc(append(slices.Clone(p), PrivilegeFiles), CompareClasses) // directories are weaker than all
}

// CompareClasses orders classes by their strength, as cmp.Compare does.
func CompareClasses(a, b string) int {
	return cmp.Compare(slices.Index(privilegeClasses, a), slices.Index(privilegeClasses, b))
}

// FindProblem returns what is wrong with a declaration, and how to correct it; empty if nothing is.
func (p Privileges) FindProblem() (wrong, fix string) {
	for _, entry := range p {
		if wrong := invalidPrivilegeReason(entry); wrong != "" {
			return wrong, "use sysctl, services, reboot, full, or a directory that steps may write, such as /etc/sysctl.d"
		}
	}
	switch {
	case p.Has(PrivilegeFull) && len(p) > 1:
		return "full is there beside others", "remove the others: full includes them"
	case len(p) > maxPrivileges || len(strings.Join(p, ",")) > maxPrivilegeBytes:
		return fmt.Sprintf("it has more than %d entries or %d characters", maxPrivileges, maxPrivilegeBytes), "name a directory above several of them, or full"
	}
	return "", ""
}

func invalidPrivilegeReason(entry string) string {
	words := []string{PrivilegeSysctl, PrivilegeServices, PrivilegeReboot, PrivilegeFull}
	isReserved := slices.ContainsFunc(reservedDirs, func(dir string) bool { return entry == dir || strings.HasPrefix(entry, dir+"/") })
	switch {
	case slices.Contains(words, entry):
		return ""
	case !strings.HasPrefix(entry, "/"):
		return quoteValue(entry) + " is no privilege" + SuggestWord(entry, words)
	case path.Clean(entry) != entry || strings.ContainsAny(entry, ":, \t\r\n\x00"):
		return quoteValue(entry) + " is not the shortest path of a directory, or has a blank, colon or comma"
	case isReserved:
		return quoteValue(entry) + " is no directory that a package keeps files in"
	}
	return ""
}
