// SPDX-FileCopyrightText: The Skyhook authors
// SPDX-License-Identifier: Apache-2.0

package pack

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/google/go-cmp/cmp"
)

func TestMessage(t *testing.T) {
	exit := 3
	m := Message{
		Agent: "1.0.0", Package: "tuning", Version: "1.1.4", Mode: ModeConfig, Outcome: Failed, Class: StepFailed,
		Reason: "step update_settings exited with 3", Step: "update_settings", Exit: &exit, Duration: 1234567 * time.Microsecond,
		Ran: 2, Skipped: 1, Lines: []string{"a <b> & \"c\"", "d"},
	}
	const want = `{"schema":"skyhook-agent/1","outcome":"failed","class":"StepFailed","package":"tuning","version":"1.1.4","mode":"config",` +
		`"step":"update_settings","exit":3,"reason":"step update_settings exited with 3","duration":"1.235s","ran":2,"skipped":1,"agent":"1.0.0",` +
		`"lines":["a <b> & \"c\"","d"]}`
	if got := string(m.Encode()); got != want {
		t.Errorf("got  %s\nwant %s", got, want)
	}
	got, ok := DecodeMessage(string(m.Encode()) + "\n")
	m.Duration = 1235 * time.Millisecond
	if diff := cmp.Diff(m, got); !ok || diff != "" {
		t.Errorf("decoded %v: %s", ok, diff)
	}
	refusing := Message{Mode: ModeApply, Outcome: Succeeded, RefusesRollback: true}
	if got, ok := DecodeMessage(string(refusing.Encode())); !ok || !cmp.Equal(refusing, got) {
		t.Errorf("decoded %v: %s", ok, cmp.Diff(refusing, got))
	}
	booted := Message{Mode: ModeApply, Outcome: Succeeded, Boot: "a"}
	if got, ok := DecodeMessage(string(booted.Encode())); !ok || !cmp.Equal(booted, got) {
		t.Errorf("decoded %v: %s", ok, cmp.Diff(booted, got))
	}
	checked := Message{Mode: ModeApplyCheck, Outcome: Failed, Class: CheckFailed, Checked: true}
	if got, ok := DecodeMessage(string(checked.Encode())); !ok || !cmp.Equal(checked, got) {
		t.Errorf("decoded %v: %s", ok, cmp.Diff(checked, got))
	}
	reboot := Message{Mode: ModeInterrupt, Outcome: Succeeded, Reboot: &Reboot{From: "a", To: "b"}}
	if got, ok := DecodeMessage(string(reboot.Encode())); !ok || !cmp.Equal(reboot, got) {
		t.Errorf("decoded %v: %s", ok, cmp.Diff(reboot, got))
	}
}

// TestMessageOfDrift: what a check for drift found comes back, also when the kubelet leaves little room; then the first file, the checks and how
// many files differ stay.
func TestMessageOfDrift(t *testing.T) {
	d := &Drift{
		Checks: []Mode{ModeConfigCheck}, Ran: []Mode{ModeApplyCheck, ModeConfigCheck}, Total: 7, Wrote: []DriftWrite{{Path: "/etc/w", Check: ModeApplyCheck, Step: "check.sh"}},
		Files: []DriftFile{{Path: "/etc/a", What: DriftChanged}, {Path: "/copy/configmaps/b", What: DriftMissing, Config: true}},
	}
	m := Message{Mode: ModeDrift, Outcome: Succeeded, Package: "tuning", Version: "1.1.4", Agent: "1.0.0", Reason: strings.Repeat("r", 500), Drift: d, Lines: []string{"last"}}
	if got, ok := DecodeMessage(string(m.Encode())); !ok || !cmp.Equal(m, got) || !got.Drift.IsDrifted() {
		t.Errorf("decoded %v: %s", ok, cmp.Diff(m, got))
	}
	for i := range 40 {
		d.Files = append(d.Files, DriftFile{Path: "/" + strings.Repeat("x", 300) + fmt.Sprint(i), What: DriftChanged})
	}
	for _, limit := range []int{MaxMessage, 1200, 600, 400} {
		out := m.EncodeWithin(limit)
		got, ok := DecodeMessage(string(out))
		if len(out) > limit || !ok || got.Drift.Total != 7 || len(got.Drift.Files) == 0 || got.Drift.Files[0].Path != "/etc/a" || !cmp.Equal(got.Drift.Checks, d.Checks) {
			t.Errorf("%d bytes of %d: %s", len(out), limit, out)
		}
	}
	for _, clean := range []*Drift{{}, {Ran: []Mode{ModeApplyCheck}}, {NotCheckable: "no record"}} {
		if clean.IsDrifted() {
			t.Errorf("%+v drifted", clean)
		}
	}
}

// TestMessageFits: whatever is in it, a message is one whole JSON object that
// the kubelet will not cut.
func TestMessageFits(t *testing.T) {
	long := strings.Repeat("x", 10000)
	everywhere := func(s string) Message {
		return Message{
			Agent: s, Package: s, Version: s, Mode: Mode(s), Outcome: Failed, Class: Class(s), Reason: s, Step: s, Signal: s,
			Duration: 1<<63 - 1, Ran: 1 << 62, Skipped: 1 << 62, Boot: s, Reboot: &Reboot{From: s, To: s}, Lines: []string{s, s, s},
			Drift: &Drift{Checks: []Mode{Mode(s)}, Files: []DriftFile{{Path: s, What: s}, {Path: s, What: s}}, Wrote: []DriftWrite{{Path: s, Check: Mode(s), Step: s}, {Path: s}}, NotCheckable: s},
		}
	}
	for name, s := range map[string]string{
		"plain": long, "control": strings.Repeat("\x00", 10000), "invalid": strings.Repeat("\xff", 10000),
		"wide": strings.Repeat("語", 10000), "quotes": strings.Repeat(`"\`, 5000), "line separators": strings.Repeat("\u2028", 5000),
	} {
		out := everywhere(s).Encode()
		if len(out) > MaxMessage || !json.Valid(out) || !utf8.Valid(out) {
			t.Errorf("%s: %d bytes, JSON %v, UTF-8 %v", name, len(out), json.Valid(out), utf8.Valid(out))
		}
		m, ok := DecodeMessage(string(out))
		if !ok || m.Reason == "" || m.Step == "" {
			t.Errorf("%s: decoded %v: %+v", name, ok, m)
		}
	}
}

// TestMessageKeepsTheLastLines: the end of the output says why.
func TestMessageKeepsTheLastLines(t *testing.T) {
	var lines []string
	for i := range 1000 {
		lines = append(lines, fmt.Sprintf("line %d", i))
	}
	m, ok := DecodeMessage(string(Message{Outcome: Failed, Reason: "why", Lines: lines}.Encode()))
	if !ok || len(m.Lines) < 100 || m.Lines[len(m.Lines)-1] != "line 999" {
		t.Fatalf("%v, %d lines", ok, len(m.Lines))
	}
	for i, line := range m.Lines {
		if want := fmt.Sprintf("line %d", 1000-len(m.Lines)+i); line != want {
			t.Fatalf("line %q, want %q", line, want)
		}
	}
	m, _ = DecodeMessage(string(Message{Outcome: Failed, Lines: []string{"before", strings.Repeat("x", 5000), "after"}}.Encode()))
	if len(m.Lines) != 3 || m.Lines[0] != "before" || len(m.Lines[1]) > 400 || !strings.HasSuffix(m.Lines[1], "…") {
		t.Errorf("one long line pushed out the others: %d lines", len(m.Lines))
	}
}

// TestForeignMessages: what no agent of ours wrote is nothing, never a panic.
func TestForeignMessages(t *testing.T) {
	whole := string(Message{Outcome: Failed, Reason: "why"}.Encode())
	for _, s := range []string{
		"", "{}", "null", "[]", `"x"`, "Traceback (most recent call last):", whole[:len(whole)-5], whole + whole, "{" + strings.Repeat(" ", 1<<20) + "}",
		`{"schema":"skyhook-agent/2","outcome":"failed"}`, `{"schema":"skyhook-agent/1"}`, `{"schema":"skyhook-agent/1","outcome":"maybe"}`,
		`{"schema":"skyhook-agent/1","outcome":"failed","exit":"3"}`, `{"schema":"skyhook-agent/1","outcome":"failed","duration":"soon"}`,
		`{"schema":"skyhook-agent/1","outcome":"failed","duration":"-1s"}`, `{"outcome":"failed"}`,
	} {
		if m, ok := DecodeMessage(s); ok {
			t.Errorf("%.80q was taken for %+v", s, m)
		}
	}
	if m, ok := DecodeMessage(`{"schema":"skyhook-agent/1","outcome":"retry","later":{"field":1}}`); !ok || m.Outcome != Retry {
		t.Error("a field that a later agent adds is in the way")
	}
}

func TestClasses(t *testing.T) {
	for class, code := range map[Class]int{
		"": 0, StepFailed: 1, BadUsage: 2, InvalidPackage: 3, CheckFailed: 4, HostProblem: 5, HostFull: 6, TimedOut: 7,
		InterruptFailed: 8, MissingConfig: 9, RetryLater: 75, NotBegun: 76, Stopped: 143,
	} {
		if got := class.ExitCode(); got != code {
			t.Errorf("%s exits with %d, want %d", class, got, code)
		}
		if got, ok := ClassOf(code); !ok || got != class {
			t.Errorf("%d is %s, %v", code, got, ok)
		}
		want := Failed
		switch class {
		case "":
			want = Succeeded
		case RetryLater, NotBegun, Stopped:
			want = Retry
		}
		if got := class.Outcome(); got != want {
			t.Errorf("%s is %s, want %s", class, got, want)
		}
	}
	if _, ok := ClassOf(137); ok {
		t.Error("137 is the kubelet's, no class of ours")
	}
	if Class("New").ExitCode() != 1 || Class("New").Outcome() != Failed {
		t.Error("a class that is not known must be a failure")
	}
}
