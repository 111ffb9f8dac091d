// SPDX-FileCopyrightText: The Skyhook authors
// SPDX-License-Identifier: Apache-2.0

package support

import (
	"context"
	"fmt"
	"time"

	"github.com/spf13/cobra"

	"github.com/skyhook-k8s/skyhook/internal/cli/session"
	"github.com/skyhook-k8s/skyhook/internal/output"
)

// NewVersionCommand returns the command `version`.
func NewVersionCommand(f *session.Factory) *cobra.Command {
	timeout := 10 * time.Second
	clientOnly := false
	cmd := &cobra.Command{
		Use:   "version",
		Short: "Print the versions of the plugin and the operator",
		Example: "  kubectl skyhook version\n" +
			"  kubectl skyhook version --client-only",
		Args: output.Args(),
		RunE: func(cmd *cobra.Command, _ []string) error {
			value := map[string]string{"plugin": f.Version}
			text := fmt.Sprintf("Skyhook plugin:\t%s\n", f.Version)
			if !clientOnly {
				ctx, cancel := context.WithTimeout(cmd.Context(), timeout)
				defer cancel()
				c, err := f.NewClient()
				operator := ""
				if err == nil {
					operator, err = session.FindOperatorVersion(ctx, f, c)
				}
				value["operator"] = orUnknown(operator, err)
				text += fmt.Sprintf("Skyhook operator:\t%s\n", value["operator"])
			}
			return f.Print(output.Answer{Value: value, Names: []string{f.Version}, Text: func(bool) string { return text }})
		},
	}
	cmd.Flags().DurationVar(&timeout, "timeout", timeout, "time limit for finding the operator")
	cmd.Flags().BoolVar(&clientOnly, "client-only", false, "print only the version of the plugin")
	return cmd
}

// orUnknown returns a version, or why it is not known.
func orUnknown(version string, err error) string {
	if err != nil {
		return fmt.Sprintf("unknown (%v)", err)
	}
	return version
}
