// SPDX-FileCopyrightText: The Skyhook authors
// SPDX-License-Identifier: Apache-2.0

package chaos_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/skyhook-k8s/skyhook/test/e2e/chaos/schedule"
	"github.com/skyhook-k8s/skyhook/test/e2e/suite"
)

// compact is a Skyhook whose stages share pods: a chain of packages, the last of which restarts a service; the others are upgraded.
const compact = "chaos-compact"

// running is the name of the process with which a script of the compact Skyhook waits, followed by its stage.
const running = "chaos-running-"

// compactPack is a package whose scripts wait a second before they do their work, so that they can be met.
func compactPack(name, version, more string) string {
	return packWith(compact, name, version, "one", more, func(stage string) string {
		return fmt.Sprintf("bash -c 'exec -a %s%s sleep 1'; ", running, stage)
	})
}

func compactManifest(version string) string {
	return manifest(compact,
		compactPack("lower", version, ""),
		compactPack("middle", version, fmt.Sprintf("\n      dependsOn: {lower: %s}", version)),
		compactPack("upper", version, fmt.Sprintf("\n      dependsOn: {middle: %s}\n      interrupt: %s", version, restart)),
	)
}

// requireCompact fails if the stages of the compact Skyhook did not share pods on all nodes. Faults may have nodes go back to the other
// layout, so that only the undisturbed round requires it.
func (r *run) requireCompact() {
	r.Helper()
	r.eventually("the layouts are counted", func(ctx context.Context) error {
		o, err := r.objects.Resource(skyhooks).Get(ctx, compact, metav1.GetOptions{})
		if err != nil {
			return err
		}
		layouts, _, _ := unstructured.NestedMap(o.Object, "status", "podLayout")
		r.say("  nodes by their layout: %v", layouts)
		if r.isUndisturbed && fmt.Sprint(layouts["compact"]) != fmt.Sprint(len(r.nodes)) {
			return fmt.Errorf("nodes by their layout: %v", layouts)
		}
		return nil
	})
}

// meeting is a stage of the compact Skyhook that runs on a node.
type meeting struct{ node, stage string }

// cutCompact waits until a stage of the compact Skyhook runs, cuts the power of its node, and switches it on again.
func (i *injector) cutCompact(ctx context.Context, e schedule.Event) error {
	const off = 15 * time.Second
	begin := time.Now()
	met := meeting{node: e.Node}
	for met.stage == "" && ctx.Err() == nil && time.Since(begin) < e.For-off {
		stages := schedule.CompactStages
		if time.Since(begin) < e.For/2 {
			stages = i.rarestStages()
		}
		if first := i.meetStage(ctx, stages); first.stage != "" {
			met = first
		}
	}
	if met.stage != "" {
		i.say("  %s runs on %s", met.stage, met.node)
	}
	return i.crash(ctx, met.node, off, func() {
		i.mu.Lock()
		defer i.mu.Unlock()
		i.compactCuts[met.stage]++
	})
}

// rarestStages returns the stages of the compact Skyhook during which the power was cut least often.
func (i *injector) rarestStages() (rarest []string) {
	i.mu.Lock()
	defer i.mu.Unlock()
	least := i.compactCuts[schedule.CompactStages[0]]
	for _, stage := range schedule.CompactStages {
		least = min(least, i.compactCuts[stage])
	}
	for _, stage := range schedule.CompactStages {
		if i.compactCuts[stage] == least {
			rarest = append(rarest, stage)
		}
	}
	return rarest
}

// meetStage waits a few seconds until one of these stages of the compact Skyhook runs on a node, and returns the first.
func (i *injector) meetStage(ctx context.Context, stages []string) (met meeting) {
	ctx, cancel := context.WithTimeout(ctx, 6*time.Second)
	defer cancel()
	var once sync.Once
	meet := func(node, stage string) {
		once.Do(func() { met = meeting{node, stage} })
		cancel()
	}
	var watchers sync.WaitGroup
	script := fmt.Sprintf("for i in $(seq 50); do pgrep -af '^%s(%s) 1$' && exit; sleep 0.1; done", running, strings.Join(stages, "|"))
	for _, n := range i.nodes {
		watchers.Go(func() {
			out, err := i.machines.Exec(ctx, n, "/bin/bash", "-c", script)
			if _, stage, isMet := strings.Cut(out, running); err == nil && isMet {
				meet(n, strings.Fields(stage)[0])
			}
		})
	}
	if slices.Contains(stages, "interrupt") {
		watchers.Go(func() {
			for ctx.Err() == nil {
				list, err := i.machines.Client.CoreV1().Pods(suite.OperatorNamespace).List(ctx, metav1.ListOptions{
					LabelSelector: "skyhook.nvidia.com/stage=interrupt,skyhook.nvidia.com/name=" + compact,
				})
				if err == nil && len(list.Items) > 0 {
					meet(list.Items[0].Spec.NodeName, "interrupt")
				}
				_ = sleep(ctx, 100*time.Millisecond) // the loop ends with ctx
			}
		})
	}
	watchers.Wait()
	return met
}

// crash cuts the power of a node, says so, and switches it on again after a while.
func (i *injector) crash(ctx context.Context, node string, off time.Duration, done func()) error {
	i.observer.ExpectBoot(node)
	err := i.machines.Crash(ctx, node)
	if err != nil { // it was about to reboot, and did
		i.observer.ExpectBoot(node)
		err = i.machines.Crash(ctx, node)
	}
	if err != nil {
		return fmt.Errorf("cutting the power of %s: %w", node, err)
	}
	done()
	return errors.Join(sleep(ctx, off), i.machines.Start(context.WithoutCancel(ctx), node))
}
