// SPDX-FileCopyrightText: The Skyhook authors
// SPDX-License-Identifier: Apache-2.0

// Package agent tests the agent alone on a real systemd node, without an operator: it restarts services and reboots the node
// exactly once, whenever it is killed.
package agent_test

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	"github.com/skyhook-k8s/skyhook/test/e2e/suite"
)

// stateDir is where the agent of these tests keeps its records on the host.
const stateDir = "/var/lib/skyhook/e2e"

var cluster *suite.Cluster

func TestMain(m *testing.M) { suite.Main(m, &cluster, suite.AnyOperator) }

// host is the node of a test.
type host struct {
	*testing.T
	node string
}

func newHost(t *testing.T) host {
	t.Helper()
	return host{T: t, node: cluster.ShareInterruptibleNodes(t, 1)[0]}
}

// exec runs a script on the node, as root of the host.
func (h host) exec(script string) string {
	h.Helper()
	return cluster.Exec(h.T, h.node, script)
}

// startAgent creates a pod that interrupts the node under an id, as the operator's pods do.
func (h host) startAgent(id, interrupt string, flags ...string) {
	h.Helper()
	args, err := json.Marshal(append(append([]string{"interrupt", "--id", id}, flags...), interrupt))
	if err != nil {
		h.Fatal(err)
	}
	cluster.Apply(h.T, fmt.Sprintf(`
apiVersion: v1
kind: Pod
metadata: {name: %s}
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
    image: ghcr.io/skyhook-k8s/skyhook/agent:`+suite.ChartTag+`
    args: %s
    securityContext: {privileged: true}
    env: [{name: SKYHOOK_ROOT_DIR, value: %s}, {name: SKYHOOK_LOG_DIR, value: /var/log/skyhook/e2e}]
    volumeMounts: [{name: root, mountPath: /root, mountPropagation: HostToContainer}]
  volumes: [{name: root, hostPath: {path: /}}]
`, id, h.node, args, stateDir))
	h.Cleanup(func() {
		if h.Failed() {
			for _, args := range [][]string{{"logs", id}, {"logs", "-p", id}, {"get", "pod", id, "-o", "yaml"}} {
				out, _ := cluster.TryKubectl("", args...)
				h.Logf("kubectl %s:\n%s", strings.Join(args, " "), out)
			}
		}
		_, _ = cluster.TryKubectl("", "delete", "pod", id, "--wait=false", "--grace-period=1")
	})
}

// termination is the termination message of the agent.
type termination struct {
	Outcome, Class, Reason string
	BootIDs                struct{ From, To string }
}

// waitSucceeded waits until the agent has succeeded.
func (h host) waitSucceeded(id string) (message termination) {
	h.Helper()
	cluster.EventuallyPrints(h.T, "pod "+id+" has succeeded", func(phase string) bool { return phase == "Succeeded" },
		"get", "pod", id, "-o", "jsonpath={.status.phase}")
	text := cluster.Kubectl(h.T, "get", "pod", id, "-o", "jsonpath={.status.containerStatuses[0].state.terminated.message}")
	if err := json.Unmarshal([]byte(text), &message); err != nil {
		h.Fatalf("the message of pod %s: %v: %s", id, err, text)
	}
	if message.Outcome != "succeeded" {
		h.Fatalf("pod %s ended with %+v", id, message)
	}
	return message
}

// installUnit installs a systemd unit on the node until the end of the test.
func (h host) installUnit(name, text string) {
	h.Helper()
	h.exec("printf '%s' '" + strings.ReplaceAll(text, "'", `'\''`) + "' > /etc/systemd/system/" + name + ".service && systemctl daemon-reload")
	h.Cleanup(func() {
		_, _ = cluster.TryExec(h.node, "systemctl stop "+name+"; systemctl disable "+name+"; rm -f /etc/systemd/system/"+name+".service")
	})
}

// startCountedService installs and starts a service that records every start. It starts slowly, and not before the file
// /run/NAME.hold is gone.
func (h host) startCountedService(name string) {
	h.Helper()
	h.exec("rm -f /var/log/" + name + ".starts")
	h.installUnit(name, `[Service]
TimeoutStartSec=infinity
ExecStartPre=/bin/bash -c 'echo start >> /var/log/`+name+`.starts'
ExecStartPre=/bin/bash -c 'sleep 1; while [ -e /run/`+name+`.hold ]; do sleep 0.05; done'
ExecStart=/bin/sleep infinity
[Install]
WantedBy=multi-user.target
`)
	h.exec("systemctl start " + name)
}

// requireStarts checks how often a counted service was started.
func (h host) requireStarts(name string, want int) {
	h.Helper()
	if n := strings.Count(h.exec("cat /var/log/"+name+".starts"), "start"); n != want {
		h.Errorf("service %s was started %d times, want %d", name, n, want)
	}
}

// property returns a property of a systemd unit.
func (h host) property(unit, name string) string {
	h.Helper()
	return h.exec("systemctl show -p " + name + " --value " + unit)
}

// killPoint says when the agent of an id is killed. Whatever the agent must not get past until then is locked, so that the
// speed of the machine does not matter.
type killPoint struct {
	// lock is a script that runs before the agent appears; its locks are held until the agent was killed.
	lock string
	// inhibit delays every shutdown until the agent was killed.
	inhibit bool
	// waitFor is a script that runs after the agent has appeared and before it is killed.
	waitFor string
	// release is a script that runs after the kill.
	release string
	// mayMiss: the agent or the node may be faster than the killer.
	mayMiss bool
}

// lockRecords holds what every interrupt begins with: the lock on the records.
const lockRecords = "mkdir -p " + stateDir + "/interrupts/records; exec 9>" + stateDir + "/interrupts/records/lock; flock 9;"

// waitForRecord waits for the record of an interrupt.
func waitForRecord(id string) string {
	return "until ls " + stateDir + "/interrupts/records/" + id + "-*.json >/dev/null 2>&1; do sleep 0.01; done;"
}

// installKiller installs the unit killer-ID, which kills the agent of an id once and records it. Its locks are held as soon as it
// is started.
func (h host) installKiller(id string, k killPoint) {
	h.Helper()
	shell := "/bin/bash"
	if k.inhibit {
		h.exec("mkdir -p /etc/systemd/logind.conf.d; printf '[Login]\nInhibitDelayMaxSec=120\n' > /etc/systemd/logind.conf.d/delay.conf; systemctl restart systemd-logind")
		shell = "/usr/bin/systemd-inhibit --what=shutdown --mode=delay --who=killer --why=test /bin/bash"
	}
	h.exec(": > /var/log/kills")
	h.installUnit("killer-"+id, `[Unit]
Before=kubelet.service
[Service]
Type=notify
NotifyAccess=all
ExecStart=`+shell+` -c '`+k.lock+` systemd-notify --ready; until P=$$(pgrep -f "^/[^ ]*skyhook-agent interrupt --id `+id+` "); do sleep 0.01; done; `+k.waitFor+` kill -9 $$P && echo killed >> /var/log/kills; `+k.release+` systemctl disable killer-`+id+`; sync'
[Install]
WantedBy=multi-user.target
`)
}

// requireKill checks that the agent was killed once.
func (h host) requireKill(id string, k killPoint) {
	h.Helper()
	if n := strings.Count(h.exec("cat /var/log/kills"), "killed"); n != 1 && !k.mayMiss {
		h.Errorf("%s: the agent was killed %d times, want once", id, n)
	}
}
