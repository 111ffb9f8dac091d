// SPDX-FileCopyrightText: The Skyhook authors
// SPDX-License-Identifier: Apache-2.0

// Package disasters lets changes go wrong, on four real nodes and six simulated ones each, and measures what that costs with both profiles.
package disasters_test

import (
	"flag"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/skyhook-k8s/skyhook/test/cluster/testcluster"
	"github.com/skyhook-k8s/skyhook/test/e2e/suite"
)

var (
	limit = flag.Duration("for", 5*time.Minute, "how long a disaster is watched at most")
	write = flag.Bool("write", false, "write the results into docs/profiles.md")
)

const (
	realNodes, simulatedNodes = 4, 6

	// settle is how long a disaster is watched after the operator has said how it ended.
	settle = 20 * time.Second
)

var cluster *suite.Cluster

func TestMain(m *testing.M) { suite.Main(m, &cluster, suite.WithOperator) }

// disaster is a change that goes wrong, or a cluster in which a good change does harm.
type disaster struct {
	name      string
	apply     string // what the package does on a node; it creates /etc/disaster where that does harm
	version   string // of the package, 1.0.0 if empty
	interrupt string // restarts a service if empty

	workload string       // a pod on the first node that must not be killed, with the name NAME; none if empty
	plant    func(r *run) // before the Skyhook is created
	edit     string       // what the package does in version 1.1.0, which is applied when the first node is cordoned
}

const (
	service = "{type: service, services: [cron]}"
	reboot  = "{type: reboot}"

	// onBoot has the next boot carry out a command, once.
	onBoot = `touch /etc/disaster
cat > /etc/systemd/system/disaster.service <<'UNIT'
[Unit]
After=kubelet.service
[Service]
ExecStart=/bin/sh -c 'systemctl disable disaster; %s'
[Install]
WantedBy=multi-user.target
UNIT
systemctl enable disaster; sync`
)

var disasters = []disaster{
	{name: "a package that fails on every node", apply: "touch /etc/disaster; exit 1"},
	{name: "a package that hangs", apply: "touch /etc/disaster; sleep 3600"},
	{name: "a package that breaks networking", apply: "touch /etc/disaster; ip link set eth0 down; sleep 3600"},
	{name: "a package that fills the disk", plant: requireSmallDisk, apply: "touch /etc/disaster; cat /dev/zero > /var/lib/skyhook/full"},
	{name: "a wrong image tag", version: "9.9.9", apply: "true"},
	{name: "nodes that do not come back from the reboot", apply: fmt.Sprintf(onBoot, "sync; systemctl --force poweroff"), interrupt: reboot},
	{name: "two nodes that are not ready already", apply: "true", plant: stopTwo},
	{name: "a PodDisruptionBudget that allows nothing", apply: "true", workload: pod("{}", 3600) + `---
apiVersion: policy/v1
kind: PodDisruptionBudget
metadata: {name: NAME}
spec: {minAvailable: 1, selector: {matchLabels: {app: NAME-pod}}}
`},
	{name: "a job of two minutes", apply: "true", workload: pod(`{skyhook.nvidia.com/do-not-interrupt: "true"}`, 120)},
	{name: "a cordon by a human", apply: "test ! -e /etc/hands-off || touch /etc/disaster", plant: cordonFirst},
	{name: "a kubelet that says Ready for ten seconds", apply: fmt.Sprintf(onBoot, "sleep 13; mv /etc/cni/net.d /etc/cni/off"), interrupt: reboot},
	{name: "a bad edit in the middle", apply: "sleep 5", edit: "touch /etc/disaster; exit 1"},
}

// run is a disaster with one profile.
type run struct {
	*testing.T
	disaster
	id       string // of its objects
	profile  string
	machines *testcluster.Cluster
	nodes    []string
	absent   map[string]bool // nodes that were out of service before the Skyhook
	isEdited bool
	isDone   bool // the pod has ended by itself
}

// result is what a disaster cost.
type result struct {
	damaged int
	killed  []string
	end     string
}

func (r result) String() string { return fmt.Sprintf("%d | %d | %s", r.damaged, len(r.killed), r.end) }

// TestDisasters measures every disaster with both profiles. As many run side by side as there are nodes for.
func TestDisasters(t *testing.T) {
	var mu sync.Mutex
	results := map[string]map[string]result{}
	t.Run("with", func(t *testing.T) {
		for i, d := range disasters {
			for j, profile := range []string{"Recommended", "Compatible"} {
				number := 2*i + j
				t.Run(d.name+"/"+profile, func(t *testing.T) {
					machines := cluster.LocalCluster(t, "breaking nodes")
					r := &run{T: t, disaster: d, profile: profile, machines: machines, absent: map[string]bool{}, id: fmt.Sprintf("disaster-%d", number+1)}
					r.nodes = cluster.ShareInterruptibleNodes(t, realNodes)
					got := r.measure(number * simulatedNodes)
					t.Logf("%s: %s", profile, got)
					if profile == "Recommended" && (got.damaged > 1 || len(got.killed) > 0) {
						t.Errorf("%d nodes are damaged, and killed were %v", got.damaged, got.killed)
					}
					mu.Lock()
					defer mu.Unlock()
					if results[d.name] == nil {
						results[d.name] = map[string]result{}
					}
					results[d.name][profile] = got
				})
			}
		}
	})
	if *write {
		writeTable(t, results)
	}
}

// measure creates workloads, plants the disaster, rolls out, and watches.
func (r *run) measure(firstSimulated int) result {
	r.Helper()
	r.Cleanup(r.restore)
	labelled := slices.Clone(r.nodes)
	if r.interrupt != reboot { // which simulated nodes do not
		for i := range simulatedNodes {
			labelled = append(labelled, testcluster.SimulatedName(firstSimulated+i+1))
		}
	}
	cluster.Label(r.T, "e2e="+r.id, labelled...)
	cluster.ApplyUntilCleanup(r.T, suite.OnNodes(strings.ReplaceAll(web+r.workload, "NAME", r.id), r.nodes...))
	cluster.Kubectl(r.T, "rollout", "status", "deployment/"+r.id, "--timeout="+suite.Timeout.String())
	if r.workload != "" {
		cluster.Kubectl(r.T, "wait", "--for=condition=Ready", "pod/"+r.id, "--timeout="+suite.Timeout.String())
	}
	if r.plant != nil {
		r.plant(r)
	}
	r.rollOut(r.disaster.version, r.apply)
	return r.watch()
}

// web is a service with a replica on each node, as most are: nobody has written a disruption budget for it.
const web = `
apiVersion: apps/v1
kind: Deployment
metadata: {name: NAME}
spec:
  replicas: 4
  selector: {matchLabels: {app: NAME}}
  template:
    metadata: {labels: {app: NAME}}
    spec:
      nodeSelector: {e2e: NAME, skyhook.test/e2e: "true"}
      terminationGracePeriodSeconds: 1
      topologySpreadConstraints: [{maxSkew: 1, topologyKey: kubernetes.io/hostname, whenUnsatisfiable: ScheduleAnyway, labelSelector: {matchLabels: {app: NAME}}}]
      containers: [{name: web, image: "registry.k8s.io/pause:3.10"}]
`

// pod is a pod on the first node that runs for some seconds.
func pod(annotations string, seconds int) string {
	return fmt.Sprintf(`---
apiVersion: v1
kind: Pod
metadata: {name: NAME, labels: {app: NAME-pod}, annotations: %s}
spec:
  nodeName: NODE1
  restartPolicy: Never
  terminationGracePeriodSeconds: 1
  containers: [{name: pod, image: "%s", command: [sleep, "%d"]}]
`, annotations, suite.ToolsImage, seconds)
}

// rollOut creates or edits the Skyhook.
func (r *run) rollOut(version, apply string) {
	r.Helper()
	interrupt := r.interrupt
	if interrupt == "" {
		interrupt = service
	}
	if version == "" {
		version = "1.0.0"
	}
	cluster.Apply(r.T, suite.Manifest(r.id, "\n  profile: "+r.profile, fmt.Sprintf(`
    disaster:
      version: %s
      image: %sshellscript
      stageTimeout: 1m
      interrupt: %s
      configMap: {apply.sh: %q, upgrade.sh: %q}`, version, suite.PackageRepository, interrupt, apply, apply)))
}
