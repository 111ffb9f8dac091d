// SPDX-FileCopyrightText: The Skyhook authors
// SPDX-License-Identifier: Apache-2.0

package skyhook

import (
	"bytes"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/yaml"

	"github.com/skyhook-k8s/skyhook/api/skyhook/v1alpha1"
	"github.com/skyhook-k8s/skyhook/internal/rollout"
	"github.com/skyhook-k8s/skyhook/internal/skyhook/plan"
	"github.com/skyhook-k8s/skyhook/internal/skyhook/podstate"
)

var update = flag.Bool("update", false, "write the golden files anew; read the difference")

func golden(t *testing.T, path, got string) {
	t.Helper()
	if *update {
		if err := os.WriteFile(path, []byte(got), 0o644); err != nil {
			t.Fatal(err)
		}
		return
	}
	want, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if string(want) != got {
		t.Errorf("%s differs from what came out; -update writes it anew. It is now\n%s", path, got)
	}
}

// read returns a test cluster with the Skyhooks, policies and nodes of a file.
func read(t *testing.T, path string) *testCluster {
	t.Helper()
	raw, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	w := newTestCluster(t)
	for _, doc := range bytes.Split(raw, []byte("\n---\n")) {
		var kind struct {
			Kind string `json:"kind"`
		}
		if err := yaml.Unmarshal(doc, &kind); err != nil {
			t.Fatal(err)
		}
		switch kind.Kind {
		case "Skyhook":
			w.apply(string(doc))
		case "DeploymentPolicy":
			w.policy = &v1alpha1.DeploymentPolicy{}
			if err := yaml.UnmarshalStrict(doc, w.policy); err != nil {
				t.Fatal(err)
			}
		case "Node":
			var n corev1.Node
			if err := yaml.UnmarshalStrict(doc, &n); err != nil {
				t.Fatal(err)
			}
			made := w.addNode(n.Name)
			for key, value := range n.Labels {
				made.Labels[key] = value
			}
			for key, value := range n.Annotations {
				made.Annotations[key] = value
			}
			made.Spec = n.Spec
		default:
			t.Fatalf("%s: what is a %q", path, kind.Kind)
		}
	}
	return w
}

// TestCompile compiles testdata/golden/*.yaml into *.rollout.txt.
func TestCompile(t *testing.T) {
	files, err := filepath.Glob("testdata/golden/*.yaml")
	if err != nil || len(files) == 0 {
		t.Fatal(err, files)
	}
	for _, path := range files {
		if strings.Contains(path, ".pod.") || strings.Contains(path, ".status.") {
			continue
		}
		t.Run(filepath.Base(path), func(t *testing.T) {
			w := read(t, path)
			var b strings.Builder
			for _, s := range w.skyhooks {
				c := w.compile(s)
				r := c.Rollout
				fmt.Fprintf(&b, "%s priority=%d barrier=%v serial=%v required=%v autotaint=%v drain=%v/%s\n", r.Ref, r.Priority, r.Barrier, r.Serial, r.Taint.Required, r.Taint.NewNodes, r.Drain.Timeout, r.Drain.OnTimeout)
				for _, p := range c.Problems {
					fmt.Fprintf(&b, "problem %s refuses=%v %s: %s\n", p.Reason, p.Refuses, p.Field, p.Text)
				}
				for _, g := range c.Groups {
					fmt.Fprintf(&b, "group %s ledger=%s limit=%d pace=%+v reset=%v\n", g.Ref, g.Ledger, g.Limit, g.Pace, g.Reset)
				}
				for _, t := range r.Targets {
					fmt.Fprintf(&b, "target %s in %s\n", t.Node, t.Group)
				}
				b.WriteString(formatRollout(c))
			}
			golden(t, strings.TrimSuffix(path, ".yaml")+".rollout.txt", b.String())
		})
	}
}

// TestPods renders the pods of every stage of the worked example: a Skyhook with config, env, secrets, resources, an
// interrupt, and an uninstall with a definition that the spec no longer has.
func TestPods(t *testing.T) {
	w := read(t, "testdata/golden/worked-example.yaml")
	w.config.ImagePullSecret = "pull"
	made := map[string]*corev1.Pod{}
	note := func() {
		for _, p := range w.pods {
			tag, _ := podstate.ReadPodAnnotation(p)
			made[tag.Name+"-"+string(tag.Stage)] = p.DeepCopy()
		}
	}
	s := w.skyhooks[0]
	for range 60 {
		w.now = w.now.Add(10e9)
		c := w.compile(s)
		for i := range c.Rollout.Targets {
			w.advance(c, s, c.Rollout.Targets[i])
		}
		note()
	}
	delete(s.Spec.Packages, "kernel")
	delete(s.Spec.Packages, "agentd")
	s.Generation++
	for range 20 {
		c := w.compile(s)
		w.advance(c, s, c.Rollout.Targets[0])
		note()
	}
	for _, name := range []string{"kernel-apply", "agentd-config", "kernel-interrupt", "kernel-post-interrupt", "kernel-uninstall", "kernel-uninstall-interrupt"} {
		if made[name] == nil {
			t.Fatalf("no pod was made for %s", name)
		}
		made[name].Status, made[name].UID = corev1.PodStatus{}, ""
		raw, err := yaml.Marshal(made[name])
		if err != nil {
			t.Fatal(err)
		}
		golden(t, "testdata/golden/"+name+".pod.yaml", string(raw))
	}
	var b strings.Builder
	for _, name := range plan.SortedNames(w.maps) {
		cm := w.maps[name]
		fmt.Fprintf(&b, "%s labels=%v immutable=%v\n", name, cm.Labels, cm.Immutable != nil)
		for _, key := range plan.SortedNames(cm.Data) {
			fmt.Fprintf(&b, "  %s: %s\n", key, cm.Data[key])
		}
	}
	c := w.compile(s)
	meta := c.NodeMetadata(c.clusterNodes[0])
	fmt.Fprintf(&b, "%s labels=%v annotations=%v\n  packages.json: %s\n", meta.Name, meta.Labels, meta.Annotations, meta.Data["packages.json"])
	golden(t, "testdata/golden/configmaps.txt", b.String())
}

// verdicts returns a verdict for every target.
func verdicts(c *Compiled, phases map[string]rollout.Phase) rollout.Report {
	r := rollout.Report{Rollout: c.Rollout.Ref}
	for _, t := range c.Rollout.Targets {
		phase := phases[t.Node]
		why := rollout.Why{Reason: rollout.ReasonUpNext, Text: "because of " + string(phase)}
		if t.Blocked != nil {
			phase, why = rollout.PhaseBlocked, *t.Blocked
		}
		r.Verdicts = append(r.Verdicts, rollout.Verdict{Node: t.Node, Phase: phase, Why: why})
	}
	return r
}

// TestStatus turns reports into statuses.
func TestStatus(t *testing.T) {
	for name, prepare := range statusCases {
		t.Run(name, func(t *testing.T) {
			w := newTestCluster(t)
			phases := prepare(w)
			s := w.skyhooks[0]
			c := w.compile(s)
			status := c.Status(verdicts(c, phases), []rollout.GroupReport{{
				Group: rollout.ParseGroupRef("Skyhook/demo/__default__"), Matched: len(c.Rollout.Targets), Ceiling: rollout.Unlimited, Finished: min(1, len(c.Rollout.Targets)),
				Memory: rollout.Memory{Batch: 2, Completed: 1, LastSize: 1},
			}})
			raw, err := yaml.Marshal(status)
			if err != nil {
				t.Fatal(err)
			}
			golden(t, "testdata/golden/"+name+".status.yaml", string(raw))
		})
	}
}

var statusCases = map[string]func(*testCluster) map[string]rollout.Phase{
	"mixed": func(w *testCluster) map[string]rollout.Phase {
		s := w.apply(`{metadata: {name: demo}, spec: {packages: {tuning: {version: 1.0.0, image: example.org/p, configMap: {a: "1"}}}}}`)
		w.addNode("n1")
		w.drive(s)
		for _, name := range []string{"n2", "n3", "n4"} {
			w.addNode(name)
		}
		w.node("n3").Spec.Taints = []corev1.Taint{{Key: "gpu", Effect: corev1.TaintEffectNoSchedule}}
		w.hangs["tuning|1.0.0/apply"] = true
		w.drive(s)
		return map[string]rollout.Phase{"n1": rollout.PhaseFinished, "n2": rollout.PhaseFailing, "n4": rollout.PhaseWaiting}
	},
	"config-pending": func(w *testCluster) map[string]rollout.Phase {
		s := w.apply(`{metadata: {name: demo}, spec: {packages: {tuning: {version: 1.0.0, image: example.org/p, configMap: {a: "1", b: "1"}}}}}`)
		w.addNode("n1")
		w.drive(s)
		w.apply(`{metadata: {name: demo}, spec: {packages: {tuning: {version: 1.0.0, image: example.org/p, configMap: {a: "2", c: "1"}}}}}`)
		return map[string]rollout.Phase{"n1": rollout.PhaseWaiting}
	},
	"edited": func(w *testCluster) map[string]rollout.Phase {
		s := w.apply(`{metadata: {name: demo}, spec: {packages: {tuning: {version: 1.0.0, image: example.org/p}}}}`)
		w.addNode("n1")
		w.drive(s)
		w.apply(`{metadata: {name: demo}, spec: {packages: {tuning: {version: 1.0.0, image: example.org/q}}}}`)
		return map[string]rollout.Phase{"n1": rollout.PhaseFinished}
	},
	"no-nodes": func(w *testCluster) map[string]rollout.Phase {
		w.apply(`{metadata: {name: demo}, spec: {packages: {tuning: {version: 1.0.0, image: example.org/p}}}}`)
		return nil
	},
	"refused": func(w *testCluster) map[string]rollout.Phase {
		w.apply(`{metadata: {name: demo}, spec: {deploymentPolicy: careful, packages: {aa: {version: 1.0.0, image: example.org/p, dependsOn: {bb: 1.0.0}}, bb: {version: 1.0.0, image: example.org/p, dependsOn: {aa: 1.0.0}}}}}`)
		w.missing = true
		w.addNode("n1")
		return map[string]rollout.Phase{"n1": rollout.PhaseBlocked}
	},
	"uninstall": func(w *testCluster) map[string]rollout.Phase {
		s := w.apply(`{metadata: {name: demo}, spec: {packages: {base: {version: 1.0.0, image: example.org/p, uninstall: {enabled: true}}}}}`)
		w.addNode("n1")
		w.drive(s)
		s = w.apply(`{metadata: {name: demo}, spec: {packages: {base: {version: 1.0.0, image: example.org/p, uninstall: {enabled: true, apply: true}}, top: {version: 1.0.0, image: example.org/p, dependsOn: {base: 1.0.0}}}}}`)
		w.fails["base|1.0.0/uninstall"] = 2
		w.drive(s)
		return map[string]rollout.Phase{"n1": rollout.PhaseFailing}
	},
	"deletion-paused": func(w *testCluster) map[string]rollout.Phase {
		s := w.apply(`{metadata: {name: demo, annotations: {skyhook.nvidia.com/pause: "true"}}, spec: {packages: {base: {version: 1.0.0, image: example.org/p, uninstall: {enabled: true}}}}}`)
		n := w.addNode("n1")
		n.Annotations["skyhook.nvidia.com/nodeState_demo"] = `{"base|1.0.0":{"name":"base","version":"1.0.0","image":"example.org/p","stage":"config","state":"complete"}}`
		now := n.CreationTimestamp
		s.DeletionTimestamp = &now
		return map[string]rollout.Phase{"n1": rollout.PhasePaused}
	},
	"malformed": func(w *testCluster) map[string]rollout.Phase {
		w.apply(`{metadata: {name: demo}, spec: {packages: {tuning: {version: 1.0.0, image: example.org/p}}}}`)
		w.addNode("a-very-long-node-name").Annotations["skyhook.nvidia.com/nodeState_demo"] = "{"
		w.addNode("n2").Labels["skyhook.nvidia.com/ignore"] = "true"
		return nil
	},
}
