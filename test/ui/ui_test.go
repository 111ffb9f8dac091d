// SPDX-FileCopyrightText: The Skyhook authors
// SPDX-License-Identifier: Apache-2.0

// Package ui opens the pages of kubectl skyhook ui in a browser.
package ui

import (
	"bufio"
	"flag"
	"fmt"
	"io"
	stdlog "log"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/chromedp/cdproto/emulation"
	"github.com/chromedp/cdproto/input"
	"github.com/chromedp/chromedp"
	"github.com/chromedp/chromedp/kb"
	"github.com/go-logr/logr"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/log"

	"github.com/skyhook-k8s/skyhook/test/controlplane"
	"github.com/skyhook-k8s/skyhook/test/testenv"
)

const (
	repository = "../.."
	dumps      = repository + "/internal/cli/testdata/dumps/"
)

// screenshotVariable names a folder in which the test leaves what the browser showed.
const screenshotVariable = "SKYHOOK_SCREENSHOTS"

// buildPlugin builds the plugin as it is released, and returns its program: how large that is belongs to what is measured.
var buildPlugin = sync.OnceValues(func() (string, error) {
	dir, err := os.MkdirTemp("", "skyhook-ui")
	if err != nil {
		return "", err
	}
	program := filepath.Join(dir, "kubectl-skyhook")
	build := exec.Command("go", "build", "-trimpath", "-ldflags", "-s -w", "-o", program, "./cmd/kubectl-skyhook")
	build.Dir, build.Env = repository, append(os.Environ(), "CGO_ENABLED=0")
	if text, err := build.CombinedOutput(); err != nil {
		return "", fmt.Errorf("building the plugin: %w: %s", err, text)
	}
	return program, nil
})

func TestMain(m *testing.M) {
	flag.Parse()
	log.SetLogger(logr.Discard())
	code := controlplane.Main(m, &plane, controlplane.Options{CRDs: []string{repository + "/chart/files/crds"}})
	if program, err := buildPlugin(); err == nil {
		_ = os.RemoveAll(filepath.Dir(program))
	}
	os.Exit(code)
}

// serveDump shows a dump until the test ends, and returns the address of the first page.
func serveDump(t *testing.T, file string) string {
	t.Helper()
	address, _ := serve(t, "--from", file)
	return address
}

// serve runs kubectl skyhook ui until the test ends, and returns the address of the first page and the number of the process.
func serve(t *testing.T, args ...string) (address string, pid int) {
	t.Helper()
	program, err := buildPlugin()
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command(program, append([]string{"ui", "--no-open"}, args...)...)
	cmd.Stderr = os.Stderr // what it warns of
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = cmd.Process.Signal(os.Interrupt)
		_ = cmd.Wait()
	})
	line, err := bufio.NewReader(out).ReadString('\n')
	if err != nil {
		t.Fatal(err)
	}
	return strings.TrimSpace(line), cmd.Process.Pid
}

// writeLargeDump writes a dump with this many nodes, of which a tenth are not ready.
func writeLargeDump(t *testing.T, nodes int) string {
	t.Helper()
	raw, err := os.ReadFile(dumps + "windows.yaml")
	if err != nil {
		t.Fatal(err)
	}
	text := strings.Builder{}
	text.Write(raw)
	for i := range nodes {
		ready := "True"
		if i%10 == 3 {
			ready = "False"
		}
		fmt.Fprintf(&text, "- {apiVersion: v1, kind: Node, metadata: {name: node-%04d, uid: 44444444-0000-4000-8000-%012d, creationTimestamp: \"2026-11-01T00:00:00Z\", "+
			"labels: {pool: gpu, topology.kubernetes.io/zone: zone-%d}}, status: {conditions: [{type: Ready, status: %q, lastTransitionTime: \"2026-11-01T00:00:00Z\"}]}}\n",
			i, i, i%4, ready)
	}
	file := filepath.Join(t.TempDir(), "large.yaml")
	if err := os.WriteFile(file, []byte(text.String()), 0o600); err != nil {
		t.Fatal(err)
	}
	return file
}

// pages are paths below the first page, by name.
var pages = map[string]struct{ dump, path string }{
	"fleet": {"stuck.yaml", ""}, "rollout": {"stuck.yaml", "rollouts/skyhook/base"}, "waiting": {"stuck.yaml", "rollouts/skyhook/driver"},
	"node": {"stuck.yaml", "nodes/n3"}, "held": {"stuck.yaml", "nodes/n2"}, "filtered": {"stuck.yaml", "?rollout=driver&state=draining&by=none"}, "nothing": {"stuck.yaml", "?q=nosuch"},
	"error": {"stuck.yaml", "nodes/nosuch"}, "plan": {"stuck.yaml", "plan"}, "packages": {"windows.yaml", "rollouts/skyhook/gpu"}, "policies": {"windows.yaml", "policies"},
}

// TestAccessibility opens every page in light and dark, on a telephone and on a wall, and applies the rules of checks.js and of axe-core.
func TestAccessibility(t *testing.T) {
	t.Parallel()
	b := startBrowser(t)
	b.expectProblems = true // the page of an error has its status
	addresses := map[string]string{"stuck.yaml": serveDump(t, dumps+"stuck.yaml"), "windows.yaml": serveDump(t, dumps+"windows.yaml")}
	for name, page := range pages {
		for _, scheme := range []string{"light", "dark"} {
			for _, width := range []int64{360, 1280, 3840} {
				b.run(
					emulation.SetEmulatedMedia().WithFeatures([]*emulation.MediaFeature{{Name: "prefers-color-scheme", Value: scheme}}),
					chromedp.EmulateViewport(width, 900),
				)
				b.open(addresses[page.dump] + page.path)
				b.waitVisible("main h1")
				b.savePicture(os.Getenv(screenshotVariable), fmt.Sprintf("%s-%s-%d.png", name, scheme, width),
					func(picture *[]byte) chromedp.Action { return chromedp.FullScreenshot(picture, 100) })
				b.checkAccessibility(t, fmt.Sprintf("%s, %s, %d pixels", name, scheme, width))
			}
		}
	}
	b.checkRequests(addresses["stuck.yaml"], addresses["windows.yaml"])
}

// TestKeyboard moves over the nodes with arrow keys and opens one.
func TestKeyboard(t *testing.T) {
	t.Parallel()
	b := startBrowser(t)
	b.open(serveDump(t, dumps+"stuck.yaml"))
	b.press(".cells", kb.ArrowRight+kb.ArrowRight+kb.ArrowRight)
	tip := b.text("#tip")
	b.press(".cells", kb.Enter)
	b.waitVisible("#work")
	at := evaluate[string](b, `location.href`)
	if !strings.HasSuffix(at, "/nodes/n3") || !strings.Contains(tip, "n3 failed") || !strings.Contains(tip, "base: tuning config") || !strings.Contains(tip, "StageFailed") {
		t.Errorf("it says %q and opens %s", tip, at)
	}
}

// TestKeys finds a node and goes through the rows of its page, without a pointer.
func TestKeys(t *testing.T) {
	t.Parallel()
	b := startBrowser(t)
	b.open(serveDump(t, dumps+"stuck.yaml"))
	b.press("body", "/")
	b.waitFor(`document.activeElement.id === 'find'`)
	b.run(chromedp.Evaluate(`document.activeElement.value = ''`, nil)) // which a key of a real keyboard does not write
	b.press("#find", "n3")
	b.waitFor(`[...document.querySelectorAll('#found a')].map((a) => a.textContent.slice(0, 2)).join() === 'n3'`)
	b.press("#find", kb.ArrowDown+kb.Enter)
	b.waitVisible("#work")
	b.press("body", "j")
	b.press(":focus", kb.Enter)
	b.waitVisible("#track")
	at := evaluate[string](b, `location.pathname.slice(34)`)
	b.press("body", kb.Escape)
	b.waitVisible("#work")
	if back := evaluate[string](b, `location.pathname.slice(34)`); at != "rollouts/skyhook/base" || back != "nodes/n3" {
		t.Errorf("it opens %s, and goes back to %s", at, back)
	}
}

// TestFilters types into the filter: the page follows without a button, and so does its address.
func TestFilters(t *testing.T) {
	t.Parallel()
	b := startBrowser(t)
	b.open(serveDump(t, dumps+"stuck.yaml"))
	b.press(".filters input", "StageFailed")
	b.waitFor(`document.querySelectorAll('.cells i').length === 1`)
	b.choose(".filters select[name=by]", "rollout")
	b.waitFor(`[...document.querySelectorAll('.group h3')].map((h) => h.firstChild.data.trim()).join() === 'base'`)
	if query := evaluate[string](b, `location.search`); query != "?q=StageFailed&by=rollout" {
		t.Errorf("the address has %s", query)
	}
}

// TestTimes: times are those of the reader, with how far they are; the title has UTC.
func TestTimes(t *testing.T) {
	t.Parallel()
	b := startBrowser(t)
	b.run(emulation.SetTimezoneOverride("Asia/Tokyo"), emulation.SetLocaleOverride().WithLocale("de-DE"))
	b.open(serveDump(t, dumps+"windows.yaml") + "policies")
	t.Cleanup(func() { b.expectProblems = true }) // the browser may ask for the icon when the plugin has ended
	opens := evaluate[string](b, `document.querySelector('#policy-nights time').outerHTML`)
	for _, want := range []string{"06:00 (in 9h)", `title="2026-11-23 21:00:00 UTC"`} {
		if !strings.Contains(opens, want) {
			t.Errorf("it lacks %s: %s", want, opens)
		}
	}
}

// TestPointer hovers over a node: the page says what it does, and no more when the pointer leaves.
func TestPointer(t *testing.T) {
	t.Parallel()
	b := startBrowser(t)
	b.open(serveDump(t, dumps+"stuck.yaml"))
	x, y := b.center(".cells i[data-n=n3]")
	b.run(chromedp.MouseEvent(input.MouseMoved, x, y))
	tip := b.text("#tip")
	if !strings.Contains(tip, "n3 failed") || !strings.Contains(tip, "StageFailed") {
		t.Errorf("over n3 it says %q", tip)
	}
	b.run(chromedp.MouseEvent(input.MouseMoved, 2, 2))
	b.waitFor(`!` + element("#tip") + `.checkVisibility()`)
}

// TestDrains: the page of a rollout lists the nodes that are drained, and that of a node says what keeps its pods.
func TestDrains(t *testing.T) {
	t.Parallel()
	b := startBrowser(t)
	b.open(serveDump(t, dumps+"stuck.yaml") + "rollouts/skyhook/driver")
	drains := b.text("#drains > ul > li:nth-child(2)")
	b.click("#drains > ul > li:nth-child(2) a")
	b.waitVisible("#why .drain")
	why := b.text("#why")
	for text, wants := range map[string][]string{
		drains: {"n2", "2 of 2", "default/train ProtectedPod: must not be interrupted", "default/web-2 PodDisruptionBudget"},
		why:    {"2 of 2 pods left, draining for ", "default/train ProtectedPod: must not be interrupted"},
	} {
		for _, want := range wants {
			if !strings.Contains(text, want) {
				t.Errorf("the page does not say %q:\n%s", want, text)
			}
		}
	}
}

// dropFile drops a file on the page, as a browser does it with one from the desktop.
const dropFile = `((name, text) => {
  const data = new DataTransfer();
  data.items.add(new File([text], name));
  const at = document.getElementById('drop');
  for (const type of ['dragenter', 'dragover', 'drop']) {
    at.dispatchEvent(new DragEvent(type, {dataTransfer: data, bubbles: true, cancelable: true}));
  }
})`

// TestDroppedManifest shows the plan before and after a manifest that is chosen, and one that is dropped.
func TestDroppedManifest(t *testing.T) {
	t.Parallel()
	b := startBrowser(t)
	file, err := filepath.Abs(repository + "/internal/cli/testdata/reboot.yaml")
	if err != nil {
		t.Fatal(err)
	}
	raw, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	address := serveDump(t, dumps+"stuck.yaml") + "plan"
	for name, give := range map[string]func(){
		"chosen":  func() { b.chooseFile("#drop input", file) },
		"dropped": func() { b.run(chromedp.Evaluate(fmt.Sprintf("%s('reboot.yaml', %q)", dropFile, raw), nil)) },
	} {
		b.open(address)
		b.waitVisible(".gantt")
		before := b.text("#plan")
		give()
		b.waitVisible("#plan section:nth-of-type(2)")
		after := b.text("#plan")
		if strings.Contains(before, "With the manifest") || !strings.Contains(after, "With the manifest") || !strings.Contains(after, "Skyhook driver:") {
			t.Errorf("%s: before:\n%s\nafter:\n%s", name, before, after)
		}
	}
}

// line passes requests on to the plugin until it is cut.
type line struct {
	server  *httptest.Server
	isCut   atomic.Bool
	streams atomic.Int32 // of events that are open
	loads   atomic.Int32 // of the first page
}

// startLine returns a line to an address, and the address at its other end.
func startLine(t *testing.T, to string) (l *line, address string) {
	t.Helper()
	target, err := url.Parse(to)
	if err != nil {
		t.Fatal(err)
	}
	l = &line{}
	pass := &httputil.ReverseProxy{
		FlushInterval: -1, ErrorLog: stdlog.New(io.Discard, "", 0),
		Rewrite: func(r *httputil.ProxyRequest) {
			r.Out.URL.Scheme, r.Out.URL.Host, r.Out.Host = "http", target.Host, target.Host
		},
	}
	l.server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if l.isCut.Load() {
			panic(http.ErrAbortHandler)
		}
		switch {
		case strings.HasSuffix(r.URL.Path, "/events"):
			l.streams.Add(1)
			defer l.streams.Add(-1)
		case r.URL.Path == target.Path:
			l.loads.Add(1)
		}
		pass.ServeHTTP(w, r)
	}))
	t.Cleanup(func() {
		l.cut()
		l.server.Close()
	})
	return l, l.server.URL + target.Path
}

func (l *line) cut() {
	l.isCut.Store(true)
	l.server.CloseClientConnections()
}

// TestDisconnected: a page says that the plugin does not answer, and catches up by itself when it does again.
func TestDisconnected(t *testing.T) {
	b := startBrowser(t)
	c := &liveCluster{Env: testenv.New(t, plane, 0), kubeconfig: plane.Kubeconfig(t), nodes: 2}
	c.addNodes("node", "gpu")
	direct, _ := serve(t, "--kubeconfig", c.kubeconfig, "-n", c.Namespace)
	line, address := startLine(t, direct)
	live := func() string { return evaluate[string](b, `document.getElementById('live').textContent`) }
	b.open(address)
	b.waitVisible(".cells")
	b.run(chromedp.Evaluate(`window.mark = 1`, nil))
	waitUntil(t, "live", func() bool { return live() == "live" })
	b.expectProblems = true // requests that fail are on the console
	line.cut()
	waitUntil(t, "disconnected", func() bool { return strings.HasPrefix(live(), "disconnected since ") })
	c.AddNode("late", map[string]string{"pool": "gpu"})
	time.Sleep(time.Second)
	if evaluate[bool](b, `document.querySelector('.cells i[data-n=late]') !== null`) {
		t.Error("a page without a connection shows a new node")
	}
	line.isCut.Store(false)
	waitUntil(t, "caught up", func() bool {
		return live() == "live" && evaluate[bool](b, `document.querySelector('.cells i[data-n=late]') !== null`)
	})
	if !evaluate[bool](b, `window.mark === 1`) {
		t.Error("the page was loaded again")
	}
}

// TestHiddenPage: a page that nobody sees follows nothing, and catches up when it is seen again. One that is seen loads what changes all the
// time once in a second, and shows the last change.
func TestHiddenPage(t *testing.T) {
	b := startBrowser(t)
	c := &liveCluster{Env: testenv.New(t, plane, 0), kubeconfig: plane.Kubeconfig(t), nodes: 2}
	c.addNodes("node", "gpu")
	direct, _ := serve(t, "--kubeconfig", c.kubeconfig, "-n", c.Namespace)
	line, address := startLine(t, direct)
	t.Cleanup(func() { b.expectProblems = true }) // an open page notices that the plugin ends
	b.open(address)
	b.waitVisible(".cells")
	waitUntil(t, "followed", func() bool { return line.streams.Load() == 1 })
	setHidden := func(hidden bool) {
		b.run(chromedp.Evaluate(fmt.Sprintf(`Object.defineProperty(document, 'hidden', {value: %v, configurable: true}); document.dispatchEvent(new Event('visibilitychange'))`, hidden), nil))
	}
	setHidden(true)
	waitUntil(t, "no longer followed", func() bool { return line.streams.Load() == 0 })
	loads := line.loads.Load()
	c.AddNode("late", map[string]string{"pool": "gpu"})
	time.Sleep(1500 * time.Millisecond) // longer than a page waits before it loads again
	if n := line.loads.Load() - loads; n > 0 {
		t.Errorf("a page that nobody sees was loaded %d times", n)
	}
	setHidden(false)
	b.waitFor(`document.querySelector('.cells i[data-n=late]') !== null`)
	if n := line.streams.Load(); n != 1 {
		t.Errorf("it follows %d streams", n)
	}

	loads, began := line.loads.Load(), time.Now()
	for i := range 30 {
		ready := []string{"True", "False"}[i%2]
		c.Must(c.Client.Status().Patch(t.Context(), c.GetNode("late"), client.RawPatch(types.MergePatchType, []byte(`{"status":{"conditions":[{"type":"Ready","status":"`+ready+`"}]}}`))))
		time.Sleep(100 * time.Millisecond)
	}
	b.waitFor(`document.querySelector('.cells i[data-n=late]').className === 'not-ready'`)
	took := time.Since(began)
	time.Sleep(1500 * time.Millisecond)
	if n := line.loads.Load() - loads; n < 2 || int(n) > int(took.Seconds())+3 {
		t.Errorf("it was loaded %d times in %s of changes", n, took)
	}
	if state := evaluate[string](b, `document.querySelector('.cells i[data-n=late]').className`); state != "not-ready" {
		t.Errorf("the page ends with %s", state)
	}
}

// scrollTimes scrolls the page and returns the times between frames in milliseconds.
const scrollTimes = `new Promise((resolve) => {
  const times = [];
  let last = performance.now();
  const step = () => {
    const now = performance.now();
    times.push(now - last);
    last = now;
    scrollBy(0, 40);
    times.length < 120 ? requestAnimationFrame(step) : resolve(times.slice(1).sort((a, b) => a - b));
  };
  requestAnimationFrame(step);
})`

// TestLargeFleet opens a fleet of 5,000 nodes, filters it, and logs what docs/ui.md says about its speed.
func TestLargeFleet(t *testing.T) {
	b := startBrowser(t)
	address, pid := serve(t, "--from", writeLargeDump(t, 5000))
	b.run(chromedp.EmulateViewport(1280, 900))
	b.open(address)
	b.waitVisible(".cells")
	if count := evaluate[int](b, `document.querySelectorAll('.cells i').length`); count != 5003 {
		t.Errorf("the page shows %d nodes, want 5003", count)
	}
	frames := evaluate[[]float64](b, scrollTimes)
	t.Logf("first paint after %.0f ms, page of %d KiB, %d frames of a scroll: median %.1f ms, 95th percentile %.1f ms",
		evaluate[float64](b, `performance.getEntriesByName('first-contentful-paint')[0].startTime`),
		evaluate[int](b, `performance.getEntriesByType('navigation')[0].transferSize`)>>10, len(frames), frames[len(frames)/2], frames[len(frames)*95/100])

	// a choice applies with all filters as soon as it is made
	b.press(".filters input[name=q]", "node-00")
	b.choose("select[name=state]", "not-ready")
	b.waitVisible(".legend a[aria-current]")
	b.choose("select[name=by]", "zone")
	b.waitFor(`Array.from(document.querySelectorAll('h3')).some((h) => h.textContent.includes('zone-3'))`)
	b.waitFor(`location.search.includes('by=zone')`)
	at := evaluate[string](b, `location.href`)
	if count := evaluate[int](b, `document.querySelectorAll('.cells i').length`); count != 10 {
		t.Errorf("%s shows %d nodes, want 10", at, count)
	}
	u, err := url.Parse(at)
	if err != nil || u.Query().Get("state") != "not-ready" || u.Query().Get("by") != "zone" || u.Query().Get("q") != "node-00" {
		t.Errorf("the address does not say what is shown: %s", at)
	}
	for _, path := range []string{"rollouts/skyhook/gpu", "plan"} {
		b.open(address + path)
		b.waitVisible("main h1")
	}
	t.Logf("memory of the plugin with a dump of 5,000 nodes: %s", readMemory(t, pid))
	b.checkRequests(address)
}

// memory is what Linux says of the memory of a process, in MiB.
type memory struct {
	own  int // RssAnon: now, without the pages of its program
	peak int // VmHWM: the highest so far, with them
}

func (m memory) String() string {
	return fmt.Sprintf("%d MiB, at most %d MiB with its program", m.own, m.peak)
}

func readMemory(t *testing.T, pid int) memory {
	t.Helper()
	status, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	if err != nil {
		t.Fatal(err)
	}
	read := func(name string) int {
		_, rest, _ := strings.Cut(string(status), "\n"+name+":")
		kib := 0
		if _, err := fmt.Sscanf(rest, "%d kB", &kib); err != nil {
			t.Fatalf("reading %s: %v", name, err)
		}
		return kib >> 10
	}
	return memory{read("RssAnon"), read("VmHWM")}
}
