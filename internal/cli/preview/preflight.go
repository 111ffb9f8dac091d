// SPDX-FileCopyrightText: The Skyhook authors
// SPDX-License-Identifier: Apache-2.0

package preview

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/rand"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/skyhook-k8s/skyhook/api/skyhook/v1alpha1"
	"github.com/skyhook-k8s/skyhook/internal/cli/session"
	"github.com/skyhook-k8s/skyhook/internal/node"
	"github.com/skyhook-k8s/skyhook/internal/skyhook"
	"github.com/skyhook-k8s/skyhook/internal/skyhook/podstate"
	"github.com/skyhook-k8s/skyhook/internal/view"
)

// Limits of --preflight: nodes that are asked at the same time, how long one may take, and how often it is looked.
const (
	askedAtOnce = 20
	askTimeout  = 8 * time.Minute
	askPoll     = time.Second
)

// asker asks the packages of rollouts what nodes need, as the operator would before their turn.
type asker struct {
	*session.Factory
	view   *view.Cluster
	client client.Client

	mu    sync.Mutex
	edits map[string]node.Edit // by node
}

// askNodes asks the packages of the named Skyhooks on as many nodes as given, 0 for all, and returns what is there once their answers are
// known. Nothing of that is written.
func askNodes(ctx context.Context, f *session.Factory, v *view.Cluster, args []string, most int) (*view.Cluster, error) {
	if !v.Dump.Live() {
		return nil, errors.New("--preflight asks the nodes of a cluster: leave --from out")
	}
	c, err := f.NewClient()
	if err != nil {
		return nil, err
	}
	a := &asker{Factory: f, view: v, client: c, edits: map[string]node.Edit{}}
	group, ctx := errgroup.WithContext(ctx)
	group.SetLimit(askedAtOnce)
	asked := 0
	for _, r := range v.SelectRollouts(args) {
		hook := v.SkyhookOf(r)
		if hook == nil {
			continue
		}
		by := v.Compiled.Skyhook(hook)
		nodes := by.NodesToAsk()
		if most > 0 {
			nodes = nodes[:min(len(nodes), most)]
		}
		asked += len(nodes)
		for _, n := range nodes {
			group.Go(func() error { return a.ask(ctx, by, n) })
		}
	}
	f.Note("asking on %d nodes what they need", asked)
	if err := group.Wait(); err != nil {
		return nil, err
	}
	return a.viewAfter(ctx)
}

// ask asks the packages of one Skyhook on a node.
func (a *asker) ask(ctx context.Context, by *skyhook.Compiled, n *node.Node) error {
	pod := by.CheckPod(n)
	if pod == nil {
		return nil
	}
	own := newOwnPod(pod, by)
	err := a.WithPod(ctx, a.client, own, askTimeout, func(ctx context.Context) error { return a.awaitAnswers(ctx, own) })
	switch {
	case own.UID == "":
		return err
	case err != nil: // the plan has all of its work on this node
		a.Warn("%v", err)
		return nil
	}
	pod.Status = own.Status
	a.mu.Lock()
	defer a.mu.Unlock()
	edit, err := by.RecordAnswers(n.With(a.edits[n.Name]), pod)
	a.edits[n.Name] = a.edits[n.Name].Plus(edit)
	return err
}

// newOwnPod returns the pod of a preflight as one of the plugin: the operator does not know it, and what may not be applied yet is in the
// pod itself.
func newOwnPod(pod *corev1.Pod, by *skyhook.Compiled) *corev1.Pod {
	own := pod.DeepCopy()
	own.Name = "plan-" + own.Name[:min(len(own.Name), 50)] + "-" + rand.String(5)
	own.OwnerReferences, own.Labels, own.Annotations = nil, map[string]string{v1alpha1.Group + "/plan": "True"}, map[string]string{}
	for i := range own.Spec.Volumes {
		v := &own.Spec.Volumes[i]
		if v.ConfigMap == nil {
			continue
		}
		files := findFiles(by, v.ConfigMap.Name)
		source := &corev1.DownwardAPIVolumeSource{}
		for at, name := range slices.Sorted(maps.Keys(files)) {
			key := fmt.Sprintf("%splan-%d-%d", podstate.PrefixFile, i, at)
			own.Annotations[key] = files[name]
			source.Items = append(source.Items, corev1.DownwardAPIVolumeFile{
				Path: name, FieldRef: &corev1.ObjectFieldSelector{APIVersion: "v1", FieldPath: "metadata.annotations['" + key + "']"},
			})
		}
		v.VolumeSource = corev1.VolumeSource{DownwardAPI: source}
	}
	return own
}

// findFiles returns what the ConfigMap of a package would have.
func findFiles(by *skyhook.Compiled, name string) map[string]string {
	for _, m := range by.ConfigMaps() {
		if m.Name == name {
			return m.Data
		}
	}
	return nil
}

// awaitAnswers waits until all containers of a pod have ended.
func (a *asker) awaitAnswers(ctx context.Context, p *corev1.Pod) error {
	for {
		if err := a.client.Get(ctx, client.ObjectKeyFromObject(p), p); err != nil && ctx.Err() == nil {
			return err
		}
		if p.Status.Phase == corev1.PodSucceeded || p.Status.Phase == corev1.PodFailed {
			return nil
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("it did not end within %s: %s", askTimeout, describeWaiting(p))
		case <-time.After(askPoll):
		}
	}
}

// describeWaiting says what the containers of a pod wait for.
func describeWaiting(p *corev1.Pod) string {
	for _, s := range append(p.Status.InitContainerStatuses, p.Status.ContainerStatuses...) {
		if w := s.State.Waiting; w != nil {
			return strings.TrimSuffix(w.Reason+": "+w.Message, ": ")
		}
	}
	return "its kubelet has not begun"
}

// viewAfter returns what is there after the answers are recorded.
func (a *asker) viewAfter(ctx context.Context) (*view.Cluster, error) {
	for name, edit := range a.edits {
		n := &corev1.Node{}
		if err := a.view.Dump.Find(ctx, client.ObjectKey{Name: name}, n); err != nil {
			return nil, err
		}
		n = n.DeepCopy()
		n.ResourceVersion += "-planned"
		for key, value := range edit.Annotations {
			if value != nil {
				metav1.SetMetaDataAnnotation(&n.ObjectMeta, key, *value)
			}
		}
		if err := a.view.Dump.Put(n); err != nil {
			return nil, err
		}
	}
	return session.NewView(ctx, a.Factory, a.view.Dump)
}
