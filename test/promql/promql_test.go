// SPDX-FileCopyrightText: The Skyhook authors
// SPDX-License-Identifier: Apache-2.0

// Package promql checks that Prometheus understands the alerts and the dashboard of the chart. It is a module of its own,
// because the parser brings more with it than the product should carry.
package promql

import (
	"encoding/json"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/prometheus/prometheus/model/labels"
	"github.com/prometheus/prometheus/promql/parser"
	"sigs.k8s.io/yaml"
)

func TestRules(t *testing.T) {
	text, err := os.ReadFile("../../chart/files/rules/skyhook.yaml")
	if err != nil {
		t.Fatal(err)
	}
	var file struct {
		Groups []struct {
			Rules []struct {
				Alert, Expr, For    string
				Labels, Annotations map[string]string
			}
		}
	}
	if err := yaml.Unmarshal(text, &file); err != nil {
		t.Fatal(err)
	}
	alerts := map[string]bool{}
	for _, g := range file.Groups {
		for _, r := range g.Rules {
			parse(t, r.Alert, r.Expr)
			if r.For == "" || r.Labels["severity"] == "" || r.Annotations["summary"] == "" || r.Annotations["description"] == "" {
				t.Errorf("%s lacks for, severity, summary or description", r.Alert)
			}
			checkRunbook(t, r.Alert, r.Annotations["runbook_url"])
			alerts[r.Alert] = true
		}
	}
	for _, want := range []string{"SkyhookRolloutStopped", "SkyhookNodeStuck", "SkyhookDrainBlocked", "SkyhookRebootOverdue", "SkyhookDrifted", "SkyhookOperatorNotReconciling"} {
		if !alerts[want] {
			t.Errorf("there is no alert %s", want)
		}
	}
}

// checkRunbook reports a runbook_url that leads to no heading of the documentation.
func checkRunbook(t *testing.T, alert, url string) {
	t.Helper()
	page, anchor, _ := strings.Cut(strings.TrimPrefix(url, "https://github.com/skyhook-k8s/skyhook/blob/main/"), "#")
	text, err := os.ReadFile("../../" + page)
	if err != nil {
		t.Errorf("%s: runbook_url %q: %v", alert, url, err)
		return
	}
	for line := range strings.Lines(string(text)) {
		title, isHeading := strings.CutPrefix(strings.TrimSpace(line), "## ")
		if isHeading && strings.ReplaceAll(strings.ToLower(strings.ReplaceAll(title, ",", "")), " ", "-") == anchor {
			return
		}
	}
	t.Errorf("%s: runbook_url %q: %s has no such heading", alert, url, page)
}

func TestDashboard(t *testing.T) {
	text, err := os.ReadFile("../../chart/files/dashboards/skyhook.json")
	if err != nil {
		t.Fatal(err)
	}
	var board struct {
		Templating struct {
			List []struct{ Name, AllValue string }
		}
		Panels []struct {
			Title   string
			Targets []struct{ Expr string }
		}
	}
	if err := json.Unmarshal(text, &board); err != nil {
		t.Fatal(err)
	}
	if !slices.ContainsFunc(board.Templating.List, func(v struct{ Name, AllValue string }) bool { return v.Name == "cluster" && v.AllValue == ".*" }) {
		t.Error("no variable cluster also selects metrics without such a label")
	}
	for _, p := range board.Panels {
		if len(p.Targets) == 0 {
			t.Errorf("panel %q shows nothing", p.Title)
		}
		for _, target := range p.Targets {
			expr := parse(t, p.Title, strings.NewReplacer("$skyhook", "demo", "$nodeop", "up").Replace(target.Expr))
			for _, matchers := range parser.ExtractSelectors(expr) {
				if !slices.ContainsFunc(matchers, func(m *labels.Matcher) bool { return m.String() == `cluster=~"$cluster"` }) {
					t.Errorf("panel %q mixes clusters: %s", p.Title, target.Expr)
				}
			}
		}
	}
}

// TestNodeOpsAreMonitored shows that NodeOps have the alerts and the rows of the dashboard that Skyhooks have: for each of them one with the
// metric of NodeOps that corresponds to it. Stages and packages, drift and batches of packages are a matter of Skyhooks.
func TestNodeOpsAreMonitored(t *testing.T) {
	files := ""
	for _, name := range []string{"../../chart/files/rules/skyhook.yaml", "../../chart/files/dashboards/skyhook.json"} {
		text, err := os.ReadFile(name)
		if err != nil {
			t.Fatal(err)
		}
		files += string(text)
	}
	ofSkyhooks := []string{
		"waiting_nodes", "oldest_admission_seconds", "oldest_drain_seconds", "drain_pods_left",
		"rollout_should_stop", "rollout_progress_percent", "rollout_consecutive_failures",
		"stage_duration_seconds_bucket", "stage_failures_total", "node_duration_seconds_bucket",
	}
	for _, name := range ofSkyhooks {
		if !strings.Contains(files, "skyhook_"+name) || !strings.Contains(files, "skyhook_nodeop_"+name) {
			t.Errorf("%s is shown of one kind only", name)
		}
	}
	for _, name := range []string{"skyhook_node_status_count", "skyhook_nodeop_nodes", "skyhook_node_target_count", "skyhook_nodeop_target_nodes"} {
		if !strings.Contains(files, name) {
			t.Errorf("%s is not shown", name)
		}
	}
	for _, alert := range []string{"Stopped", "Stuck", "DrainBlocked", "RebootOverdue", "Failed"} {
		if !strings.Contains(files, "alert: SkyhookNodeOp"+alert) {
			t.Errorf("there is no alert SkyhookNodeOp%s", alert)
		}
	}
}

func parse(t *testing.T, where, expr string) parser.Expr {
	t.Helper()
	parsed, err := parser.ParseExpr(expr)
	if err != nil {
		t.Fatalf("%s: %s: %v", where, expr, err)
	}
	return parsed
}
