// SPDX-FileCopyrightText: The Skyhook authors
// SPDX-License-Identifier: Apache-2.0

package testcluster

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
)

// Logs prints the last lines of what the cluster's programs and nodes logged; lines 0 means all. Sources are names of
// programs of the control plane, or of nodes; none means all.
func (c *Cluster) Logs(ctx context.Context, to io.Writer, lines int, sources ...string) error {
	if err := c.errNotOurs("printing logs"); err != nil {
		return err
	}
	status, err := c.paths.fetchStatus(ctx)
	if err != nil {
		return err
	}
	files, err := filepath.Glob(filepath.Join(c.paths.logs(), "*.log"))
	if err != nil {
		return err
	}
	known := []string{}
	for _, file := range files {
		name := strings.TrimSuffix(filepath.Base(file), ".log")
		known = append(known, name)
		if len(sources) == 0 || slices.Contains(sources, name) {
			if err := printTail(to, name, file, lines); err != nil {
				return err
			}
		}
	}
	for _, n := range status.Nodes {
		known = append(known, n.Name)
		if len(sources) == 0 || slices.Contains(sources, n.Name) {
			if err := c.nodeLogs(ctx, to, n, lines); err != nil {
				return err
			}
		}
	}
	for _, source := range sources {
		if !slices.Contains(known, source) {
			return fmt.Errorf("there are no logs of %q; there are of %s", source, strings.Join(known, ", "))
		}
	}
	return nil
}

// nodeLogs prints a node's console and, if it is on, its journal.
func (c *Cluster) nodeLogs(ctx context.Context, to io.Writer, n NodeStatus, lines int) error {
	if err := printTail(to, "console of "+n.Name, filepath.Join(c.paths.node(n.Name), "console.log"), lines); err != nil {
		return err
	}
	if n.Leader == 0 {
		return nil
	}
	limit := "all"
	if lines > 0 {
		limit = strconv.Itoa(lines)
	}
	journal, err := c.Exec(ctx, n.Name, "journalctl", "--no-pager", "--lines="+limit)
	if err != nil {
		journal = err.Error() + "\n" // the node is shutting down; print the other logs
	}
	return printSection(to, "journal of "+n.Name, []byte(journal))
}

func printTail(to io.Writer, title, file string, lines int) error {
	text, err := os.ReadFile(file)
	if err != nil {
		return fmt.Errorf("reading the log %s: %w", title, err)
	}
	if all := bytes.SplitAfter(text, []byte("\n")); lines > 0 && len(all) > lines {
		text = bytes.Join(all[len(all)-lines-1:], nil)
	}
	return printSection(to, title, text)
}

func printSection(to io.Writer, title string, text []byte) error {
	_, err := fmt.Fprintf(to, "=== %s\n%s\n", title, bytes.TrimRight(text, "\n"))
	return err
}
