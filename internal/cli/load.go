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
	"github.com/skyhook-k8s/skyhook/internal/cli/dump"
	"github.com/skyhook-k8s/skyhook/internal/cluster"
	"github.com/skyhook-k8s/skyhook/internal/cluster/drain"
	"github.com/skyhook-k8s/skyhook/internal/node"
)

// viewOptions say what a command decides on: the cluster or a dump, with files merged into it.
type viewOptions struct {
	from  string
	files []string
}

func (o *viewOptions) addFromFlag(cmd *cobra.Command) {
	cmd.Flags().StringVar(&o.from, "from", "", "read this `FILE`, written by dump, instead of the cluster")
}

func (o *viewOptions) addFilesFlag(cmd *cobra.Command) {
	cmd.Flags().StringSliceVarP(&o.files, "filename", "f", nil, "merge the objects of this `FILE` or folder into what is there; - for standard input; may be repeated")
}

// loadView reads everything that a decision depends on, and decides.
func loadView(ctx context.Context, f *factory, o viewOptions) (*view, error) {
	manifests := startReading(f, o.files) // in the background, because compiling the CRDs takes a while
	cluster, err := openCluster(ctx, f, o.from)
	if err != nil {
		return nil, err
	}
	if err := mergeManifests(ctx, f, cluster, manifests); err != nil {
		return nil, err
	}
	return newView(ctx, f, cluster)
}

// openCluster reads a dump, or starts reading the cluster when from is empty.
func openCluster(ctx context.Context, f *factory, from string) (*dump.Cluster, error) {
	if from != "" {
		return readDump(f, from)
	}
	c, err := f.newClient()
	if err != nil {
		return nil, err
	}
	return startReadingCluster(ctx, f, c)
}

// startReadingCluster requests the lists that every decision needs.
func startReadingCluster(ctx context.Context, f *factory, c client.Reader) (*dump.Cluster, error) {
	cluster, err := dump.New(c, time.Now())
	if err != nil {
		return nil, err
	}
	cluster.Plugin = f.version
	otherLeader := startFindingOtherLeader(ctx, c, f.namespace())
	prefetchLists(ctx, f, cluster)
	isOperator := func(d *appsv1.Deployment) bool { return len(operatorImages(d)) > 0 }
	if err := cluster.FindOperator(ctx, f.namespace(), isOperator); err != nil && !errors.Is(err, dump.ErrNoOperator) {
		f.Warn("%v", err)
	}
	if other := otherLeader(); other != nil {
		f.Warn("the operator in namespace %s waits, because one in namespace %s leads (%s): stop one of them", f.namespace(), other.Namespace, *other.Spec.HolderIdentity)
	}
	noteSettings(f, cluster)
	return cluster, nil
}

func readDump(f *factory, file string) (*dump.Cluster, error) {
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

// operatorSettings are the settings of the operator that decisions are made with.
type operatorSettings struct {
	Source  string   `json:"source"`
	Changed []string `json:"changed,omitempty"` // differences from the defaults, as flags
}

func settingsOf(cluster *dump.Cluster) operatorSettings {
	return operatorSettings{Source: cmp.Or(cluster.Operator.Source, "the dump"), Changed: cluster.Operator.Changed()}
}

func noteSettings(f *factory, cluster *dump.Cluster) {
	s := settingsOf(cluster)
	f.Note("settings of the operator from %s: %s", s.Source, cmp.Or(strings.Join(s.Changed, " "), "all defaults"))
}

// prefetchLists requests all lists that every decision needs at the same time. An error is reported by the user of the
// list.
func prefetchLists(ctx context.Context, f *factory, c *dump.Cluster) {
	f.Note("listing nodes, Skyhooks, DeploymentPolicies, NodeOps, and our pods and ConfigMaps in namespace %s", f.namespace())
	inNamespace := client.InNamespace(f.namespace())
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

// newView compiles the objects of a cluster, and decides.
func newView(ctx context.Context, f *factory, c *dump.Cluster) (*view, error) {
	return newViewAfter(ctx, f, c, nil)
}

// newViewAfter is newView with the nodes of an earlier view: those that did not change are not parsed again, and take memory once.
func newViewAfter(ctx context.Context, f *factory, c *dump.Cluster, parsed []*node.Node) (*view, error) {
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
	v := &view{dump: c}
	var err error
	if v.objects, err = backend.Observe(ctx); err != nil {
		if isUnknownKind(err) || meta.IsNoMatchError(err) {
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
	if v.objects.Err != nil {
		f.Warn("%v", v.objects.Err)
	}
	if len(v.objects.Workloads) > 0 {
		v.loadBudgets(ctx, f)
		for uid, budget := range v.budgets {
			if v.objects.Refusals == nil {
				v.objects.Refusals = map[types.UID]drain.Refusal{}
			}
			v.objects.Refusals[uid] = drain.Refusal{Why: budget + " allows no disruption now", RetryAt: c.Taken.Add(time.Minute)}
		}
	}
	v.decide()
	return v, v.loadLooked(ctx, f)
}

// maxLookRounds bounds how often the pods of further nodes are loaded that the plan asks for.
const maxLookRounds = 10

// loadLooked loads the pods on nodes that the plan asks for, because protected pods are waited for before a node is cordoned,
// and decides again until it asks for no more.
func (v *view) loadLooked(ctx context.Context, f *factory) error {
	for range maxLookRounds {
		isLoaded := func(node string) bool { return v.objects.Workloads[node] != nil }
		missing := slices.DeleteFunc(slices.Clone(v.plan.Look), isLoaded)
		if len(missing) == 0 {
			return nil
		}
		if err := v.loadPods(ctx, f, missing); err != nil {
			return err
		}
		v.decide()
	}
	return nil
}

// loadBudgets finds the loaded pods that a disruption budget protects now.
func (v *view) loadBudgets(ctx context.Context, f *factory) {
	list := &policyv1.PodDisruptionBudgetList{}
	if err := v.dump.List(ctx, list); err != nil {
		f.Warn("listing PodDisruptionBudgets: %v", err)
		return
	}
	v.budgets = drain.FindForbidden(list.Items, v.objects.Workloads)
}

// loadNextPods loads the pods on the nodes that are drained next, and their disruption budgets.
func (v *view) loadNextPods(ctx context.Context, f *factory) error {
	var nodes []string
	for _, node := range v.nodesDrainedNext() {
		if _, isLoaded := v.objects.Workloads[node]; !isLoaded {
			nodes = append(nodes, node)
		}
	}
	if len(nodes) == 0 {
		return nil
	}
	return v.loadPods(ctx, f, nodes)
}

// loadPods loads the pods on nodes, and their disruption budgets.
func (v *view) loadPods(ctx context.Context, f *factory, nodes []string) error {
	pods, err := v.dump.On(ctx, nodes)
	if err != nil {
		return err
	}
	if v.objects.Workloads == nil {
		v.objects.Workloads = map[string][]*corev1.Pod{}
	}
	for node, found := range pods {
		v.objects.Workloads[node] = found
	}
	v.loadBudgets(ctx, f)
	return nil
}
