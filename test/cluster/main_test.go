// SPDX-FileCopyrightText: The Skyhook authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"context"
	"os"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/skyhook-k8s/skyhook/test/cluster/testcluster"
)

func TestMain(m *testing.M) {
	testcluster.Init()
	os.Exit(m.Run())
}

func TestNodeNames(t *testing.T) {
	for _, c := range []struct {
		text string
		want []string
		err  string
	}{
		{"2", []string{"node1", "node2"}, ""},
		{"0", []string{}, ""},
		{"gpu-1,gpu-2", []string{"gpu-1", "gpu-2"}, ""},
		{"worker", []string{"worker"}, ""},
		{"-1", nil, "--nodes -1: the number must not be negative"},
		{"", nil, "--nodes is empty: give a number, such as 2, or names, such as gpu-1,gpu-2"},
	} {
		got, err := nodeNames(c.text)
		if said(err) != c.err || !cmp.Equal(got, c.want) {
			t.Errorf("--nodes %q: got %v and %q, want %v and %q", c.text, got, said(err), c.want, c.err)
		}
	}
}

func TestLabels(t *testing.T) {
	all, err := parseLabels([]string{"agentpool=gpu,rack=7", "node2:zone=b,empty="})
	want := []testcluster.Label{{Key: "agentpool", Value: "gpu"}, {Key: "rack", Value: "7"}, {Node: "node2", Key: "zone", Value: "b"}, {Node: "node2", Key: "empty"}}
	if err != nil || !cmp.Equal(all, want) {
		t.Errorf("got %v, %v; want %v", all, err, want)
	}
	for _, bad := range []string{"agentpool", "=gpu", ":zone=b", "node1:zone", ""} {
		if _, err := parseLabels([]string{bad}); err == nil || !strings.Contains(err.Error(), "write KEY=VALUE") {
			t.Errorf("--labels %q: the error %v does not say how to write it", bad, err)
		}
	}
}

// What a user types wrong is answered with what to do instead, before anything is built or started.
func TestWrongUse(t *testing.T) {
	t.Setenv("XDG_STATE_HOME", t.TempDir())
	for _, c := range []struct{ line, want string }{
		{"up --nodes 2 --name Big", `name "Big": use at most 30 lower-case letters, digits and dashes`},
		{"up --nodes a,b,a", `node "a" is named twice: every node needs a name of its own`},
		{"up --nodes a,", `node "": use at most 63 lower-case letters, digits, dashes and dots`},
		{"up --nodes 201", "--nodes 201: at most 200 real ones are possible; ask for simulated ones"},
		{"up --nodes 999999999", "--nodes 999999999: at most 200 real ones are possible; ask for simulated ones"},
		{"up --simulated -3", "-3 simulated nodes: the number must not be negative"},
		{"up --nodes a --control-plane-node=a", `node "a" is named twice`},
		{"up --nodes a --trixie b", `node "b", which is to run Debian 13: there is no such node`},
		{"up --labels node7:a=b", `label a=b: there is no node "node7"`},
		{"up --api-port 70000", "API port 70000: use 1 to 65535, or 0 for any that is free"},
		{"up --node-monitor-grace-period=-1s", "a grace period or delay must not be negative"},
		{"up --ndoes 2", "unknown flag: --ndoes"},
		{"up 2", `unknown command "2" for "cluster up"`},
		{"kubeconfig", "cluster skyhook is not up: bring it up with `up --name skyhook`"},
		{"kubectl --name other get pods", "cluster other is not up: bring it up with `up --name other`"},
		{"node reboot node1", "cluster skyhook is not up"},
		{"node reboot", "accepts 1 arg(s), received 0"},
		{"image push x.tar", "accepts 2 arg(s), received 1"},
		{"down --name ../x", `name "../x": use at most 30 lower-case letters, digits and dashes`},
	} {
		err := run(t, strings.Fields(c.line)...)
		if err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("cluster %s: the error is %v, want %q", c.line, err, c.want)
		}
	}
}

func TestWithoutRoot(t *testing.T) {
	if os.Geteuid() == 0 {
		t.Skip("runs as root, which this test is about not being")
	}
	t.Setenv("XDG_STATE_HOME", t.TempDir())
	for _, line := range []string{"up --nodes 1", "down"} {
		if err := run(t, strings.Fields(line)...); err == nil || !strings.Contains(err.Error(), "run it again with sudo") {
			t.Errorf("cluster %s without root: the error is %v", line, err)
		}
	}
}

func run(t *testing.T, args ...string) error {
	t.Helper()
	cmd := program()
	var out bytes.Buffer
	cmd.SetOut(&out)
	cmd.SetErr(&out)
	cmd.SetArgs(args)
	return cmd.ExecuteContext(context.Background())
}

func said(err error) string {
	if err == nil {
		return ""
	}
	return err.Error()
}
