// SPDX-FileCopyrightText: The Skyhook authors
// SPDX-License-Identifier: Apache-2.0

package pack

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
)

// FuzzConfig: no description makes us panic; a valid one comes back as it was;
// every problem says where and what.
func FuzzConfig(f *testing.F) {
	for _, content := range published(f) {
		f.Add(content)
	}
	f.Add([]byte(`{"modes":{"apply":[{"returncodes":[1e400,1e-99999999]}]},"x":{"x":1,"x":[[[[]]]]}}`))
	f.Add([]byte(`{"schema_version":"v2"}`))
	f.Fuzz(func(t *testing.T, content []byte) {
		c, found := Parse(content)
		for _, p := range found {
			if p.File == "" || p.Message == "" || p.Rule == "" || len(p.Message) > 1000 {
				t.Fatalf("a problem without words: %+v", p)
			}
		}
		if _, err := found.JSON(); err != nil {
			t.Fatal(err)
		}
		if _, again := Parse(content); !cmp.Equal(found, again) {
			t.Fatalf("not in a stable order:\n%s", found.Text())
		}
		written, err := json.Marshal(c)
		if err != nil {
			t.Fatal(err)
		}
		if found.Failed() {
			return
		}
		again, second := Parse(written)
		if second.Failed() {
			t.Fatalf("valid, but not when it is written:\n%s\n%s", written, second.Text())
		}
		if diff := cmp.Diff(c, again, cmpopts.EquateEmpty()); diff != "" {
			t.Fatalf("comes back different: %s", diff)
		}
	})
}

// FuzzInterrupt: no interrupt data makes us panic; what is understood survives.
func FuzzInterrupt(f *testing.F) {
	for _, row := range agentNames {
		f.Add(Interrupt{Type: row.kind, Services: []string{"a", "b"}}.Encode())
	}
	f.Add(`{"type":"service","services":[null,"a"]}`)
	f.Add(`{"type":["x"]}`)
	f.Fuzz(func(t *testing.T, s string) {
		i, err := DecodeInterrupt(s)
		if err != nil {
			if err.Error() == "" || len(err.Error()) > 1000 {
				t.Fatalf("an error without words: %q", err)
			}
			return
		}
		again, err := DecodeInterrupt(i.Encode())
		if err != nil || !cmp.Equal(i, again, cmpopts.EquateEmpty()) {
			t.Fatalf("%+v comes back as %+v, %v", i, again, err)
		}
	})
}

// FuzzMessage: what a container leaves never makes us panic, and whatever goes
// into a message, it fits and is understood.
func FuzzMessage(f *testing.F) {
	exit := 3
	f.Add(string(Message{Outcome: Failed, Class: StepFailed, Exit: &exit, Reboot: &Reboot{From: "a", To: "b"}, Lines: []string{"a"}}.Encode()))
	f.Add("text\nand\x00more")
	f.Fuzz(func(t *testing.T, s string) {
		if m, ok := DecodeMessage(s); ok {
			if again, ok := DecodeMessage(string(m.Encode())); !ok || again.Outcome != m.Outcome {
				t.Fatalf("%+v comes back as %+v", m, again)
			}
		}
		m := Message{Outcome: Retry, Package: s, Version: s, Mode: Mode(s), Class: Class(s), Reason: s, Step: s, Signal: s, Agent: s,
			Reboot: &Reboot{From: s, To: s}, Lines: strings.Split(s, "\n"), Drift: &Drift{Wrote: []DriftWrite{{Path: s, Check: Mode(s), Step: s}}, Files: []DriftFile{{Path: s, What: s}}, NotCheckable: s}}
		out := m.Encode()
		if got, ok := DecodeMessage(string(out)); !ok || len(out) > MaxMessage || got.Outcome != Retry {
			t.Fatalf("%d bytes: %s", len(out), out)
		}
	})
}
