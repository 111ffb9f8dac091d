// SPDX-FileCopyrightText: The Skyhook authors
// SPDX-License-Identifier: Apache-2.0

// Termsvg draws recorded terminal output as an SVG: standard input to standard output. It understands colours and
// ignores every other control sequence.
package main

import (
	"bytes"
	"flag"
	"fmt"
	"html"
	"io"
	"os"
	"regexp"
	"strconv"
	"strings"
	"unicode/utf8"
)

func main() {
	title := flag.String("title", "terminal", "text for screen readers")
	flag.Parse()
	input, err := io.ReadAll(os.Stdin)
	if err == nil {
		_, err = os.Stdout.WriteString(render(*title, parse(string(input))))
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "termsvg:", err)
		os.Exit(1)
	}
}

// A span is text in one style: the names of CSS classes.
type span struct {
	text  string
	style string
}

// colours are the classes of the SGR parameters that are drawn.
var colours = map[int]string{30: "dim", 31: "red", 32: "green", 33: "yellow", 34: "blue", 35: "magenta", 36: "cyan", 90: "dim"}

var sequence = regexp.MustCompile("\x1b\\[([0-9;?]*)([A-Za-z])|\x1b[()][A-Z0-9]|[\x00-\x08\x0b\x0c\x0e-\x1a\x7f]")

// parse splits recorded output into lines of spans.
func parse(text string) [][]span {
	text = strings.ReplaceAll(text, "\r\n", "\n")
	var lines [][]span
	bold, colour := false, ""
	for line := range strings.Lines(strings.TrimRight(text, "\n ")) {
		line = expandTabs(strings.TrimRight(line, "\n\r "))
		var spans []span
		from := 0
		for _, m := range sequence.FindAllStringSubmatchIndex(line, -1) {
			spans = appendText(spans, line[from:m[0]], bold, colour)
			from = m[1]
			if m[4] >= 0 && line[m[4]:m[5]] == "m" {
				bold, colour = applySGR(line[m[2]:m[3]], bold, colour)
			}
		}
		lines = append(lines, appendText(spans, line[from:], bold, colour))
	}
	return lines
}

func appendText(spans []span, text string, bold bool, colour string) []span {
	if text == "" {
		return spans
	}
	style := colour
	if bold {
		style = strings.TrimSpace(style + " bold")
	}
	return append(spans, span{text, style})
}

// applySGR changes the style by the parameters of a "select graphic rendition" sequence.
func applySGR(parameters string, bold bool, colour string) (bool, string) {
	for p := range strings.SplitSeq(parameters, ";") {
		switch n, _ := strconv.Atoi(p); {
		case n == 0:
			bold, colour = false, ""
		case n == 1:
			bold = true
		case n == 22:
			bold = false
		case n == 39:
			colour = ""
		case colours[n] != "":
			colour = colours[n]
		}
	}
	return bold, colour
}

func expandTabs(line string) string {
	var out strings.Builder
	column := 0
	for _, r := range line {
		if r != '\t' {
			out.WriteRune(r)
			column++
			continue
		}
		blanks := 8 - column%8
		out.WriteString(strings.Repeat(" ", blanks))
		column += blanks
	}
	return out.String()
}

const (
	charWidth  = 7.8
	lineHeight = 18
	margin     = 16
	barHeight  = 28
)

const style = `
text { font: 13px ui-monospace, SFMono-Regular, Menlo, Consolas, "DejaVu Sans Mono", monospace; fill: #24292f; white-space: pre; }
.screen { fill: #f6f8fa; stroke: #d0d7de; }
.dot { fill: #d0d7de; }
.bold { font-weight: 600; }
.dim { fill: #57606a; } .red { fill: #cf222e; } .green { fill: #116329; } .yellow { fill: #7d4e00; }
.blue { fill: #0550ae; } .magenta { fill: #8250df; } .cyan { fill: #1b7c83; }
@media (prefers-color-scheme: dark) {
text { fill: #e6edf3; }
.screen { fill: #161b22; stroke: #30363d; }
.dot { fill: #30363d; }
.dim { fill: #8b949e; } .red { fill: #ff7b72; } .green { fill: #7ee787; } .yellow { fill: #e3b341; }
.blue { fill: #79c0ff; } .magenta { fill: #d2a8ff; } .cyan { fill: #76e3ea; }
}
`

// render draws lines of spans. Each span has its exact width, so columns are aligned in every monospaced font.
func render(title string, lines [][]span) string {
	columns := 0
	for _, line := range lines {
		columns = max(columns, width(line))
	}
	w := int(float64(columns)*charWidth) + 2*margin
	h := barHeight + len(lines)*lineHeight + margin

	var out bytes.Buffer
	fmt.Fprintf(&out, `<svg xmlns="http://www.w3.org/2000/svg" width="%d" height="%d" viewBox="0 0 %d %d" role="img">`, w, h, w, h)
	fmt.Fprintf(&out, "\n<title>%s</title>\n<style>%s</style>\n", html.EscapeString(title), style)
	fmt.Fprintf(&out, `<rect class="screen" x="0.5" y="0.5" width="%d" height="%d" rx="8"/>`+"\n", w-1, h-1)
	for i := range 3 {
		fmt.Fprintf(&out, `<circle class="dot" cx="%d" cy="14" r="5"/>`, margin+4+i*16)
	}
	out.WriteByte('\n')
	for i, line := range lines {
		drawLine(&out, line, barHeight+(i+1)*lineHeight-4)
	}
	out.WriteString("</svg>\n")
	return out.String()
}

// words matches text between gaps of two or more blanks: each gets its own position.
var words = regexp.MustCompile(`\S+( \S+)*`)

func drawLine(out io.Writer, line []span, y int) {
	column := 0
	for _, s := range line {
		class := ""
		if s.style != "" {
			class = fmt.Sprintf(` class="%s"`, s.style)
		}
		for _, m := range words.FindAllStringIndex(s.text, -1) {
			text := s.text[m[0]:m[1]]
			x := margin + float64(column+utf8.RuneCountInString(s.text[:m[0]]))*charWidth
			length := float64(utf8.RuneCountInString(text)) * charWidth
			fmt.Fprintf(out, `<text x="%.1f" y="%d" textLength="%.1f"%s>%s</text>`+"\n", x, y, length, class, html.EscapeString(text))
		}
		column += utf8.RuneCountInString(s.text)
	}
}

func width(line []span) int {
	n := 0
	for _, s := range line {
		n += utf8.RuneCountInString(s.text)
	}
	return n
}
