// SPDX-FileCopyrightText: The Skyhook authors
// SPDX-License-Identifier: Apache-2.0

package live

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/yaml"

	"github.com/skyhook-k8s/skyhook/test/testenv"
)

// What the predecessor wrote to its nodes.
const (
	kernelDone = `"kernel|1.4.0":{"name":"kernel","version":"1.4.0","image":"example.org/pkgs/kernel","stage":"post-interrupt","state":"complete"}`
	agentdDone = `"agentd|0.9.1":{"name":"agentd","version":"0.9.1","image":"example.org/pkgs/agentd","stage":"config","state":"complete"}`
	agentdRuns = `"agentd|0.9.1":{"name":"agentd","version":"0.9.1","image":"example.org/pkgs/agentd","stage":"apply","state":"in_progress"}`
	finished   = `{` + agentdDone + `,` + kernelDone + `}`
)

// applyFormerState creates the Skyhook, the nodes and the ConfigMap of the predecessor. Since v0.18 the Skyhook has become a
// NodeWright, and the keys of the Skyhook are gone from nodes.
func (p predecessor) applyFormerState(t *testing.T, w *testenv.Env) {
	t.Helper()
	text, err := os.ReadFile("testdata/predecessor/state.yaml")
	if err != nil {
		t.Fatal(err)
	}
	var s unstructured.Unstructured
	w.Must(yaml.Unmarshal(text, &s.Object))
	status := s.Object["status"]
	w.Must(w.Client.Create(context.Background(), &s))
	s.Object["status"] = status
	w.Must(w.Client.Status().Update(context.Background(), &s))
	prefix := "skyhook.nvidia.com/"
	if p.since >= 18 {
		prefix = "nodewright.nvidia.com/"
		p.createMirror(t, w, &s)
	}
	mark := func(node, state, status string, isCordoned bool) {
		labels := map[string]string{prefix + "status_gpu-base": status}
		annotations := map[string]string{
			prefix + "status_gpu-base": status, prefix + "nodeState_gpu-base": state, prefix + "version_gpu-base": fmt.Sprintf("v0.%d.0", p.since),
		}
		if isCordoned {
			annotations[prefix+"cordon_gpu-base"] = "true"
		}
		patch, err := json.Marshal(map[string]any{"metadata": map[string]any{"labels": labels, "annotations": annotations}, "spec": map[string]any{"unschedulable": isCordoned}})
		w.Must(err)
		w.Patch(w.GetNode(node), string(patch))
	}
	mark("n1", finished, "complete", false)
	mark("n2", `{`+agentdRuns+`,`+kernelDone+`}`, "in_progress", true)
	yes := true
	w.Must(w.Client.Create(context.Background(), &corev1.ConfigMap{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: w.Namespace, Name: "gpu-base-kernel-1.4.0", Labels: map[string]string{"skyhook.nvidia.com/name": "gpu-base"},
			Annotations:     map[string]string{"skyhook.nvidia.com/name": "gpu-base", "skyhook.nvidia.com/Package.Name": "kernel", "skyhook.nvidia.com/Package.Version": "1.4.0"},
			OwnerReferences: []metav1.OwnerReference{{APIVersion: s.GetAPIVersion(), Kind: s.GetKind(), Name: s.GetName(), UID: s.GetUID(), Controller: &yes, BlockOwnerDeletion: &yes}},
		},
		Data: map[string]string{"grub.conf": "quiet", "sysctl.conf": "vm.swappiness=1"},
	}))
}

// TestTakeover: an operator of ours takes the place of the predecessor's in the middle of a rollout, by an upgrade of its
// release. What is finished is not run again, what had begun is, once; after a rollback everything is as the predecessor left
// it, and coming back changes nothing.
func TestTakeover(t *testing.T) {
	for i, p := range predecessors {
		if testing.Short() && i > 0 && i < len(predecessors)-1 {
			continue // the oldest and the newest differ most
		}
		t.Run(p.String(), p.testTakeover)
	}
}

func (p predecessor) testTakeover(t *testing.T) {
	removeCRDs(t)
	w := testenv.New(t, plane, 2)
	kubelet := w.StartKubelet()
	chart, helm := p.writeChart(t), []string{"v4", "v3"}[p.since%2]
	mustHelm(t, "v3", w.Namespace, append([]string{"install", p.release, chart}, p.flags(false)...)...)
	p.applyFormerState(t, w)
	createRuntimeObjects(t, w, w.Namespace)
	upgrade := append([]string{"upgrade", p.release, "chart"}, p.ourFlags()...)
	if p.since >= 18 {
		upgrade = append(upgrade, "--take-ownership") // of the CRDs that the migration needs before
	}
	mustHelm(t, "v3", w.Namespace, append([]string{"upgrade", p.release, chart}, p.flags(true)...)...)
	p.requireWebhooks(t, true)
	if p.since >= 18 {
		p.migrate(t, w, upgrade)
	}
	p.requirePlan(t, w)
	before, selector := w.GetSkyhook("gpu-base"), p.readSelector(t, w.Namespace)

	mustHelm(t, helm, w.Namespace, upgrade...)
	requireGeneratedCRDs(t)
	p.requireWebhooks(t, false)
	p.requireTaken(t, w.Namespace, selector)
	_, end := startDeployment(t, w.Namespace, p.ourDeployment())
	w.WaitComplete("gpu-base")
	if got := kubelet.History("n1"); len(got) > 0 {
		t.Errorf("n1 was finished, and did %v", got)
	}
	if got, want := kubelet.History("n2"), []string{"agentd-0.9.1 apply", "agentd-0.9.1 config"}; !slices.Equal(got, want) {
		t.Errorf("n2 did %v, want %v", got, want)
	}
	w.Eventually("n2 is given back", func() bool { return !w.GetNode("n2").Spec.Unschedulable })
	requireFinished := func(when string) {
		t.Helper()
		for _, node := range []string{"n1", "n2"} {
			if got := w.GetNode(node).Annotations["skyhook.nvidia.com/nodeState_gpu-base"]; !isSameJSON(t, got, finished) {
				t.Errorf("%s the record on %s is\n%s\nwant\n%s", when, node, got, finished)
			}
		}
	}
	requireFinished("after the upgrade")
	end()

	mustHelm(t, helm, w.Namespace, "rollback", p.release, "2")
	p.requireWebhooks(t, true)
	if got := p.readSelector(t, w.Namespace); !maps.Equal(got, selector) {
		t.Errorf("after the rollback the Deployment selects by %v, and before by %v", got, selector)
	}
	if after := w.GetSkyhook("gpu-base"); after.UID != before.UID || after.DeletionTimestamp != nil || len(after.Spec.Packages) != 2 {
		t.Errorf("after the rollback the Skyhook is %v", after)
	}
	requireFinished("after the rollback")
	mustHelm(t, helm, w.Namespace, upgrade...)
	_, end = startDeployment(t, w.Namespace, p.ourDeployment())
	waitObserved(w, "gpu-base")
	if got := len(kubelet.History("n1")) + len(kubelet.History("n2")); got != 2 {
		t.Errorf("coming back made nodes do something: %v, %v", kubelet.History("n1"), kubelet.History("n2"))
	}

	// and it goes on: the next version is an upgrade
	w.Patch(w.GetSkyhook("gpu-base"), `{"spec":{"packages":{"agentd":{"version":"0.9.2"}}}}`)
	w.WaitComplete("gpu-base")
	if got, want := kubelet.History("n1"), []string{"agentd-0.9.2 upgrade", "agentd-0.9.2 config"}; !slices.Equal(got, want) {
		t.Errorf("n1 did %v, want %v", got, want)
	}
	end()
}

// requirePlan checks that the plugin foretells what our operator will do: nothing for the node that is finished.
func (p predecessor) requirePlan(t *testing.T, w *testenv.Env) {
	t.Helper()
	out, err := exec.Command(buildPlugin(t), "--kubeconfig", plane.Kubeconfig(t), "--operator-namespace", w.Namespace, "plan", "gpu-base", "--detailed-exitcode").Output()
	var exit *exec.ExitError
	if !errors.As(err, &exit) || exit.ExitCode() != 2 || !strings.Contains(string(out), "1 of 2 nodes changes") || !strings.Contains(string(out), "On 1 node: n2\n") {
		t.Errorf("kubectl skyhook plan says %v\n%s", err, out)
	}
}

// TestTakeoverUnmigrated: manifests that are applied without Helm are not checked, so the operator leaves Skyhooks alone that
// became NodeWrights.
func TestTakeoverUnmigrated(t *testing.T) {
	p := predecessors[5]
	removeCRDs(t)
	w := testenv.New(t, plane, 2)
	kubelet := w.StartKubelet()
	chart := p.writeChart(t)
	mustHelm(t, "v3", w.Namespace, append([]string{"install", p.release, chart}, p.flags(false)...)...)
	mustHelm(t, "v3", w.Namespace, append([]string{"upgrade", p.release, "chart"}, p.ourFlags()...)...)
	p.applyFormerState(t, w) // after the upgrade, which would be refused
	operator, end := startStandby(t, w.Namespace, p.ourDeployment())
	operator.waitLog(t, "waiting: NodeWrights have taken over Skyhooks that are not migrated")
	w.Eventually("an event names the Skyhook", func() bool {
		events, err := newClientset(t).CoreV1().Events(w.Namespace).List(context.Background(), metav1.ListOptions{FieldSelector: "reason=NotMigrated,involvedObject.kind=Lease"})
		w.Must(err)
		return len(events.Items) > 0 && strings.Contains(events.Items[0].Message, "gpu-base. Stop both operators")
	})
	if strings.Contains(operator.log.String(), "starting reconcile loop") {
		t.Error("the operator works before the migration")
	}
	end()
	mustKubectl(t, "-n", w.Namespace, "scale", "deployment", p.ourDeployment(), "--replicas=0")
	p.runMigration(t, w)
	_, end = startDeployment(t, w.Namespace, p.ourDeployment())
	w.WaitComplete("gpu-base")
	if got := kubelet.History("n1"); len(got) > 0 {
		t.Errorf("n1 was finished, and did %v", got)
	}
	end()
}

// TestTakeoverNamespace: the predecessor is in another namespace. Our operator waits, with the rights of the chart, as long as
// the predecessor's leads, and does not touch its webhooks; then it removes them and continues where the other one ended.
func TestTakeoverNamespace(t *testing.T) {
	p := predecessors[0]
	removeCRDs(t)
	w := testenv.New(t, plane, 2)
	kubelet := w.StartKubelet()
	old := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: w.Namespace + "-old"}}
	w.Must(w.Client.Create(context.Background(), old))
	chart := p.writeChart(t)
	mustHelm(t, "v3", old.Name, append([]string{"install", p.release, chart}, p.flags(false)...)...)
	p.applyFormerState(t, w)
	mustHelm(t, "v3", old.Name, append([]string{"upgrade", p.release, chart}, p.flags(true)...)...)
	lease := newHeldLease(old.Name)
	seconds := int32(600)
	lease.Spec.LeaseDurationSeconds = &seconds
	w.Must(w.Client.Create(context.Background(), lease))
	createHolder(w, old.Name)
	w.Apply(`
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRoleBinding
metadata: {name: ` + old.Name + `}
roleRef: {apiGroup: rbac.authorization.k8s.io, kind: ClusterRole, name: cluster-admin}
subjects: [{kind: ServiceAccount, name: former, namespace: ` + old.Name + `}]
`)

	mustHelm(t, "v3", w.Namespace, "install", "skyhook-operator", "chart", "--set-string", quietly, "--take-ownership")
	operator, end := startStandby(t, w.Namespace, releaseName+"-controller-manager")
	operator.waitLog(t, "waiting: the operator of another namespace leads")
	p.requireWebhooks(t, true)
	if strings.Contains(operator.log.String(), "starting reconcile loop") {
		t.Error("the operator works while the predecessor's does")
	}
	w.Patch(lease, `{"spec":{"leaseDurationSeconds":1}}`) // the predecessor does not release its lease
	operator.waitLog(t, "starting reconcile loop")
	w.WaitComplete("gpu-base")
	p.requireWebhooks(t, false)
	if got := kubelet.History("n1"); len(got) > 0 {
		t.Errorf("n1 was finished, and did %v", got)
	}
	if got, want := kubelet.History("n2"), []string{"agentd-0.9.1 apply", "agentd-0.9.1 config"}; !slices.Equal(got, want) {
		t.Errorf("n2 did %v, want %v", got, want)
	}
	end()
}

// migrate checks that a release whose Skyhooks became NodeWrights is not upgraded before they are migrated, and that nothing
// changes then. It migrates them as docs/upgrading.md says.
func (p predecessor) migrate(t *testing.T, w *testenv.Env, upgrade []string) {
	t.Helper()
	_, err := helm(t, "v3", w.Namespace, upgrade...)
	if err == nil || !strings.Contains(err.Error(), "NodeWright gpu-base has taken over Skyhook gpu-base") || !strings.Contains(err.Error(), "kubectl skyhook migrate nodewright --apply") {
		t.Errorf("before the migration an upgrade gives %v", err)
	}
	name := p.fullName() + "-controller-manager"
	if d, err := newClientset(t).AppsV1().Deployments(w.Namespace).Get(context.Background(), name, metav1.GetOptions{}); err != nil || !strings.HasPrefix(d.Spec.Template.Spec.Containers[0].Image, "example.org/") {
		t.Errorf("the refused upgrade changed the Deployment: %v, %v", d, err)
	}
	mustKubectl(t, "-n", w.Namespace, "scale", "deployment", name, "--replicas=0")
	mustKubectl(t, "apply", "--server-side", "--force-conflicts", "--filename", "chart/files/crds")
	p.runMigration(t, w)
}

// runMigration migrates NodeWrights to Skyhooks. The lease of the predecessor's operator runs out meanwhile.
func (p predecessor) runMigration(t *testing.T, w *testenv.Env) {
	t.Helper()
	review := filepath.Join(t.TempDir(), "review")
	for _, flags := range [][]string{nil, {"--apply", "--yes", "--wait", "1m"}} {
		args := append([]string{"--kubeconfig", plane.Kubeconfig(t), "-n", w.Namespace, "migrate", "nodewright", "--directory", review}, flags...)
		if out, err := exec.Command(buildPlugin(t), args...).CombinedOutput(); err != nil {
			t.Fatalf("kubectl skyhook migrate nodewright %v: %v\n%s", flags, err, out)
		}
	}
	p.requireWebhooks(t, false)
}

// createMirror creates the NodeWright that the predecessor makes of a Skyhook since v0.18.
func (p predecessor) createMirror(t *testing.T, w *testenv.Env, of *unstructured.Unstructured) {
	t.Helper()
	mirror := &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": "nodewright.nvidia.com/v1alpha1", "kind": "NodeWright", "spec": of.Object["spec"],
		"metadata": map[string]any{"name": of.GetName(), "annotations": map[string]any{
			"nodewright.nvidia.com/mirrored-from": of.GetName(), "nodewright.nvidia.com/mirrored-generation": "1", "nodewright.nvidia.com/legacy-migrated-at": "2026-10-01T10:00:00Z",
		}},
	}}
	w.Must(w.Client.Create(context.Background(), mirror))
	t.Cleanup(func() {
		mustKubectl(t, "delete", "validatingwebhookconfigurations,mutatingwebhookconfigurations", "-l", "app.kubernetes.io/instance="+p.release, "--ignore-not-found")
		w.Must(w.Client.Delete(context.Background(), mirror))
	})
}

// TestTakeoverRendered: manifests that are rendered without the cluster, as Argo CD does, are applied over those of the
// predecessor up to v0.16 as they are. Later Deployments of the same name need controllerManager.selectorLabels.
func TestTakeoverRendered(t *testing.T) {
	for _, p := range predecessors {
		t.Run(p.String(), func(t *testing.T) {
			removeCRDs(t)
			var namespace string
			dir, applied := t.TempDir(), []string(nil) // files
			t.Cleanup(func() {
				for _, file := range applied {
					mustKubectl(t, "delete", "-f", file, "-n", namespace, "--ignore-not-found", "--wait=false")
				}
			})
			w := testenv.New(t, plane, 0)
			namespace = w.Namespace
			applyRendered := func(chart string, flags []string) error {
				t.Helper()
				text, err := helm(t, "v3", w.Namespace, append([]string{"template", p.release, chart, "--no-hooks", "--kube-version", "v1.36.0"}, flags...)...)
				w.Must(err)
				file := filepath.Join(dir, fmt.Sprintf("%d.yaml", len(applied)))
				w.Must(os.WriteFile(file, []byte(text), 0o600))
				applied = append(applied, file)
				_, err = kubectl(t, "apply", "-f", file, "-n", w.Namespace)
				return err
			}
			w.Must(applyRendered(p.writeChart(t), p.flags(true)))
			selector, flags := p.readSelector(t, w.Namespace), p.ourFlags()
			if p.ourDeployment() == p.fullName()+"-controller-manager" && p.since >= 17 {
				if err := applyRendered("chart", flags); err == nil || !strings.Contains(err.Error(), "field is immutable") {
					t.Errorf("another selector gives %v", err)
				}
				for key, value := range selector {
					flags = append(flags, "--set-string", "controllerManager.selectorLabels."+strings.ReplaceAll(key, ".", `\.`)+"="+value)
				}
			}
			if err := applyRendered("chart", flags); err != nil {
				t.Errorf("the rendered chart cannot be applied: %v", err)
			}
			requireGeneratedCRDs(t)
		})
	}
}

// readSelector reads the selector of the predecessor's Deployment.
func (p predecessor) readSelector(t *testing.T, namespace string) map[string]string {
	t.Helper()
	d, err := newClientset(t).AppsV1().Deployments(namespace).Get(context.Background(), p.fullName()+"-controller-manager", metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	return d.Spec.Selector.MatchLabels
}

// requireTaken checks that the namespace has one Deployment, ours, with nothing of the predecessor's in it but the selector if
// it has the same name.
func (p predecessor) requireTaken(t *testing.T, namespace string, selector map[string]string) {
	t.Helper()
	all, err := newClientset(t).AppsV1().Deployments(namespace).List(context.Background(), metav1.ListOptions{})
	if err != nil {
		t.Fatal(err)
	}
	if len(all.Items) != 1 || all.Items[0].Name != p.ourDeployment() {
		t.Fatalf("the Deployments are %v, want only %s", all.Items, p.ourDeployment())
	}
	d := &all.Items[0]
	if p.ourDeployment() == p.fullName()+"-controller-manager" && !maps.Equal(d.Spec.Selector.MatchLabels, selector) {
		t.Errorf("the Deployment selects by %v, and before by %v", d.Spec.Selector.MatchLabels, selector)
	}
	pod := d.Spec.Template
	if len(pod.Spec.Containers) != 1 || len(pod.Spec.Containers[0].Ports) > 0 || len(pod.Spec.Volumes) != 1 || pod.Spec.Volumes[0].Name != "token" {
		t.Errorf("something of the predecessor's pod is left: %v", pod.Spec)
	}
	for _, e := range pod.Spec.Containers[0].Env {
		if e.Name == "ENABLE_WEBHOOKS" || e.Name == "JOB_STAGE_TIMEOUT" {
			t.Errorf("the predecessor's %s is left", e.Name)
		}
	}
}

// isSameJSON reports whether two texts are the same JSON.
func isSameJSON(t *testing.T, a, b string) bool {
	t.Helper()
	var x, y any
	if err := yaml.Unmarshal([]byte(a), &x); err != nil {
		t.Fatal(err)
	}
	if err := yaml.Unmarshal([]byte(b), &y); err != nil {
		t.Fatal(err)
	}
	one, err := yaml.Marshal(x)
	if err != nil {
		t.Fatal(err)
	}
	two, err := yaml.Marshal(y)
	if err != nil {
		t.Fatal(err)
	}
	return string(one) == string(two)
}
