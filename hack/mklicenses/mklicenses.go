// SPDX-FileCopyrightText: The Skyhook authors
// SPDX-License-Identifier: Apache-2.0

// Mklicenses writes THIRD_PARTY.md: the licences of the Go modules that the released programs contain. `make generate` runs it.
// With --texts it prints the texts of those in the archives of the plugin.
package main

import (
	"context"
	"fmt"
	"os"
	"slices"

	"github.com/skyhook-k8s/skyhook/hack/licenses"
)

// linux and everywhere are the platforms of released programs. The platform makes a difference for the plugin only by its system.
var (
	linux      = []string{"linux/amd64", "linux/arm64"}
	everywhere = append([]string{"darwin/amd64", "darwin/arm64", "windows/amd64"}, linux...)
)

func main() {
	if err := run(context.Background(), slices.Contains(os.Args, "--texts")); err != nil {
		fmt.Fprintf(os.Stderr, "mklicenses: %v\n", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, asTexts bool) error {
	released := map[string][]string{"kubectl-skyhook": everywhere, "skyhook-agent": linux}
	if !asTexts {
		released["operator"], released["shell"] = linux, linux
	}
	var builds []licenses.Build
	for program, platforms := range released {
		for _, platform := range platforms {
			builds = append(builds, licenses.Build{Program: program, Platform: platform})
		}
	}
	modules, err := licenses.Collect(ctx, ".", builds...)
	if err != nil {
		return err
	}
	if asTexts {
		_, err = os.Stdout.Write(licenses.Texts(modules))
	} else {
		err = os.WriteFile("THIRD_PARTY.md", licenses.Table(modules), 0o644) //nolint:gosec // G306: a page of the repository
	}
	if err != nil {
		return fmt.Errorf("writing the licences: %w", err)
	}
	return nil
}
