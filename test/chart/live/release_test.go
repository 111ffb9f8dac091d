// SPDX-FileCopyrightText: The Skyhook authors
// SPDX-License-Identifier: Apache-2.0

package live

import (
	"context"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/dynamic"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/skyhook-k8s/skyhook/test/chart/render"
	"github.com/skyhook-k8s/skyhook/test/testenv"
)

// newCRDClient returns a client for CRDs.
func newCRDClient(t *testing.T) client.Client {
	t.Helper()
	s := runtime.NewScheme()
	if err := apiextensionsv1.AddToScheme(s); err != nil {
		t.Fatal(err)
	}
	c, err := client.New(plane.Config, client.Options{Scheme: s})
	if err != nil {
		t.Fatal(err)
	}
	return c
}

// removeCRDs removes the CRDs when the test ends: they outlive their release, and belong to it. Who kept them may be believed
// to be there for a moment longer, so they are deleted until they are gone.
func removeCRDs(t *testing.T) {
	t.Helper()
	c := newCRDClient(t)
	t.Cleanup(func() {
		ctx := context.Background()
		all := &apiextensionsv1.CustomResourceDefinitionList{}
		for deadline := time.Now().Add(2 * time.Minute); ; time.Sleep(100 * time.Millisecond) {
			refused := c.DeleteAllOf(ctx, &apiextensionsv1.CustomResourceDefinition{})
			if err := c.List(ctx, all); err != nil {
				t.Fatal(err)
			}
			if len(all.Items) == 0 {
				return
			}
			if time.Now().After(deadline) {
				t.Fatalf("after two minutes %d CRDs are still there, %s: %v, %v", len(all.Items), all.Items[0].Name, all.Items[0].Status.Conditions, refused)
			}
		}
	})
}

// simple is a Skyhook with one package, to be uninstalled when the Skyhook is deleted.
const simple = `
apiVersion: skyhook.nvidia.com/v1alpha1
kind: Skyhook
metadata: {name: simple}
spec:
  nodeSelectors: {matchLabels: {pool: gpu}}
  packages: {tool: {version: 1.0.0, image: registry.example/tool, uninstall: {enabled: true}}}
`

// mustHelm runs Helm, and fails the test where that fails. What it installs goes when the test ends, if not before.
func mustHelm(t *testing.T, version, namespace string, args ...string) string {
	t.Helper()
	if args[0] == "install" {
		t.Cleanup(func() {
			if _, err := helm(t, "v4", namespace, "uninstall", args[1], "--no-hooks", "--ignore-not-found"); err != nil {
				t.Error(err)
			}
		})
	}
	out, err := helm(t, version, namespace, args...)
	if err != nil {
		t.Fatal(err)
	}
	awaitCRDs(t)
	return out
}

// awaitCRDs returns when the API server serves all CRDs that it has: Helm does not wait for that, and neither does who answers
// a request for what was created a moment ago.
func awaitCRDs(t *testing.T) {
	t.Helper()
	all, discovery := &apiextensionsv1.CustomResourceDefinitionList{}, newClientset(t).Discovery()
	if err := newCRDClient(t).List(context.Background(), all); err != nil {
		t.Fatal(err)
	}
	for i := range all.Items {
		crd := &all.Items[i]
		isServed := func() bool {
			resources, err := discovery.ServerResourcesForGroupVersion(crd.Spec.Group + "/" + crd.Spec.Versions[0].Name)
			return err == nil && slices.ContainsFunc(resources.APIResources, func(r metav1.APIResource) bool { return r.Name == crd.Spec.Names.Plural })
		}
		for deadline := time.Now().Add(time.Minute); !isServed(); time.Sleep(50 * time.Millisecond) {
			if time.Now().After(deadline) {
				t.Fatalf("after a minute %s is not served", crd.Name)
			}
		}
	}
}

// TestRelease takes a release through its life: an earlier operator's chart is upgraded to ours, ours is upgraded, rolled
// back, uninstalled and installed again. What the nodes got stays until the Skyhook is deleted, and is not made twice.
func TestRelease(t *testing.T) {
	for _, c := range []struct{ name, first, then string }{
		{"Helm 3", "v3", "v3"}, {"Helm 4", "v4", "v4"}, {"Helm 3, then Helm 4", "v3", "v4"},
	} {
		t.Run(c.name, func(t *testing.T) {
			removeCRDs(t)
			w := testenv.New(t, plane, 2)
			kubelet := w.StartKubelet()
			startJobController(t, w.Namespace)
			mustHelm(t, c.first, w.Namespace, "install", releaseName, predecessors[0].writeChart(t))
			mustHelm(t, c.then, w.Namespace, "upgrade", releaseName, "chart", "--set-string", quietly)
			requireGeneratedCRDs(t)
			if webhooks, err := newClientset(t).AdmissionregistrationV1().ValidatingWebhookConfigurations().List(context.Background(), metav1.ListOptions{}); err != nil || len(webhooks.Items) > 0 {
				t.Errorf("the webhooks of the earlier operator are still there: %v, %v", webhooks, err)
			}
			_, end := startOperator(t, w.Namespace)
			w.Apply(simple)
			w.WaitComplete("simple")
			before := w.GetSkyhook("simple").UID
			history := slices.Concat(kubelet.History("n1"), kubelet.History("n2"))

			end()
			mustHelm(t, c.then, w.Namespace, "upgrade", releaseName, "chart", "--set-string", quietly, "--set", "controllerManager.manager.env.agentLogRoot=/opt/log")
			_, end = startOperator(t, w.Namespace)
			waitObserved(w, "simple")
			end()
			mustHelm(t, c.then, w.Namespace, "rollback", releaseName, "1")
			mustHelm(t, c.then, w.Namespace, "upgrade", releaseName, "chart", "--set-string", quietly, "--set", "cleanup.enabled=true")
			_, end = startOperator(t, w.Namespace)
			waitObserved(w, "simple")
			if after := slices.Concat(kubelet.History("n1"), kubelet.History("n2")); !slices.Equal(after, history) || w.GetSkyhook("simple").UID != before {
				t.Errorf("upgrades and a downgrade of the chart made nodes do something: %v, before %v", after, history)
			}

			mustHelm(t, c.then, w.Namespace, "uninstall", releaseName)
			end()
			requireGone(t, w)
			if last := kubelet.History("n1"); last[len(last)-1] != "tool-1.0.0 uninstall" {
				t.Errorf("before the release went, n1 did %v", last)
			}
			mustHelm(t, c.then, w.Namespace, "install", releaseName, "chart", "--set-string", quietly)
			mustHelm(t, c.then, w.Namespace, "uninstall", releaseName)
		})
	}
}

// requireGeneratedCRDs checks that the CRDs of the cluster are the generated ones.
func requireGeneratedCRDs(t *testing.T) {
	t.Helper()
	want, err := render.Chart(render.Options{})
	if err != nil {
		t.Fatal(err)
	}
	c := newCRDClient(t)
	for _, u := range want.Objects {
		if u.GetKind() != "CustomResourceDefinition" {
			continue
		}
		var expected, found apiextensionsv1.CustomResourceDefinition
		if err := render.Into(u, &expected); err != nil {
			t.Fatal(err)
		}
		if err := c.Get(context.Background(), client.ObjectKeyFromObject(u), &found); err != nil {
			t.Fatal(err)
		}
		if found.Spec.Conversion != nil && found.Spec.Conversion.Strategy != apiextensionsv1.NoneConverter {
			t.Errorf("%s is converted by %s", u.GetName(), found.Spec.Conversion.Strategy)
		}
		if diff := cmp.Diff(expected.Spec.Versions, found.Spec.Versions); diff != "" {
			t.Errorf("%s in the cluster is not the generated one (-generated +cluster)\n%s", u.GetName(), diff)
		}
		waitServed(t, u.GetName())
	}
}

// waitServed waits until the API server serves a kind, a moment after its CRD was written.
func waitServed(t *testing.T, crd string) {
	t.Helper()
	resource, group, _ := strings.Cut(crd, ".")
	for deadline := time.Now().Add(2 * time.Minute); ; time.Sleep(50 * time.Millisecond) {
		list, err := newClientset(t).Discovery().ServerResourcesForGroupVersion(group + "/v1alpha1")
		if err == nil && slices.ContainsFunc(list.APIResources, func(r metav1.APIResource) bool { return r.Name == resource }) {
			return
		}
		if time.Now().After(deadline) {
			t.Fatalf("after two minutes %s is not served: %v", crd, err)
		}
	}
}

// requireGone checks that nothing of a release is left but its CRDs, and nothing of Skyhooks on nodes but the record of packages that stay.
func requireGone(t *testing.T, w *testenv.Env) {
	t.Helper()
	c, err := dynamic.NewForConfig(plane.Config)
	if err != nil {
		t.Fatal(err)
	}
	_, lists, err := newClientset(t).Discovery().ServerGroupsAndResources()
	if err != nil {
		t.Fatal(err)
	}
	kept := 0
	for _, l := range lists {
		group, err := schema.ParseGroupVersion(l.GroupVersion)
		if err != nil {
			t.Fatal(err)
		}
		for _, r := range l.APIResources {
			if !slices.Contains(r.Verbs, "list") || strings.Contains(r.Name, "/") || r.Kind == "Event" { // these pass by themselves
				continue
			}
			found, err := c.Resource(group.WithResource(r.Name)).List(context.Background(), metav1.ListOptions{})
			if err != nil {
				t.Fatalf("listing %s: %v", r.Name, err)
			}
			for _, u := range found.Items {
				if u.GetKind() == "CustomResourceDefinition" {
					kept++
				} else if u.GetLabels()["app.kubernetes.io/instance"] == releaseName || strings.HasPrefix(u.GetName(), releaseName) {
					t.Errorf("%s %s/%s is left", u.GetKind(), u.GetNamespace(), u.GetName())
				}
			}
		}
	}
	if kept != 4 {
		t.Errorf("%d CRDs are there, want the four of ours", kept)
	}
	nodes := &corev1.NodeList{}
	w.Must(w.Client.List(context.Background(), nodes))
	for i := range nodes.Items {
		for _, mark := range testenv.ListRemains(&nodes.Items[i]) {
			t.Errorf("node %s still has %s", nodes.Items[i].Name, mark)
		}
	}
}

// TestUninstallIsHeld: what cannot be finished keeps the release, and the operator with it, and says what it is.
func TestUninstallIsHeld(t *testing.T) {
	removeCRDs(t)
	w := testenv.New(t, plane, 1)
	w.StartKubelet()
	startJobController(t, w.Namespace)
	mustHelm(t, "v4", w.Namespace, "install", releaseName, "chart", "--set-string", quietly, "--set", "cleanup.enabled=true,cleanup.jobTimeoutSeconds=40")
	requireGeneratedCRDs(t)
	_, end := startOperator(t, w.Namespace)
	w.Apply(simple)
	w.WaitComplete("simple")
	w.Patch(w.GetSkyhook("simple"), `{"metadata":{"annotations":{"skyhook.nvidia.com/pause":"true"}}}`)

	if out, err := helm(t, "v4", w.Namespace, "uninstall", releaseName); err == nil {
		t.Fatalf("a release with a paused Skyhook that has a package to uninstall went:\n%s", out)
	}
	ctx := context.Background()
	if _, err := newClientset(t).AppsV1().Deployments(w.Namespace).Get(ctx, releaseName+"-controller-manager", metav1.GetOptions{}); err != nil {
		t.Errorf("the operator went before its work was done: %v", err)
	}
	w.Patch(w.GetSkyhook("simple"), `{"metadata":{"annotations":{"skyhook.nvidia.com/pause":null}}}`)
	mustHelm(t, "v4", w.Namespace, "uninstall", releaseName)
	end()
	requireGone(t, w)
}

// TestUninstallWithoutCleanup leaves Skyhooks and nodes as they are, for an operator that comes later.
func TestUninstallWithoutCleanup(t *testing.T) {
	removeCRDs(t)
	w := testenv.New(t, plane, 1)
	kubelet := w.StartKubelet()
	mustHelm(t, "v4", w.Namespace, "install", releaseName, "chart", "--set-string", quietly, "--set", "cleanup.enabled=false")
	requireGeneratedCRDs(t)
	_, end := startOperator(t, w.Namespace)
	w.Apply(simple)
	w.WaitComplete("simple")
	end()
	before := w.GetSkyhook("simple")
	mustHelm(t, "v4", w.Namespace, "uninstall", releaseName)
	if after := w.GetSkyhook("simple"); after.UID != before.UID || after.DeletionTimestamp != nil {
		t.Errorf("the Skyhook is not what it was: %v", after.ObjectMeta)
	}

	// elsewhere the CRDs have to change hands
	other := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: w.Namespace + "-2"}}
	w.Must(client.IgnoreAlreadyExists(w.Client.Create(context.Background(), other)))
	if _, err := helm(t, "v4", other.Name, "install", "mine", "chart", "--set-string", quietly); err == nil || !strings.Contains(err.Error(), "invalid ownership metadata") {
		t.Errorf("the CRDs belong to another release, and installing gives %v", err)
	}
	mustHelm(t, "v3", other.Name, "install", releaseName, "chart", "--set-string", quietly, "--set", "cleanup.enabled=false", "--take-ownership")
	_, end = startOperator(t, other.Name)
	waitObserved(w, "simple")
	end()
	if got := kubelet.History("n1"); len(got) != 2 {
		t.Errorf("an operator in another namespace made n1 do something: %v", got)
	}
	mustHelm(t, "v3", other.Name, "uninstall", releaseName)
}
