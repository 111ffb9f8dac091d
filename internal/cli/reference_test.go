// SPDX-FileCopyrightText: The Skyhook authors
// SPDX-License-Identifier: Apache-2.0

package cli_test

import (
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/spf13/cobra"

	"github.com/skyhook-k8s/skyhook/internal/cli"
	"github.com/skyhook-k8s/skyhook/internal/cli/session"
)

const referenceHead = `# kubectl skyhook

Generated from the commands by go test ./internal/cli -run TestReference -update: do not edit.

The plugin talks to the API server only. What it says about what happens next is decided by the same code as in the
operator, on a list call or two, and never with one call per node.

| command | what it does |
|---|---|
`

// TestReference keeps docs/cli.md equal to the help of the commands.
func TestReference(t *testing.T) {
	root := cli.Command(cli.Line{Version: "dev"})
	var all []*cobra.Command
	var walk func(*cobra.Command)
	walk = func(c *cobra.Command) {
		if c != root && c.Runnable() && !c.HasSubCommands() && !c.Hidden {
			all = append(all, c)
		}
		for _, sub := range c.Commands() {
			walk(sub)
		}
	}
	walk(root)
	slices.SortFunc(all, func(a, b *cobra.Command) int { return strings.Compare(a.CommandPath(), b.CommandPath()) })
	var b strings.Builder
	b.WriteString(referenceHead)
	for _, c := range all {
		name := strings.TrimPrefix(c.CommandPath(), "kubectl skyhook ")
		fmt.Fprintf(&b, "| [%s](#%s) | %s |\n", name, strings.ReplaceAll(name, " ", "-"), c.Short)
		if c.Example == "" && name != "options" {
			t.Errorf("%s has no example", name)
		}
		for _, line := range strings.Split(c.Example, "\n") {
			if line != "" && !strings.HasPrefix(line, "  kubectl skyhook ") && !strings.HasPrefix(line, "  docker ") {
				t.Errorf("an example of %s does not begin with kubectl skyhook: %q", name, line)
			}
		}
	}
	for _, c := range all {
		describe(&b, c)
	}
	fmt.Fprintf(&b, "\n## Flags of every command\n\n```\n%s```\n", replaceHome(session.GlobalFlags(root)))
	const file = "../../docs/cli.md"
	if *update {
		if err := os.WriteFile(file, []byte(b.String()), 0o644); err != nil {
			t.Fatal(err)
		}
		return
	}
	is, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	if string(is) != b.String() {
		t.Error("docs/cli.md differs from the help of the commands: go test ./internal/cli -run TestReference -update")
	}
}

func describe(b *strings.Builder, c *cobra.Command) {
	name := strings.TrimPrefix(c.CommandPath(), "kubectl skyhook ")
	long := c.Long
	if long == "" {
		long = c.Short + "."
	}
	fmt.Fprintf(b, "\n## %s\n\n%s\n\n```\n%s\n```\n", name, long, c.UseLine())
	if len(c.Aliases) > 0 {
		fmt.Fprintf(b, "\nAlso: %s\n", strings.Join(c.Aliases, ", "))
	}
	if c.Example != "" {
		fmt.Fprintf(b, "\nExamples:\n\n```\n%s\n```\n", strings.ReplaceAll(strings.TrimPrefix(c.Example, "  "), "\n  ", "\n"))
	}
	c.InitDefaultHelpFlag()
	if flags := c.NonInheritedFlags().FlagUsages(); flags != "" {
		fmt.Fprintf(b, "\nFlags:\n\n```\n%s```\n", replaceHome(flags))
	}
}

// replaceHome replaces the home folder in defaults.
func replaceHome(flags string) string {
	if home, err := os.UserHomeDir(); err == nil && home != "/" {
		flags = strings.ReplaceAll(flags, home, "$HOME")
	}
	return flags
}
