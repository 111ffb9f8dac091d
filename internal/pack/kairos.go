// SPDX-FileCopyrightText: The Skyhook authors
// SPDX-License-Identifier: Apache-2.0

package pack

import (
	"encoding/json"
	"slices"
	"strings"
)

// Kairos describes the Kairos installation of a host. Without Kairos only BootID is set.
type Kairos struct {
	// BootID is the boot in which the host is, as in /proc/sys/kernel/random/boot_id; empty if it is unknown.
	BootID string
	Runs   bool
	// Release holds what its release file says, by key without the prefix KAIROS_; only keys of KairosKeys.
	Release map[string]string
	// Boot is the system it booted: active, passive, recovery, livecd or unknown; empty when it cannot be determined.
	Boot string
}

// KairosKeys are the keys of a release file that are reported.
var KairosKeys = []string{
	"ID", "FAMILY", "FLAVOR", "FLAVOR_RELEASE", "VARIANT", "RELEASE", "MODEL", "ARCH", "TRUSTED_BOOT", "FIPS",
	"SOFTWARE_VERSION_PREFIX", "SOFTWARE_VERSION", "NAME", "ID_LIKE", "INIT_VERSION", "VERSION", "BUG_REPORT_URL", "HOME_URL",
}

// The systems a host can have booted.
const (
	KairosActive   = "active"
	KairosPassive  = "passive"
	KairosRecovery = "recovery"
	KairosLive     = "livecd"
	KairosUnknown  = "unknown"
)

// Version is the version that a release file names; empty when it names none.
func (k Kairos) Version() string {
	if k.Release["VERSION"] == "" {
		return ""
	}
	return k.Release["VERSION"] + "-" + k.Release["SOFTWARE_VERSION_PREFIX"] + k.Release["SOFTWARE_VERSION"]
}

// ReadRelease reads the lines KEY=VALUE of a release file.
func ReadRelease(text string) map[string]string {
	out := map[string]string{}
	for line := range strings.Lines(text) {
		key, value, ok := strings.Cut(strings.TrimSpace(line), "=")
		if !ok || strings.HasPrefix(key, "#") {
			continue
		}
		out[strings.TrimSpace(key)] = strings.Trim(strings.TrimSpace(value), `"'`)
	}
	return out
}

// KairosRelease returns the reported keys of a release file.
func KairosRelease(text string) map[string]string {
	all, out := ReadRelease(text), map[string]string{}
	for _, key := range KairosKeys {
		if value := all["KAIROS_"+key]; value != "" {
			out[key] = value
		}
	}
	return out
}

// KairosBoot returns which system was booted, from the kernel's command line.
func KairosBoot(line string) string {
	for _, boot := range []struct {
		state string
		words []string
	}{
		{KairosActive, []string{"COS_ACTIVE"}},
		{KairosPassive, []string{"COS_PASSIVE"}},
		{KairosRecovery, []string{"COS_RECOVERY", "COS_SYSTEM", "recovery-mode"}},
		{KairosLive, []string{"live:LABEL", "live:CDLABEL", "netboot"}},
	} {
		if slices.ContainsFunc(boot.words, func(w string) bool { return strings.Contains(line, w) }) {
			return boot.state
		}
	}
	return KairosUnknown
}

// kairosSchema marks the message of a Kairos probe.
const kairosSchema = "skyhook-kairos/1"

type wireKairos struct {
	Schema  string            `json:"schema"`
	Runs    bool              `json:"runs"`
	Release map[string]string `json:"release,omitempty"`
	Boot    string            `json:"boot,omitempty"`
	BootID  string            `json:"bootID,omitempty"`
}

// Encode returns the message of a Kairos probe: one JSON object that fits a container's termination message.
func (k Kairos) Encode() []byte {
	const longest = 180 // bytes of one value
	w := wireKairos{Schema: kairosSchema, Runs: k.Runs, Boot: clipToJSON(k.Boot, longest), BootID: clipToJSON(k.BootID, 64)}
	for _, key := range KairosKeys {
		if value := k.Release[key]; value != "" {
			if w.Release == nil {
				w.Release = map[string]string{}
			}
			w.Release[key] = clipToJSON(value, longest)
		}
	}
	return marshalCompact(w)
}

// DecodeKairos parses the message of a Kairos probe; false for anything else.
func DecodeKairos(s string) (Kairos, bool) {
	var w wireKairos
	if err := json.Unmarshal([]byte(s), &w); err != nil || w.Schema != kairosSchema {
		return Kairos{}, false
	}
	return Kairos{Runs: w.Runs, Release: w.Release, Boot: w.Boot, BootID: clipToJSON(w.BootID, 64)}, true
}
