// SPDX-FileCopyrightText: The Skyhook authors
// SPDX-License-Identifier: Apache-2.0

package skyhook

import (
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/skyhook-k8s/skyhook/api/skyhook/v1alpha1"
	"github.com/skyhook-k8s/skyhook/internal/node"
	"github.com/skyhook-k8s/skyhook/internal/pack"
	"github.com/skyhook-k8s/skyhook/internal/rollout"
	"github.com/skyhook-k8s/skyhook/internal/skyhook/plan"
	"github.com/skyhook-k8s/skyhook/test/kubelet"
)

const askedHook = `
apiVersion: skyhook.nvidia.com/v1alpha1
kind: Skyhook
metadata: {name: demo}
spec:
  nodeSelectors: {matchLabels: {kubernetes.io/hostname: n1}}
  preflight: Ask
  packages:
    kernel: {version: 1.0.0, image: registry.example/kernel, interrupt: {type: reboot}}
    shell: {version: 2.0.0, image: registry.example/shell, dependsOn: {kernel: 1.0.0}}
`

// newAskedCluster has a node, with a Skyhook that asks its packages what the node needs.
func newAskedCluster(t *testing.T) (*testCluster, *v1alpha1.Skyhook) {
	return newAskedClusterOf(t, askedHook)
}

func newAskedClusterOf(t *testing.T, manifest string) (*testCluster, *v1alpha1.Skyhook) {
	w := newTestCluster(t)
	s := w.apply(manifest)
	n := w.addNode("n1")
	n.Status.RuntimeHandlers = []corev1.NodeRuntimeHandler{{Features: &corev1.NodeRuntimeHandlerFeatures{RecursiveReadOnlyMounts: new(true)}}}
	return w, s
}

// check returns what is to be looked at on the node; nil for nothing.
func (w *testCluster) check(s *v1alpha1.Skyhook) *rollout.Check {
	return w.compile(s).Rollout.Targets[0].Check
}

// ask lets the packages of the node answer, given as "kernel reboot", with the privileges that they declare as in "shell absent may
// services,/etc/motd.d"; those that are not named have no preflight.
func (w *testCluster) ask(s *v1alpha1.Skyhook, answers ...string) {
	w.t.Helper()
	pod := w.compile(s).CheckPod(node.Parse(w.node("n1").DeepCopy(), nil))
	if pod == nil {
		w.t.Fatal("nothing is asked")
	}
	w.create(pod)
	kubelet.Create(pod)
	for i := range pod.Spec.InitContainers {
		kubelet.End(pod, i, 0, "", w.now)
	}
	for i, c := range pod.Spec.Containers {
		m := pack.Message{Mode: pack.ModePreflight, Outcome: pack.Succeeded, Preflight: &pack.Preflight{Absent: true}}
		for _, text := range answers {
			name, answer, _ := strings.Cut(text, " ")
			answer, privileges, _ := strings.Cut(answer, " may ")
			answer, isWrong := strings.CutSuffix(answer, " wrong")
			answer, services, _ := strings.Cut(answer, " ")
			if strings.HasPrefix(c.Name, name+"-") {
				m.Preflight = &pack.Preflight{Answer: pack.Answer(answer), Reason: "it is so", Wrong: isWrong}
				if services != "" {
					m.Preflight.Services = strings.Split(services, ",")
				}
				if answer == "absent" {
					m.Preflight = &pack.Preflight{Absent: true}
				}
				m.Preflight.Privileges = pack.SplitNames(privileges)
			}
		}
		kubelet.End(pod, len(pod.Spec.InitContainers)+i, 0, string(m.Encode()), w.now)
	}
	w.applyAction(w.compile(s), rollout.Action{Verb: rollout.VerbNote, Node: "n1", Object: pod.Name})
	w.deletePod(pod.Name)
}

func (w *testCluster) answer(key string) node.Answer {
	return node.Parse(w.node("n1").DeepCopy(), nil).Skyhook("demo").Record.Preflight[key]
}

// TestPreflight: a node gets what its packages say that it needs.
func TestPreflight(t *testing.T) {
	const all = "n1 kernel|1.0.0/apply\nn1 kernel|1.0.0/config\nn1 kernel|1.0.0/interrupt %\nn1 kernel|1.0.0/post-interrupt\n"
	const shell = "n1 shell|2.0.0/apply\nn1 shell|2.0.0/config"
	for _, c := range []struct {
		name    string
		answers []string
		want    string
	}{
		{"nothing is needed", []string{"kernel none", "shell none"}, ""},
		{"one needs nothing", []string{"kernel none", "shell apply"}, shell},
		{"what depends on work takes the full way", []string{"kernel apply", "shell none"}, "n1 kernel|1.0.0/apply\nn1 kernel|1.0.0/config\n" + shell},
		{"a weaker interrupt", []string{"kernel service a,b"}, strings.ReplaceAll(all, "%", "service a b") + shell},
		{"the interrupt of the package", []string{"kernel reboot"}, strings.ReplaceAll(all, "%", "reboot") + shell},
		{"never a stronger one", []string{"kernel none", "shell reboot"}, shell},
		{"and none where it has none", []string{"kernel none", "shell service a"}, shell},
		{"the config stage alone", []string{"kernel config"}, "n1 kernel|1.0.0/config\n" + shell},
		{"a check fails that should not", []string{"kernel none wrong"}, strings.ReplaceAll(all, "%", "reboot") + shell},
		{"no package has a preflight", nil, strings.ReplaceAll(all, "%", "reboot") + shell},
	} {
		t.Run(c.name, func(t *testing.T) {
			w, s := newAskedCluster(t)
			if k := w.check(s); k == nil || !k.Before || !k.Due.IsZero() {
				t.Fatalf("before its turn the node is to be looked at: %+v", k)
			}
			w.ask(s, c.answers...)
			if k := w.check(s); k != nil && k.Before && !k.Due.Equal(w.now.Add(plan.PreflightAge)) {
				t.Errorf("the answers count until %s", k.Due)
			}
			if got := strings.TrimSuffix(w.drive(s), "\n"); got != c.want {
				t.Errorf("it ran\n%s\nwant\n%s", got, c.want)
			}
		})
	}
}

// TestPreflightIsProven: a package that did less than its definition says is asked afterwards. If it needs something then, it runs as its
// definition says, once.
func TestPreflightIsProven(t *testing.T) {
	w, s := newAskedCluster(t)
	w.ask(s, "kernel apply", "shell none")
	w.drive(s)
	if k := w.check(s); k == nil || k.Before || !k.Due.IsZero() {
		t.Fatalf("afterwards it is to be asked: %+v", k)
	}
	w.ask(s, "kernel reboot")
	if a := w.answer("kernel|1.0.0"); !a.Wrong || !strings.Contains(a.Reason, "after less than all of its work it says reboot") {
		t.Errorf("the answer is %+v", a)
	}
	if got := w.drive(s); !strings.Contains(got, "interrupt reboot") {
		t.Errorf("it ran %s", got)
	}
	if k := w.check(s); k != nil {
		t.Errorf("what ran as its definition says is asked: %+v", k)
	}

	w, s = newAskedCluster(t)
	w.ask(s, "kernel apply")
	w.drive(s)
	w.ask(s, "kernel none")
	if k := w.check(s); k != nil || w.drive(s) != "" {
		t.Errorf("what is proven is asked: %+v", k)
	}
}

// TestPreflightIsRenewed: an answer counts for the definition, the boot and the time for which it was given.
func TestPreflightIsRenewed(t *testing.T) {
	w, s := newAskedCluster(t)
	w.ask(s, "kernel apply", "shell apply")
	w.node("n1").Status.NodeInfo.BootID = "boot-2"
	w.bumpVersion(w.node("n1"))
	if k := w.check(s); !k.Due.IsZero() {
		t.Errorf("after a boot it counts until %s", k.Due)
	}
	w.ask(s, "kernel apply", "shell apply")
	s = w.apply(strings.Replace(askedHook, "image: registry.example/shell", "image: registry.example/shell, configMap: {a: b}", 1))
	if k := w.check(s); !k.Due.IsZero() {
		t.Errorf("after an edit it counts until %s", k.Due)
	}
	for what, change := range map[string]func(*testCluster) *v1alpha1.Skyhook{
		"time": func(w *testCluster) *v1alpha1.Skyhook {
			w.now = w.now.Add(plan.PreflightAge)
			return w.skyhooks[0]
		},
		"boot": func(w *testCluster) *v1alpha1.Skyhook {
			w.node("n1").Status.NodeInfo.BootID = "boot-2"
			w.bumpVersion(w.node("n1"))
			return w.skyhooks[0]
		},
		"definition": func(w *testCluster) *v1alpha1.Skyhook {
			return w.apply(strings.Replace(askedHook, "image: registry.example/kernel", "image: registry.example/kernel, configMap: {a: b}", 1))
		},
	} {
		w, s := newAskedCluster(t)
		w.ask(s, "kernel apply", "shell apply")
		if got := w.drive(change(w)); !strings.Contains(got, "interrupt reboot") {
			t.Errorf("with an answer of another %s it ran %s", what, got)
		}
	}
}

// TestPreflightOfAnEdit: after an edit of its configMap a package gets what it says that it needs, within its own interrupt.
func TestPreflightOfAnEdit(t *testing.T) {
	for answer, want := range map[string]string{
		"config": "n1 kernel|1.0.0/config",
		"apply":  "n1 kernel|1.0.0/apply\nn1 kernel|1.0.0/config",
		"reboot": "n1 kernel|1.0.0/apply\nn1 kernel|1.0.0/config\nn1 kernel|1.0.0/interrupt reboot\nn1 kernel|1.0.0/post-interrupt",
	} {
		w, s := newAskedCluster(t)
		w.ask(s, "kernel none", "shell none")
		s = w.apply(strings.Replace(askedHook, "image: registry.example/kernel", "image: registry.example/kernel, configMap: {a: b}", 1))
		w.ask(s, "kernel "+answer)
		if got := w.drive(s); got != want {
			t.Errorf("%s: it ran\n%s\nwant\n%s", answer, got, want)
		}
	}
}

// TestPreflightBlocked: a node on which a package must not work waits, and says why.
func TestPreflightBlocked(t *testing.T) {
	w, s := newAskedCluster(t)
	w.ask(s, "kernel blocked")
	if k := w.check(s); k.Refused == nil || k.Refused.Text != "package kernel says that the node must not be worked on now: it is so" || !k.Due.Equal(w.now.Add(10*time.Minute)) {
		t.Errorf("it is %+v", k)
	}
	w.ask(s, "kernel none", "shell none")
	if k := w.check(s); k != nil {
		t.Errorf("it is %+v", k)
	}
}

// TestPreflightNotAsked: without the field, and on a node that cannot mount the host read-only, everything runs as it did.
func TestPreflightNotAsked(t *testing.T) {
	w, s := newAskedCluster(t)
	w.node("n1").Status.RuntimeHandlers = nil
	w.bumpVersion(w.node("n1"))
	if k := w.check(s); k != nil {
		t.Errorf("a node is asked that cannot be mounted read-only: %+v", k)
	}
	w, _ = newAskedCluster(t)
	s = w.apply(strings.Replace(askedHook, "preflight: Ask", "preflight: None", 1))
	if k := w.check(s); k != nil {
		t.Errorf("it is asked though the Skyhook does not ask: %+v", k)
	}
}

// TestPreflightSilent: a package without a preflight is asked on the first node alone.
func TestPreflightSilent(t *testing.T) {
	w, _ := newAskedCluster(t)
	s := w.apply(strings.Replace(askedHook, "{matchLabels: {kubernetes.io/hostname: n1}}", "{}", 1))
	w.ask(s)
	second := w.addNode("n2")
	second.Status.RuntimeHandlers = w.node("n1").Status.RuntimeHandlers
	for _, target := range w.compile(s).Rollout.Targets {
		if target.Check != nil {
			t.Errorf("on node %s it is %+v", target.Node, target.Check)
		}
	}
}

// TestPreflightPod: the pod can read the host, and change nothing.
func TestPreflightPod(t *testing.T) {
	w, s := newAskedCluster(t)
	pod := w.compile(s).CheckPod(node.Parse(w.node("n1").DeepCopy(), nil))
	if pod.Spec.HostPID || pod.Spec.HostNetwork || pod.Spec.HostIPC {
		t.Error("it has a namespace of the host")
	}
	for _, c := range append(pod.Spec.InitContainers, pod.Spec.Containers...) {
		security := c.SecurityContext
		if security.Privileged != nil || len(security.Capabilities.Drop) != 1 || security.SeccompProfile.Type != corev1.SeccompProfileTypeRuntimeDefault {
			t.Errorf("%s has %+v", c.Name, security)
		}
		for _, m := range c.VolumeMounts {
			isHost := m.Name == "root-mount"
			if isHost && (!m.ReadOnly || m.RecursiveReadOnly == nil || *m.RecursiveReadOnly != corev1.RecursiveReadOnlyEnabled) {
				t.Errorf("%s mounts the host as %+v", c.Name, m)
			}
		}
	}
}

// TestPreflightCheckFails: a package that did too little is seen by its own check, and runs as its definition says.
func TestPreflightCheckFails(t *testing.T) {
	w, s := newAskedCluster(t)
	w.ask(s, "kernel apply")
	w.fails["kernel|1.0.0/config"] = 1
	w.failure = string(pack.Message{Mode: pack.ModeConfigCheck, Outcome: pack.Failed, Class: pack.CheckFailed, Reason: "the old kernel runs"}.Encode())
	if got := w.drive(s); !strings.Contains(got, "interrupt reboot") {
		t.Errorf("it ran %s", got)
	}
	if a := w.answer("kernel|1.0.0"); !a.Wrong || a.Reason != "a check of stage config failed; it had said apply: it is so" {
		t.Errorf("the answer is %+v", a)
	}
}

// TestPreflightDrift: a package that needed nothing is asked again when nodes are checked for drift, and runs if it is to be repaired.
func TestPreflightDrift(t *testing.T) {
	w, _ := newAskedCluster(t)
	s := w.apply(strings.Replace(askedHook, "preflight: Ask", "preflight: Ask\n  drift: {every: 10m, mode: Repair}", 1))
	w.ask(s, "kernel none", "shell none")
	w.now = w.now.Add(10 * time.Minute)
	w.ask(s, "kernel none", "shell none")
	if rec := w.driftRecord(); len(rec.Packages) > 0 {
		t.Errorf("what still needs nothing drifted: %+v", rec.Packages)
	}
	w.now = w.now.Add(10 * time.Minute)
	w.ask(s, "kernel reboot", "shell none")
	if found := w.driftRecord().Packages["kernel|1.0.0"]; found.Text != "it needed nothing, and says reboot now: it is so" || found.Repair != "apply" {
		t.Errorf("it is %+v", found)
	}
	w.ask(s, "kernel service a")
	if got := w.drive(s); !strings.Contains(got, "interrupt service a") {
		t.Errorf("it ran %s", got)
	}
}
