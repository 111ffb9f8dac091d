// SPDX-FileCopyrightText: The Skyhook authors
// SPDX-License-Identifier: Apache-2.0

package ui

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/chromedp/cdproto/emulation"
	"github.com/chromedp/chromedp"
	"github.com/go-logr/logr"
	"github.com/prometheus/client_golang/prometheus"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/skyhook-k8s/skyhook/api/skyhook/v1alpha1"
	"github.com/skyhook-k8s/skyhook/internal/controller"
	"github.com/skyhook-k8s/skyhook/internal/options"
	"github.com/skyhook-k8s/skyhook/test/controlplane"
	"github.com/skyhook-k8s/skyhook/test/testenv"
)

const (
	nodesVariable    = "SKYHOOK_UI_NODES"    // how many nodes the rollout has; 1,000 without it
	picturesVariable = "SKYHOOK_UI_PICTURES" // names a folder in which the test leaves the pictures of the documentation
)

var plane *controlplane.Plane

// liveCluster is a real API server with a real operator, in the middle of a rollout.
type liveCluster struct {
	*testenv.Env
	kubeconfig string
	nodes      int
}

const liveObjects = `
apiVersion: skyhook.nvidia.com/v1alpha1
kind: DeploymentPolicy
metadata: {name: racks}
spec:
  default: {budget: {percent: 10}, strategy: {fixed: {initialBatch: 100}}}
  windows: {timeZone: Europe/Berlin, open: [{schedule: 0 * * * *, duration: 1h}], blackouts: [{from: "2099-12-24", to: "2099-12-26"}]}
---
apiVersion: skyhook.nvidia.com/v1alpha1
kind: Skyhook
metadata: {name: gpu-stack}
spec:
  deploymentPolicy: racks
  nodeSelectors: {matchLabels: {pool: gpu}}
  packages:
    kernel: {version: 6.8.0, image: registry.example/packages/kernel}
    tuning: {version: 1.2.0, image: registry.example/packages/tuning}
    driver: {version: 2.0.0, image: registry.example/packages/driver, dependsOn: {kernel: 6.8.0}}
`

// startRollout starts a rollout with an operator and simulated nodes. On a tenth of them the driver hangs, and on some it fails.
func startRollout(t *testing.T, nodes int, objects string) *liveCluster {
	t.Helper()
	c := &liveCluster{Env: testenv.New(t, plane, 0), kubeconfig: plane.Kubeconfig(t), nodes: nodes}
	c.addNodes("node", "gpu")
	c.StartKubelet().SetOutcome(func(p *corev1.Pod) testenv.Outcome {
		number, _ := strconv.Atoi(strings.TrimPrefix(p.Spec.NodeName, "node-"))
		isDriver := isOf(p, "driver")
		switch {
		case isDriver && number%50 == 7:
			return testenv.Fails
		case isDriver && number%10 == 9:
			return testenv.Hangs
		}
		return testenv.Succeeds
	})
	c.runOperator()
	for _, object := range strings.Split(objects, "---\n") {
		c.Apply(object)
	}
	return c
}

// isOf reports whether a pod runs a stage of a package.
func isOf(p *corev1.Pod, name string) bool {
	return slices.ContainsFunc(p.Spec.InitContainers, func(c corev1.Container) bool { return strings.HasPrefix(c.Name, name) })
}

// runOperator runs an operator until the test ends.
func (c *liveCluster) runOperator() {
	c.Helper()
	ctx, stop := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	settings := options.Defaults()
	settings.Namespace, settings.AgentImage, settings.PauseImage = c.Namespace, "registry.example/agent:v1", "registry.example/pause:3"
	go func() {
		ended <- controller.Run(ctx, c.Config, controller.Options{
			Skyhook: settings.Skyhook(""), NodeOps: settings.NodeOps(),
			MetricsAddress: "0", ProbeAddress: "0", Log: logr.Discard(), Registry: prometheus.NewRegistry(),
		})
	}()
	c.Cleanup(func() {
		stop()
		if err := <-ended; err != nil {
			c.Errorf("the operator ended: %v", err)
		}
	})
}

// addNodes adds nodes of a pool in four zones, some of them at a time.
func (c *liveCluster) addNodes(prefix, pool string) {
	c.Helper()
	var all sync.WaitGroup
	numbers := make(chan int)
	for range 16 {
		all.Go(func() {
			for i := range numbers {
				c.AddNode(fmt.Sprintf("%s-%04d", prefix, i), map[string]string{"pool": pool, "topology.kubernetes.io/zone": fmt.Sprintf("zone-%d", i%4)})
			}
		})
	}
	for i := range c.nodes {
		numbers <- i
	}
	close(numbers)
	all.Wait()
}

// rolloutStatus is what status -o json says of a rollout.
type rolloutStatus struct {
	Nodes, Complete, InProgress, Failing int
}

// readStatus runs status.
func (c *liveCluster) readStatus() rolloutStatus {
	c.Helper()
	program, err := buildPlugin()
	c.Must(err)
	raw, err := exec.Command(program, "status", "gpu-stack", "-o", "json", "--kubeconfig", c.kubeconfig, "-n", c.Namespace).Output()
	c.Must(err)
	var s rolloutStatus
	c.Must(json.Unmarshal(raw, &s))
	return s
}

// waitUntil waits at most ten minutes: a rollout over 5,000 nodes takes several.
func waitUntil(t *testing.T, what string, holds func() bool) {
	t.Helper()
	for deadline := time.Now().Add(10 * time.Minute); !holds(); time.Sleep(20 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("after ten minutes: not %s", what)
		}
	}
}

// countCells returns how many nodes the page shows in a state.
func countCells(b *browser, state string) int {
	b.Helper()
	return evaluate[int](b, `document.querySelectorAll('.cells i.`+state+`').length`)
}

// TestLive looks at a rollout over 1,000 nodes on a real API server, as a person would.
func TestLive(t *testing.T) {
	nodes := 1000
	if text := os.Getenv(nodesVariable); text != "" {
		var err error
		if nodes, err = strconv.Atoi(text); err != nil {
			t.Fatal(err)
		}
	}
	b := startBrowser(t)
	c := startRollout(t, nodes, liveObjects)
	address, pid := serve(t, "--allow-changes", "--kubeconfig", c.kubeconfig, "-n", c.Namespace)
	t.Cleanup(func() { b.expectProblems = true }) // an open page notices that the plugin ends
	t.Run("counts", func(t *testing.T) { c.checkCounts(t, b, address) })
	t.Run("speed", func(t *testing.T) { checkSpeed(t, b, address, nodes) })
	t.Run("follows", func(t *testing.T) { c.checkFollowing(t, b, address) })
	t.Run("pages", func(t *testing.T) { checkPages(t, b, address) })
	t.Run("changes", func(t *testing.T) { c.checkChanges(t, b, address) })
	t.Run("others", func(t *testing.T) { c.checkOthers(t, b, address) })
	checkMemory(t, pid, nodes)
	b.checkRequests(address)
}

// checkCounts: the page has the counts of status, when the rollout has come to rest: all of the first batch has ended, but for nodes on which the driver hangs.
func (c *liveCluster) checkCounts(t *testing.T, b *browser, address string) {
	b.open(address)
	b.waitVisible(".cells")
	if count := evaluate[int](b, `document.querySelectorAll('.cells i').length`); count != c.nodes {
		t.Fatalf("the page shows %d nodes", count)
	}
	var shown rolloutStatus
	waitUntil(t, "at rest, with the counts of status", func() bool {
		hangs := evaluate[bool](b, `[...document.querySelectorAll('.cells i.working')].every((i) => i.dataset.n.endsWith('9'))`)
		shown = rolloutStatus{Nodes: c.nodes, Complete: countCells(b, "complete"), InProgress: countCells(b, "working"), Failing: countCells(b, "failed")}
		return hangs && shown.Complete+shown.InProgress+shown.Failing >= 100 && shown.Failing > 0 && c.readStatus() == shown
	})
	t.Logf("%+v", shown)
}

// slow is how much longer than docs/ui.md says a page may take here: the machine has other work.
const slow = 10

// checkSpeed logs what docs/ui.md says, and fails when it is far from that.
func checkSpeed(t *testing.T, b *browser, address string, nodes int) {
	for _, path := range []string{"", "rollouts/skyhook/gpu-stack", "plan"} {
		b.open("about:blank")
		b.open(address + path)
		b.waitVisible("main h1")
		time.Sleep(500 * time.Millisecond)
		paint := evaluate[float64](b, `performance.getEntriesByName('first-contentful-paint')[0].startTime`)
		size := evaluate[int](b, `performance.getEntriesByType('navigation')[0].transferSize`)
		t.Logf("/%s: first paint after %.0f ms, %d KiB", path, paint, size>>10)
		if path == "" && (paint > slow*max(300, 0.2*float64(nodes)) || size > max(300_000, 100*nodes)) {
			t.Errorf("the first paint of %d nodes takes %.0f ms and %d bytes", nodes, paint, size)
		}
	}
}

// checkMemory fails when the plugin took more memory since its start than docs/ui.md allows: 150 MiB with up to 5,000 nodes.
func checkMemory(t *testing.T, pid, nodes int) {
	m := readMemory(t, pid)
	t.Logf("%d nodes: memory of the plugin %s", nodes, m)
	if most := 150 * max(nodes, 5000) / 5000; m.peak > most {
		t.Errorf("the plugin took %d MiB with %d nodes, want at most %d MiB", m.peak, nodes, most)
	}
}

// checkFollowing: an open page shows what happens, without being loaded again.
func (c *liveCluster) checkFollowing(t *testing.T, b *browser, address string) {
	b.open(address + "?by=zone")
	b.waitVisible(".cells")
	b.run(chromedp.Evaluate(`window.mark = 1`, nil))
	waitUntil(t, "live", func() bool { return evaluate[string](b, `document.getElementById('live').textContent`) == "live" })
	if groups := evaluate[int](b, `document.querySelectorAll('.group').length`); groups != 4 {
		t.Errorf("there are %d groups, want one for each zone", groups)
	}
	name := fmt.Sprintf("node-%04d", c.nodes-1)
	state := func() string {
		return evaluate[string](b, `document.querySelector('.cells i[data-n="`+name+`"]').className`)
	}
	for _, step := range []struct{ ready, want string }{{"False", "not-ready"}, {"True", state()}} {
		patch := `{"status":{"conditions":[{"type":"Ready","status":"` + step.ready + `","reason":"Test"}]}}`
		began := time.Now()
		c.Must(c.Client.Status().Patch(t.Context(), c.GetNode(name), client.RawPatch(types.MergePatchType, []byte(patch))))
		waitUntil(t, step.want, func() bool { return state() == step.want })
		took := time.Since(began)
		t.Logf("%s: the page shows it after %s", step.want, took.Round(time.Millisecond))
		if took > slow*time.Second {
			t.Errorf("the page shows a change after %s", took)
		}
	}
	if !evaluate[bool](b, `window.mark === 1`) {
		t.Error("the page was loaded again")
	}
}

// checkPages opens every page, applies the rules of accessibility, and takes the pictures of the documentation.
func checkPages(t *testing.T, b *browser, address string) {
	for name, path := range map[string]string{
		"fleet": "?by=zone", "rollout": "rollouts/skyhook/gpu-stack", "node": "nodes/node-0007", "plan": "plan", "policies": "policies",
	} {
		b.run(
			emulation.SetEmulatedMedia().WithFeatures([]*emulation.MediaFeature{{Name: "prefers-color-scheme", Value: "light"}}),
			chromedp.EmulateViewport(1280, 900),
		)
		b.open(address + path)
		b.waitVisible("main h1")
		b.savePicture(os.Getenv(picturesVariable), "ui-"+name+".png", chromedp.CaptureScreenshot)
		b.checkAccessibility(t, name)
	}
	text := evaluate[string](b, `fetch('`+address+`nodes/node-0007').then((answer) => answer.text())`)
	if !strings.Contains(text, "driver apply") || !strings.Contains(text, "StageFailed") {
		t.Errorf("the page of a failed node does not say what failed:\n%s", text)
	}
}

// checkChanges presses a button: the page shows the command, asks, and runs it.
func (c *liveCluster) checkChanges(t *testing.T, b *browser, address string) {
	isPaused := func() bool { return c.GetSkyhook("gpu-stack").Annotations[v1alpha1.AnnotationPause] == "true" }
	b.open(address + "rollouts/skyhook/gpu-stack")
	b.click(`button[data-command*=" pause "]`)
	command := b.text("#ask-command")
	b.checkAccessibility(t, "a dialog")
	if !strings.HasPrefix(command, "kubectl skyhook pause gpu-stack") || isPaused() {
		t.Errorf("it does not ask: %q, paused %v", command, isPaused())
	}
	b.click("#ask-yes")
	waitUntil(t, "paused", isPaused)
	b.waitVisible(`button[data-command*=" resume "]`)
}

// checkOthers: a page of another server reads nothing and changes nothing, even with the address.
func (c *liveCluster) checkOthers(t *testing.T, b *browser, address string) {
	for _, path := range []string{strings.Split(address, "/")[2], strings.Split(address, "/")[2] + "/" + strings.Repeat("0", 32) + "/"} {
		answer, err := http.Get("http://" + path)
		c.Must(err)
		_ = answer.Body.Close()
		if answer.StatusCode != http.StatusForbidden {
			t.Errorf("%s without the token: %s", path, answer.Status)
		}
	}
	other := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "text/html")
		_, _ = fmt.Fprint(w, `<!doctype html><title>another page</title><link rel="icon" href="data:,"><p>another page</p>`)
	}))
	t.Cleanup(other.Close)
	b.expectProblems = true
	b.open(other.URL)
	for _, request := range []string{`fetch('` + address + `')`, `fetch('` + address + `changes', {method: 'POST', body: '{"verb":"resume","skyhook":"gpu-stack"}'})`} {
		if evaluate[bool](b, request+`.then((answer) => answer.ok, () => false)`) {
			t.Errorf("another page may %s", request)
		}
	}
	if c.GetSkyhook("gpu-stack").Annotations[v1alpha1.AnnotationPause] != "true" {
		t.Error("another page resumed the Skyhook")
	}
	b.mu.Lock()
	b.requests = b.requests[:1] // those of the other page were ours
	b.mu.Unlock()
}

const handoverObjects = `
apiVersion: skyhook.nvidia.com/v1alpha1
kind: DeploymentPolicy
metadata: {name: after-jobs}
spec:
  default: {budget: {count: 1}, strategy: {fixed: {initialBatch: 1}}}
  handover:
    - name: batch-system
      object: {apiVersion: v1, kind: ConfigMap, metadata: {name: drain-$(NODE_NAME), namespace: default}, data: {state: asked}}
      cel: object.data.state == 'drained'
      timeout: 12h
---
apiVersion: skyhook.nvidia.com/v1alpha1
kind: Skyhook
metadata: {name: gpu-stack}
spec:
  deploymentPolicy: after-jobs
  nodeSelectors: {matchLabels: {pool: gpu}}
  packages: {tuning: {version: 1.2.0, image: registry.example/packages/tuning, interrupt: {type: service, services: [multipathd]}}}
`

// TestHandover: the pages say who is asked for a node, and go on when the answer is yes.
func TestHandover(t *testing.T) {
	b := startBrowser(t)
	c := startRollout(t, 2, handoverObjects)
	address, _ := serve(t, "--kubeconfig", c.kubeconfig, "-n", c.Namespace)
	t.Cleanup(func() { b.expectProblems = true }) // an open page notices that the plugin ends
	b.open(address + "rollouts/skyhook/gpu-stack")
	waitUntil(t, "asking by an object", func() bool { return strings.Contains(b.text("#why"), "drain-node-000") }) // it asks before it exists
	why := b.text("#why")
	b.savePicture(os.Getenv(screenshotVariable), "handover.png", chromedp.CaptureScreenshot)
	for _, want := range []string{"Handover: asks batch-system", "see handover of the policy"} {
		if !strings.Contains(why, want) {
			t.Errorf("the page lacks %q:\n%s", want, why)
		}
	}
	waitUntil(t, "complete, with both answers", func() bool {
		for _, name := range []string{"drain-node-0000", "drain-node-0001"} {
			answer := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: name, Namespace: "default"}}
			c.Must(client.IgnoreNotFound(c.Client.Patch(t.Context(), answer, client.RawPatch(types.MergePatchType, []byte(`{"data":{"state":"drained"}}`)))))
		}
		return c.readStatus().Complete == 2
	})
	b.open(address + "rollouts/skyhook/gpu-stack")
	waitUntil(t, "complete", func() bool { return strings.Contains(b.text("#summary"), "2 of 2 done") })
	c.checkSoak(t, b)
	b.click("#revision-1 summary")
	b.click("#revision-1 a[data-load]")
	b.waitVisible("#revision-1 pre")
	if text := b.text("#revision-1 pre"); !strings.Contains(text, "is what the spec says") || !strings.Contains(text, "version: 1.2.0") {
		t.Errorf("the revision opens with:\n%s", text)
	}
}

// checkSoak lets nodes soak that have finished: the track of the open page says until when, of a batch and of a compartment.
func (c *liveCluster) checkSoak(t *testing.T, b *browser) {
	policy := &v1alpha1.DeploymentPolicy{ObjectMeta: metav1.ObjectMeta{Name: "after-jobs"}}
	for step, patch := range map[string]string{
		"batch": `{"spec":{"soak":"1h"}}`,
		"first": `{"spec":{"soak":"1h","default":{"after":["first"]},"compartments":[{"name":"first","selector":{"matchLabels":{"pool":"gpu"}},"budget":{"count":1}}]}}`,
	} {
		c.Must(c.Client.Patch(t.Context(), policy, client.RawPatch(types.MergePatchType, []byte(patch))))
		waitUntil(t, step+" soaks", func() bool {
			track := b.text("#track")
			return strings.Contains(track, step) && strings.Contains(track, "soaks: its nodes must stay ready until") && strings.Contains(track, "(in 5")
		})
		c.Must(c.Client.Patch(t.Context(), policy, client.RawPatch(types.MergePatchType, []byte(`{"spec":{"soak":null,"compartments":null,"default":{"after":null}}}`))))
		waitUntil(t, step+" counts", func() bool { return !strings.Contains(b.text("#track"), "soaks") })
	}
}
