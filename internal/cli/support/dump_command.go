// SPDX-FileCopyrightText: The Skyhook authors
// SPDX-License-Identifier: Apache-2.0

package support

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"

	"github.com/spf13/cobra"

	"github.com/skyhook-k8s/skyhook/internal/cli/session"
	"github.com/skyhook-k8s/skyhook/internal/output"
)

// NewDumpCommand returns the command `dump`.
func NewDumpCommand(f *session.Factory) *cobra.Command {
	var file string
	cmd := &cobra.Command{
		Use:   "dump",
		Short: "Write everything that decisions depend on to a file",
		Long: "Write everything that decisions depend on to a file: Skyhooks, policies, NodeOps, the state on nodes, our pods and the\n" +
			"pods that drains evict. status, why, plan and simulate read it with --from, on any machine and without a cluster.\n\n" +
			"Values of environment variables are replaced, equal values by equal words, and users and passwords of URLs; Secrets are not read.\n" +
			"The dump contains the files of configMap as they are: check it before you share it.",
		Example: "  kubectl skyhook dump --to stuck.yaml\n" +
			"  kubectl skyhook why worker-1 --from stuck.yaml",
		Args: output.Args(),
		RunE: func(cmd *cobra.Command, _ []string) error { return runDump(cmd.Context(), f, file) },
	}
	cmd.Flags().StringVar(&file, "to", "", "write to this `FILE` instead of standard output")
	f.AddOutputFlag(cmd.Flags(), "to")
	return cmd
}

func runDump(ctx context.Context, f *session.Factory, file string) error {
	if format, err := f.CheckFormat(); err != nil || format != output.Table && format != output.YAML {
		return cmp.Or(err, errors.New("a dump is YAML, which -o does not change"))
	}
	v, err := session.LoadView(ctx, f, session.ViewOptions{})
	if err != nil {
		return err
	}
	if err := session.LoadNextPods(ctx, f, v); err != nil { // so that plan prints the same with --from
		return err
	}
	redacted, err := v.Dump.Redacted()
	if err != nil {
		return fmt.Errorf("writing the dump: %w", err)
	}
	if file == "" {
		return redacted.Write(f.Out)
	}
	if err := writePrivateFile(file, redacted.Write); err != nil {
		return fmt.Errorf("writing the dump: %w", err)
	}
	fmt.Fprintf(f.ErrOut, "%s written: %s, %s\n", file, output.Count(len(v.Objects.Nodes), "node"), output.Count(len(v.Snapshot.Rollouts), "rollout"))
	return nil
}

// writePrivateFile writes a file that only its owner can read.
func writePrivateFile(file string, write func(io.Writer) error) error {
	out, err := os.OpenFile(filepath.Clean(file), os.O_CREATE|os.O_WRONLY|os.O_TRUNC, 0o600)
	if err != nil {
		return err
	}
	if err := write(out); err != nil {
		_ = out.Close() // the first error matters
		return err
	}
	return out.Close()
}
