// SPDX-FileCopyrightText: The Skyhook authors
// SPDX-License-Identifier: Apache-2.0

package cli_test

import (
	"fmt"
	"strings"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/skyhook-k8s/skyhook/api/skyhook/v1alpha1"
	"github.com/skyhook-k8s/skyhook/internal/options"
)

const historic = `
apiVersion: skyhook.nvidia.com/v1alpha1
kind: Skyhook
metadata: {name: demo, annotations: {kubernetes.io/change-cause: %q}}
spec:
  priority: %d
  packages: {tuning: {version: %s, image: registry.example/tuning, configMap: {a.conf: x}}}
`

// TestUndo rolls two versions out, looks at the history, and goes back. What else was edited stays, a second undo returns, and what GitOps
// writes is left alone.
func TestUndo(t *testing.T) {
	s := newTestCluster(t, 2)
	if _, said := s.runBoth(1, "history", "demo"); !strings.Contains(said, `"demo" not found`) {
		t.Errorf("history of nothing says %s", said)
	}
	stop := s.startOperator()
	defer stop()
	roll := func(text string, revision int64) {
		t.Helper()
		s.Apply(text)
		s.waitRevision(revision)
	}
	roll(fmt.Sprintf(historic, "first", 100, "1.0.0"), 1)
	if _, said := s.runBoth(1, "undo", "demo"); !strings.Contains(said, "there is no earlier revision of Skyhook demo") {
		t.Errorf("undo of the only revision says %s", said)
	}
	roll(fmt.Sprintf(historic, "newer", 150, "1.1.0"), 2)

	if status := s.run(0, "status", "demo"); !strings.Contains(status, "\n  revisions 2 on 2 nodes\n") {
		t.Errorf("status does not show revisions:\n%s", status)
	}
	table := s.run(0, "history", "demo")
	for _, want := range []string{"REVISION     NODES  AGE", "2 (current)  2 ", "tuning:1.1.0  tuning 1.0.0 to 1.1.0  newer", "tuning:1.0.0  -                      first"} {
		if !strings.Contains(table, want) {
			t.Errorf("history does not show %q:\n%s", want, table)
		}
	}
	if one := s.run(0, "history", "demo", "--revision", "1"); !strings.HasPrefix(one, "Skyhook demo, revision 1, on 0 nodes\nChange cause: first\n") || !strings.Contains(one, "    version: 1.0.0\n") {
		t.Errorf("revision 1 is shown as\n%s", one)
	}
	if _, said := s.runBoth(1, "history", "demo", "--revision", "7"); !strings.Contains(said, "there is no revision 7 of Skyhook demo; it has 2, 1") {
		t.Errorf("an unknown revision: %s", said)
	}
	if diff := s.run(2, "diff", "demo", "--detailed-exitcode"); !strings.Contains(diff, "--- the spec\n+++ revision 1\n") || !strings.Contains(diff, "\n-    version: 1.1.0\n+    version: 1.0.0\n") {
		t.Errorf("the diff is\n%s", diff)
	}
	if diff := s.run(0, "diff", "demo", "--revision", "2"); diff != "" {
		t.Errorf("a diff of nothing is\n%s", diff)
	}

	printed, said := s.runBoth(0, "undo", "demo", "--confirm")
	if printed != "Skyhook \"demo\" has the packages of revision 1\n" || !strings.Contains(said, "+    version: 1.0.0\n") || !strings.Contains(said, "2 of 2 nodes change") {
		t.Errorf("undo prints %s and says\n%s", printed, said)
	}
	s.waitRevision(3)
	got := s.GetSkyhook("demo")
	if got.Spec.Priority != 150 || got.Spec.Packages["tuning"].Version != "1.0.0" || got.Annotations["kubernetes.io/change-cause"] != "undo to revision 1: first" {
		t.Errorf("after the undo the Skyhook is %+v %v", got.Spec, got.Annotations)
	}
	s.run(0, "undo", "demo", "--to-revision", "2", "--confirm", "--dry-run")
	if s.GetSkyhook("demo").Generation != got.Generation {
		t.Error("a dry run changed the spec")
	}

	s.Must(s.Client.Patch(t.Context(), s.GetSkyhook("demo"), client.RawPatch("application/apply-patch+yaml", []byte(fmt.Sprintf(historic, "git", 150, "1.0.0"))),
		client.FieldOwner("argocd-controller"), client.ForceOwnership))
	if _, said := s.runBoth(1, "undo", "demo", "--confirm"); !strings.Contains(said, "are written by argocd-controller, which would undo the undo") {
		t.Errorf("undo of what GitOps writes says %s", said)
	}
	s.run(0, "undo", "demo", "--confirm", "--force")
	s.waitRevision(4)
}

// waitRevision waits until a revision is the newest and is on both nodes.
func (s *testCluster) waitRevision(number int64) {
	s.Helper()
	s.Eventually(fmt.Sprintf("revision %d is on all nodes", number), func() bool {
		got := s.GetSkyhook("demo").Status
		return got.Status == v1alpha1.StatusComplete && len(got.Revisions) > 0 && got.Revisions[0].Revision == number && got.Revisions[0].Nodes == 2
	})
}

// TestHistoryOfDigests rolls two versions out by an operator with pinImages: the history has the digest of each, also of one that no node has any more,
// and going back shows which digest is pulled then.
func TestHistoryOfDigests(t *testing.T) {
	s := newTestCluster(t, 2)
	tagged := 0
	s.kubelet.SetRegistry(func(image string) string {
		if !strings.HasPrefix(image, "registry.example/tuning:") {
			return image
		}
		tagged++
		return "registry.example/tuning@" + digestOf(tagged)
	})
	s.Apply(strings.NewReplacer("NAMESPACE}", s.Namespace+"}", "args: [--default-deployment-policy=canary]", "args: [--pin-images=true]").Replace(operatorSettings))
	s.startOperator(func(o *options.Options) { o.PinImages = new(true) })
	for i, version := range []string{"1.0.0", "1.1.0"} {
		s.Apply(fmt.Sprintf(historic, version, 100, version))
		s.waitRevision(int64(i + 1))
	}
	newest, earlier := "tuning@sha256:222222222222 ", "tuning@sha256:111111111111 "
	table := s.run(0, "history", "demo")
	for _, want := range []string{"PACKAGES      DIGESTS ", "tuning:1.1.0  " + newest, "tuning:1.0.0  " + earlier} {
		if !strings.Contains(table, want) {
			t.Errorf("history does not show %q:\n%s", want, table)
		}
	}
	for _, shown := range []string{
		s.run(0, "history", "demo", "-o", "wide"), s.run(0, "history", "demo", "--revision", "1"),
		s.run(0, "history", "demo", "--revision", "1", "-o", "json"), s.run(0, "history", "demo", "-o", "yaml"),
	} {
		if !strings.Contains(shown, "tuning@"+digestOf(1)) {
			t.Errorf("the digest of the earlier revision is missing:\n%s", shown)
		}
	}
	if _, said := s.runBoth(0, "undo", "demo", "--confirm"); !strings.Contains(said, "tuning 1.0.0: registry.example/tuning@"+digestOf(1)+", pulled first by node ") {
		t.Errorf("undo does not say what is pulled:\n%s", said)
	}
	s.waitRevision(3)
	if pins := s.GetSkyhook("demo").Status.Internal.ImagePins; len(pins) != 1 || pins[0].Digest != digestOf(1) {
		t.Errorf("after the undo the status records %+v", pins)
	}

	s.removePins()
	if table := s.run(0, "history", "demo"); !strings.Contains(table, "tuning:1.1.0  <none>") {
		t.Errorf("history shows a digest that is not known:\n%s", table)
	}
	if _, said := s.runBoth(0, "undo", "demo", "--confirm", "--dry-run"); !strings.Contains(said, "tuning 1.1.0: registry.example/tuning:1.1.0, the digest that the first node pulls is used on the others") {
		t.Errorf("undo does not say that a digest is recorded anew:\n%s", said)
	}
}

// digestOf is the digest of the nth image that was pulled by a tag.
func digestOf(n int) string { return "sha256:" + strings.Repeat(fmt.Sprint(n), 64) }

// removePins removes the digests that are kept with revisions.
func (s *testCluster) removePins() {
	s.Helper()
	list := &appsv1.ControllerRevisionList{}
	s.Must(s.Client.List(s.Context(), list, client.InNamespace(s.Namespace)))
	for i := range list.Items {
		s.Patch(&list.Items[i], `{"metadata":{"annotations":{"skyhook.nvidia.com/image-pins":null}}}`)
	}
}
