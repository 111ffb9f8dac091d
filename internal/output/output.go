// SPDX-FileCopyrightText: The Skyhook authors
// SPDX-License-Identifier: Apache-2.0

// Package output is what the commands of the plugin share: streams, output formats, exit codes and tables.
package output

import (
	"encoding/json"
	"fmt"
	"io"
	"slices"
	"strings"

	"sigs.k8s.io/yaml"
)

// The output formats.
const (
	Table = "table"
	Wide  = "wide"
	JSON  = "json"
	YAML  = "yaml"
	Name  = "name"
)

// Printer holds the streams of a command and the flags that say how to print.
type Printer struct {
	In          io.Reader
	Out, ErrOut io.Writer

	Format  string // --output, as given
	DryRun  bool
	Verbose bool
}

// Answer is the result of a command in every format.
type Answer struct {
	Value any                    // for json and yaml
	Names []string               // for name, such as node/n1
	Text  func(wide bool) string // for table and wide
}

// CheckFormat returns the output format, or an error when there is no such format.
func (p *Printer) CheckFormat() (string, error) {
	format := strings.ToLower(p.Format)
	if !slices.Contains([]string{Table, Wide, JSON, YAML, Name}, format) {
		return "", fmt.Errorf("invalid output format %q: use table, wide, json, yaml or name", p.Format)
	}
	return format, nil
}

// Render formats an answer.
func (p *Printer) Render(answer Answer) (string, error) {
	format, err := p.CheckFormat()
	if err != nil {
		return "", err
	}
	var raw []byte
	switch format {
	case JSON:
		raw, err = json.MarshalIndent(answer.Value, "", "  ")
		raw = append(raw, '\n')
	case YAML:
		raw, err = yaml.Marshal(answer.Value)
	case Name:
		return strings.Join(append(slices.Clone(answer.Names), ""), "\n"), nil
	default:
		return answer.Text(format == Wide), nil
	}
	if err != nil {
		return "", fmt.Errorf("printing the answer: %w", err)
	}
	return string(raw), nil
}

// Print writes an answer to the output stream.
func (p *Printer) Print(answer Answer) error {
	text, err := p.Render(answer)
	if err != nil {
		return err
	}
	if _, err := io.WriteString(p.Out, p.Wrap(text)); err != nil {
		return fmt.Errorf("printing the answer: %w", err)
	}
	return nil
}

// Note prints a line to standard error with --verbose.
func (p *Printer) Note(format string, args ...any) {
	if p.Verbose {
		fmt.Fprintf(p.ErrOut, format+"\n", args...)
	}
}

// Warn prints a warning to standard error.
func (p *Printer) Warn(format string, args ...any) {
	fmt.Fprintf(p.ErrOut, "warning: "+format+"\n", args...)
}
