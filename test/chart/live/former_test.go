// SPDX-FileCopyrightText: The Skyhook authors
// SPDX-License-Identifier: Apache-2.0

package live

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"sigs.k8s.io/yaml"

	"github.com/skyhook-k8s/skyhook/test/chart/render"
)

// former is what an earlier operator's chart brings besides CRDs, as far as it meets ours: the same names, and webhooks.
const former = `
apiVersion: v1
kind: ServiceAccount
metadata: {name: skyhook-operator-controller-manager, namespace: "{{ .Release.Namespace }}"}
---
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRole
metadata: {name: skyhook-operator-manager-role}
rules: [{apiGroups: [""], resources: [secrets, pods, configmaps], verbs: ["*"]}]
---
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRoleBinding
metadata: {name: skyhook-operator-manager-rolebinding}
roleRef: {apiGroup: rbac.authorization.k8s.io, kind: ClusterRole, name: skyhook-operator-manager-role}
subjects: [{kind: ServiceAccount, name: skyhook-operator-controller-manager, namespace: "{{ .Release.Namespace }}"}]
---
apiVersion: rbac.authorization.k8s.io/v1
kind: Role
metadata: {name: skyhook-operator-leader-election-role, namespace: "{{ .Release.Namespace }}"}
rules: [{apiGroups: [coordination.k8s.io], resources: [leases], verbs: [get, list, watch, create, update, patch, delete]}]
---
apiVersion: v1
kind: Service
metadata: {name: skyhook-operator-controller-manager-metrics-service, namespace: "{{ .Release.Namespace }}"}
spec: {selector: {control-plane: controller-manager}, ports: [{name: https, port: 8443}, {name: metrics, port: 8080}]}
---
apiVersion: apps/v1
kind: Deployment
metadata: {name: skyhook-operator-controller-manager, namespace: "{{ .Release.Namespace }}", labels: {app: skyhook-operator-controller-manager, control-plane: controller-manager}}
spec:
  replicas: 2
  selector: {matchLabels: {app: skyhook-operator-controller-manager, control-plane: controller-manager}}
  template:
    metadata: {labels: {app: skyhook-operator-controller-manager, control-plane: controller-manager}}
    spec:
      serviceAccountName: skyhook-operator-controller-manager
      containers: [{name: kube-rbac-proxy, image: proxy}, {name: manager, image: former, env: [{name: ENABLE_WEBHOOKS, value: "true"}]}]
---
apiVersion: admissionregistration.k8s.io/v1
kind: ValidatingWebhookConfiguration
metadata: {name: skyhook-operator-validating-webhook}
webhooks:
- {name: validate-skyhook.nvidia.com, admissionReviewVersions: [v1], sideEffects: None, failurePolicy: Fail, clientConfig: {service: {name: w, namespace: "{{ .Release.Namespace }}", path: /v}}, rules: [{apiGroups: [skyhook.nvidia.com], apiVersions: [v1alpha1], operations: [CREATE, UPDATE], resources: [skyhooks]}]}
---
apiVersion: admissionregistration.k8s.io/v1
kind: MutatingWebhookConfiguration
metadata: {name: skyhook-operator-mutating-webhook}
webhooks:
- {name: mutate-skyhook.nvidia.com, admissionReviewVersions: [v1], sideEffects: None, failurePolicy: Fail, clientConfig: {service: {name: w, namespace: "{{ .Release.Namespace }}", path: /m}}, rules: [{apiGroups: [skyhook.nvidia.com], apiVersions: [v1alpha1], operations: [CREATE, UPDATE], resources: [skyhooks]}]}
`

// formerChart writes a chart as an earlier operator had it: with CRDs of its own among the templates, which know less
// and go with the release.
func formerChart(t *testing.T) string {
	t.Helper()
	dir := filepath.Join(t.TempDir(), "chart")
	files := map[string]string{
		"Chart.yaml":           "{apiVersion: v2, name: skyhook-operator, version: 0.15.0, type: application}",
		"values.yaml":          "{}",
		"templates/other.yaml": former,
	}
	for _, name := range []string{"skyhooks", "deploymentpolicies"} {
		text, err := os.ReadFile(filepath.Join(root, "chart", "files", "crds", "skyhook.nvidia.com_"+name+".yaml"))
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
			t.Fatalf("%s has no versions", name)
		}
		versions[0].(map[string]any)["schema"] = map[string]any{"openAPIV3Schema": map[string]any{
			"type": "object", "properties": map[string]any{"spec": open, "status": open},
		}}
		raw, err := yaml.Marshal(crds[0].Object)
		if err != nil {
			t.Fatal(err)
		}
		files["templates/"+name+".yaml"] = strings.ReplaceAll(string(raw), "{{", "{ {")
	}
	for name, text := range files {
		file := filepath.Join(dir, name)
		if err := os.MkdirAll(filepath.Dir(file), 0o750); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	return dir
}
