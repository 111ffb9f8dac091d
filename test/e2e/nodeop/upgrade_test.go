// SPDX-FileCopyrightText: The Skyhook authors
// SPDX-License-Identifier: Apache-2.0

package nodeop_test

import (
	"strings"
	"testing"

	"github.com/skyhook-k8s/skyhook/test/e2e/suite"
)

// oldRelease is the release file of a host with an old version of Kairos.
const oldRelease = "KAIROS_VERSION=v3.0.0\n"

const lookedAt = `jsonpath={.metadata.labels.kairos\.io/managed}|{.metadata.annotations.operator\.kairos\.io/looked-at}`

// installKairos makes hosts look like Kairos of a release for the time of a test, and waits until the operator has noticed.
func installKairos(t *testing.T, release string, nodes ...string) {
	t.Helper()
	change := func(n, script, managed string) {
		// The operator probes a node once for each boot. A probe that is still running would report the host of before.
		boot := cluster.BootID(t, n)
		cluster.EventuallyPrints(t, n+" was probed since it booted", func(out string) bool { return strings.Contains(out, "|"+boot+" ") }, "get", "node", n, "-o", lookedAt)
		cluster.Exec(t, n, script)
		cluster.Kubectl(t, "annotate", "node", n, "operator.kairos.io/looked-at=before kairos", "--overwrite")
		cluster.EventuallyPrints(t, n+" was probed again", func(out string) bool {
			return strings.HasPrefix(out, managed+"|") && !strings.Contains(out, "before")
		}, "get", "node", n, "-o", lookedAt)
	}
	t.Cleanup(func() {
		for _, n := range nodes {
			change(n, "rm -f /etc/kairos-release", "")
		}
	})
	for _, n := range nodes {
		change(n, "printf '"+strings.ReplaceAll(release, "\n", `\n`)+"' > /etc/kairos-release; rm -f /var/log/kairos-agent", "true")
	}
}

// upgrade applies the documented example with more fields, and returns its status when it has completed.
func upgrade(t *testing.T, name, more string) status {
	t.Helper()
	cluster.Apply(t, `
apiVersion: operator.kairos.io/v1alpha1
kind: NodeOpUpgrade
metadata:
  name: `+name+`
  namespace: default
spec:
  image: `+suite.KairosImage+`
  imagePullSecrets:
  - name: private-registry-secret
  nodeSelector:
    matchLabels:
      kairos.io/managed: "true"
  concurrency: 1
  stopOnFailure: true
`+more)
	got := waitPhase(t, "nodeopupgrade", name, "Completed")
	remove(t, "nodeopupgrade", name)
	return got
}

// TestUpgrade upgrades a host that looks like Kairos by the documented example, and then with every combination of flags. A host
// that is up to date is skipped: no cordon, no Job, no reboot. The version that comes up is the requested one, and is in the
// node's labels.
func TestUpgrade(t *testing.T) {
	nodes := cluster.InterruptibleNodes(t, 3)
	current, old := nodes[1], nodes[2]
	installKairos(t, suite.KairosRelease, current)
	installKairos(t, oldRelease, old)
	before := bootIDs(t, nodes...)
	got := upgrade(t, "kairos-upgrade", "")
	after := bootIDs(t, nodes...)
	upgraded, skipped := got.NodeStatuses[old], got.NodeStatuses[current]
	if got.Completed != 1 || upgraded.RebootStatus != "completed" || upgraded.TargetVersion != suite.KairosVersion || upgraded.CurrentVersion != suite.KairosVersion || after[old] == before[old] {
		t.Errorf("it ended with %+v", got)
	}
	if got.Skipped != 1 || skipped.JobName != "" || skipped.Message != "Skipped by preflight: node is already at "+suite.KairosVersion || after[current] != before[current] {
		t.Errorf("it ended with %+v", got)
	}
	cluster.EventuallyPrints(t, "the labels of the upgraded node show its version", func(out string) bool { return out == "v3.4.2 v1.30.11-k3s1" },
		"get", "node", old, "-o", `jsonpath={.metadata.annotations.kairos\.io/version} {.metadata.labels.kairos\.io/software-version}`)

	cluster.Kubectl(t, "label", "node", current, "kairos.io/managed=false", "--overwrite") // opts out
	if got = upgrade(t, "again", ""); got.Skipped != 1 || got.Total != 1 {
		t.Errorf("it ended with %+v", got)
	}
	got = upgrade(t, "recovery", "  upgradeActive: false\n  upgradeRecovery: true\n")
	if now := cluster.BootID(t, old); got.Completed != 1 || now != after[old] {
		t.Errorf("it ended with %+v, boot %s", got, now)
	}
	upgrade(t, "both", "  upgradeRecovery: true\n")
	const active, excludes = "upgrade --source dir:/", " --exclude-path /etc/hostname --exclude-path /etc/hosts"
	recovery := "upgrade --recovery --source dir:/" + excludes
	want := strings.Join([]string{active + excludes, recovery, recovery, active + excludes}, "\n")
	if calls := cluster.Exec(t, old, "cat /var/log/kairos-agent"); calls != want {
		t.Errorf("the agent was called\n%s\nwant\n%s", calls, want)
	}
	const nothing = `{"apiVersion":"operator.kairos.io/v1alpha1","kind":"NodeOpUpgrade","metadata":{"name":"none"},"spec":{"image":"x","upgradeActive":false}}`
	if _, err := cluster.TryKubectl(nothing, "apply", "-f", "-"); err == nil || !strings.Contains(err.Error(), "nothing to upgrade") {
		t.Errorf("an upgrade of nothing is accepted: %v", err)
	}
	cluster.EventuallyPrints(t, "the probes are gone", func(pods string) bool { return pods == "" },
		"-n", suite.OperatorNamespace, "get", "pods", "-l", "app=kairos-node-labeler", "-o", "name")
	cluster.Kubectl(t, "label", "node", current, "kairos.io/managed=true", "--overwrite")
	requireReleased(t, nodes...)
}
