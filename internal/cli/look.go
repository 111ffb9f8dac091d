// SPDX-FileCopyrightText: The Skyhook authors
// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"
	appsv1 "k8s.io/api/apps/v1"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	nodeopv1 "github.com/skyhook-k8s/skyhook/api/nodeop/v1alpha1"
	"github.com/skyhook-k8s/skyhook/api/skyhook/v1alpha1"
	"github.com/skyhook-k8s/skyhook/internal/cli/dump"
	"github.com/skyhook-k8s/skyhook/internal/cluster"
	"github.com/skyhook-k8s/skyhook/internal/cluster/drain"
	"github.com/skyhook-k8s/skyhook/internal/rollout"
	"github.com/skyhook-k8s/skyhook/internal/skyhook"
)

// viewOptions is where a command looks: at the cluster, or at a dump of one, with files laid over it.
type viewOptions struct {
	from  string
	files []string
}

func (s *viewOptions) addFlags(cmd *cobra.Command) {
	cmd.Flags().StringVar(&s.from, "from", "", "look at this `FILE` made by dump, and at no cluster")
}

// targetKey is a node of a rollout.
type targetKey struct {
	rollout rollout.Ref
	node    string
}

// view is what was seen, and what the engine makes of it.
type view struct {
	dump        *dump.Cluster
	objects     *cluster.Objects
	snapshot    rollout.Snapshot
	problems    []cluster.Problem
	plan        rollout.Plan
	targetIndex map[targetKey]int    // by rollout and node: where the target is
	budgets     map[types.UID]string // by pod: the disruption budget that allows no eviction now
}

// loadView sees everything that a decision depends on, and decides.
func (a *factory) loadView(ctx context.Context, from viewOptions) (*view, error) {
	files := a.startReading(from.files) // meanwhile: their rules take a while to compile
	p, err := a.openCluster(ctx, from.from)
	if err != nil {
		return nil, err
	}
	if err := a.mergeManifests(ctx, p, files); err != nil {
		return nil, err
	}
	return a.newView(ctx, p)
}

// openCluster reads a dump, or begins to look at the cluster.
func (a *factory) openCluster(ctx context.Context, from string) (*dump.Cluster, error) {
	if from != "" {
		in, err := os.Open(from)
		if err != nil {
			return nil, fmt.Errorf("reading the dump: %w", err)
		}
		defer in.Close()
		p, err := dump.Read(in)
		if err != nil {
			return nil, fmt.Errorf("reading %s: %w", from, err)
		}
		a.noteSettings(p)
		return p, nil
	}
	c, err := a.newClient()
	if err != nil {
		return nil, err
	}
	p, err := dump.New(c, time.Now())
	if err != nil {
		return nil, err
	}
	p.Plugin = a.version
	a.prefetch(ctx, p)
	ours := func(d *appsv1.Deployment) bool { return len(operatorImages(d)) > 0 }
	if err := p.FindOperator(ctx, a.namespace(), ours); err != nil && !errors.Is(err, dump.ErrNoOperator) {
		a.Warn("%v", err)
	}
	a.noteSettings(p)
	return p, nil
}

// operatorSettings say with which settings of the operator decisions are made.
type operatorSettings struct {
	Source  string   `json:"source"`
	Changed []string `json:"changed,omitempty"` // those that differ from their defaults, as flags
}

func settingsOf(p *dump.Cluster) operatorSettings {
	return operatorSettings{Source: cmp.Or(p.Operator.Source, "the dump"), Changed: p.Operator.Changed()}
}

func (a *factory) noteSettings(p *dump.Cluster) {
	s := settingsOf(p)
	a.Note("settings of the operator from %s: %s", s.Source, cmp.Or(strings.Join(s.Changed, " "), "all defaults"))
}

// prefetch asks for the lists that are needed in any case, all at once. What goes wrong is told by who needs the list.
func (a *factory) prefetch(ctx context.Context, p *dump.Cluster) {
	a.Note("listing nodes, Skyhooks, DeploymentPolicies, NodeOps, and the pods and ConfigMaps of ours in namespace %s", a.namespace())
	ours := client.InNamespace(a.namespace())
	done := make(chan struct{})
	lists := []struct {
		list    client.ObjectList
		options []client.ListOption
	}{
		{&corev1.NodeList{}, nil}, {&v1alpha1.SkyhookList{}, nil}, {&v1alpha1.DeploymentPolicyList{}, nil}, {&nodeopv1.NodeOpList{}, nil}, {&nodeopv1.NodeOpUpgradeList{}, nil},
		{&corev1.PodList{}, []client.ListOption{ours, client.MatchingLabelsSelector{Selector: cluster.PodSelector}}},
		{&corev1.ConfigMapList{}, []client.ListOption{ours, client.MatchingLabelsSelector{Selector: cluster.ConfigMapSelector}}},
		{&batchv1.JobList{}, []client.ListOption{client.MatchingLabelsSelector{Selector: cluster.NodeOpSelector}}},
		{&corev1.PodList{}, []client.ListOption{client.MatchingLabelsSelector{Selector: cluster.NodeOpSelector}}},
		{&appsv1.DeploymentList{}, []client.ListOption{ours}},
	}
	for _, l := range lists {
		go func() {
			defer func() { done <- struct{}{} }()
			if err := p.List(ctx, l.list, l.options...); err != nil {
				a.Note("%v", err)
			}
		}()
	}
	for range lists {
		<-done
	}
}

// newView compiles what a picture shows, and decides.
func (a *factory) newView(ctx context.Context, p *dump.Cluster) (*view, error) {
	s := &view{dump: p}
	back := cluster.New(cluster.Options{
		Config: p.Operator.Skyhook(""), NodeOps: p.Operator.NodeOps(), Self: p.Operator.Node, Live: p, Workloads: p, Clock: func() time.Time { return p.Taken },
	})
	var err error
	if s.objects, err = back.Observe(ctx); err != nil {
		if isUnknownKind(err) || meta.IsNoMatchError(err) {
			return nil, errNotInstalled
		}
		return nil, err
	}
	if absent := p.Absent(); len(absent) > 0 {
		a.Warn("this cluster does not know %s: nothing is said of them, and what needs them waits until their CRDs are installed", strings.Join(absent, ", "))
	}
	if s.objects.Err != nil {
		a.Warn("%v", s.objects.Err)
	}
	if len(s.objects.Workloads) > 0 {
		s.loadBudgets(ctx, a)
		for uid, budget := range s.budgets {
			if s.objects.Refusals == nil {
				s.objects.Refusals = map[types.UID]drain.Refusal{}
			}
			s.objects.Refusals[uid] = drain.Refusal{Why: budget + " allows no disruption now", RetryAt: p.Taken.Add(time.Minute)}
		}
	}
	s.decide()
	return s, nil
}

func (s *view) decide() {
	s.snapshot, s.problems = cluster.Snapshot(s.objects, s.dump.Taken)
	s.plan = rollout.Decide(s.snapshot)
	s.targetIndex = map[targetKey]int{}
	for i := range s.snapshot.Rollouts {
		r := &s.snapshot.Rollouts[i]
		for j := range r.Targets {
			s.targetIndex[targetKey{r.Ref, r.Targets[j].Node}] = j
		}
	}
}

// loadBudgets finds the pods in sight that a disruption budget protects now.
func (s *view) loadBudgets(ctx context.Context, a *factory) {
	list := &policyv1.PodDisruptionBudgetList{}
	if err := s.dump.List(ctx, list); err != nil {
		a.Warn("listing PodDisruptionBudgets: %v", err)
		return
	}
	s.budgets = map[types.UID]string{}
	for i := range list.Items {
		b := &list.Items[i]
		selector, err := metav1.LabelSelectorAsSelector(b.Spec.Selector)
		if err != nil || b.Status.DisruptionsAllowed > 0 {
			continue
		}
		for _, pods := range s.objects.Workloads {
			for _, p := range pods {
				if p.Namespace == b.Namespace && selector.Matches(labels.Set(p.Labels)) {
					s.budgets[p.UID] = "PodDisruptionBudget " + b.Namespace + "/" + b.Name
				}
			}
		}
	}
}

// findRollout finds a rollout of the snapshot with its report, by an argument such as demo, skyhook/demo or nodeop/NAME.
func (s *view) findRollout(arg string) (*rollout.Rollout, *rollout.Report, bool) {
	for i := range s.snapshot.Rollouts {
		r := &s.snapshot.Rollouts[i]
		if matchesRollout(r, arg) {
			return r, s.reportOf(r.Ref), true
		}
	}
	return nil, nil, false
}

// matchesRollout says that an argument names a rollout: KIND/NAME in any case, or the bare name of a Skyhook.
func matchesRollout(r *rollout.Rollout, arg string) bool { return matchesName(r.Ref, arg) }

func matchesName(of rollout.Ref, arg string) bool {
	if of.Kind == skyhook.Kind && arg == of.Name || strings.EqualFold(arg, of.String()) {
		return true
	}
	wanted, rest, ok := strings.Cut(arg, "/")
	if !ok || !strings.EqualFold(strings.TrimSuffix(strings.ToLower(wanted), "s"), of.Kind) {
		return false
	}
	return rest == of.Path() || rest == of.Name
}

// isSelected says that one of the arguments names a rollout, or that there are none.
func isSelected(args []string, r *rollout.Rollout) bool {
	return len(args) == 0 || slices.ContainsFunc(args, func(arg string) bool { return matchesRollout(r, arg) })
}

func (s *view) reportOf(of rollout.Ref) *rollout.Report {
	at := slices.IndexFunc(s.plan.Reports, func(r rollout.Report) bool { return r.Rollout == of })
	if at < 0 {
		return &rollout.Report{Rollout: of}
	}
	return &s.plan.Reports[at]
}

// findGroup finds a group of the snapshot, and what the plan says of it.
func (s *view) findGroup(ref rollout.GroupRef) (*rollout.Group, rollout.GroupReport) {
	var g *rollout.Group
	for i := range s.snapshot.Groups {
		if s.snapshot.Groups[i].Ref == ref {
			g = &s.snapshot.Groups[i]
		}
	}
	for _, r := range s.plan.Groups {
		if r.Group == ref {
			return g, r
		}
	}
	return g, rollout.GroupReport{Group: ref}
}

// skyhookOf is the Skyhook that a rollout was compiled from; nil for other kinds.
func (s *view) skyhookOf(r *rollout.Rollout) *v1alpha1.Skyhook {
	for _, hook := range s.objects.Skyhooks {
		if r.Ref == skyhook.Ref(hook.Name) {
			return hook
		}
	}
	return nil
}

// shortName is a rollout's name as people type it.
func shortName(of rollout.Ref) string {
	if of.Kind == skyhook.Kind {
		return of.Path()
	}
	return strings.ToLower(of.Kind) + "/" + of.Path()
}

// errNoObjects says that no object of ours is there.
var errNoObjects = errors.New("there is no Skyhook and no NodeOp")
