// SPDX-FileCopyrightText: The Skyhook authors
// SPDX-License-Identifier: Apache-2.0

package testenv

import (
	"context"
	"strings"
	"sync"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/kubernetes"
	toolscache "k8s.io/client-go/tools/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// Kubelet plays the kubelets of all nodes: it walks pods of Skyhooks through their init containers, says that other
// pods run, and lets deleted pods go.
type Kubelet struct {
	w    *World
	stop func()

	mu    sync.Mutex
	judge func(*corev1.Pod) Fate
	began []string // "node package stage" of every pod, as it began
	most  int
}

// Fate is what becomes of a pod.
type Fate string

// The fates of a pod of a Skyhook; Stays is for any pod that does not go when it is deleted.
const (
	Ends    Fate = ""
	Fails   Fate = "its stage exits with 1"
	Hangs   Fate = "its stage begins and never ends"
	Rejects Fate = "the kubelet does not take it"
	Stays   Fate = "it does not go when it is deleted"
)

// Kubelet starts a kubelet for all nodes. It ends with the test.
func (w *World) Kubelet() *Kubelet {
	w.Helper()
	c, err := kubernetes.NewForConfig(w.Config)
	w.Must(err)
	ctx, cancel := context.WithCancel(context.Background())
	k := &Kubelet{w: w, judge: func(*corev1.Pod) Fate { return Ends }}
	pods := c.CoreV1().Pods(metav1.NamespaceAll)
	_, follow := toolscache.NewInformerWithOptions(toolscache.InformerOptions{
		ListerWatcher: &toolscache.ListWatch{
			ListWithContextFunc: func(ctx context.Context, o metav1.ListOptions) (runtime.Object, error) { return pods.List(ctx, o) },
			WatchFuncWithContext: func(ctx context.Context, o metav1.ListOptions) (watch.Interface, error) {
				return pods.Watch(ctx, o)
			},
		},
		ObjectType: &corev1.Pod{},
		Handler: toolscache.ResourceEventHandlerFuncs{
			AddFunc:    func(o any) { k.tend(ctx, o) },
			UpdateFunc: func(_, o any) { k.tend(ctx, o) },
		},
	})
	var done sync.WaitGroup
	done.Add(1)
	go func() {
		defer done.Done()
		follow.RunWithContext(ctx)
	}()
	k.stop = func() { cancel(); done.Wait() }
	w.Cleanup(k.stop)
	return k
}

// Rule changes what becomes of pods that begin from now on.
func (k *Kubelet) Rule(judge func(*corev1.Pod) Fate) {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.judge = judge
}

// History lists the pods of Skyhooks that began on a node: "package-version stage".
func (k *Kubelet) History(node string) []string {
	k.mu.Lock()
	defer k.mu.Unlock()
	var out []string
	for _, b := range k.began {
		if rest, on := strings.CutPrefix(b, node+" "); on {
			out = append(out, rest)
		}
	}
	return out
}

// Most is how many nodes were in flight at the same time, as they record it, whenever a pod of a Skyhook began.
func (k *Kubelet) Most() int {
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.most
}

// tend moves a pod one step.
func (k *Kubelet) tend(ctx context.Context, o any) {
	p, ok := o.(*corev1.Pod)
	if !ok || p.Spec.NodeName == "" {
		return
	}
	k.mu.Lock()
	fate := k.judge(p)
	k.mu.Unlock()
	switch {
	case p.DeletionTimestamp != nil:
		if fate != Stays {
			now := int64(0)
			_ = k.w.Client.Delete(ctx, p, &client.DeleteOptions{GracePeriodSeconds: &now, Preconditions: &metav1.Preconditions{UID: &p.UID}}) // it may be gone
		}
	case p.Status.Phase != corev1.PodPending || len(p.Status.InitContainerStatuses) > 0:
	default:
		q := p.DeepCopy()
		q.Status.Phase = corev1.PodRunning
		if k.ours(p) {
			k.begin(p)
			k.walk(ctx, q, fate)
		} else {
			q.Status.Conditions = []corev1.PodCondition{{Type: corev1.PodReady, Status: corev1.ConditionTrue}}
		}
		_ = k.w.Client.Status().Patch(ctx, q, client.MergeFrom(p)) // it may be gone
	}
}

func (k *Kubelet) ours(p *corev1.Pod) bool { return p.Namespace == k.w.Namespace }

// begin notes that a pod of a Skyhook begins. Those of NodeOps, and those that look whether a node runs Kairos, may be there too.
func (k *Kubelet) begin(p *corev1.Pod) {
	if p.Labels["skyhook.nvidia.com/name"] == "" {
		return
	}
	admitted := k.w.Admitted()
	k.mu.Lock()
	defer k.mu.Unlock()
	k.began = append(k.began, p.Spec.NodeName+" "+p.Labels["skyhook.nvidia.com/package"]+" "+Stage(p))
	k.most = max(k.most, admitted)
}

// walk writes how the init containers of a pod went.
func (k *Kubelet) walk(ctx context.Context, p *corev1.Pod, fate Fate) {
	if fate == Rejects {
		p.Status.Phase, p.Status.Reason, p.Status.Message = corev1.PodFailed, "OutOfcpu", "Pod was rejected: Node didn't have enough resource: cpu"
		return
	}
	for i, c := range p.Spec.InitContainers {
		s := corev1.ContainerStatus{Name: c.Name, Image: c.Image, State: ended(0)}
		works := i == 1 || c.Name == "interrupt"
		if works && fate == Hangs {
			s.State = corev1.ContainerState{Running: &corev1.ContainerStateRunning{StartedAt: metav1.Now()}}
		}
		if works && fate == Fails {
			s.State = ended(1)
		}
		if c.Name == "interrupt" && fate == Ends && strings.Contains(p.Name, "-reboot-") {
			k.reboot(ctx, p.Spec.NodeName)
		}
		p.Status.InitContainerStatuses = append(p.Status.InitContainerStatuses, s)
		if works && fate != Ends && fate != Stays {
			p.Status.Phase = corev1.PodPending
			return
		}
	}
}

func ended(code int32) corev1.ContainerState {
	reason := "Completed"
	if code != 0 {
		reason = "Error"
	}
	return corev1.ContainerState{Terminated: &corev1.ContainerStateTerminated{ExitCode: code, Reason: reason, FinishedAt: metav1.Now()}}
}

// reboot gives a node another boot.
func (k *Kubelet) reboot(ctx context.Context, node string) {
	n := &corev1.Node{}
	if err := k.w.Client.Get(ctx, client.ObjectKey{Name: node}, n); err != nil {
		return // the node is gone
	}
	before := n.DeepCopy()
	n.Status.NodeInfo.BootID += "+"
	_ = k.w.Client.Status().Patch(ctx, n, client.MergeFrom(before)) // the node may be gone
}

// Stage is what a pod of a Skyhook does, read off the name of its second init container.
func Stage(p *corev1.Pod) string {
	if len(p.Spec.InitContainers) < 2 {
		return "interrupt"
	}
	copies := strings.TrimSuffix(p.Spec.InitContainers[0].Name, "-init")
	return strings.TrimPrefix(p.Spec.InitContainers[1].Name, copies+"-")
}

// Settle does once what kubelets do: pods of Skyhooks that began end well, all others run, and deleted pods are gone. It
// is for tests that want to take every step themselves, and have no Kubelet.
func (w *World) Settle() {
	w.Helper()
	k := &Kubelet{w: w, judge: func(*corev1.Pod) Fate { return Ends }}
	l := &corev1.PodList{}
	w.Must(w.Client.List(context.Background(), l))
	for i := range l.Items {
		k.tend(context.Background(), &l.Items[i])
	}
}
