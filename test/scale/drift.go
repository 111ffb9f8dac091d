// SPDX-FileCopyrightText: The Skyhook authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"encoding/json"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/skyhook-k8s/skyhook/api/skyhook/v1alpha1"
	"github.com/skyhook-k8s/skyhook/internal/pack"
	"github.com/skyhook-k8s/skyhook/test/kubelet"
)

// phaseDrift is the phase in which nodes are checked for drift, and nothing drifted.
const phaseDrift = "drift"

// driftWarmUp is how long the operator works before its checks are measured.
const driftWarmUp = 15 * time.Second

// driftPeriods is how many times longer that is measured than the operator at rest: only a few nodes are checked in a minute.
const driftPeriods = 5

// startChecks lets the operator check all nodes. Their work seems to have ended a while ago, so that the first checks, which are
// spread over the interval, begin now.
func (f *simulation) startChecks(ctx context.Context) error {
	done := time.Now().Add(-f.driftInterval / 10).UTC().Truncate(time.Second)
	if err := runParallel(32, f.nodes, func(i int) error { return f.setFinished(ctx, newNode(int(f.oldest.Load())+i).Name, done) }); err != nil {
		return err
	}
	return f.editSkyhook(ctx, func(s *v1alpha1.SkyhookSpec) {
		s.Drift = &v1alpha1.Drift{Every: &metav1.Duration{Duration: f.driftInterval}}
	})
}

// setFinished changes when the work on a node was done.
func (f *simulation) setFinished(ctx context.Context, name string, at time.Time) error {
	n := &corev1.Node{}
	if err := f.client.Get(ctx, client.ObjectKey{Name: name}, n); err != nil {
		return fmt.Errorf("reading a node: %w", err)
	}
	key, record := v1alpha1.PrefixRecord+objectName, map[string]json.RawMessage{}
	if err := json.Unmarshal([]byte(n.Annotations[key]), &record); err != nil {
		return fmt.Errorf("reading the record of node %s: %w", name, err)
	}
	record["finishedAt"] = json.RawMessage(at.Format(`"` + time.RFC3339 + `"`))
	value, err := json.Marshal(record)
	if err != nil {
		return err
	}
	patch, err := json.Marshal(map[string]any{"metadata": map[string]any{"annotations": map[string]string{key: string(value)}}})
	if err != nil {
		return err
	}
	if err := f.client.Patch(ctx, n, client.RawPatch(types.MergePatchType, patch)); err != nil {
		return fmt.Errorf("changing the record of a node: %w", err)
	}
	return nil
}

// runCheck runs the containers of a pod that checks a node for drift, side by side. They find nothing.
func (f *simulation) runCheck(ctx context.Context, p *corev1.Pod) {
	if !f.updatePod(ctx, p, acceptPod) || sleep(ctx, f.randomize(f.stageDuration)) != nil {
		return
	}
	end := func(p *corev1.Pod) {
		for i, c := range p.Spec.Containers {
			found := pack.Message{Mode: pack.ModeDrift, Outcome: pack.Succeeded, Package: c.Name, Drift: &pack.Drift{Ran: []pack.Mode{pack.ModeApplyCheck, pack.ModeConfigCheck}}}
			kubelet.End(p, i, 0, string(found.Encode()), time.Now())
		}
	}
	if f.updatePod(ctx, p, end) {
		f.checks.Add(1)
	}
}
