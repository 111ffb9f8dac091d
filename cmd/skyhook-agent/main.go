// SPDX-FileCopyrightText: The Skyhook authors
// SPDX-License-Identifier: Apache-2.0

// Command skyhook-agent runs the steps of a package on this host.
package main

import (
	"os"

	"github.com/skyhook-k8s/skyhook/internal/agent/argv"
)

var version = "dev"

func main() {
	os.Exit(argv.Run(argv.Line{
		Args: os.Args[1:], Environ: os.Environ(), Stdout: os.Stdout, Stderr: os.Stderr, Version: version,
	}))
}
