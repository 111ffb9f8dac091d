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

	"sigs.k8s.io/controller-runtime/pkg/client"

	nodeopv1 "github.com/skyhook-k8s/skyhook/api/nodeop/v1alpha1"
)

// newOps is a cluster of three nodes with an operator, where Jobs run and logs are to be had. The command fails where
// exits says so.
func newOps(t *testing.T, exits map[string]int32) *stageSet {
	t.Helper()
	s := newStage(t, 3)
	port := newKubelet(t)
	for i := range 3 {
		n := s.GetNode(fmt.Sprintf("n%d", i+1))
		s.Patch(n, fmt.Sprintf(`{"metadata":{"labels":{"kubernetes.io/hostname":%q}}}`, n.Name))
		raw := fmt.Sprintf(`{"status":{"addresses":[{"type":"InternalIP","address":"127.0.0.1"}],"daemonEndpoints":{"kubeletEndpoint":{"Port":%s}}}}`, port)
		s.Must(s.Client.Status().Patch(context.Background(), n, client.RawPatch("application/merge-patch+json", []byte(raw))))
	}
	s.StartJobController(func(node string) int32 { return exits[node] })
	s.operate()
	return s
}

// ops are the NodeOps that are there.
func (s *stageSet) ops() []nodeopv1.NodeOp {
	s.Helper()
	l := &nodeopv1.NodeOpList{}
	s.Must(s.Client.List(context.Background(), l, client.InNamespace(s.Namespace)))
	return l.Items
}

// A command runs on the nodes named and no other, its output is shown, and the NodeOp goes when all ended well.
func TestNodeRun(t *testing.T) {
	s := newOps(t, nil)
	out, said := s.both(0, "node", "run", "n1", "n[3]", "--yes", "--", "uname", "-r")
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
	s.Eventually("the NodeOp is gone", func() bool { return len(s.ops()) == 0 })
}

// The exit code is that of the worst node; what failed stays to be looked at.
func TestNodeRunFails(t *testing.T) {
	s := newOps(t, map[string]int32{"n1": 3, "n2": 41})
	out, said := s.both(41, "node", "run", "n1", "n2", "n3", "--yes", "--concurrency", "0", "--stop-on-failure=false", "-o", "json", "--", "false")
	var ended []struct {
		Node, Phase string
		ExitCode    *int32
	}
	s.Must(json.Unmarshal([]byte(out), &ended))
	if len(ended) != 3 || ended[0].ExitCode == nil || *ended[0].ExitCode != 3 || *ended[1].ExitCode != 41 || ended[2].Phase != "Completed" {
		t.Errorf("it prints\n%s", out)
	}
	all := s.ops()
	if len(all) != 1 || !strings.Contains(said, "failed and stays: kubectl skyhook why nodeop/"+s.Namespace+"/"+all[0].Name) {
		t.Fatalf("there are %d NodeOps, and it says\n%s", len(all), said)
	}
	if out := s.run(0, "status", "nodeop/"+all[0].Name); !strings.Contains(out, ": failed\n") || !strings.Contains(out, "1 of 3 complete (33%), 2 failing\n") || !strings.Contains(out, "n2  command (attempt 1, final)") {
		t.Errorf("status says\n%s", out)
	}
	if out := s.run(0, "why", "nodeop/"+all[0].Name); !strings.Contains(out, " on n1: failed\n  StageFailed: Job failed, exit code 3\n") || !strings.Contains(out, "exit code 41") {
		t.Errorf("why says\n%s", out)
	}
}

// A drained node has no pods, is cordoned in nobody's name but yours, and stays so; or it is given back.
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
	if left := s.others(); len(left) != 1 || left[0].Name != "two" || !s.GetNode("n1").Spec.Unschedulable || s.GetNode("n2").Spec.Unschedulable {
		t.Errorf("%d pods are left, n1 is cordoned: %v, n2: %v", len(left), s.GetNode("n1").Spec.Unschedulable, s.GetNode("n2").Spec.Unschedulable)
	}
	s.run(0, "node", "drain", "n2", "--yes", "--give-back")
	s.Eventually("n2 is given back", func() bool { return !s.GetNode("n2").Spec.Unschedulable })
	if left := s.others(); len(left) != 0 {
		t.Errorf("%d pods are left", len(left))
	}
}

// A reboot is over when the node has another boot id. Nothing is held afterwards.
func TestNodeReboot(t *testing.T) {
	s := newOps(t, nil)
	before := s.GetNode("n2").Status.NodeInfo.BootID
	out, said := s.both(0, "node", "reboot", "n2", "--yes", "--", "true")
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

// What would be done is said and asked before anything is done, and mistakes are told at once.
func TestNodeOpsAsk(t *testing.T) {
	s := newStage(t, 2)
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
		if _, said := s.both(1, strings.Fields(c.args)...); !strings.Contains(said, c.said) {
			t.Errorf("%s says\n%s", c.args, said)
		}
	}
	s.Patch(s.GetNode("n1"), `{"metadata":{"labels":{"kubernetes.io/hostname":"n1"}}}`)
	if out := s.run(0, "node", "drain", "n1", "--dry-run"); !strings.Contains(out, "nodeop/drain-… would be created for n1 (dry run)") {
		t.Errorf("a dry run prints\n%s", out)
	}
	if len(s.ops()) != 0 || s.GetNode("n1").Spec.Unschedulable {
		t.Error("something was done")
	}
	out := s.run(0, "node", "run", "n1", "--yes", "--wait=false", "-o", "name", "--", "true") // no operator runs
	if all := s.ops(); len(all) != 1 || out != "nodeop/"+all[0].Name+"\n" || !slices.Equal(all[0].Spec.Command, []string{"true"}) {
		t.Errorf("it prints\n%s", out)
	}
	if _, said := s.both(1, "node", "run", "n1", "--yes", "--timeout", "100ms", "--", "true"); !strings.Contains(said, "stopped waiting; it goes on: kubectl skyhook status nodeop/") {
		t.Errorf("after the time it says\n%s", said)
	}
}
