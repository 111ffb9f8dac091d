// SPDX-FileCopyrightText: The Skyhook authors
// SPDX-License-Identifier: Apache-2.0

// Command kubectl-skyhook is the plugin that kubectl runs as "kubectl skyhook".
package main

import (
	"context"
	"os"
	"os/signal"
	"syscall"

	"github.com/skyhook-k8s/skyhook/internal/cli"
)

var version = "dev"

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGINT, syscall.SIGTERM)
	code := cli.Run(ctx, cli.Line{
		Args: os.Args[1:], Stdin: os.Stdin, Stdout: os.Stdout, Stderr: os.Stderr, Version: version,
	})
	stop()
	os.Exit(code)
}
