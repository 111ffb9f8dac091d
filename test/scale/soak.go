// SPDX-FileCopyrightText: The Skyhook authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"
	"text/tabwriter"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/prometheus/common/expfmt"
	"github.com/prometheus/common/model"

	"github.com/skyhook-k8s/skyhook/api/skyhook/v1alpha1"
)

// soak runs a rollout after the other while nodes come and go, and measures what must not grow.
type soak struct {
	*simulation
	operator *operator
	readings []reading
	version  int           // of the packages
	took     time.Duration // of the rollout of this version; 0: it is not complete
	began    time.Time     // of the rollout of this version
}

// reading is what the operator holds at a moment.
type reading struct {
	rollout    int
	rss        int64
	goroutines int
	files      int     // open file descriptors
	watches    int     // that the API server serves, those of this program included
	renewals   float64 // of the lease, since the operator began
	took       time.Duration
}

// soakTrend is how a figure developed: its median in the third and in the last quarter of the time, and what it may be in the last.
type soakTrend struct {
	name        string
	third, last float64
	limit       float64
}

// run begins a rollout with each period until the time is over, and prints a table. What has grown is an error.
func (s *soak) run(ctx context.Context) error {
	if err := s.install(ctx); err != nil {
		return err
	}
	s.version, s.began = firstVersion, time.Now()
	end := time.Now().Add(s.soak)
	nextRollout, nextReading := time.Now().Add(s.period), time.Now().Add(s.interval)
	for time.Now().Before(end) {
		if err := s.observe(ctx); err != nil {
			return err
		}
		if now := time.Now(); now.After(nextReading) {
			nextReading = now.Add(s.interval)
			if err := s.read(ctx); err != nil {
				return err
			}
			if err := s.collectPods(ctx); err != nil {
				return err
			}
			if err := s.replaceNodes(ctx, s.churn); err != nil {
				return err
			}
		}
		if now := time.Now(); now.After(nextRollout) {
			nextRollout = now.Add(s.period)
			if err := s.beginRollout(ctx); err != nil {
				return err
			}
		}
		if err := sleep(ctx, 250*time.Millisecond); err != nil {
			return err
		}
	}
	s.print(os.Stdout)
	return s.checkTrends()
}

// observe notes when the rollout is complete.
func (s *soak) observe(ctx context.Context) error {
	select {
	case <-s.operator.ended:
		return errors.New("the operator exited; run again with -v")
	default:
	}
	if s.took > 0 {
		return nil
	}
	complete, _, err := s.isSkyhookComplete(ctx)
	if err == nil && complete {
		s.took = time.Since(s.began)
	}
	return err
}

// beginRollout raises the version of every package. The rollout before it must be complete.
func (s *soak) beginRollout(ctx context.Context) error {
	if s.took == 0 {
		return fmt.Errorf("the rollout of version 1.2.%d is not complete after %s", s.version, time.Since(s.began).Round(time.Second))
	}
	s.version, s.took, s.began = s.version+1, 0, time.Now()
	return s.editSkyhook(ctx, func(spec *v1alpha1.SkyhookSpec) { setVersion(spec, s.version) })
}

// replaceNodes deletes the oldest nodes and creates as many new ones.
func (s *soak) replaceNodes(ctx context.Context, count int) error {
	for range count {
		oldest := int(s.oldest.Load())
		if err := s.createNode(ctx, newNode(oldest+s.nodes)); err != nil {
			return err
		}
		s.oldest.Add(1)
		if err := s.client.Delete(ctx, &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: newNode(oldest).Name}}); err != nil {
			return fmt.Errorf("deleting a node: %w", err)
		}
	}
	return nil
}

// collectPods removes pods of nodes that are gone, as the pod garbage collector of a cluster does.
func (s *soak) collectPods(ctx context.Context) error {
	pods := &corev1.PodList{} // before the nodes: a node of a pod that is listed is not one that was created since
	if err := s.client.List(ctx, pods, client.InNamespace(namespace)); err != nil {
		return fmt.Errorf("listing pods: %w", err)
	}
	nodes := &corev1.NodeList{}
	if err := s.client.List(ctx, nodes); err != nil {
		return fmt.Errorf("listing nodes: %w", err)
	}
	exists := make(map[string]bool, len(nodes.Items))
	for i := range nodes.Items {
		exists[nodes.Items[i].Name] = true
	}
	for i := range pods.Items {
		if p := &pods.Items[i]; p.Spec.NodeName != "" && !exists[p.Spec.NodeName] {
			s.removePod(ctx, p)
		}
	}
	return nil
}

// read takes a reading and says it.
func (s *soak) read(ctx context.Context) error {
	of, err := s.operator.takeSample()
	if err != nil {
		return err
	}
	files, err := os.ReadDir(fmt.Sprintf("/proc/%d/fd", s.operator.cmd.Process.Pid))
	if err != nil {
		return fmt.Errorf("counting the operator's open files: %w", err)
	}
	watches, err := s.countWatches(ctx)
	if err != nil {
		return err
	}
	r := reading{rollout: s.version, rss: of.rss, files: len(files), watches: watches, took: s.took}
	for _, m := range of.families["go_goroutines"].GetMetric() {
		r.goroutines = int(m.GetGauge().GetValue())
	}
	for _, m := range of.families["skyhook_api_writes_total"].GetMetric() {
		if strings.Contains(joinLabels(m), "leases") {
			r.renewals += m.GetCounter().GetValue()
		}
	}
	s.readings = append(s.readings, r)
	fmt.Fprintf(os.Stderr, "%s version 1.2.%d took %s: RSS %d MiB, %d goroutines, %d files, %d watches, %.0f renewals\n", time.Now().UTC().Format(time.TimeOnly),
		r.rollout, r.took.Round(time.Second), r.rss>>20, r.goroutines, r.files, r.watches, r.renewals)
	return nil
}

// countWatches asks the API server how many watches it serves.
func (s *soak) countWatches(ctx context.Context) (int, error) {
	text, err := s.typed.Discovery().RESTClient().Get().AbsPath("/metrics").DoRaw(ctx)
	if err != nil {
		return 0, fmt.Errorf("reading the metrics of the API server: %w", err)
	}
	parser := expfmt.NewTextParser(model.UTF8Validation)
	families, err := parser.TextToMetricFamilies(bytes.NewReader(text))
	if err != nil {
		return 0, fmt.Errorf("reading the metrics of the API server: %w", err)
	}
	watches := 0.0
	for _, m := range families["apiserver_longrunning_requests"].GetMetric() {
		if strings.Contains(joinLabels(m), "WATCH") {
			watches += m.GetGauge().GetValue()
		}
	}
	return int(watches), nil
}

// trends compares the third quarter of the readings with the last. Memory may vary by a tenth, because a quarter contains few
// rollouts; of the others nothing may remain.
func (s *soak) trends() []soakTrend {
	quarter := len(s.readings) / 4
	third, last := s.readings[2*quarter:3*quarter], s.readings[3*quarter:]
	compare := func(name string, tolerance float64, value func(reading) float64) soakTrend {
		t := soakTrend{name: name, third: median(third, value), last: median(last, value)}
		t.limit = t.third * (1 + tolerance)
		return t
	}
	return []soakTrend{
		compare("RSS, MiB", 0.10, func(r reading) float64 { return float64(r.rss >> 20) }),
		compare("goroutines", 0.05, func(r reading) float64 { return float64(r.goroutines) }),
		compare("open files", 0.10, func(r reading) float64 { return float64(r.files) }),
		compare("watches", 0, func(r reading) float64 { return float64(r.watches) }),
	}
}

func median(of []reading, value func(reading) float64) float64 {
	values := make([]float64, 0, len(of))
	for _, r := range of {
		values = append(values, value(r))
	}
	slices.Sort(values)
	return values[len(values)/2]
}

// renewalsPerMinute returns how often the lease was renewed from one reading to another.
func (s *soak) renewalsPerMinute(from, to int) float64 {
	return (s.readings[to].renewals - s.readings[from].renewals) / (float64(to-from) * s.interval.Minutes())
}

func (s *soak) checkTrends() error {
	if len(s.readings) < 8 {
		return errors.New("too few readings for a trend: -soak must be at least eight times -interval")
	}
	var grown []error
	for _, t := range s.trends() {
		fmt.Printf("%s: median %.0f in the third quarter, %.0f in the last; at most %.0f\n", t.name, t.third, t.last, t.limit)
		if t.last > t.limit {
			grown = append(grown, fmt.Errorf("%s grew from %.0f to %.0f", t.name, t.third, t.last))
		}
	}
	half, end := len(s.readings)/2, len(s.readings)-1
	first, second := s.renewalsPerMinute(0, half), s.renewalsPerMinute(half, end)
	fmt.Printf("renewals of the lease per minute: %.1f in the first half, %.1f in the second\n", first, second)
	if second < first*0.9 || second > first*1.1 {
		grown = append(grown, fmt.Errorf("renewals of the lease per minute went from %.1f to %.1f", first, second))
	}
	return errors.Join(grown...)
}

// print prints the last reading of each rollout.
func (s *soak) print(out io.Writer) {
	w := tabwriter.NewWriter(out, 0, 0, 2, ' ', 0)
	fmt.Fprintln(w, "rollout\ttook\tlowest RSS\thighest RSS\tgoroutines\tfiles\twatches")
	for version := firstVersion; version <= s.version; version++ {
		var low, high int64
		var latest reading
		for _, r := range s.readings {
			if r.rollout != version {
				continue
			}
			if low == 0 || r.rss < low {
				low = r.rss
			}
			high, latest = max(high, r.rss), r
		}
		if latest.rollout == version {
			fmt.Fprintf(w, "1.2.%d\t%s\t%d MiB\t%d MiB\t%d\t%d\t%d\n", version, latest.took.Round(time.Second), low>>20, high>>20, latest.goroutines, latest.files, latest.watches)
		}
	}
	_ = w.Flush() // stdout
}
