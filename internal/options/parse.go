// SPDX-FileCopyrightText: The Skyhook authors
// SPDX-License-Identifier: Apache-2.0

package options

import (
	"errors"
	"flag"
	"fmt"
	"io"
	"slices"
	"strings"
	"text/tabwriter"
)

// ErrVersion is what Parse returns when only the version was asked for. For help it returns flag.ErrHelp.
var ErrVersion = errors.New("version asked for")

// Defaults are the settings of an operator that is given none.
func Defaults() *Options {
	o := &Options{}
	for _, row := range o.Table() {
		if row.Default == "" {
			continue
		}
		if err := row.Set(row.Default); err != nil {
			panic(fmt.Sprintf("default of --%s: %v", row.Flag, err)) // a constant of this package
		}
	}
	return o
}

// Parse reads settings. A flag wins over the environment, and that over the default. An empty environment variable
// counts as not set. With an error, the options hold what could be read: a value that cannot be parsed leaves the one before.
func Parse(args []string, env func(string) (string, bool)) (*Options, error) {
	o := Defaults()
	table := o.Table()
	var errs []error
	for _, row := range table {
		if value, ok := env(row.Env); ok && value != "" {
			if err := row.Set(value); err != nil {
				errs = append(errs, fmt.Errorf("environment variable %s: %w", row.Env, err))
			}
		}
	}
	flags := flag.NewFlagSet("operator", flag.ContinueOnError)
	flags.SetOutput(io.Discard)
	showVersion := flags.Bool("version", false, "")
	flags.StringVar(&o.Kubeconfig, "kubeconfig", "", "")
	for _, row := range table {
		flags.Var(row, row.Flag, row.Help)
	}
	if err := flags.Parse(args); err != nil {
		return o, errors.Join(append(errs, err)...)
	}
	if *showVersion {
		return o, ErrVersion
	}
	if flags.NArg() > 0 {
		return o, fmt.Errorf("%q is not a flag; see --help", flags.Arg(0))
	}
	return o, errors.Join(append(errs, o.validate(table))...)
}

// validate notes what was given without effect, and reports every value that cannot work.
func (o *Options) validate(table []*Option) error {
	var errs []error
	for _, row := range table {
		if row.Use == Nothing && row.given {
			o.Ignored = append(o.Ignored, row.Env+strings.TrimPrefix(row.Help, "accepted and without effect"))
		}
		if row.check == nil {
			continue
		}
		if err := row.check(row.String()); err != nil {
			errs = append(errs, fmt.Errorf("--%s (%s): %w", row.Flag, row.Env, err))
		}
	}
	if o.PrometheusTokenFile != "" && !slices.ContainsFunc(o.PrometheusEndpoints, isSecureURL) {
		errs = append(errs, errors.New("--prometheus-token-file (PROMETHEUS_TOKEN_FILE): no server gets the token: "+
			"name one that begins with https:// in --prometheus-endpoints (PROMETHEUS_ENDPOINTS)"))
	}
	return errors.Join(errs...)
}

func isSecureURL(text string) bool { return strings.HasPrefix(text, "https://") }

// Changed lists the options a decision depends on that differ from their defaults, as flags.
func (o *Options) Changed() []string {
	var out []string
	defaults := Defaults().Table()
	for i, row := range o.Table() {
		if value := row.String(); row.Use == Decision && value != defaults[i].String() {
			out = append(out, "--"+row.Flag+"="+value)
		}
	}
	return out
}

// Usage prints the options as a table.
func Usage(out io.Writer) error {
	t := tabwriter.NewWriter(out, 0, 0, 2, ' ', 0)
	fmt.Fprint(t, "operator applies the packages of Skyhooks to the nodes of a cluster, and carries out NodeOps.\n\n"+
		"Each setting is a flag or an environment variable; the flag wins.\n\n")
	for _, row := range (&Options{}).Table() {
		initial := row.Default
		if initial == "" {
			initial = "-"
		}
		fmt.Fprintf(t, "  --%s\t%s\t%s\n      %s\n", row.Flag, row.Env, initial, row.Help)
	}
	fmt.Fprint(t, "  --kubeconfig\tKUBECONFIG\t-\n      kubeconfig file, outside a cluster\n")
	fmt.Fprint(t, "  --version\n      print the version and exit\n")
	return t.Flush()
}
