// SPDX-FileCopyrightText: The Skyhook authors
// SPDX-License-Identifier: Apache-2.0

package live

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"testing"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/yaml"

	"github.com/skyhook-k8s/skyhook/test/testenv"
)

// collectedWarnings are the warnings with which an API server answers.
type collectedWarnings struct {
	sync.Mutex
	texts []string
}

func (w *collectedWarnings) HandleWarningHeader(_ int, _, text string) {
	w.Lock()
	defer w.Unlock()
	w.texts = append(w.texts, text)
}

func (w *collectedWarnings) take() string {
	w.Lock()
	defer w.Unlock()
	out := strings.Join(w.texts, "\n")
	w.texts = nil
	return out
}

// TestAdmissionWarnings installs the chart, and looks at what the API server answers to those who apply Skyhooks: a warning when
// packages interrupt all nodes at the same time unless there is a default policy, and of what a person probably did not mean.
func TestAdmissionWarnings(t *testing.T) {
	removeCRDs(t)
	w := testenv.New(t, plane, 0)
	mustHelm(t, "v4", w.Namespace, "install", releaseName, "chart", "--set-string", quietly, "--set", "cleanup.enabled=false")
	t.Cleanup(func() { mustHelm(t, "v4", w.Namespace, "uninstall", releaseName) })
	warnings := &collectedWarnings{}
	config := rest.CopyConfig(plane.Config)
	config.WarningHandler = warnings
	person, err := client.New(config, client.Options{})
	w.Must(err)
	try := func(spec string) string {
		s := &unstructured.Unstructured{Object: map[string]any{}}
		w.Must(yaml.Unmarshal([]byte("{apiVersion: skyhook.nvidia.com/v1alpha1, kind: Skyhook, metadata: {name: warned}, spec: {"+spec+"}}"), &s.Object))
		w.Must(person.Create(context.Background(), s, client.DryRunAll))
		return warnings.take()
	}
	const reboots = `packages: {driver: {image: x, version: "1", interrupt: {type: reboot}}}`
	const restarts = `packages: {limits: {image: x, version: "1", configMap: {a: b}, configInterrupts: {a: {type: service, services: [x]}}}}`
	w.Eventually("the API server warns of a reboot of all nodes", func() bool {
		return strings.Contains(try(reboots), "packages interrupt all selected nodes at the same time: set interruptionBudget or deploymentPolicy, or interruptionBudget.percent to 100 if that is meant")
	})
	for spec, warns := range map[string]bool{
		restarts: true,
		"interruptionBudget: {percent: null}, " + reboots:    true,
		"interruptionBudget: {percent: 100}, " + reboots:     false,
		"interruptionBudget: {count: 1}, " + reboots:         false,
		"deploymentPolicy: careful, " + restarts:             false,
		`packages: {driver: {image: x, version: "1"}}`:       false,
		"nodeSelectors: {matchLabels: {a: b}}, packages: {}": false,
	} {
		if got := try(spec); strings.Contains(got, "interruptionBudget") != warns {
			t.Errorf("%s: the warnings are %q", spec, got)
		}
	}
	const elsewhere = "nodeSelectors: {matchLabels: {a: b}}, "
	const somewhere = elsewhere + "packages: "
	for spec, want := range map[string]string{
		`packages: {}`:                    "nodeSelectors selects every node: name a label",
		`nodeSelectors: {}, packages: {}`: "nodeSelectors selects every node: name a label",
		`nodeSelectors: {matchExpressions: [{key: a, operator: Exists}]}, packages: {}`:                                        "",
		somewhere + `{aa: {image: x, version: "1", dependsOn: {bb: "1"}}, bb: {image: x, version: "1", dependsOn: {aa: "1"}}}`: "two packages depend on each other, so neither runs: remove one dependsOn",
		somewhere + `{aa: {image: x, version: "1", dependsOn: {bb: "1"}}, bb: {image: x, version: "1"}}`:                       "",
		somewhere + `{motd: {image: x, version: "1", configMap: {uninstall.sh: echo}}}`:                                        "a package has uninstall.sh and no uninstall_check.sh",
		somewhere + `{motd: {image: x, version: "1", configMap: {uninstall.sh: echo, uninstall_check.sh: echo}}}`:              "",
	} {
		if got := try(spec); (got != "") != (want != "") || !strings.Contains(got, want) {
			t.Errorf("%s: the warnings are %q, want %q", spec, got, want)
		}
	}
	mustHelm(t, "v4", w.Namespace, "upgrade", releaseName, "chart", "--set-string", quietly, "--set", "cleanup.enabled=false,defaultDeploymentPolicy.create=true")
	w.Eventually("nothing warns with a default policy", func() bool { return try(elsewhere+reboots) == "" })
	_, end := startOperator(t, w.Namespace)
	defer end()
	w.Eventually("the operator creates the default policy", func() bool {
		p := &unstructured.Unstructured{}
		p.SetAPIVersion("skyhook.nvidia.com/v1alpha1")
		p.SetKind("DeploymentPolicy")
		if w.Client.Get(context.Background(), client.ObjectKey{Name: "skyhook-default"}, p) != nil {
			return false
		}
		fixed, _, err := unstructured.NestedMap(p.Object, "spec", "default", "strategy", "fixed")
		w.Must(err)
		return fmt.Sprint(fixed) == "map[batchThreshold:100 failureThreshold:1 initialBatch:5 safetyLimit:100]"
	})
}
