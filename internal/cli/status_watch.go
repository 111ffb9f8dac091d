// SPDX-FileCopyrightText: The Skyhook authors
// SPDX-License-Identifier: Apache-2.0

package cli

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

// What a terminal is told between two pictures: go home, and after each line and after all forget what was there. It is
// written at once, so nothing flickers.
const (
	goHome    = "\x1b[H"
	clearLine = "\x1b[K\n"
	clearRest = "\x1b[J"
	clearAll  = "\x1b[2J"
)

// watch shows the status again and again, until everything is done.
func (a *factory) watch(ctx context.Context, from viewOptions, args []string, every time.Duration) error {
	if f, err := a.CheckFormat(); err != nil || f == output.YAML || f == output.Name {
		if err == nil {
			err = fmt.Errorf("-w cannot print %s: use table, wide or json", f)
		}
		return err
	}
	height, redraw := a.screenHeight()
	last, failed := "", 0
	for first := true; ; first = false {
		text, done, err := a.statusText(ctx, from, args)
		switch {
		case ctx.Err() != nil:
			return nil
		case err != nil && (first || from.from != ""):
			return err
		case err != nil: // it may pass; what was last seen stays
			if failed++; failed == 1 || !redraw {
				a.Warn("%v; trying again", err)
			}
		default:
			failed = 0
			if err := a.draw(text, &last, first, redraw, height); err != nil {
				return err
			}
		}
		if done && err == nil || from.from != "" {
			return nil
		}
		select {
		case <-ctx.Done():
			return nil
		case <-time.After(every):
		}
		height, redraw = a.screenHeight()
	}
}

func (a *factory) draw(text string, last *string, first, redraw bool, height int) error {
	out := text
	switch {
	case redraw:
		lines := strings.Split(strings.TrimSuffix(a.Wrap(text), "\n"), "\n")
		if len(lines) >= height {
			lines = append(lines[:max(height-2, 1)], "…")
		}
		out = goHome + strings.Join(lines, clearLine) + clearLine + clearRest
		if first {
			out = clearAll + out
		}
	case text == *last:
		return nil
	case !first && a.Format != output.JSON:
		out = "\n" + text
	}
	*last = text
	_, err := io.WriteString(a.Out, out)
	return err
}

// statusText is what status prints.
func (a *factory) statusText(ctx context.Context, from viewOptions, args []string) (string, bool, error) {
	ans, done, err := a.status(ctx, from, args)
	if err != nil {
		return "", false, err
	}
	text, err := a.Render(ans)
	return text, done, err
}

// screenHeight is how many lines there are to redraw; false when the output is no terminal.
func (a *factory) screenHeight() (int, bool) {
	f, ok := a.Terminal()
	if !ok || os.Getenv("TERM") == "dumb" || strings.EqualFold(a.Format, output.JSON) {
		return 0, false
	}
	_, height, err := term.GetSize(f)
	if err != nil || height < 5 {
		return 24, true
	}
	return height, true
}
