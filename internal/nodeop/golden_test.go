// SPDX-FileCopyrightText: The Skyhook authors
// SPDX-License-Identifier: Apache-2.0

package nodeop_test

import (
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/yaml"

	"github.com/skyhook-k8s/skyhook/api/nodeop/v1alpha1"
	"github.com/skyhook-k8s/skyhook/internal/nodeop"
	"github.com/skyhook-k8s/skyhook/internal/nodeop/render"
)

func toYAML(t *testing.T, o any) string {
	t.Helper()
	raw, err := yaml.Marshal(o)
	if err != nil {
		t.Fatal(err)
	}
	return string(raw)
}

func readFile(t *testing.T, name string) string {
	t.Helper()
	raw, err := os.ReadFile("testdata/" + name)
	if err != nil {
		t.Fatal(err)
	}
	return string(raw)
}

// clearServerFields resets objects to what the operator created.
func clearServerFields(w *environment) {
	for _, p := range w.pods {
		p.Status, p.UID, p.CreationTimestamp = corev1.PodStatus{}, "", metav1.Time{}
	}
	for _, j := range w.jobs {
		j.Status, j.UID, j.CreationTimestamp = batchv1.JobStatus{}, "", metav1.Time{}
	}
}

// TestCompile compiles NodeOps to rollouts, Jobs and pods: testdata/*.yaml to *.rollout.txt, *.job.yaml and so on.
func TestCompile(t *testing.T) {
	for _, name := range []string{"readme", "plain", "full"} {
		t.Run(name, func(t *testing.T) {
			w := newEnvironment(t, "n1", "cp1")
			w.node("cp1").Labels["node-role.kubernetes.io/control-plane"] = "true"
			for _, n := range w.nodes {
				n.Labels["kairos.io/managed"] = "true"
			}
			o := w.applyYAML(readFile(t, name+".yaml"))
			c := w.compile(o)
			var b strings.Builder
			r := c.Rollout
			fmt.Fprintf(&b, "%s once=%v keepHeld=%v paused=%v drain=%v/%s\n", r.Ref, r.Once, r.KeepHeld, r.Paused, r.Drain.Timeout, r.Drain.OnTimeout)
			for _, g := range c.Groups {
				fmt.Fprintf(&b, "group %s ledger=%s limit=%d pace=%s stopAfter=%d\n", g.Ref, g.Ledger, g.Limit, g.Pace.Kind, g.Pace.StopAfter)
			}
			for _, t := range r.Targets {
				fmt.Fprintf(&b, "target %s class=%d in %s\n", t.Node, t.Class, t.Group)
				for _, k := range t.Tasks {
					fmt.Fprintf(&b, "  %s %s need=%d after=%v\n", k.ID, k.State, k.Need, k.After)
				}
			}
			compareGolden(t, name+".rollout.txt", b.String())
			w.runToEnd()
			clearServerFields(w)
			slices.SortFunc(w.pods, func(a, b *corev1.Pod) int { return strings.Compare(a.Name, b.Name) })
			for _, j := range w.jobs {
				if j.Spec.Template.Spec.NodeName == "cp1" {
					compareGolden(t, name+".job.yaml", toYAML(t, j))
				}
			}
			for _, p := range w.pods {
				if p.Spec.NodeName == "cp1" && p.Labels[v1alpha1.LabelReboot] == "true" {
					compareGolden(t, name+".reboot.yaml", toYAML(t, p))
				}
			}
		})
	}
}

// TestPreflightPod renders the pod of a check, whose mount of the host is read-only.
func TestPreflightPod(t *testing.T) {
	w := newEnvironment(t, "n1")
	w.applyYAML(readFile(t, "full.yaml"))
	w.checks["n1"] = "hang"
	w.pass()
	clearServerFields(w)
	compareGolden(t, "full.preflight.yaml", toYAML(t, w.pods[0]))
}

// Only the image of the operation is pulled with the secrets.
func TestPullSecrets(t *testing.T) {
	w := newEnvironment(t, "n1")
	w.applyYAML(`{metadata: {name: up}, spec: {image: private/op, imagePullSecrets: [{name: s}], command: [x], rebootOnSuccess: true, preflight: {command: [y], image: public/check}}}`)
	w.applyYAML(`{metadata: {name: up2}, spec: {image: private/op, imagePullSecrets: [{name: s}], command: [x], preflight: {command: [y]}}}`)
	var seen []string
	for range 40 {
		w.tick()
		for _, p := range w.pods {
			if line := fmt.Sprintf("%s %v", p.Spec.Containers[0].Image, len(p.Spec.ImagePullSecrets)); !slices.Contains(seen, line) {
				seen = append(seen, line)
			}
		}
	}
	slices.Sort(seen)
	requireEqual(t, "images and secrets", strings.Join(seen, ", "), "example.org/agent:v1 0, example.org/agent:v1 1, private/op 1, public/check 0")
}

// TestImages checks which image each container uses.
func TestImages(t *testing.T) {
	for _, c := range []struct{ spec, config, want string }{{"mine", "default", "mine"}, {"", "default", "default"}, {"", "", "busybox:latest"}} {
		w := newEnvironment(t, "n1")
		o := w.applyYAML(`{metadata: {name: a}, spec: {command: [x], rebootOnSuccess: true}}`)
		o.Spec.Image = c.spec
		config := testConfig
		config.DefaultImage = c.config
		spec := func() corev1.PodSpec {
			return render.DryRunObjects(nodeop.NewOperation(o, nil), config, w.nodes[0]).Job.Spec.Template.Spec
		}
		requireEqual(t, "image", spec().InitContainers[0].Image, c.want)
		requireEqual(t, "sentinel", spec().Containers[0].Image, "example.org/agent:v1")
		config.SentinelImage = "tools"
		requireEqual(t, "sentinel", spec().Containers[0].Image, "tools")
	}
}

// TestStatus pins every status of a NodeOp from start to end.
func TestStatus(t *testing.T) {
	w := newEnvironment(t, "n1", "cp1", "n2")
	o := w.applyYAML(readFile(t, "full.yaml"))
	w.commands["n1"] = "fail"
	var b strings.Builder
	last := ""
	for range 60 {
		w.tick()
		s := o.Status.DeepCopy()
		s.LastUpdated = metav1.Time{}
		if now := toYAML(t, s); now != last {
			last = now
			fmt.Fprintf(&b, "# after %s\n%s---\n", w.now.Sub(w.nodes[0].Created).Round(time.Second), now)
		}
	}
	compareGolden(t, "full.status.yaml", b.String())
}

// TestTakeover starts from objects of kairos-operator: nothing runs twice.
func TestTakeover(t *testing.T) {
	for _, name := range []string{"completed", "failed", "partly", "running", "rebooting"} {
		t.Run(name, func(t *testing.T) {
			w := newEnvironment(t, "n1", "n2")
			for _, n := range w.nodes {
				n.Created = w.now.Add(-24 * time.Hour)
			}
			o := w.applyYAML(readFile(t, "takeover-"+name+".yaml"))
			cordoned := name != "completed"
			if cordoned {
				w.node("n1").Unschedulable = true
				w.node("n1").Annotations[v1alpha1.AnnotationCordonedBy] = v1alpha1.CordonedBy(o)
			}
			yes, backoff := true, int32(6)
			owner := []metav1.OwnerReference{{APIVersion: "operator.kairos.io/v1alpha1", Kind: "NodeOp", Name: o.Name, UID: o.UID, Controller: &yes}}
			if name == "running" || name == "rebooting" {
				j := &batchv1.Job{ObjectMeta: metav1.ObjectMeta{Name: "kairos-upgrade-n1-x7k2p", Namespace: o.Namespace, UID: "job", OwnerReferences: owner}}
				j.Spec.Template.Spec.NodeName, j.Spec.BackoffLimit = "n1", &backoff
				j.Spec.Template.Spec.Containers = []corev1.Container{{Name: nodeop.ContainerCommand}}
				w.jobs = append(w.jobs, j)
				p := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: "kairos-upgrade-reboot-abcde", Namespace: o.Namespace, UID: "pod", OwnerReferences: owner,
					Labels: map[string]string{v1alpha1.LabelReboot: "true", v1alpha1.LabelNodeOp: o.Name, v1alpha1.LabelNode: "n1"}}}
				p.Spec.NodeName, p.Spec.Containers = "n1", []corev1.Container{{Name: "reboot"}}
				w.pods = append(w.pods, p)
				w.rebootModes["n1"] = "never" // the predecessor's pod does
				if name == "rebooting" {
					j.Status.Conditions = []batchv1.JobCondition{{Type: batchv1.JobComplete, Status: corev1.ConditionTrue}}
				}
				for range 3 {
					w.tick()
				}
				p.Status.Phase = corev1.PodSucceeded
				p.Annotations = map[string]string{v1alpha1.AnnotationRebootState: "completed"}
				w.node("n1").BootID = "boot-2"
				w.rebootModes["n1"] = ""
			}
			w.runToEnd()
			var b strings.Builder
			fmt.Fprintf(&b, "made: %v\ncordoned: %v\n", w.created, w.node("n1").Unschedulable)
			b.WriteString(toYAML(t, o.Status))
			compareGolden(t, "takeover-"+name+".txt", b.String())
		})
	}
}
