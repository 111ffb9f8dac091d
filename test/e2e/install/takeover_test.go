// SPDX-FileCopyrightText: The Skyhook authors
// SPDX-License-Identifier: Apache-2.0

package install_test

import (
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/skyhook-k8s/skyhook/test/e2e/suite"
)

// formerImage replaces the images of the predecessor: its objects and controllers are real, its operator does nothing.
const formerImage = "registry.k8s.io/pause:3.10"

// writeFormerChart writes the chart of the predecessor's v0.15 with an operator that does nothing. Its CRDs are among its
// templates.
func writeFormerChart(t *testing.T) string {
	t.Helper()
	dir := filepath.Join(t.TempDir(), "chart")
	release, err := os.ReadFile(filepath.Join(suite.Root(), "test", "chart", "live", "testdata", "predecessor", "release.yaml"))
	if err != nil {
		t.Fatal(err)
	}
	text := regexp.MustCompile(`(?m)^\s*(liveness|readiness)Probe:.*\n`).ReplaceAllString(string(release), "")
	text = regexp.MustCompile(`image: (example\.org|quay\.io)/.*`).ReplaceAllString(text, "image: "+formerImage)
	text = strings.ReplaceAll(text, "command: [/manager]", "command: [/pause]")
	text = strings.ReplaceAll(text, `args: ["--secure-listen-address=0.0.0.0:8443", "--upstream=http://127.0.0.1:8080/", --logtostderr=true, --v=0]`, "command: [/pause]")
	files := map[string]string{
		"Chart.yaml":             "{apiVersion: v2, name: skyhook-operator, version: v0.15.1, appVersion: v0.15.0, type: application}",
		"values.yaml":            "{since: 15, fullnameOverride: '', webhook: {enable: true}}",
		"templates/release.yaml": text,
	}
	for _, name := range []string{"skyhook.nvidia.com_skyhooks.yaml", "skyhook.nvidia.com_deploymentpolicies.yaml"} {
		crd, err := os.ReadFile(filepath.Join(suite.Root(), "chart", "files", "crds", name))
		if err != nil {
			t.Fatal(err)
		}
		files["templates/"+name] = strings.ReplaceAll(string(crd), "{{", "{ {")
	}
	for name, content := range files {
		file := filepath.Join(dir, name)
		if err := os.MkdirAll(filepath.Dir(file), 0o750); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(file, []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	return dir
}

// formerLease is the lease that the predecessor's operator does not release when it ends.
const formerLease = `
apiVersion: coordination.k8s.io/v1
kind: Lease
metadata: {name: 3c22c1ae.nvidia.com, namespace: skyhook}
spec: {holderIdentity: skyhook-operator-controller-manager-6d5f8-x2x7z_0b8c, leaseDurationSeconds: 15}
`

// TestTakeover upgrades a release of the predecessor to ours, with the controllers of a real cluster: one Deployment replaces the
// other, nothing is run again where it was finished, and the release goes back and comes again.
func TestTakeover(t *testing.T) {
	if testing.Short() {
		t.Skip("short: test/chart/live takes releases over on a real API server")
	}
	nodes := cluster.Nodes(t, 2)
	cluster.Label(t, "e2e=install", nodes...)
	for _, n := range nodes {
		cluster.Exec(t, n, "rm -f /var/log/stages")
	}
	former := writeFormerChart(t)
	helm := func(args ...string) string {
		t.Helper()
		return cluster.Helm(t, append(args, "--namespace", suite.OperatorNamespace, "--wait", "--timeout", "10m")...)
	}
	helm("install", release, former, "--create-namespace", "--set", "since=15,webhook.enable=false")
	cluster.Apply(t, recordingSkyhook)
	cluster.Apply(t, formerLease)
	cluster.Kubectl(t, "annotate", "node", nodes[0], "skyhook.nvidia.com/status_diary=complete", "skyhook.nvidia.com/version_diary=v0.15.0",
		`skyhook.nvidia.com/nodeState_diary={"diary|1.1.0":{"name":"diary","version":"1.1.0","image":"ghcr.io/nvidia/skyhook-packages/shellscript","stage":"config","state":"complete"}}`)
	helm("upgrade", release, former, "--set", "since=15,webhook.enable=true")

	upgrade := append([]string{"upgrade", release, "chart", "--reset-values"}, cluster.ImageFlags()...)
	requireOnly := func(isFormer bool) {
		t.Helper()
		suite.Eventually(t, fmt.Sprintf("all pods are of the predecessor: %v", isFormer), func() error {
			images := cluster.Kubectl(t, "-n", suite.OperatorNamespace, "get", "pods", "-l", "control-plane=controller-manager", "-o", `jsonpath={range .items[*]}{.spec.containers[0].image}{"\n"}{end}`)
			for _, image := range strings.Fields(images) {
				if strings.Contains(image, "pause") != isFormer {
					return fmt.Errorf("the pods have the images %s", strings.Join(strings.Fields(images), " "))
				}
			}
			if len(strings.Fields(images)) != 2 {
				return fmt.Errorf("the pods have the images %q", images)
			}
			return nil
		})
		webhooks := cluster.Kubectl(t, "get", "validatingwebhookconfigurations,mutatingwebhookconfigurations", "-o", "name")
		if hasWebhooks := strings.Contains(webhooks, "skyhook-operator"); hasWebhooks != isFormer {
			t.Errorf("the webhook configurations are %q", webhooks)
		}
	}
	requireOnly(true)
	requireStages := func() {
		t.Helper()
		cluster.Kubectl(t, "wait", "--for=condition=Ready", "skyhook/diary", "--timeout="+suite.Timeout.String())
		for node, want := range map[string]string{nodes[0]: "", nodes[1]: "apply, config"} {
			if got := strings.ReplaceAll(cluster.Exec(t, node, "cat /var/log/stages 2>/dev/null || true"), "\n", ", "); got != want {
				t.Errorf("%s recorded the stages %q, want %q", node, got, want)
			}
		}
	}
	helm(upgrade...)
	requireOnly(false)
	requireStages()

	helm("rollback", release, "2")
	requireOnly(true)
	helm(upgrade...)
	requireOnly(false)
	requireStages()

	cluster.Kubectl(t, "delete", "skyhook", "diary", "--timeout="+suite.Timeout.String())
	cluster.Helm(t, "uninstall", release, "--namespace", suite.OperatorNamespace, "--timeout", "10m")
	cluster.Kubectl(t, "delete", "crd", "-l", crds, "--timeout=2m", "--ignore-not-found")
	cluster.Kubectl(t, "delete", "namespace", suite.OperatorNamespace, "--timeout="+suite.Timeout.String())
}
