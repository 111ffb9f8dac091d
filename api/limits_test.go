// SPDX-FileCopyrightText: The Skyhook authors
// SPDX-License-Identifier: Apache-2.0

package api

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strconv"
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/discovery"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/yaml"
)

// TestLargeObjects checks that the largest allowed objects stay within the cost limit of the API server for rules.
func TestLargeObjects(t *testing.T) {
	name := func(prefix string, i int) string {
		return fmt.Sprintf("%s-%c%c", prefix, 'a'+i/26, 'a'+i%26)
	}
	list := func(n int, f func(i int) any) (all []any) {
		for i := range n {
			all = append(all, f(i))
		}
		return all
	}
	packages := map[string]any{}
	for i := range 100 {
		files, interrupts, dependsOn := map[string]any{}, map[string]any{}, map[string]any{}
		for k := range 40 {
			files[fmt.Sprintf("some_configuration_file_%d.conf", k)] = "a = b"
		}
		for k := range 4 {
			interrupts[fmt.Sprintf("some_*_file_%d.conf", k)] = map[string]any{"type": "service", "services": list(8, func(i int) any { return name("unit", i) })}
		}
		for k := max(0, i-8); k < i; k++ {
			dependsOn[name("package", k)] = "2024.05.10"
		}
		packages[name("package", i)] = map[string]any{
			"version": "2024.05.10", "image": "registry.example.org:5000/team/packages/" + name("package", i) + ":2024.05.10",
			"configMap": files, "configInterrupts": interrupts, "dependsOn": dependsOn,
			"env":          list(40, func(i int) any { return map[string]any{"name": fmt.Sprintf("SOME_VARIABLE_%d", i), "value": "x"} }),
			"resources":    map[string]any{"cpuRequest": "250m", "cpuLimit": int64(2), "memoryRequest": "64Mi", "memoryLimit": "1Gi"},
			"stageTimeout": "90m", "gracefulShutdown": "1m",
		}
	}
	hosts := map[string]any{"matchExpressions": []any{map[string]any{"key": "kubernetes.io/hostname", "operator": "In",
		"values": list(4096, func(i int) any { return fmt.Sprintf("ip-10-0-%d-%d.eu-central-1.compute.internal", i/256, i%256) })}}}
	requireAccepted(t, "skyhook", map[string]any{"nodeSelectors": hosts, "podNonInterruptLabels": hosts, "packages": packages})
	requireAccepted(t, "deploymentpolicy", map[string]any{
		"default": map[string]any{"budget": map[string]any{"count": int64(1)}, "strategy": map[string]any{"fixed": map[string]any{}}},
		"compartments": list(100, func(i int) any {
			return map[string]any{"name": name("rack", i), "budget": map[string]any{"count": int64(1)}, "after": list(min(i, 8), func(k int) any { return name("rack", k) }), "selector": map[string]any{
				"matchLabels":      map[string]any{"topology.kubernetes.io/rack": name("rack", i)},
				"matchExpressions": list(4, func(k int) any { return map[string]any{"key": name("key", k), "operator": "Exists"} }),
			}}
		}),
	})
	requireAccepted(t, "nodeop", map[string]any{"nodeSelector": hosts, "command": list(256, func(int) any { return strings.Repeat("x", 1000) }),
		"env": list(100, func(i int) any { return map[string]any{"name": fmt.Sprintf("SOME_VARIABLE_%d", i), "value": "x"} })})
}

func requireAccepted(t *testing.T, kind string, spec map[string]any) {
	t.Helper()
	o := parseObject(t, kinds[kind], "")
	o.Object["spec"] = spec
	_, err := resourceClient(t, kinds[kind]).Create(context.Background(), o, metav1.CreateOptions{DryRun: []string{metav1.DryRunAll}, FieldValidation: metav1.FieldValidationStrict})
	if err != nil {
		t.Errorf("%s: %.2000s", kind, err)
	}
}

// TestStoredObjects checks that the operator can still annotate, report on and release an object that was stored before
// the rules existed. It uses a copy of the CRD under another group, first without rules.
func TestStoredObjects(t *testing.T) {
	config := rest.CopyConfig(startServer(t))
	config.WarningHandler = rest.NoWarnings{}
	client, err := dynamic.NewForConfig(config)
	if err != nil {
		t.Fatal(err)
	}
	ctx := context.Background()
	definitions := client.Resource(schema.GroupVersionResource{Group: "apiextensions.k8s.io", Version: "v1", Resource: "customresourcedefinitions"})
	strict, loose := copyOfSkyhook(t), copyOfSkyhook(t)
	dropRules(loose.Object)
	created, err := definitions.Create(ctx, loose, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := definitions.Delete(ctx, created.GetName(), metav1.DeleteOptions{}); err != nil {
			t.Error(err)
		}
	})
	kind := schema.GroupVersionKind{Group: "before.example.org", Version: "v1alpha1", Kind: "Skyhook"}
	skyhooks := client.Resource(kind.GroupVersion().WithResource("skyhooks"))
	bad := parseObject(t, kind, "spec: {packages: {A1: {version: latest, image: 'repo:other', interrupt: {type: service}, uninstall: {apply: true}}}}")
	bad.SetName(strings.Repeat("long", 15))
	bad.SetFinalizers([]string{"skyhook.nvidia.com/skyhook"})
	eventually(t, "creating an object of the copy", func() error {
		_, err := skyhooks.Create(ctx, bad, metav1.CreateOptions{})
		return err
	})
	eventually(t, "adding the rules to the copy", func() error { // controllers of the server write to it too
		current, err := definitions.Get(ctx, created.GetName(), metav1.GetOptions{})
		if err != nil {
			return err
		}
		strict.SetResourceVersion(current.GetResourceVersion())
		_, err = definitions.Update(ctx, strict, metav1.UpdateOptions{})
		return err
	})
	eventually(t, "waiting for the rules", func() error {
		second := bad.DeepCopy()
		second.SetName("second")
		if _, err := skyhooks.Create(ctx, second, metav1.CreateOptions{DryRun: []string{metav1.DryRunAll}}); err == nil {
			return errors.New("an invalid object is accepted")
		}
		return nil
	})
	patch := func(text string, sub ...string) error {
		_, err := skyhooks.Patch(ctx, bad.GetName(), types.MergePatchType, []byte(text), metav1.PatchOptions{}, sub...)
		return err
	}
	if err := patch(`{"metadata":{"annotations":{"skyhook.nvidia.com/version":"v1"}}}`); err != nil {
		t.Errorf("setting an annotation: %v", err)
	}
	if err := patch(`{"status":{"status":"unknown","nodesTotal":3}}`, "status"); err != nil && minorVersion(t, config) >= 33 {
		t.Errorf("writing the status: %v", err) // older versions also check unchanged fields then
	}
	if err := patch(`{"spec":{"priority":3}}`); err != nil {
		t.Errorf("changing a valid field: %v", err)
	}
	if err := patch(`{"spec":{"packages":{"A1":{"version":"newest"}}}}`); err == nil {
		t.Error("changing an invalid field to another invalid value is accepted")
	}
	if err := skyhooks.Delete(ctx, bad.GetName(), metav1.DeleteOptions{}); err != nil {
		t.Error(err)
	}
	if err := patch(`{"metadata":{"finalizers":null}}`); err != nil {
		t.Errorf("removing the finalizer: %v", err)
	}
}

// minorVersion is the minor version of the API server.
func minorVersion(t *testing.T, config *rest.Config) int {
	t.Helper()
	client, err := discovery.NewDiscoveryClientForConfig(config)
	if err != nil {
		t.Fatal(err)
	}
	v, err := client.ServerVersion()
	if err != nil {
		t.Fatal(err)
	}
	n, err := strconv.Atoi(strings.TrimRight(v.Minor, "+"))
	if err != nil {
		t.Fatal(err)
	}
	return n
}

// eventually retries until something works: the API server applies a CRD some time after it has stored it.
func eventually(t *testing.T, what string, try func() error) {
	t.Helper()
	var last error
	if err := wait.PollUntilContextTimeout(context.Background(), 50*time.Millisecond, time.Minute, true, func(context.Context) (bool, error) {
		last = try()
		return last == nil, nil
	}); err != nil {
		t.Fatalf("%s: %v", what, last)
	}
}

func copyOfSkyhook(t *testing.T) *unstructured.Unstructured {
	t.Helper()
	text, err := os.ReadFile("../chart/files/crds/skyhook.nvidia.com_skyhooks.yaml")
	if err != nil {
		t.Fatal(err)
	}
	o := &unstructured.Unstructured{}
	raw, err := yaml.YAMLToJSON([]byte(strings.ReplaceAll(string(text), "skyhook.nvidia.com\n", "before.example.org\n")))
	if err != nil {
		t.Fatal(err)
	}
	if err := o.UnmarshalJSON(raw); err != nil {
		t.Fatal(err)
	}
	return o
}

func dropRules(v any) {
	switch v := v.(type) {
	case map[string]any:
		delete(v, "x-kubernetes-validations")
		for _, child := range v {
			dropRules(child)
		}
	case []any:
		for _, child := range v {
			dropRules(child)
		}
	}
}
