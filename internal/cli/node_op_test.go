// SPDX-FileCopyrightText: The Skyhook authors
// SPDX-License-Identifier: Apache-2.0

package cli_test

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	nodeopv1 "github.com/skyhook-k8s/skyhook/api/nodeop/v1alpha1"
)

// newOps starts a cluster of three nodes with an operator, Jobs and logs. exits has the exit codes of the command by node.
func newOps(t *testing.T, exits map[string]int32) *testCluster {
	t.Helper()
	s := newTestCluster(t, 3)
	port := newKubelet(t)
	for i := range 3 {
		n := s.GetNode(fmt.Sprintf("n%d", i+1))
		s.Patch(n, fmt.Sprintf(`{"metadata":{"labels":{"kubernetes.io/hostname":%q}}}`, n.Name))
		raw := fmt.Sprintf(`{"status":{"addresses":[{"type":"InternalIP","address":"127.0.0.1"}],"daemonEndpoints":{"kubeletEndpoint":{"Port":%s}}}}`, port)
		s.Must(s.Client.Status().Patch(context.Background(), n, client.RawPatch("application/merge-patch+json", []byte(raw))))
	}
	s.StartJobController(func(node string) int32 { return exits[node] })
	s.startOperator()
	return s
}

// listNodeOps returns all NodeOps.
func (s *testCluster) listNodeOps() []nodeopv1.NodeOp {
	s.Helper()
	l := &nodeopv1.NodeOpList{}
	s.Must(s.Client.List(context.Background(), l, client.InNamespace(s.Namespace)))
	return l.Items
}

// TestNodeRun checks that a command runs on the named nodes only, that its output is printed, and that the NodeOp is deleted.
func TestNodeRun(t *testing.T) {
	s := newOps(t, nil)
	out, said := s.runBoth(0, "node", "run", "n1", "n[3]", "--yes", "--", "uname", "-r")
	if want := "==> n1 <==\nnodeop says\n==> n3 <==\nnodeop says\n2 of 2 nodes done\n"; out != want {
		t.Errorf("it prints\n%s\nwant\n%s", out, want)
	}
	for _, want := range []string{"nodeop/run-", " created in namespace ", "n1  completed", "n3  completed"} {
		if !strings.Contains(said, want) {
			t.Errorf("it does not say %q:\n%s", want, said)
		}
	}
	if strings.Contains(said, "\nn2 ") || strings.Index(said, "n3  ") < strings.Index(said, "n1  completed") {
		t.Errorf("they did not run one after the other:\n%s", said)
	}
	s.Eventually("the NodeOp is gone", func() bool { return len(s.listNodeOps()) == 0 })
}

// TestNodeRunFails checks that the exit code is the highest of all nodes, and that a failed NodeOp stays.
func TestNodeRunFails(t *testing.T) {
	s := newOps(t, map[string]int32{"n1": 3, "n2": 41})
	out, said := s.runBoth(41, "node", "run", "n1", "n2", "n3", "--yes", "--concurrency", "0", "--stop-on-failure=false", "-o", "json", "--", "false")
	var ended []struct {
		Node, Phase string
		ExitCode    *int32
	}
	s.Must(json.Unmarshal([]byte(out), &ended))
	if len(ended) != 3 || ended[0].ExitCode == nil || *ended[0].ExitCode != 3 || *ended[1].ExitCode != 41 || ended[2].Phase != "Completed" {
		t.Errorf("it prints\n%s", out)
	}
	all := s.listNodeOps()
	if len(all) != 1 || !strings.Contains(said, "failed and stays: kubectl skyhook why nodeop/"+s.Namespace+"/"+all[0].Name) {
		t.Fatalf("there are %d NodeOps, and it says\n%s", len(all), said)
	}
	if out := s.run(0, "status", "nodeop/"+all[0].Name); !strings.Contains(out, ": failed\n") || !strings.Contains(out, "1 of 3 complete (33%), 2 failing\n") || !strings.Contains(out, "n2  command (attempt 1, final)") {
		t.Errorf("status says\n%s", out)
	}
	want := "==> n1 [failed] <==\nnodeop says\n==> n2 [failed] <==\nnodeop says\n==> n3 [completed] <==\nnodeop says\n"
	if out := s.run(0, "node-op", "logs", s.Namespace+"/"+all[0].Name); out != want {
		t.Errorf("node-op logs prints\n%s\nwant\n%s", out, want)
	}
	if out := s.run(0, "node-op", "logs", "nodeop/"+all[0].Name, "-n", s.Namespace, "--node", "n3", "-o", "json"); !strings.Contains(out, `"output": "nodeop says"`) || strings.Contains(out, `"n1"`) {
		t.Errorf("node-op logs of n3 prints\n%s", out)
	}
	if _, said := s.runBoth(1, "node-op", "logs", all[0].Name, "--node", "n9"); !strings.Contains(said, `did nothing on it: no node matches "n9"`) {
		t.Errorf("node-op logs of no node says\n%s", said)
	}
	if _, said := s.runBoth(1, "node-op", "logs", "nosuch"); !strings.Contains(said, `there is no NodeOp "nosuch"`) {
		t.Errorf("node-op logs of no NodeOp says\n%s", said)
	}
	s.Must(s.Client.DeleteAllOf(context.Background(), &corev1.Pod{}, client.InNamespace(s.Namespace), client.GracePeriodSeconds(0)))
	if out := s.run(0, "node-op", "logs", all[0].Name); strings.Count(out, "no output is left") < 1 {
		t.Errorf("node-op logs without pods prints\n%s", out)
	}
	if out := s.run(0, "why", "nodeop/"+all[0].Name); !strings.Contains(out, " on n1: failed\n  StageFailed: Job failed, exit code 3\n") || !strings.Contains(out, "exit code 41") {
		t.Errorf("why says\n%s", out)
	}
}

// TestNodeDrain checks that a drained node has no pods and stays cordoned without our hold, unless --give-back uncordons it.
func TestNodeDrain(t *testing.T) {
	s := newOps(t, nil)
	pod := func(name, node string) {
		s.Apply(fmt.Sprintf("apiVersion: v1\nkind: Pod\nmetadata: {name: %s, namespace: default}\nspec:\n  nodeName: %s\n  containers: [{name: main, image: registry.example/app:1}]\n", name, node))
	}
	pod("one", "n1")
	pod("two", "n2")
	out := s.run(0, "node", "drain", "n1", "--yes")
	if out != "1 of 1 node done\n" {
		t.Errorf("it prints\n%s", out)
	}
	if left := s.listOtherPods(); len(left) != 1 || left[0].Name != "two" || !s.GetNode("n1").Spec.Unschedulable || s.GetNode("n2").Spec.Unschedulable {
		t.Errorf("%d pods are left, n1 is cordoned: %v, n2: %v", len(left), s.GetNode("n1").Spec.Unschedulable, s.GetNode("n2").Spec.Unschedulable)
	}
	s.run(0, "node", "drain", "n2", "--yes", "--give-back")
	s.Eventually("n2 is uncordoned", func() bool { return !s.GetNode("n2").Spec.Unschedulable })
	if left := s.listOtherPods(); len(left) != 0 {
		t.Errorf("%d pods are left", len(left))
	}
}

// TestNodeReboot checks that a reboot ends with another boot ID, and that no hold stays.
func TestNodeReboot(t *testing.T) {
	s := newOps(t, nil)
	before := s.GetNode("n2").Status.NodeInfo.BootID
	out, said := s.runBoth(0, "node", "reboot", "n2", "--yes", "--", "true")
	if out != "1 of 1 node done\n" || !strings.Contains(said, "n2  completed: Job and reboot completed successfully") {
		t.Errorf("it prints\n%s\nand says\n%s", out, said)
	}
	n := s.GetNode("n2")
	if n.Status.NodeInfo.BootID == before || n.Spec.Unschedulable {
		t.Errorf("the boot id is %s and was %s; cordoned: %v", n.Status.NodeInfo.BootID, before, n.Spec.Unschedulable)
	}
	if s.GetNode("n1").Status.NodeInfo.BootID != before {
		t.Error("n1 was rebooted too")
	}
}

// TestNodeOpsConfirm checks --dry-run, the question, and wrong arguments.
func TestNodeOpsConfirm(t *testing.T) {
	s := newTestCluster(t, 2)
	for _, c := range []struct{ said, args string }{
		{"Reboot 1 node: n1? [y/N]", "node reboot n1"},
		{"node run takes a command after --, such as -- chroot /host uname -r", "node run n1"},
		{"node drain takes the names of nodes before --", "node drain"},
		{`no node matches "n7"`, "node reboot n7 --yes"},
		{"node n1 has no label kubernetes.io/hostname", "node reboot n1 --yes"},
	} {
		if c.said[0] == 'R' {
			s.Patch(s.GetNode("n1"), `{"metadata":{"labels":{"kubernetes.io/hostname":"n1"}}}`)
		} else {
			s.Patch(s.GetNode("n1"), `{"metadata":{"labels":{"kubernetes.io/hostname":null}}}`)
		}
		if _, said := s.runBoth(1, strings.Fields(c.args)...); !strings.Contains(said, c.said) {
			t.Errorf("%s says\n%s", c.args, said)
		}
	}
	s.Patch(s.GetNode("n1"), `{"metadata":{"labels":{"kubernetes.io/hostname":"n1"}}}`)
	if out := s.run(0, "node", "drain", "n1", "--dry-run"); !strings.Contains(out, "nodeop/drain-… would be created for n1 (dry run)") {
		t.Errorf("a dry run prints\n%s", out)
	}
	if len(s.listNodeOps()) != 0 || s.GetNode("n1").Spec.Unschedulable {
		t.Error("something was done")
	}
	out := s.run(0, "node", "run", "n1", "--yes", "--wait=false", "-o", "name", "--", "true") // no operator runs
	if all := s.listNodeOps(); len(all) != 1 || out != "nodeop/"+all[0].Name+"\n" || !slices.Equal(all[0].Spec.Command, []string{"true"}) {
		t.Errorf("it prints\n%s", out)
	}
	if _, said := s.runBoth(1, "node", "run", "n1", "--yes", "--timeout", "100ms", "--", "true"); !strings.Contains(said, "stopped waiting; it goes on: kubectl skyhook status nodeop/") {
		t.Errorf("after the time it says\n%s", said)
	}
}
