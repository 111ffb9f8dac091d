// SPDX-FileCopyrightText: The Skyhook authors
// SPDX-License-Identifier: Apache-2.0

package output

import (
	"fmt"
	"strings"
	"unicode/utf8"
)

// FormatTable formats rows as columns: a header, and two blanks between columns. Paint may colour a cell by its
// text; it is nil when nothing is to be coloured.
func FormatTable(header []string, rows [][]string, paint func(string) string) string {
	width := make([]int, len(header))
	all := append([][]string{header}, rows...)
	for _, row := range all {
		for i, cell := range row {
			width[i] = max(width[i], utf8.RuneCountInString(cell))
		}
	}
	var b strings.Builder
	for n, row := range all {
		line := ""
		for i, cell := range row {
			padding := strings.Repeat(" ", width[i]-utf8.RuneCountInString(cell)+2)
			if paint != nil && n > 0 {
				cell = paint(cell)
			}
			line += cell + padding
		}
		b.WriteString(strings.TrimRight(line, " ") + "\n")
	}
	return b.String()
}

// ClipLastColumn shortens the last cell of each row to at most so many characters, and on a terminal to the rest of a line that is
// indented by indent.
func (p *Printer) ClipLastColumn(header []string, rows [][]string, most, indent int) [][]string {
	last := len(header) - 1
	if columns := p.columns(); columns > 0 {
		used := indent
		for i := range last {
			width := utf8.RuneCountInString(header[i])
			for _, row := range rows {
				width = max(width, utf8.RuneCountInString(row[i]))
			}
			used += width + 2
		}
		most = max(columns-used, 20)
	}
	for _, row := range rows {
		row[last] = Clip(row[last], most)
	}
	return rows
}

// Clip shortens a text to at most so many characters.
func Clip(text string, most int) string {
	runes := []rune(text)
	if len(runes) <= most {
		return text
	}
	return string(runes[:most-1]) + "…"
}

// Count returns a number with its noun.
func Count(n int, noun string) string {
	switch {
	case n == 1:
		return "1 " + noun
	case strings.HasSuffix(noun, "ch"):
		return fmt.Sprintf("%d %ses", n, noun)
	}
	return fmt.Sprintf("%d %ss", n, noun)
}

// List returns the first words, and how many more there are.
func List(words []string, most int) string { return ListOf(words[:min(most, len(words))], len(words)) }

// maxListWidth is how many characters a list of words may have in the middle of other text.
const maxListWidth = 72

// ListOf returns the first of total words, as far as they fit on one line but at least one, and how many more there are.
func ListOf(first []string, total int) string {
	text := ""
	for i, word := range first {
		if i > 0 && utf8.RuneCountInString(text)+utf8.RuneCountInString(word) > maxListWidth {
			first = first[:i]
			break
		}
		if i > 0 {
			text += ", "
		}
		text += word
	}
	if rest := total - len(first); rest > 0 {
		text += fmt.Sprintf(" and %d more", rest)
	}
	return text
}

// WithKind returns names as -o name prints them, such as node/n1.
func WithKind(kind string, names ...string) []string {
	out := make([]string, len(names))
	for i, name := range names {
		out[i] = kind + "/" + name
	}
	return out
}
