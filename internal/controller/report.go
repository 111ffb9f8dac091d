// SPDX-FileCopyrightText: The Skyhook authors
// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"context"
	"errors"
	"time"

	"github.com/go-logr/logr"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/record"

	opv1 "github.com/skyhook-k8s/skyhook/api/nodeop/v1alpha1"
	"github.com/skyhook-k8s/skyhook/api/skyhook/v1alpha1"
	"github.com/skyhook-k8s/skyhook/internal/cluster"
	"github.com/skyhook-k8s/skyhook/internal/node"
	opreport "github.com/skyhook-k8s/skyhook/internal/nodeop/report"
	"github.com/skyhook-k8s/skyhook/internal/nodeop/upgrade"
	"github.com/skyhook-k8s/skyhook/internal/policy"
	"github.com/skyhook-k8s/skyhook/internal/rollout"
	"github.com/skyhook-k8s/skyhook/internal/rollout/engine"
	"github.com/skyhook-k8s/skyhook/internal/skyhook/report"
)

// The least time between two writes of one object's status, and before one that tells no more than how far drains are. The status of a
// large rollout names its nodes, and most of it is how far they are, so it is written less often.
const (
	statusInterval     = time.Second
	intervalPerHundred = 100 * time.Millisecond // is added for each hundred nodes
	maxStatusInterval  = 5 * time.Second
	progressInterval   = 10 * time.Second
)

// statusIntervalOf is the least time between two writes of the status of a rollout.
func statusIntervalOf(r *rollout.Rollout) time.Duration {
	return min(statusInterval+time.Duration(len(r.Targets)/100)*intervalPerHundred, maxStatusInterval)
}

// reporter writes statuses, events and log lines about what a pass decided and did.
type reporter struct {
	cluster *cluster.Cluster
	metrics *metricsCollector
	events  record.EventRecorder
	log     logr.Logger
	clock   func() time.Time

	lastWrites     map[types.UID]time.Time              // of each object's status
	statuses       map[types.UID]v1alpha1.SkyhookStatus // that events were derived from last, written or not
	nodeOpStatuses map[types.UID]opv1.NodeOpStatus      // likewise
	samples        map[types.UID]skyhookSample          // of these statuses
	nodeOpSamples  map[types.UID]nodeOpSample           // likewise
	waits          waitHistory
	problems       map[rollout.Ref]string // by rollout, as logged last
}

func newReporter(c *cluster.Cluster, m *metricsCollector, events record.EventRecorder, log logr.Logger) *reporter {
	return &reporter{cluster: c, metrics: m, events: events, log: log, clock: time.Now, waits: waitHistory{}, problems: map[rollout.Ref]string{}}
}

// passReport is the report of one pass.
type passReport struct {
	*reporter
	compiled *cluster.Compiled
	objects  *cluster.Objects // from which it was compiled
	plan     rollout.Plan
	outcome  cluster.Outcome
	reports  map[rollout.Ref]rollout.Report // by rollout

	written map[types.UID]time.Time // becomes lastWrites
	next    time.Time               // when a status that had to wait is due
	errs    []error
}

// reportPass brings statuses, events and metrics up to date. It returns when a status that had to wait is due.
func (r *reporter) reportPass(ctx context.Context, c *cluster.Compiled, plan rollout.Plan, outcome cluster.Outcome) (next time.Time, err error) {
	o := c.Objects
	p := &passReport{
		reporter: r, compiled: c, objects: o, plan: plan, outcome: outcome,
		reports: make(map[rollout.Ref]rollout.Report, len(plan.Reports)), written: make(map[types.UID]time.Time, len(o.Skyhooks)),
	}
	for _, report := range plan.Reports {
		p.reports[report.Rollout] = report
	}
	for _, d := range outcome.Applied {
		r.recordActions(d)
	}
	p.recordUntainted()
	p.updateSkyhooks(ctx)
	p.updateNodeOps(ctx)
	p.updateUpgrades(ctx)
	p.updatePolicies(ctx)
	r.lastWrites = p.written
	r.waits.forgetExpired(r.clock())
	r.metrics.publish(o, samplesOf(o.Skyhooks, r.samples), samplesOf(o.NodeOps, r.nodeOpSamples), plan.Groups, r.clock())
	return p.next, errors.Join(p.errs...)
}

// samplesOf returns the samples of objects, in their order.
func samplesOf[T any, O metav1.Object](objects []O, samples map[types.UID]T) []T {
	var out []T
	for _, o := range objects {
		if sample, ok := samples[o.GetUID()]; ok {
			out = append(out, sample)
		}
	}
	return out
}

// writeStatus writes a status unless that of the object was written less than an interval ago. It reports whether it was written.
func (p *passReport) writeStatus(interval time.Duration, uid types.UID, write func() (bool, error)) bool {
	if p.awaitInterval(interval, uid) {
		return false
	}
	wrote, err := write()
	if err != nil {
		p.errs = append(p.errs, err)
	}
	if wrote {
		p.written[uid] = p.clock()
	}
	return wrote
}

// awaitInterval requests a pass for when the status of an object may be written again, if the last write is too recent, and reports whether
// it is: there may be more to write by then.
func (p *passReport) awaitInterval(interval time.Duration, uid types.UID) bool {
	due := p.lastWrites[uid].Add(interval)
	if !due.After(p.clock()) {
		return false
	}
	p.keepLastWrite(uid)
	p.next = node.Earlier(p.next, due)
	return true
}

// requestProgress requests the next pass for when a drain of a rollout takes long enough to be in its status. It returns how long to
// wait between two writes: hasNews is false when only the progress of drains differs from what is stored.
func (p *passReport) requestProgress(r *rollout.Rollout, report rollout.Report, hasNews bool) time.Duration {
	now := p.clock()
	for _, d := range report.Draining {
		if due := d.Since.Add(engine.LongDrain); !d.Long && due.After(now) {
			p.next = node.Earlier(p.next, due)
		}
	}
	if hasNews {
		return statusIntervalOf(r)
	}
	return progressInterval
}

func (p *passReport) keepLastWrite(uid types.UID) { p.written[uid] = p.lastWrites[uid] }

// updateSkyhooks brings the statuses of Skyhooks, their events and their samples up to date. While a status may not be written because the
// last write is too recent, it is not computed either: that costs as much as deciding does.
func (p *passReport) updateSkyhooks(ctx context.Context) {
	statuses := make(map[types.UID]v1alpha1.SkyhookStatus, len(p.objects.Skyhooks))
	samples := make(map[types.UID]skyhookSample, len(p.objects.Skyhooks))
	for _, s := range p.objects.Skyhooks {
		compiled := p.compiled.Skyhook(s)
		if compiled == nil || compiled.Removed {
			continue
		}
		name := compiled.Rollout.Ref
		p.recordFailure(skyhookRef(s), v1alpha1.EventApply, name)
		before, known := p.statuses[s.UID]
		if sample, sampled := p.samples[s.UID]; sampled {
			samples[s.UID] = sample
		}
		if known && p.awaitInterval(statusIntervalOf(&compiled.Rollout), s.UID) {
			statuses[s.UID] = before
			continue
		}
		decided := p.reports[name]
		status := compiled.Status(decided, p.plan.Groups)
		status.Profile = p.objects.ProfileOf(name)
		if !known {
			before = s.Status
		}
		statuses[s.UID] = status
		p.recordSkyhookEvents(p.objects, s, compiled.Events(nil, before, status))
		p.recordWaits(p.objects, skyhookRef(s), &compiled.Rollout, decided)
		if p.outcome.Incomplete[name] {
			p.keepLastWrite(s.UID)
			continue
		}
		samples[s.UID] = newSample(s, compiled, status, decided)
		if status.Status == v1alpha1.StatusComplete && p.cluster.AwaitInFlight(p.objects, name) {
			p.keepLastWrite(s.UID) // it is complete when those writes arrived, and they request a pass
			continue
		}
		interval := p.requestProgress(&compiled.Rollout, decided, report.HasNews(s.Status, status))
		p.writeStatus(interval, s.UID, func() (bool, error) { return p.cluster.UpdateSkyhookStatus(ctx, s, status) })
	}
	p.statuses, p.samples = statuses, samples
}

// updateNodeOps is like updateSkyhooks.
func (p *passReport) updateNodeOps(ctx context.Context) {
	statuses := make(map[types.UID]opv1.NodeOpStatus, len(p.objects.NodeOps))
	samples := make(map[types.UID]nodeOpSample, len(p.objects.NodeOps))
	for _, op := range p.objects.NodeOps {
		compiled := p.compiled.NodeOp(op)
		if compiled == nil || compiled.Removed {
			continue
		}
		name := compiled.Rollout.Ref
		p.recordFailure(nodeOpRef(op), "Error", name)
		before, known := p.nodeOpStatuses[op.UID]
		if known && p.awaitInterval(statusIntervalOf(&compiled.Rollout), op.UID) {
			statuses[op.UID], samples[op.UID] = before, p.nodeOpSamples[op.UID]
			continue
		}
		report := p.reports[name]
		status := opreport.Status(compiled, report, p.plan.Groups)
		if !compiled.Operation.IsFinished() { // a terminal status does not change
			status.Profile = p.objects.ProfileOf(name)
		}
		if !known {
			before = op.Status
		}
		statuses[op.UID] = status
		p.recordNodeOpEvents(p.objects, op, opreport.Events(compiled, nil, before, status))
		p.recordWaits(p.objects, nodeOpRef(op), &compiled.Rollout, report)
		samples[op.UID] = newNodeOpSample(op, compiled, status, report)
		ended := status.Phase == opv1.PhaseCompleted || status.Phase == opv1.PhaseFailed
		if p.outcome.Incomplete[name] || ended && p.cluster.AwaitInFlight(p.objects, name) { // it ended when those writes arrived
			p.keepLastWrite(op.UID)
			continue
		}
		interval := p.requestProgress(&compiled.Rollout, report, opreport.HasNews(op.Status, status))
		p.writeStatus(interval, op.UID, func() (bool, error) { return p.cluster.UpdateNodeOpStatus(ctx, op, status) })
	}
	p.nodeOpStatuses, p.nodeOpSamples = statuses, samples
}

func (p *passReport) updateUpgrades(ctx context.Context) {
	for _, u := range p.objects.Upgrades {
		if u.DeletionTimestamp != nil {
			continue
		}
		p.writeStatus(statusInterval, u.UID, func() (bool, error) {
			var child *opv1.NodeOp
			for _, op := range p.objects.NodeOps {
				if op.Namespace == u.Namespace && op.Name == u.Name {
					child = op
				}
			}
			return p.cluster.UpdateUpgradeStatus(ctx, u, upgrade.Status(u, child, p.objects.Nodes, p.clock()))
		})
	}
}

// updatePolicies writes the users of each policy, their progress, and the memory of the groups of a shared one: its next
// batch begins only when that is stored.
func (p *passReport) updatePolicies(ctx context.Context) {
	users := p.objects.PolicyUsers(p.plan)
	for _, dp := range p.objects.Policies {
		before := dp.Status
		var status v1alpha1.DeploymentPolicyStatus
		wrote := p.writeStatus(statusInterval, dp.UID, func() (bool, error) {
			status = policy.BuildStatus(dp, users[dp.Name], p.plan.Groups, p.clock())
			status.Profile = p.objects.ProfileOf(policy.Ref(dp))
			return p.cluster.UpdatePolicyStatus(ctx, dp, status)
		})
		if !wrote {
			continue
		}
		for _, condition := range []string{v1alpha1.ConditionRolloutStopped, v1alpha1.ConditionDeletionBlocked} {
			c := meta.FindStatusCondition(status.Conditions, condition)
			if c != nil && !meta.IsStatusConditionTrue(before.Conditions, condition) {
				p.events.Event(policyRef(dp), corev1.EventTypeWarning, condition, node.Truncate(c.Message, 500))
			}
		}
	}
}

// logActions logs one line for each action that was carried out.
func (r *reporter) logActions(done []rollout.Action) {
	for _, a := range done {
		fields := []any{"rollout", a.Rollout.String(), "node", a.Node, "reason", string(a.Why.Reason), "why", a.Why.Text}
		if a.Task != "" {
			fields = append(fields, "task", a.Task)
		}
		if a.Pod != nil {
			fields = append(fields, "pod", a.Pod.Namespace+"/"+a.Pod.Name)
		}
		if a.State != "" {
			fields = append(fields, "state", string(a.State))
		}
		r.log.Info(string(a.Verb), fields...)
	}
}

// logProblems logs the problems of objects, each once.
func (r *reporter) logProblems(problems []cluster.Problem) {
	now, refused := make(map[rollout.Ref]string, len(problems)), map[rollout.Ref]bool{}
	for _, p := range problems {
		refused[p.Rollout] = refused[p.Rollout] || p.Refuses
		if now[p.Rollout] != "" {
			now[p.Rollout] += "; "
		}
		now[p.Rollout] += p.Text
	}
	for _, p := range problems {
		if text := now[p.Rollout]; r.problems[p.Rollout] != text {
			message := "object accepted with warnings"
			if refused[p.Rollout] {
				message = "object rejected"
			}
			r.log.Info(message, "rollout", p.Rollout.String(), "why", text)
			r.problems[p.Rollout] = text
		}
	}
	r.problems = now
}
