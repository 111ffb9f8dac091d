// SPDX-FileCopyrightText: The Skyhook authors
// SPDX-License-Identifier: Apache-2.0

package ui

import (
	"bytes"
	"compress/gzip"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/chromedp/chromedp"
	corev1 "k8s.io/api/core/v1"

	"github.com/skyhook-k8s/skyhook/test/testenv"
)

// sampleVariable makes TestSample record the fleet of `kubectl skyhook ui --sample` anew.
const sampleVariable = "SKYHOOK_UI_SAMPLE"

const sampleFile = repository + "/internal/cli/page/sample.yaml.gz"

// The fleet: 480 nodes with GPUs in four zones and 120 others, in the middle of a rollout in waves.
const sampleObjects = `
apiVersion: skyhook.nvidia.com/v1alpha1
kind: DeploymentPolicy
metadata: {name: in-waves}
spec:
  compartments:
    - {name: canary, selector: {}, canary: {count: 4, spreadBy: topology.kubernetes.io/zone}, budget: {count: 4}}
    - {name: zone-0, selector: {matchLabels: {topology.kubernetes.io/zone: zone-0}}, after: [canary], budget: {percent: 30}, strategy: {exponential: {initialBatch: 8}}}
    - {name: zone-1, selector: {matchLabels: {topology.kubernetes.io/zone: zone-1}}, after: [zone-0], budget: {percent: 30}, strategy: {exponential: {initialBatch: 8, batchThreshold: 80}}}
  default: {after: [zone-1], approval: Required, budget: {percent: 20}, strategy: {exponential: {initialBatch: 8, batchThreshold: 80}}}
---
apiVersion: skyhook.nvidia.com/v1alpha1
kind: DeploymentPolicy
metadata: {name: at-night}
spec:
  default: {budget: {percent: 10}, strategy: {fixed: {initialBatch: 6}}}
  windows: {timeZone: Europe/Berlin, open: [{schedule: 0 22 * * *, duration: 6h}], blackouts: [{from: "2099-12-24", to: "2099-12-26"}]}
---
apiVersion: skyhook.nvidia.com/v1alpha1
kind: DeploymentPolicy
metadata: {name: with-approval}
spec:
  default: {approval: Required, budget: {percent: 25}, strategy: {linear: {initialBatch: 10, delta: 10}}}
---
apiVersion: skyhook.nvidia.com/v1alpha1
kind: DeploymentPolicy
metadata: {name: after-jobs}
spec:
  default: {budget: {count: 2}, strategy: {fixed: {initialBatch: 2}}}
  handover: [{name: batch-system, cel: "'jobs' in node.metadata.labels && node.metadata.labels['jobs'] == 'drained'", timeout: 12h}]
---
apiVersion: skyhook.nvidia.com/v1alpha1
kind: Skyhook
metadata: {name: storage-driver}
spec:
  deploymentPolicy: after-jobs
  priority: 250
  nodeSelectors: {matchLabels: {pool: cpu, topology.kubernetes.io/zone: zone-3}}
  packages: {storage: {version: 1.4.0, image: ghcr.io/skyhook-k8s/skyhook/packages/shellscript, interrupt: {type: service, services: [multipathd]}}}
---
apiVersion: skyhook.nvidia.com/v1alpha1
kind: Skyhook
metadata: {name: hardening}
spec:
  nodeSelectors: {matchLabels: {pool: cpu}}
  interruptionBudget: {percent: 50}
  packages: {sysctl: {version: 1.2.0, image: ghcr.io/skyhook-k8s/skyhook/packages/tuning}}
---
apiVersion: skyhook.nvidia.com/v1alpha1
kind: Skyhook
metadata: {name: os-patches}
spec:
  deploymentPolicy: at-night
  priority: 300
  nodeSelectors: {matchLabels: {pool: cpu}}
  packages: {security: {version: 2026.11.0, image: ghcr.io/skyhook-k8s/skyhook/packages/shellscript, interrupt: {type: reboot}}}
---
apiVersion: skyhook.nvidia.com/v1alpha1
kind: Skyhook
metadata: {name: fabric}
spec:
  deploymentPolicy: with-approval
  priority: 400
  nodeSelectors: {matchLabels: {pool: cpu}}
  packages: {fabric: {version: 0.3.1, image: ghcr.io/skyhook-k8s/skyhook/packages/shellscript}}
---
apiVersion: skyhook.nvidia.com/v1alpha1
kind: Skyhook
metadata: {name: gpu-stack}
spec:
  deploymentPolicy: in-waves
  nodeSelectors: {matchLabels: {pool: gpu}}
  packages:
    kernel: {version: 6.8.0, image: ghcr.io/skyhook-k8s/skyhook/packages/shellscript}
    tuning: {version: 1.2.0, image: ghcr.io/skyhook-k8s/skyhook/packages/tuning}
    driver: {version: 2.0.0, image: ghcr.io/skyhook-k8s/skyhook/packages/shellscript, dependsOn: {kernel: 6.8.0}, interrupt: {type: service, services: [containerd]}}
`

// TestSample opens the fleet that is shipped: it shows a rollout with everything that a newcomer has to see.
func TestSample(t *testing.T) {
	if os.Getenv(sampleVariable) != "" {
		recordSample(t)
		return // the plugin of this test has the sample of before
	}
	b := startBrowser(t)
	address, _ := serve(t, "--sample")
	b.open(address + "?by=zone")
	b.waitVisible(".cells")
	if count := evaluate[int](b, `document.querySelectorAll('.cells i').length`); count != 600 {
		t.Errorf("it has %d nodes", count)
	}
	for _, state := range []string{"complete", "working", "failed", "waiting"} {
		if countCells(b, state) == 0 {
			t.Errorf("no node is %s", state)
		}
	}
	b.savePicture(os.Getenv(picturesVariable), "ui-sample.png", chromedp.CaptureScreenshot)
	b.open(address + "rollouts/skyhook/gpu-stack")
	for part, want := range map[string]string{"#summary": "Next", "#track": "canary", "#progress": "complete"} {
		if text := b.text(part); !strings.Contains(text, want) {
			t.Errorf("%s does not say %s:\n%s", part, want, text)
		}
	}
	b.checkRequests(address)
}

// recordSample rolls out over simulated nodes until half of the second wave is done, and writes a dump of that.
func recordSample(t *testing.T) {
	c := &liveCluster{Env: testenv.New(t, plane, 0), kubeconfig: plane.Kubeconfig(t), nodes: 480}
	c.addNodes("node", "gpu")
	c.nodes = 120
	c.addNodes("cpu", "cpu")
	c.StartKubelet().SetOutcome(func(p *corev1.Pod) testenv.Outcome {
		number, _ := strconv.Atoi(p.Spec.NodeName[strings.LastIndex(p.Spec.NodeName, "-")+1:])
		switch {
		case !strings.HasPrefix(p.Spec.NodeName, "node-") || number < 16:
			return testenv.Succeeds
		case number%4 != 1 || !isOf(p, "driver"): // until the second zone nothing fails, so that it begins
			return testenv.Succeeds
		case number%29 == 5:
			return testenv.Fails
		case number > 100:
			return testenv.Hangs
		}
		return testenv.Succeeds
	})
	c.runOperator()
	for _, object := range strings.Split(sampleObjects, "---\n") {
		c.Apply(object)
	}
	waitUntil(t, "in the second wave", func() bool {
		return c.readStatus().Complete > 135 && c.readStatus().Failing > 0 && c.readStatus().InProgress > 10
	})
	program, err := buildPlugin()
	c.Must(err)
	file := filepath.Join(t.TempDir(), "sample.yaml")
	c.Must(exec.Command(program, "dump", "--to", file, "--kubeconfig", c.kubeconfig, "-n", c.Namespace).Run())
	raw, err := os.ReadFile(file)
	c.Must(err)
	var out bytes.Buffer
	w, err := gzip.NewWriterLevel(&out, gzip.BestCompression)
	c.Must(err)
	_, err = io.Copy(w, bytes.NewReader(slowDown(raw)))
	c.Must(err)
	c.Must(w.Close())
	c.Must(os.WriteFile(sampleFile, out.Bytes(), 0o644))
	t.Logf("%s: %d bytes", sampleFile, out.Len())
}

// slower is how much slower real nodes are than simulated ones.
const slower = 120

var (
	dumpTimes   = regexp.MustCompile(`20\d\d-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d+)?Z`)
	dumpSeconds = regexp.MustCompile(`(\\?"took\\?":)(\d+)`)
)

// slowDown stretches the time of a dump before it was taken, which is its latest time.
func slowDown(raw []byte) []byte {
	last := time.Time{}
	for _, text := range dumpTimes.FindAll(raw, -1) {
		if at, err := time.Parse(time.RFC3339Nano, string(text)); err == nil && at.After(last) && at.Before(time.Now().Add(time.Hour)) {
			last = at
		}
	}
	raw = dumpTimes.ReplaceAllFunc(raw, func(text []byte) []byte {
		at, err := time.Parse(time.RFC3339Nano, string(text))
		if err != nil || at.After(last) {
			return text
		}
		return []byte(last.Add(-slower * last.Sub(at)).Format(time.RFC3339))
	})
	return dumpSeconds.ReplaceAllFunc(raw, func(text []byte) []byte {
		m := dumpSeconds.FindSubmatch(text)
		n, _ := strconv.Atoi(string(m[2]))
		return []byte(string(m[1]) + strconv.Itoa(max(n, 1)*slower))
	})
}
