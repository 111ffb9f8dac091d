// SPDX-FileCopyrightText: The Skyhook authors
// SPDX-License-Identifier: Apache-2.0

package step

import (
	"bytes"
	"io"
	"slices"
	"strings"
	"sync"
	"time"
	"unicode/utf8"
)

// Stamp is the time format of lines: UTC, with nanoseconds.
const Stamp = "2006-01-02T15:04:05.000000000Z07:00"

// Limits of an Output.
const (
	DefaultLimit = 8192
	minLimit     = 256
	tailLines    = 20
)

// Output writes the output of a program to every sink, line by line, with time stamps and redacted. It keeps the last
// lines. A sink that fails is not used any more.
type Output struct {
	// Redact redacts every line; nil redacts nothing.
	Redact *Redactor
	// Limit is the maximum length of a line in bytes. Longer lines are split.
	Limit int
	// Failed is called when writing to a sink fails.
	Failed func(error)

	mu    sync.Mutex
	sinks []io.Writer
	tail  []string
}

// NewOutput creates an Output with these sinks.
func NewOutput(redact *Redactor, limit int, sinks ...io.Writer) *Output {
	return &Output{Redact: redact, Limit: limit, sinks: sinks}
}

// Lines are the last lines of the program.
func (o *Output) Lines() []string {
	o.mu.Lock()
	defer o.mu.Unlock()
	return slices.Clone(o.tail)
}

// WriteNote writes a line of the agent to the sinks. It does not count as a line of the program.
func (o *Output) WriteNote(line string) { o.writeLines([]string{o.Redact.Replace(line)}, false) }

// WithoutLines is an Output with the same sinks and no lines.
func (o *Output) WithoutLines() *Output {
	o.mu.Lock()
	defer o.mu.Unlock()
	return &Output{Redact: o.Redact, Limit: o.Limit, Failed: o.Failed, sinks: slices.Clone(o.sinks)}
}

// readFrom reads r until its end.
func (o *Output) readFrom(r io.Reader) {
	limit := max(o.Limit, minLimit, 2*o.Redact.longestSecret())
	chunk := make([]byte, limit)
	var rest []byte
	for {
		n, err := r.Read(chunk)
		rest = append(rest, chunk[:n]...)
		var lines []string
		lines, rest = o.splitLines(rest, limit)
		if err != nil && len(rest) > 0 {
			lines, rest = append(lines, splitPieces(o.Redact.Replace(string(rest)), limit, 0)...), nil
		}
		o.writeLines(lines, true)
		if err != nil {
			return
		}
	}
}

// splitLines splits text into complete lines, and a line that is too long into pieces of the limit. The end of text may be
// the start of a secret or of a line ending, so that many bytes are kept for the next call.
func (o *Output) splitLines(text []byte, limit int) (lines []string, rest []byte) {
	for {
		line, after, found := bytes.Cut(text, []byte("\n"))
		if !found {
			break
		}
		lines = append(lines, splitPieces(o.Redact.Replace(strings.TrimSuffix(string(line), "\r")), limit, 0)...)
		text = after
	}
	kept := max(o.Redact.longestSecret()-1, 0) + len("\r\n")
	if len(text) < limit+kept {
		return lines, slices.Clone(text)
	}
	pieces := splitPieces(o.Redact.Replace(string(text)), limit, kept)
	last := len(pieces) - 1
	return append(lines, pieces[:last]...), []byte(pieces[last])
}

// splitPieces cuts pieces of the limit off the line. The last piece has at least as many bytes as are to be kept.
func splitPieces(line string, limit, kept int) []string {
	var out []string
	for len(line) > limit && len(line) >= limit+kept {
		end := alignToRune(line, limit)
		out, line = append(out, line[:end]), line[end:]
	}
	return append(out, line)
}

// alignToRune moves a cut back to the start of a character. In binary data it does not move.
func alignToRune(text string, cut int) int {
	for back := range min(utf8.UTFMax, cut) {
		if cut == len(text) || utf8.RuneStart(text[cut-back]) {
			return cut - back
		}
	}
	return cut
}

func (o *Output) writeLines(lines []string, keep bool) {
	if len(lines) == 0 {
		return
	}
	now := time.Now().UTC().Format(Stamp)
	var text bytes.Buffer
	for _, line := range lines {
		text.WriteString(now)
		text.WriteByte(' ')
		text.WriteString(line)
		text.WriteByte('\n')
	}
	o.mu.Lock()
	defer o.mu.Unlock()
	if keep {
		o.tail = append(o.tail, lines...)
	}
	if over := len(o.tail) - tailLines; over > 0 {
		o.tail = slices.Clone(o.tail[over:])
	}
	o.sinks = slices.DeleteFunc(o.sinks, func(w io.Writer) bool {
		_, err := w.Write(text.Bytes())
		if err != nil && o.Failed != nil {
			o.Failed(err)
		}
		return err != nil
	})
}
