// SPDX-FileCopyrightText: The Skyhook authors
// SPDX-License-Identifier: Apache-2.0

package options

import (
	"encoding/json"
	"os"
	"path/filepath"
	"reflect"
	"regexp"
	"slices"
	"strings"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/yaml"
)

// changed has a value for every option of Decision that is not its default.
var changed = map[string]string{
	"namespace": "elsewhere", "agent-image": "r.example/agent:v9", "pause-image": "r.example/pause:v9", "nodeop-default-image": "r.example/shell:v9",
	"sentinel-image": "r.example/sentinel:v9", "nodeop-namespaces": "team-a,team-b", "kairos-labels": "false", "image-pull-secret": "pull",
	"always-pull": "true", "service-account": "packages", "own-service-account": "operator", "copy-dir-root": "/opt/skyhook", "agent-log-root": "/opt/log",
	"runtime-required-taint": "a=b:NoExecute", "reapply-on-reboot": "true", "reboot-proof": "agent", "stage-deadline": "90s", "interrupt-deadline": "91s", "interrupt-memory": "512Mi",
	"keep-removed-packages": "true", "pod-layout": "Compact", "image-volumes-from": "1.33", "pin-images": "true", "prepull": "true", "prometheus-endpoints": "https://prometheus.example.com",
	"default-deployment-policy": "canary", "profile": "Recommended", "node-name": "n1",
}

// ofNoOption are fields whose meaning a NodeOp decides: no operator has one for all.
var ofNoOption = map[string]bool{"TargetsAtStart": true, "RemoveWithTTL": true}

// Every field of the configurations comes from an option of Decision, and a dump keeps all of them.
func TestDecisionsDependOnTheTable(t *testing.T) {
	var args []string
	for _, row := range Defaults().Table() {
		switch value, ok := changed[row.Flag]; {
		case row.Use == Decision && !ok:
			t.Errorf("--%s has no value in this test", row.Flag)
		case row.Use == Decision:
			args = append(args, "--"+row.Flag+"="+value)
		}
	}
	o := read(t, with(), args...)
	for _, pair := range [][2]any{{o.Skyhook("v1"), Defaults().Skyhook("v0")}, {o.NodeOps(), Defaults().NodeOps()}} {
		got, initial := reflect.ValueOf(pair[0]), reflect.ValueOf(pair[1])
		for i := range got.NumField() {
			name := got.Type().Field(i).Name
			if reflect.DeepEqual(got.Field(i).Interface(), initial.Field(i).Interface()) && !ofNoOption[name] {
				t.Errorf("no option sets %s of %s", name, got.Type())
			}
		}
	}
	if got := len(o.Changed()); got != len(changed) {
		t.Errorf("of %d changed options %d are reported: %q", len(changed), got, o.Changed())
	}

	raw, err := json.Marshal(o)
	if err != nil {
		t.Fatal(err)
	}
	again := Defaults()
	if err := json.Unmarshal(raw, again); err != nil {
		t.Fatal(err)
	}
	if !reflect.DeepEqual(o.Skyhook(""), again.Skyhook("")) || !reflect.DeepEqual(o.NodeOps(), again.NodeOps()) || again.Node != o.Node {
		t.Errorf("through JSON, %+v became %+v", o, again)
	}
}

const operatorDeployment = `
metadata: {name: skyhook-operator, namespace: ops}
spec:
  template:
    spec:
      serviceAccountName: robot
      containers:
      - name: proxy
        image: registry.example/proxy:v1
        args: [--v=10]
      - name: manager
        image: registry.example/operator:v1
        command: [/manager, --always-pull]
        args: [--default-deployment-policy, canary, --reboot-proof=agent, "--pause-image=$(REGISTRY)/pause:v1", --leader-election=false]
        envFrom:
        - configMapRef: {name: settings}
          prefix: NODEOP_
        - secretRef: {name: hidden}
        env:
        - {name: NAMESPACE, valueFrom: {fieldRef: {fieldPath: metadata.namespace}}}
        - {name: NODE_NAME, valueFrom: {fieldRef: {fieldPath: spec.nodeName}}}
        - {name: OWN_SERVICE_ACCOUNT, valueFrom: {fieldRef: {fieldPath: spec.serviceAccountName}}}
        - {name: STAGE_DEADLINE, valueFrom: {configMapKeyRef: {name: settings, key: slow}}}
        - {name: DEFAULT_DEPLOYMENT_POLICY, value: loses-to-the-flag}
        - {name: REGISTRY, value: registry.example}
        - {name: AGENT_IMAGE, value: "$(REGISTRY)/agent:v1"}
        - {name: COPY_DIR_ROOT, value: ""}
        - {name: LOG_LEVEL, value: info}
`

func deployment(t *testing.T, text string) *appsv1.Deployment {
	t.Helper()
	d := &appsv1.Deployment{}
	if err := yaml.Unmarshal([]byte(text), d); err != nil {
		t.Fatal(err)
	}
	return d
}

func TestFromDeployment(t *testing.T) {
	configMap := func(name string) map[string]string {
		return map[string]map[string]string{"settings": {"NAMESPACES": "team-a, team-b", "slow": "3h"}}[name]
	}
	o, err := FromDeployment(deployment(t, operatorDeployment), "n7", configMap)
	if err != nil {
		t.Fatal(err)
	}
	want := []string{
		"--namespace=ops", "--agent-image=registry.example/agent:v1", "--pause-image=registry.example/pause:v1", "--nodeop-namespaces=team-a,team-b",
		"--always-pull=true", "--own-service-account=robot", "--reboot-proof=agent", "--stage-deadline=3h0m0s", "--default-deployment-policy=canary", "--node-name=n7",
	}
	if got := o.Changed(); !slices.Equal(got, want) {
		t.Errorf("it has\n%q\nwant\n%q", got, want)
	}
	if o.LeaderElection || o.LogLevel != "info" {
		t.Errorf("leader election %v, log level %s", o.LeaderElection, o.LogLevel)
	}
}

// What was read before an error counts, and the error is reported.
func TestFromDeploymentWithUnknownFlag(t *testing.T) {
	text := strings.Replace(operatorDeployment, "--reboot-proof=agent", "--unknown=1", 1)
	o, err := FromDeployment(deployment(t, text), "", func(string) map[string]string { return nil })
	if err == nil || !strings.Contains(err.Error(), "-unknown") {
		t.Errorf("the error is %v", err)
	}
	if o.DefaultPolicy != "canary" || o.Namespace != "ops" {
		t.Errorf("it has %q", o.Changed())
	}
}

func TestExpand(t *testing.T) {
	for text, want := range map[string]string{
		"$(A)/$(B)": "a/$(B)", "$$(A)": "$(A)", "$A": "$A", "$(A": "$(A", "": "",
	} {
		if got := expandRefs(text, map[string]string{"A": "a"}); got != want {
			t.Errorf("%q is %q, want %q", text, got, want)
		}
	}
}

// The chart sets no environment variable that the table does not know, and its defaults are those of the program.
func TestChart(t *testing.T) {
	text, err := os.ReadFile(filepath.Join("..", "..", "config", "default", "install.yaml"))
	if err != nil {
		t.Fatal(err)
	}
	known := map[string]bool{
		"GOMAXPROCS": true, // the Go runtime reads it
		"GOMEMLIMIT": true, // the same
	}
	for _, row := range Defaults().Table() {
		known[row.Env] = true
	}
	names := regexp.MustCompile(`(?m)- name: ([A-Z][A-Z_]+)$`).FindAllStringSubmatch(string(text), -1)
	if len(names) < 30 {
		t.Errorf("only %d environment variables were found in the chart", len(names))
	}
	for _, name := range names {
		if !known[name[1]] {
			t.Errorf("the chart sets %s, which is no option", name[1])
		}
	}
	differs := []string{"PROFILE", "AGENT_IMAGE", "IMAGE_PULL_SECRET", "PACKAGE_SERVICE_ACCOUNT", "GUARD_REMOVAL", "LEADER_ELECTION"}
	for _, row := range Defaults().Table() {
		value := regexp.MustCompile(`- name: ` + row.Env + `\n +value: "?([^"\n]*)"?\n`).FindStringSubmatch(string(text))
		if value != nil && value[1] != row.Default && !slices.Contains(differs, row.Env) {
			t.Errorf("the chart sets %s to %q, and the default of the program is %q", row.Env, value[1], row.Default)
		}
	}
}

// A Deployment of an operator without settings means the defaults.
func TestFromEmptyDeployment(t *testing.T) {
	for _, containers := range [][]corev1.Container{nil, {{Name: "other"}}} {
		d := &appsv1.Deployment{}
		d.Spec.Template.Spec.Containers = containers
		o, err := FromDeployment(d, "", nil)
		if err != nil || len(o.Changed()) > 0 {
			t.Errorf("it has %q, and the error is %v", o.Changed(), err)
		}
	}
}
