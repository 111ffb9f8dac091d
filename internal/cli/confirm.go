// SPDX-FileCopyrightText: The Skyhook authors
// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"strings"

	"github.com/spf13/pflag"
)

// confirmation is the question before something is changed.
type confirmation struct{ given bool }

func (c *confirmation) flags(f *pflag.FlagSet) {
	f.BoolVarP(&c.given, "confirm", "y", false, "do not ask")
	f.BoolVar(&c.given, "yes", false, "the same as --confirm")
}

// confirm asks a question and gives an error unless the answer is yes. A dry run asks nothing.
func (a *factory) confirm(c *confirmation, question string) error {
	if c.given || a.DryRun {
		return nil
	}
	fmt.Fprintf(a.ErrOut, "%s [y/N]: ", question)
	line, err := bufio.NewReader(a.In).ReadString('\n')
	if err != nil && !errors.Is(err, io.EOF) {
		return fmt.Errorf("reading the answer: %w", err)
	}
	if err != nil {
		fmt.Fprintln(a.ErrOut)
	}
	switch strings.ToLower(strings.TrimSpace(line)) {
	case "y", "yes":
		return nil
	}
	return errors.New("not confirmed, so nothing was changed: answer y, or add --confirm")
}
