// SPDX-FileCopyrightText: The Skyhook authors
// SPDX-License-Identifier: Apache-2.0

// Mklicenses writes THIRD_PARTY.md: the licences of the Go modules that the released programs contain. `make generate` runs it.
package main

import (
	"context"
	"fmt"
	"os"

	"github.com/skyhook-k8s/skyhook/hack/licenses"
)

// released are the programs of a release with their platforms. The platform makes a difference for the plugin only by its system.
var released = []struct{ programs, platforms []string }{
	{[]string{"operator", "shell", "skyhook-agent"}, []string{"linux/amd64", "linux/arm64"}},
	{[]string{"kubectl-skyhook"}, []string{"darwin/amd64", "darwin/arm64", "linux/amd64", "linux/arm64", "windows/amd64"}},
}

func main() {
	if err := run(context.Background(), "THIRD_PARTY.md"); err != nil {
		fmt.Fprintf(os.Stderr, "mklicenses: %v\n", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, file string) error {
	var all []licenses.Module
	for _, r := range released {
		modules, err := licenses.Collect(ctx, ".", r.programs, r.platforms)
		if err != nil {
			return err
		}
		all = licenses.Merge(all, modules)
	}
	if err := os.WriteFile(file, licenses.Table(all), 0o644); err != nil { //nolint:gosec // G306: a page of the repository
		return fmt.Errorf("writing the licences: %w", err)
	}
	return nil
}
