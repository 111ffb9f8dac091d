// SPDX-FileCopyrightText: The Skyhook authors
// SPDX-License-Identifier: Apache-2.0

package node

import (
	"strings"
	"testing"
)

const exampleState = `{"dexter|1.2.3":{"name":"dexter","version":"1.2.3","image":"ghcr.io/x/y","containerSHA":"sha256:a","stage":"config","state":"complete","restarts":2},"spencer|3.2.3":{"name":"spencer","version":"3.2.3","image":"ghcr.io/x/z","stage":"apply","state":"in_progress"}}`

// TestStateText compares the written text, because other programs compare it as text.
func TestStateText(t *testing.T) {
	state, err := ParseState(exampleState)
	if err != nil {
		t.Fatal(err)
	}
	if got := FormatState(state); got != exampleState {
		t.Errorf("the state is written as\n%s", got)
	}
	if got := FormatState(nil); got != "{}" {
		t.Errorf("an empty state is written as %s", got)
	}
	for text, want := range map[string]string{
		`{`:   "it is not a JSON object of packages",
		`[]`:  "it is not a JSON object of packages",
		`"x"`: "it is not a JSON object of packages",
		`{"a|1":{"stage":"x","state":"complete"}}`: `a|1 has the stage "x", which does not exist`,
		`{"a|1":{"stage":"apply","state":"x"}}`:    `a|1 has the state "x", which does not exist`,
	} {
		if _, err := ParseState(text); err == nil || !strings.HasPrefix(err.Error(), want) {
			t.Errorf("%s: %v, want %s", text, err, want)
		}
	}
	if state, err := ParseState(`{"unversioned":{"name":"unversioned","stage":"apply","state":"complete"},"|1":{},"a|":{}}`); err != nil || len(state) > 0 {
		t.Errorf("entries without a version are parsed as %v, %v", state, err)
	}
}

func FuzzNodeState(f *testing.F) {
	f.Add(exampleState)
	f.Add("{}")
	f.Add("null")
	f.Fuzz(func(t *testing.T, text string) {
		state, err := ParseState(text)
		if err != nil {
			return
		}
		once := FormatState(state)
		again, err := ParseState(once)
		if err != nil {
			t.Fatalf("what was written cannot be read: %v", err)
		}
		if twice := FormatState(again); twice != once {
			t.Errorf("%s becomes %s", once, twice)
		}
	})
}

func FuzzRecord(f *testing.F) {
	f.Add(`{"node":"n","skyhook":"s","state":"abc","admission":2,"admitted":true,"at":"2026-05-01T12:00:00Z","held":{"at":"2026-05-01T12:00:00Z"},"packages":{"a|1":{"at":"config/complete","effect":{"type":"service","services":["x"]}}}}`)
	f.Add(`{"packages":{"a|1":null}}`)
	f.Fuzz(func(t *testing.T, text string) {
		rec, err := ParseSkyhookRecord(text)
		if err != nil {
			return
		}
		again, err := ParseSkyhookRecord(rec.String())
		if err != nil {
			t.Fatalf("what was written cannot be read: %v", err)
		}
		if again.String() != rec.String() {
			t.Errorf("%s becomes %s", rec.String(), again.String())
		}
		if c := rec.Clone(); c.String() != rec.String() && len(rec.Packages) > 0 {
			t.Errorf("a clone of %s is %s", rec.String(), c.String())
		}
	})
}

func FuzzNodeOpRecord(f *testing.F) {
	f.Add(`{"node":"n","nodeOp":"default/a@u","admitted":true,"at":"2026-05-01T12:00:00Z","held":{"at":"2026-05-01T12:00:00Z"},"command":{"state":"running","at":"2026-05-01T12:00:00Z"},"result":{"phase":"Failed","at":"2026-05-01T12:00:00Z"}}`)
	f.Add(`null`)
	f.Fuzz(func(t *testing.T, text string) {
		rec, err := ParseNodeOpRecord(text)
		if err != nil {
			return
		}
		again, err := ParseNodeOpRecord(rec.String())
		if err != nil {
			t.Fatalf("what was written cannot be read: %v", err)
		}
		if again.String() != rec.String() {
			t.Errorf("%s becomes %s", rec.String(), again.String())
		}
		if c := rec.Clone(); c.String() != rec.String() {
			t.Errorf("a clone of %s is %s", rec.String(), c.String())
		}
	})
}
