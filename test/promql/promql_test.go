// SPDX-FileCopyrightText: The Skyhook authors
// SPDX-License-Identifier: Apache-2.0

// Package promql checks that Prometheus understands the alerts and the dashboard of the chart. It is a module of its own,
// because the parser brings more with it than the product should carry.
package promql

import (
	"encoding/json"
	"os"
	"strings"
	"testing"

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
			alerts[r.Alert] = true
		}
	}
	for _, want := range []string{"SkyhookRolloutStopped", "SkyhookNodeStuck", "SkyhookDrainBlocked", "SkyhookRebootOverdue", "SkyhookDrifted", "SkyhookOperatorNotReconciling"} {
		if !alerts[want] {
			t.Errorf("there is no alert %s", want)
		}
	}
}

func TestDashboard(t *testing.T) {
	text, err := os.ReadFile("../../chart/files/dashboards/skyhook.json")
	if err != nil {
		t.Fatal(err)
	}
	var board struct {
		Panels []struct {
			Title   string
			Targets []struct{ Expr string }
		}
	}
	if err := json.Unmarshal(text, &board); err != nil {
		t.Fatal(err)
	}
	for _, p := range board.Panels {
		if len(p.Targets) == 0 {
			t.Errorf("panel %q shows nothing", p.Title)
		}
		for _, target := range p.Targets {
			parse(t, p.Title, strings.ReplaceAll(target.Expr, "$skyhook", "demo"))
		}
	}
}

func parse(t *testing.T, where, expr string) {
	t.Helper()
	if _, err := parser.ParseExpr(expr); err != nil {
		t.Errorf("%s: %s: %v", where, expr, err)
	}
}
