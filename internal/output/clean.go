// SPDX-FileCopyrightText: The Skyhook authors
// SPDX-License-Identifier: Apache-2.0

package output

import (
	"fmt"
	"io"
	"strings"
	"sync"
	"unicode"
	"unicode/utf8"
)

// Clean returns a stream in which control characters are visible, such as \u001b, but for line ends, tabs and what Sequence made. Names, messages and logs
// come from others, who could otherwise move the cursor, hide text or type into a terminal. JSON keeps its meaning.
func Clean(out io.Writer) io.Writer { return &cleanWriter{out: out} }

type cleanWriter struct {
	out  io.Writer
	mu   sync.Mutex
	rest string // the beginning of a character
}

// Write writes a text.
func (w *cleanWriter) Write(p []byte) (int, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	var b strings.Builder
	text := w.rest + string(p)
	for utf8.FullRuneInString(text) && text != "" {
		r, size := utf8.DecodeRuneInString(text)
		switch {
		case strings.HasPrefix(text, ours):
			size = len(ours)
			b.WriteString("\x1b[")
		case r == utf8.RuneError && size == 1:
			fmt.Fprintf(&b, "\\x%02x", text[0])
		case r != '\n' && r != '\t' && (unicode.IsControl(r) || unicode.Is(unicode.Bidi_Control, r)):
			fmt.Fprintf(&b, "\\u%04x", r)
		default:
			b.WriteString(text[:size])
		}
		text = text[size:]
	}
	w.rest = text
	_, err := io.WriteString(w.out, b.String())
	return len(p), err
}
