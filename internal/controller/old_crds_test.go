// SPDX-FileCopyrightText: The Skyhook authors
// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"context"
	"strings"
	"testing"
	"time"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// TestOldCRDs: with CRDs that are older than the operator the API server drops fields of each status. A status is not written again
// and again because of that, and the log says once what to do.
func TestOldCRDs(t *testing.T) {
	w := newFixture(t, 2)
	w.removeOutcomes()
	written, lines := &requestRecorder{}, []string{}
	w.config, w.options.Log = written.wrap(w.config), collectLines(&lines)
	w.Apply("apiVersion: skyhook.nvidia.com/v1alpha1\nkind: DeploymentPolicy\nmetadata: {name: slow}\nspec: {default: {budget: {count: 1}, strategy: {fixed: {}}}}\n")
	w.Apply(demo + "  deploymentPolicy: slow\n")
	w.Apply("apiVersion: operator.kairos.io/v1alpha1\nkind: NodeOpUpgrade\nmetadata: {name: up, namespace: " + w.Namespace + "}\nspec: {image: 'registry.example/os:1', nodeSelector: {matchLabels: {pool: none}}}\n")
	w.startOperator()
	w.WaitComplete("demo")
	w.waitNoPods()
	countStatuses := func() (statuses int) {
		for _, r := range written.requests() {
			if strings.HasSuffix(r.path, "/status") {
				statuses++
			}
		}
		return statuses
	}
	w.Eventually("no status was written for three seconds", func() bool {
		before := countStatuses()
		time.Sleep(3 * time.Second)
		return countStatuses() == before
	})
	w.stop()
	if text := strings.Join(lines, "\n"); strings.Count(text, "the CRDs are older than the operator") != 1 {
		t.Errorf("the log does not say once that the CRDs are old:\n%s", text)
	}
}

// removeOutcomes removes fields that all statuses have from the CRDs, until the test ends.
func (w *fixture) removeOutcomes() {
	w.Helper()
	w.Must(apiextensionsv1.AddToScheme(w.Client.Scheme()))
	crds := &apiextensionsv1.CustomResourceDefinitionList{}
	w.Must(w.Client.List(context.Background(), crds))
	for i := range crds.Items {
		crd := &crds.Items[i]
		stored := crd.DeepCopy()
		w.Cleanup(func() {
			stored.ResourceVersion = crd.ResourceVersion
			w.Must(w.Client.Patch(context.Background(), stored, client.MergeFrom(crd)))
		})
		for _, field := range []string{"verdict", "reason", "profile"} {
			delete(crd.Spec.Versions[0].Schema.OpenAPIV3Schema.Properties["status"].Properties, field)
		}
		w.Must(w.Client.Patch(context.Background(), crd, client.MergeFrom(stored.DeepCopy())))
	}
}
