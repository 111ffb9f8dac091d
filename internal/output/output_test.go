// SPDX-FileCopyrightText: The Skyhook authors
// SPDX-License-Identifier: Apache-2.0

package output

import (
	"strings"
	"testing"
)

func TestWrapLine(t *testing.T) {
	for _, c := range []struct{ line, want string }{
		{"  one two three four five\n", "  one two three\n      four five\n"},
		{"  one two three four\n", "  one two three\n      four\n"},
		{"a-word-that-is-longer-than-all one\n", "a-word-that-is-longer-than-all\n    one\n"},
		{Sequence("33m") + "one" + Sequence("0m") + " two three fo\n", Sequence("33m") + "one" + Sequence("0m") + " two three\n    fo\n"},
		{"      a-word-that-is-longer-than-all\n", "      a-word-that-is-longer-than-all\n"},
	} {
		if got := wrapLine(c.line, 15); got != c.want {
			t.Errorf("%q becomes\n%q, want\n%q", c.line, got, c.want)
		}
	}
}

// TestList checks that of long names there are as many as one line holds, and always one.
func TestList(t *testing.T) {
	long := func(last string) string { return "ip-10-0-0-" + last + ".eu-central-1.compute.internal" }
	for _, c := range []struct {
		words []string
		most  int
		want  string
	}{
		{nil, 3, ""},
		{[]string{"a"}, 3, "a"},
		{[]string{"a", "b", "c"}, 3, "a, b, c"},
		{[]string{"a", "b", "c", "d"}, 3, "a, b, c and 1 more"},
		{[]string{long("1"), long("2"), long("3")}, 3, long("1") + " and 2 more"},
		{[]string{"a", "b", long("3"), long("4")}, 3, "a, b, " + long("3") + " and 1 more"},
		{[]string{long("1") + long("2")}, 3, long("1") + long("2")},
	} {
		if got := List(c.words, c.most); got != c.want {
			t.Errorf("%q: %q, want %q", c.words, got, c.want)
		}
	}
}

// What others wrote cannot act on a terminal, also when it arrives in pieces; what we write does.
func TestClean(t *testing.T) {
	var got strings.Builder
	w := Clean(&got)
	for _, piece := range []string{
		Sequence("31m") + "failed" + Sequence("0m") + ": \x1b[2J\x1b]0;title\a\r\b\x00\x7f\u009b1m\n", "tab\tand \xff\x9b, caf\xc3", "\xa9 \u202egpj.exe 日本\n",
	} {
		if n, err := w.Write([]byte(piece)); n != len(piece) || err != nil {
			t.Errorf("%d of %d written, %v", n, len(piece), err)
		}
	}
	const want = "\x1b[31mfailed\x1b[0m: \\u001b[2J\\u001b]0;title\\u0007\\u000d\\u0008\\u0000\\u007f\\u009b1m\ntab\tand \\xff\\x9b, café \\u202egpj.exe 日本\n"
	if got.String() != want {
		t.Errorf("written\n%q, want\n%q", got.String(), want)
	}
}
