// SPDX-FileCopyrightText: The Skyhook authors
// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"context"
	"fmt"
	"os"
	"path/filepath"

	"github.com/spf13/cobra"

	"github.com/skyhook-k8s/skyhook/internal/output"
)

func (a *factory) dumpCommand() *cobra.Command {
	var out string
	cmd := &cobra.Command{
		Use:   "dump",
		Short: "Write everything that a decision depends on to a file",
		Long: "Write everything that a decision depends on to a file: Skyhooks, policies, NodeOps, what nodes record, our pods and the\n" +
			"pods in the way. status, why, plan and simulate read it with --from, on any machine and without a cluster.\n\n" +
			"The values of environment variables are replaced by words, the same value by the same word; Secrets are not read.\n" +
			"Files of configMap are in it: look through it before you hand it on.",
		Example: "  kubectl skyhook dump -o stuck.yaml\n" +
			"  kubectl skyhook why worker-1 --from stuck.yaml",
		Args: output.Args(),
		RunE: func(cmd *cobra.Command, _ []string) error { return a.dump(cmd.Context(), out) },
	}
	cmd.Flags().StringVarP(&out, "output", "o", "", "write to this `FILE` instead of standard output")
	return cmd
}

func (a *factory) dump(ctx context.Context, out string) error {
	s, err := a.loadView(ctx, viewOptions{})
	if err != nil {
		return err
	}
	if err := s.loadNextPods(ctx, a); err != nil { // so that plan has as much to say as here
		return err
	}
	p, err := s.dump.Redacted()
	if err != nil {
		return fmt.Errorf("writing the dump: %w", err)
	}
	if out == "" {
		return p.Write(a.Out)
	}
	f, err := os.OpenFile(filepath.Clean(out), os.O_CREATE|os.O_WRONLY|os.O_TRUNC, 0o600)
	if err != nil {
		return fmt.Errorf("writing the dump: %w", err)
	}
	if err := p.Write(f); err != nil {
		_ = f.Close() // the first error says more
		return fmt.Errorf("writing the dump: %w", err)
	}
	if err := f.Close(); err != nil {
		return fmt.Errorf("writing the dump: %w", err)
	}
	fmt.Fprintf(a.ErrOut, "%s written: %s, %s\n", out, output.Count(len(s.objects.Nodes), "node"), output.Count(len(s.snapshot.Rollouts), "rollout"))
	return nil
}
