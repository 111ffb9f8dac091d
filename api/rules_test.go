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

var update = flag.Bool("update", false, "write the results to testdata")

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

// startServer returns the configuration of a real API server with our CRDs. It is started once, for the first test that
// needs it.
func startServer(t *testing.T) *rest.Config {
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

// kinds maps folders of testdata/rules to the kinds of their cases.
var kinds = map[string]schema.GroupVersionKind{
	"skyhook":          {Group: "skyhook.nvidia.com", Version: "v1alpha1", Kind: "Skyhook"},
	"deploymentpolicy": {Group: "skyhook.nvidia.com", Version: "v1alpha1", Kind: "DeploymentPolicy"},
	"nodeop":           {Group: "operator.kairos.io", Version: "v1alpha1", Kind: "NodeOp"},
	"nodeopupgrade":    {Group: "operator.kairos.io", Version: "v1alpha1", Kind: "NodeOpUpgrade"},
}

// TestRules posts the cases of testdata/rules/KIND/RULE.txtar to the API server. A case is a file "good NAME", which
// must be accepted without a warning, or "bad NAME", which must be rejected with the message in "bad NAME: message".
// Metadata is added if the case has none. A case with "NAME: before" is an update of that object, including its status.
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
				if strings.HasSuffix(f.Name, messageSuffix) {
					continue
				}
				seen = append(seen, f)
				if strings.HasSuffix(f.Name, beforeSuffix) {
					continue
				}
				got := postCase(t, kinds[kind], contents[f.Name], contents[f.Name+beforeSuffix])
				if checkCase(t, f.Name, contents[f.Name+messageSuffix], got) {
					seen = append(seen, txtar.File{Name: f.Name + messageSuffix, Data: []byte(got)})
				}
			}
			if !strings.Contains(string(txtar.Format(archive)), "-- bad ") {
				t.Error("there is no bad case for this rule")
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

// Suffixes of the names of files that belong to a case.
const (
	beforeSuffix  = ": before"
	messageSuffix = ": message"
)

// checkCase compares the response of the API server with the expected one, and reports whether the case is bad.
func checkCase(t *testing.T, name, want, got string) bool {
	t.Helper()
	switch {
	case strings.HasPrefix(name, "good"):
		if got != "" {
			t.Errorf("%s is rejected:\n%s", name, got)
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

// postCase creates the object, or updates an earlier version of it, and returns the causes of a rejection, one per
// line.
func postCase(t *testing.T, kind schema.GroupVersionKind, text, earlier string) string {
	t.Helper()
	client := resourceClient(t, kind)
	if earlier == "" {
		stored, err := client.Create(context.Background(), parseObject(t, kind, text), metav1.CreateOptions{
			DryRun: []string{metav1.DryRunAll}, FieldValidation: metav1.FieldValidationStrict})
		if err == nil {
			roundTrip(t, stored) // an object that our types cannot decode would break lists and watches of its kind
		}
		return listCauses(t, err)
	}
	old := parseObject(t, kind, earlier)
	created, err := client.Create(context.Background(), old.DeepCopy(), metav1.CreateOptions{FieldValidation: metav1.FieldValidationStrict})
	if err != nil {
		t.Fatalf("creating the earlier version: %v", err)
	}
	defer func() {
		if err := client.Delete(context.Background(), created.GetName(), metav1.DeleteOptions{}); err != nil {
			t.Error(err)
		}
	}()
	if status, found := old.Object["status"]; found {
		created.Object["status"] = status
		if created, err = client.UpdateStatus(context.Background(), created, metav1.UpdateOptions{FieldValidation: metav1.FieldValidationStrict}); err != nil {
			t.Fatalf("writing its status: %v", err)
		}
	}
	next := parseObject(t, kind, text)
	next.SetName(created.GetName())
	next.SetResourceVersion(created.GetResourceVersion())
	_, err = client.Update(context.Background(), next, metav1.UpdateOptions{FieldValidation: metav1.FieldValidationStrict})
	return listCauses(t, err)
}

func resourceClient(t *testing.T, kind schema.GroupVersionKind) dynamic.ResourceInterface {
	t.Helper()
	client, err := dynamic.NewForConfig(startServer(t))
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

func parseObject(t *testing.T, kind schema.GroupVersionKind, text string) *unstructured.Unstructured {
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

// wording matches the parts of messages that differ between versions of Kubernetes: the value in front of our sentence,
// and built-in checks.
var wording = regexp.MustCompile(`^Invalid value: (("([^"\\]|\\.)*"|-?[0-9]+|null): )?|^(Too long): .*|map\[string\]interface {}|(int64|integer): "(number|float64)"$`)

// listCauses returns one line for each cause of a rejection.
func listCauses(t *testing.T, err error) string {
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
			continue // not a cause
		}
		lines = append(lines, c.Field+": "+wording.ReplaceAllString(c.Message, "$4")+"\n")
	}
	slices.Sort(lines) // the API server iterates over maps in random order
	return strings.Join(lines, "")
}
