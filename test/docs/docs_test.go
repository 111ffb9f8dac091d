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

// notRun marks, behind the fence, what can neither be executed nor validated.
const notRun = "not-run"

// kinds are what a fence may be of. Text is what programs print, and pictures.
var kinds = map[string]bool{"yaml": true, "json": true, "sh": true, "bash": true, "go": false, "text": false, "mermaid": false, "": false, "console": false, "toml": false, "ini": false}

func everything(t *testing.T) []block {
	t.Helper()
	dir, err := root()
	if err != nil {
		t.Fatal(err)
	}
	names, err := pages(dir)
	if err != nil {
		t.Fatal(err)
	}
	if len(names) < 20 {
		t.Fatalf("only these pages are there: %v", names)
	}
	var all []block
	for _, name := range names {
		found, err := blocks(dir, name)
		if err != nil {
			t.Error(err)
		}
		all = append(all, found...)
	}
	return all
}

// TestBlocks: every example is of a kind that is checked, or is marked; those that are marked are listed.
func TestBlocks(t *testing.T) {
	checked := map[string]int{}
	for _, b := range everything(t) {
		what, known := kinds[b.kind]
		switch {
		case !known:
			t.Errorf("%s: a block of kind %q is checked by nobody: use one of yaml, json, sh, text and mermaid", b, b.kind)
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

// generated is made from the commands themselves, and held to them by a test of its own.
const generated = "docs/cli.md"

// TestCommands: every command is one that its program has, with flags that it has.
func TestCommands(t *testing.T) {
	dir, err := root()
	if err != nil {
		t.Fatal(err)
	}
	for _, b := range everything(t) {
		if !shell(b) || strings.Contains(b.more, notRun) || strings.HasPrefix(b.String(), generated+":") {
			continue
		}
		for _, err := range lines(dir, b.text) {
			t.Errorf("%s: %v", b, err)
		}
	}
}

// shell says that a block is commands: it says so, or says nothing and begins with one.
func shell(b block) bool {
	first, _, _ := strings.Cut(strings.TrimSpace(b.text), " ")
	return b.kind == "sh" || b.kind == "bash" || b.kind == "" && first != "skyhook-agent" && programs[first] != nil
}

// TestCommandsRefused: what is not there is found.
func TestCommandsRefused(t *testing.T) {
	dir, err := root()
	if err != nil {
		t.Fatal(err)
	}
	for _, text := range []string{
		"kubectl gte pods", "kubectl get pods --namespaces x", "kubectl apply -f x | kubectl bake", "kubectl skyhook pauses demo",
		"kubectl skyhook reset demo --nodes n1", "helm instal skyhook ./chart", "helm install skyhook ./chart --replace-all", "kubelet --register-with-taint=a=b:NoSchedule", "make everything",
		"go test ./nowhere", "for x in 1; do unheard-of $x; done", "./install.sh", "if then",
	} {
		if len(lines(dir, text)) == 0 {
			t.Errorf("nothing is wrong with %q", text)
		}
	}
	for _, text := range []string{"kubectl -n skyhook logs -l app=x --tail=5 -f", "A=$(kubectl get node n1 -o name) && kubectl skyhook pause demo -y", "helm upgrade --install a ./chart --set x=y", "make demo VERSION=v1"} {
		if wrong := lines(dir, text); len(wrong) > 0 {
			t.Errorf("%q: %v", text, wrong)
		}
	}
}

// TestJSON: every piece of JSON is one.
func TestJSON(t *testing.T) {
	for _, b := range everything(t) {
		if b.kind == "json" && !strings.Contains(b.more, notRun) && !json.Valid([]byte(b.text)) {
			t.Errorf("%s: this is no JSON", b)
		}
	}
}

// TestValuesExplained: every value of the chart has its place in docs/install.md, and nothing is explained there that the
// chart does not know.
func TestValuesExplained(t *testing.T) {
	dir, err := root()
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
	known := leaves("", values)
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
		if !slices.ContainsFunc(known, func(v string) bool { return v == e || strings.HasPrefix(v, e+".") }) && !slices.Contains(silent, e) {
			t.Errorf("docs/install.md explains %s, which the chart does not have", e)
		}
	}
}

// silent are values that values.yaml does not show.
var silent = []string{"nameOverride", "fullnameOverride", "global"}

// leaves are the values without others below them, by path.
func leaves(path string, value any) []string {
	m, ok := value.(map[string]any)
	if !ok || len(m) == 0 {
		return []string{path}
	}
	var all []string
	for k, v := range m {
		all = append(all, leaves(strings.TrimPrefix(path+"."+k, "."), v)...)
	}
	slices.Sort(all)
	return all
}
