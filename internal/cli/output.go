// SPDX-FileCopyrightText: The Skyhook authors
// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"encoding/json"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"
	"unicode/utf8"

	"sigs.k8s.io/yaml"
)

// The formats.
const (
	formatTable = "table"
	formatWide  = "wide"
	formatJSON  = "json"
	formatYAML  = "yaml"
	formatName  = "name"
)

// answer is what a command has to say, in every format.
type answer struct {
	value any      // for json and yaml
	names []string // for name, such as node/n1
	text  func(wide bool) string
}

// format is the output format asked for, checked before anything is done.
func (a *app) format() (string, error) {
	f := strings.ToLower(a.output)
	if !slices.Contains([]string{formatTable, formatWide, formatJSON, formatYAML, formatName}, f) {
		return "", fmt.Errorf("invalid output format %q: use table, wide, json, yaml or name", a.output)
	}
	return f, nil
}

// render is an answer in the format asked for.
func (a *app) render(ans answer) (string, error) {
	f, err := a.format()
	if err != nil {
		return "", err
	}
	switch f {
	case formatJSON:
		raw, err := json.MarshalIndent(ans.value, "", "  ")
		if err != nil {
			return "", fmt.Errorf("printing the answer: %w", err)
		}
		return string(raw) + "\n", nil
	case formatYAML:
		raw, err := yaml.Marshal(ans.value)
		if err != nil {
			return "", fmt.Errorf("printing the answer: %w", err)
		}
		return string(raw), nil
	case formatName:
		text := ""
		for _, n := range ans.names {
			text += n + "\n"
		}
		return text, nil
	}
	return ans.text(f == formatWide), nil
}

// say prints an answer in the format asked for.
func (a *app) say(ans answer) error {
	text, err := a.render(ans)
	if err != nil {
		return err
	}
	if _, err := io.WriteString(a.Out, a.folded(text)); err != nil {
		return fmt.Errorf("printing the answer: %w", err)
	}
	return nil
}

// table lays rows out in columns: a header, dashes below it, two blanks between columns. paint may colour a cell by its
// text; it is nil when nothing is to be coloured.
func table(header []string, rows [][]string, paint func(string) string) string {
	width := make([]int, len(header))
	dashes := make([]string, len(header))
	for i, h := range header {
		width[i] = utf8.RuneCountInString(h)
		dashes[i] = strings.Repeat("-", width[i])
	}
	for _, row := range rows {
		for i, cell := range row {
			width[i] = max(width[i], utf8.RuneCountInString(cell))
		}
	}
	var b strings.Builder
	for n, row := range append([][]string{header, dashes}, rows...) {
		var line strings.Builder
		for i, cell := range row {
			shown := cell
			if paint != nil && n > 1 {
				shown = paint(cell)
			}
			line.WriteString(shown)
			if i < len(row)-1 {
				line.WriteString(strings.Repeat(" ", width[i]-utf8.RuneCountInString(cell)+2))
			}
		}
		b.WriteString(strings.TrimRight(line.String(), " ") + "\n")
	}
	return b.String()
}

// colours of words that say how something stands.
var colours = map[string]string{
	"complete": "32", "in_progress": "33", "erroring": "31", "blocked": "35", "waiting": "36", "paused": "36", "disabled": "90",
	"failed": "31", "ERRORING": "31",
}

// paint colours words of status on a terminal, and nothing elsewhere.
func (a *app) paint() func(string) string {
	if _, ok := a.terminal(); !ok || os.Getenv("NO_COLOR") != "" || os.Getenv("TERM") == "dumb" {
		return nil
	}
	return func(word string) string {
		if c := colours[word]; c != "" {
			return "\x1b[" + c + "m" + word + "\x1b[0m"
		}
		return word
	}
}

// mostNodes is of how many nodes a command says one by one what it will do there, before it asks.
const mostNodes = 20

// nodeTable is a table with a row for each node: of many nodes the first ones, and of all with -o wide.
func (a *app) nodeTable(header []string, rows [][]string, paint func(string) string) string {
	shown := rows
	if f, err := a.format(); err != nil || f != formatWide {
		shown = rows[:min(len(rows), mostNodes)]
	}
	text := table(header, shown, paint)
	if hidden := len(rows) - len(shown); hidden > 0 {
		text += fmt.Sprintf("and %s; -o wide shows all\n", count(hidden, "more node"))
	}
	return text
}

// count is a number with its noun.
func count(n int, noun string) string {
	switch {
	case n == 1:
		return "1 " + noun
	case strings.HasSuffix(noun, "ch"):
		return fmt.Sprintf("%d %ses", n, noun)
	}
	return fmt.Sprintf("%d %ss", n, noun)
}

// some lists the first of many words.
func some(words []string, most int) string { return more(words[:min(most, len(words))], len(words)) }

// widest is up to how many characters a list of words has that stands in the middle of other text.
const widest = 72

// more lists the first words of so many, as far as they are not too long for one line, but always one.
func more(first []string, of int) string {
	text := ""
	for i, word := range first {
		if i > 0 && utf8.RuneCountInString(text)+utf8.RuneCountInString(word) > widest {
			first = first[:i]
			break
		}
		if i > 0 {
			text += ", "
		}
		text += word
	}
	if rest := of - len(first); rest > 0 {
		text += fmt.Sprintf(" and %d more", rest)
	}
	return text
}
