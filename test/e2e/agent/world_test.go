// SPDX-FileCopyrightText: The Skyhook authors
// SPDX-License-Identifier: Apache-2.0

// Package agent shows the agent alone on a real systemd node, without an operator: what it restarts really restarts, once,
// and what it reboots really reboots, once, whenever the agent is killed.
package agent_test

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/skyhook-k8s/skyhook/test/cluster/build"
	"github.com/skyhook-k8s/skyhook/test/cluster/lab"
)

const (
	node  = "n1"
	image = "ghcr.io/skyhook-k8s/agent:e2e"
	state = "/var/lib/skyhook/e2e"
	// patience is for whatever is going to be true on a slow machine too.
	patience = 8 * time.Minute
)

var (
	cluster *lab.Cluster
	kubectl string
)

func TestMain(m *testing.M) {
	lab.Init()
	if os.Geteuid() != 0 {
		fmt.Println("skipped: real nodes need root; run it as root, for example with make e2e")
		return
	}
	os.Exit(run(m))
}

func run(m *testing.M) int {
	ctx, cancel := context.WithTimeout(context.Background(), 20*time.Minute)
	defer cancel()
	down, err := up(ctx)
	defer down()
	if err != nil {
		fmt.Fprintf(os.Stderr, "bringing up the cluster: %v\n", err)
		return 1
	}
	return m.Run()
}

// up brings up a cluster of one node, or uses the one of ours that SKYHOOK_E2E_CLUSTER names and leaves it up.
func up(ctx context.Context) (down func(), err error) {
	down = func() {}
	if name := os.Getenv("SKYHOOK_E2E_CLUSTER"); name != "" {
		cluster, err = lab.Open(name)
	} else if cluster, err = lab.Up(ctx, lab.Spec{Name: "e2e-agent", Nodes: []string{node}}, os.Stderr); err == nil {
		down = func() {
			if err := cluster.Down(context.Background()); err != nil {
				fmt.Fprintf(os.Stderr, "taking the cluster down: %v\n", err)
			}
		}
	}
	if err != nil {
		return down, err
	}
	cache, err := build.Open(os.Stderr)
	if err != nil {
		return down, err
	}
	dir, err := cache.Kubernetes(ctx)
	if err != nil {
		return down, err
	}
	kubectl = filepath.Join(dir, "kubectl")
	return down, push(ctx)
}

// push puts the agent's image where its name says it is.
func push(ctx context.Context) error {
	dist := os.Getenv("SKYHOOK_E2E_IMAGES")
	if dist == "" {
		temp, err := os.MkdirTemp("", "e2e-images-")
		if err != nil {
			return err
		}
		defer func() { _ = os.RemoveAll(temp) }()
		cmd := exec.CommandContext(ctx, "go", "run", "./hack/mkimage", "--only", "agent", "--platform", "linux/amd64", "--out", temp)
		cmd.Dir = "../../.."
		if out, err := cmd.CombinedOutput(); err != nil {
			return fmt.Errorf("building the agent's image: %w\n%s", err, out)
		}
		dist = temp
	}
	_, err := cluster.PushArchive(ctx, filepath.Join(dist, "agent.tar"), image)
	return err
}

// start creates a pod that interrupts the node under an id, as the operator's pods do.
func start(t *testing.T, id, interrupt string, flags ...string) {
	t.Helper()
	args, err := json.Marshal(append(append([]string{"interrupt", "--id", id}, flags...), interrupt))
	if err != nil {
		t.Fatal(err)
	}
	manifest := fmt.Sprintf(`
apiVersion: v1
kind: Pod
metadata: {name: %s, namespace: default}
spec:
  nodeName: %s
  automountServiceAccountToken: false
  hostPID: true
  hostNetwork: true
  restartPolicy: OnFailure
  terminationGracePeriodSeconds: 2
  tolerations: [{operator: Exists}]
  containers:
  - name: agent
    image: %s
    args: %s
    securityContext: {privileged: true}
    env: [{name: SKYHOOK_ROOT_DIR, value: %s}, {name: SKYHOOK_LOG_DIR, value: /var/log/skyhook/e2e}]
    volumeMounts: [{name: root, mountPath: /root, mountPropagation: HostToContainer}]
  volumes: [{name: root, hostPath: {path: /}}]
`, id, node, image, args, state)
	if _, err := kube(manifest, "apply", "-f", "-"); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if t.Failed() {
			for _, args := range [][]string{{"logs", id}, {"logs", "-p", id}, {"get", "pod", id, "-o", "yaml"}} {
				out, _ := kube("", args...)
				t.Logf("kubectl %s:\n%s", strings.Join(args, " "), out)
			}
		}
		_, _ = kube("", "delete", "pod", id, "--wait=false", "--grace-period=1")
	})
}

// A message is what the agent left behind.
type message struct {
	Outcome, Class, Reason string
	BootIDs                struct{ From, To string }
}

// end waits until a pod has ended well and returns what the agent left behind.
func end(t *testing.T, id string) (m message) {
	t.Helper()
	eventually(t, "pod "+id+" has succeeded", func() error {
		out, err := kube("", "get", "pod", id, "-o", "jsonpath={.status.phase}")
		if err == nil && out != "Succeeded" {
			err = fmt.Errorf("it is %s", out)
		}
		return err
	})
	text, err := kube("", "get", "pod", id, "-o", "jsonpath={.status.containerStatuses[0].state.terminated.message}")
	if err == nil {
		err = json.Unmarshal([]byte(text), &m)
	}
	if err != nil {
		t.Fatalf("the message of pod %s: %v: %s", id, err, text)
	}
	if m.Outcome != "succeeded" {
		t.Fatalf("pod %s ended with %+v", id, m)
	}
	return m
}

func kube(input string, args ...string) (string, error) {
	cmd := exec.Command(kubectl, append([]string{"--kubeconfig", cluster.Kubeconfig}, args...)...)
	var out, said bytes.Buffer
	cmd.Stdin, cmd.Stdout, cmd.Stderr = strings.NewReader(input), &out, &said
	if err := cmd.Run(); err != nil {
		return out.String(), fmt.Errorf("kubectl %s: %w: %s", strings.Join(args, " "), err, strings.TrimSpace(said.String()))
	}
	return out.String(), nil
}

// on runs a shell script on the node, as root of the host.
func on(t *testing.T, script string) string {
	t.Helper()
	out, err := tryOn(script)
	if err != nil {
		t.Fatal(err)
	}
	return out
}

func tryOn(script string) (string, error) {
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	out, err := cluster.Exec(ctx, node, "/bin/bash", "-c", script)
	return strings.TrimSpace(out), err
}

// eventually tries until f has nothing to complain about any more.
func eventually(t *testing.T, what string, f func() error) {
	t.Helper()
	for limit := time.Now().Add(patience); ; time.Sleep(200 * time.Millisecond) {
		err := f()
		if err == nil {
			return
		}
		if time.Now().After(limit) {
			t.Fatalf("after %s: %s: %v", patience, what, err)
		}
	}
}

// unit installs a systemd unit on the node.
func unit(t *testing.T, name, text string) {
	t.Helper()
	on(t, "printf '%s' '"+strings.ReplaceAll(text, "'", `'\''`)+"' > /etc/systemd/system/"+name+".service && systemctl daemon-reload")
}

// counted installs a service that writes a line every time it is started, and starts it. It starts slowly, and not before
// nobody holds it.
func counted(t *testing.T, name string) {
	t.Helper()
	on(t, "rm -f /var/log/"+name+".starts")
	unit(t, name, `[Service]
TimeoutStartSec=infinity
ExecStartPre=/bin/bash -c 'echo start >> /var/log/`+name+`.starts'
ExecStartPre=/bin/bash -c 'sleep 1; while [ -e /run/`+name+`.hold ]; do sleep 0.05; done'
ExecStart=/bin/sleep infinity
[Install]
WantedBy=multi-user.target
`)
	on(t, "systemctl start "+name)
	t.Cleanup(func() { _, _ = tryOn("systemctl stop " + name + "; rm -f /etc/systemd/system/" + name + ".service") })
}

func starts(t *testing.T, name string) int {
	t.Helper()
	return strings.Count(on(t, "cat /var/log/"+name+".starts"), "start")
}

// property asks the node's systemd.
func property(t *testing.T, unit, name string) string {
	t.Helper()
	return on(t, "systemctl show -p "+name+" --value "+unit)
}

// A moment is when the agent of an id is killed. Whatever the agent must not get past meanwhile is held, so that it does
// not matter how slow the machine is.
type moment struct {
	// hold is what the shell holds before the agent appears, until it has killed it.
	hold string
	// inhibit makes that a lock that delays every shutdown.
	inhibit bool
	// until is what it waits for after the agent has appeared.
	until string
	// release comes after the kill.
	release string
	// missable: here the agent, or the node, may be faster.
	missable bool
}

// atItsStart holds what every interrupt begins with: the lock on the records.
const atItsStart = "mkdir -p " + state + "/interrupts/records; exec 9>" + state + "/interrupts/records/lock; flock 9;"

// recorded waits for the record of an interrupt.
func recorded(id string) string {
	return "until ls " + state + "/interrupts/records/" + id + "-*.json >/dev/null 2>&1; do sleep 0.01; done;"
}

// killer installs a unit that kills the agent of an id once, and notes it. When it is started, what it holds is held.
func killer(t *testing.T, id string, m moment) {
	t.Helper()
	run := "/bin/bash"
	if m.inhibit {
		on(t, "mkdir -p /etc/systemd/logind.conf.d; printf '[Login]\nInhibitDelayMaxSec=120\n' > /etc/systemd/logind.conf.d/delay.conf; systemctl restart systemd-logind")
		run = "/usr/bin/systemd-inhibit --what=shutdown --mode=delay --who=killer --why=test /bin/bash"
	}
	unit(t, "killer-"+id, `[Unit]
Before=kubelet.service
[Service]
Type=notify
NotifyAccess=all
ExecStart=`+run+` -c '`+m.hold+` systemd-notify --ready; until P=$$(pgrep -f "^/[^ ]*skyhook-agent interrupt --id `+id+` "); do sleep 0.01; done; `+m.until+` kill -9 $$P && echo killed >> /var/log/kills; `+m.release+` systemctl disable killer-`+id+`; sync'
[Install]
WantedBy=multi-user.target
`)
	t.Cleanup(func() {
		_, _ = tryOn("systemctl stop killer-" + id + "; rm -f /etc/systemd/system/killer-" + id + ".service")
	})
}

// killed tells whether the agent was killed, and by how many killers.
func killed(t *testing.T) int {
	t.Helper()
	return strings.Count(on(t, "cat /var/log/kills"), "killed")
}
