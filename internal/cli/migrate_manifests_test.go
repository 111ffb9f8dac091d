// SPDX-FileCopyrightText: The Skyhook authors
// SPDX-License-Identifier: Apache-2.0

package cli_test

import (
	"context"
	"errors"
	"flag"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	crdv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	utilyaml "k8s.io/apimachinery/pkg/util/yaml"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/envtest"
)

// TestMigrateManifests compares the manifests with golden files, and creates them on the API server, which validates them.
func TestMigrateManifests(t *testing.T) {
	installPlanCRD(t)
	for _, c := range []struct {
		command, objects string
		warnings         []string
	}{
		{"kured", "kured.yaml", []string{
			"DaemonSet/skyhook/kured: --period: ", "--force-reboot: ", "--blocking-pod-selector: ", "--notify-url: its value comes from a Secret",
			"--pre-reboot-node-labels: ", "--lock-annotation: ", "--new-flag: this flag is not known",
		}},
		{"system-upgrade-controller", "plans.yaml", []string{
			"Plan/skyhook/k3s-server: spec.channel: channels are not followed; the version is v1.33.4+k3s1", "spec.serviceAccountName: ", "spec.exclusive: ",
			"Plan/skyhook/patch: spec.prepare: ", "spec.secrets: ", "spec.drain.disableEviction: ", "spec.drain.podSelector: ", "spec.drain.skipWaitForDeleteTimeout: ",
			"Plan/skyhook/strange: spec.upgrade.args: ", "spec.version: ", "spec.concurrency: ",
		}},
	} {
		t.Run(c.command, func(t *testing.T) {
			m := newMigrationTest(t)
			if err := m.client.Create(context.Background(), namespaceSkyhook()); client.IgnoreAlreadyExists(err) != nil {
				t.Fatal(err)
			}
			m.create(c.objects)
			t.Cleanup(func() {
				for _, o := range m.objects {
					_ = m.client.Delete(context.Background(), o)
				}
			})
			stdout, stderr := m.mustRun("migrate", c.command)
			for _, want := range c.warnings {
				if !strings.Contains(stderr, want) {
					t.Errorf("standard error does not say %q:\n%s", want, stderr)
				}
				_, inComment, _ := strings.Cut(want, ": ")
				if strings.HasPrefix(want, "-") || strings.HasPrefix(want, "spec") {
					inComment = want
				}
				if !strings.Contains(stdout, "# - "+inComment) {
					t.Errorf("no comment says %q", inComment)
				}
			}
			if w := m.proxy.takeWrites(); len(w) > 0 {
				t.Errorf("the command writes %v", w)
			}
			compareGolden(t, filepath.Join("testdata/migrate", c.command+".golden"), stdout)
			m.createPrinted(stdout)
		})
	}
}

// createPrinted creates the printed objects with strict validation, and deletes them.
func (m *migrationTest) createPrinted(text string) {
	m.Helper()
	strict := client.WithFieldValidation(m.client, metav1.FieldValidationStrict)
	in := utilyaml.NewYAMLOrJSONDecoder(strings.NewReader(text), 4096)
	created := 0
	for {
		o := &unstructured.Unstructured{}
		if err := in.Decode(&o.Object); errors.Is(err, io.EOF) {
			break
		} else if err != nil {
			m.Fatal(err)
		}
		if err := strict.Create(context.Background(), o); err != nil {
			m.Errorf("%s %s: %v", o.GetKind(), o.GetName(), err)
			continue
		}
		created++
		if err := m.client.Delete(context.Background(), o); err != nil {
			m.Error(err)
		}
	}
	if created < 2 {
		m.Errorf("%d objects were printed", created)
	}
}

func compareGolden(t *testing.T, file, got string) {
	t.Helper()
	if f := flag.Lookup("update"); f != nil && f.Value.String() == "true" {
		if err := os.WriteFile(file, []byte(got), 0o600); err != nil {
			t.Fatal(err)
		}
		return
	}
	want, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	if string(want) != got {
		t.Errorf("%s differs from what is printed; run the test with -update to write it:\n%s", file, got)
	}
}

func namespaceSkyhook() *unstructured.Unstructured {
	o := &unstructured.Unstructured{}
	o.SetAPIVersion("v1")
	o.SetKind("Namespace")
	o.SetName("skyhook")
	return o
}

// installPlanCRD installs a CRD of Plans that accepts everything.
func installPlanCRD(t *testing.T) {
	t.Helper()
	keep := true
	d := &crdv1.CustomResourceDefinition{
		ObjectMeta: metav1.ObjectMeta{Name: "plans.upgrade.cattle.io"},
		Spec: crdv1.CustomResourceDefinitionSpec{
			Group: "upgrade.cattle.io", Scope: crdv1.NamespaceScoped,
			Names: crdv1.CustomResourceDefinitionNames{Kind: "Plan", ListKind: "PlanList", Plural: "plans", Singular: "plan"},
			Versions: []crdv1.CustomResourceDefinitionVersion{{
				Name: "v1", Served: true, Storage: true, Subresources: &crdv1.CustomResourceSubresources{Status: &crdv1.CustomResourceSubresourceStatus{}},
				Schema: &crdv1.CustomResourceValidation{OpenAPIV3Schema: &crdv1.JSONSchemaProps{Type: "object", XPreserveUnknownFields: &keep}},
			}},
		},
	}
	if _, err := envtest.InstallCRDs(server(t).Config, envtest.CRDInstallOptions{CRDs: []*crdv1.CustomResourceDefinition{d}, MaxTime: time.Minute}); err != nil {
		t.Fatal(err)
	}
}
