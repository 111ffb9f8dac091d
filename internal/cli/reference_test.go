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

// referenceRules is what all commands have in common. Scripts in testdata show each rule.
const referenceRules = `Look with [status](#status), status --nodes, [node describe](#node-describe) and [why](#why).

| | |
|---|---|
| exit code | 0 for success, 1 for an error; 2 for differences with --detailed-exitcode of [plan](#plan), [diff](#diff), [drift](#drift). [node run](#node-run), reboot and drain exit as the command did |
| -o | json, yaml, name, wide, jsonpath=TEMPLATE and custom-columns=NAME:PATH,… as in kubectl get. Paths are those of -o json; custom columns have a row per element of a list |
| --dry-run | client, the default: prints what would be sent. server: the API server checks it, and changes nothing |
| -n, -A | the namespace whose NodeOps are shown, and where node reboot, drain and run create one. Without -n all NodeOps are shown, and one is created beside the operator |
| --operator-namespace | where the operator is. Without it: where one leads, or else where its Deployment is, or else -n, or else skyhook. If several are found, -n chooses one |

Former names work, and help does not show them:

| former name | name |
|---|---|
| reset | [forget](#forget) |
| node reset | [node reapply](#node-reapply) |
| package rerun | [package reapply](#package-reapply) |
| deployment-policy reset | [restart-batches](#restart-batches) |
| node list | [status](#status) NAME --nodes |
| node status | [status](#status) --nodes |
| package status | [node describe](#node-describe) |
`

const referenceHead = `# kubectl skyhook

Generated from the commands by go test ./internal/cli -run TestReference -update: do not edit.

The plugin talks to the API server only. What happens next it decides with the code of the operator. Help explains
each command: kubectl skyhook COMMAND --help.

%s
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
	fmt.Fprintf(&b, referenceHead, referenceRules)
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
	fmt.Fprintf(b, "\n## %s\n\n```\n%s\n", name, c.UseLine())
	if len(c.Aliases) > 0 {
		fmt.Fprintf(b, "\nAlso: %s\n", strings.Join(c.Aliases, ", "))
	}
	if c.Example != "" {
		fmt.Fprintf(b, "\nExamples:\n%s\n", c.Example)
	}
	if flags := c.NonInheritedFlags().FlagUsages(); flags != "" {
		fmt.Fprintf(b, "\nFlags:\n%s", replaceHome(flags))
	}
	b.WriteString("```\n")
}

// replaceHome replaces the home folder in defaults.
func replaceHome(flags string) string {
	if home, err := os.UserHomeDir(); err == nil && home != "/" {
		flags = strings.ReplaceAll(flags, home, "$HOME")
	}
	return flags
}
