// SPDX-FileCopyrightText: The Skyhook authors
// SPDX-License-Identifier: Apache-2.0

// Command operator applies the packages of Skyhooks to the nodes of a cluster. It is configured by flags and by
// environment variables; see operator --help. As operator cleanup it prepares its own removal.
package main

import (
	"errors"
	"flag"
	"fmt"
	"os"

	"github.com/go-logr/logr"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	"k8s.io/klog/v2"
	ctrl "sigs.k8s.io/controller-runtime"

	"github.com/skyhook-k8s/skyhook/internal/controller"
	"github.com/skyhook-k8s/skyhook/internal/options"
)

// version is set when a release is built.
var version = ""

func main() {
	if len(os.Args) > 1 && os.Args[1] == cleanupCommand {
		if err := cleanup(os.Args[2:], os.LookupEnv, os.Stdout); err != nil {
			fmt.Fprintf(os.Stderr, "operator: %v\n", err)
			os.Exit(1)
		}
		return
	}
	o, err := options.Parse(os.Args[1:], os.LookupEnv)
	switch {
	case errors.Is(err, flag.ErrHelp):
		_ = options.Usage(os.Stderr) // nowhere else to report an error
		return
	case errors.Is(err, options.ErrVersion):
		fmt.Println(version)
		return
	case err != nil:
		fmt.Fprintf(os.Stderr, "operator: %v\n", err)
		os.Exit(2)
	}
	log, err := newLogger(o, os.Stdout)
	if err != nil {
		fmt.Fprintf(os.Stderr, "operator: %v\n", err)
		os.Exit(2)
	}
	if err := run(o, log); err != nil {
		log.Error(err, "operator failed")
		os.Exit(1)
	}
}

func run(o *options.Options, log logr.Logger) error {
	ctrl.SetLogger(log)
	klog.SetLogger(log.V(1))
	config, err := loadConfig(o.Kubeconfig)
	if err != nil {
		return fmt.Errorf("loading the kubeconfig: %w", err)
	}
	for _, s := range o.Ignored {
		log.Info("option has no effect", "option", s)
	}
	log.Info("starting operator", "version", version, "namespace", o.Namespace, "leaderElection", o.LeaderElection)
	return controller.Run(ctrl.SetupSignalHandler(), config, controllerOptions(o, log))
}

// controllerOptions are the options in the form that the controller takes.
func controllerOptions(o *options.Options, log logr.Logger) controller.Options {
	return controller.Options{
		Skyhook: o.Skyhook(version), NodeOps: o.NodeOps(), Node: o.Node,
		LeaderElection: o.LeaderElection, WaitForOthers: o.WaitForOthers, Parallel: o.Parallel, GuardRemoval: o.GuardRemoval, DefaultPolicySpec: o.DefaultPolicySpec,
		MetricsAddress: o.MetricsAddress, MetricsSecure: o.MetricsSecure, MetricsCertDir: o.MetricsCertDir, ProbeAddress: o.ProbeAddress, PprofAddress: o.PprofAddress,
		PrometheusTokenFile: o.PrometheusTokenFile,
		Log:                 log,
	}
}

// loadConfig loads the given kubeconfig, or else finds the API server as kubectl and pods do.
func loadConfig(kubeconfig string) (*rest.Config, error) {
	if kubeconfig != "" {
		return clientcmd.BuildConfigFromFlags("", kubeconfig)
	}
	return ctrl.GetConfig()
}
