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

// foreign are CRDs of other projects that examples use, each in a Go module that Go's proxy has, with the group of its kinds.
var foreign = map[string]map[string]string{
	"github.com/kyverno/kyverno@v1.19.1": {
		"kyverno.io":          "config/crds/kyverno/kyverno.io_clusterpolicies.yaml",
		"policies.kyverno.io": "config/crds/policies.kyverno.io/policies.kyverno.io_validatingpolicies.yaml",
	},
	"github.com/argoproj/argo-cd/v3@v3.3.0":         {"argoproj.io": "manifests/crds/application-crd.yaml"},
	"github.com/fluxcd/kustomize-controller@v1.7.3": {"kustomize.toolkit.fluxcd.io": "config/crd/bases/kustomize.toolkit.fluxcd.io_kustomizations.yaml"},
	"github.com/fluxcd/source-controller@v1.7.0":    {"source.toolkit.fluxcd.io": "config/crd/bases/source.toolkit.fluxcd.io_gitrepositories.yaml"},
}

// local are kinds that no API server knows: programs read them from files.
var local = map[string]bool{"Kustomization.kustomize.config.k8s.io": true}

var (
	plane  *controlplane.Plane
	client dynamic.Interface
	mapper *restmapper.DeferredDiscoveryRESTMapper
)

func TestMain(m *testing.M) {
	log.SetLogger(logr.Discard())
	crds, err := definitions()
	if err != nil {
		fmt.Fprintf(os.Stderr, "docs: %v\n", err)
		os.Exit(1)
	}
	os.Exit(controlplane.Main(m, &plane, controlplane.Options{CRDs: append(crds, "../../chart/files/crds")}))
}

// absent are the groups of other projects whose module Go's proxy did not give; examples with their kinds are not validated.
var absent = map[string]bool{}

// definitions finds the CRDs of others, where Go keeps its modules.
func definitions() ([]string, error) {
	var files []string
	for module, paths := range foreign {
		ctx, cancel := context.WithTimeout(context.Background(), 5*time.Minute)
		out, err := exec.CommandContext(ctx, "go", "mod", "download", "-json", module).Output()
		cancel()
		if err != nil {
			for group := range paths {
				absent[group] = true
			}
			fmt.Fprintf(os.Stderr, "docs: %s cannot be had, so examples that use its kinds are not validated: %v\n%s", module, err, out)
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

// wrap are pieces of an object, and what they are pieces of: the words behind ```yaml say which.
var wrap = map[string]string{
	"packages": "{apiVersion: skyhook.nvidia.com/v1alpha1, kind: Skyhook, metadata: {name: piece}, spec: {packages: {}}}",
	"spec":     "{apiVersion: skyhook.nvidia.com/v1alpha1, kind: Skyhook, metadata: {name: piece}, spec: {}}",
	"policy":   "{apiVersion: skyhook.nvidia.com/v1alpha1, kind: DeploymentPolicy, metadata: {name: piece}, spec: {}}",
	"nodeop":   "{apiVersion: operator.kairos.io/v1alpha1, kind: NodeOp, metadata: {name: piece, namespace: default}, spec: {}}",
}

// TestObjects gives every object of the pages and of the samples to a real API server, strictly: a field that it does not
// know is an error, and so is what a rule refuses.
func TestObjects(t *testing.T) {
	connect(t)
	all := everything(t)
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
		if err := check(b); err != nil {
			t.Errorf("%s: %v", b, err)
		}
	}
	t.Logf("%d blocks and files", checked)
}

// check gives the objects of a block to whoever can judge them.
func check(b block) error {
	switch b.more {
	case "values":
		return values(b.text)
	case "test.yaml":
		_, err := sandbox.ReadSpec([]byte(b.text))
		return err
	}
	if frame, known := wrap[b.more]; known {
		return piece(frame, b)
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
			return fmt.Errorf("this is no object: say behind the fence what it is a piece of (values, test.yaml, packages, spec, policy, nodeop), or %s", notRun)
		}
		if err := try(&o); err != nil {
			return fmt.Errorf("%s %s: %w", o.GetKind(), o.GetName(), err)
		}
	}
}

// try has the API server check an object without keeping it.
func try(o *unstructured.Unstructured) error {
	kind := o.GroupVersionKind()
	if local[kind.GroupKind().String()] {
		return nil
	}
	mapping, err := mapper.RESTMapping(schema.GroupKind{Group: kind.Group, Kind: kind.Kind}, kind.Version)
	if meta.IsNoMatchError(err) && absent[kind.Group] {
		return nil
	}
	if err != nil {
		return err
	}
	var at dynamic.ResourceInterface = client.Resource(mapping.Resource)
	if mapping.Scope.Name() == "namespace" {
		// Namespaces of examples are not there, and that is not what is asked.
		o.SetNamespace("default")
		at = client.Resource(mapping.Resource).Namespace("default")
	}
	_, err = at.Create(context.Background(), o, metav1.CreateOptions{DryRun: []string{metav1.DryRunAll}, FieldValidation: metav1.FieldValidationStrict})
	if apierrors.IsAlreadyExists(err) {
		return nil
	}
	return err
}

// piece puts a part of an object where it belongs.
func piece(frame string, b block) error {
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
	return try(&o)
}

// values are for the chart, whose schema judges them.
func values(text string) error {
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

// TestAdmissionPolicy puts the policy of docs/kyverno into force, and sees what it refuses and what it lets pass.
func TestAdmissionPolicy(t *testing.T) {
	connect(t)
	text, err := os.ReadFile("../../docs/kyverno/admission-policy.yaml")
	if err != nil {
		t.Fatal(err)
	}
	for _, part := range strings.Split(string(text), "\n---\n") {
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
	skyhook := func(of string) error {
		return piece(wrap["packages"], block{more: "packages", text: "tool: {version: 1.0.0, " + of + "}"})
	}
	const digest = "containerSHA: 'sha256:0000000000000000000000000000000000000000000000000000000000000000'"
	deadline := time.Now().Add(2 * time.Minute)
	for skyhook("image: example.com/other, "+digest) == nil { // the API server takes a moment to see its policies
		if time.Now().After(deadline) {
			t.Fatal("two minutes, and the policy refuses nothing")
		}
		time.Sleep(100 * time.Millisecond)
	}
	for of, want := range map[string]string{
		"image: example.com/other, " + digest:                                  "come from",
		"image: registry.example.org/tool":                                     "pinned by digest",
		"image: registry.example.org/tool, agentImageOverride: x:1, " + digest: "the agent's image",
		"image: registry.example.org/tool, " + digest:                          "",
		"image: ghcr.io/skyhook-k8s/skyhook/packages/tuning, " + digest:        "",
	} {
		err := skyhook(of)
		if want == "" && err != nil || want != "" && (err == nil || !strings.Contains(err.Error(), want)) {
			t.Errorf("%s: %v, want %q", of, err, want)
		}
	}
}

// TestUnknownKinds: a kind that nobody serves is an error, also where modules of other projects cannot be had.
func TestUnknownKinds(t *testing.T) {
	connect(t)
	absent["argoproj.io"] = true
	defer delete(absent, "argoproj.io")
	for kind, want := range map[string]bool{
		"{apiVersion: argoproj.io/v1alpha1, kind: Nothing, metadata: {name: a}}": true, "{apiVersion: skyhook.nvidia.com/v1alpha1, kind: Skyhok, metadata: {name: a}}": false,
		"{apiVersion: apps/v1, kind: Deploymnet, metadata: {name: a}}": false,
	} {
		if err := check(block{kind: "yaml", text: kind}); (err == nil) != want {
			t.Errorf("%s: %v", kind, err)
		}
	}
}
