// SPDX-FileCopyrightText: The Skyhook authors
// SPDX-License-Identifier: Apache-2.0

package output

import (
	"fmt"
	"strings"

	"github.com/spf13/cobra"
)

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
