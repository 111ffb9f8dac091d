// SPDX-FileCopyrightText: The Skyhook authors
// SPDX-License-Identifier: Apache-2.0

package docs

import (
	"bytes"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	helmcmd "helm.sh/helm/v4/pkg/cmd"
	"k8s.io/cli-runtime/pkg/genericiooptions"
	"k8s.io/kubectl/pkg/cmd"
	"mvdan.cc/sh/v3/syntax"

	"github.com/skyhook-k8s/skyhook/internal/cli"
)

// An argumentChecker reports errors in the arguments of a program.
type argumentChecker func(root string, words []string) error

// programs lists the programs whose command lines are checked.
var programs = map[string]argumentChecker{
	"kubectl": checkKubectl, "helm": checkHelm, "kubelet": checkKubelet, "make": checkMakeTarget, "go": checkGoFolders, "sha256sum": acceptAny, "cd": acceptAny, "export": acceptAny, "cat": acceptAny,
	"echo": acceptAny, "diff": acceptAny, "sudo": acceptAny, "apt-get": acceptAny, "curl": acceptAny, "tar": acceptAny, "git": acceptAny, "base64": acceptAny, "jq": acceptAny, "grep": acceptAny,
	"skyhook-agent": acceptAny, "ctr": acceptAny, "systemctl": acceptAny, "journalctl": acceptAny, "ls": acceptAny, "test": acceptAny, "sort": acceptAny, "skopeo": acceptAny, "install": acceptAny, "sleep": acceptAny,
	"gpg": acceptAny, "cosign": acceptAny, "set": acceptAny, "mkdir": acceptAny, "cp": acceptAny, "sed": acceptAny, "cmp": acceptAny, "rm": acceptAny, "awk": acceptAny, "xargs": acceptAny, "tail": acceptAny, "flux": acceptAny, "argocd": acceptAny,
}

// acceptAny accepts all arguments of foreign programs; only the shell syntax is checked.
func acceptAny(string, []string) error { return nil }

// checkScript checks every command of a shell script, including nested ones.
func checkScript(root, text string) []error {
	file, err := syntax.NewParser().Parse(strings.NewReader(text), "")
	if err != nil {
		return []error{err}
	}
	var wrong []error
	printer := syntax.NewPrinter()
	syntax.Walk(file, func(n syntax.Node) bool {
		call, ok := n.(*syntax.CallExpr)
		if !ok || len(call.Args) == 0 {
			return true
		}
		var words []string
		for _, a := range call.Args {
			words = append(words, unquote(printer, a))
		}
		if err := checkCommand(root, words); err != nil {
			wrong = append(wrong, fmt.Errorf("%s: %w", strings.Join(words, " "), err))
		}
		return true
	})
	return wrong
}

// unquote returns a word without quotes, with x in place of variables and substitutions.
func unquote(_ *syntax.Printer, w *syntax.Word) string {
	var out strings.Builder
	for _, part := range w.Parts {
		switch part := part.(type) {
		case *syntax.SglQuoted:
			out.WriteString(part.Value)
		case *syntax.DblQuoted:
			for _, inner := range part.Parts {
				if lit, ok := inner.(*syntax.Lit); ok {
					out.WriteString(lit.Value)
				} else {
					out.WriteString("x")
				}
			}
		case *syntax.Lit:
			out.WriteString(part.Value)
		default:
			out.WriteString("x")
		}
	}
	return out.String()
}

func checkCommand(root string, words []string) error {
	for len(words) > 0 && words[0] == "sudo" {
		words = words[1:]
	}
	if len(words) == 0 {
		return nil
	}
	check, known := programs[words[0]]
	if strings.HasPrefix(words[0], "./") || strings.HasPrefix(words[0], "test/") || strings.HasPrefix(words[0], ".ci/") {
		_, err := os.Stat(filepath.Join(root, words[0]))
		return err
	}
	if !known {
		return fmt.Errorf("unknown program; add it to programs in this test, or mark the block with not-run")
	}
	return check(root, words[1:])
}

// checkKubectl finds the command and parses its flags, including those of the plugin.
func checkKubectl(_ string, words []string) error {
	if len(words) == 3 && words[0] == "krew" && words[1] == "install" {
		return nil
	}
	if len(words) > 0 && words[0] == "skyhook" {
		return parseArguments(cli.Command(cli.Line{Stdin: &bytes.Buffer{}, Stdout: io.Discard, Stderr: io.Discard, Version: "v0"}), words[1:])
	}
	streams, _, _, _ := genericiooptions.NewTestIOStreams()
	return parseArguments(cmd.NewDefaultKubectlCommandWithArgs(cmd.KubectlOptions{IOStreams: streams}), words)
}

// checkKubelet reads the valid flags from the help of the kubelet that belongs to the API server of these tests.
func checkKubelet(_ string, words []string) error {
	out, err := exec.Command(filepath.Join(filepath.Dir(plane.Kubectl()), "kubelet"), "--help").CombinedOutput()
	if err != nil {
		return fmt.Errorf("asking the kubelet for its flags: %w", err)
	}
	for _, w := range words {
		name, _, _ := strings.Cut(w, "=")
		if !strings.HasPrefix(name, "--") || !regexp.MustCompile(`(?m)^ +(-\w, )?`+regexp.QuoteMeta(name)+`\b`).Match(out) {
			return fmt.Errorf("the kubelet has no flag %s", name)
		}
	}
	return nil
}

func checkHelm(_ string, words []string) error {
	root, err := helmcmd.NewRootCmd(io.Discard, words, func(bool) {})
	if err != nil {
		return err
	}
	return parseArguments(root, words)
}

// parseArguments checks that a command and its flags exist in a tree of commands.
func parseArguments(root *cobra.Command, words []string) error {
	root.SilenceErrors, root.SilenceUsage = true, true
	found, rest, err := root.Find(words)
	if err != nil {
		return err
	}
	if found == root && len(words) > 0 && !strings.HasPrefix(words[0], "-") {
		return fmt.Errorf("there is no command %q", words[0])
	}
	if found.HasSubCommands() && !found.Runnable() && len(rest) > 0 && !strings.HasPrefix(rest[0], "-") {
		return fmt.Errorf("%s has no command %q", found.CommandPath(), rest[0])
	}
	if err := found.ParseFlags(rest); err != nil {
		return err
	}
	if help, err := found.Flags().GetBool("help"); err == nil && help {
		return nil
	}
	return found.ValidateArgs(found.Flags().Args())
}

var targetPattern = regexp.MustCompile(`(?m)^([a-z0-9-]+):`)

// checkMakeTarget checks that the Makefile has the targets.
func checkMakeTarget(root string, words []string) error {
	text, err := os.ReadFile(filepath.Join(root, "Makefile"))
	if err != nil {
		return err
	}
	var all []string
	for _, m := range targetPattern.FindAllStringSubmatch(string(text), -1) {
		all = append(all, m[1])
	}
	for _, w := range words {
		if !strings.Contains(w, "=") && !strings.HasPrefix(w, "-") && !slices.Contains(all, w) {
			return fmt.Errorf("the Makefile has no target %s", w)
		}
	}
	return nil
}

// checkGoFolders checks that the folders exist, in the repository or in a module below test.
func checkGoFolders(root string, words []string) error {
	modules, err := filepath.Glob(filepath.Join(root, "test", "*"))
	if err != nil {
		return err
	}
	for _, w := range words {
		dir, _, _ := strings.Cut(w, "...")
		if !strings.HasPrefix(dir, "./") {
			continue
		}
		if !slices.ContainsFunc(append(modules, root), func(m string) bool { _, err := os.Stat(filepath.Join(m, dir)); return err == nil }) {
			return fmt.Errorf("there is no folder %s", dir)
		}
	}
	return nil
}
