// SPDX-FileCopyrightText: The Skyhook authors
// SPDX-License-Identifier: Apache-2.0

package pack

import (
	"encoding/json"
	"runtime"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
)

// requireMemory fails if reading an input allocates more than 4 KiB for each byte of it, and a MiB.
func requireMemory(t *testing.T, input int, read func()) {
	t.Helper()
	const perByte = 4 << 10
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	read()
	runtime.ReadMemStats(&after)
	if got := after.TotalAlloc - before.TotalAlloc; got > uint64(1<<20+input*perByte) {
		t.Fatalf("%d bytes of input allocate %d", input, got)
	}
}

// FuzzConfig: no description makes us panic or takes much memory; a valid one comes back as it was;
// every problem says where and what.
func FuzzConfig(f *testing.F) {
	for _, content := range published(f) {
		f.Add(content)
	}
	f.Add([]byte(`{"modes":{"apply":[{"returncodes":[1e400,1e-99999999]}]},"x":{"x":1,"x":[[[[]]]]}}`))
	f.Add([]byte(`{"schema_version":"v2"}`))
	f.Add([]byte(strings.Repeat("[", 9000) + strings.Repeat("]", 9000)))
	f.Add([]byte(`{"modes":{"apply":[{` + strings.Repeat(`"an unknown key":1,`, 9000) + `"a":1}]}}`))
	f.Add([]byte(`{"modes":{"apply":[` + strings.Repeat(`{},`, 30_000) + `{}]}}`))
	f.Fuzz(func(t *testing.T, content []byte) {
		var c Config
		var found Problems
		requireMemory(t, len(content), func() { c, found = Parse(content) })
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

// FuzzAnswers: no answer of a step makes us panic; what is understood survives, whatever room there is.
func FuzzAnswers(f *testing.F) {
	f.Add("none: all is there\nservice a,b: they read it\n\n")
	f.Add("reboot:\n")
	f.Fuzz(func(t *testing.T, s string) {
		p, err := ParseAnswers(s)
		if err != nil {
			if len(err.Error()) > 2000 {
				t.Fatalf("a long error: %q", err)
			}
			return
		}
		out := Message{Outcome: Succeeded, Package: s, Version: s, Mode: ModePreflight, Step: s, Boot: s, Agent: s, Reason: s, Preflight: &p}.EncodeWithin(400)
		got, ok := DecodeMessage(string(out))
		if !ok || len(out) > 400 || got.Preflight == nil || got.Preflight.Answer != p.Answer || !cmp.Equal(got.Preflight.Services, p.Services) || got.Preflight.Reason == "" {
			t.Fatalf("%+v comes back as %+v in %d bytes", p, got.Preflight, len(out))
		}
	})
}

// FuzzMessage: what a container leaves never makes us panic or takes much memory, and whatever goes
// into a message, it fits and is understood.
func FuzzMessage(f *testing.F) {
	exit := 3
	f.Add(string(Message{Outcome: Failed, Class: StepFailed, Exit: &exit, Reboot: &Reboot{From: "a", To: "b"}, Lines: []string{"a"}}.Encode()))
	f.Add("text\nand\x00more")
	f.Fuzz(func(t *testing.T, s string) {
		var m Message
		var ok bool
		requireMemory(t, len(s), func() { m, ok = DecodeMessage(s) })
		if ok {
			if again, ok := DecodeMessage(string(m.Encode())); !ok || again.Outcome != m.Outcome {
				t.Fatalf("%+v comes back as %+v", m, again)
			}
		}
		m = Message{Outcome: Retry, Package: s, Version: s, Mode: Mode(s), Class: Class(s), Reason: s, Step: s, Signal: s, Agent: s, Boot: s,
			Reboot: &Reboot{From: s, To: s}, Lines: strings.Split(s, "\n"), Drift: &Drift{Wrote: []DriftWrite{{Path: s, Check: Mode(s), Step: s}}, Files: []DriftFile{{Path: s, What: s}}, NotCheckable: s}}
		out := m.Encode()
		if got, ok := DecodeMessage(string(out)); !ok || len(out) > MaxMessage || got.Outcome != Retry {
			t.Fatalf("%d bytes: %s", len(out), out)
		}
	})
}
