// SPDX-FileCopyrightText: The Skyhook authors
// SPDX-License-Identifier: Apache-2.0

package session

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/spf13/cobra"
	appsv1 "k8s.io/api/apps/v1"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	nodeopv1 "github.com/skyhook-k8s/skyhook/api/nodeop/v1alpha1"
	"github.com/skyhook-k8s/skyhook/api/skyhook/v1alpha1"
	"github.com/skyhook-k8s/skyhook/internal/cluster"
	"github.com/skyhook-k8s/skyhook/internal/cluster/drain"
	"github.com/skyhook-k8s/skyhook/internal/dump"
	"github.com/skyhook-k8s/skyhook/internal/node"
	"github.com/skyhook-k8s/skyhook/internal/view"
)

// ViewOptions say what a command decides on: the cluster or a dump, with files merged into it.
type ViewOptions struct {
	From  string
	Files []string
}

// AddFromFlag adds --from.
func (o *ViewOptions) AddFromFlag(cmd *cobra.Command) {
	cmd.Flags().StringVar(&o.From, "from", "", "read this `FILE`, written by dump, instead of the cluster")
}

// AddFilesFlag adds --filename.
func (o *ViewOptions) AddFilesFlag(cmd *cobra.Command) {
	cmd.Flags().StringSliceVarP(&o.Files, "filename", "f", nil, "merge the objects of this `FILE` or folder into what is there; - for standard input; may be repeated")
}

// LoadView reads everything that a decision depends on, and decides.
func LoadView(ctx context.Context, f *Factory, o ViewOptions) (*view.Cluster, error) {
	manifests := startReading(f, o.Files) // in the background, because compiling the CRDs takes a while
	cluster, err := OpenCluster(ctx, f, o.From)
	if err != nil {
		return nil, err
	}
	if err := MergeManifests(ctx, f, cluster, manifests); err != nil {
		return nil, err
	}
	return NewView(ctx, f, cluster)
}

// OpenCluster reads a dump, or starts reading the cluster when from is empty.
func OpenCluster(ctx context.Context, f *Factory, from string) (*dump.Cluster, error) {
	if from != "" {
		return readDump(f, from)
	}
	c, err := f.NewClient()
	if err != nil {
		return nil, err
	}
	return StartReadingCluster(ctx, f, c)
}

// StartReadingCluster requests the lists that every decision needs.
func StartReadingCluster(ctx context.Context, f *Factory, c client.Reader) (*dump.Cluster, error) {
	cluster, err := dump.New(c, time.Now())
	if err != nil {
		return nil, err
	}
	cluster.Plugin = f.Version
	otherLeaders := f.startFindingOtherLeaders(ctx, c, f.Namespace(ctx))
	prefetchLists(ctx, f, cluster)
	isOperator := func(d *appsv1.Deployment) bool { return len(OperatorImages(d)) > 0 }
	if err := cluster.FindOperator(ctx, f.Namespace(ctx), isOperator); err != nil && !errors.Is(err, dump.ErrNoOperator) {
		f.Warn("%v", err)
	}
	if others := otherLeaders(); len(others) > 0 {
		f.Warn("the operator in namespace %s waits, because one in namespace %s leads (%s): stop one of them", f.Namespace(ctx), others[0].Namespace, *others[0].Spec.HolderIdentity)
	}
	noteSettings(f, cluster)
	return cluster, nil
}

func readDump(f *Factory, file string) (*dump.Cluster, error) {
	in, err := os.Open(file)
	if err != nil {
		return nil, fmt.Errorf("reading the dump: %w", err)
	}
	defer in.Close()
	cluster, err := dump.Read(in)
	if err != nil {
		return nil, fmt.Errorf("reading %s: %w", file, err)
	}
	noteSettings(f, cluster)
	return cluster, nil
}

func noteSettings(f *Factory, cluster *dump.Cluster) {
	s := view.SettingsOf(cluster)
	f.Note("settings of the operator from %s: %s", s.Source, cmp.Or(strings.Join(s.Changed, " "), "all defaults"))
}

// prefetchLists requests all lists that every decision needs at the same time. An error is reported by the user of the
// list.
func prefetchLists(ctx context.Context, f *Factory, c *dump.Cluster) {
	f.Note("listing nodes, Skyhooks, DeploymentPolicies, NodeOps, and our pods and ConfigMaps in namespace %s", f.Namespace(ctx))
	inNamespace := client.InNamespace(f.Namespace(ctx))
	ofNodeOps := client.MatchingLabelsSelector{Selector: cluster.NodeOpSelector}
	var group sync.WaitGroup
	list := func(into client.ObjectList, options ...client.ListOption) {
		group.Go(func() {
			if err := c.List(ctx, into, options...); err != nil {
				f.Note("%v", err)
			}
		})
	}
	list(&corev1.NodeList{})
	list(&v1alpha1.SkyhookList{})
	list(&v1alpha1.DeploymentPolicyList{})
	list(&nodeopv1.NodeOpList{})
	list(&nodeopv1.NodeOpUpgradeList{})
	list(&corev1.PodList{}, inNamespace, client.MatchingLabelsSelector{Selector: cluster.PodSelector})
	list(&corev1.ConfigMapList{}, inNamespace, client.MatchingLabelsSelector{Selector: cluster.ConfigMapSelector})
	list(&batchv1.JobList{}, ofNodeOps)
	list(&corev1.PodList{}, ofNodeOps)
	list(&appsv1.DeploymentList{}, inNamespace)
	group.Wait()
}

// NewView compiles the objects of a cluster, and decides.
func NewView(ctx context.Context, f *Factory, c *dump.Cluster) (*view.Cluster, error) {
	return NewViewAfter(ctx, f, c, nil)
}

// NewViewAfter is newView with the nodes of an earlier view: those that did not change are not parsed again, and take memory once.
func NewViewAfter(ctx context.Context, f *Factory, c *dump.Cluster, parsed []*node.Node) (*view.Cluster, error) {
	var objects client.Reader // of kinds that a dump does not have
	if c.Live() {
		reader, err := f.newObjectReader()
		if err != nil {
			return nil, err
		}
		objects = reader
	}
	backend := cluster.New(cluster.Options{
		Config: c.Operator.Skyhook(""), NodeOps: c.Operator.NodeOps(), Self: c.Operator.Node, Live: c, Objects: objects, Workloads: c, Parsed: parsed,
		Clock: func() time.Time { return c.Taken },
	})
	v := &view.Cluster{Dump: c}
	if !f.allNamespaces {
		v.Namespace = *f.KubeFlags.Namespace
	}
	var err error
	if v.Objects, err = backend.Observe(ctx); err != nil {
		if IsUnknownKind(err) || meta.IsNoMatchError(err) {
			return nil, errNotInstalled
		}
		return nil, err
	}
	if parsed != nil {
		c.Forget() // the nodes as they were listed take as much memory as what is compiled from them
	}
	if absent := c.Absent(); len(absent) > 0 {
		f.Warn("this cluster does not know %s: the output has nothing about them, and what needs them waits until their CRDs are installed", strings.Join(absent, ", "))
	}
	if v.Objects.Err != nil {
		f.Warn("%v", v.Objects.Err)
	}
	if len(v.Objects.Workloads) > 0 {
		loadBudgets(ctx, f, v)
		for uid, budget := range v.Budgets {
			if v.Objects.Refusals == nil {
				v.Objects.Refusals = map[types.UID]drain.Refusal{}
			}
			v.Objects.Refusals[uid] = drain.Refusal{Why: budget + " allows no disruption now", RetryAt: c.Taken.Add(time.Minute)}
		}
	}
	v.Decide()
	return v, loadLooked(ctx, f, v)
}

// maxLookRounds bounds how often the pods of further nodes are loaded that the plan asks for.
const maxLookRounds = 10

// loadLooked loads the pods on nodes that the plan asks for, because protected pods are waited for before a node is cordoned,
// and decides again until it asks for no more.
func loadLooked(ctx context.Context, f *Factory, v *view.Cluster) error {
	for range maxLookRounds {
		isLoaded := func(node string) bool { return v.Objects.Workloads[node] != nil }
		missing := slices.DeleteFunc(slices.Clone(v.Plan.Look), isLoaded)
		if len(missing) == 0 {
			return nil
		}
		if err := loadPods(ctx, f, v, missing); err != nil {
			return err
		}
		v.Decide()
	}
	return nil
}

// loadBudgets finds the loaded pods that a disruption budget protects now.
func loadBudgets(ctx context.Context, f *Factory, v *view.Cluster) {
	list := &policyv1.PodDisruptionBudgetList{}
	if err := v.Dump.List(ctx, list); err != nil {
		f.Warn("listing PodDisruptionBudgets: %v", err)
		return
	}
	v.Budgets = drain.FindForbidden(list.Items, v.Objects.Workloads)
}

// LoadNextPods loads the pods on the nodes that are drained next, and their disruption budgets.
func LoadNextPods(ctx context.Context, f *Factory, v *view.Cluster) error {
	var nodes []string
	for _, node := range v.NodesDrainedNext() {
		if _, isLoaded := v.Objects.Workloads[node]; !isLoaded {
			nodes = append(nodes, node)
		}
	}
	if len(nodes) == 0 {
		return nil
	}
	return loadPods(ctx, f, v, nodes)
}

// loadPods loads the pods on nodes, and their disruption budgets.
func loadPods(ctx context.Context, f *Factory, v *view.Cluster, nodes []string) error {
	pods, err := v.Dump.On(ctx, nodes)
	if err != nil {
		return err
	}
	if v.Objects.Workloads == nil {
		v.Objects.Workloads = map[string][]*corev1.Pod{}
	}
	for node, found := range pods {
		v.Objects.Workloads[node] = found
	}
	loadBudgets(ctx, f, v)
	return nil
}
