// SPDX-FileCopyrightText: The Skyhook authors
// SPDX-License-Identifier: Apache-2.0

package skyhook_test

import (
	"context"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"

	"github.com/skyhook-k8s/skyhook/test/e2e/suite"
)

// TestPrepull: an image that is not in the registry is known before the node is cordoned, with what the kubelet says. When it is there,
// the node is admitted, and the pod of the stage finds it on the node.
func TestPrepull(t *testing.T) {
	const name = "prepulling"
	local, n := cluster.LocalCluster(t, "pushes an image late"), cluster.InterruptibleNodes(t, 1)[0]
	cluster.SetOperator(t, "prepull=true")
	selectNodes(t, name, n)
	image := suite.PackageRepository + name
	cluster.Apply(t, suite.Manifest(name, "\n  interruptionBudget: {count: 1}", `
    late:
      version: 1.0.0
      image: `+image+`
      interrupt: {type: service, services: [cron]}
      configMap: {apply.sh: 'true'}`))
	cluster.EventuallyPrints(t, "an event names the image", func(out string) bool {
		return strings.Contains(out, n+": image ") && strings.Contains(out, image+":1.0.0 cannot be pulled: ") && strings.Contains(out, "not found")
	}, "get", "events", "-n", "default", "--field-selector", "involvedObject.kind=Skyhook,involvedObject.name="+name+",reason=ImagePull", "-o", "jsonpath={.items[*].message}")
	node := corev1.Node{}
	if err := cluster.Get(&node, "node", n); err != nil {
		t.Fatal(err)
	}
	if record := node.Annotations["skyhook.nvidia.com/record_"+name]; node.Spec.Unschedulable || record != "" {
		t.Errorf("before its image is there the node is cordoned (%v), or admitted: %s", node.Spec.Unschedulable, record)
	}

	if _, err := local.Push(context.Background(), image+":1.0.0", addVariant(t, cluster.PackageImage(t, "shellscript"), name)); err != nil {
		t.Fatal(err)
	}
	cluster.WaitComplete(t, name)
	requirePulls(t, name, "Pulled", "late-init", "already present on machine")
	requirePulls(t, name, "Pulled", "late-apply", "already present on machine")
	if out := cluster.Kubectl(t, "get", "pods", "-n", suite.OperatorNamespace, "-l", "skyhook.nvidia.com/prepull,skyhook.nvidia.com/name="+name, "-o", "name"); out != "" {
		t.Errorf("%s is left", out)
	}
	cluster.RemoveSkyhook(t, name)
}

// requirePulls checks that every event about a container of a Skyhook's pods with a reason has a text, and that there is one.
func requirePulls(t *testing.T, name, reason, container, text string) {
	t.Helper()
	out := cluster.Kubectl(t, "get", "events", "-n", suite.OperatorNamespace, "--field-selector", "involvedObject.kind=Pod,reason="+reason, "-o",
		`jsonpath={range .items[*]}{.involvedObject.name} {.involvedObject.fieldPath} {.message}{"\n"}{end}`)
	found := 0
	for line := range strings.Lines(out) {
		if strings.HasPrefix(line, name+"-") && strings.Contains(line, "{"+container+"}") {
			if found++; !strings.Contains(line, text) {
				t.Errorf("the kubelet says of container %s: %s", container, line)
			}
		}
	}
	if found == 0 {
		t.Errorf("no event %s is about container %s of Skyhook %s:\n%s", reason, container, name, out)
	}
}
