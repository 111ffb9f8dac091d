// SPDX-FileCopyrightText: The Skyhook authors
// SPDX-License-Identifier: Apache-2.0

package skyhook_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/skyhook-k8s/skyhook/test/e2e/suite"
)

// TestRerunNow: a running stage goes on with its definition after an edit, Ready names the command that replaces it, and that
// command ends the stage and begins it again with the new definition.
func TestRerunNow(t *testing.T) {
	const name = "rerun-now"
	node, plugin := cluster.ShareNodes(t, 1)[0], suite.BuildPlugin(t)
	selectNodes(t, name, node)
	cluster.Exec(t, node, "rm -f /var/log/rerun-now")
	t.Cleanup(func() { cluster.Exec(t, node, "rm -f /var/log/rerun-now") })
	manifest := func(text, then string) string {
		return suite.Manifest(name, "", fmt.Sprintf(`
    slow:
      version: 1.0.0
      image: %s
      configMap: {apply.sh: %q}`, shellscript, "echo "+text+" >> /var/log/rerun-now; "+then))
	}
	cluster.Apply(t, manifest("old", "sleep 600"))
	suite.Eventually(t, "the stage runs", func() error {
		_, err := cluster.TryExec(node, "grep -q old /var/log/rerun-now")
		return err
	})
	cluster.Apply(t, manifest("new", "true"))
	cluster.EventuallySkyhook(t, name, "Ready says that an edit waits", func(s *suite.Skyhook) bool {
		_, _, message := s.Condition("Ready")
		return strings.Contains(message, "an edited definition of package slow waits")
	})
	out, err := cluster.Command(plugin, "why", node).CombinedOutput()
	if want := "kubectl skyhook package reapply slow --skyhook rerun-now --node " + node + " --now"; err != nil || !strings.Contains(string(out), want) {
		t.Errorf("why: %v: it does not name %q:\n%s", err, want, out)
	}

	begin := time.Now()
	out, err = cluster.Command(plugin, "package", "rerun", "slow", "--skyhook", name, "--node", node, "--now", "--confirm").CombinedOutput()
	if err != nil {
		t.Fatalf("package rerun --now: %v: %s", err, out)
	}
	cluster.WaitComplete(t, name)
	if took := time.Since(begin); took > 3*time.Minute {
		t.Errorf("the stage ended after %s: it was not replaced", took)
	}
	if lines := strings.Fields(cluster.Exec(t, node, "cat /var/log/rerun-now")); strings.Join(lines, " ") != "old new" {
		t.Errorf("the stage wrote %v", lines)
	}
	cluster.RemoveSkyhook(t, name)
}
