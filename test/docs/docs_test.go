// SPDX-FileCopyrightText: The Skyhook authors
// SPDX-License-Identifier: Apache-2.0

package docs

import (
	"encoding/json"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"sigs.k8s.io/yaml"
)

// notRun marks blocks that can be neither executed nor validated. It stands after the fence.
const notRun = "not-run"

// kinds maps the kinds of fenced blocks to whether they are checked. Text is the output of programs.
var kinds = map[string]bool{"yaml": true, "json": true, "sh": true, "bash": true, "go": false, "text": false, "mermaid": false, "": false, "console": false, "toml": false, "ini": false}

func allBlocks(t *testing.T) []block {
	t.Helper()
	dir, err := repositoryRoot()
	if err != nil {
		t.Fatal(err)
	}
	names, err := listPages(dir)
	if err != nil {
		t.Fatal(err)
	}
	if len(names) < 20 {
		t.Fatalf("found only these pages: %v", names)
	}
	var all []block
	for _, name := range names {
		found, err := parseBlocks(dir, name)
		if err != nil {
			t.Error(err)
		}
		all = append(all, found...)
	}
	return all
}

// TestBlocks checks that the kind of every block is known, and logs the blocks with notRun.
func TestBlocks(t *testing.T) {
	checked := map[string]int{}
	for _, b := range allBlocks(t) {
		what, known := kinds[b.kind]
		switch {
		case !known:
			t.Errorf("%s: a block of kind %q is not checked: use one of yaml, json, sh, text and mermaid", b, b.kind)
		case strings.Contains(b.more, notRun):
			t.Logf("neither executed nor validated: %s (%s)", b, b.kind)
		case what:
			checked[b.kind]++
		}
	}
	for _, kind := range []string{"yaml", "json", "sh"} {
		if checked[kind] == 0 {
			t.Errorf("no block of kind %s is checked", kind)
		}
	}
	t.Logf("checked: %v", checked)
}

// generatedPage is generated from the commands; a test in internal/cli compares it.
const generatedPage = "docs/cli.md"

// TestCommands checks that every command and its flags exist.
func TestCommands(t *testing.T) {
	dir, err := repositoryRoot()
	if err != nil {
		t.Fatal(err)
	}
	for _, b := range allBlocks(t) {
		if !isShell(b) || strings.Contains(b.more, notRun) || strings.HasPrefix(b.String(), generatedPage+":") {
			continue
		}
		for _, err := range checkScript(dir, b.text) {
			t.Errorf("%s: %v", b, err)
		}
	}
}

// isShell reports whether a block contains commands: by its kind, or without a kind if it begins with a known program.
func isShell(b block) bool {
	first, _, _ := strings.Cut(strings.TrimSpace(b.text), " ")
	return b.kind == "sh" || b.kind == "bash" || b.kind == "" && first != "skyhook-agent" && programs[first] != nil
}

// TestCommandsRefused checks that unknown commands and flags are found.
func TestCommandsRefused(t *testing.T) {
	dir, err := repositoryRoot()
	if err != nil {
		t.Fatal(err)
	}
	for _, text := range []string{
		"kubectl gte pods", "kubectl get pods --namespaces x", "kubectl apply -f x | kubectl bake", "kubectl skyhook pauses demo",
		"kubectl skyhook forget demo --nodes n1", "helm instal skyhook ./chart", "helm install skyhook ./chart --replace-all", "kubelet --register-with-taint=a=b:NoSchedule", "make everything",
		"go test ./nowhere", "for x in 1; do unheard-of $x; done", "./install.sh", "if then",
	} {
		if len(checkScript(dir, text)) == 0 {
			t.Errorf("no error in %q", text)
		}
	}
	for _, text := range []string{"kubectl -n skyhook logs -l app=x --tail=5 -f", "A=$(kubectl get node n1 -o name) && kubectl skyhook pause demo -y", "helm upgrade --install a ./chart --set x=y", "make demo VERSION=v1"} {
		if wrong := checkScript(dir, text); len(wrong) > 0 {
			t.Errorf("%q: %v", text, wrong)
		}
	}
}

// TestJSON checks that every JSON block is valid.
func TestJSON(t *testing.T) {
	for _, b := range allBlocks(t) {
		if b.kind == "json" && !strings.Contains(b.more, notRun) && !json.Valid([]byte(b.text)) {
			t.Errorf("%s: invalid JSON", b)
		}
	}
}

// TestValuesExplained checks that docs/install.md explains every value of the chart, and no other.
func TestValuesExplained(t *testing.T) {
	dir, err := repositoryRoot()
	if err != nil {
		t.Fatal(err)
	}
	text, err := os.ReadFile(filepath.Join(dir, "chart", "values.yaml"))
	if err != nil {
		t.Fatal(err)
	}
	var values map[string]any
	if err := yaml.Unmarshal(text, &values); err != nil {
		t.Fatal(err)
	}
	page, err := os.ReadFile(filepath.Join(dir, "docs", "install.md"))
	if err != nil {
		t.Fatal(err)
	}
	known := leafPaths("", values)
	var explained []string
	for line := range strings.Lines(string(page)) {
		cell, isRow := strings.CutPrefix(line, "| `")
		names, _, found := strings.Cut(cell, "` |")
		if !isRow || !found || strings.Contains(names, " ") {
			continue
		}
		explained = append(explained, names)
	}
	covered := func(value string) bool {
		return slices.ContainsFunc(explained, func(e string) bool {
			return e == value || strings.HasPrefix(value, e+".") || strings.HasPrefix(value, strings.TrimSuffix(e, ".*")+".") && strings.HasSuffix(e, ".*")
		})
	}
	for _, value := range known {
		if !covered(value) {
			t.Errorf("docs/install.md does not explain %s", value)
		}
	}
	for _, e := range explained {
		e = strings.TrimSuffix(e, ".*")
		if !slices.ContainsFunc(known, func(v string) bool { return v == e || strings.HasPrefix(v, e+".") }) && !slices.Contains(hiddenValues, e) {
			t.Errorf("docs/install.md explains %s, which the chart does not have", e)
		}
	}
}

// hiddenValues are valid values that values.yaml does not list.
var hiddenValues = []string{
	"global", "selectorMigration", "webhook", "webhookService", "kubernetesClusterDomain", "controllerManager.kubeRbacProxy", "controllerManager.manager.env.enableWebhooks",
	"controllerManager.manager.env.jobStageTimeout", "controllerManager.manager.env.jobBackoffLimit",
	"controllerManager.manager.env.jobTtlSucceeded", "controllerManager.manager.env.jobTtlFailed",
	"controllerManager.manager.env.legacyCleanupDelay", "controllerManager.manager.env.publishLegacyMetrics",
}

// leafPaths returns the paths of all values without children.
func leafPaths(path string, value any) []string {
	m, ok := value.(map[string]any)
	if !ok || len(m) == 0 {
		return []string{path}
	}
	var all []string
	for k, v := range m {
		all = append(all, leafPaths(strings.TrimPrefix(path+"."+k, "."), v)...)
	}
	slices.Sort(all)
	return all
}
