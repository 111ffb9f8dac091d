// SPDX-FileCopyrightText: The Skyhook authors
// SPDX-License-Identifier: Apache-2.0

package record

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/skyhook-k8s/skyhook/internal/agent/host"
	"github.com/skyhook-k8s/skyhook/internal/pack"
)

// requireMemory fails if reading an input allocates more than 1 KiB for each byte of it, and a MiB.
func requireMemory(t *testing.T, input int, read func()) {
	t.Helper()
	const perByte = 1 << 10
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	read()
	runtime.ReadMemStats(&after)
	if got := after.TotalAlloc - before.TotalAlloc; got > uint64(1<<20+input*perByte) {
		t.Fatalf("%d bytes of input allocate %d", input, got)
	}
}

// FuzzDecode decodes random bytes as a record: they take little memory, and are rejected, or encoding and decoding again gives the same.
func FuzzDecode(f *testing.F) {
	f.Add([]byte(`{"schema":1,"package":"a","installed":{"version":"1.0.0","at":"2026-01-01T00:00:00Z"},"overlay":{"files":[{"path":"/b","wrote":{"mode":420}},{"path":"/a","wrote":{}}]}}`))
	f.Add([]byte(`{"schema":2,"package":"a"}`))
	f.Add([]byte(`{"schema":1,"package":"a","overlay":{"files":[{"path":"../x"}]}}`))
	f.Add([]byte(`[`))
	f.Add([]byte(`{"schema":1,"package":"a","steps":[` + strings.Repeat("{},", 3000) + `{}],"overlay":{"files":[` + strings.Repeat(`{"path":"/"},`, 3000) + `{"path":"/"}]}}`))
	f.Fuzz(func(t *testing.T, content []byte) {
		var p Package
		var err error
		requireMemory(t, len(content), func() { p, err = Decode(content) })
		if err != nil {
			return
		}
		once, err := Encode(p)
		if err != nil {
			return // a year with more than four digits
		}
		again, err := Decode(once)
		if err != nil {
			t.Fatalf("what was written cannot be read: %v\n%s", err, once)
		}
		if twice, err := Encode(again); err != nil || !bytes.Equal(once, twice) {
			t.Fatalf("%s\nbecame\n%s (%v)", once, twice, err)
		}
	})
}

// FuzzDecodeInterrupt does the same for interrupts and the names of their files.
func FuzzDecodeInterrupt(f *testing.F) {
	f.Add([]byte(`{"schema":1,"id":"a","state":"done","from":"x","to":"y","units":[{"name":"cron.service","before":{"pid":3}}]}`), "demo-1/../x")
	f.Add([]byte(`{"schema":1,"id":"","state":"done"}`), "")
	f.Fuzz(func(t *testing.T, content []byte, id string) {
		if name := interruptFile(id); filepath.Base(name) != name || len(name) > 120 || strings.HasPrefix(name, ".") {
			t.Fatalf("%q is filed as %q", id, name)
		}
		var i Interrupt
		var err error
		requireMemory(t, len(content), func() { i, err = DecodeInterrupt(content) })
		if err != nil {
			return
		}
		once, err := encodeJSON(i)
		if err != nil {
			return
		}
		again, err := DecodeInterrupt(once)
		if err != nil {
			t.Fatalf("what was written cannot be read: %v\n%s", err, once)
		}
		if twice, _ := encodeJSON(again); !bytes.Equal(once, twice) {
			t.Fatalf("%s\nbecame\n%s", once, twice)
		}
	})
}

func TestFormerFlag(t *testing.T) {
	for _, c := range []struct {
		args  []string
		codes []int
		want  string
	}{
		{nil, []int{0}, "W11fWzBd"},
		{nil, []int{0, 3}, "W11fWzAsIDNd"},
		{[]string{"env:MYARG"}, []int{0}, "WydlbnY6TVlBUkcnXV9bMF0="},
	} {
		if got := FormerFlag(pack.Step{Path: "a.sh", Arguments: c.args, ReturnCodes: c.codes}); got != "a.sh_"+c.want {
			t.Errorf("%q %v: %s, want a.sh_%s", c.args, c.codes, got, c.want)
		}
	}
	for text, want := range map[string]string{
		`plain`: `'plain'`, `it's`: `"it's"`, `"it's"`: `'"it\'s"'`, "a\nb\t\\": `'a\nb\t\\'`, "ä": "'ä'", "\x01\u200b": `'\x01\u200b'`, "\U0001F600": "'\U0001F600'",
	} {
		if got := quotePython(text); got != want {
			t.Errorf("%q: %s, want %s", text, got, want)
		}
	}
}

func TestSetInstalled(t *testing.T) {
	p := Package{}
	at := func(n int) time.Time { return time.Unix(int64(n), 0).UTC() }
	one, two := Version{Version: "1.0.0", Run: "a", At: at(1)}, Version{Version: "2.0.0", Run: "b", At: at(2)}
	if !p.SetInstalled(one) || p.SetInstalled(Version{Version: "1.0.0", Run: "a", At: at(9)}) || !p.SetInstalled(two) {
		t.Errorf("%+v", p)
	}
	if p.Installed != two || p.Previous != one || len(p.History) != 2 || p.History[0] != two {
		t.Errorf("%+v", p)
	}
	for n := range 200 {
		p.SetInstalled(Version{Version: "1.0.0", Run: fmt.Sprint(n), At: at(n)})
	}
	if len(p.History) != keepHistory {
		t.Errorf("%d entries", len(p.History))
	}
}

// TestBrokenRecordsKeepTheirNumbers renames more broken records than are kept.
func TestBrokenRecordsKeepTheirNumbers(t *testing.T) {
	dir := t.TempDir()
	root, err := host.Open(dir)
	if err != nil {
		t.Fatal(err)
	}
	defer root.Close()
	h, err := LockPackage(context.Background(), root, "/state", "a", nil)
	if err != nil {
		t.Fatal(err)
	}
	defer h.Release()
	folder := filepath.Join(dir, "state/records/a")
	for n := range keepBroken + 3 {
		if err := os.WriteFile(filepath.Join(folder, recordFile), fmt.Append(nil, n), 0o600); err != nil {
			t.Fatal(err)
		}
		p, broken, err := h.Load()
		if err != nil || p.Installed.Version != "" || !strings.Contains(broken, "could not be read") {
			t.Fatalf("%+v %q %v", p, broken, err)
		}
	}
	for number, want := range map[int]string{1: "3", keepBroken: "12"} {
		if got, _ := os.ReadFile(filepath.Join(folder, fmt.Sprintf("%s.broken-%d", recordFile, number))); string(got) != want {
			t.Errorf("number %d holds %q, want %q", number, got, want)
		}
	}
	if list, _ := filepath.Glob(filepath.Join(folder, recordFile+"*")); len(list) != keepBroken {
		t.Errorf("%q", list)
	}
}

// TestSaveRefusesWhatLoadCannotRead saves a record that is too large: the one before it stays, and is read again.
func TestSaveRefusesWhatLoadCannotRead(t *testing.T) {
	root, err := host.Open(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	defer root.Close()
	h, err := LockPackage(context.Background(), root, "/state", "a", nil)
	if err != nil {
		t.Fatal(err)
	}
	defer h.Release()
	p := Package{Schema: Schema, Name: "a", Installed: Version{Version: "1.0.0"}}
	if err := h.Save(p); err != nil {
		t.Fatal(err)
	}
	p.Overlay.Dirs = []string{"/" + strings.Repeat("a", host.MaxFile)}
	if err := h.Save(p); err == nil || !strings.Contains(err.Error(), "/state/records/a/record.json on the host: it would be larger than 16 MiB") {
		t.Error(err)
	}
	if again, broken, err := h.Load(); err != nil || broken != "" || again.Installed.Version != "1.0.0" {
		t.Errorf("%+v %q %v", again.Installed, broken, err)
	}
}

func TestLockPackageRejectsNames(t *testing.T) {
	root, err := host.Open(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	defer root.Close()
	for _, name := range []string{"", ".", "..", "a/b", ".hidden", strings.Repeat("a", 300), "a\x00"} {
		if h, err := LockPackage(context.Background(), root, "/state", name, nil); err == nil {
			h.Release()
			t.Errorf("%q is accepted", name)
		}
	}
	if _, err := ReadPackage(root, "/state", "../x"); err == nil || errors.Is(err, os.ErrNotExist) {
		t.Error(err)
	}
}

func TestLifeIsOver(t *testing.T) {
	was := Life{Boot: "a", Invocation: "i", Since: 5, PID: 7}
	for _, c := range []struct {
		why    string
		now    Life
		active bool
		want   bool
	}{
		{"nothing changed", was, true, false},
		{"another invocation", Life{Boot: "a", Invocation: "j", Since: 9, PID: 8}, true, true},
		{"stopped and not started", Life{Boot: "a", Since: 5}, false, false},
		{"the main process gave way to another by itself", Life{Boot: "a", Invocation: "i", Since: 5, PID: 8}, true, false},
		{"another boot", Life{Boot: "b", Invocation: "i", Since: 5, PID: 7}, true, true},
		{"another boot, where it does not run", Life{Boot: "b"}, false, false},
	} {
		if got := was.IsOver(c.now, c.active); got != c.want {
			t.Errorf("%s: %v", c.why, got)
		}
	}
	old := Life{Boot: "a", Since: 5, PID: 7} // a systemd without invocation ids
	if old.IsOver(old, true) || !old.IsOver(Life{Boot: "a", Since: 6, PID: 8}, true) || old.IsOver(Life{Boot: "a", Since: 0}, false) {
		t.Error("without invocation ids the time of becoming active counts")
	}
}
