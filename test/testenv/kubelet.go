// SPDX-FileCopyrightText: The Skyhook authors
// SPDX-License-Identifier: Apache-2.0

package testenv

import (
	"context"
	"slices"
	"strings"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/client-go/kubernetes"
	toolscache "k8s.io/client-go/tools/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/skyhook-k8s/skyhook/internal/pack"
	"github.com/skyhook-k8s/skyhook/internal/skyhook/podstate"
	"github.com/skyhook-k8s/skyhook/test/kubelet"
)

// Kubelet is a fake kubelet for all nodes: it completes the init containers of pods of Skyhooks, reports other pods as
// running, and removes deleted pods.
type Kubelet struct {
	env  *Env
	stop func()

	mu           sync.Mutex
	outcomeOf    func(*corev1.Pod) Outcome
	imageIDOf    func(image string) string
	pulled       []string // "node image" of the first container of every pod of a Skyhook
	started      []string // "node package stage" of every pod
	mostAdmitted int
}

// Outcome is how a pod ends.
type Outcome string

// Outcomes of pods of Skyhooks; StuckTerminating applies to every pod.
const (
	Succeeds         Outcome = ""
	Fails            Outcome = "its stage exits with 1"
	Refuses          Outcome = "its stage exits with 1, and its package refuses a rollback"
	Hangs            Outcome = "its stage begins and never ends"
	Rejected         Outcome = "the kubelet rejects it"
	StuckTerminating Outcome = "it stays terminating when it is deleted"
)

// StartKubelet starts a fake kubelet for all nodes. It stops with the test.
func (e *Env) StartKubelet() *Kubelet {
	e.Helper()
	c, err := kubernetes.NewForConfig(e.Config)
	e.Must(err)
	ctx, cancel := context.WithCancel(context.Background())
	k := &Kubelet{env: e, outcomeOf: func(*corev1.Pod) Outcome { return Succeeds }}
	_, follow := toolscache.NewInformerWithOptions(toolscache.InformerOptions{
		ListerWatcher: toolscache.NewListWatchFromClient(c.CoreV1().RESTClient(), "pods", metav1.NamespaceAll, fields.Everything()),
		ObjectType:    &corev1.Pod{},
		Handler: toolscache.ResourceEventHandlerFuncs{
			AddFunc:    func(o any) { k.syncPod(ctx, o) },
			UpdateFunc: func(_, o any) { k.syncPod(ctx, o) },
		},
	})
	var done sync.WaitGroup
	done.Add(1)
	go func() {
		defer done.Done()
		follow.RunWithContext(ctx)
	}()
	k.stop = func() { cancel(); done.Wait() }
	e.Cleanup(k.stop)
	return k
}

// SetOutcome sets how pods end that start from now on.
func (k *Kubelet) SetOutcome(judge func(*corev1.Pod) Outcome) {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.outcomeOf = judge
}

// SetRegistry sets what the kubelet reports as the id of an image that it pulls from now on.
func (k *Kubelet) SetRegistry(imageIDOf func(image string) string) {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.imageIDOf = imageIDOf
}

// Pulled lists "node image" of the first container of every pod of a Skyhook, in the order of their start.
func (k *Kubelet) Pulled() []string {
	k.mu.Lock()
	defer k.mu.Unlock()
	return slices.Clone(k.pulled)
}

// History lists the pods of Skyhooks that started on a node: "package-version stage".
func (k *Kubelet) History(node string) []string {
	k.mu.Lock()
	defer k.mu.Unlock()
	var out []string
	for _, b := range k.started {
		if rest, on := strings.CutPrefix(b, node+" "); on {
			out = append(out, rest)
		}
	}
	return out
}

// MostAdmitted is the highest number of nodes admitted at the same time, sampled whenever a pod of a Skyhook starts.
func (k *Kubelet) MostAdmitted() int {
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.mostAdmitted
}

// syncPod advances the status of a pod by one step.
func (k *Kubelet) syncPod(ctx context.Context, o any) {
	p, ok := o.(*corev1.Pod)
	if !ok || p.Spec.NodeName == "" {
		return
	}
	k.mu.Lock()
	outcome := k.outcomeOf(p)
	k.mu.Unlock()
	switch {
	case p.DeletionTimestamp != nil:
		if outcome != StuckTerminating {
			now := int64(0)
			_ = k.env.Client.Delete(ctx, p, &client.DeleteOptions{GracePeriodSeconds: &now, Preconditions: &metav1.Preconditions{UID: &p.UID}}) // it may be gone
		}
	case p.Status.Phase != corev1.PodPending || len(p.Status.InitContainerStatuses)+len(p.Status.ContainerStatuses) > 0:
	default:
		q := p.DeepCopy()
		q.Status.Phase = corev1.PodRunning
		if k.isPackagePod(p) {
			k.recordStart(p)
			k.runContainers(ctx, q, outcome)
		} else {
			q.Status.Conditions = []corev1.PodCondition{{Type: corev1.PodReady, Status: corev1.ConditionTrue}}
		}
		_ = k.env.Client.Status().Patch(ctx, q, client.MergeFrom(p)) // it may be gone
	}
}

func (k *Kubelet) isPackagePod(p *corev1.Pod) bool { return p.Namespace == k.env.Namespace }

// recordStart records the start of a pod of a Skyhook, and ignores pods of NodeOps and Kairos probes.
func (k *Kubelet) recordStart(p *corev1.Pod) {
	if p.Labels["skyhook.nvidia.com/name"] == "" {
		return
	}
	admitted := k.env.CountAdmitted()
	k.mu.Lock()
	defer k.mu.Unlock()
	k.started = append(k.started, p.Spec.NodeName+" "+p.Labels["skyhook.nvidia.com/package"]+" "+StageOf(p))
	k.mostAdmitted = max(k.mostAdmitted, admitted)
}

// runContainers ends the containers of a pod one after the other, as its outcome says.
func (k *Kubelet) runContainers(ctx context.Context, p *corev1.Pod, outcome Outcome) {
	if outcome == Rejected {
		kubelet.Reject(p, "OutOfcpu", "Pod was rejected: Node didn't have enough resource: cpu")
		return
	}
	now, isCompact := time.Now(), podstate.IsCompact(p)
	if len(p.Spec.InitContainers) == 0 && !isCompact { // a test or the Job controller says what becomes of it
		return
	}
	kubelet.Create(p)
	for i := kubelet.Next(p); i >= 0 && (isCompact || i < len(p.Spec.InitContainers)); i = kubelet.Next(p) {
		s := kubelet.Status(p, i)
		if !isCompact {
			s.ImageID = k.pullImage(p, i)
		}
		runsStage, message := isCompact && i == 0 || !isCompact && (i == 1 || s.Name == "interrupt"), ""
		switch {
		case runsStage && outcome == Hangs:
			kubelet.Begin(p, i, now)
			return
		case runsStage && outcome == Refuses && !isCompact:
			message = string(pack.Message{Mode: pack.ModeConfig, Outcome: pack.Failed, Class: pack.StepFailed, Reason: "step set exited with 1", RefusesRollback: true}.Encode())
			fallthrough
		case runsStage && (outcome == Fails || outcome == Refuses):
			kubelet.End(p, i, 1, message, now)
			return
		case s.Name == "interrupt" && strings.Contains(p.Name, "-reboot-"):
			k.rebootNode(ctx, p.Spec.NodeName)
		}
		kubelet.End(p, i, 0, "", now)
	}
}

// pullImage returns the id of the image of an init container.
func (k *Kubelet) pullImage(p *corev1.Pod, container int) string {
	k.mu.Lock()
	defer k.mu.Unlock()
	image := p.Spec.InitContainers[container].Image
	if container == 0 {
		k.pulled = append(k.pulled, p.Spec.NodeName+" "+image)
	}
	if k.imageIDOf == nil {
		return ""
	}
	return k.imageIDOf(image)
}

// rebootNode changes the boot id of a node.
func (k *Kubelet) rebootNode(ctx context.Context, node string) {
	n := &corev1.Node{}
	if err := k.env.Client.Get(ctx, client.ObjectKey{Name: node}, n); err != nil {
		return // the node is gone
	}
	before := n.DeepCopy()
	n.Status.NodeInfo.BootID += "+"
	_ = k.env.Client.Status().Patch(ctx, n, client.MergeFrom(before)) // the node may be gone
}

// StageOf returns the stage that a pod of a Skyhook runs, derived from the name of its second init container, or the first one
// of a compact pod.
func StageOf(p *corev1.Pod) string {
	if stages := podstate.ReadStages(p); len(stages) > 0 {
		return string(stages[0].Stage)
	}
	if len(p.Spec.InitContainers) < 2 {
		return "interrupt"
	}
	copies := strings.TrimSuffix(p.Spec.InitContainers[0].Name, "-init")
	return strings.TrimPrefix(p.Spec.InitContainers[1].Name, copies+"-")
}

// SettlePods syncs every pod once: pods of Skyhooks succeed, others run, deleted pods are removed. It is for tests without
// a Kubelet that control every step themselves.
func (e *Env) SettlePods() {
	e.Helper()
	e.SettlePodsWith(func(*corev1.Pod) Outcome { return Succeeds })
}

// SettlePodsWith advances every pod by one step, as a kubelet on which pods end as judge says.
func (e *Env) SettlePodsWith(judge func(*corev1.Pod) Outcome) {
	e.Helper()
	k := &Kubelet{env: e, outcomeOf: judge}
	l := &corev1.PodList{}
	e.Must(e.Client.List(context.Background(), l))
	for i := range l.Items {
		k.syncPod(context.Background(), &l.Items[i])
	}
}
