// SPDX-FileCopyrightText: The Skyhook authors
// SPDX-License-Identifier: Apache-2.0

package testcluster

import (
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	"k8s.io/client-go/tools/clientcmd"
	"sigs.k8s.io/yaml"

	"github.com/skyhook-k8s/skyhook/test/cluster/network"
)

// The control plane listens where nothing else does, and its programs find each other and their certificates.
func TestPlane(t *testing.T) {
	for _, c := range []struct {
		name string
		spec Spec
		bind string
	}{
		{"outside of nodes", Spec{}, network.Gateway},
		{"behind a proxy", Spec{APIServerProxy: true}, "127.0.0.1"},
		{"on a node", Spec{ControlPlane: "cp"}, network.NodeIP(1)},
		{"on a node, behind a proxy", Spec{ControlPlane: "cp", APIServerProxy: true}, network.NodeIP(1)},
	} {
		t.Run(c.name, func(t *testing.T) {
			files, err := c.spec.issueCredentials()
			if err != nil {
				t.Fatal(err)
			}
			for _, p := range c.spec.controlPlanePrograms("/pki", "/etcd") {
				for _, arg := range p.args {
					flag, value, _ := strings.Cut(arg, "=")
					if name, is := strings.CutPrefix(value, "/pki/"); is && files.files[name] == nil {
						t.Errorf("%s %s: there is no such file", p.name, arg)
					}
					if p.name == "kube-apiserver" && flag == "--bind-address" && value != c.bind {
						t.Errorf("the API server listens on %s, want %s", value, c.bind)
					}
					if p.name == "kube-apiserver" && flag == "--advertise-address" && value != network.Gateway {
						t.Errorf("the API server is known as %s, which passes by what stands before it", value)
					}
				}
			}
			config, err := clientcmd.RESTConfigFromKubeConfig(files.files["admin.kubeconfig"])
			if err != nil || config.Host != "https://10.77.0.1:6443" {
				t.Errorf("inside the cluster the API server is %v, %v", config, err)
			}
		})
	}
}

func TestGracePeriod(t *testing.T) {
	for _, c := range []struct {
		spec Spec
		want time.Duration
	}{
		{Spec{}, 12 * time.Second},
		{Spec{Simulated: 500}, 40 * time.Second},
		{Spec{Simulated: 501}, 20 * time.Minute},
		{Spec{Simulated: 5000, GracePeriod: time.Minute}, time.Minute},
	} {
		if got := c.spec.effectiveGracePeriod(); got != c.want {
			t.Errorf("with %d simulated nodes and %s wanted it is %s, want %s", c.spec.Simulated, c.spec.GracePeriod, got, c.want)
		}
	}
}

// A small disk is a directory of its own; the root of a node cannot be one.
func TestCheckSmallDisks(t *testing.T) {
	for path, want := range map[string]string{
		"/var/lib/skyhook": "", "/": "small disk", "var/lib": "small disk", "/var/../lib": "small disk", "": "small disk",
	} {
		err := Spec{Name: "a", SmallDisks: []string{path}}.Check()
		if want == "" && err != nil || want != "" && (err == nil || !strings.Contains(err.Error(), want)) {
			t.Errorf("%q: the error is %v, want %q", path, err, want)
		}
	}
}

// A node's own labels win over those of all nodes, whatever their order.
func TestNodeLabels(t *testing.T) {
	s := Spec{Nodes: []string{"a", "b"}, ControlPlane: "cp", Labels: []Label{{Node: "b", Key: "zone", Value: "2"}, {Key: "zone", Value: "1"}, {Key: "pool", Value: "gpu"}}}
	want := map[string]string{"a": "pool=gpu zone=1", "b": "pool=gpu zone=2", "cp": "node-role.kubernetes.io/control-plane= pool=gpu zone=1"}
	for name, labels := range s.labelsByNode() {
		var got []string
		for _, key := range slices.Sorted(maps.Keys(labels)) {
			got = append(got, key+"="+labels[key])
		}
		if strings.Join(got, " ") != want[name] {
			t.Errorf("node %s has labels %v, want %s", name, got, want[name])
		}
	}
}

// With and without a delay, kwok is told about every kind once, in YAML that is well formed.
func TestStageFile(t *testing.T) {
	for delay, atOnce := range map[time.Duration]bool{0: true, 1500 * time.Millisecond: false} {
		text, err := stageFile(delay)
		if err != nil {
			t.Fatal(err)
		}
		seen := map[string]int64{}
		for document := range strings.SplitSeq(string(text), "\n---\n") {
			var stage struct {
				Kind     string
				Metadata struct{ Name string }
				Spec     struct {
					Delay struct{ DurationMilliseconds int64 }
				}
			}
			if err := yaml.Unmarshal([]byte(document), &stage); err != nil {
				t.Fatalf("with a delay of %s: %v\n%s", delay, err, document)
			}
			if _, twice := seen[stage.Metadata.Name]; twice {
				t.Errorf("stage %s is there twice", stage.Metadata.Name)
			}
			seen[stage.Metadata.Name] = stage.Spec.Delay.DurationMilliseconds
		}
		if _, is := seen["pod-start-at-once"]; is != atOnce {
			t.Errorf("with a delay of %s init containers are done at once: %v", delay, is)
		}
		for _, stage := range []string{"pod-advance", "pod-complete", "node-reboot"} {
			if got := seen[stage]; got != delay.Milliseconds() {
				t.Errorf("with a delay of %s stage %s takes %d ms", delay, stage, got)
			}
		}
		if strings.Contains(string(text), "[[") || strings.Contains(string(text), "<no value>") {
			t.Error("something was not filled in")
		}
	}
}

func TestPlaceOfState(t *testing.T) {
	t.Setenv("XDG_STATE_HOME", "relative")
	if _, err := locatePaths("a"); err == nil || !strings.Contains(err.Error(), "it must be an absolute path") {
		t.Errorf("the error is %v", err)
	}
	t.Setenv("XDG_STATE_HOME", "")
	t.Setenv("HOME", "")
	if _, err := locatePaths("a"); err == nil || !strings.Contains(err.Error(), "set XDG_STATE_HOME or HOME") {
		t.Errorf("the error is %v", err)
	}
}
