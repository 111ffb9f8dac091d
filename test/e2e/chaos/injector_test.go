// SPDX-FileCopyrightText: The Skyhook authors
// SPDX-License-Identifier: Apache-2.0

package chaos_test

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/skyhook-k8s/skyhook/test/cluster/faults"
	"github.com/skyhook-k8s/skyhook/test/e2e/chaos/schedule"
	"github.com/skyhook-k8s/skyhook/test/e2e/suite"
)

// operatorUser is the operator to the API server's proxy, and operatorWrites are the methods of its writes.
const (
	operatorUser   = "^system:serviceaccount:" + suite.OperatorNamespace + ":"
	operatorWrites = "POST|PUT|PATCH|DELETE"
	exceptLease    = "^/(api/v1|apis/(batch|skyhook.nvidia.com|operator.kairos.io))/" // so that it dies at work, not at the renewal of its lease
	leaseName      = "3c22c1ae.nvidia.com"
)

// injector makes faults happen.
type injector struct {
	*run
	mu     sync.Mutex
	rules  map[schedule.Kind][]faults.Fault // before the API server
	counts map[schedule.Kind]int
	kills  int            // of operators that ran
	cuts   map[string]int // cuts of the power during a stage, by its name; of all others by ""

	compactCuts map[string]int // likewise, during stages of the compact Skyhook
}

func newInjector(r *run) *injector {
	return &injector{run: r, rules: map[schedule.Kind][]faults.Fault{}, counts: map[schedule.Kind]int{}, cuts: map[string]int{}, compactCuts: map[string]int{}}
}

// start makes the events of a plan happen from now on, each lane after the other. The channel is closed when all are over.
func (i *injector) start(ctx context.Context, plan []schedule.Event) <-chan struct{} {
	begin := time.Now()
	lanes := map[int][]schedule.Event{}
	for _, e := range plan {
		lanes[e.Lane()] = append(lanes[e.Lane()], e)
	}
	over := make(chan struct{})
	var running sync.WaitGroup
	for _, events := range lanes {
		running.Go(func() {
			for _, e := range events {
				if sleep(ctx, time.Until(begin.Add(e.At))) != nil {
					return
				}
				i.happen(ctx, e)
			}
		})
	}
	go func() {
		running.Wait()
		close(over)
	}()
	return over
}

// happen makes one event happen and returns when what it broke works again.
func (i *injector) happen(ctx context.Context, e schedule.Event) {
	if e.BreaksNode() {
		i.nodeFault.Lock()
		defer i.nodeFault.Unlock()
	}
	i.say("%s", strings.TrimSpace(e.String()[9:]))
	if err := i.inject(ctx, e); err != nil && ctx.Err() == nil {
		i.Errorf("seed %d: %s: %v", *seed, e, err)
	}
	i.mu.Lock()
	defer i.mu.Unlock()
	i.counts[e.Kind]++
}

// noteKill counts a kill of operators that ran.
func (i *injector) noteKill() {
	i.mu.Lock()
	defer i.mu.Unlock()
	i.kills++
}

// noteCut counts a cut of the power during a stage; empty for one that met no pod.
func (i *injector) noteCut(stage string) {
	i.mu.Lock()
	defer i.mu.Unlock()
	i.cuts[stage]++
}

// leastKills is how many kills half an hour of faults has at least.
const leastKills = 50

// requireKills fails a long run that killed the operator too rarely to show anything.
func (i *injector) requireKills(length time.Duration) {
	i.mu.Lock()
	defer i.mu.Unlock()
	if length >= 30*time.Minute && i.kills < leastKills {
		i.Errorf("seed %d: the operator was killed %d times only, want %d", *seed, i.kills, leastKills)
	}
}

// summary counts what happened, one kind on each line.
func (i *injector) summary() string {
	i.mu.Lock()
	defer i.mu.Unlock()
	var text strings.Builder
	n := 0
	for _, kind := range slices.Sorted(maps.Keys(i.counts)) {
		fmt.Fprintf(&text, "%9d  %s\n", i.counts[kind], kind)
		n += i.counts[kind]
	}
	for _, cuts := range []struct {
		of     string
		stages []string
		counts map[string]int
	}{{"a stage", schedule.Stages, i.cuts}, {"a stage of the compact Skyhook", schedule.CompactStages, i.compactCuts}} {
		fmt.Fprintf(&text, "The power was cut during %s:", cuts.of)
		for _, stage := range cuts.stages {
			fmt.Fprintf(&text, " %s %d,", stage, cuts.counts[stage])
		}
		fmt.Fprintf(&text, " and %d times while none was met\n", cuts.counts[""])
	}
	return fmt.Sprintf("%d faults of %d kinds happened; the operator was killed %d times while it ran:\n%s", n, len(i.counts), i.kills, text.String())
}

func (i *injector) inject(ctx context.Context, e schedule.Event) error {
	rule := faults.Fault{User: operatorUser, Method: operatorWrites, Chance: 0.3}
	switch e.Kind {
	case schedule.KillPods:
		return i.killOperators(ctx)
	case schedule.KillProcess:
		return i.killLeader(ctx)
	case schedule.DieBefore:
		return i.dieAtWrite(ctx, e, faults.Fault{User: operatorUser, Method: operatorWrites, Path: exceptLease, Skip: e.Index, Hangup: faults.Before})
	case schedule.DieAfter:
		write := faults.Fault{User: operatorUser, Method: operatorWrites, Path: exceptLease, Skip: e.Index}
		first, later := write, write
		first.Times, first.Hangup, later.Hangup = 1, faults.After, faults.Before
		return i.dieAtWrite(ctx, e, first, later)
	case schedule.FreezeLeader:
		return i.freezeLeader(ctx, e.For)
	case schedule.StealLease:
		return i.stealLease(ctx)
	case schedule.RefuseWrites:
		rule.Status = e.Code
		return i.setFor(ctx, e, rule)
	case schedule.HangUpBefore, schedule.HangUpAfter:
		rule.Hangup = faults.Before
		if e.Kind == schedule.HangUpAfter {
			rule.Hangup = faults.After
		}
		return i.setFor(ctx, e, rule)
	case schedule.DelayRequests:
		return i.setFor(ctx, e, faults.Fault{User: operatorUser, Delay: faults.Duration(time.Second), Chance: 0.5})
	case schedule.CutWatches:
		_, err := i.machines.CutWatches(ctx, operatorUser)
		return err
	case schedule.RestartAPIServer:
		return i.machines.KillProgram(ctx, "kube-apiserver")
	case schedule.RestartEtcd:
		return i.machines.KillProgram(ctx, "etcd")
	case schedule.DeletePod:
		return i.deletePod(ctx, e, suite.OperatorNamespace, "skyhook.nvidia.com/name")
	case schedule.DeleteWorkload:
		return i.deletePod(ctx, e, suite.Namespace, "app="+guardedApp)
	}
	return i.breakNode(ctx, e)
}

// setFor puts faults before the API server for as long as an event lasts.
func (i *injector) setFor(ctx context.Context, e schedule.Event, rules ...faults.Fault) error {
	if err := i.setRules(ctx, e.Kind, rules); err != nil {
		return err
	}
	return errors.Join(sleep(ctx, e.For), i.setRules(context.WithoutCancel(ctx), e.Kind, nil))
}

// setRules replaces the faults of one kind of event before the API server.
func (i *injector) setRules(ctx context.Context, kind schedule.Kind, rules []faults.Fault) error {
	i.mu.Lock()
	defer i.mu.Unlock()
	i.rules[kind] = rules
	all := []faults.Fault{}
	for _, rules := range i.rules {
		all = append(all, rules...)
	}
	return i.machines.SetFaults(ctx, all...)
}

// dieAtWrite kills the operator when one of its writes hung up. From that write on no request of it is processed.
func (i *injector) dieAtWrite(ctx context.Context, e schedule.Event, rules ...faults.Fault) error {
	if err := i.setRules(ctx, e.Kind, rules); err != nil {
		return err
	}
	hasHappened := func() bool {
		counts, err := i.machines.Faults(ctx)
		for _, c := range counts {
			if err == nil && c.Hangup == rules[0].Hangup && c.Skip == e.Index && c.Happened > 0 {
				return true
			}
		}
		return false
	}
	for deadline := time.Now().Add(e.For); !hasHappened() && time.Now().Before(deadline); {
		if err := sleep(ctx, 100*time.Millisecond); err != nil {
			break
		}
	}
	err := i.killOperators(ctx)
	return errors.Join(err, i.setRules(context.WithoutCancel(ctx), e.Kind, nil))
}

// killOperators deletes all pods of the operator at once.
func (i *injector) killOperators(ctx context.Context) error {
	grace, selector := int64(0), metav1.ListOptions{LabelSelector: suite.OperatorSelector}
	pods := i.machines.Client.CoreV1().Pods(suite.OperatorNamespace)
	isRunning := false
	err := i.retry(ctx, func(ctx context.Context) error {
		list, err := pods.List(ctx, selector)
		if err != nil {
			return err
		}
		isRunning = isRunning || slices.ContainsFunc(list.Items, func(p corev1.Pod) bool { return p.Status.Phase == corev1.PodRunning })
		return pods.DeleteCollection(ctx, metav1.DeleteOptions{GracePeriodSeconds: &grace}, selector)
	})
	if err == nil && isRunning {
		i.noteKill()
	}
	return err
}

// retry calls a function until the API server, or a host, answers.
func (i *injector) retry(ctx context.Context, f func(context.Context) error) (err error) {
	for deadline := time.Now().Add(time.Minute); time.Now().Before(deadline); {
		limited, cancel := context.WithTimeout(ctx, 10*time.Second)
		err = f(limited)
		cancel()
		if err == nil || apierrors.IsNotFound(err) {
			return nil
		}
		if sleep(ctx, time.Second) != nil {
			break
		}
	}
	return err
}

// findLeader returns the node of the leader, or nothing if none leads now.
func (i *injector) findLeader(ctx context.Context) string {
	l, err := i.machines.Client.CoordinationV1().Leases(suite.OperatorNamespace).Get(ctx, leaseName, metav1.GetOptions{})
	if err != nil || l.Spec.HolderIdentity == nil {
		return ""
	}
	pod, _, _ := strings.Cut(*l.Spec.HolderIdentity, "_")
	p, err := i.machines.Client.CoreV1().Pods(suite.OperatorNamespace).Get(ctx, pod, metav1.GetOptions{})
	if err != nil {
		return ""
	}
	return p.Spec.NodeName
}

// killLeader kills the operators, whose program is /manager, on the leader's node. There may be none at the moment.
func (i *injector) killLeader(ctx context.Context) error {
	if n := i.findLeader(ctx); n != "" && i.try(ctx, n, "pkill -KILL -x manager") {
		i.noteKill()
	}
	return nil
}

// try runs a script on a host that may be down, or where there may be nothing to do, and reports whether it succeeded.
func (i *injector) try(ctx context.Context, node, script string) bool {
	ctx, cancel := context.WithTimeout(ctx, 20*time.Second)
	defer cancel()
	if out, err := i.machines.Exec(ctx, node, "/bin/bash", "-c", script); err != nil {
		i.say("  on %s nothing came of it: %v %s", node, err, strings.TrimSpace(out))
		return false
	}
	return true
}

func (i *injector) freezeLeader(ctx context.Context, d time.Duration) error {
	n := i.findLeader(ctx)
	if n == "" {
		return nil
	}
	i.try(ctx, n, "pkill -STOP -x manager")
	err := sleep(ctx, d)
	i.try(context.WithoutCancel(ctx), n, "pkill -CONT -x manager")
	return err
}

// stealLease has somebody else hold the lease, who does not renew it.
func (i *injector) stealLease(ctx context.Context) error {
	patch := fmt.Sprintf(`{"spec":{"holderIdentity":"chaos","renewTime":%q}}`, time.Now().UTC().Format("2006-01-02T15:04:05.000000Z07:00"))
	return i.retry(ctx, func(ctx context.Context) error {
		_, err := i.machines.Client.CoordinationV1().Leases(suite.OperatorNamespace).Patch(ctx, leaseName, types.MergePatchType, []byte(patch), metav1.PatchOptions{})
		return err
	})
}

// deletePod deletes one of the pods with a label, if there is one: with its grace period, or at once.
func (i *injector) deletePod(ctx context.Context, e schedule.Event, namespace, selector string) error {
	return i.retry(ctx, func(ctx context.Context) error {
		list, err := i.machines.Client.CoreV1().Pods(namespace).List(ctx, metav1.ListOptions{LabelSelector: selector})
		if err != nil || len(list.Items) == 0 {
			return err
		}
		p := list.Items[e.Index%len(list.Items)]
		options := metav1.DeleteOptions{Preconditions: &metav1.Preconditions{UID: &p.UID}}
		if e.Index%2 == 1 {
			options.GracePeriodSeconds = new(int64)
		}
		i.observer.Excuse(string(p.UID))
		i.say("  %s", describePod(&p))
		return i.machines.Client.CoreV1().Pods(namespace).Delete(ctx, p.Name, options)
	})
}

func describePod(p *corev1.Pod) string {
	return fmt.Sprintf("pod %s on %s, %s", p.Name, p.Spec.NodeName, p.Status.Phase)
}

// sleep waits, or returns the error of a context that ends.
func sleep(ctx context.Context, d time.Duration) error {
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-time.After(d):
		return nil
	}
}
