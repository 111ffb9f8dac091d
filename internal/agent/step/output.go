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

// Stamp is how lines are timed: UTC, always to the nanosecond.
const Stamp = "2006-01-02T15:04:05.000000000Z07:00"

// Bounds of an Output.
const (
	DefaultLimit = 8192
	minLimit     = 256
	tailLines    = 20
)

// Output takes what a program writes, line by line: time-stamped and redacted, to every sink, and the last lines are
// kept. A sink that fails is left out from then on.
type Output struct {
	// Redact takes the secrets out of every line; nil takes nothing out.
	Redact *Redactor
	// Limit is the longest line in bytes; a longer one is told in pieces.
	Limit int
	// Failed is told of a sink that cannot be written any more.
	Failed func(error)

	mu    sync.Mutex
	sinks []io.Writer
	tail  []string
}

// NewOutput makes an Output over sinks.
func NewOutput(redact *Redactor, limit int, sinks ...io.Writer) *Output {
	return &Output{Redact: redact, Limit: limit, sinks: sinks}
}

// Lines are the last lines that were taken.
func (o *Output) Lines() []string {
	o.mu.Lock()
	defer o.mu.Unlock()
	return slices.Clone(o.tail)
}

// Say adds a line of the agent's own to the sinks; it is none of the program's last lines.
func (o *Output) Say(line string) { o.tell([]string{o.Redact.Replace(line)}, false) }

// Fresh is an Output over the same sinks that has kept no lines yet.
func (o *Output) Fresh() *Output {
	o.mu.Lock()
	defer o.mu.Unlock()
	return &Output{Redact: o.Redact, Limit: o.Limit, Failed: o.Failed, sinks: slices.Clone(o.sinks)}
}

// take reads until the end of r.
func (o *Output) take(r io.Reader) {
	limit := max(o.Limit, minLimit, 2*o.Redact.longest())
	chunk := make([]byte, limit)
	var rest []byte
	for {
		n, err := r.Read(chunk)
		rest = append(rest, chunk[:n]...)
		var lines []string
		lines, rest = o.split(rest, limit)
		if err != nil && len(rest) > 0 {
			lines, rest = append(lines, o.Redact.Replace(string(rest))), nil
		}
		o.tell(lines, true)
		if err != nil {
			return
		}
	}
}

// split takes the whole lines out of text, and pieces of a line that is too long. The end of such a piece may be the
// beginning of a secret, or of the end of the line, so that much is kept back.
func (o *Output) split(text []byte, limit int) (lines []string, rest []byte) {
	for {
		line, after, found := bytes.Cut(text, []byte("\n"))
		if !found {
			break
		}
		lines = append(lines, pieces(o.Redact.Replace(strings.TrimSuffix(string(line), "\r")), limit)...)
		text = after
	}
	if len(text) < limit {
		return lines, slices.Clone(text)
	}
	told := o.Redact.Replace(string(text))
	keep := whole(told, max(0, len(told)-max(o.Redact.longest()-1, 0)))
	if keep > 0 && told[keep-1] == '\r' {
		keep--
	}
	if keep > 0 {
		lines = append(lines, told[:keep])
	}
	return lines, []byte(told[keep:])
}

func pieces(line string, limit int) []string {
	var out []string
	for len(line) > limit {
		end := whole(line, limit)
		out, line = append(out, line[:end]), line[end:]
	}
	return append(out, line)
}

// whole moves a cut back to where a character begins; in what is no text it stays where it is.
func whole(text string, cut int) int {
	for back := range min(utf8.UTFMax, cut) {
		if cut == len(text) || utf8.RuneStart(text[cut-back]) {
			return cut - back
		}
	}
	return cut
}

func (o *Output) tell(lines []string, keep bool) {
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
