// SPDX-FileCopyrightText: The Skyhook authors
// SPDX-License-Identifier: Apache-2.0

package step

import (
	"bytes"
	"errors"
	"regexp"
	"slices"
	"strings"
	"testing"
	"testing/iotest"
	"time"
)

var stamped = regexp.MustCompile(`^\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{9}Z `)

// stripStamps returns the lines of an Output without time stamps.
func stripStamps(t *testing.T, text string) []string {
	t.Helper()
	var out []string
	for line := range strings.Lines(text) {
		at := stamped.FindString(line)
		if at == "" {
			t.Fatalf("line %q has no stamp", line)
		}
		out = append(out, strings.TrimSuffix(strings.TrimPrefix(line, at), "\n"))
	}
	return out
}

// FuzzOutput writes random bytes in random pieces: no secret is printed, and without secrets the output is complete.
func FuzzOutput(f *testing.F) {
	f.Add("hello\nworld", "secret", 3, 256)
	f.Add("a secret\r\nand a secret without end", "secret", 1, 1)
	f.Add(strings.Repeat("secret", 500), "secret", 7, 300)
	f.Add(strings.Repeat("\x80", 3000), "secret", 1, 256)
	f.Add(strings.Repeat("ä", 1000), "ää\nbbbb", 5, 257)
	f.Add(strings.Repeat("x", 255)+"\r\na", "secret", 0, 256)
	f.Fuzz(func(t *testing.T, text, secret string, piece, limit int) {
		for _, values := range [][]string{nil, {secret}} {
			var all bytes.Buffer
			redact := NewRedactor(values)
			o := NewOutput(redact, limit%2048, &all)
			o.readFrom(&chunkedReader{text: text, piece: 1 + abs(piece)%97})
			got := stripStamps(t, all.String())
			longest := max(limit%2048, minLimit, 2*redact.longestSecret())
			if i := slices.IndexFunc(got, func(line string) bool { return len(line) > longest }); i >= 0 {
				t.Fatalf("the limit is %d, and line %d has %d bytes", longest, i, len(got[i]))
			}
			if whole := strings.Join(got, ""); values == nil {
				if want := strings.ReplaceAll(strings.ReplaceAll(text, "\r\n", "\n"), "\n", ""); strings.TrimRight(whole, "\r") != strings.TrimRight(want, "\r") {
					t.Fatalf("%q became %q", text, whole)
				}
				continue
			}
			for _, line := range got {
				for _, s := range redact.secrets {
					if strings.Contains(line, s) && !strings.Contains(s, "*") && !strings.Contains("***", s) {
						t.Fatalf("%q is in %q", s, line)
					}
				}
			}
		}
	})
}

func abs(n int) int { return max(n, -(n + 1)) }

// chunkedReader returns a text in chunks, like a pipe.
type chunkedReader struct {
	text  string
	piece int
}

func (p *chunkedReader) Read(b []byte) (int, error) {
	n := min(p.piece, len(p.text), len(b))
	copy(b, p.text[:n])
	p.text = p.text[n:]
	if len(p.text) == 0 {
		return n, errEnd
	}
	return n, nil
}

var errEnd = errors.New("end")

// TestLongLine checks that a long line is cut at the same places, however its bytes arrive.
func TestLongLine(t *testing.T) {
	for _, redact := range []*Redactor{nil, NewRedactor([]string{"long secret"})} {
		for _, piece := range []int{1, 2, 7, 255, 256, 257, 1000} {
			for name, c := range map[string]struct {
				text string
				want []int
			}{
				"one more":  {strings.Repeat("x", 257) + "\r\n", []int{256, 1}},
				"the limit": {strings.Repeat("x", 256) + "\r\n", []int{256}},
				"no end":    {strings.Repeat("ä", 300), []int{256, 256, 88}},
				"several":   {strings.Repeat("€", 200) + "\n", []int{255, 255, 90}},
			} {
				var all bytes.Buffer
				NewOutput(redact, 256, &all).readFrom(&chunkedReader{text: c.text, piece: piece})
				var got []int
				for _, line := range stripStamps(t, all.String()) {
					got = append(got, len(line))
				}
				if !slices.Equal(got, c.want) {
					t.Errorf("%s, %d bytes at a time: %d, want %d", name, piece, got, c.want)
				}
			}
		}
	}
}

func TestOutputKeepsTheLastLines(t *testing.T) {
	o := NewOutput(nil, 0)
	o.WriteNote("not the program's")
	o.readFrom(iotest.OneByteReader(strings.NewReader(strings.Repeat("x\n", 30) + "the end")))
	if got := o.Lines(); len(got) != tailLines || got[tailLines-1] != "the end" || slices.Contains(got, "not the program's") {
		t.Errorf("%q", got)
	}
	if got := o.WithoutLines().Lines(); len(got) != 0 {
		t.Errorf("fresh: %q", got)
	}
}

// TestFailingSink checks that a failing sink affects neither other sinks nor the program.
func TestFailingSink(t *testing.T) {
	var all bytes.Buffer
	var failures []error
	o := NewOutput(nil, 0, failingWriter{}, &all)
	o.Failed = func(err error) { failures = append(failures, err) }
	o.readFrom(strings.NewReader("one\n"))
	o.readFrom(strings.NewReader("two\n"))
	if got := stripStamps(t, all.String()); !slices.Equal(got, []string{"one", "two"}) || len(failures) != 1 {
		t.Errorf("%q, %v", got, failures)
	}
}

type failingWriter struct{}

func (failingWriter) Write([]byte) (int, error) { return 0, errors.New("no space") }

func TestRedactor(t *testing.T) {
	r := NewRedactor([]string{"abc", "password", "password1", "first line\n  second line\n", ""})
	for text, want := range map[string]string{
		"abc is too short":       "abc is too short",
		"my password1, password": "my ***, ***",
		"the first line":         "the ***",
		"second line and more":   "*** and more",
		"nothing":                "nothing",
	} {
		if got := r.Replace(text); got != want {
			t.Errorf("%q became %q, want %q", text, got, want)
		}
	}
	var none *Redactor
	if none.Replace("password") != "password" {
		t.Error("no redactor takes something out")
	}
}

func TestStampIsAlwaysAsLong(t *testing.T) {
	for _, at := range []time.Time{time.Unix(0, 0), time.Unix(1700000000, 120)} {
		if got := at.UTC().Format(Stamp); len(got) != len("2006-01-02T15:04:05.000000000Z") {
			t.Errorf("%s", got)
		}
	}
}
