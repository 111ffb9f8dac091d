// SPDX-FileCopyrightText: The Skyhook authors
// SPDX-License-Identifier: Apache-2.0

package cli_test

import (
	"archive/tar"
	"compress/gzip"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/skyhook-k8s/skyhook/api/skyhook/v1alpha1"
	"github.com/skyhook-k8s/skyhook/internal/node"
	"github.com/skyhook-k8s/skyhook/test/testenv"
)

// TestCleanup stops an operator in the middle of a rollout and cleans up: it lists everything, asks, and changes nothing
// before that. Afterwards nodes have nothing of ours but everything else, and the Skyhooks can be deleted.
func TestCleanup(t *testing.T) {
	s := newTestCluster(t, 6)
	taint := fmt.Sprintf(`{"spec":{"taints":[{"key":"%s","value":"runtime-required","effect":"NoSchedule"},{"key":"mine","effect":"NoSchedule"}]}}`, v1alpha1.Group)
	s.Patch(s.GetNode("n4"), `{"spec":{"unschedulable":true}}`) // by somebody else, before us
	stop := s.startStuckRollout()
	stop()
	s.Patch(s.GetNode("n5"), taint)
	s.markNode("n1")
	s.Apply("apiVersion: v1\nkind: ConfigMap\nmetadata: {name: mine, namespace: " + s.Namespace + "}\ndata: {a: b}\n")
	before := s.listRemains()
	if len(before) < 10 {
		t.Fatalf("the operator left only %v", before)
	}
	_, said := s.runBoth(1, "cleanup")
	for _, want := range []string{
		"NODE  UNCORDON  UNTAINT  SKYHOOKS", "n1    yes       yes      base, driver", "n5    -         yes      base", "Finalizers: skyhook/base, skyhook/driver",
		"deploymentpolicy/canary", "Pods: ", "ConfigMaps: ", "Remove all of this? [y/N]:", "not confirmed, so nothing was changed",
	} {
		if !strings.Contains(said, want) {
			t.Errorf("it does not say %q:\n%s", want, said)
		}
	}
	if out := s.run(0, "cleanup", "--dry-run", "--yes"); !strings.Contains(out, "(dry run)") {
		t.Errorf("a dry run prints %s", out)
	}
	if after := s.listRemains(); !slices.Equal(before, after) {
		t.Errorf("it changed something before it was told to: %v became %v", before, after)
	}
	if out := s.run(0, "cleanup", "--yes"); !strings.HasPrefix(out, "Cleaned up 6 nodes, 4 finalizers, ") {
		t.Errorf("it prints %s", out)
	}
	if after := s.listRemains(); !slices.Equal(after, []string{"n6 skyhook.nvidia.com/ignore"}) { // that is the administrator's
		t.Errorf("left are %v", after)
	}
	if n := s.GetNode("n1"); len(n.Spec.Taints) > 0 || n.Labels[v1alpha1.LabelExcludeBalancers] != "" || n.Annotations[v1alpha1.AnnotationDoNotDisrupt] != "" || n.Annotations[v1alpha1.AnnotationScaleDown] != "theirs" {
		t.Errorf("n1 has taints %v, labels %v and annotations %v", n.Spec.Taints, n.Labels, n.Annotations)
	}
	for node, cordoned := range map[string]bool{"n1": false, "n2": false, "n4": true} {
		if s.GetNode(node).Spec.Unschedulable != cordoned {
			t.Errorf("%s is cordoned: %v", node, !cordoned)
		}
	}
	if taints := s.GetNode("n5").Spec.Taints; len(taints) != 1 || taints[0].Key != "mine" {
		t.Errorf("the taints of n5 are %v", taints)
	}
	maps := &corev1.ConfigMapList{}
	s.Must(s.Client.List(t.Context(), maps, client.InNamespace(s.Namespace)))
	if maps.Items = slices.DeleteFunc(maps.Items, func(m corev1.ConfigMap) bool { return m.Name == "kube-root-ca.crt" }); len(maps.Items) != 1 {
		t.Errorf("%d ConfigMaps are left, and one is not ours", len(maps.Items))
	}
	s.Must(s.Client.Delete(t.Context(), s.GetSkyhook("driver")))
	if err := s.Client.Get(t.Context(), client.ObjectKey{Name: "driver"}, &v1alpha1.Skyhook{}); !apierrors.IsNotFound(err) {
		t.Errorf("a Skyhook cannot be deleted: %v", err)
	}
	if _, said := s.runBoth(0, "cleanup", "--yes"); said != "Nothing is left behind\n" {
		t.Errorf("the second time it says %s", said)
	}
}

// markNode puts marks on a node, as for a hold of the Skyhook driver; one is somebody else's.
func (s *testCluster) markNode(name string) {
	s.Helper()
	s.Patch(s.GetNode(name), `{"metadata":{"annotations":{"cluster-autoscaler.kubernetes.io/scale-down-disabled":"theirs"}}}`)
	n := node.Parse(s.GetNode(name), nil)
	options := v1alpha1.NodeMarks{Marks: []v1alpha1.NodeMark{
		v1alpha1.MarkExcludeFromLoadBalancers, v1alpha1.MarkDisableScaleDown, v1alpha1.MarkDoNotDisrupt, v1alpha1.MarkDescription,
	}}
	e := n.PlaceMarks("Skyhook/driver", node.NewMarks(options, node.Description{By: "Skyhook driver"}))
	e.AddTaints = []corev1.Taint{node.MaintenancePlanned}
	patch, err := json.Marshal(e.MergePatch(n))
	s.Must(err)
	s.Patch(s.GetNode(name), string(patch))
}

// listRemains returns everything of ours.
func (s *testCluster) listRemains() []string {
	s.Helper()
	var out []string
	for i := range 6 {
		n := s.GetNode(fmt.Sprintf("n%d", i+1))
		for _, m := range testenv.ListMarks(n) {
			out = append(out, n.Name+" "+m)
		}
	}
	hooks := &v1alpha1.SkyhookList{}
	s.Must(s.Client.List(context.Background(), hooks))
	for _, h := range hooks.Items {
		for _, f := range h.Finalizers {
			out = append(out, h.Name+" "+f)
		}
	}
	for _, p := range s.ListPods() {
		out = append(out, "pod "+p.Name)
	}
	slices.Sort(out)
	return out
}

// TestCleanupRefuses checks that cleanup refuses while an operator runs.
func TestCleanupRefuses(t *testing.T) {
	s := newTestCluster(t, 1)
	labels := map[string]string{"app": "skyhook-operator"}
	d := &appsv1.Deployment{ObjectMeta: metav1.ObjectMeta{Name: "skyhook-operator", Namespace: s.Namespace, Labels: labels}}
	d.Spec.Selector = &metav1.LabelSelector{MatchLabels: labels}
	d.Spec.Template.Labels = labels
	d.Spec.Template.Spec.Containers = []corev1.Container{{Name: "manager", Image: "registry.example/skyhook/operator:v9"}}
	s.Must(s.Client.Create(t.Context(), d))
	d.Status.Replicas = 1
	s.Must(s.Client.Status().Update(t.Context(), d))
	if _, said := s.runBoth(1, "cleanup", "--yes"); !strings.Contains(said, "an operator runs in namespace "+s.Namespace+": delete the Skyhooks and let it clean up, or add --force") {
		t.Errorf("it says %s", said)
	}
	s.runBoth(0, "cleanup", "--yes", "--force")
}

// TestSupportBundle writes the bundle of a stuck cluster: it has all documented files, but no values of environment variables
// and no Secrets, and its dump leads to the same output as the cluster.
func TestSupportBundle(t *testing.T) {
	s := newTestCluster(t, 6)
	port := newKubelet(t)
	for i := range 6 {
		raw := fmt.Sprintf(`{"status":{"addresses":[{"type":"InternalIP","address":"127.0.0.1"}],"daemonEndpoints":{"kubeletEndpoint":{"Port":%s}}}}`, port)
		s.Must(s.Client.Status().Patch(t.Context(), s.GetNode(fmt.Sprintf("n%d", i+1)), client.RawPatch("application/merge-patch+json", []byte(raw))))
	}
	s.Must(s.Client.Create(t.Context(), &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Name: "s", Namespace: s.Namespace}, StringData: map[string]string{"password": "tiger-in-a-secret"}}))
	stop := s.startStuckRollout()
	stop()
	file := filepath.Join(t.TempDir(), "bundle.tar.gz")
	_, said := s.runBoth(0, "support-bundle", "--to", file)
	if info, err := os.Stat(file); err != nil || info.Mode().Perm() != 0o600 || !strings.Contains(said, " written: ") {
		t.Errorf("%v, mode %v, and it says %s", err, info.Mode(), said)
	}
	in := bundleFiles(t, file)
	for name, want := range map[string]string{
		"dump.yaml":         "redacted-1",
		"status.txt":        "Skyhook driver: in_progress",
		"why.txt":           "└ base on n3: failing",
		"plan.txt":          "Skyhook driver: 5 of 6 nodes change",
		"versions.yaml":     "plugin: v0.9.0-test",
		"not-collected.txt": "logs: no pod of an operator is in namespace " + s.Namespace,

		"events.txt": "package tuning 1.2.0 fails at stage config, attempt 1",
	} {
		if !strings.Contains(in[name], want) {
			t.Errorf("%s does not have %q:\n%s", name, want, in[name])
		}
	}
	logs := 0
	for name, text := range in {
		if strings.HasPrefix(name, "logs/") && strings.Contains(text, "says") {
			logs++
		}
		for _, secret := range []string{"hunter2", "tiger-in-a-secret", "managedFields"} {
			if strings.Contains(text, secret) {
				t.Errorf("%s has %q in it", name, secret)
			}
		}
	}
	if logs < 2 { // n3 failed, n5 hangs
		t.Errorf("there are %d logs", logs)
	}
	if !strings.Contains(in["versions.yaml"], "kubernetes: v1.") || !strings.Contains(in["versions.yaml"], "unknown (no operator in namespace") ||
		!strings.Contains(in["versions.yaml"], ": 6\n") { // nodes that run the same
		t.Errorf("versions are\n%s", in["versions.yaml"])
	}
	dump := filepath.Join(t.TempDir(), "dump.yaml")
	s.Must(os.WriteFile(dump, []byte(in["dump.yaml"]), 0o600))
	var live, dumped any
	s.Must(json.Unmarshal([]byte(s.run(0, "plan", "-o", "json")), &live))
	s.Must(json.Unmarshal([]byte(s.run(0, "plan", "-o", "json", "--from", dump)), &dumped))
	if fmt.Sprint(live) != fmt.Sprint(dumped) {
		t.Errorf("the dump inside leads to another plan:\n%v\n%v", live, dumped)
	}
}

// bundleFiles reads the files of a bundle.
func bundleFiles(t *testing.T, file string) map[string]string {
	t.Helper()
	f, err := os.Open(file)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	z, err := gzip.NewReader(f)
	if err != nil {
		t.Fatal(err)
	}
	out := map[string]string{}
	for r := tar.NewReader(z); ; {
		h, err := r.Next()
		if errors.Is(err, io.EOF) {
			return out
		}
		if err != nil {
			t.Fatal(err)
		}
		text, err := io.ReadAll(r)
		if err != nil {
			t.Fatal(err)
		}
		out[strings.TrimPrefix(h.Name, "skyhook-support/")] = string(text)
	}
}
