// SPDX-FileCopyrightText: The Skyhook authors
// SPDX-License-Identifier: Apache-2.0

package live

import (
	"context"
	"os"
	"slices"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/controller-runtime/pkg/client"
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

// applyFormerState creates the Skyhook, the nodes and the ConfigMap of the predecessor.
func applyFormerState(t *testing.T, w *testenv.Env) {
	t.Helper()
	text, err := os.ReadFile("testdata/former.yaml")
	if err != nil {
		t.Fatal(err)
	}
	var s unstructured.Unstructured
	w.Must(yaml.Unmarshal(text, &s.Object))
	status := s.Object["status"]
	w.Must(w.Client.Create(context.Background(), &s))
	s.Object["status"] = status
	w.Must(w.Client.Status().Update(context.Background(), &s))
	mark := func(node, state, status, more string) {
		w.Patch(w.GetNode(node), `{"metadata":{"labels":{"skyhook.nvidia.com/status_gpu-base":"`+status+`"},"annotations":{`+more+
			`"skyhook.nvidia.com/status_gpu-base":"`+status+`","skyhook.nvidia.com/version_gpu-base":"v0.15.0","skyhook.nvidia.com/nodeState_gpu-base":`+toJSONString(t, state)+`}}}`)
	}
	mark("n1", finished, "complete", "")
	mark("n2", `{`+agentdRuns+`,`+kernelDone+`}`, "in_progress", `"skyhook.nvidia.com/cordon_gpu-base":"true",`)
	w.Patch(w.GetNode("n2"), `{"spec":{"unschedulable":true}}`)
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

func toJSONString(t *testing.T, text string) string {
	t.Helper()
	raw, err := yaml.YAMLToJSON([]byte("'" + text + "'"))
	if err != nil {
		t.Fatal(err)
	}
	return string(raw)
}

// TestTakeover: an operator of ours takes the place of the predecessor's in the middle of a rollout. What is finished is
// not run again, what had begun is, once; after a downgrade everything is as the predecessor left it, and coming back
// changes nothing.
func TestTakeover(t *testing.T) {
	removeCRDs(t)
	w := testenv.New(t, plane, 2)
	kubelet := w.StartKubelet()
	mustHelm(t, "v3", w.Namespace, "install", releaseName, formerChart(t))
	// With the webhooks of the predecessor nobody could write this: they are tried by another test.
	for _, what := range []string{"validating", "mutating"} {
		removeWebhooks(t, what)
	}
	applyFormerState(t, w)
	mustHelm(t, "v3", w.Namespace, "upgrade", releaseName, "chart", "--set-string", quietly)
	requireGeneratedCRDs(t)
	_, end := startOperator(t, w.Namespace)
	w.WaitComplete("gpu-base")
	if got := kubelet.History("n1"); len(got) > 0 {
		t.Errorf("n1 was finished, and did %v", got)
	}
	if got, want := kubelet.History("n2"), []string{"agentd-0.9.1 apply", "agentd-0.9.1 config"}; !slices.Equal(got, want) {
		t.Errorf("n2 did %v, want %v", got, want)
	}
	w.Eventually("n2 is given back", func() bool { return !w.GetNode("n2").Spec.Unschedulable })
	for _, node := range []string{"n1", "n2"} {
		if got := w.GetNode(node).Annotations["skyhook.nvidia.com/nodeState_gpu-base"]; !isSameJSON(t, got, finished) {
			t.Errorf("the record on %s is\n%s\nwant\n%s", node, got, finished)
		}
	}
	end()

	before := w.GetSkyhook("gpu-base")
	mustHelm(t, "v3", w.Namespace, "rollback", releaseName, "1")
	for _, what := range []string{"validating", "mutating"} {
		removeWebhooks(t, what)
	}
	if after := w.GetSkyhook("gpu-base"); after.UID != before.UID || after.DeletionTimestamp != nil || len(after.Spec.Packages) != 2 {
		t.Errorf("after the downgrade the Skyhook is %v", after)
	}
	if got := w.GetNode("n1").Annotations["skyhook.nvidia.com/nodeState_gpu-base"]; !isSameJSON(t, got, finished) {
		t.Errorf("after the downgrade the record on n1 is %s", got)
	}
	mustHelm(t, "v3", w.Namespace, "upgrade", releaseName, "chart", "--set-string", quietly)
	_, end = startOperator(t, w.Namespace)
	w.WaitComplete("gpu-base")
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

// removeWebhooks deletes a webhook configuration of the predecessor, as if its server answered.
func removeWebhooks(t *testing.T, what string) {
	t.Helper()
	name := "skyhook-operator-" + what + "-webhook"
	c := newClientset(t).AdmissionregistrationV1()
	var err error
	if what == "validating" {
		err = c.ValidatingWebhookConfigurations().Delete(context.Background(), name, metav1.DeleteOptions{})
	} else {
		err = c.MutatingWebhookConfigurations().Delete(context.Background(), name, metav1.DeleteOptions{})
	}
	if client.IgnoreNotFound(err) != nil {
		t.Fatal(err)
	}
}
