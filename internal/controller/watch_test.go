// SPDX-FileCopyrightText: The Skyhook authors
// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"testing"
	"time"

	"github.com/go-logr/logr"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	toolscache "k8s.io/client-go/tools/cache"
	"sigs.k8s.io/controller-runtime/pkg/cache"

	opv1 "github.com/skyhook-k8s/skyhook/api/nodeop/v1alpha1"
	"github.com/skyhook-k8s/skyhook/api/skyhook/v1alpha1"
	"github.com/skyhook-k8s/skyhook/internal/cluster"
	"github.com/skyhook-k8s/skyhook/internal/rollout"
)

// A heartbeat requests no pass; a change of anything that a decision reads does.
func TestHasNodeChange(t *testing.T) {
	full := func() *corev1.Node {
		return &corev1.Node{
			ObjectMeta: metav1.ObjectMeta{Name: "n1", UID: "1", ResourceVersion: "5", Labels: map[string]string{"a": "b"},
				Annotations: map[string]string{"skyhook.nvidia.com/nodeState_demo": "{}", "other.example/x": "1"}},
			Spec: corev1.NodeSpec{Taints: []corev1.Taint{{Key: "k", Effect: corev1.TaintEffectNoSchedule}}, PodCIDR: "10.0.0.0/24"},
			Status: corev1.NodeStatus{
				NodeInfo: corev1.NodeSystemInfo{BootID: "b", KubeletVersion: "v1"},
				Images:   []corev1.ContainerImage{{Names: []string{"x"}}},
				Conditions: []corev1.NodeCondition{
					{Type: corev1.NodeReady, Status: corev1.ConditionTrue, LastHeartbeatTime: metav1.Unix(100, 0)},
					{Type: corev1.NodeDiskPressure, Status: corev1.ConditionFalse},
					{Type: "skyhook.nvidia.com/demo/NotReady", Status: corev1.ConditionFalse, Reason: "Complete", LastHeartbeatTime: metav1.Unix(100, 0)},
				},
			},
		}
	}
	for _, c := range []struct {
		what   string
		change func(*corev1.Node)
		want   bool
	}{
		{"nothing", func(*corev1.Node) {}, false},
		{"a heartbeat", func(n *corev1.Node) {
			n.ResourceVersion = "6"
			for i := range n.Status.Conditions {
				n.Status.Conditions[i].LastHeartbeatTime = metav1.Unix(200, 0)
			}
		}, false},
		{"images", func(n *corev1.Node) { n.Status.Images = nil }, false},
		{"pressure", func(n *corev1.Node) { n.Status.Conditions[1].Status = corev1.ConditionTrue }, true},
		{"somebody else's annotation", func(n *corev1.Node) { n.Annotations["other.example/x"] = "2" }, false},
		{"somebody else's annotation goes", func(n *corev1.Node) { delete(n.Annotations, "other.example/x") }, false},
		{"our annotation", func(n *corev1.Node) { n.Annotations["skyhook.nvidia.com/nodeState_demo"] = "{ }" }, true},
		{"our annotation goes", func(n *corev1.Node) { delete(n.Annotations, "skyhook.nvidia.com/nodeState_demo") }, true},
		{"another annotation of ours", func(n *corev1.Node) { n.Annotations["skyhook.nvidia.com/status_demo"] = "x" }, true},
		{"an annotation of a NodeOp", func(n *corev1.Node) { n.Annotations["operator.kairos.io/cordoned-by"] = "x" }, true},
		{"a check for drift", func(n *corev1.Node) { n.Annotations["skyhook.nvidia.com/drift_demo"] = "{}" }, false},
		{"a label", func(n *corev1.Node) { n.Labels["a"] = "c" }, true},
		{"a taint", func(n *corev1.Node) { n.Spec.Taints[0].Value = "v" }, true},
		{"a cordon", func(n *corev1.Node) { n.Spec.Unschedulable = true }, true},
		{"a boot", func(n *corev1.Node) { n.Status.NodeInfo.BootID = "c" }, true},
		{"not ready", func(n *corev1.Node) { n.Status.Conditions[0].Status = corev1.ConditionUnknown }, true},
		{"our condition", func(n *corev1.Node) { n.Status.Conditions = n.Status.Conditions[:2] }, true},
		{"another node", func(n *corev1.Node) { n.UID = "2" }, true},
	} {
		changed := full()
		c.change(changed)
		if got := hasNodeChange(cluster.StripNode(full()), cluster.StripNode(changed)); got != c.want {
			t.Errorf("%s: requests a pass %v, want %v", c.what, got, c.want)
		}
	}
}

func TestEnded(t *testing.T) {
	ends := func(codes ...int32) *corev1.Pod {
		p := &corev1.Pod{Spec: corev1.PodSpec{InitContainers: make([]corev1.Container, 2)}}
		for _, c := range codes {
			s := corev1.ContainerStatus{State: corev1.ContainerState{Terminated: &corev1.ContainerStateTerminated{ExitCode: c}}}
			if c < 0 {
				s.State = corev1.ContainerState{Running: &corev1.ContainerStateRunning{}}
			}
			p.Status.InitContainerStatuses = append(p.Status.InitContainerStatuses, s)
		}
		return p
	}
	for _, c := range []struct {
		pod  *corev1.Pod
		want bool
	}{{ends(), false}, {ends(0), false}, {ends(0, -1), false}, {ends(0, 1), false}, {ends(0, 0), true}} {
		if got := hasSucceeded(c.pod); got != c.want {
			t.Errorf("%v: %v", c.pod.Status.InitContainerStatuses, got)
		}
	}
}

// A change that somebody waits for begins a pass before the loop has rested; mere progress does not.
func TestAwaited(t *testing.T) {
	pod := func(phase corev1.PodPhase, exits ...int32) *corev1.Pod {
		p := &corev1.Pod{Spec: corev1.PodSpec{InitContainers: make([]corev1.Container, 1)}, Status: corev1.PodStatus{Phase: phase}}
		for _, code := range exits {
			p.Status.InitContainerStatuses = append(p.Status.InitContainerStatuses, corev1.ContainerStatus{
				State: corev1.ContainerState{Terminated: &corev1.ContainerStateTerminated{ExitCode: code}},
			})
		}
		return p
	}
	job := func(well, badly int32) *batchv1.Job {
		return &batchv1.Job{Status: batchv1.JobStatus{Active: 1 - well - badly, Succeeded: well, Failed: badly}}
	}
	node := func(boot string, ready corev1.ConditionStatus) *corev1.Node {
		n := &corev1.Node{Status: corev1.NodeStatus{Conditions: []corev1.NodeCondition{{Type: corev1.NodeReady, Status: ready}}}}
		n.Status.NodeInfo.BootID = boot
		return n
	}
	hook := func(generation int64) *v1alpha1.Skyhook {
		return &v1alpha1.Skyhook{ObjectMeta: metav1.ObjectMeta{Generation: generation}}
	}
	for name, c := range map[string]struct {
		before, after any
		want          bool
	}{
		"a stage ends":               {pod(corev1.PodPending), pod(corev1.PodPending, 0), true},
		"a stage fails":              {pod(corev1.PodPending), pod(corev1.PodPending, 1), false}, // it is tried again, later
		"a pod fails":                {pod(corev1.PodPending), pod(corev1.PodFailed, 1), true},
		"a pod is over":              {pod(corev1.PodRunning), pod(corev1.PodSucceeded), true},
		"a pod begins":               {pod(corev1.PodPending), pod(corev1.PodRunning), false},
		"it stays ended":             {pod(corev1.PodPending, 0), pod(corev1.PodRunning, 0), false},
		"a Job ends":                 {job(0, 0), job(1, 0), true},
		"a Job fails":                {job(0, 0), job(0, 1), true},
		"a Job begins":               {&batchv1.Job{}, job(0, 0), false},
		"a node boots":               {node("1", corev1.ConditionTrue), node("2", corev1.ConditionFalse), true},
		"a node is back":             {node("1", corev1.ConditionUnknown), node("1", corev1.ConditionTrue), true},
		"a node goes":                {node("1", corev1.ConditionTrue), node("1", corev1.ConditionUnknown), false},
		"a spec is edited":           {hook(1), hook(2), true},
		"only the status is written": {hook(1), hook(1), false},
		"something else":             {nil, pod(corev1.PodSucceeded), false},
	} {
		if got := isAwaited(c.before, c.after); got != c.want {
			t.Errorf("%s: awaited %v, want %v", name, got, c.want)
		}
	}
	if !isUserRequest(hook(1)) || !isUserRequest(&opv1.NodeOp{}) || !isUserRequest(&opv1.NodeOpUpgrade{}) || isUserRequest(pod(corev1.PodPending)) {
		t.Error("a Skyhook, a NodeOp and a NodeOpUpgrade ask for something, a pod does not")
	}
}

// An urgent request while the loop rests begins the next pass, and a loop that is to stop does not rest.
func TestRequestSoon(t *testing.T) {
	l := newLoop(newPassRequests(), newMetricsCollector(), logr.Discard())
	p := pace{paidAt: l.clock().Add(urgentCredit)}
	l.requests.requestSoon()
	if !l.waitForPace(t.Context(), p) {
		t.Error("it stopped")
	}
	select {
	case <-l.requests.urgent:
	default:
		t.Error("nothing begins the next pass")
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if p.paidAt = l.clock().Add(maxWait); l.waitForPace(ctx, p) {
		t.Error("it went on after its context ended")
	}
}

// Only our own pods, Jobs and ConfigMaps are kept in memory, and no Secret at all.
func TestCachesHoldWhatIsOurs(t *testing.T) {
	for name, options := range map[string]cache.Options{"ours": cacheOptions("skyhook", newStores()), "of NodeOps": nodeOpCacheOptions(newStores())} {
		for kind, by := range options.ByObject {
			if _, all := kind.(*corev1.Node); !all && by.Label == nil {
				t.Errorf("the cache %s keeps every %T", name, kind)
			}
			_, pod := kind.(*corev1.Pod)
			if _, job := kind.(*batchv1.Job); (pod || job) && by.Label.Matches(labels.Set{"app": "web"}) {
				t.Errorf("the cache %s keeps every %T", name, kind)
			}
			if _, secret := kind.(*corev1.Secret); secret {
				t.Errorf("the cache %s keeps Secrets", name)
			}
		}
		if !options.ReaderFailOnMissingInformer {
			t.Errorf("the cache %s takes more kinds in when somebody asks", name)
		}
	}
}

// Nodes beyond the limit are listed instead of watched; a node that is no longer held is forgotten.
func TestWorkloads(t *testing.T) {
	w := newFixture(t, 4)
	for i := range 4 {
		w.Apply(workload(fmt.Sprintf("app-%d", i+1), fmt.Sprintf("n%d", i+1), "app: x"))
	}
	requested := make(chan struct{}, 100)
	all := newWorkloadWatcher(newTypedClient(t).CoreV1(), func() { requested <- struct{}{} })
	now := time.Unix(1000, 0)
	all.maxWatched, all.clock = 2, func() time.Time { return now }
	defer all.stop()
	names := func(nodes ...string) map[string]string {
		t.Helper()
		pods, err := all.On(t.Context(), nodes)
		if err != nil {
			t.Fatal(err)
		}
		out := map[string]string{}
		for n, ps := range pods {
			out[n] = ""
			for _, p := range ps {
				out[n] += p.Name
			}
		}
		return out
	}
	nodes := []string{"n1", "n2", "n3", "n4"}
	want := map[string]string{"n1": "app-1", "n2": "app-2", "n3": "app-3", "n4": "app-4"}
	w.Eventually("all four are seen", func() bool { return maps.Equal(names(nodes...), want) })
	if got := len(all.nodes); got != 2 {
		t.Errorf("%d nodes are watched, want 2", got)
	}
	for i := range 4 {
		p := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: fmt.Sprintf("app-%d", i+1)}}
		w.Must(w.Client.Delete(t.Context(), p))
	}
	w.Eventually("the watched ones are gone", func() bool {
		return maps.Equal(names(nodes...), map[string]string{"n1": "", "n2": "", "n3": "app-3", "n4": "app-4"})
	})
	now = now.Add(relistInterval)
	w.Eventually("the listed ones are gone, too", func() bool {
		now = now.Add(relistInterval)
		return maps.Equal(names(nodes...), map[string]string{"n1": "", "n2": "", "n3": "", "n4": ""})
	})
	if names("n3"); len(all.nodes) != 1 || len(all.listed) != 0 {
		t.Errorf("only n3 is held: watched %d, listed %d", len(all.nodes), len(all.listed))
	}
	if len(requested) == 0 {
		t.Error("no pass was requested")
	}
}

// The wait after a failed pass doubles, and begins anew after one that did not fail.
func TestBackoff(t *testing.T) {
	l := newLoop(nil, nil, logr.Discard())
	now := time.Now()
	l.clock = func() time.Time { return now }
	var got []time.Duration
	retry := func() { got = append(got, l.retryAt(t.Context(), errors.New("no answer")).Sub(now)/time.Second) }
	for range 7 {
		retry()
	}
	l.backoff.Reset(backoffKey)
	retry()
	if want := []time.Duration{1, 2, 4, 8, 16, 30, 30, 1}; !slices.Equal(got, want) {
		t.Errorf("waits in seconds: %v, want %v", got, want)
	}
}

// Actions are logged as they are carried out, one line each, with their object and reason.
func TestLogLines(t *testing.T) {
	var lines []string
	r := newReporter(nil, nil, nil, collectLines(&lines))
	r.logActions([]rollout.Action{
		{Verb: rollout.VerbRun, Rollout: rollout.ParseRef("Skyhook/demo"), Node: "n1", Task: "tuning|1.1.0/apply", Why: rollout.Why{Reason: rollout.ReasonOwed, Text: "tuning apply"}},
		{Verb: rollout.VerbEvict, Rollout: rollout.ParseRef("Skyhook/demo"), Node: "n1", Pod: &rollout.Pod{Namespace: "default", Name: "app"}, Why: rollout.Why{Reason: rollout.ReasonQuiet, Text: "it is in the way"}},
	})
	want := []string{
		`"level"=0 "msg"="run" "rollout"="Skyhook/demo" "node"="n1" "reason"="Owed" "why"="tuning apply" "task"="tuning|1.1.0/apply"`,
		`"level"=0 "msg"="evict" "rollout"="Skyhook/demo" "node"="n1" "reason"="Quiet" "why"="it is in the way" "pod"="default/app"`,
	}
	if !slices.Equal(lines, want) {
		t.Errorf("logged %q, want %q", lines, want)
	}
	lines = nil
	wrong := []cluster.Problem{{Rollout: rollout.ParseRef("Skyhook/demo"), Text: "one"}, {Rollout: rollout.ParseRef("Skyhook/demo"), Text: "two", Refuses: true}}
	r.logProblems(wrong)
	r.logProblems(wrong)
	r.logProblems(wrong[:1])
	want = []string{
		`"level"=0 "msg"="object rejected" "rollout"="Skyhook/demo" "why"="one; two"`,
		`"level"=0 "msg"="object accepted with warnings" "rollout"="Skyhook/demo" "why"="one"`,
	}
	if !slices.Equal(lines, want) {
		t.Errorf("problems are logged as %q, want once for each set: %q", lines, want)
	}
}

// TestIsNodeOpPod lists the pods with the label of NodeOps that cause a pass. Anybody may use that label.
func TestIsNodeOpPod(t *testing.T) {
	w := watcher{namespace: "skyhook"}
	pod := func(namespace, owner, ownerVersion string, labels map[string]string) *corev1.Pod {
		p := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "p", Labels: labels}}
		if owner != "" {
			p.OwnerReferences = []metav1.OwnerReference{{APIVersion: ownerVersion, Kind: owner, Name: "o", UID: "u", Controller: new(true)}}
		}
		return p
	}
	node, both := map[string]string{opv1.LabelNode: "n1"}, map[string]string{opv1.LabelNode: "n1", opv1.LabelNodeOp: "o"}
	for what, c := range map[string]struct {
		pod  any
		want bool
	}{
		"a pod of a tenant":             {pod("team", "", "", node), false},
		"a pod of a tenant's workload":  {pod("team", "ReplicaSet", "apps/v1", both), false},
		"a pod of a tenant's Job":       {pod("team", "Job", "batch/v1", node), false},
		"a pod of the Job of a NodeOp":  {pod("team", "Job", "batch/v1", both), true},
		"a pod of a NodeOp":             {pod("team", "NodeOp", opv1.GroupVersion.String(), node), true},
		"a pod of another kind of that": {pod("team", "NodeOp", "example.com/v1", node), false},
		"a deleted pod of a tenant":     {toolscache.DeletedFinalStateUnknown{Obj: pod("team", "", "", node)}, false},
		"a probe":                       {pod("skyhook", "", "", map[string]string{opv1.LabelNode: "n1", opv1.LabelApp: opv1.AppLabeler}), true},
	} {
		if got := w.isNodeOpPod(c.pod); got != c.want {
			t.Errorf("%s: %v, want %v", what, got, c.want)
		}
	}
}
