// SPDX-FileCopyrightText: The Skyhook authors
// SPDX-License-Identifier: Apache-2.0

package pack

import (
	"bytes"
	"encoding/json"
	"slices"
	"strings"
	"time"
	"unicode/utf8"
)

// MaxMessage is the most bytes an encoded Message has. A container may leave
// 4 KiB, but the kubelet shares 12 KiB among all containers of a pod and cuts
// what is over: a stage's pod has four containers, and debugging adds more.
const MaxMessage = 2048

// MessageFile is where the agent leaves its Message unless told otherwise.
const MessageFile = "/dev/termination-log"

// messageSchema marks a message as ours; the number rises when a field changes its meaning.
const messageSchema = "skyhook-agent/1"

// Message is what a run of the agent leaves behind as its container's
// termination message, so that the operator can say why without reading logs.
type Message struct {
	Agent   string // version of the agent
	Package string // name in the Skyhook
	Version string // version in the Skyhook
	Mode    Mode
	Outcome Outcome
	Class   Class  // why it did not succeed
	Reason  string // one sentence for people
	Step    string // the step that decided the outcome
	// Exit is the exit code of that step; nil when it did not exit by itself.
	Exit     *int
	Signal   string // the signal that ended that step, such as SIGKILL
	Duration time.Duration
	Ran      int // steps run
	Skipped  int // steps done before
	// Checked is true if the check of a stage ran after it in the same container; see EnvWithCheck. Mode is that of the check if it failed.
	Checked bool
	// Reboot is set by a reboot that was seen to happen.
	Reboot *Reboot
	// Boot is the boot of the host in which a stage succeeded.
	Boot string
	// RefusesRollback is Config.RefusesRollback of the package that ran.
	RefusesRollback bool
	// Drift is set by a check for drift that could look.
	Drift *Drift
	// Preflight is set by a preflight that succeeded.
	Preflight *Preflight
	// Lines are the last lines of that step's output, redacted.
	Lines []string
}

// Reboot names the boots before and after, as in /proc/sys/kernel/random/boot_id.
type Reboot struct {
	From string `json:"from"`
	To   string `json:"to"`
	// Version and System are what came up on a host that runs Kairos, as in Kairos.Version and Kairos.Boot.
	Version string `json:"version,omitempty"`
	System  string `json:"system,omitempty"`
}

// IsProvenBy reports whether a host that is in this boot has rebooted: it is in the boot that the agent saw, or in another one that
// is none of those before the reboot, because it booted again.
func (r *Reboot) IsProvenBy(boot string, before ...string) bool {
	return boot != "" && (boot == r.To || boot != r.From && !slices.Contains(before, boot))
}

type wireMessage struct {
	Schema   string   `json:"schema"`
	Outcome  Outcome  `json:"outcome"`
	Class    Class    `json:"class,omitempty"`
	Package  string   `json:"package,omitempty"`
	Version  string   `json:"version,omitempty"`
	Mode     Mode     `json:"mode,omitempty"`
	Step     string   `json:"step,omitempty"`
	Exit     *int     `json:"exit,omitempty"`
	Signal   string   `json:"signal,omitempty"`
	Reason   string   `json:"reason,omitempty"`
	Duration string   `json:"duration,omitempty"`
	Ran      int      `json:"ran,omitempty"`
	Skipped  int      `json:"skipped,omitempty"`
	Checked  bool     `json:"checked,omitempty"`
	Reboot   *Reboot  `json:"bootIDs,omitempty"`
	Boot     string   `json:"boot,omitempty"`
	Drift    *Drift   `json:"drift,omitempty"`
	Agent    string   `json:"agent,omitempty"`
	Lines    []string `json:"lines,omitempty"`

	Preflight       *Preflight `json:"preflight,omitempty"`
	RefusesRollback bool       `json:"refusesRollback,omitempty"`
}

// Encode is the message as one JSON object of at most MaxMessage bytes. What is
// too long loses its oldest lines first, then the ends of its texts.
func (m Message) Encode() []byte { return m.EncodeWithin(MaxMessage) }

// EncodeWithin is Encode for fewer bytes, at least 400: more containers share what the kubelet keeps.
func (m Message) EncodeWithin(limit int) []byte {
	w := wireMessage{
		Schema:  messageSchema,
		Outcome: Outcome(clipToJSON(string(m.Outcome), 32)),
		Class:   Class(clipToJSON(string(m.Class), 32)),
		Package: clipToJSON(m.Package, 96), Version: clipToJSON(m.Version, 96),
		Mode: Mode(clipToJSON(string(m.Mode), 32)), Step: clipToJSON(m.Step, 160),
		Exit: m.Exit, Signal: clipToJSON(m.Signal, 32), Reason: clipToJSON(m.Reason, 512),
		Ran: m.Ran, Skipped: m.Skipped, Checked: m.Checked, Agent: clipToJSON(m.Agent, 64), Drift: m.Drift.clip(),
		RefusesRollback: m.RefusesRollback, Boot: clipToJSON(m.Boot, 64), Preflight: m.Preflight.clip(),
	}
	if m.Duration > 0 {
		w.Duration = m.Duration.Round(time.Millisecond).String()
	}
	if m.Reboot != nil {
		r := m.Reboot
		w.Reboot = &Reboot{From: clipToJSON(r.From, 64), To: clipToJSON(r.To, 64), Version: clipToJSON(r.Version, 128), System: clipToJSON(r.System, 32)}
	}
	for len(marshalCompact(w)) > limit && w.shorten() {
	}
	const longest = 400 // bytes of one line, so that one does not push out all others
	room := limit - len(marshalCompact(w)) - len(`,"lines":[]`)
	first := len(m.Lines)
	lines := make([]string, len(m.Lines))
	for first > 0 {
		line := clipToJSON(m.Lines[first-1], longest)
		if room -= len(marshalCompact(line)) + len(`,`); room < 0 {
			break
		}
		first--
		lines[first] = line
	}
	w.Lines = lines[first:]
	return marshalCompact(w)
}

// DecodeMessage reads a container's termination message. It is false for
// everything that no agent of ours wrote: nothing, log output, a cut message.
func DecodeMessage(s string) (Message, bool) {
	s = strings.TrimSpace(s)
	if !strings.HasPrefix(s, "{") || len(s) > 2*MaxMessage {
		return Message{}, false
	}
	var w wireMessage
	if err := json.Unmarshal([]byte(s), &w); err != nil || w.Schema != messageSchema {
		return Message{}, false
	}
	switch w.Outcome {
	case Succeeded, Failed, Retry:
	default:
		return Message{}, false
	}
	m := Message{
		Agent: w.Agent, Package: w.Package, Version: w.Version, Mode: w.Mode,
		Outcome: w.Outcome, Class: w.Class, Reason: w.Reason, Step: w.Step,
		Exit: w.Exit, Signal: w.Signal, Ran: w.Ran, Skipped: w.Skipped, Checked: w.Checked,
		Reboot: w.Reboot, Drift: w.Drift, Lines: w.Lines,
		RefusesRollback: w.RefusesRollback, Boot: clipToJSON(w.Boot, 64), Preflight: w.Preflight.clip(),
	}
	if w.Duration != "" {
		d, err := time.ParseDuration(w.Duration)
		if err != nil || d < 0 {
			return Message{}, false
		}
		m.Duration = d
	}
	return m, true
}

// marshalCompact is v as JSON without line breaks and without escaped < and >.
func marshalCompact(v any) []byte {
	var b bytes.Buffer
	enc := json.NewEncoder(&b)
	enc.SetEscapeHTML(false)
	if err := enc.Encode(v); err != nil {
		panic(err) // strings and numbers only
	}
	return bytes.TrimRight(b.Bytes(), "\n")
}

// clipToJSON cuts s so that it has at most this many bytes as JSON, quotes excluded.
func clipToJSON(s string, most int) string {
	s = strings.ToValidUTF8(s, "\uFFFD")
	if len(marshalCompact(s))-2 <= most {
		return s
	}
	const mark = "…"
	size, end := len(mark), 0
	for end < len(s) {
		_, n := utf8.DecodeRuneInString(s[end:])
		size += len(marshalCompact(s[end:end+n])) - 2
		if size > most {
			break
		}
		end += n
	}
	return s[:end] + mark
}
