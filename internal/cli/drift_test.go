// SPDX-FileCopyrightText: The Skyhook authors
// SPDX-License-Identifier: Apache-2.0

package cli_test

import (
	"context"
	"encoding/json"
	"reflect"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/skyhook-k8s/skyhook/api/skyhook/v1alpha1"
	"github.com/skyhook-k8s/skyhook/internal/node"
	"github.com/skyhook-k8s/skyhook/internal/skyhook/plan"
	"github.com/skyhook-k8s/skyhook/internal/view"
)

const checkedHook = `
apiVersion: skyhook.nvidia.com/v1alpha1
kind: Skyhook
metadata: {name: demo}
spec:
  nodeSelectors: {matchLabels: {pool: gpu}}
  drift: {every: 6h}
  packages: {tuning: {version: 1.0.0, image: registry.example/packages/tuning}, shell: {version: 2.0.0, image: registry.example/packages/shell}}
`

const exitDrifted = 2

// writeDrift records on a node that a package is not as it was left, as a check does.
func (s *testCluster) writeDrift(nodeName, key string, found node.PackageDrift, pod ...string) {
	s.Helper()
	n, hook := s.GetNode(nodeName), s.GetSkyhook("demo")
	rec, err := node.ParseSkyhookRecord(n.Annotations[v1alpha1.PrefixRecord+"demo"])
	s.Must(err)
	found.Hash, found.Since = rec.Packages[key].Hash, time.Now().UTC().Add(-10*time.Minute)
	drift := node.DriftRecord{
		Node: string(n.UID), Skyhook: string(hook.UID), CheckedAt: time.Now().UTC().Add(time.Second), Packages: map[string]node.PackageDrift{key: found},
	}
	if len(pod) > 0 {
		drift.Pod = pod[0]
	}
	value := strings.ReplaceAll(drift.String(), `"`, `\"`)
	s.Patch(n, `{"metadata":{"annotations":{"`+v1alpha1.PrefixDrift+`demo":"`+value+`"}}}`)
}

// TestDrift: drift, and the pages of ui, show what checks found.
func TestDrift(t *testing.T) {
	w := newTestCluster(t, 3)
	stop := w.startOperator()
	w.Apply(checkedHook)
	w.WaitComplete("demo")
	stop()
	time.Sleep(time.Second) // times in records are whole seconds
	w.writeDrift("n2", "tuning|1.0.0", node.PackageDrift{Text: "apply-check ended with exit code 1: vm.swappiness is 60", Checks: []string{"apply-check"}})
	w.writeDrift("n3", "shell|2.0.0", node.PackageDrift{Text: "its image has no checks", NotCheckable: true})
	time.Sleep(time.Second)

	printed := w.run(exitDrifted, "drift", "--detailed-exitcode")
	for _, want := range []string{
		"Skyhook demo: 2 of 3 nodes checked, 1 drifted, 1 with packages that cannot be checked, last check ", "n2    demo     tuning:1.0.0  Drifted  10m", "vm.swappiness is 60",
		"n3    demo     shell:2.0.0   Unknown  10m", "its image has no checks",
	} {
		if !strings.Contains(printed, want) {
			t.Errorf("it does not print %q:\n%s", want, printed)
		}
	}
	if printed := w.run(0, "drift", "n3", "-o", "name"); printed != "node/n3\n" {
		t.Errorf("of a node that cannot be checked it prints %q", printed)
	}
	if said := w.run(exitDrifted, "drift", "--detailed-exitcode", "n2"); strings.Contains(said, "n3") {
		t.Errorf("of one node it prints another one:\n%s", said)
	}
	if _, said := w.runBoth(1, "drift", "nosuch"); !strings.Contains(said, `there is no node and no Skyhook "nosuch"`) {
		t.Errorf("of an unknown name it says %s", said)
	}

	s := startUI(t, "--kubeconfig", w.file, "--operator-namespace", w.Namespace)
	if _, page := s.get("/?state=drifted", "text/html"); !strings.Contains(string(page), `data-n="n2"`) || strings.Contains(string(page), `data-n="n3"`) {
		t.Errorf("the fleet does not show that n2 drifted, and no other:\n%s", page)
	}
	var want any
	w.Must(json.Unmarshal([]byte(w.run(exitDrifted, "drift", "--detailed-exitcode", "n2", "-o", "json")), &want))
	if got := s.getPart("/nodes/n2", "drift"); !reflect.DeepEqual(got, want) {
		t.Errorf("the page has\n%v\nand drift prints\n%v", got, want)
	}
	if _, page := s.get("/nodes/n2", "text/html"); !strings.Contains(string(page), "vm.swappiness is 60") {
		t.Errorf("the page of the node does not show what drifted:\n%s", page)
	}
}

// TestDriftDiff: with a name drift shows how text files differ, from the log of the container that checked the package.
func TestDriftDiff(t *testing.T) {
	w := newTestCluster(t, 2)
	stop := w.startOperator()
	w.Apply(checkedHook)
	w.WaitComplete("demo")
	stop()
	time.Sleep(time.Second) // times in records are whole seconds
	found := node.PackageDrift{Text: "delivered files differ: /etc/a (changed)", Files: []string{"/etc/a"}}
	w.writeDrift("n1", "tuning|1.0.0", found, "demo-drift-n1")
	w.writeDrift("n2", "tuning|1.0.0", found, "demo-drift-n2")
	time.Sleep(time.Second)

	n := w.GetNode("n1")
	w.Must(w.Client.Status().Patch(context.Background(), n, client.RawPatch(types.MergePatchType, []byte(`{"status":{"addresses":[{"type":"InternalIP","address":"127.0.0.1"}],"daemonEndpoints":{"kubeletEndpoint":{"Port":`+newKubelet(t)+`}}}}`))))
	container := plan.DriftContainer("tuning|1.0.0")
	w.Must(w.Client.Create(context.Background(), &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Name: "demo-drift-n1", Namespace: w.Namespace},
		Spec:       corev1.PodSpec{NodeName: "n1", Containers: []corev1.Container{{Name: container, Image: "registry.example/agent"}}},
	}))
	shown, warned := w.runBoth(exitDrifted, "drift", "--detailed-exitcode", "demo")
	want := "\nPackage tuning on node n1:\n--- delivered/etc/a\n+++ host/etc/a\n@@ -1 +1 @@\n-a=1\n+a=2\n"
	if !strings.HasSuffix(shown, want) || strings.Contains(shown, "what the agent logs") {
		t.Errorf("it prints\n%s", shown)
	}
	if want := `the differences of package tuning on node n2 cannot be read: pods "demo-drift-n2" not found`; !strings.Contains(warned, want) {
		t.Errorf("of a pod that is gone it says\n%s", warned)
	}
	var report struct {
		Packages []struct {
			Node string
			Diff []string
		}
	}
	w.Must(json.Unmarshal([]byte(w.run(exitDrifted, "drift", "--detailed-exitcode", "n1", "-o", "json")), &report))
	if len(report.Packages) != 1 || len(report.Packages[0].Diff) != 5 || report.Packages[0].Diff[4] != "+a=2" {
		t.Errorf("as JSON it is %+v", report)
	}
	if shown := w.run(exitDrifted, "drift", "--detailed-exitcode"); strings.Contains(shown, "+a=2") {
		t.Errorf("without a name it reads logs:\n%s", shown)
	}
}

// TestUIDoneStages: the page of a node shows when the stages of finished work ran.
func TestUIDoneStages(t *testing.T) {
	w := newTestCluster(t, 1)
	began := time.Now().Add(-time.Second)
	stop := w.startOperator()
	w.Apply(checkedHook)
	w.WaitComplete("demo")
	stop()
	s := startUI(t, "--kubeconfig", w.file, "--operator-namespace", w.Namespace)
	var work []view.Work
	raw, err := json.Marshal(s.getPart("/nodes/n1", "work"))
	w.Must(err)
	w.Must(json.Unmarshal(raw, &work))
	labels := map[string]bool{}
	for _, stage := range work[0].Stages {
		labels[stage.Label] = true
		isTimed := stage.Started != nil && stage.Ended != nil && stage.Duration != "" && stage.Started.After(began.Add(-time.Second)) && !stage.Ended.After(time.Now())
		if !isTimed || stage.State != "done" {
			t.Errorf("a stage that succeeded has no time: %+v", stage)
		}
	}
	if want := map[string]bool{"tuning apply": true, "tuning config": true, "shell apply": true, "shell config": true}; !reflect.DeepEqual(labels, want) {
		t.Errorf("the page has the stages %v, want %v", labels, want)
	}
}
