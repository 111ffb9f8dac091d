// SPDX-FileCopyrightText: The Skyhook authors
// SPDX-License-Identifier: Apache-2.0

package look

import (
	"context"
	"fmt"
	"io"
	"os"
	"strings"
	"time"

	"golang.org/x/term"

	"github.com/skyhook-k8s/skyhook/internal/output"
)

// Terminal sequences to redraw a screen. Each screen is written at once and over the previous one, so that it does not
// flicker.
var (
	cursorHome = output.Sequence("H")
	clearLine  = output.Sequence("K") + "\n"
	clearRest  = output.Sequence("J")
	clearAll   = output.Sequence("2J")
)

// screen is the output of status -w.
type screen struct {
	*output.Printer
	last    string // text that was printed
	isDrawn bool
}

// runWatch prints the status again and again, until everything is done.
func (o *statusOptions) runWatch(ctx context.Context) error {
	format, err := o.CheckFormat()
	if err != nil {
		return err
	}
	if format == output.YAML || format == output.Name {
		return fmt.Errorf("-w cannot print %s: use table, wide or json", format)
	}
	s := &screen{Printer: o.Printer}
	isDump, failures := o.from.From != "", 0
	for {
		answer, isDone, err := o.load(ctx)
		switch {
		case ctx.Err() != nil:
			return nil
		case err != nil && (!s.isDrawn || isDump):
			return err
		case err != nil: // it may pass; the last screen stays
			if failures++; failures == 1 || !s.isTerminal() {
				o.Warn("%v; trying again", err)
			}
		default:
			failures = 0
			if err := s.draw(answer); err != nil {
				return err
			}
		}
		if isDone && err == nil || isDump {
			return nil
		}
		select {
		case <-ctx.Done():
			return nil
		case <-time.After(o.interval):
		}
	}
}

// draw redraws a terminal. Elsewhere it appends a text that changed.
func (s *screen) draw(answer output.Answer) error {
	text, err := s.Render(answer)
	if err != nil {
		return err
	}
	out := text
	switch {
	case s.isTerminal():
		height := s.height()
		lines := strings.Split(strings.TrimSuffix(s.Wrap(text), "\n"), "\n")
		if len(lines) >= height {
			lines = append(lines[:max(height-2, 1)], "…")
		}
		out = cursorHome + strings.Join(lines, clearLine) + clearLine + clearRest
		if !s.isDrawn {
			out = clearAll + out
		}
	case text == s.last:
		return nil
	case s.isDrawn && !strings.EqualFold(s.Format, output.JSON):
		out = "\n" + text
	}
	s.last, s.isDrawn = text, true
	_, err = io.WriteString(s.Out, out)
	return err
}

// isTerminal reports whether the output is a terminal that can be redrawn.
func (s *screen) isTerminal() bool {
	_, ok := s.Terminal()
	return ok && os.Getenv("TERM") != "dumb" && !strings.EqualFold(s.Format, output.JSON)
}

func (s *screen) height() int {
	f, _ := s.Terminal()
	_, height, err := term.GetSize(f)
	if err != nil || height < 5 {
		return 24
	}
	return height
}
