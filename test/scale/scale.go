// SPDX-FileCopyrightText: The Skyhook authors
// SPDX-License-Identifier: Apache-2.0

// Command scale runs the operator against a real API server with thousands of simulated nodes, and prints one table: what
// an installation, an upgrade and other work cost, how fast the operator reacts, and what it costs when nothing changes.
//
// The nodes have the size of real ones; this program simulates their kubelets. The operator is the real program in a separate
// process, so that its CPU time and memory can be measured.
package main

import (
	"context"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"time"

	"github.com/skyhook-k8s/skyhook/test/controlplane"
)

// run is one measurement.
type run struct {
	nodes         int
	packages      int
	phases        []phase
	installed     bool          // the packages are complete on the nodes before the first phase
	budget        int           // nodes in flight; 0: no budget
	stageDuration time.Duration // how long a pod runs, or a container of a compact one
	layout        string        // of the pods
	defaults      string        // the operator's profile
	heartbeat     time.Duration // interval of one kubelet
	restDuration  time.Duration // how long to measure the operator at rest; checks for drift driftPeriods times as long
	driftInterval time.Duration // from one check of a node to the next
	operator      string        // path of the program; built when empty
	soak          time.Duration // how long to run rollouts while nodes come and go; 0: measure the phases
	period        time.Duration // of a soak: from one rollout to the next
	interval      time.Duration // of a soak: from one reading to the next, when nodes are replaced
	churn         int           // of a soak: nodes that are replaced with each reading
	profile       string        // directory for CPU and heap profiles of the phases; empty: none
	keep          bool          // leave everything running until interrupted
	try           bool          // show a rollout to a person instead of measuring; one node is broken
	verbose       bool
}

func main() {
	r := run{defaults: "Compatible"}
	flag.IntVar(&r.nodes, "nodes", 1000, "simulated nodes")
	flag.IntVar(&r.packages, "packages", 2, "packages on each node")
	names := flag.String("phases", joinPhases(), "what to measure")
	flag.BoolVar(&r.installed, "installed", false, "the packages are on the nodes already: install only takes them over, so that later phases begin soon")
	flag.IntVar(&r.budget, "budget", 0, "nodes in flight at the same time; 0 for all during the installation, a fifth of them under the policy, a twentieth for the NodeOp")
	flag.StringVar(&r.layout, "layout", "Compatible", "pod layout: Compatible or Compact")
	flag.DurationVar(&r.stageDuration, "stage", 2*time.Second, "how long the pod of a stage runs, ±50 %")
	flag.DurationVar(&r.heartbeat, "heartbeat", 5*time.Minute, "interval of heartbeats of one kubelet")
	flag.DurationVar(&r.restDuration, "rest", time.Minute, "how long to measure the operator at rest")
	flag.DurationVar(&r.driftInterval, "drift", 6*time.Hour, "from one check of a node for drift to the next; that is measured five times as long as the operator at rest")
	flag.StringVar(&r.operator, "operator", "", "the operator's program; built when empty")
	flag.DurationVar(&r.soak, "soak", 0, "run rollouts for this long while nodes come and go, and check that memory, goroutines, watches and lease renewals stay flat")
	flag.DurationVar(&r.period, "period", 10*time.Minute, "with -soak: from one rollout to the next")
	flag.DurationVar(&r.interval, "interval", time.Minute, "with -soak: from one reading to the next")
	flag.IntVar(&r.churn, "churn", 5, "with -soak: nodes that are replaced with each reading")
	flag.StringVar(&r.profile, "profile", "", "directory for CPU and heap profiles, one of each for every ten seconds of a phase; go tool pprof merges those it is given")
	flag.BoolVar(&r.keep, "keep", false, "keep everything running afterwards until interrupted, to inspect it with kubectl")
	flag.BoolVar(&r.try, "try", false, "measure nothing: show a rollout on fifty nodes in the browser, until interrupted")
	flag.BoolVar(&r.verbose, "v", false, "show the operator's log")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	var err error
	if r.try {
		r.prepareToTry()
	}
	if r.phases, err = parsePhases(*names); err == nil {
		err = r.measure(ctx)
	}
	if err != nil {
		fmt.Fprintf(os.Stderr, "scale: %v\n", err)
		os.Exit(1)
	}
}

// measure starts control plane, nodes and operator, and measures the operator, or shows what it does.
func (r *run) measure(ctx context.Context) (err error) {
	plane, err := controlplane.Start(ctx, controlplane.Options{
		CRDs:      []string{"chart/files/crds"},
		APIServer: map[string]string{"max-requests-inflight": "2000", "max-mutating-requests-inflight": "1000"},
	})
	if err != nil {
		return err
	}
	defer func() {
		if stopErr := plane.Stop(); err == nil {
			err = stopErr
		}
	}()
	f, err := newSimulation(plane.Config, r)
	if err != nil {
		return err
	}
	fmt.Fprintf(os.Stderr, "creating %d nodes\n", r.nodes)
	if err := f.createNodes(ctx); err != nil {
		return err
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	f.startKubelets(ctx)
	o, err := startOperator(ctx, plane, r)
	if err != nil {
		return err
	}
	defer o.stop()
	if r.try {
		return f.show(ctx, o)
	}
	if r.soak > 0 {
		return (&soak{simulation: f, operator: o}).run(ctx)
	}
	if err := r.measurePhases(ctx, f, o); err != nil {
		return err
	}
	if r.keep {
		fmt.Fprintf(os.Stderr, "keeping the cluster: export KUBECONFIG=%s\n", o.kubeconfigPath())
		<-ctx.Done()
	}
	return nil
}

func sleep(ctx context.Context, d time.Duration) error {
	select {
	case <-ctx.Done():
		return context.Cause(ctx)
	case <-time.After(d):
		return nil
	}
}
