// SPDX-FileCopyrightText: The Skyhook authors
// SPDX-License-Identifier: Apache-2.0

package cli_test

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"io"
	"maps"
	"net/http"
	"os"
	"path/filepath"
	"reflect"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/rogpeppe/go-internal/txtar"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/skyhook-k8s/skyhook/api/skyhook/v1alpha1"
	"github.com/skyhook-k8s/skyhook/internal/cli"
)

// uiServer is a running "kubectl skyhook ui".
type uiServer struct {
	*testing.T
	address string // without a slash at the end
}

// startUI runs the command until the test ends.
func startUI(t *testing.T, args ...string) *uiServer {
	t.Helper()
	ctx, stop := context.WithCancel(context.Background())
	out, in := io.Pipe()
	var problems bytes.Buffer
	ended := make(chan int, 1)
	go func() {
		ended <- cli.Run(ctx, cli.Line{Args: append([]string{"ui", "--no-open"}, args...), Stdin: strings.NewReader(""), Stdout: in, Stderr: &problems, Version: "v0.9.0-test"})
		_ = in.Close()
	}()
	t.Cleanup(func() {
		stop()
		if code := <-ended; code != 0 {
			t.Errorf("it ended with %d: %s", code, problems.String())
		}
	})
	line, err := bufio.NewReader(out).ReadString('\n')
	if err != nil {
		t.Fatalf("it printed no address: %v", err)
	}
	return &uiServer{t, strings.TrimSuffix(strings.TrimSpace(line), "/")}
}

// get requests a path below the first page.
func (s *uiServer) get(path, accept string) (status int, body []byte) {
	s.Helper()
	r, err := http.NewRequestWithContext(context.Background(), http.MethodGet, s.address+path, nil)
	if err != nil {
		s.Fatal(err)
	}
	r.Header.Set("Accept", accept)
	answer, err := http.DefaultClient.Do(r)
	if err != nil {
		s.Fatal(err)
	}
	defer func() { _ = answer.Body.Close() }()
	if body, err = io.ReadAll(answer.Body); err != nil {
		s.Fatal(err)
	}
	return answer.StatusCode, body
}

// getPart returns one field of the JSON behind a page.
func (s *uiServer) getPart(path, field string) any {
	s.Helper()
	status, raw := s.get(path, "application/json")
	var all map[string]any
	if err := json.Unmarshal(raw, &all); err != nil || status != http.StatusOK {
		s.Fatalf("%s: %d, %v: %s", path, status, err, raw)
	}
	part, ok := all[field]
	if !ok {
		s.Fatalf("%s has no %s: %s", path, field, raw)
	}
	return part
}

// printJSON returns what a command prints with -o json.
func printJSON(t *testing.T, args ...string) any {
	t.Helper()
	var out, problems bytes.Buffer
	line := cli.Line{Args: append(args, "-o", "json"), Stdin: strings.NewReader(""), Stdout: &out, Stderr: &problems, Version: "v0.9.0-test"}
	if code := cli.Run(context.Background(), line); code != 0 {
		t.Fatalf("%v ended with %d: %s", args, code, problems.String())
	}
	var v any
	if err := json.Unmarshal(out.Bytes(), &v); err != nil {
		t.Fatal(err)
	}
	return v
}

const (
	stuckDump   = "testdata/dumps/stuck.yaml"
	windowsDump = "testdata/dumps/windows.yaml"
)

// asPrinted returns what a command prints of a dump with -o json.
func asPrinted(t *testing.T, dump, command string) any {
	t.Helper()
	return printJSON(t, append(strings.Fields(command), "--from", dump)...)
}

// pageCommands are the commands whose JSON a page has: all of it, or one for each field.
var pageCommands = []struct {
	dump, page string
	whole      string
	fields     map[string]string
}{
	{dump: stuckDump, page: "/", whole: "status --nodes"},
	{dump: stuckDump, page: "/?rollout=base&by=none&state=failed", whole: "status base --nodes --state failed"},
	{dump: stuckDump, page: "/?q=Protected", whole: "status --nodes --search protected"},
	{dump: stuckDump, page: "/?by=zone", fields: map[string]string{"rollouts": "status", "nodes": ""}},
	{dump: stuckDump, page: "/rollouts/skyhook/base", fields: map[string]string{"status": "status base", "why": "why base", "simulation": "simulate base --steps=false"}},
	{dump: stuckDump, page: "/rollouts/skyhook/driver", fields: map[string]string{"status": "status driver", "why": "why driver", "simulation": "simulate driver --steps=false"}},
	{dump: windowsDump, page: "/rollouts/skyhook/gpu", fields: map[string]string{"status": "status gpu", "why": "why gpu", "simulation": "simulate gpu --steps=false"}},
	{dump: stuckDump, page: "/nodes/n3", whole: "node describe n3"},
	{dump: stuckDump, page: "/nodes/n3", fields: map[string]string{"why": "why n3", "name": "", "state": "", "ready": "", "cordoned": "", "status": "", "work": "", "drift": "", "holds": "", "pods": "", "events": ""}},
	{dump: stuckDump, page: "/nodes/n2", whole: "node describe n2"},
	{dump: stuckDump, page: "/plan", fields: map[string]string{"simulation": "simulate --steps=false"}},
	{dump: windowsDump, page: "/plan", fields: map[string]string{"simulation": "simulate --steps=false"}},
	{dump: windowsDump, page: "/policies", whole: "deployment-policy status"},
}

// TestUIShowsWhatCommandsPrint: the JSON behind a page is what commands print, and nothing else. Fields with an empty command are
// those of another line.
func TestUIShowsWhatCommandsPrint(t *testing.T) {
	servers := map[string]*uiServer{stuckDump: startUI(t, "--from", stuckDump), windowsDump: startUI(t, "--from", windowsDump)}
	for _, c := range pageCommands {
		got := getJSON[map[string]any](servers[c.dump], c.page)
		if c.whole != "" {
			if want := asPrinted(t, c.dump, c.whole); !reflect.DeepEqual(any(got), want) {
				t.Errorf("%s is not what %s prints:\n%v\n%v", c.page, c.whole, got, want)
			}
			continue
		}
		for field, part := range got {
			command, isKnown := c.fields[field]
			if !isKnown {
				t.Errorf("%s has %s, which no command prints", c.page, field)
			}
			if command == "" {
				continue
			}
			if want := asPrinted(t, c.dump, command); !reflect.DeepEqual(part, want) {
				t.Errorf("%s of %s is not what %s prints:\n%v\n%v", field, c.page, command, part, want)
			}
		}
		if len(got) != len(c.fields) {
			t.Errorf("%s has the fields %v", c.page, slices.Sorted(maps.Keys(got)))
		}
	}
}

// TestUIIsNotEmpty: what the pages of the dumps have in common with the commands is not nothing.
func TestUIIsNotEmpty(t *testing.T) {
	for dump, commands := range map[string]map[string][]string{
		stuckDump: {
			"status --nodes": {`"state":"failed"`, `"reason":"StageFailed"`, `"since":`, `"stage":"tuning config"`},
			"status base":    {`"packageProgress":[{"complete":3,"failed":1,"name":"tuning","version":"1.2.0","waiting":1,"working":1}]`, `"counted":[{`},
			"status driver":  {`"drains":[{"node":"n1","podsLeft":1,"podsTotal":1,"since":"2026-11-21T19:52:49Z","slowest":[{"pod":"default/web-1"`},
			"why n2":         {`"drain":{"node":"n2","podsLeft":2,"podsTotal":2,`},
			"simulate base":  {`"progress":{"batches":[{`, `"past":[{`, `"future":[{`, `"steps":[{`},
			"simulate":       {`"from":"2026-`, `"to":"2026-`},
		},
		windowsDump: {
			"simulate gpu":             {`"closed":[{"from":`},
			"deployment-policy status": {`"openSpans":[{`, `"nextChange":"2026-`, `"users":["gpu"]`},
		},
	} {
		for command, wants := range commands {
			raw, err := json.Marshal(asPrinted(t, dump, command))
			if err != nil {
				t.Fatal(err)
			}
			for _, want := range wants {
				if !strings.Contains(string(raw), want) {
					t.Errorf("%s does not print %s:\n%s", command, want, raw)
				}
			}
		}
	}
}

// uiPages are the pages of the dumps, by golden file.
var uiPages = map[string]map[string]string{
	stuckDump:   {"fleet": "/", "fleet-of-base": "/?rollout=base&by=none&state=failed", "rollout": "/rollouts/skyhook/driver", "node": "/nodes/n3", "draining-node": "/nodes/n2", "plan": "/plan"},
	windowsDump: {"policies": "/policies", "rollout-with-windows": "/rollouts/skyhook/gpu", "fleet-by-zone": "/?by=zone"},
}

// TestUIUnknownNames: a page of what does not exist names what exists.
func TestUIUnknownNames(t *testing.T) {
	s := startUI(t, "--from", stuckDump)
	for path, want := range map[string]string{
		"/rollouts/skyhook/nosuch": "there are base, driver, late", "/rollouts/nodeop/default/x": "there are base", "/nodes/nosuch": `there is no node \"nosuch\"`,
	} {
		if status, body := s.get(path, "application/json"); status != http.StatusNotFound || !strings.Contains(string(body), want) {
			t.Errorf("%s: %d: %s", path, status, body)
		}
	}
}

// TestUIPages compares what pages show with golden files.
func TestUIPages(t *testing.T) {
	for dump, pages := range uiPages {
		s := startUI(t, "--from", dump)
		for name, path := range pages {
			s.comparePage(path, filepath.Join("testdata", "ui", name+".html"))
		}
	}
}

// TestUIEnd: the end of a rollout and the end of its simulation are from the same recorded stages, and the page says from which.
func TestUIEnd(t *testing.T) {
	archive, err := txtar.ParseFile(filepath.Join("testdata", "from", "estimate.txtar"))
	if err != nil {
		t.Fatal(err)
	}
	file := filepath.Join(t.TempDir(), "cluster.yaml")
	at := slices.IndexFunc(archive.Files, func(f txtar.File) bool { return f.Name == "cluster.yaml" })
	if err := os.WriteFile(file, archive.Files[at].Data, 0o600); err != nil {
		t.Fatal(err)
	}
	s := startUI(t, "--from", file)
	status, page := s.get("/rollouts/skyhook/demo", "text/html")
	for _, want := range []string{
		`<b>Complete</b> about <time datetime="2026-11-21T12:07:00Z">2026-11-21 12:07:00 UTC</time>`,
		"complete at 2026-11-21 12:06:10 UTC if everything succeeds.", "from the recorded stages of 1 node, also of other versions: a node takes 6m10s<",
	} {
		if status != http.StatusOK || !bytes.Contains(page, []byte(want)) {
			t.Errorf("the page does not say %q:\n%s", want, page)
		}
	}
}

// comparePage compares the main part of a page with a golden file.
func (s *uiServer) comparePage(path, file string) {
	s.Helper()
	status, page := s.get(path, "text/html")
	if status != http.StatusOK {
		s.Errorf("%s: %d", path, status)
	}
	page = tokens.ReplaceAll(page, nil)
	_, page, _ = bytes.Cut(page, []byte("<main"))
	page, _, _ = bytes.Cut(page, []byte("</main>"))
	if *update {
		if err := os.WriteFile(file, page, 0o600); err != nil {
			s.Fatal(err)
		}
	}
	want, err := os.ReadFile(file)
	if err != nil {
		s.Fatal(err)
	}
	if !bytes.Equal(page, want) {
		s.Errorf("%s differs from %s: look at the difference with go test ./internal/cli -run TestUIPages -update", path, file)
	}
}

var tokens = regexp.MustCompile(`/[0-9a-f]{32}`)

// post sends a text to a path below the first page, as its own page does.
func (s *uiServer) post(path, text string) (status int, body string) {
	s.Helper()
	r, err := http.NewRequestWithContext(context.Background(), http.MethodPost, s.address+path, strings.NewReader(text))
	if err != nil {
		s.Fatal(err)
	}
	r.Header.Set("Accept", "application/json")
	r.Header.Set("Origin", "http://"+r.URL.Host)
	answer, err := http.DefaultClient.Do(r)
	if err != nil {
		s.Fatal(err)
	}
	defer func() { _ = answer.Body.Close() }()
	raw, err := io.ReadAll(answer.Body)
	if err != nil {
		s.Fatal(err)
	}
	return answer.StatusCode, string(raw)
}

// TestUIPlanOfManifest: a manifest that is dropped on the page gives the simulation of simulate -f.
func TestUIPlanOfManifest(t *testing.T) {
	s := startUI(t, "--from", stuckDump)
	const file = "testdata/reboot.yaml"
	text, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	_, raw := s.post("/plan", string(text))
	var got map[string]any
	if err := json.Unmarshal([]byte(raw), &got); err != nil {
		t.Fatalf("%v: %s", err, raw)
	}
	want := map[string]any{"simulation": asPrinted(t, stuckDump, "simulate --steps=false"), "edited": asPrinted(t, stuckDump, "simulate --steps=false -f "+file)}
	if !reflect.DeepEqual(got, want) {
		t.Errorf("the page has\n%v\nand simulate prints\n%v", got, want)
	}
	for text, want := range map[string]string{"kind: [": "the manifest", "apiVersion: v1\nkind: Pod\nmetadata: {name: x": "the manifest", " ": "the manifest has no object"} {
		if status, raw := s.post("/plan", text); status != http.StatusOK || !strings.Contains(raw, `"problem": "`) || !strings.Contains(raw, want) {
			t.Errorf("%q: %d: %s", text, status, raw)
		}
	}
}

// nextState returns the next state that a stream of events has.
func nextState(t *testing.T, events *bufio.Scanner) (state struct {
	Version int64
	Problem string
}) {
	t.Helper()
	for events.Scan() {
		if data, ok := strings.CutPrefix(events.Text(), "data: "); ok {
			if err := json.Unmarshal([]byte(data), &state); err != nil {
				t.Fatal(err)
			}
			return state
		}
	}
	t.Fatalf("the stream ended: %v", events.Err())
	return state
}

// TestUIFollows: the stream of events announces a change of the cluster, pages show it, and a lost connection is announced too.
func TestUIFollows(t *testing.T) {
	w := newTestCluster(t, 2)
	s := startUI(t, "--kubeconfig", w.file, "--operator-namespace", w.Namespace)
	r, err := http.NewRequestWithContext(t.Context(), http.MethodGet, s.address+"/events", nil)
	w.Must(err)
	answer, err := http.DefaultClient.Do(r)
	w.Must(err)
	defer func() { _ = answer.Body.Close() }()
	events := bufio.NewScanner(answer.Body)
	first := nextState(t, events)
	w.AddNode("n3", map[string]string{"pool": "gpu"})
	hasNode := func() bool { return len(s.getPart("/", "nodes").([]any)) == 3 }
	for !hasNode() {
		if next := nextState(t, events); next.Version <= first.Version || next.Problem != "" {
			t.Fatalf("after version %d comes %+v", first.Version, next)
		}
	}
	w.Must(w.proxy.Listener.Close())
	w.proxy.CloseClientConnections()
	for nextState(t, events).Problem == "" {
	}
	if status, page := s.get("/", "text/html"); status != http.StatusOK || !hasNode() {
		t.Errorf("without a connection the last view is gone: %d, %s", status, page)
	}
}

// TestUIChanges: a page changes what the commands change, with --allow-changes only.
func TestUIChanges(t *testing.T) {
	w := newTestCluster(t, 2)
	w.Apply(`
apiVersion: skyhook.nvidia.com/v1alpha1
kind: Skyhook
metadata: {name: demo}
spec:
  nodeSelectors: {matchLabels: {pool: gpu}}
  packages: {tuning: {version: 1.0.0, image: registry.example/packages/tuning}}
`)
	w.Must(w.Client.Status().Patch(t.Context(), w.GetSkyhook("demo"), client.RawPatch(types.MergePatchType,
		[]byte(`{"status":{"conditions":[{"type":"Accepted","status":"True","reason":"Accepted","message":"","lastTransitionTime":"2026-11-01T00:00:00Z"}]}}`))))
	readOnly := startUI(t, "--kubeconfig", w.file, "--operator-namespace", w.Namespace)
	if status, body := readOnly.post("/changes", `{"verb":"pause","skyhook":"demo"}`); status != http.StatusForbidden || !strings.Contains(body, "--allow-changes") {
		t.Errorf("without --allow-changes: %d: %s", status, body)
	}
	if _, page := readOnly.get("/rollouts/skyhook/demo", "text/html"); strings.Contains(string(page), "data-change") {
		t.Error("a page that is read-only offers changes")
	}
	s := startUI(t, "--kubeconfig", w.file, "--operator-namespace", w.Namespace, "--allow-changes")
	for path, command := range map[string]string{
		"/rollouts/skyhook/demo": `data-command="kubectl skyhook pause demo --operator-namespace ` + w.Namespace + `"`,
		"/nodes/n1":              `data-command="kubectl skyhook node ignore n1 --operator-namespace ` + w.Namespace + `"`,
	} {
		if _, page := s.get(path, "text/html"); !strings.Contains(string(page), command) {
			t.Errorf("%s does not offer %s:\n%s", path, command, page)
		}
	}
	for _, c := range []struct {
		change string
		status int
		want   string
	}{
		{`{"verb":"pause","skyhook":"demo"}`, http.StatusOK, `paused`},
		{`{"verb":"disable","skyhook":"demo"}`, http.StatusOK, `disabled`},
		{`{"verb":"ignore","node":"n1"}`, http.StatusOK, `ignored`},
		{`{"verb":"ignore","node":"n.*"}`, http.StatusNotFound, `there is no node`},
		{`{"verb":"rerun","skyhook":"demo","package":"tuning","node":"n2"}`, http.StatusConflict, `nothing to run again`},
		{`{"verb":"pause","skyhook":"nosuch"}`, http.StatusConflict, `nosuch`},
		{`{"verb":"delete","skyhook":"demo"}`, http.StatusNotFound, `pages cannot`},
		{`{"verb":"pause","skyhook":"demo","force":true}`, http.StatusBadRequest, `unknown field`},
	} {
		if status, body := s.post("/changes", c.change); status != c.status || !strings.Contains(body, c.want) {
			t.Errorf("%s: %d: %s", c.change, status, body)
		}
	}
	annotations := w.GetSkyhook("demo").Annotations
	if annotations[v1alpha1.AnnotationPause] != "true" || annotations[v1alpha1.AnnotationDisable] != "true" || w.GetNode("n1").Labels[v1alpha1.LabelIgnore] != "true" {
		t.Errorf("annotations %v, labels %v", annotations, w.GetNode("n1").Labels)
	}
	if labels := w.GetNode("n2").Labels; labels[v1alpha1.LabelIgnore] != "" {
		t.Errorf("an expression changed another node: %v", labels)
	}
}

// TestUIApproves: the page of a rollout offers to approve a compartment that waits for that.
func TestUIApproves(t *testing.T) {
	w := newTestCluster(t, 2)
	w.Apply(`
apiVersion: skyhook.nvidia.com/v1alpha1
kind: DeploymentPolicy
metadata: {name: careful}
spec: {default: {budget: {count: 1}, strategy: {fixed: {}}, approval: Required}}
`)
	w.Apply(`
apiVersion: skyhook.nvidia.com/v1alpha1
kind: Skyhook
metadata: {name: demo}
spec:
  deploymentPolicy: careful
  nodeSelectors: {matchLabels: {pool: gpu}}
  packages: {tuning: {version: 1.0.0, image: registry.example/packages/tuning}}
`)
	s := startUI(t, "--kubeconfig", w.file, "--operator-namespace", w.Namespace, "--allow-changes")
	command := `data-command="kubectl skyhook approve skyhook/demo default --operator-namespace ` + w.Namespace + `"`
	if _, page := s.get("/rollouts/skyhook/demo", "text/html"); !strings.Contains(string(page), command) {
		t.Errorf("the page does not offer %s:\n%s", command, page)
	}
	if status, body := s.post("/changes", `{"verb":"approve","skyhook":"skyhook/demo","compartment":"default"}`); status != http.StatusOK || !strings.Contains(body, "begins now: 1 node: n1") {
		t.Errorf("%d: %s", status, body)
	}
	if text := w.GetSkyhook("demo").Annotations[v1alpha1.AnnotationApprovals]; !strings.Contains(text, `"__default__":{"revision":"`) {
		t.Errorf("the annotation is %q", text)
	}
	if status, body := s.post("/changes", `{"verb":"approve","skyhook":"skyhook/demo","compartment":"gpu"}`); status != http.StatusConflict || !strings.Contains(body, "has no compartment gpu") {
		t.Errorf("%d: %s", status, body)
	}
}

// TestUIRefusals: a wrong port or file is an error of the command.
func TestUIRefusals(t *testing.T) {
	for _, c := range []struct{ args, want string }{
		{"--port 70000", "--port 70000 is no port"},
		{"--from " + stuckDump + "x", "reading the dump"},
		{"--allow-changes --from " + stuckDump, "--allow-changes and --from exclude each other"},
		{"--kubeconfig testdata/none --from= ", "finding the cluster"},
	} {
		var out, problems bytes.Buffer
		line := cli.Line{Args: append([]string{"ui", "--no-open"}, strings.Fields(c.args)...), Stdin: strings.NewReader(""), Stdout: &out, Stderr: &problems}
		if code := cli.Run(context.Background(), line); code != 1 || !strings.Contains(problems.String(), c.want) {
			t.Errorf("%s: exit code %d, %s", c.args, code, problems.String())
		}
	}
}
