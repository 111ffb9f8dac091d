// SPDX-FileCopyrightText: The Skyhook authors
// SPDX-License-Identifier: Apache-2.0

// Command scale runs the operator against a real API server with thousands of simulated nodes, and prints one table:
// what a rollout costs, how fast the operator reacts, and what it costs when nothing changes.
//
// The nodes have the size of real ones; their kubelets are played by this program. The operator is the real program in
// a process of its own, so its CPU time and memory are its own.
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
	nodes     int
	skyhooks  int
	packages  int
	nodeOps   int
	budget    int           // nodes in flight; 0 for no budget
	stage     time.Duration // how long a pod works
	heartbeat time.Duration // between two reports of one kubelet
	rest      time.Duration // how long to watch the operator do nothing
	operator  string        // program; built when empty
	profile   string        // where a CPU profile of the rollout goes; empty for none
	keep      bool          // leave everything running until interrupted
	verbose   bool
}

func main() {
	var r run
	flag.IntVar(&r.nodes, "nodes", 1000, "simulated nodes")
	flag.IntVar(&r.skyhooks, "skyhooks", 1, "Skyhooks, each for all nodes")
	flag.IntVar(&r.packages, "packages", 2, "packages in each Skyhook, without interrupts")
	flag.IntVar(&r.nodeOps, "nodeops", 0, "NodeOps, each for all nodes: cordon, a command, uncordon; see also -skyhooks 0")
	flag.IntVar(&r.budget, "budget", 0, "nodes in flight at the same time; 0 for no budget")
	flag.DurationVar(&r.stage, "stage", 2*time.Second, "how long the pod of a stage works, give or take a half")
	flag.DurationVar(&r.heartbeat, "heartbeat", 5*time.Minute, "time between two reports of one kubelet")
	flag.DurationVar(&r.rest, "rest", time.Minute, "how long to watch the operator at rest; 0 to leave that out")
	flag.StringVar(&r.operator, "operator", "", "the operator's program; built when empty")
	flag.StringVar(&r.profile, "profile", "", "file for a CPU profile of the rollout")
	flag.BoolVar(&r.keep, "keep", false, "keep everything running afterwards, until interrupted, for a look at it with kubectl")
	flag.BoolVar(&r.verbose, "v", false, "show the operator's log")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	if err := r.measure(ctx); err != nil {
		fmt.Fprintf(os.Stderr, "scale: %v\n", err)
		os.Exit(1)
	}
}

// measure sets everything up, runs the rollout, then rests.
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
	f, err := newFleet(plane.Config, r)
	if err != nil {
		return err
	}
	fmt.Fprintf(os.Stderr, "making %d nodes\n", r.nodes)
	if err := f.make(ctx); err != nil {
		return err
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	f.live(ctx)
	o, err := startOperator(ctx, plane, r)
	if err != nil {
		return err
	}
	defer o.stop()
	return r.compare(ctx, f, o)
}

// compare runs the rollout and the rest, and prints what they cost.
func (r *run) compare(ctx context.Context, f *fleet, o *operator) error {
	before, err := o.sample()
	if err != nil {
		return err
	}
	fmt.Fprintln(os.Stderr, "rolling out")
	began := time.Now()
	if err := f.declare(ctx); err != nil {
		return err
	}
	if r.profile != "" {
		go o.profileTo(r.profile)
	}
	if err := f.wait(ctx, o); err != nil {
		return err
	}
	took := time.Since(began)
	after, err := o.sample()
	if err != nil {
		return err
	}
	t := table{}
	t.rollout(r, f, took, before, after)
	if r.rest > 0 {
		fmt.Fprintln(os.Stderr, "resting")
		if err := sleep(ctx, 5*time.Second); err != nil {
			return err
		}
		if before, err = o.sample(); err != nil {
			return err
		}
		if err := sleep(ctx, r.rest); err != nil {
			return err
		}
		if after, err = o.sample(); err != nil {
			return err
		}
		t.rest(r, before, after)
	}
	t.print(os.Stdout)
	if r.keep {
		fmt.Fprintf(os.Stderr, "keeping it: export KUBECONFIG=%s\n", o.kubeconfig())
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
