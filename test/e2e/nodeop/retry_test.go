// SPDX-FileCopyrightText: The Skyhook authors
// SPDX-License-Identifier: Apache-2.0

package nodeop_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/skyhook-k8s/skyhook/test/e2e/suite"
)

// retried is a NodeOp whose command notes its attempts on the host. The first fails at once; each later one works for 20 s first.
const retried = `
apiVersion: operator.kairos.io/v1alpha1
kind: NodeOp
metadata: {name: NAME}
spec:
  nodeSelector: {matchLabels: {e2e: NAME}}
  image: busybox:latest
  hostMountPath: /host
  command:
  - sh
  - -c
  - |
    echo begin >> /host/var/lib/e2e-attempts
    if [ "$(cat /host/var/lib/e2e-attempts)" != begin ]; then sleep 20; fi
    echo end >> /host/var/lib/e2e-attempts
    echo no such disk
    exit 5
  cordon: true
  backoffLimit: 6
`

// createRetried creates the NodeOp on a node without notes of earlier attempts and waits until its status contains a text.
func createRetried(t *testing.T, name, node, text string) {
	t.Helper()
	cluster.Label(t, "e2e="+name, node)
	cluster.Exec(t, node, "rm -f /var/lib/e2e-attempts")
	t.Cleanup(func() { cluster.Exec(t, node, "rm -f /var/lib/e2e-attempts") })
	cluster.Apply(t, strings.ReplaceAll(retried, "NAME", name))
	cluster.EventuallyPrints(t, "the status says: "+text, func(out string) bool { return strings.Contains(out, text) },
		"get", "nodeop", name, "-o", "jsonpath={.status}")
}

func requireAttempts(t *testing.T, node, want string) {
	t.Helper()
	if notes := strings.Join(strings.Fields(cluster.Exec(t, node, "cat /var/lib/e2e-attempts")), " "); notes != want {
		t.Errorf("the attempts on %s were %q, want %q", node, notes, want)
	}
}

// TestRetries: status and why say which attempt it is, how the one before ended and when the next begins. A deletion between two
// attempts gives the node back at once.
func TestRetries(t *testing.T) {
	const name = "retried"
	node, plugin := cluster.ShareInterruptibleNodes(t, 1)[0], suite.BuildPlugin(t)
	createRetried(t, name, node, "attempt 3 of 7 of the command begins at about") // 20 s after the second
	for _, args := range [][]string{{"status", "nodeop/" + name}, {"why", "nodeop/" + name}, {"why", node}} {
		suite.Eventually(t, strings.Join(args, " ")+" names the attempt", func() error {
			out, err := cluster.Command(plugin, append(args, "-n", suite.Namespace)...).CombinedOutput()
			if text := strings.Join(strings.Fields(string(out)), " "); err == nil && !strings.Contains(text, "attempt 3 of 7 of the command begins at about") {
				err = fmt.Errorf("it prints %s", text)
			}
			return err
		})
	}
	begin := time.Now()
	remove(t, "nodeop", name)
	if took := time.Since(begin); took > 15*time.Second {
		t.Errorf("the deletion took %s", took)
	}
	requireReleased(t, node)
	time.Sleep(20 * time.Second) // the third attempt would begin
	requireAttempts(t, node, "begin end begin end")
}

// TestDeletionDuringAttempt: a deletion lets the running attempt end and begins no further one.
func TestDeletionDuringAttempt(t *testing.T) {
	const name = "deleted"
	node := cluster.ShareInterruptibleNodes(t, 1)[0]
	createRetried(t, name, node, "attempt 2 of 7 of the command runs; attempt 1 ended with exit code 5: no such disk")
	cluster.EventuallyPrints(t, "the second attempt runs", func(out string) bool { return strings.Contains(out, "Running") },
		"get", "pods", "-l", "batch.kubernetes.io/job-name,kairos.io/nodeop="+name, "-o", "jsonpath={.items[*].status.phase}")
	remove(t, "nodeop", name)
	requireReleased(t, node)
	requireAttempts(t, node, "begin end begin end")
}
