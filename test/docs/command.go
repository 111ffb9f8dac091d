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

// A checker says what is wrong with a command line; its words follow the program's name.
type checker func(root string, words []string) error

// programs are those whose command lines can be checked.
var programs = map[string]checker{
	"kubectl": kubectl, "helm": helm, "kubelet": kubelet, "make": target, "go": golang, "sha256sum": fine, "cd": fine, "export": fine, "cat": fine,
	"echo": fine, "diff": fine, "sudo": fine, "apt-get": fine, "curl": fine, "tar": fine, "git": fine, "base64": fine, "jq": fine, "grep": fine,
	"skyhook-agent": fine, "ctr": fine, "systemctl": fine, "journalctl": fine, "ls": fine, "test": fine, "sort": fine, "install": fine, "sleep": fine,
	"gpg": fine, "cosign": fine, "set": fine, "mkdir": fine, "cp": fine, "cmp": fine, "rm": fine, "awk": fine, "xargs": fine, "tail": fine, "flux": fine, "argocd": fine,
}

// fine is for programs of others whose flags are theirs; that the line is a shell's was seen.
func fine(string, []string) error { return nil }

// lines checks every command of a shell script, wherever in it.
func lines(root, text string) []error {
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
			words = append(words, word(printer, a))
		}
		if err := command(root, words); err != nil {
			wrong = append(wrong, fmt.Errorf("%s: %w", strings.Join(words, " "), err))
		}
		return true
	})
	return wrong
}

// word is what the shell would make of a word, with variables left as they are.
func word(_ *syntax.Printer, w *syntax.Word) string {
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

func command(root string, words []string) error {
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
		return fmt.Errorf("this test does not know the program; mark the block with not-run, or tell the test")
	}
	return check(root, words[1:])
}

// kubectl finds the command and parses its flags, those of the plugin included.
func kubectl(_ string, words []string) error {
	if len(words) > 0 && words[0] == "skyhook" {
		return parse(cli.Command(cli.Line{Stdin: &bytes.Buffer{}, Stdout: io.Discard, Stderr: io.Discard, Version: "v0"}), words[1:])
	}
	streams, _, _, _ := genericiooptions.NewTestIOStreams()
	return parse(cmd.NewDefaultKubectlCommandWithArgs(cmd.KubectlOptions{IOStreams: streams}), words)
}

// kubelet asks the real one, which belongs to the API server of these tests, for the flags that it has.
func kubelet(_ string, words []string) error {
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

func helm(_ string, words []string) error {
	root, err := helmcmd.NewRootCmd(io.Discard, words, func(bool) {})
	if err != nil {
		return err
	}
	return parse(root, words)
}

// parse holds a command line against a tree of commands: each has to exist, with these flags.
func parse(root *cobra.Command, words []string) error {
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

var goals = regexp.MustCompile(`(?m)^([a-z0-9-]+):`)

// target proves that the Makefile has what make is asked for.
func target(root string, words []string) error {
	text, err := os.ReadFile(filepath.Join(root, "Makefile"))
	if err != nil {
		return err
	}
	var all []string
	for _, m := range goals.FindAllStringSubmatch(string(text), -1) {
		all = append(all, m[1])
	}
	for _, w := range words {
		if !strings.Contains(w, "=") && !strings.HasPrefix(w, "-") && !slices.Contains(all, w) {
			return fmt.Errorf("the Makefile has no target %s", w)
		}
	}
	return nil
}

// golang proves that the folders that go is told about are there, in the repository or in a module below test.
func golang(root string, words []string) error {
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
