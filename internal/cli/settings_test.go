// SPDX-FileCopyrightText: The Skyhook authors
// SPDX-License-Identifier: Apache-2.0

package cli_test

import (
	"bytes"
	"encoding/json"
	"path/filepath"
	"strings"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	"k8s.io/apimachinery/pkg/runtime/serializer"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/skyhook-k8s/skyhook/internal/cli"
	"github.com/skyhook-k8s/skyhook/internal/dump"
)

const operatorSettings = `
apiVersion: apps/v1
kind: Deployment
metadata: {name: skyhook-operator, namespace: NAMESPACE}
spec:
  selector: {matchLabels: {app: skyhook-operator}}
  template:
    metadata: {labels: {app: skyhook-operator}}
    spec:
      containers:
      - name: manager
        image: registry.example/skyhook/operator:v1
        args: [--default-deployment-policy=canary]
        env:
        - {name: NAMESPACE, valueFrom: {fieldRef: {fieldPath: metadata.namespace}}}
        - {name: NODEOP_NAMESPACES, value: "team-a"}
        - {name: AGENT_IMAGE, value: "registry.example/agent:v1"}
        - {name: PAUSE_IMAGE, value: "registry.example/pause:3"}
`

const withoutPolicy = `
apiVersion: skyhook.nvidia.com/v1alpha1
kind: Skyhook
metadata: {name: plain}
spec:
  nodeSelectors: {matchLabels: {pool: gpu}}
  packages:
    tuning: {version: 1.0.0, image: registry.example/packages/tuning}
`

const elsewhere = `
apiVersion: operator.kairos.io/v1alpha1
kind: NodeOp
metadata: {name: check, namespace: default}
spec: {command: [uname]}
`

type settingsPlan struct {
	Settings struct {
		Source  string
		Changed []string
	}
	Rollouts []struct {
		Name    string
		Problem string
		Waves   []struct{ Nodes []string }
	}
}

// check compares a plan with the operator's decision: waves of the default policy, and no work for a NodeOp in a namespace that
// the operator does not serve.
func (p *settingsPlan) check(t *testing.T, namespace string) {
	t.Helper()
	changed := strings.Join(p.Settings.Changed, " ")
	if p.Settings.Source != "Deployment "+namespace+"/skyhook-operator" || !strings.Contains(changed, "--nodeop-namespaces=team-a") || !strings.Contains(changed, "--default-deployment-policy=canary") {
		t.Errorf("it was planned with %+v", p.Settings)
	}
	if len(p.Rollouts) != 2 {
		t.Fatalf("it plans %+v", p.Rollouts)
	}
	for _, r := range p.Rollouts {
		switch r.Name {
		case "Skyhook/plain":
			if len(r.Waves) != 2 || len(r.Waves[0].Nodes) != 1 {
				t.Errorf("the waves of the default policy are one and two nodes, planned are %v", r.Waves)
			}
		default:
			if len(r.Waves) > 0 || r.Problem == "" {
				t.Errorf("the operator leaves %s alone, planned are %v", r.Name, r.Waves)
			}
		}
	}
}

// TestPlanUsesTheOperatorsSettings checks that a plan uses the operator's settings, from its Deployment and from a dump.
func TestPlanUsesTheOperatorsSettings(t *testing.T) {
	deployment := strings.ReplaceAll(operatorSettings, "NAMESPACE}", "skyhook}")
	live, err := dump.New(nil, time.Now())
	if err != nil {
		t.Fatal(err)
	}
	scheme, err := dump.Scheme()
	if err != nil {
		t.Fatal(err)
	}
	decoder := serializer.NewCodecFactory(scheme).UniversalDeserializer()
	objects := []string{deployment, canaryPolicy, withoutPolicy, elsewhere}
	for _, name := range []string{"n1", "n2", "n3"} {
		objects = append(objects, "apiVersion: v1\nkind: Node\nmetadata: {name: "+name+", uid: "+name+", labels: {pool: gpu}}\nstatus: {conditions: [{type: Ready, status: \"True\"}]}\n")
	}
	for _, text := range objects {
		o, _, err := decoder.Decode([]byte(text), nil, nil)
		if err != nil {
			t.Fatal(err)
		}
		if err := live.Put(o.(client.Object)); err != nil {
			t.Fatal(err)
		}
	}
	if err := live.FindOperator(t.Context(), "skyhook", func(*appsv1.Deployment) bool { return true }); err != nil {
		t.Fatal(err)
	}
	var out, errs bytes.Buffer
	line := cli.Line{Args: []string{"plan", "--from", writeDump(t, live), "-o", "json"}, Stdin: strings.NewReader(""), Stdout: &out, Stderr: &errs}
	if code := cli.Run(t.Context(), line); code != 0 {
		t.Fatalf("exit code %d\n%s", code, errs.String())
	}
	var plan settingsPlan
	if err := json.Unmarshal(out.Bytes(), &plan); err != nil {
		t.Fatal(err)
	}
	plan.check(t, "skyhook")
}

// TestPlanUsesTheSettingsOfARunningOperator checks the same with an API server, for the cluster and for its dump.
func TestPlanUsesTheSettingsOfARunningOperator(t *testing.T) {
	s := newTestCluster(t, 3)
	s.Apply(strings.ReplaceAll(operatorSettings, "NAMESPACE}", s.Namespace+"}"))
	s.Apply(canaryPolicy)
	s.Apply(withoutPolicy)
	s.Apply(elsewhere)
	dump := filepath.Join(t.TempDir(), "dump.yaml")
	s.run(0, "dump", "--to", dump)
	for _, args := range [][]string{{"plan", "-o", "json"}, {"plan", "-o", "json", "--from", dump}} {
		var plan settingsPlan
		s.Must(json.Unmarshal([]byte(s.run(0, args...)), &plan))
		plan.check(t, s.Namespace)
	}
	if _, said := s.runBoth(0, "status", "--verbose"); !strings.Contains(said, "settings of the operator from Deployment "+s.Namespace+"/skyhook-operator: ") ||
		!strings.Contains(said, "--default-deployment-policy=canary") {
		t.Errorf("status tells %s", said)
	}
}
