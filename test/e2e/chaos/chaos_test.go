// SPDX-FileCopyrightText: The Skyhook authors
// SPDX-License-Identifier: Apache-2.0

// Package chaos lets work run on real nodes while a seeded schedule of faults breaks the operator, the control plane and the nodes. An
// observer checks the promises of the product meanwhile. At the end hosts and nodes must be as an undisturbed run leaves them.
package chaos_test

import (
	"context"
	"encoding/json"
	"flag"
	"fmt"
	"math/rand/v2"
	"os"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/go-logr/logr"
	"k8s.io/client-go/dynamic"
	"k8s.io/klog/v2"

	"github.com/skyhook-k8s/skyhook/test/cluster/testcluster"
	"github.com/skyhook-k8s/skyhook/test/e2e/chaos/observer"
	"github.com/skyhook-k8s/skyhook/test/e2e/chaos/schedule"
	"github.com/skyhook-k8s/skyhook/test/e2e/suite"
)

var (
	seed   = flag.Uint64("seed", 0, "of the schedule; 0 draws one")
	length = flag.Duration("for", 5*time.Minute, "how long faults happen")
	saved  = flag.String("undisturbed", "", "file with the ends of undisturbed rounds of this tree, one for each profile, so that another run need not begin with one; what it has not is added")
)

var cluster *suite.Cluster

func TestMain(m *testing.M) { suite.Main(m, &cluster, suite.WithOperator) }

// profiles are those of the operator: of a run with an even seed the first, else the second.
var profiles = []string{recommended, "Compatible"}

const recommended = "Recommended"

// run is one run of chaos.
type run struct {
	*testing.T
	profile  string // of the operator
	machines *testcluster.Cluster
	objects  *dynamic.DynamicClient
	nodes    []string
	begin    time.Time
	observer *observer.Observer // of the present round

	isUndisturbed bool // the present round

	nodeFault sync.Mutex // held while a node is broken, and while hosts are reset
}

// say prints a line of the time line, with the time since the beginning.
func (r *run) say(format string, args ...any) {
	fmt.Fprintf(os.Stdout, "%7s  %s\n", time.Since(r.begin).Round(time.Second), fmt.Sprintf(format, args...))
}

// TestChaos does the work once undisturbed, and then again and again while faults happen.
func TestChaos(t *testing.T) {
	klog.SetLogger(logr.Discard()) // the observer's watches are cut as well
	r := &run{T: t, machines: cluster.LocalCluster(t, "breaking nodes and the control plane"), nodes: cluster.InterruptibleNodes(t, 4), begin: time.Now()}
	if *seed == 0 {
		*seed = rand.Uint64N(1_000_000) + 1
	}
	var err error
	if r.objects, err = dynamic.NewForConfig(r.machines.Config); err != nil {
		t.Fatal(err)
	}
	r.profile = profiles[*seed%2]
	plan := schedule.New(*seed, *length, r.nodes)
	fmt.Fprintf(os.Stdout, "\nseed %d: make chaos SEED=%d FOR=%s runs this again, with the profile %s. The faults, by the time since the first:\n%s\n",
		*seed, *seed, *length, r.profile, schedule.TimeLine(plan))
	cluster.ScaleOperator(t, 2, "profile="+r.profile, "controllerManager.manager.env.podLayout=Compact")
	r.prepareHosts()

	undisturbed := r.workUndisturbed()
	ctx, stop := context.WithCancel(t.Context())
	injector := newInjector(r)
	over := injector.start(ctx, plan)
	defer func() {
		stop()
		<-over
	}()
	for round, isOver := 1, false; !isOver; round++ {
		r.say("round %d begins", round)
		disturbed := r.work(fmt.Sprintf("round %d", round))
		r.compare(undisturbed, disturbed)
		r.requireNoViolations()
		select {
		case <-over:
			isOver = true
		default:
		}
	}
	r.say("%s", injector.summary())
	injector.requireKills(*length)
}

// workUndisturbed returns how work without faults leaves the nodes.
func (r *run) workUndisturbed() map[string]observer.End {
	r.Helper()
	ends := map[string]map[string]observer.End{} // by profile
	if content, err := os.ReadFile(*saved); err == nil {
		if err := json.Unmarshal(content, &ends); err != nil {
			r.Fatalf("reading %s: %v", *saved, err)
		}
	}
	if known, isKnown := ends[r.profile]; isKnown {
		return known
	}
	r.say("the undisturbed round begins")
	r.isUndisturbed = true
	ends[r.profile] = r.work("undisturbed")
	r.isUndisturbed = false
	r.requireNoViolations()
	if *saved == "" {
		return ends[r.profile]
	}
	content, err := json.Marshal(ends)
	if err == nil {
		err = os.WriteFile(*saved, content, 0o600)
	}
	if err != nil {
		r.Fatal(err)
	}
	return ends[r.profile]
}

// requireNoViolations fails the test with everything that was broken in the present round.
func (r *run) requireNoViolations() {
	r.Helper()
	var lines []string
	for _, v := range r.observer.Violations() {
		lines = append(lines, v.String())
	}
	if len(lines) > 0 {
		r.Fatalf("seed %d: promises were broken:\n%s", *seed, strings.Join(lines, "\n"))
	}
}

// compare compares how a round left the nodes with how the undisturbed round did.
func (r *run) compare(undisturbed, disturbed map[string]observer.End) {
	r.Helper()
	for _, n := range r.nodes {
		for _, difference := range observer.Differences(undisturbed[n], disturbed[n]) {
			r.Errorf("%s: %s", n, difference)
		}
	}
	if r.Failed() {
		r.Fatalf("seed %d: the round left the nodes in another state than the undisturbed one", *seed)
	}
}
