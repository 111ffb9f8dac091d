// SPDX-FileCopyrightText: The Skyhook authors
// SPDX-License-Identifier: Apache-2.0

package docs

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/go-logr/logr"
	chartutil "helm.sh/helm/v4/pkg/chart/common/util"
	"helm.sh/helm/v4/pkg/chart/loader"
	chartv2 "helm.sh/helm/v4/pkg/chart/v2"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	utilyaml "k8s.io/apimachinery/pkg/util/yaml"
	"k8s.io/client-go/discovery"
	"k8s.io/client-go/discovery/cached/memory"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/restmapper"
	"sigs.k8s.io/controller-runtime/pkg/log"
	"sigs.k8s.io/yaml"

	"github.com/skyhook-k8s/skyhook/internal/packagecli/sandbox"
	"github.com/skyhook-k8s/skyhook/test/controlplane"
)

// foreignCRDs maps Go modules of other projects to the files of the CRDs that examples use, by API group.
var foreignCRDs = map[string]map[string]string{
	"github.com/kyverno/kyverno@v1.19.1": {
		"kyverno.io":          "config/crds/kyverno/kyverno.io_clusterpolicies.yaml",
		"policies.kyverno.io": "config/crds/policies.kyverno.io/policies.kyverno.io_validatingpolicies.yaml",
	},
	"github.com/argoproj/argo-cd/v3@v3.3.0":         {"argoproj.io": "manifests/crds/application-crd.yaml"},
	"github.com/fluxcd/kustomize-controller@v1.7.3": {"kustomize.toolkit.fluxcd.io": "config/crd/bases/kustomize.toolkit.fluxcd.io_kustomizations.yaml"},
	"github.com/fluxcd/source-controller@v1.7.0":    {"source.toolkit.fluxcd.io": "config/crd/bases/source.toolkit.fluxcd.io_gitrepositories.yaml"},
}

// clientOnlyKinds are kinds that programs read from files and no API server serves.
var clientOnlyKinds = map[string]bool{"Kustomization.kustomize.config.k8s.io": true}

var (
	plane  *controlplane.Plane
	client dynamic.Interface
	mapper *restmapper.DeferredDiscoveryRESTMapper
)

func TestMain(m *testing.M) {
	log.SetLogger(logr.Discard())
	crds, err := downloadCRDs()
	if err != nil {
		fmt.Fprintf(os.Stderr, "docs: %v\n", err)
		os.Exit(1)
	}
	os.Exit(controlplane.Main(m, &plane, controlplane.Options{CRDs: append(crds, "../../chart/files/crds")}))
}

// missingGroups are API groups whose module could not be downloaded; examples with their kinds are not validated.
var missingGroups = map[string]bool{}

// downloadCRDs returns the files of foreign CRDs in the module cache.
func downloadCRDs() ([]string, error) {
	var files []string
	for module, paths := range foreignCRDs {
		ctx, cancel := context.WithTimeout(context.Background(), 5*time.Minute)
		out, err := exec.CommandContext(ctx, "go", "mod", "download", "-json", module).Output()
		cancel()
		if err != nil {
			for group := range paths {
				missingGroups[group] = true
			}
			fmt.Fprintf(os.Stderr, "docs: %s cannot be downloaded, so examples with its kinds are not validated: %v\n%s", module, err, out)
			continue
		}
		var got struct{ Dir string }
		if err := json.Unmarshal(out, &got); err != nil {
			return nil, fmt.Errorf("getting %s: %w", module, err)
		}
		for _, path := range paths {
			files = append(files, filepath.Join(got.Dir, path))
		}
	}
	return files, nil
}

func connect(t *testing.T) {
	t.Helper()
	d, err := discovery.NewDiscoveryClientForConfig(plane.Config)
	if err != nil {
		t.Fatal(err)
	}
	mapper = restmapper.NewDeferredDiscoveryRESTMapper(memory.NewMemCacheClient(d))
	if client, err = dynamic.NewForConfig(plane.Config); err != nil {
		t.Fatal(err)
	}
}

// frames are objects that contain parts of objects; the word after ```yaml selects one.
var frames = map[string]string{
	"packages": "{apiVersion: skyhook.nvidia.com/v1alpha1, kind: Skyhook, metadata: {name: piece}, spec: {packages: {}}}",
	"spec":     "{apiVersion: skyhook.nvidia.com/v1alpha1, kind: Skyhook, metadata: {name: piece}, spec: {}}",
	"policy":   "{apiVersion: skyhook.nvidia.com/v1alpha1, kind: DeploymentPolicy, metadata: {name: piece}, spec: {default: {budget: {count: 1}, strategy: {fixed: {}}}}}",
	"nodeop":   "{apiVersion: operator.kairos.io/v1alpha1, kind: NodeOp, metadata: {name: piece, namespace: default}, spec: {}}",
}

// TestObjects creates every object of the pages and samples on a real API server, as a strict dry run: unknown fields and
// violated rules are errors.
func TestObjects(t *testing.T) {
	connect(t)
	all := allBlocks(t)
	for _, pattern := range []string{"../../examples/*.yaml", "../../examples/*/*.yaml", "../../config/samples/*.yaml", "../../docs/kyverno/*.yaml"} {
		files, err := filepath.Glob(pattern)
		if err != nil || len(files) == 0 && !strings.Contains(pattern, "*/*") {
			t.Fatalf("%s: %v, %v", pattern, files, err)
		}
		for _, file := range files {
			text, err := os.ReadFile(file)
			if err != nil {
				t.Fatal(err)
			}
			all = append(all, block{page: strings.TrimPrefix(file, "../../"), line: 1, kind: "yaml", text: string(text)})
		}
	}
	checked := 0
	for _, b := range all {
		if b.kind != "yaml" || strings.Contains(b.more, notRun) {
			continue
		}
		checked++
		if err := checkBlock(b); err != nil {
			t.Errorf("%s: %v", b, err)
		}
	}
	t.Logf("%d blocks and files", checked)
}

// checkBlock validates the objects of a block.
func checkBlock(b block) error {
	switch b.more {
	case "values":
		return checkValues(b.text)
	case "test.yaml":
		_, err := sandbox.ReadSpec([]byte(b.text))
		return err
	}
	if frame, known := frames[b.more]; known {
		return checkPart(frame, b)
	}
	d := utilyaml.NewYAMLReader(bufio.NewReader(strings.NewReader(b.text)))
	for {
		text, err := d.Read()
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return err
		}
		var o unstructured.Unstructured
		if err := yaml.UnmarshalStrict(text, &o.Object); err != nil {
			return err
		}
		if len(o.Object) == 0 {
			continue
		}
		if o.GetKind() == "" {
			return fmt.Errorf("not an object: name its frame after the fence (values, test.yaml, packages, spec, policy, nodeop), or use %s", notRun)
		}
		if err := dryRunCreate(&o); err != nil {
			return fmt.Errorf("%s %s: %w", o.GetKind(), o.GetName(), err)
		}
	}
}

// dryRunCreate makes the API server check an object without storing it.
func dryRunCreate(o *unstructured.Unstructured) error {
	kind := o.GroupVersionKind()
	if clientOnlyKinds[kind.GroupKind().String()] {
		return nil
	}
	mapping, err := mapper.RESTMapping(schema.GroupKind{Group: kind.Group, Kind: kind.Kind}, kind.Version)
	if meta.IsNoMatchError(err) && missingGroups[kind.Group] {
		return nil
	}
	if err != nil {
		return err
	}
	var at dynamic.ResourceInterface = client.Resource(mapping.Resource)
	if mapping.Scope.Name() == "namespace" {
		// The namespaces of examples do not exist on the test server.
		o.SetNamespace("default")
		at = client.Resource(mapping.Resource).Namespace("default")
	}
	_, err = at.Create(context.Background(), o, metav1.CreateOptions{DryRun: []string{metav1.DryRunAll}, FieldValidation: metav1.FieldValidationStrict})
	if apierrors.IsAlreadyExists(err) {
		return nil
	}
	return err
}

// checkPart inserts a part of an object into its frame and validates it.
func checkPart(frame string, b block) error {
	var o unstructured.Unstructured
	if err := yaml.Unmarshal([]byte(frame), &o.Object); err != nil {
		return err
	}
	var part map[string]any
	if err := yaml.UnmarshalStrict([]byte(b.text), &part); err != nil {
		return err
	}
	spec := o.Object["spec"].(map[string]any)
	if b.more == "packages" {
		spec["packages"] = part
	} else {
		for k, v := range part {
			spec[k] = v
		}
	}
	return dryRunCreate(&o)
}

// checkValues validates values with the schema of the chart.
func checkValues(text string) error {
	var given map[string]any
	if err := yaml.UnmarshalStrict([]byte(text), &given); err != nil {
		return err
	}
	loaded, err := loader.Load("../../chart")
	if err != nil {
		return err
	}
	chart, ok := loaded.(*chartv2.Chart)
	if !ok {
		return fmt.Errorf("the chart is a %T", loaded)
	}
	merged, err := chartutil.CoalesceValues(chart, given)
	if err != nil {
		return err
	}
	return chartutil.ValidateAgainstSchema(chart, merged)
}

// createUntilEnd creates the policies of a file, waits until they are in effect, and deletes them when the test ends.
func createUntilEnd(t *testing.T, file string) {
	t.Helper()
	text, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	createPolicies(t, string(text))
	awaitPolicies(t)
}

// awaitPolicies waits until the API server has noticed which policies were created and deleted. It learns of them in their order, so that
// all before are in effect, or are not any more, when a last one is.
func awaitPolicies(t *testing.T) {
	t.Helper()
	name := fmt.Sprintf("last-%d", time.Now().UnixNano())
	createPolicies(t, strings.ReplaceAll(`apiVersion: admissionregistration.k8s.io/v1
kind: ValidatingAdmissionPolicy
metadata: {name: NAME}
spec:
  matchConstraints: {resourceRules: [{apiGroups: [""], apiVersions: [v1], operations: [CREATE], resources: [configmaps]}]}
  validations: [{expression: "object.metadata.name != 'NAME'"}]
---
apiVersion: admissionregistration.k8s.io/v1
kind: ValidatingAdmissionPolicyBinding
metadata: {name: NAME}
spec: {policyName: NAME, validationActions: [Deny]}`, "NAME", name))
	refused := &unstructured.Unstructured{Object: map[string]any{"apiVersion": "v1", "kind": "ConfigMap", "metadata": map[string]any{"name": name}}}
	at := client.Resource(schema.GroupVersionResource{Version: "v1", Resource: "configmaps"}).Namespace("default")
	for deadline := time.Now().Add(2 * time.Minute); ; time.Sleep(100 * time.Millisecond) {
		_, err := at.Create(t.Context(), refused, metav1.CreateOptions{DryRun: []string{metav1.DryRunAll}})
		switch {
		case err != nil && strings.Contains(err.Error(), name+"' with binding"):
			return
		case time.Now().After(deadline):
			t.Fatalf("two minutes, and the API server answers a policy with: %v", err)
		}
	}
}

// createPolicies creates the objects of a text, and deletes them when the test ends.
func createPolicies(t *testing.T, text string) {
	t.Helper()
	for _, part := range strings.Split(text, "\n---\n") {
		var o unstructured.Unstructured
		if err := yaml.Unmarshal([]byte(part), &o.Object); err != nil {
			t.Fatal(err)
		}
		mapping, err := mapper.RESTMapping(o.GroupVersionKind().GroupKind(), "v1")
		if err != nil {
			t.Fatal(err)
		}
		at := client.Resource(mapping.Resource)
		if _, err := at.Create(context.Background(), &o, metav1.CreateOptions{}); err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() {
			if err := at.Delete(context.Background(), o.GetName(), metav1.DeleteOptions{}); err != nil {
				t.Error(err)
			}
		})
	}
}

// TestAdmissionPolicy applies the policy of docs/kyverno and checks what it rejects and what it admits.
func TestAdmissionPolicy(t *testing.T) {
	connect(t)
	createUntilEnd(t, "../../docs/kyverno/admission-policy.yaml")
	skyhook := func(of string) error {
		return checkPart(frames["packages"], block{more: "packages", text: "tool: {version: 1.0.0, " + of + "}"})
	}
	const digest = "containerSHA: 'sha256:0000000000000000000000000000000000000000000000000000000000000000'"
	for of, want := range map[string]string{
		"image: example.com/other, " + digest:                                  "come from",
		"image: registry.example.org/tool":                                     "pinned by digest",
		"image: registry.example.org/tool, containerSHA: ''":                   "pinned by digest",
		"image: 'registry.example.org:443/tool', " + digest:                    "come from",
		"image: Registry.example.org/tool, " + digest:                          "come from",
		"image: registry.example.org/tool, agentImageOverride: x:1, " + digest: "the agent's image",
		"image: registry.example.org/tool, " + digest:                          "",
		"image: ghcr.io/skyhook-k8s/skyhook/packages/tuning, " + digest:        "",
		"image: 'registry.example.org/tool:other', " + digest:                  "",
		"image: 'registry.example.org.evil/tool:1', " + digest:                 "come from",
	} {
		err := skyhook(of)
		if want == "" && err != nil || want != "" && (err == nil || !strings.Contains(err.Error(), want)) {
			t.Errorf("%s: %v, want %q", of, err, want)
		}
	}
	digest256 := "@sha256:" + strings.Repeat("0", 64)
	for _, c := range []struct{ kind, spec, want string }{
		{"NodeOp", "{command: [x]}", ""},
		{"NodeOp", "{command: [x], image: registry.example.org/check" + digest256 + "}", ""},
		{"NodeOp", "{command: [x], image: registry.example.org/check:1}", "pinned by digest"},
		{"NodeOp", "{command: [x], image: example.com/other" + digest256 + "}", "come from"},
		{"NodeOp", "{command: [x], image: registry.example.org:443/check" + digest256 + "}", "come from"},
		{"NodeOp", "{command: [x], preflight: {command: [x], image: example.com/other:1}}", "come from"},
		{"NodeOp", "{command: [x], preflight: {command: [x], image: registry.example.org/check}}", "pinned by digest"},
		{"NodeOpUpgrade", "{image: registry.example.org/os" + digest256 + "}", ""},
		{"NodeOpUpgrade", "{image: example.com/os" + digest256 + "}", "come from"},
	} {
		err := checkPart(strings.Replace(frames["nodeop"], "NodeOp", c.kind, 1), block{text: c.spec})
		if c.want == "" && err != nil || c.want != "" && (err == nil || !strings.Contains(err.Error(), c.want)) {
			t.Errorf("%s %s: %v, want %q", c.kind, c.spec, err, c.want)
		}
	}
}

// TestUnknownKinds checks that unknown kinds are errors, except in groups whose module is missing.
func TestUnknownKinds(t *testing.T) {
	connect(t)
	missingGroups["argoproj.io"] = true
	defer delete(missingGroups, "argoproj.io")
	for kind, want := range map[string]bool{
		"{apiVersion: argoproj.io/v1alpha1, kind: Nothing, metadata: {name: a}}": true, "{apiVersion: skyhook.nvidia.com/v1alpha1, kind: Skyhok, metadata: {name: a}}": false,
		"{apiVersion: apps/v1, kind: Deploymnet, metadata: {name: a}}": false,
	} {
		if err := checkBlock(block{kind: "yaml", text: kind}); (err == nil) != want {
			t.Errorf("%s: %v", kind, err)
		}
	}
}
