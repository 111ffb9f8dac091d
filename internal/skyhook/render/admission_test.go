// SPDX-FileCopyrightText: The Skyhook authors
// SPDX-License-Identifier: Apache-2.0

package render

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/skyhook-k8s/skyhook/internal/pack"
)

// TestChartAllowsPods: the policies of the chart let the operator's pods copy packages by this script, and run the agent in each of its modes.
func TestChartAllowsPods(t *testing.T) {
	chart := filepath.Join("..", "..", "..", "chart")
	script, err := os.ReadFile(filepath.Join(chart, "files", "scripts", "copy.txt"))
	if err != nil {
		t.Fatal(err)
	}
	if string(script) != copyScript {
		t.Errorf("chart/files/scripts/copy.txt is not copyScript, so the API server would refuse the operator's pods: copy it there. "+
			"If a release has the script that is there now, keep that as another file: its operator works until the new one leads. copyScript is\n%s", copyScript)
	}
	policy, err := os.ReadFile(filepath.Join(chart, "templates", "admission.yaml"))
	if err != nil {
		t.Fatal(err)
	}
	_, line, _ := strings.Cut(string(policy), "$modes := splitList \" \" ")
	line, _, _ = strings.Cut(line, " }}")
	var words string
	if err := json.Unmarshal([]byte(line), &words); err != nil {
		t.Fatalf("chart/templates/admission.yaml does not say which modes the agent has: %v", err)
	}
	known := strings.Fields(words)
	var want []string
	for _, m := range append(pack.Modes(), pack.ModeDrift) {
		want = append(want, string(m))
	}
	if strings.Join(known, " ") != strings.Join(want, " ") {
		t.Errorf("chart/templates/admission.yaml allows the modes %v, and the agent has %v", known, want)
	}
}
