// SPDX-FileCopyrightText: The Skyhook authors
// SPDX-License-Identifier: Apache-2.0

// Command scale runs the operator against a real API server with thousands of simulated nodes, and prints one table:
// the cost of a rollout, the reaction time of the operator, and the cost when nothing changes.
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
	skyhooks      int
	packages      int
	nodeOps       int
	budget        int           // nodes in flight; 0: no budget
	stageDuration time.Duration // how long a pod runs
	heartbeat     time.Duration // interval of one kubelet
	restDuration  time.Duration // how long to measure the operator at rest
	operator      string        // path of the program; built when empty
	soak          time.Duration // how long to run rollouts while nodes come and go; 0: measure one rollout
	period        time.Duration // of a soak: from one rollout to the next
	interval      time.Duration // of a soak: from one reading to the next, when nodes are replaced
	churn         int           // of a soak: nodes that are replaced with each reading
	profile       string        // file for a CPU profile of the rollout; empty: none
	keep          bool          // leave everything running until interrupted
	verbose       bool
}

func main() {
	var r run
	flag.IntVar(&r.nodes, "nodes", 1000, "simulated nodes")
	flag.IntVar(&r.skyhooks, "skyhooks", 1, "Skyhooks, each for all nodes")
	flag.IntVar(&r.packages, "packages", 2, "packages in each Skyhook, without interrupts")
	flag.IntVar(&r.nodeOps, "nodeops", 0, "NodeOps, each for all nodes: cordon, a command, uncordon; see also -skyhooks 0")
	flag.IntVar(&r.budget, "budget", 0, "nodes in flight at the same time; 0 for no budget")
	flag.DurationVar(&r.stageDuration, "stage", 2*time.Second, "how long the pod of a stage runs, ±50 %")
	flag.DurationVar(&r.heartbeat, "heartbeat", 5*time.Minute, "interval of heartbeats of one kubelet")
	flag.DurationVar(&r.restDuration, "rest", time.Minute, "how long to measure the operator at rest; 0 to skip it")
	flag.StringVar(&r.operator, "operator", "", "the operator's program; built when empty")
	flag.DurationVar(&r.soak, "soak", 0, "run rollouts for this long while nodes come and go, and check that memory, goroutines, watches and lease renewals stay flat")
	flag.DurationVar(&r.period, "period", 10*time.Minute, "with -soak: from one rollout to the next")
	flag.DurationVar(&r.interval, "interval", time.Minute, "with -soak: from one reading to the next")
	flag.IntVar(&r.churn, "churn", 5, "with -soak: nodes that are replaced with each reading")
	flag.StringVar(&r.profile, "profile", "", "file for a CPU profile of the rollout")
	flag.BoolVar(&r.keep, "keep", false, "keep everything running afterwards until interrupted, to inspect it with kubectl")
	flag.BoolVar(&r.verbose, "v", false, "show the operator's log")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	if err := r.measure(ctx); err != nil {
		fmt.Fprintf(os.Stderr, "scale: %v\n", err)
		os.Exit(1)
	}
}

// measure starts control plane, nodes and operator, and measures the operator.
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
	if r.soak > 0 {
		return (&soak{simulation: f, operator: o}).run(ctx)
	}
	return r.measureRollout(ctx, f, o)
}

// measureRollout measures the rollout, and then the operator at rest, and prints the table.
func (r *run) measureRollout(ctx context.Context, f *simulation, o *operator) error {
	before, err := o.takeSample()
	if err != nil {
		return err
	}
	fmt.Fprintln(os.Stderr, "rolling out")
	began := time.Now()
	if err := f.createSkyhooks(ctx); err != nil {
		return err
	}
	if r.profile != "" {
		go o.writeProfile(r.profile)
	}
	if err := f.waitComplete(ctx, o); err != nil {
		return err
	}
	took := time.Since(began)
	after, err := o.takeSample()
	if err != nil {
		return err
	}
	t := table{}
	t.addRollout(r, f, took, before, after)
	if r.restDuration > 0 {
		fmt.Fprintln(os.Stderr, "resting")
		if err := sleep(ctx, 5*time.Second); err != nil {
			return err
		}
		if before, err = o.takeSample(); err != nil {
			return err
		}
		if err := sleep(ctx, r.restDuration); err != nil {
			return err
		}
		if after, err = o.takeSample(); err != nil {
			return err
		}
		t.addRest(r, before, after)
	}
	t.print(os.Stdout)
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
