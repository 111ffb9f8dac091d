// SPDX-FileCopyrightText: The Skyhook authors
// SPDX-License-Identifier: Apache-2.0

package docs

import (
	"bytes"
	"encoding/json"
	"flag"
	"fmt"
	"html"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/skyhook-k8s/skyhook/internal/cli"
)

var update = flag.Bool("update", false, "draw the pictures of docs/concepts.md again")

const picturesPage = "docs/concepts.md"

// picturedNodes are those of the pictures, in three zones.
const picturedNodes = 24

// A simulation is what kubectl skyhook simulate prints as JSON, as far as pictures show it.
type simulation struct {
	Rollouts []struct{ Waves []wave }
	Steps    []struct{ At, Verb, What string }
}

type wave struct {
	Group, After, Ended string
	Nodes               []string
}

// TestPictures checks that the pictures of docs/concepts.md show what the engine does with the manifests above them.
func TestPictures(t *testing.T) {
	dir, err := repositoryRoot()
	if err != nil {
		t.Fatal(err)
	}
	blocks, err := parseBlocks(dir, picturesPage)
	if err != nil {
		t.Fatal(err)
	}
	blocks = slices.DeleteFunc(blocks, func(b block) bool { return b.kind != "yaml" })
	if len(blocks) != 2 {
		t.Fatalf("%s has %d manifests, and one for each of the two pictures is expected", picturesPage, len(blocks))
	}
	for i, draw := range map[int]func(*testing.T, simulation) string{0: drawNode, 1: drawWaves} {
		file := filepath.Join(dir, "docs", "images", []string{"node.svg", "waves.svg"}[i])
		drawn := draw(t, simulate(t, blocks[i].text))
		if *update {
			if err := os.WriteFile(file, []byte(drawn), 0o644); err != nil {
				t.Fatal(err)
			}
		}
		if found, err := os.ReadFile(file); err != nil || string(found) != drawn {
			t.Errorf("%s is not what is drawn from %s: go test -C test/docs -run TestPictures -update (%v)", file, blocks[i], err)
		}
	}
}

// simulate has the engine carry out a manifest on nodes in three zones, with two pods on the first one.
func simulate(t *testing.T, manifest string) simulation {
	t.Helper()
	cluster := &strings.Builder{}
	cluster.WriteString("{apiVersion: cli.skyhook.nvidia.com/v1, kind: Dump, taken: '2026-01-05T08:00:00Z', operator: {profile: Recommended}, items: [")
	for i := range picturedNodes {
		fmt.Fprintf(cluster, "{apiVersion: v1, kind: Node, metadata: {name: %[1]s, uid: %[1]s, labels: {pool: gpu, topology.kubernetes.io/zone: %[2]c}},"+
			"status: {conditions: [{type: Ready, status: 'True'}], nodeInfo: {bootID: %[1]s}}},", nodeName(i), nodeName(i)[0])
	}
	for _, pod := range []string{"web-1", "web-2"} {
		fmt.Fprintf(cluster, "{apiVersion: v1, kind: Pod, metadata: {name: %[1]s, namespace: shop, uid: %[1]s}, spec: {nodeName: a1}, status: {phase: Running}},", pod)
	}
	cluster.WriteString("]}")
	from, objects := filepath.Join(t.TempDir(), "cluster.yaml"), filepath.Join(t.TempDir(), "objects.yaml")
	for name, text := range map[string]string{from: cluster.String(), objects: manifest} {
		if err := os.WriteFile(name, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	out, errs := &bytes.Buffer{}, &bytes.Buffer{}
	command := cli.Command(cli.Line{Stdin: &bytes.Buffer{}, Stdout: out, Stderr: errs, Version: "v0"})
	command.SetArgs([]string{
		"simulate", "--from", from, "-f", objects, "--approve", "-o", "json", "--node", "a1", "--pod", "25s", "--stage", "30s", "--duration", "kernel interrupt=3m",
	})
	if err := command.ExecuteContext(t.Context()); err != nil {
		t.Fatal(err, errs)
	}
	var s simulation
	if err := json.Unmarshal(out.Bytes(), &s); err != nil {
		t.Fatal(err)
	}
	return s
}

// nodeName names nodes so that they are ordered by zone: a1 to a8, b1 to b8, c1 to c8.
func nodeName(i int) string {
	return fmt.Sprintf("%c%d", 'a'+i/(picturedNodes/3), i%(picturedNodes/3)+1)
}

const pictureWidth = 440 // wide enough for words of 15 points, and readable on a screen of 390

// svg frames what was drawn. Its background is its own, so that it can be read on pages of any colour.
func svg(title string, height int, drawn string) string {
	return fmt.Sprintf(`<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 %[1]d %[2]d" width="%[1]d" height="%[2]d" role="img" font-family="system-ui, sans-serif" font-size="15">
<title>%[3]s</title>
<style>
.page { fill: #ffffff; stroke: #d0d7de } text { fill: #1f2328 } .minor { fill: #59636e; font-size: 13px } .free { fill: #1a7f37 } .held { fill: #bf8700 } .down { fill: #cf222e }
.waits { fill: #eaeef2 } .works { fill: #bf8700 } .done { fill: #1a7f37 }
@media (prefers-color-scheme: dark) {
.page { fill: #0d1117; stroke: #3d444d } text { fill: #f0f6fc } .minor { fill: #9198a1 } .free { fill: #3fb950 } .held { fill: #d29922 } .down { fill: #f85149 }
.waits { fill: #2f3742 } .works { fill: #d29922 } .done { fill: #3fb950 }
}
</style>
<rect class="page" x="0.5" y="0.5" width="%[4]d" height="%[5]d" rx="6"/>
%[6]s</svg>
`, pictureWidth, height, html.EscapeString(title), pictureWidth-1, height-1, drawn)
}

func text(x, y int, class, words string) string {
	return fmt.Sprintf("<text x=\"%d\" y=\"%d\" class=%q>%s</text>\n", x, y, class, html.EscapeString(words))
}

func rect(x, y, width, height int, class string) string {
	return fmt.Sprintf("<rect x=\"%d\" y=\"%d\" width=\"%d\" height=\"%d\" rx=\"2\" class=%q/>\n", x, y, width, height, class)
}

// clock shows a duration such as 3m5s as 3:05.
func clock(t *testing.T, duration string) string {
	t.Helper()
	d, err := time.ParseDuration(duration)
	if err != nil {
		t.Fatal(err)
	}
	return fmt.Sprintf("%d:%02d", int(d.Minutes()), int(d.Seconds())%60)
}

// A nodeStep is how a step is shown: what it is, what it means, and what the node is from then on.
type nodeStep struct{ what, meaning, state string }

var nodeSteps = map[string]nodeStep{
	"admit":                     {"admitted", "the node takes a place in the budget", "free"},
	"hold":                      {"cordon", "no new pods come to the node", "held"},
	"evict shop/web-1":          {"drain", "pods are evicted, as their budgets allow", "held"},
	"run kernel apply":          {"stage apply, and its check", "the package installs something", "held"},
	"run kernel config":         {"stage config, and its check", "the package applies its configMap", "held"},
	"run kernel interrupt":      {"interrupt: reboot", "done when the boot ID is new and the node ready", "down"},
	"run kernel post-interrupt": {"stage post-interrupt, and its check", "the package looks at the effect of the reboot", "held"},
	"prove":                     {"proof", "ready, with its devices and DaemonSet pods", "held"},
	"release":                   {"uncordon", "unless somebody else holds the node", "free"},
	"retire":                    {"complete", "the place in the budget is free for the next node", "free"},
}

// drawNode draws the steps of the node a1, one below the other, beside what the node is.
func drawNode(t *testing.T, s simulation) string {
	const top, row = 58, 46
	drawn, rows := text(16, 30, "", "One node, from cordon to uncordon"), 0
	for _, step := range s.Steps {
		key := strings.TrimSpace(step.Verb + " " + step.What)
		shown, isShown := nodeSteps[key]
		if !isShown && step.Verb != "record" && step.Verb != "sweep" && key != "evict shop/web-2" {
			t.Errorf("the picture of a node does not show %q", key)
		}
		if isShown {
			y := top + rows*row
			drawn += text(16, y+14, "minor", clock(t, step.At)) + rect(62, y, 10, row-3, shown.state) + text(86, y+14, "", shown.what) + text(86, y+33, "minor", shown.meaning)
			rows++
		}
	}
	if rows != len(nodeSteps) {
		t.Errorf("%d of %d steps happened", rows, len(nodeSteps))
	}
	y := top + rows*row + 12
	for i, state := range []string{"free schedulable", "held cordoned", "down rebooting"} {
		class, words, _ := strings.Cut(state, " ")
		drawn += rect(62+i*120, y, 10, 14, class) + text(62+i*120+18, y+12, "minor", words)
	}
	return svg("One node, from cordon to uncordon: a table of steps with their times", y+32, drawn)
}

// drawWaves draws a row of all nodes for each wave.
func drawWaves(t *testing.T, s simulation) string {
	const left, top, row, cell = 128, 76, 30, 12
	drawn, y := text(16, 30, "", "A rollout, from wave to wave"), top
	for zone := range 3 {
		drawn += text(left+zone*(picturedNodes/3*cell+6), 58, "minor", fmt.Sprintf("zone %c", 'a'+zone))
	}
	complete := map[string]bool{}
	waves := s.Rollouts[0].Waves
	for i, w := range waves {
		name := w.Group
		if w.Group == "default" {
			name = fmt.Sprintf("batch %d", i)
		}
		if i == 1 {
			drawn += text(16, y+12, "minor", clock(t, waves[0].Ended)) + text(left, y+12, "minor", "soak time, then your approval")
			y += row
		}
		drawn += text(16, y+12, "minor", clock(t, w.After)) + text(62, y+12, "minor", name)
		for n := range picturedNodes {
			class := "waits"
			switch name := nodeName(n); {
			case slices.Contains(w.Nodes, name):
				class = "works"
			case complete[name]:
				class = "done"
			}
			drawn += rect(left+n*cell+n/(picturedNodes/3)*6, y, cell-2, 16, class)
		}
		for _, name := range w.Nodes {
			complete[name] = true
		}
		y += row
	}
	if len(complete) != picturedNodes {
		t.Errorf("%d of %d nodes are complete", len(complete), picturedNodes)
	}
	drawn += text(16, y+12, "minor", clock(t, waves[len(waves)-1].Ended)) + text(62, y+12, "minor", "all nodes are complete")
	y += row
	for i, state := range []string{"waits waiting", "works in progress", "done complete"} {
		class, words, _ := strings.Cut(state, " ")
		drawn += rect(62+i*120, y, cell-2, 16, class) + text(62+i*120+18, y+13, "minor", words)
	}
	return svg("A rollout, from wave to wave: each row shows which of 24 nodes wait, work and are complete", y+36, drawn)
}
