// SPDX-FileCopyrightText: The Skyhook authors
// SPDX-License-Identifier: Apache-2.0

// Package skyhook tests Skyhooks on real systemd nodes: services really restart, nodes really reboot.
package skyhook_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/skyhook-k8s/skyhook/test/e2e/suite"
)

const shellscript = suite.PackageRepository + "shellscript"

var cluster *suite.Cluster

func TestMain(m *testing.M) { suite.Main(m, &cluster, suite.WithOperator) }

// interruptingPackage is a package that records its stages in /var/log/driver.
func interruptingPackage(interrupt string) string {
	return fmt.Sprintf(`
    driver:
      version: 1.0.0
      image: %s
      interrupt: %s
      configMap:
        apply.sh: echo apply >> /var/log/driver
        config.sh: echo config >> /var/log/driver
        post_interrupt.sh: echo post-interrupt >> /var/log/driver`, shellscript, interrupt)
}

// requireStages checks the stages that an interrupting package recorded on a node.
func requireStages(t *testing.T, node, want string) {
	t.Helper()
	if got := strings.ReplaceAll(cluster.Exec(t, node, "cat /var/log/driver 2>/dev/null || true"), "\n", " "); got != want {
		t.Errorf("%s ran the stages %q, want %q", node, got, want)
	}
}

// selectNodes labels nodes for a Skyhook and removes what packages recorded there.
func selectNodes(t *testing.T, name string, nodes ...string) {
	t.Helper()
	cluster.Label(t, "e2e="+name, nodes...)
	for _, n := range nodes {
		cluster.Exec(t, n, "rm -f /var/log/driver /var/log/stages; sync")
	}
}
