// SPDX-FileCopyrightText: The Skyhook authors
// SPDX-License-Identifier: Apache-2.0

package act

import (
	"fmt"
	"strings"
	"testing"

	"github.com/skyhook-k8s/skyhook/internal/cli/session"
	"github.com/skyhook-k8s/skyhook/internal/node"
	"github.com/skyhook-k8s/skyhook/internal/output"
)

// TestRemainsOfManyNodes checks that the list of many nodes fits on a screen, and that -o wide lists all.
func TestRemainsOfManyNodes(t *testing.T) {
	r := &remains{edits: map[string]node.Edit{}}
	for i := range 25 {
		r.nodes = append(r.nodes, &node.Node{Name: fmt.Sprintf("n%02d", i)})
	}
	for format, want := range map[string]struct {
		lines int
		last  string
	}{
		output.Table: {session.MaxNodeRows + 3, "  and 5 more nodes; -o wide shows all\n"},
		output.JSON:  {session.MaxNodeRows + 3, "  and 5 more nodes; -o wide shows all\n"},
		output.Wide:  {27, "  n24   -         -\n"},
	} {
		got := r.formatText(&session.Factory{Printer: &output.Printer{Format: format}})
		if strings.Count(got, "\n") != want.lines || !strings.HasSuffix(got, want.last) {
			t.Errorf("-o %s says\n%s", format, got)
		}
	}
}
