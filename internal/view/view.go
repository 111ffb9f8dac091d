// SPDX-FileCopyrightText: The Skyhook authors
// SPDX-License-Identifier: Apache-2.0

// Package view computes what people are shown: text commands, JSON and pages show the same values.
package view

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/types"

	nodeopv1 "github.com/skyhook-k8s/skyhook/api/nodeop/v1alpha1"
	"github.com/skyhook-k8s/skyhook/api/skyhook/v1alpha1"
	"github.com/skyhook-k8s/skyhook/internal/cluster"
	"github.com/skyhook-k8s/skyhook/internal/cluster/drain"
	"github.com/skyhook-k8s/skyhook/internal/dump"
	"github.com/skyhook-k8s/skyhook/internal/nodeop"
	"github.com/skyhook-k8s/skyhook/internal/output"
	"github.com/skyhook-k8s/skyhook/internal/rollout"
	"github.com/skyhook-k8s/skyhook/internal/rollout/engine"
	"github.com/skyhook-k8s/skyhook/internal/skyhook/plan"
)

// ErrNotFound is wrapped by errors of Pages about a name that does not exist.
var ErrNotFound = errors.New("not found")

// Cluster is a cluster with the decision of the engine.
type Cluster struct {
	Dump      *dump.Cluster
	Namespace string // whose NodeOps are shown; all when it is empty
	Objects   *cluster.Objects
	Compiled  *cluster.Compiled
	Snapshot  rollout.Snapshot // of what was compiled
	Plan      rollout.Plan
	targets   map[targetKey]*rollout.Target
	Budgets   map[types.UID]string // by pod: the disruption budget that allows no eviction now
}

// targetKey names a target.
type targetKey struct {
	rollout rollout.Ref
	node    string
}

// Decide makes the plan from what was observed.
func (v *Cluster) Decide() {
	v.Compiled = cluster.Compile(v.Objects, v.Dump.Taken)
	v.Snapshot = v.Compiled.Snapshot
	v.Plan = engine.Decide(v.Snapshot)
	v.targets = map[targetKey]*rollout.Target{}
	for i := range v.Snapshot.Rollouts {
		r := &v.Snapshot.Rollouts[i]
		for j := range r.Targets {
			v.targets[targetKey{r.Ref, r.Targets[j].Node}] = r.Targets[j]
		}
	}
}

// SelectRollouts returns the rollouts that arguments name; all without arguments.
func (v *Cluster) SelectRollouts(args []string) []*rollout.Rollout {
	var selected []*rollout.Rollout
	for i := range v.Snapshot.Rollouts {
		r := &v.Snapshot.Rollouts[i]
		if r.Ref.Namespace != "" && v.Namespace != "" && r.Ref.Namespace != v.Namespace {
			continue
		}
		if len(args) == 0 || slices.ContainsFunc(args, func(arg string) bool { return matchesName(r.Ref, arg) }) {
			selected = append(selected, r)
		}
	}
	return selected
}

// FindRollout returns the first rollout that an argument names, such as demo, skyhook/demo or nodeop/NAME; nil when there
// is none.
func (v *Cluster) FindRollout(arg string) *rollout.Rollout {
	if found := v.SelectRollouts([]string{arg}); len(found) > 0 {
		return found[0]
	}
	return nil
}

// matchesName reports whether an argument names a rollout: KIND/NAME in any case, or the bare name of a Skyhook.
func matchesName(ref rollout.Ref, arg string) bool {
	if ref.Kind == plan.Kind && arg == ref.Name || strings.EqualFold(arg, ref.String()) {
		return true
	}
	argKind, argName, hasKind := strings.Cut(arg, "/")
	if !hasKind || !strings.EqualFold(strings.TrimSuffix(strings.ToLower(argKind), "s"), ref.Kind) {
		return false
	}
	return argName == ref.Path() || argName == ref.Name
}

// CheckNames returns an error for an argument that names no rollout.
func (v *Cluster) CheckNames(args []string) error {
	for _, arg := range args {
		if v.FindRollout(arg) == nil {
			return fmt.Errorf("there is no %s: %s", arg, v.ListNames())
		}
	}
	return nil
}

// ListNames lists the names that arguments can have.
func (v *Cluster) ListNames() string {
	var names []string
	for _, r := range v.SelectRollouts(nil) {
		names = append(names, ShortName(r.Ref))
	}
	if len(names) == 0 {
		return errNoObjects.Error()
	}
	return "there are " + output.List(names, 5)
}

var errNoObjects = errors.New("there is no Skyhook and no NodeOp")

// ShortName returns the name of a rollout as people type it.
func ShortName(ref rollout.Ref) string {
	if ref.Kind == plan.Kind {
		return ref.Path()
	}
	return strings.ToLower(ref.Kind) + "/" + ref.Path()
}

// groupName returns the name of a group, without its owner when that is the rollout.
func groupName(r *rollout.Rollout, group rollout.GroupRef) string {
	if group.Owner == r.Ref {
		return group.Name()
	}
	return group.Owner.String() + "/" + group.Name()
}

// ReportOf returns what the plan reports on a rollout; nil for nothing.
func (v *Cluster) ReportOf(ref rollout.Ref) *rollout.Report {
	at := slices.IndexFunc(v.Plan.Reports, func(r rollout.Report) bool { return r.Rollout == ref })
	if at < 0 {
		return &rollout.Report{Rollout: ref}
	}
	return &v.Plan.Reports[at]
}

func (v *Cluster) findVerdict(ref rollout.Ref, node string) (rollout.Verdict, bool) {
	verdicts := v.ReportOf(ref).Verdicts
	at := slices.IndexFunc(verdicts, func(verdict rollout.Verdict) bool { return verdict.Node == node })
	if at < 0 {
		return rollout.Verdict{}, false
	}
	return verdicts[at], true
}

// findTarget returns the target of a rollout on a node; nil when there is none.
func (v *Cluster) findTarget(ref rollout.Ref, node string) *rollout.Target {
	return v.targets[targetKey{ref, node}]
}

// taskLabel returns the label of a task, or its ID when it has none.
func (v *Cluster) taskLabel(ref rollout.Ref, node, task string) string {
	if t := v.findTarget(ref, node); t != nil {
		for i := range t.Tasks {
			if t.Tasks[i].ID == task && t.Tasks[i].Label != "" {
				return t.Tasks[i].Label
			}
		}
	}
	return task
}

// actionObject returns the object of an action: a pod, a task, or a name.
func (v *Cluster) actionObject(act rollout.Action) string {
	switch {
	case act.Pod != nil:
		return act.Pod.Namespace + "/" + act.Pod.Name
	case act.Task != "":
		return v.taskLabel(act.Rollout, act.Node, act.Task)
	}
	return act.Object
}

// SkyhookOf returns the Skyhook that a rollout was compiled from; nil for other kinds.
func (v *Cluster) SkyhookOf(r *rollout.Rollout) *v1alpha1.Skyhook {
	for _, hook := range v.Objects.Skyhooks {
		if r.Ref == plan.Ref(hook.Name) {
			return hook
		}
	}
	return nil
}

// listImages returns what nodes pull for the packages of a Skyhook that records digests.
func (v *Cluster) listImages(r *rollout.Rollout) []PackageImage {
	hook := v.SkyhookOf(r)
	if hook == nil {
		return nil
	}
	var out []PackageImage
	for _, image := range v.Compiled.Skyhook(hook).Images() {
		out = append(out, PackageImage(image))
	}
	return out
}

// endedNodeOp returns the NodeOp of a rollout once it has ended; otherwise nil. Nodes then have no record of it, and only
// its status remains.
func (v *Cluster) endedNodeOp(r *rollout.Rollout) *nodeopv1.NodeOp {
	for _, op := range v.Objects.NodeOps {
		if nodeop.Ref(op) == r.Ref && HasEnded(op) {
			return op
		}
	}
	return nil
}

// NodesDrainedNext returns the nodes that the plan admits for work that needs them drained.
func (v *Cluster) NodesDrainedNext() []string {
	var nodes []string
	found := map[string]bool{}
	for _, act := range v.Plan.Actions {
		if act.Verb != rollout.VerbAdmit || found[act.Node] {
			continue
		}
		if t := v.findTarget(act.Rollout, act.Node); t != nil && t.NeedsDrain() {
			found[act.Node] = true
			nodes = append(nodes, act.Node)
		}
	}
	return nodes
}

// podsToEvict returns the pods that a Skyhook has to remove from a node; false when the pods of the node are not loaded.
func (v *Cluster) podsToEvict(r *rollout.Rollout, node string) ([]rollout.Pod, bool) {
	pods, isLoaded := v.Objects.Workloads[node]
	hook := v.SkyhookOf(r)
	if !isLoaded || hook == nil {
		return nil, false
	}
	rules, err := drain.SkyhookRules(hook)
	if err != nil {
		return nil, false
	}
	return rules.On(v.Objects.Node(node)).BlockingPods(pods, v.Objects.IsOurs, nil), true
}

func hasOpenTasks(t *rollout.Target) bool {
	return slices.ContainsFunc(t.Tasks, func(k rollout.Task) bool { return k.State != rollout.StateDone })
}

// CheckName returns an error for a name that names no rollout.
func (v *Cluster) CheckName(name string) error {
	if err := v.CheckNames([]string{name}); err != nil {
		return fmt.Errorf("%w: %w", ErrNotFound, err)
	}
	return nil
}

// timeOrNil returns nil for the zero time, which stands for unknown.
func timeOrNil(t time.Time) *time.Time {
	if t.IsZero() {
		return nil
	}
	t = t.UTC().Truncate(time.Second)
	return &t
}

// OperatorSettings are the settings of the operator that decisions are made with.
type OperatorSettings struct {
	Source  string   `json:"source"`
	Changed []string `json:"changed,omitempty"` // differences from the defaults, as flags
}

// SettingsOf returns the settings with which a cluster was decided about.
func SettingsOf(cluster *dump.Cluster) OperatorSettings {
	return OperatorSettings{Source: cmp.Or(cluster.Operator.Source, "the dump"), Changed: cluster.Operator.Changed()}
}

// HasEnded reports whether a NodeOp has completed or failed.
func HasEnded(op *nodeopv1.NodeOp) bool {
	return op.Status.Phase == nodeopv1.PhaseCompleted || op.Status.Phase == nodeopv1.PhaseFailed
}
