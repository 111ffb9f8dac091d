// SPDX-FileCopyrightText: The Skyhook authors
// SPDX-License-Identifier: Apache-2.0

package cli_test

import (
	"encoding/json"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"

	"github.com/skyhook-k8s/skyhook/internal/view"
	"github.com/skyhook-k8s/skyhook/test/testenv"
)

// getJSON decodes the JSON behind a page.
func getJSON[T any](s *uiServer, path string) (out T) {
	s.Helper()
	status, raw := s.get(path, "application/json")
	if err := json.Unmarshal(raw, &out); err != nil || status != http.StatusOK {
		s.Fatalf("%s: %d, %v: %s", path, status, err, raw)
	}
	return out
}

// rolloutPage is the part of the JSON behind the page of a rollout that tests look at.
type rolloutPage struct {
	Status struct {
		Groups []struct {
			Counted   []view.Cell
			NotListed int
		}
	}
	Simulation struct {
		Rollouts []struct{ Progress view.Progress }
	}
}

// TestUIProgress: nodes that are complete now were working before, and began together with those that still work.
func TestUIProgress(t *testing.T) {
	s := startUI(t, "--from", stuckDump)
	p := getJSON[rolloutPage](s, "/rollouts/skyhook/base").Simulation.Rollouts[0].Progress
	if len(p.Past) < 2 || p.Past[0].Working != 5 || p.Past[0].Complete != 0 {
		t.Errorf("it does not begin with five working nodes: %+v", p.Past)
	}
	if last := p.Past[len(p.Past)-1]; last.Complete != 3 || last.Working != 1 || last.Failed != 1 {
		t.Errorf("it does not end with 3 complete, 1 working and 1 failed: %+v", last)
	}
	if len(p.Batches) == 0 || p.Batches[0].Simulated || p.Batches[0].Nodes != 5 {
		t.Errorf("the first batch has not five nodes: %+v", p.Batches)
	}
}

// TestUIAlwaysOpen: a window without an end has no closing.
func TestUIAlwaysOpen(t *testing.T) {
	s := startUI(t, "--from", windowsDump)
	for _, p := range getJSON[view.Policies](s, "/policies").Policies {
		if isAlways := p.Name == "always"; isAlways && (!p.IsOpen || !p.Next.IsZero()) || p.Name == "nights" && p.Next.IsZero() {
			t.Errorf("%s: open %v, next change %v", p.Name, p.IsOpen, p.Next)
		}
	}
}

// writeLongerDump writes the dump with windows, with more items.
func writeLongerDump(t *testing.T, items string) string {
	t.Helper()
	raw, err := os.ReadFile(windowsDump)
	if err != nil {
		t.Fatal(err)
	}
	file := filepath.Join(t.TempDir(), "dump.yaml")
	if err := os.WriteFile(file, append(raw, items...), 0o600); err != nil {
		t.Fatal(err)
	}
	return file
}

// TestUIManyCounted: a page that leaves out nodes says how many.
func TestUIManyCounted(t *testing.T) {
	var nodes strings.Builder
	nodes.WriteString(`- apiVersion: skyhook.nvidia.com/v1alpha1
  kind: Skyhook
  metadata: {name: many, uid: 22222222-0000-4000-8000-000000000009, generation: 1, creationTimestamp: "2026-11-20T00:00:00Z"}
  spec:
    deploymentPolicy: anytime
    nodeSelectors: {matchLabels: {pool: many}}
    packages: {tuning: {version: 1.2.0, image: registry.example/packages/tuning}}
`)
	for i := range 60 {
		fmt.Fprintf(&nodes, "- {apiVersion: v1, kind: Node, metadata: {name: down-%02d, uid: 44444444-0000-4000-8000-%012d, creationTimestamp: \"2026-11-01T00:00:00Z\", "+
			"labels: {pool: many}}, status: {conditions: [{type: Ready, status: \"False\", lastTransitionTime: \"2026-11-01T00:00:00Z\"}]}}\n", i, i)
	}
	s := startUI(t, "--from", writeLongerDump(t, nodes.String()))
	groups := getJSON[rolloutPage](s, "/rollouts/skyhook/many").Status.Groups
	if len(groups) != 1 || len(groups[0].Counted) != 50 || groups[0].NotListed != 10 {
		t.Errorf("it does not list 50 of 60 nodes: %+v", groups)
	}
	if _, page := s.get("/rollouts/skyhook/many", "text/html"); !strings.Contains(string(page), "and 10 more") {
		t.Error("the page does not say that 10 nodes are left out")
	}
}

// TestUINodeOpWindows: the plot of a NodeOp has the times in which no window of its policy is open.
func TestUINodeOpWindows(t *testing.T) {
	s := startUI(t, "--from", writeLongerDump(t, `- apiVersion: skyhook.nvidia.com/v1alpha1
  kind: DeploymentPolicy
  metadata: {name: nights-of-ops, uid: 11111111-0000-4000-8000-000000000009, generation: 1, creationTimestamp: "2026-11-01T00:00:00Z"}
  spec:
    scope: Policy
    default: {budget: {count: 1}, strategy: {fixed: {initialBatch: 1}}}
    windows: {timeZone: UTC, open: [{schedule: 0 22 * * *, duration: 7h}]}
- apiVersion: operator.kairos.io/v1alpha1
  kind: NodeOp
  metadata: {name: check, namespace: default, uid: 55555555-0000-4000-8000-000000000001, generation: 1, creationTimestamp: "2026-11-22T00:00:00Z"}
  spec: {deploymentPolicy: nights-of-ops, nodeSelector: {matchLabels: {pool: cpu}}, image: registry.example/tools, command: ["true"]}
`))
	if p := getJSON[rolloutPage](s, "/rollouts/nodeop/default/check").Simulation.Rollouts[0].Progress; len(p.Closed) == 0 {
		t.Errorf("it has no closed window: %+v", p)
	}
}

// TestUINodeOpSteps: the page of a node has the steps of a NodeOp with their times, the log of a failed one, and events on the time line.
func TestUINodeOpSteps(t *testing.T) {
	w := newOps(t, map[string]int32{"n1": 3})
	w.runBoth(3, "node", "run", "n1", "n2", "--yes", "--concurrency", "0", "--stop-on-failure=false", "--", "false")
	w.Apply("apiVersion: v1\nkind: Event\nmetadata: {name: n1.1, namespace: default}\ninvolvedObject: {kind: Node, name: n1}\nreason: Rebooted\nmessage: again\ntype: Warning\n")
	s := startUI(t, "--kubeconfig", w.file, "--operator-namespace", w.Namespace)
	var step view.Stage
	w.Eventually("the log of the failed step is shown", func() bool {
		n := getJSON[view.Node](s, "/nodes/n1")
		if len(n.Work) != 1 || len(n.Work[0].Stages) != 1 {
			return false
		}
		step = n.Work[0].Stages[0]
		return step.Log != ""
	})
	if step.Label != "command" || step.State != "failing" || step.Started == nil || step.Ended == nil || step.Duration == "" {
		t.Errorf("the step has no times: %+v", step)
	}
	if !strings.Contains(step.Log, "Container: nodeop [exited with 3]") || !strings.Contains(step.Log, "nodeop says tailLines=50") {
		t.Errorf("the log is %q", step.Log)
	}
	if _, page := s.get("/nodes/n1", "text/html"); !strings.Contains(string(page), "nodeop says tailLines=50") || !strings.Contains(string(page), `Rebooted: again</title><line`) {
		t.Errorf("the page has no log, or no event on the time line:\n%s", page)
	}
	done := getJSON[view.Node](s, "/nodes/n2").Work
	if len(done) != 1 || len(done[0].Stages) != 1 || done[0].Stages[0].State != "done" || done[0].Stages[0].Started == nil || !strings.Contains(done[0].Stages[0].Log, "nodeop says") {
		t.Errorf("the step that succeeded: %+v", done)
	}
	op := w.listNodeOps()[0]
	_, page := s.get("/rollouts/nodeop/"+w.Namespace+"/"+op.Name, "text/html")
	if path := "/outputs/" + w.Namespace + "/" + op.Name; !strings.Contains(string(page), path) {
		t.Errorf("the page of the NodeOp has no link to %s:\n%s", path, page)
	} else if _, text := s.get(path, "text/plain"); string(text) != "==> n1 [failed] <==\nnodeop says\n==> n2 [completed] <==\nnodeop says\n" {
		t.Errorf("the output is\n%s", text)
	}
}

// TestUIFetch: the page of a node offers to fetch the log of a stage that succeeded and whose pod is gone; read-only, it has the command.
func TestUIFetch(t *testing.T) {
	w := newOps(t, nil)
	w.Apply(`
apiVersion: skyhook.nvidia.com/v1alpha1
kind: Skyhook
metadata: {name: demo}
spec:
  nodeSelectors: {matchLabels: {pool: gpu}}
  packages: {tuning: {version: 1.0.0, image: registry.example/packages/tuning}}
`)
	readOnly := startUI(t, "--kubeconfig", w.file, "--operator-namespace", w.Namespace)
	command := "kubectl skyhook package logs tuning --skyhook demo --node n1 --stage apply --fetch --operator-namespace " + w.Namespace
	w.Eventually("the page has the command", func() bool {
		_, page := readOnly.get("/nodes/n1", "text/html")
		return strings.Contains(string(page), ">"+command+"</pre>") && !strings.Contains(string(page), "data-change")
	})
	s := startUI(t, "--kubeconfig", w.file, "--operator-namespace", w.Namespace, "--allow-changes")
	if _, page := s.get("/nodes/n1", "text/html"); !strings.Contains(string(page), `data-command="`+command+`">Fetch its log…</button>`) {
		t.Errorf("the page does not offer %s:\n%s", command, page)
	}
	for change, want := range map[string]string{
		`{"verb":"logs","skyhook":"demo","package":"tuning","node":"n1","stage":"apply"}`: "no operator in namespace",
		`{"verb":"logs","skyhook":"demo","package":"tuning","node":"n.","stage":"apply"}`: "there is no node",
	} {
		if _, body := s.post("/changes", change); !strings.Contains(body, want) {
			t.Errorf("%s: %s", change, body)
		}
	}
}

// TestUIPackageLog: the page of a node has the log of a stage that failed.
func TestUIPackageLog(t *testing.T) {
	w := newOps(t, nil)
	w.kubelet.SetOutcome(func(*corev1.Pod) testenv.Outcome { return testenv.Fails })
	w.Apply(`
apiVersion: skyhook.nvidia.com/v1alpha1
kind: Skyhook
metadata: {name: demo}
spec:
  nodeSelectors: {matchLabels: {pool: gpu}}
  packages: {tuning: {version: 1.0.0, image: registry.example/packages/tuning}}
`)
	s := startUI(t, "--kubeconfig", w.file, "--operator-namespace", w.Namespace)
	var log string
	w.Eventually("the log of the failed stage is shown", func() bool {
		for _, work := range getJSON[view.Node](s, "/nodes/n1").Work {
			for _, stage := range work.Stages {
				log += stage.Log
			}
		}
		return log != ""
	})
	if !strings.Contains(log, "Container: tuning-apply [exited with 1]") || !strings.Contains(log, "tuning-apply says tailLines=50") {
		t.Errorf("the log is %q", log)
	}
}
