// SPDX-FileCopyrightText: The Skyhook authors
// SPDX-License-Identifier: Apache-2.0

// Command operator takes the packages of Skyhooks to the nodes of a cluster. It is configured by flags and by
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
)

// version is set when a release is built.
var version = ""

func main() {
	if len(os.Args) > 1 && os.Args[1] == cleanupWord {
		if err := cleanup(os.Args[2:], os.LookupEnv, os.Stdout); err != nil {
			fmt.Fprintf(os.Stderr, "operator: %v\n", err)
			os.Exit(1)
		}
		return
	}
	o, err := parse(os.Args[1:], os.LookupEnv, os.Stderr)
	switch {
	case errors.Is(err, flag.ErrHelp):
		return
	case errors.Is(err, errVersion):
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
		log.Error(err, "the operator stops")
		os.Exit(1)
	}
}

func run(o *options, log logr.Logger) error {
	if os.Getenv("GOGC") == "" {
		adapt()
	}
	ctrl.SetLogger(log)
	klog.SetLogger(log.V(1))
	config, err := reach(o.kubeconfig)
	if err != nil {
		return fmt.Errorf("finding the API server: %w", err)
	}
	settings, err := o.settings(log)
	if err != nil {
		return err
	}
	for _, s := range o.ignored {
		log.Info("this setting has no effect any more", "setting", s)
	}
	log.Info("the operator starts", "version", version, "namespace", o.namespace, "leaderElection", o.leaderElection)
	return controller.Run(ctrl.SetupSignalHandler(), config, settings)
}

// reach says how to reach the API server: by a given file, or else as kubectl and pods find it.
func reach(kubeconfig string) (*rest.Config, error) {
	if kubeconfig != "" {
		return clientcmd.BuildConfigFromFlags("", kubeconfig)
	}
	return ctrl.GetConfig()
}
