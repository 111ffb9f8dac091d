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

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	utilyaml "k8s.io/apimachinery/pkg/util/yaml"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// TestMigrateManifests compares the manifests with a golden file, and creates them on the API server, which validates them.
func TestMigrateManifests(t *testing.T) {
	m := newMigrationTest(t)
	if err := m.client.Create(context.Background(), namespaceSkyhook()); client.IgnoreAlreadyExists(err) != nil {
		t.Fatal(err)
	}
	m.create("kured.yaml")
	t.Cleanup(func() {
		for _, o := range m.objects {
			_ = m.client.Delete(context.Background(), o)
		}
	})
	stdout, stderr := m.mustRun("migrate", "kured")
	for _, want := range []string{
		"--period: ", "--force-reboot: ", "--blocking-pod-selector: ", "--notify-url: its value comes from a Secret", "--pre-reboot-node-labels: ",
		"--lock-annotation: ", "--new-flag: this flag is not known",
	} {
		if !strings.Contains(stderr, "DaemonSet/skyhook/kured: "+want) {
			t.Errorf("standard error does not say %q:\n%s", want, stderr)
		}
		if !strings.Contains(stdout, "# - "+want) {
			t.Errorf("no comment says %q", want)
		}
	}
	if w := m.proxy.takeWrites(); len(w) > 0 {
		t.Errorf("the command writes %v", w)
	}
	compareGolden(t, filepath.Join("testdata/migrate", "kured.golden"), stdout)
	m.createPrinted(stdout)
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
