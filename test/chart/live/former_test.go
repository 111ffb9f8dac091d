// SPDX-FileCopyrightText: The Skyhook authors
// SPDX-License-Identifier: Apache-2.0

package live

import (
	"context"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/yaml"

	"github.com/skyhook-k8s/skyhook/test/chart/render"
	"github.com/skyhook-k8s/skyhook/test/testenv"
)

// predecessor is an installation of the predecessor: a version of its chart, and how it was installed.
type predecessor struct {
	since    int    // minor version of the operator
	chart    string // skyhook-operator, or nodewright since v0.17
	release  string
	override string // fullnameOverride
}

// predecessors are the installations that occur: the first chart with its own name and another one, and the renamed charts with
// the old and with new names.
var predecessors = []predecessor{
	{15, "skyhook-operator", "skyhook-operator", ""},
	{15, "skyhook-operator", "gpu", ""},
	{15, "skyhook-operator", "skyhook", ""},
	{16, "skyhook-operator", "skyhook-operator", ""},
	{17, "nodewright", "skyhook-operator", "skyhook-operator"},
	{18, "nodewright", "skyhook-operator", "skyhook-operator"},
	{19, "nodewright", "nodewright", "skyhook-operator"},
	{20, "nodewright", "nodewright", ""},
}

func (p predecessor) String() string {
	return strings.TrimSpace(fmt.Sprintf("v0.%d as %s %s", p.since, p.release, p.override))
}

// fullName is the name that the names of its objects begin with.
func (p predecessor) fullName() string {
	switch {
	case p.override != "":
		return p.override
	case strings.Contains(p.release, p.chart):
		return p.release
	default:
		return p.release + "-" + p.chart
	}
}

// webhookNames returns the names of its webhook configurations.
func (p predecessor) webhookNames() (validating, mutating string) {
	prefix := "skyhook-operator"
	if p.since >= 17 {
		prefix = p.fullName()
	}
	return prefix + "-validating-webhook", prefix + "-mutating-webhook"
}

// flags are the arguments of Helm for its values. Webhooks are served by its operator, which is not there: with them every write
// of a Skyhook is refused.
func (p predecessor) flags(webhooks bool) []string {
	out := []string{"--set", fmt.Sprintf("since=%d,webhook.enable=%v", p.since, webhooks)}
	if p.override != "" {
		out = append(out, "--set", "fullnameOverride="+p.override)
	}
	return out
}

// ourFlags are the values with which our chart takes over the release.
func (p predecessor) ourFlags() []string {
	out := []string{"--set-string", quietly}
	if p.override != "" {
		out = append(out, "--set", "fullnameOverride="+p.override)
	}
	return out
}

// ourDeployment is the name of our Deployment in its release.
func (p predecessor) ourDeployment() string {
	full := p.release + "-" + releaseName
	switch {
	case strings.HasPrefix(releaseName, p.release+"-"):
		full = releaseName
	case strings.Contains(p.release, releaseName):
		full = p.release
	}
	if p.override != "" {
		full = p.override
	}
	return full + "-controller-manager"
}

// writeChart writes the predecessor's chart. Its CRDs are among the templates, know less than ours and go with the release.
func (p predecessor) writeChart(t *testing.T) string {
	t.Helper()
	release, err := os.ReadFile("testdata/predecessor/release.yaml")
	if err != nil {
		t.Fatal(err)
	}
	dir := filepath.Join(t.TempDir(), "chart")
	files := map[string]string{
		"Chart.yaml":             fmt.Sprintf("{apiVersion: v2, name: %s, version: v0.%d.1, appVersion: v0.%d.0, type: application}", p.chart, p.since, p.since),
		"values.yaml":            "{since: 15, fullnameOverride: '', webhook: {enable: true}}",
		"templates/release.yaml": string(release),
	}
	for _, kind := range []string{"skyhooks", "deploymentpolicies"} {
		crd := readCRD(t, "skyhook.nvidia.com_"+kind+".yaml")
		crd["spec"].(map[string]any)["conversion"] = map[string]any{"strategy": "Webhook", "webhook": map[string]any{
			"conversionReviewVersions": []any{"v1"},
			"clientConfig":             map[string]any{"service": map[string]any{"namespace": "skyhook", "name": "skyhook-operator-webhook-service", "path": "/convert"}},
		}}
		files["templates/"+kind+".yaml"] = writeCRD(t, crd)
	}
	if p.since >= 18 {
		for kind, from := range map[string]string{"nodewrights": "skyhooks", "deploymentpolicies": "deploymentpolicies"} {
			crd := readCRD(t, "skyhook.nvidia.com_"+from+".yaml")
			crd["metadata"] = map[string]any{"name": kind + ".nodewright.nvidia.com", "annotations": map[string]any{"helm.sh/resource-policy": "keep"}}
			spec := crd["spec"].(map[string]any)
			spec["group"] = "nodewright.nvidia.com"
			if kind == "nodewrights" {
				spec["names"] = map[string]any{"kind": "NodeWright", "listKind": "NodeWrightList", "plural": kind, "singular": "nodewright"}
			}
			files["templates/nodewright_"+kind+".yaml"] = writeCRD(t, crd)
		}
	}
	for _, name := range slices.Sorted(maps.Keys(files)) {
		file := filepath.Join(dir, name)
		if err := os.MkdirAll(filepath.Dir(file), 0o750); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(file, []byte(files[name]), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	return dir
}

// readCRD reads a CRD of ours, with a schema that accepts everything.
func readCRD(t *testing.T, file string) map[string]any {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(root, "chart", "files", "crds", file))
	if err != nil {
		t.Fatal(err)
	}
	crds, err := render.Parse(text)
	if err != nil {
		t.Fatal(err)
	}
	open := map[string]any{"type": "object", "x-kubernetes-preserve-unknown-fields": true}
	versions, ok := crds[0].Object["spec"].(map[string]any)["versions"].([]any)
	if !ok {
		t.Fatalf("%s has no versions", file)
	}
	versions[0].(map[string]any)["schema"] = map[string]any{"openAPIV3Schema": map[string]any{
		"type": "object", "properties": map[string]any{"spec": open, "status": open},
	}}
	return crds[0].Object
}

// writeCRD writes a CRD as a template.
func writeCRD(t *testing.T, crd map[string]any) string {
	t.Helper()
	raw, err := yaml.Marshal(crd)
	if err != nil {
		t.Fatal(err)
	}
	return strings.ReplaceAll(string(raw), "{{", "{ {")
}

// createRuntimeObjects creates what the predecessor's operator makes in its namespace, outside of its release: its certificate,
// and the lease, which it does not release when it ends.
func createRuntimeObjects(t *testing.T, w *testenv.Env, namespace string) {
	t.Helper()
	ctx := context.Background()
	w.Must(w.Client.Create(ctx, &corev1.Secret{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "webhook-cert"}, Data: map[string][]byte{"tls.crt": []byte("crt"), "tls.key": []byte("key"), "ca.crt": []byte("ca")},
	}))
	w.Must(w.Client.Create(ctx, newHeldLease(namespace)))
}

// newHeldLease is the lease of an operator of the predecessor, renewed now. It lasts less long than a real one.
func newHeldLease(namespace string) *coordinationv1.Lease {
	holder, seconds, at := "skyhook-operator-controller-manager-6d5f8-x2x7z_0b8c", int32(3), metav1.NowMicro()
	return &coordinationv1.Lease{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "3c22c1ae.nvidia.com"},
		Spec:       coordinationv1.LeaseSpec{HolderIdentity: &holder, LeaseDurationSeconds: &seconds, AcquireTime: &at, RenewTime: &at},
	}
}

// createHolder creates the pod that holds the lease.
func createHolder(w *testenv.Env, namespace string) {
	w.Helper()
	w.Apply(`
apiVersion: v1
kind: Pod
metadata: {name: skyhook-operator-controller-manager-6d5f8-x2x7z, namespace: ` + namespace + `}
spec: {serviceAccountName: former, containers: [{name: c, image: i}]}
`)
}

// requireWebhooks checks whether the webhook configurations of the predecessor exist.
func (p predecessor) requireWebhooks(t *testing.T, want bool) {
	t.Helper()
	validating, mutating := p.webhookNames()
	c := newClientset(t).AdmissionregistrationV1()
	_, first := c.ValidatingWebhookConfigurations().Get(context.Background(), validating, metav1.GetOptions{})
	_, second := c.MutatingWebhookConfigurations().Get(context.Background(), mutating, metav1.GetOptions{})
	for name, err := range map[string]error{validating: first, mutating: second} {
		if want && err != nil || !want && !apierrors.IsNotFound(err) {
			t.Errorf("webhook configuration %s: %v; want it to be there: %v", name, err, want)
		}
	}
}
