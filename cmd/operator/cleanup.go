// SPDX-FileCopyrightText: The Skyhook authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"time"

	ctrl "sigs.k8s.io/controller-runtime"

	"github.com/skyhook-k8s/skyhook/internal/controller"
)

// cleanupCommand as the first argument has this program delete all Skyhooks instead of running the operator.
const cleanupCommand = "cleanup"

// cleanup deletes every Skyhook and waits until the running operator has removed its finalizers.
func cleanup(args []string, env func(string) (string, bool), out io.Writer) error {
	flags := flag.NewFlagSet("operator "+cleanupCommand, flag.ContinueOnError)
	flags.SetOutput(out)
	namespace := flags.String("namespace", "skyhook", "namespace of the operator, also from NAMESPACE")
	if v, ok := env("NAMESPACE"); ok && v != "" {
		*namespace = v
	}
	timeout := flags.Duration("timeout", 2*time.Minute, "how long to wait for work in progress")
	kubeconfig := flags.String("kubeconfig", "", "kubeconfig file, outside a cluster")
	flags.Usage = func() {
		fmt.Fprint(out, "operator cleanup deletes every Skyhook and every NodeOp that has not finished, waits until the operator has released the nodes, and\n"+
			"deletes the DeploymentPolicies. It is meant to run before the operator is removed.\n\n")
		flags.PrintDefaults()
	}
	if err := flags.Parse(args); err != nil {
		if errors.Is(err, flag.ErrHelp) {
			return nil
		}
		return err
	}
	if flags.NArg() > 0 {
		return fmt.Errorf("%q is not a flag; see cleanup --help", flags.Arg(0))
	}
	if *timeout <= 0 {
		return fmt.Errorf("--timeout %s: it must be longer than 0", *timeout)
	}
	config, err := loadConfig(*kubeconfig)
	if err != nil {
		return fmt.Errorf("loading the kubeconfig: %w", err)
	}
	ctx, cancel := context.WithTimeout(ctrl.SetupSignalHandler(), *timeout)
	defer cancel()
	return controller.Cleanup(ctx, config, *namespace, func(s string) { fmt.Fprintln(out, s) })
}
