// SPDX-FileCopyrightText: The Skyhook authors
// SPDX-License-Identifier: Apache-2.0

package output

import (
	"crypto/rand"
	"os"
	"regexp"
	"strings"
	"unicode/utf8"

	"golang.org/x/term"
)

// Terminal returns the file descriptor of the terminal that is written to; false when the output is no terminal.
func (p *Printer) Terminal() (int, bool) {
	f, ok := p.Out.(*os.File)
	if clean, isClean := p.Out.(*cleanWriter); isClean {
		f, ok = clean.out.(*os.File)
	}
	if !ok || !term.IsTerminal(int(f.Fd())) {
		return 0, false
	}
	return int(f.Fd()), true
}

// minColumns is the width below which nothing is fitted to a terminal.
const minColumns = 60

// columns returns the width of the terminal; 0 when the output is no terminal, or one that is too narrow.
func (p *Printer) columns() int {
	f, ok := p.Terminal()
	if !ok {
		return 0
	}
	width, _, err := term.GetSize(f)
	if err != nil || width < minColumns {
		return 0
	}
	return width
}

// colours are the ANSI colours of status words.
var colours = map[string]string{
	"complete": "32", "in_progress": "33", "erroring": "31", "blocked": "35", "waiting": "36", "paused": "36", "disabled": "90",
	"failed": "31", "ERRORING": "31",
}

// Painter returns a function that colours status words on a terminal; nil when nothing is to be coloured.
func (p *Printer) Painter() func(string) string {
	if _, ok := p.Terminal(); !ok || os.Getenv("NO_COLOR") != "" || os.Getenv("TERM") == "dumb" {
		return nil
	}
	return func(word string) string {
		if c := colours[word]; c != "" {
			return Sequence(c+"m") + word + Sequence("0m")
		}
		return word
	}
}

// ours begins a terminal sequence of our own. It is another text in each run, so that nothing from outside can contain it.
var ours = "\x1b" + rand.Text() + "["

// Sequence returns a terminal sequence of our own, such as 0m, which reaches a terminal through Clean. All others do not.
func Sequence(code string) string { return ours + code }

// escape matches the sequences that change a colour.
var escape = regexp.MustCompile(regexp.QuoteMeta(ours) + "[0-9;]*m")

func visibleWidth(text string) int { return utf8.RuneCountInString(escape.ReplaceAllString(text, "")) }

// Wrap breaks lines that are longer than the terminal is wide between words, and indents the continuation. Elsewhere, and in the
// formats for programs, each line stays one line, so that it can be searched.
func (p *Printer) Wrap(text string) string {
	columns := p.columns()
	if format, err := p.CheckFormat(); columns == 0 || err != nil || format != Table && format != Wide {
		return text
	}
	lines := strings.SplitAfter(text, "\n")
	for i, line := range lines {
		if visibleWidth(line) > columns {
			lines[i] = wrapLine(line, columns)
		}
	}
	return strings.Join(lines, "")
}

func wrapLine(line string, columns int) string {
	indent := line[:len(line)-len(strings.TrimLeft(line, " "))]
	continuation := indent + "    "
	out, used := indent, len(indent)
	for _, word := range strings.SplitAfter(line[len(indent):], " ") {
		if used+visibleWidth(strings.TrimRight(word, " \n")) > columns && used > len(continuation) {
			out = strings.TrimRight(out, " ") + "\n" + continuation
			used = len(continuation)
		}
		out += word
		used += visibleWidth(word)
	}
	return out
}
