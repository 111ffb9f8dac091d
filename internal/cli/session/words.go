// SPDX-FileCopyrightText: The Skyhook authors
// SPDX-License-Identifier: Apache-2.0

package session

import (
	"strings"
)

// YesOrDash is a cell of a table.
func YesOrDash(yes bool) string {
	if yes {
		return "yes"
	}
	return "-"
}

// Indent puts two blanks before each line.
func Indent(text string) string {
	return "  " + strings.ReplaceAll(strings.TrimSuffix(text, "\n"), "\n", "\n  ") + "\n"
}
