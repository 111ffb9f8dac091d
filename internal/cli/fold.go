// SPDX-FileCopyrightText: The Skyhook authors
// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"os"
	"regexp"
	"strings"
	"unicode/utf8"

	"golang.org/x/term"
)

// terminal is the file of the terminal that is written to; false when the output is none.
func (a *app) terminal() (int, bool) {
	f, ok := a.Out.(*os.File)
	if !ok || !term.IsTerminal(int(f.Fd())) {
		return 0, false
	}
	return int(f.Fd()), true
}

// narrowest is how few columns a terminal has for which anything is laid out.
const narrowest = 60

// columns is how many there are on the terminal; 0 when the output is none, or one too narrow to care.
func (a *app) columns() int {
	f, ok := a.terminal()
	if !ok {
		return 0
	}
	width, _, err := term.GetSize(f)
	if err != nil || width < narrowest {
		return 0
	}
	return width
}

// clipLast cuts the last cell of each row to so many characters, and on a terminal to what is left of a line that is
// indented so far.
func (a *app) clipLast(head []string, rows [][]string, most, in int) [][]string {
	last := len(head) - 1
	if columns := a.columns(); columns > 0 {
		for i := range last {
			width := utf8.RuneCountInString(head[i])
			for _, row := range rows {
				width = max(width, utf8.RuneCountInString(row[i]))
			}
			in += width + 2
		}
		most = max(columns-in, 20)
	}
	for _, row := range rows {
		row[last] = clip(row[last], most)
	}
	return rows
}

// coloured is what changes a colour and takes no room.
var coloured = regexp.MustCompile("\x1b\\[[0-9;]*m")

func width(text string) int { return utf8.RuneCountInString(coloured.ReplaceAllString(text, "")) }

// folded breaks the lines of a text that are longer than the terminal is wide, between words, and indents what follows
// further than their beginning. For people only: elsewhere each line stays one, so that it can be searched.
func (a *app) folded(text string) string {
	columns := a.columns()
	if f, err := a.format(); columns == 0 || err != nil || f != formatTable && f != formatWide {
		return text
	}
	lines := strings.SplitAfter(text, "\n")
	for i, line := range lines {
		if width(line) > columns {
			lines[i] = foldLine(line, columns)
		}
	}
	return strings.Join(lines, "")
}

func foldLine(line string, columns int) string {
	start := line[:len(line)-len(strings.TrimLeft(line, " "))]
	in := start + "    "
	out, used := start, len(start)
	for _, word := range strings.SplitAfter(line[len(start):], " ") {
		if used+width(strings.TrimRight(word, " \n")) > columns && used > len(in) {
			out = strings.TrimRight(out, " ") + "\n" + in
			used = len(in)
		}
		out += word
		used += width(word)
	}
	return out
}
