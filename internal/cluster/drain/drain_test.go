// SPDX-FileCopyrightText: The Skyhook authors
// SPDX-License-Identifier: Apache-2.0

package drain

import (
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/types"

	opv1 "github.com/skyhook-k8s/skyhook/api/nodeop/v1alpha1"
	"github.com/skyhook-k8s/skyhook/api/skyhook/v1alpha1"
	"github.com/skyhook-k8s/skyhook/internal/node"
	"github.com/skyhook-k8s/skyhook/internal/rollout"
)

func isNotOurs(*corev1.Pod) bool { return false }

func TestBlockingPods(t *testing.T) {
	pod := func(name string, change func(*corev1.Pod)) *corev1.Pod {
		p := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: name, UID: types.UID(name)}, Status: corev1.PodStatus{Phase: corev1.PodRunning}}
		change(p)
		return p
	}
	tolerates := func(key string, op corev1.TolerationOperator, effect corev1.TaintEffect) func(*corev1.Pod) {
		return func(p *corev1.Pod) {
			p.Spec.Tolerations = []corev1.Toleration{{Key: key, Operator: op, Effect: effect}}
		}
	}
	protect := func(p *corev1.Pod) { p.Labels = map[string]string{"protect": "yes"} }
	mark := func(key, value string) func(*corev1.Pod) {
		return func(p *corev1.Pod) { p.Annotations = map[string]string{key: value} }
	}
	label := func(key, value string) func(*corev1.Pod) {
		return func(p *corev1.Pod) { p.Labels = map[string]string{key: value} }
	}
	now := time.Unix(1000, 0)
	skyhook := Rules{Protected: labels.SelectorFromSet(labels.Set{"protect": "yes"}), Force: true, DeleteEmptyDirData: true, IgnoreSystem: true, IgnoreTolerating: true}
	karpenter, only := skyhook, skyhook
	karpenter.HonorDoNotDisrupt = true
	only.Only = labels.SelectorFromSet(labels.Set{"gpu": "yes"})
	blocksDaemonSets := skyhook
	blocksDaemonSets.DaemonSetsBlock = true
	ofDaemonSet := func(p *corev1.Pod) {
		isController := true
		p.OwnerReferences = []metav1.OwnerReference{{APIVersion: "apps/v1", Kind: "DaemonSet", Name: "x", Controller: &isController}}
		p.Spec.Tolerations = []corev1.Toleration{{Key: "node.kubernetes.io/unschedulable", Operator: corev1.TolerationOpExists}}
	}
	selects := func(value string) func(*corev1.Pod) {
		return func(p *corev1.Pod) { ofDaemonSet(p); p.Spec.NodeSelector = map[string]string{"deploy": value} }
	}
	labelled := node.Parse(&corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "n", UID: "u", Labels: map[string]string{"deploy": "paused"},
		Annotations: map[string]string{v1alpha1.AnnotationNodeMarks: `{"node": "u", "set": {"deploy": {"by": {"Skyhook/x": "paused"}, "is": "paused"}}}`}}}, nil)
	for _, c := range []struct {
		what  string
		pod   *corev1.Pod
		rules Rules
		want  []rollout.Pod
	}{
		{"a bare pod is evicted", pod("a", func(*corev1.Pod) {}), skyhook, []rollout.Pod{{Namespace: "default", Name: "a", UID: "a"}}},
		{"a pod that is being deleted still blocks", pod("a", func(p *corev1.Pod) { p.DeletionTimestamp = &metav1.Time{Time: now} }), skyhook,
			[]rollout.Pod{{Namespace: "default", Name: "a", UID: "a", Leaving: true, LeavesAt: now}}},
		{"its finalizers are named, a few of them", pod("a", func(p *corev1.Pod) {
			p.DeletionTimestamp, p.Finalizers = &metav1.Time{Time: now}, []string{"x/1", "x/2", "x/3", "x/4"}
		}), skyhook, []rollout.Pod{{Namespace: "default", Name: "a", UID: "a", Leaving: true, LeavesAt: now, Finalizers: []string{"x/1", "x/2", "x/3"}}}},
		{"a deadline says when a pod ends", pod("a", func(p *corev1.Pod) {
			p.Spec.ActiveDeadlineSeconds, p.Status.StartTime = new(int64(60)), &metav1.Time{Time: now}
		}), skyhook, []rollout.Pod{{Namespace: "default", Name: "a", UID: "a", EndsAt: now.Add(time.Minute)}}},
		{"once it has started", pod("a", func(p *corev1.Pod) { p.Spec.ActiveDeadlineSeconds = new(int64(60)) }), skyhook,
			[]rollout.Pod{{Namespace: "default", Name: "a", UID: "a"}}},
		{"a protected pod is waited for", pod("a", protect), skyhook, []rollout.Pod{{Namespace: "default", Name: "a", UID: "a", Wait: true, Protection: rollout.ProtectedByLabels}}},
		{"also when it is pending", pod("a", func(p *corev1.Pod) { protect(p); p.Status.Phase = corev1.PodPending }), skyhook,
			[]rollout.Pod{{Namespace: "default", Name: "a", UID: "a", Wait: true, Protection: rollout.ProtectedByLabels}}},
		{"also in kube-system", pod("a", func(p *corev1.Pod) { protect(p); p.Namespace = "kube-system" }), skyhook,
			[]rollout.Pod{{Namespace: "kube-system", Name: "a", UID: "a", Wait: true, Protection: rollout.ProtectedByLabels, Stays: true}}},
		{"a finished protected pod is not", pod("a", func(p *corev1.Pod) { protect(p); p.Status.Phase = corev1.PodSucceeded }), skyhook, nil},
		{"kube-system stays", pod("a", func(p *corev1.Pod) { p.Namespace = "kube-system" }), skyhook, nil},
		{"but not by other rules", pod("a", func(p *corev1.Pod) { p.Namespace = "kube-system" }), Rules{Force: true},
			[]rollout.Pod{{Namespace: "kube-system", Name: "a", UID: "a"}}},
		{"who tolerates a cordon stays", pod("a", tolerates("node.kubernetes.io/unschedulable", corev1.TolerationOpExists, "")), skyhook, nil},
		{"with whatever effect", pod("a", tolerates("node.kubernetes.io/unschedulable", corev1.TolerationOpExists, corev1.TaintEffectNoExecute)), skyhook, nil},
		{"who tolerates everything stays", pod("a", tolerates("", corev1.TolerationOpExists, "")), skyhook, nil},
		{"who tolerates every NoExecute does not", pod("a", tolerates("", corev1.TolerationOpExists, corev1.TaintEffectNoExecute)), skyhook,
			[]rollout.Pod{{Namespace: "default", Name: "a", UID: "a"}}},
		{"a DaemonSet pod stays", pod("a", ofDaemonSet), skyhook, nil},
		{"with ignoreDaemonSets false it blocks", pod("a", ofDaemonSet), blocksDaemonSets,
			[]rollout.Pod{{Namespace: "default", Name: "a", UID: "a", Keep: "its DaemonSet would recreate it, and ignoreDaemonSets is false"}}},
		{"but not in kube-system", pod("a", func(p *corev1.Pod) { ofDaemonSet(p); p.Namespace = "kube-system" }), blocksDaemonSets, nil},
		{"what is kept says why", pod("a", func(*corev1.Pod) {}), Rules{},
			[]rollout.Pod{{Namespace: "default", Name: "a", UID: "a", Keep: "nothing recreates it, and force is false"}}},
		{"a refusal is remembered", pod("refused", func(*corev1.Pod) {}), skyhook,
			[]rollout.Pod{{Namespace: "default", Name: "refused", UID: "refused", Refused: "the budget web allows none", Asked: true, RetryAt: now}}},
		{"our annotation protects a pod", pod("a", mark("skyhook.nvidia.com/do-not-interrupt", "true")), skyhook,
			[]rollout.Pod{{Namespace: "default", Name: "a", UID: "a", Wait: true, Protection: rollout.ProtectedByAnnotation}}},
		{"with the value true only", pod("a", mark("skyhook.nvidia.com/do-not-interrupt", "yes")), skyhook,
			[]rollout.Pod{{Namespace: "default", Name: "a", UID: "a"}}},
		{"but no pod of a DaemonSet", pod("a", func(p *corev1.Pod) { ofDaemonSet(p); mark("skyhook.nvidia.com/do-not-interrupt", "true")(p) }), skyhook, nil},
		{"Karpenter's annotation does not", pod("a", mark("karpenter.sh/do-not-disrupt", "true")), skyhook,
			[]rollout.Pod{{Namespace: "default", Name: "a", UID: "a"}}},
		{"unless it is honored", pod("a", mark("karpenter.sh/do-not-disrupt", "true")), karpenter,
			[]rollout.Pod{{Namespace: "default", Name: "a", UID: "a", Wait: true, Protection: rollout.ProtectedByDoNotDisrupt}}},
		{"only pods of podSelector leave", pod("a", label("gpu", "yes")), only, []rollout.Pod{{Namespace: "default", Name: "a", UID: "a"}}},
		{"others stay", pod("a", label("gpu", "no")), only, nil},
		{"protected ones among them are waited for", pod("a", protect), only,
			[]rollout.Pod{{Namespace: "default", Name: "a", UID: "a", Wait: true, Protection: rollout.ProtectedByLabels, Stays: true}}},
		{"priorities are read", pod("a", func(p *corev1.Pod) { p.Spec.Priority = new(int32(2000000000)) }), skyhook,
			[]rollout.Pod{{Namespace: "default", Name: "a", UID: "a", Priority: 2000000000}}},
		{"our own pods never", pod("ours", func(*corev1.Pod) {}), skyhook, nil},
		{"labels turn it away", pod("a", selects("off")), skyhook.On(labelled), []rollout.Pod{{Namespace: "default", Name: "a", UID: "a", Leaving: true, TurnedAway: true}}},
		{"also in kube-system, and where DaemonSets block", pod("a", func(p *corev1.Pod) { selects("off")(p); p.Namespace = "kube-system" }), blocksDaemonSets.On(labelled),
			[]rollout.Pod{{Namespace: "kube-system", Name: "a", UID: "a", Leaving: true, TurnedAway: true}}},
		{"one that the labels select stays", pod("a", selects("paused")), skyhook.On(labelled), nil},
		{"labels that nobody set turn none away", pod("a", selects("off")), skyhook.On(node.Parse(&corev1.Node{}, nil)), nil},
	} {
		refused := map[types.UID]Refusal{"refused": {Why: "the budget web allows none", RetryAt: now}}
		got := c.rules.BlockingPods([]*corev1.Pod{c.pod}, func(p *corev1.Pod) bool { return p.Name == "ours" }, refused)
		if !reflect.DeepEqual(got, c.want) {
			t.Errorf("%s: %+v, want %+v", c.what, got, c.want)
		}
	}
}

// TestBlockingPodsAreSorted lists the pods in two orders.
func TestBlockingPodsAreSorted(t *testing.T) {
	var all []*corev1.Pod
	for _, name := range []string{"b/x", "a/y", "a/x", "c/x", "b/y"} {
		namespace, name, _ := strings.Cut(name, "/")
		all = append(all, &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name, UID: types.UID(namespace + name)}})
	}
	first := (Rules{}).BlockingPods(all, isNotOurs, nil)
	slices.Reverse(all)
	if len(first) != len(all) {
		t.Errorf("%d of %d pods block", len(first), len(all))
	}
	if second := (Rules{}).BlockingPods(all, isNotOurs, nil); !reflect.DeepEqual(first, second) {
		t.Error("the order of the blocking pods depends on the order of the list")
	}
}

// TestNodeOpRules applies the documented options.
func TestNodeOpRules(t *testing.T) {
	yes, no := true, false
	bare := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: "bare"}}
	owned := func(kind, version string) *corev1.Pod {
		return &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: "owned", OwnerReferences: []metav1.OwnerReference{{Kind: kind, APIVersion: version, Controller: &yes}}}}
	}
	scratch := owned("ReplicaSet", "apps/v1")
	scratch.Spec.Volumes = []corev1.Volume{{VolumeSource: corev1.VolumeSource{EmptyDir: &corev1.EmptyDirVolumeSource{}}}}
	for name, c := range map[string]struct {
		options opv1.DrainOptions
		pod     *corev1.Pod
		evict   bool
		keep    bool
	}{
		"a pod":                          {opv1.DrainOptions{}, owned("ReplicaSet", "apps/v1"), true, false},
		"a bare pod":                     {opv1.DrainOptions{}, bare, false, false},
		"a bare pod, forced":             {opv1.DrainOptions{Force: &yes}, bare, true, false},
		"an emptyDir":                    {opv1.DrainOptions{}, scratch, false, true},
		"an emptyDir, allowed":           {opv1.DrainOptions{DeleteEmptyDirData: &yes}, scratch, true, false},
		"a DaemonSet pod":                {opv1.DrainOptions{}, owned("DaemonSet", "apps/v1"), false, false},
		"a DaemonSet pod, not to ignore": {opv1.DrainOptions{IgnoreDaemonSets: &no}, owned("DaemonSet", "apps/v1"), false, true},
	} {
		c.options.Enabled = &yes
		rules, drains, err := NodeOpRules(&c.options)
		blocking := rules.BlockingPods([]*corev1.Pod{c.pod}, isNotOurs, nil)
		evict := len(blocking) == 1 && blocking[0].Keep == ""
		keep := len(blocking) == 1 && blocking[0].Keep != ""
		if err != nil || !drains || evict != c.evict || keep != c.keep {
			t.Errorf("%s: %+v", name, blocking)
		}
	}
	if _, drains, err := NodeOpRules(nil); drains || err != nil {
		t.Error("without drainOptions nothing is drained")
	}
}

func TestRefusals(t *testing.T) {
	r := NewRefusals()
	exists := map[types.UID]bool{"p": true, "q": true}
	now := time.Unix(1000, 0)
	for _, want := range []time.Duration{5, 10, 20, 30, 30} {
		r.Add("p", Refusal{Why: "no"}, 0, now)
		if got := r.Of(exists)["p"]; got.RetryAt.Sub(now) != want*time.Second || got.Why != "no" {
			t.Errorf("after another refusal: %+v, want to wait %d s", got, want)
		}
	}
	r.Add("q", Refusal{Why: "no"}, 12*time.Second, now)
	if got := r.Of(exists)["q"].RetryAt.Sub(now); got != 12*time.Second {
		t.Errorf("asked to wait 12 s, waits %s", got)
	}
	if got := r.Of(map[types.UID]bool{"q": true}); len(got) != 1 {
		t.Errorf("refusals of pods that are gone stay: %v", got)
	}
}
