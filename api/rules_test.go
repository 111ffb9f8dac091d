// SPDX-FileCopyrightText: The Skyhook authors
// SPDX-License-Identifier: Apache-2.0

package api

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/rogpeppe/go-internal/txtar"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/json"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/yaml"

	"github.com/skyhook-k8s/skyhook/test/controlplane"
)

var update = flag.Bool("update", false, "write what is found into testdata")

var (
	plane *controlplane.Plane
	start sync.Once
)

// TestMain stops the API server if a test has started it.
func TestMain(m *testing.M) {
	code := m.Run()
	if plane != nil {
		if err := plane.Stop(); err != nil {
			fmt.Fprintln(os.Stderr, err)
			code = max(code, 1)
		}
	}
	os.Exit(code)
}

// server gives a client of a real API server with our CRDs. Tests that do not ask for it need none.
func server(t *testing.T) *rest.Config {
	t.Helper()
	start.Do(func() {
		var err error
		if plane, err = controlplane.Start(context.Background(), controlplane.Options{CRDs: []string{"../chart/files/crds"}}); err != nil {
			t.Fatal(err)
		}
	})
	if plane == nil {
		t.Fatal("the API server did not start")
	}
	return plane.Config
}

// kinds by the folder of testdata/rules that holds their cases.
var kinds = map[string]schema.GroupVersionKind{
	"skyhook":          {Group: "skyhook.nvidia.com", Version: "v1alpha1", Kind: "Skyhook"},
	"deploymentpolicy": {Group: "skyhook.nvidia.com", Version: "v1alpha1", Kind: "DeploymentPolicy"},
	"nodeop":           {Group: "operator.kairos.io", Version: "v1alpha1", Kind: "NodeOp"},
	"nodeopupgrade":    {Group: "operator.kairos.io", Version: "v1alpha1", Kind: "NodeOpUpgrade"},
}

// TestRules posts the cases of testdata/rules/KIND/RULE.txtar to the API server. A case is a file "good WORDS", which
// must be accepted without a warning, or "bad WORDS", which must be refused with the message in "bad WORDS: says".
// Metadata is added where the case has none. A case with "WORDS: before" is an update of that object, whose status is
// written too.
func TestRules(t *testing.T) {
	files, err := filepath.Glob("testdata/rules/*/*.txtar")
	if err != nil || len(files) == 0 {
		t.Fatalf("no cases: %v", err)
	}
	for _, file := range files {
		kind := filepath.Base(filepath.Dir(file))
		t.Run(kind+"/"+strings.TrimSuffix(filepath.Base(file), ".txtar"), func(t *testing.T) {
			archive, err := txtar.ParseFile(file)
			if err != nil {
				t.Fatal(err)
			}
			contents := map[string]string{}
			for _, f := range archive.Files {
				contents[f.Name] = string(f.Data)
			}
			var seen []txtar.File
			for _, f := range archive.Files {
				if strings.HasSuffix(f.Name, says) {
					continue
				}
				seen = append(seen, f)
				if strings.HasSuffix(f.Name, before) {
					continue
				}
				got := post(t, kinds[kind], contents[f.Name], contents[f.Name+before])
				if judge(t, f.Name, contents[f.Name+says], got) {
					seen = append(seen, txtar.File{Name: f.Name + says, Data: []byte(got)})
				}
			}
			if !strings.Contains(string(txtar.Format(archive)), "-- bad ") {
				t.Error("no bad case: the rule is not tested")
			}
			if *update && !t.Failed() {
				archive.Files = seen
				if err := os.WriteFile(file, txtar.Format(archive), 0o600); err != nil {
					t.Fatal(err)
				}
			}
		})
	}
}

// The names of files that belong to a case end so.
const (
	before = ": before"
	says   = ": says"
)

// judge compares what the API server said of a case with what it should say, and reports whether the case is bad.
func judge(t *testing.T, name, want, got string) bool {
	t.Helper()
	switch {
	case strings.HasPrefix(name, "good"):
		if got != "" {
			t.Errorf("%s is refused:\n%s", name, got)
		}
		return false
	case !strings.HasPrefix(name, "bad"):
		t.Errorf("%q is neither good nor bad", name)
		return false
	case got == "":
		t.Errorf("%s is accepted", name)
	case !*update && got != want:
		t.Errorf("%s (-want +got):\n%s", name, cmp.Diff(want, got))
	}
	return true
}

// post creates the object, or updates what it was before, and returns what the API server has against it, a line for
// each cause.
func post(t *testing.T, kind schema.GroupVersionKind, text, earlier string) string {
	t.Helper()
	client := resource(t, kind)
	if earlier == "" {
		stored, err := client.Create(context.Background(), object(t, kind, text), metav1.CreateOptions{
			DryRun: []string{metav1.DryRunAll}, FieldValidation: metav1.FieldValidationStrict})
		if err == nil {
			typed(t, stored) // one object that our types cannot read would stop the lists and watches of its kind
		}
		return causes(t, err)
	}
	old := object(t, kind, earlier)
	created, err := client.Create(context.Background(), old.DeepCopy(), metav1.CreateOptions{FieldValidation: metav1.FieldValidationStrict})
	if err != nil {
		t.Fatalf("creating what was before: %v", err)
	}
	defer func() {
		if err := client.Delete(context.Background(), created.GetName(), metav1.DeleteOptions{}); err != nil {
			t.Error(err)
		}
	}()
	if status, found := old.Object["status"]; found {
		created.Object["status"] = status
		if created, err = client.UpdateStatus(context.Background(), created, metav1.UpdateOptions{FieldValidation: metav1.FieldValidationStrict}); err != nil {
			t.Fatalf("writing the status before: %v", err)
		}
	}
	next := object(t, kind, text)
	next.SetName(created.GetName())
	next.SetResourceVersion(created.GetResourceVersion())
	_, err = client.Update(context.Background(), next, metav1.UpdateOptions{FieldValidation: metav1.FieldValidationStrict})
	return causes(t, err)
}

func resource(t *testing.T, kind schema.GroupVersionKind) dynamic.ResourceInterface {
	t.Helper()
	client, err := dynamic.NewForConfig(server(t))
	if err != nil {
		t.Fatal(err)
	}
	plural := strings.ToLower(kind.Kind) + "s"
	if kind.Kind == "DeploymentPolicy" {
		plural = "deploymentpolicies"
	}
	resources := client.Resource(kind.GroupVersion().WithResource(plural))
	if kind.Group == "operator.kairos.io" {
		return resources.Namespace("default")
	}
	return resources
}

func object(t *testing.T, kind schema.GroupVersionKind, text string) *unstructured.Unstructured {
	t.Helper()
	o := &unstructured.Unstructured{}
	raw, err := yaml.YAMLToJSONStrict([]byte(text))
	if err != nil {
		t.Fatalf("%v in\n%s", err, text)
	}
	if err := json.Unmarshal(raw, &o.Object); err != nil {
		t.Fatalf("%v in\n%s", err, text)
	}
	if o.Object == nil {
		o.Object = map[string]any{}
	}
	if o.GetKind() == "" {
		o.SetGroupVersionKind(kind)
	}
	if o.GetName() == "" {
		o.SetGenerateName("case-")
	}
	return o
}

// wording is what differs in messages from one Kubernetes to the next: the value in front of our sentence, and how
// its own checks say things.
var wording = regexp.MustCompile(`^Invalid value: (("([^"\\]|\\.)*"|-?[0-9]+|null): )?|^(Too long): .*|map\[string\]interface {}|(int64|integer): "(number|float64)"$`)

// causes gives one line for each thing the API server has against an object.
func causes(t *testing.T, err error) string {
	t.Helper()
	if err == nil {
		return ""
	}
	var status apierrors.APIStatus
	if !errors.As(err, &status) || status.Status().Details == nil || len(status.Status().Details.Causes) == 0 {
		return err.Error() + "\n"
	}
	var lines []string
	for _, c := range status.Status().Details.Causes {
		if strings.Contains(c.Message, "some validation rules were not checked") || strings.Contains(c.Message, "Checked value must be") {
			continue // said besides the causes
		}
		lines = append(lines, c.Field+": "+wording.ReplaceAllString(c.Message, "$4")+"\n")
	}
	slices.Sort(lines) // the API server walks maps in no order
	return strings.Join(lines, "")
}
