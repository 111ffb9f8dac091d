// SPDX-FileCopyrightText: The Skyhook authors
// SPDX-License-Identifier: Apache-2.0

// Package output is what the commands of the plugin share: streams, output formats, exit codes and tables.
package output

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/cli-runtime/pkg/genericclioptions"
	"k8s.io/cli-runtime/pkg/printers"
)

// The output formats. Table is what commands print without -o; its name is that of the predecessor.
const (
	Table         = "table"
	Wide          = "wide"
	JSON          = "json"
	YAML          = "yaml"
	Name          = "name"
	jsonPath      = "jsonpath"
	customColumns = "custom-columns"
)

// Formats are what -o takes, as help and errors name it.
const Formats = "json, yaml, name, wide, jsonpath=TEMPLATE or custom-columns=NAME:PATH,…"

// Printer holds the streams of a command and the flags that say how to print.
type Printer struct {
	In          io.Reader
	Out, ErrOut io.Writer

	Format  string // --output, as given
	Verbose bool

	DryRun, ServerDryRun bool // nothing is changed; the API server is asked too

	detailedExitCode bool
}

// Answer is the result of a command in every format.
type Answer struct {
	Value any                    // for json and yaml
	Names []string               // for name, such as node/n1
	Text  func(wide bool) string // for table and wide
}

// CheckFormat returns the name of the output format, or an error when there is no such format.
func (p *Printer) CheckFormat() (string, error) {
	format, _, err := p.choosePrinter()
	return format, err
}

// choosePrinter returns the output format, and the printer of those that print a value.
func (p *Printer) choosePrinter() (string, printers.ResourcePrinter, error) {
	format, template, _ := strings.Cut(p.Format, "=")
	format = strings.ToLower(format)
	var printer printers.ResourcePrinter
	var err error
	switch isText := slices.Contains([]string{Table, Wide, Name}, format); {
	case isText && template == "":
	case format == customColumns && template != "":
		printer, err = newColumns(template)
	case format == jsonPath && template != "":
		printer, err = genericclioptions.NewKubeTemplatePrintFlags().ToPrinter(format + "=" + template)
	case (format == JSON || format == YAML) && template == "":
		printer, err = genericclioptions.NewJSONYamlPrintFlags().ToPrinter(format)
	default:
		err = fmt.Errorf("invalid output format %q: use %s", p.Format, Formats)
	}
	return format, printer, err
}

// Render formats an answer.
func (p *Printer) Render(answer Answer) (string, error) {
	format, printer, err := p.choosePrinter()
	switch {
	case err != nil:
		return "", err
	case format == Name:
		return strings.Join(append(slices.Clone(answer.Names), ""), "\n"), nil
	case printer == nil:
		return answer.Text(format == Wide), nil
	}
	raw, err := json.Marshal(answer.Value)
	if err != nil {
		return "", fmt.Errorf("printing the answer: %w", err)
	}
	var b strings.Builder
	err = printer.PrintObj(&runtime.Unknown{Raw: raw, ContentType: runtime.ContentTypeJSON}, &b)
	return b.String(), err
}

// AddOutputFlag adds -o to a command in which it meant something else before: what is no format is the value of that flag.
func (p *Printer) AddOutputFlag(flags *pflag.FlagSet, former string) {
	flags.FuncP("output", "o", "", func(text string) error {
		if _, err := (&Printer{Format: text}).CheckFormat(); err == nil {
			p.Format = text
			return nil
		}
		p.Warn("-o is for formats: write --%s %s", former, text)
		return flags.Set(former, text)
	})
	flags.Lookup("output").Hidden = true
}

// AddDryRunFlag adds --dry-run. It was a switch, so it needs no value, and true and false are values too.
func (p *Printer) AddDryRunFlag(flags *pflag.FlagSet) {
	flags.Func("dry-run", "print what would be sent, or have the API server check it; change nothing: `client|server`", func(text string) error {
		p.ServerDryRun = text == "server"
		p.DryRun = p.ServerDryRun || text == "client" || text == "true"
		if !p.DryRun && text != "none" && text != "false" {
			return errors.New("use client, server or none")
		}
		return nil
	})
	flags.Lookup("dry-run").NoOptDefVal = "client"
}

// PrintChange prints what a command changed: the value, and lines to each of which a dry run adds that it was one, as kubectl does.
func (p *Printer) PrintChange(value map[string]any, names []string, lines ...string) error {
	value["dryRun"] = p.DryRun
	return p.Print(Answer{Value: value, Names: names, Text: func(bool) string {
		return strings.Join(append(lines, ""), p.DryRunSuffix()+"\n")
	}})
}

// DryRunSuffix marks sentences about changes that were not made.
func (p *Printer) DryRunSuffix() string {
	switch {
	case p.ServerDryRun:
		return " (server dry run)"
	case p.DryRun:
		return " (dry run)"
	}
	return ""
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

// Args accepts exactly the named arguments. A last name that ends in … stands for one or more.
func Args(names ...string) cobra.PositionalArgs {
	return func(cmd *cobra.Command, args []string) error {
		repeated := len(names) > 0 && strings.HasSuffix(names[len(names)-1], "…")
		if len(args) == len(names) || repeated && len(args) > len(names) {
			return nil
		}
		if len(names) == 0 {
			return fmt.Errorf("%s takes no arguments, and got %q", cmd.CommandPath(), args[0])
		}
		return fmt.Errorf("%s takes %s, and got %s; see --help", cmd.CommandPath(), strings.Join(names, " "), Count(len(args), "argument"))
	}
}

// Exit codes other than 0. Differences are no error, and have a code only when it was asked for.
const (
	exitError       = 1
	exitDifferences = 2
)

// ExitError ends a command that has printed everything already with an exit code of its own.
type ExitError struct{ Code int }

func (e *ExitError) Error() string { return fmt.Sprintf("exit code %d", e.Code) }

// ProblemsFound ends a command that checked something and has printed what is wrong.
func ProblemsFound() error { return &ExitError{Code: exitError} }

// AddDetailedExitCode adds --detailed-exitcode.
func (p *Printer) AddDetailedExitCode(cmd *cobra.Command, difference string) {
	cmd.Flags().BoolVar(&p.detailedExitCode, "detailed-exitcode", false, "exit with 2 when "+difference)
}

// EndWith ends a command that has printed differences, if there are any.
func (p *Printer) EndWith(hasDifferences bool) error {
	if hasDifferences && p.detailedExitCode {
		return &ExitError{Code: exitDifferences}
	}
	return nil
}

// ExitCode returns the exit code for the error of a command, and whether the error is still to be printed.
func ExitCode(err error) (code int, unprinted bool) {
	var exit *ExitError
	switch {
	case err == nil:
		return 0, false
	case errors.As(err, &exit):
		return exit.Code, false
	}
	return exitError, true
}
