// SPDX-FileCopyrightText: The Skyhook authors
// SPDX-License-Identifier: Apache-2.0

package nodeop_test

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/yaml"

	"github.com/skyhook-k8s/skyhook/api/nodeop/v1alpha1"
	skyhookv1 "github.com/skyhook-k8s/skyhook/api/skyhook/v1alpha1"
	"github.com/skyhook-k8s/skyhook/internal/node"
	"github.com/skyhook-k8s/skyhook/internal/nodeop"
	"github.com/skyhook-k8s/skyhook/internal/nodeop/kairos"
	"github.com/skyhook-k8s/skyhook/internal/nodeop/report"
	"github.com/skyhook-k8s/skyhook/internal/nodeop/upgrade"
)

func newUpgrade(t *testing.T, spec string) *v1alpha1.NodeOpUpgrade {
	t.Helper()
	u := &v1alpha1.NodeOpUpgrade{ObjectMeta: metav1.ObjectMeta{Name: "kairos-upgrade", Namespace: "default", UID: "upgrade-uid", Generation: 1}}
	if err := yaml.UnmarshalStrict([]byte(spec), &u.Spec); err != nil {
		t.Fatal(err)
	}
	return u
}

// TestUpgradeNodeOp renders the NodeOp of the documented example.
func TestUpgradeNodeOp(t *testing.T) {
	u := newUpgrade(t, `{image: "quay.io/kairos/opensuse:v3.4.2", imagePullSecrets: [{name: private}], nodeSelector: {matchLabels: {kairos.io/managed: "true"}},
  concurrency: 1, stopOnFailure: true}`)
	compareGolden(t, "upgrade.nodeop.yaml", toYAML(t, upgrade.NewNodeOp(u)))
	careful := newUpgrade(t, `{image: x, deploymentPolicy: careful}`)
	requireEqual(t, "policy", upgrade.NewNodeOp(careful).Spec.DeploymentPolicy, "careful")
	c := upgrade.NewNodeOp(newUpgrade(t, `{image: x, upgradeActive: false, upgradeRecovery: true}`))
	requireEqual(t, "reboot", nodeop.IsTrue(c.Spec.RebootOnSuccess), false)
	requireEqual(t, "cordon", nodeop.IsTrue(c.Spec.Cordon), false) // no workload is disturbed
	requireEqual(t, "preflight", c.Spec.Preflight == nil, true)
	requireEqual(t, "preflight", upgrade.NewNodeOp(newUpgrade(t, `{image: x, force: true}`)).Spec.Preflight == nil, true)
	requireEqual(t, "reboot", nodeop.IsTrue(upgrade.NewNodeOp(newUpgrade(t, `{image: x, upgradeRecovery: true}`)).Spec.RebootOnSuccess), true)
}

// TestUpgradeScript runs the script with a fake kairos-agent that records its arguments.
func TestUpgradeScript(t *testing.T) {
	same, other := "KAIROS_VERSION=v4.1.0\nKAIROS_SOFTWARE_VERSION_PREFIX=k3s\nKAIROS_SOFTWARE_VERSION=v1.34.7+k3s1\n", "KAIROS_VERSION=v4.0.0\n"
	const excludes = " --exclude-path /etc/hostname --exclude-path /etc/hosts"
	for name, c := range map[string]struct {
		spec, target, host, hostOS string
		old                        bool
		calls                      string
		fails                      bool
		says                       string
	}{
		"active":             {spec: `{image: x}`, target: same, host: other, calls: "upgrade --source dir:/" + excludes, says: "target v4.1.0-k3sv1.34.7+k3s1"},
		"up to date":         {spec: `{image: x}`, target: same, host: same, says: "target v4.1.0-k3sv1.34.7+k3s1"},
		"forced":             {spec: `{image: x, force: true}`, target: same, host: same, calls: "upgrade --source dir:/" + excludes, says: "target v4.1.0-k3sv1.34.7+k3s1"},
		"recovery":           {spec: `{image: x, upgradeActive: false, upgradeRecovery: true}`, target: same, host: same, calls: "upgrade --recovery --source dir:/" + excludes},
		"both":               {spec: `{image: x, upgradeRecovery: true}`, target: same, host: same, calls: "upgrade --recovery --source dir:/" + excludes + "\nupgrade --source dir:/" + excludes, says: "target v4.1.0-k3sv1.34.7+k3s1"},
		"debug":              {spec: `{image: x, debug: true}`, calls: "--debug upgrade --source dir:/" + excludes},
		"both unknown":       {spec: `{image: x}`, target: "NAME=x\n", host: "NAME=x\n", calls: "upgrade --source dir:/" + excludes},
		"host unknown":       {spec: `{image: x}`, target: same, calls: "upgrade --source dir:/" + excludes, says: "target v4.1.0-k3sv1.34.7+k3s1"},
		"os-release":         {spec: `{image: x}`, target: same, hostOS: same, says: "target v4.1.0-k3sv1.34.7+k3s1"},
		"paths":              {spec: `{image: x, excludePaths: ["/a b", "/it's"]}`, calls: "upgrade --source dir:/" + excludes + " --exclude-path /a b --exclude-path /it's"},
		"old agent":          {spec: `{image: x}`, old: true, calls: "upgrade --source dir:/"},
		"old agent, refuses": {spec: `{image: x, excludePaths: [/a]}`, old: true, fails: true},
	} {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			put := func(name, text string, mode os.FileMode) {
				if text == "" {
					return
				}
				if err := os.WriteFile(filepath.Join(dir, name), []byte(text), mode); err != nil {
					t.Fatal(err)
				}
			}
			help := "--exclude-path"
			if c.old {
				help = "nothing"
			}
			put("kairos-agent", "#!/bin/sh\nif [ \"$2\" = --help ]; then echo \""+help+"\"; exit 0; fi\necho \"$@\" >> "+dir+"/calls\n", 0o755)
			put("mount", "#!/bin/sh\necho \"$@\" >> "+dir+"/mounts\n", 0o755)
			put("target", c.target, 0o644)
			put("host", c.host, 0o644)
			put("host-os", c.hostOS, 0o644)
			child := upgrade.NewNodeOp(newUpgrade(t, c.spec))
			cmd := exec.Command(child.Spec.Command[0], child.Spec.Command[1:]...)
			cmd.Env = []string{"PATH=" + dir + ":" + os.Getenv("PATH"), "TARGET_KAIROS_RELEASE=" + dir + "/target", "TARGET_OS_RELEASE=" + dir + "/none",
				"HOST_KAIROS_RELEASE=" + dir + "/host", "HOST_OS_RELEASE=" + dir + "/host-os", "TERMINATION_LOG=" + dir + "/log"}
			out, err := cmd.CombinedOutput()
			if (err != nil) != c.fails {
				t.Fatalf("%v\n%s", err, out)
			}
			calls, _ := os.ReadFile(filepath.Join(dir, "calls"))
			requireEqual(t, "calls", strings.TrimSpace(string(calls)), c.calls)
			log, _ := os.ReadFile(filepath.Join(dir, "log"))
			requireEqual(t, "termination message", strings.TrimSpace(string(log)), c.says)
			mounts, _ := os.ReadFile(filepath.Join(dir, "mounts"))
			requireEqual(t, "mounts", c.calls != "" && string(mounts) != "--rbind /host/dev /dev\n--rbind /host/run /run\n", false)
		})
	}
}

// TestUpgradePreflight runs the check: only two known, equal versions skip a node.
func TestUpgradePreflight(t *testing.T) {
	version := func(v string) string { return "KAIROS_VERSION=" + v + "\n" }
	for name, c := range map[string]struct{ target, host, os, want string }{
		"equal":          {version("v1"), version("v1"), "", "node is already at v1-"},
		"different":      {version("v2"), version("v1"), "", ""},
		"both unknown":   {"X=1\n", "X=1\n", "", ""},
		"target unknown": {"X=1\n", version("v1"), "", ""},
		"host unknown":   {version("v1"), "X=1\n", "", ""},
		"no files":       {"", "", "", ""},
		"os-release":     {version("v1"), "", version("v1"), "node is already at v1-"},
	} {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			for file, text := range map[string]string{"target": c.target, "host": c.host, "os": c.os} {
				if text != "" {
					if err := os.WriteFile(filepath.Join(dir, file), []byte(text), 0o600); err != nil {
						t.Fatal(err)
					}
				}
			}
			p := upgrade.NewNodeOp(newUpgrade(t, `{image: x}`)).Spec.Preflight
			requireEqual(t, "image", p.Image, "")
			cmd := exec.Command(p.Command[0], p.Command[1:]...)
			cmd.Env = []string{"PATH=" + os.Getenv("PATH"), "TARGET_KAIROS_RELEASE=" + dir + "/target", "TARGET_OS_RELEASE=" + dir + "/none",
				"HOST_KAIROS_RELEASE=" + dir + "/host", "HOST_OS_RELEASE=" + dir + "/os", "TERMINATION_LOG=" + dir + "/log"}
			if out, err := cmd.CombinedOutput(); err != nil || !strings.Contains(string(out), "target version: ") {
				t.Fatalf("%v\n%s", err, out)
			}
			log, _ := os.ReadFile(filepath.Join(dir, "log"))
			requireEqual(t, "verdict", strings.TrimSpace(string(log)), c.want)
		})
	}
}

// TestUpgradeStatus mirrors the NodeOp of the upgrade and no other, and compares versions.
func TestUpgradeStatus(t *testing.T) {
	u := newUpgrade(t, `{image: x}`)
	now := time.Date(2026, 1, 2, 3, 0, 0, 0, time.UTC)
	s := upgrade.Status(u, nil, nil, now)
	requireEqual(t, "phase", s.Phase, v1alpha1.PhasePending)
	requireEqual(t, "verdict", s.Outcome, skyhookv1.Outcome{Verdict: skyhookv1.VerdictProgressing, Reason: v1alpha1.ReasonWaiting})
	o := upgrade.NewNodeOp(u)
	u.Status = upgrade.Status(u, o, nil, now)
	requireEqual(t, "phase", u.Status.Phase, v1alpha1.PhaseInitializing)
	requireEqual(t, "message", u.Status.Message, "NodeOp created")
	o.Status.Phase = v1alpha1.PhaseCompleted
	o.Status.NodeStatuses = map[string]v1alpha1.NodeStatus{"n1": {Phase: v1alpha1.PhaseCompleted, RebootStatus: v1alpha1.RebootCompleted, TargetVersion: "v4.1.0-k3sv1.34.7+k3s1"}}
	n := &node.Node{Name: "n1", Annotations: map[string]string{"kairos.io/version": "v4.1.0"}, Labels: map[string]string{"kairos.io/software-version-prefix": "k3s", "kairos.io/software-version": "v1.34.7-k3s1"}}
	s = upgrade.Status(u, o, []*node.Node{n}, now)
	requireEqual(t, "message", s.Message, "Upgrade operation completed successfully")
	requireEqual(t, "verdict", s.Verdict, skyhookv1.VerdictReady)
	waiting := o.DeepCopy()
	waiting.Status.Phase, waiting.Status.Outcome = v1alpha1.PhasePending, skyhookv1.Outcome{Verdict: skyhookv1.VerdictSuspended, Reason: "Approval"}
	requireEqual(t, "verdict", upgrade.Status(u, waiting, nil, now).Outcome, waiting.Status.Outcome)
	n.Annotations["kairos.io/version"] = "v4.0.0"
	s = upgrade.Status(u, o, []*node.Node{n}, now)
	requireEqual(t, "message", s.Message, "Upgrade operation completed successfully, but these nodes booted another version: n1")
	requireEqual(t, "same again", upgrade.Status(&v1alpha1.NodeOpUpgrade{ObjectMeta: u.ObjectMeta, Spec: u.Spec, Status: s}, o, []*node.Node{n}, now.Add(time.Hour)).LastUpdated, s.LastUpdated)
	s = upgrade.Status(u, nil, nil, now) // deleted: not created again
	requireEqual(t, "phase", s.Phase, v1alpha1.PhaseFailed)
	requireEqual(t, "verdict", s.Verdict, skyhookv1.VerdictFailed)
	o.OwnerReferences = nil
	s = upgrade.Status(u, o, nil, now)
	requireEqual(t, "phase", s.Phase, v1alpha1.PhasePending)
	requireEqual(t, "accepted", s.Conditions[0].Reason, v1alpha1.ReasonInvalidSpec)
}

// A system that does not boot is a failure, also with force, and stops the other nodes: the node runs the previous
// system.
func TestUpgradeFallsBack(t *testing.T) {
	for _, spec := range []string{`{image: x, stopOnFailure: true, concurrency: 1}`, `{image: x, stopOnFailure: true, concurrency: 1, force: true}`} {
		w := newEnvironment(t, "n1", "n2", "n3")
		w.output = "target v4.1.0-k3s"
		w.rebootModes["n1"], w.rebootModes["n2"] = "came up", "falls back"
		o := w.addNodeOp(upgrade.NewNodeOp(newUpgrade(t, spec)))
		w.runToEnd()
		requireEqual(t, "phase", o.Status.Phase, v1alpha1.PhaseFailed)
		n1, n2 := o.Status.NodeStatuses["n1"], o.Status.NodeStatuses["n2"]
		requireEqual(t, "n1", n1.Phase, v1alpha1.PhaseCompleted)
		requireEqual(t, "n1 runs", n1.CurrentVersion, "v4.1.0-k3s")
		requireEqual(t, "n2", n2.Phase, v1alpha1.PhaseFailed)
		requireEqual(t, "n2 says", n2.Message, "the node booted v4.0.0-k3s (passive) and not v4.1.0-k3s")
		requireEqual(t, "n2 rebooted", n2.RebootStatus, v1alpha1.RebootCompleted)
		requireEqual(t, "n2 runs", n2.CurrentVersion, "v4.0.0-k3s")
		requireEqual(t, "order", w.actionOrder("run command"), "n1 n2")
		requireEqual(t, "n2 cordoned", w.node("n2").Unschedulable, true)
		u := newUpgrade(t, spec)
		s := upgrade.Status(u, o, w.input(o).Nodes, w.now)
		requireEqual(t, "upgrade", s.Phase, v1alpha1.PhaseFailed)
		requireEqual(t, "versions", s.NodeStatuses["n2"].CurrentVersion+" "+s.NodeStatuses["n2"].TargetVersion, "v4.0.0-k3s v4.1.0-k3s")
	}
	w := newEnvironment(t, "n1") // other NodeOps may boot any system
	w.output, w.rebootModes["n1"] = "target v4.1.0-k3s", "falls back"
	o := w.applyYAML(`{metadata: {name: other}, spec: {command: [x], rebootOnSuccess: true}}`)
	w.runToEnd()
	requireEqual(t, "phase", o.Status.Phase, v1alpha1.PhaseCompleted)
}

// An upgrade copies its own root filesystem, so Kubernetes adds as little to it as possible.
func TestUpgradeJob(t *testing.T) {
	w := newEnvironment(t, "n1")
	o := w.addNodeOp(upgrade.NewNodeOp(newUpgrade(t, `{image: "quay.io/kairos/opensuse:v3.4.2", imagePullSecrets: [{name: private}], force: true}`)))
	for range 6 {
		w.tick()
	}
	if len(w.jobs) != 1 {
		t.Fatalf("%d Jobs: %+v", len(w.jobs), o.Status)
	}
	p := w.jobs[0].Spec.Template.Spec
	requireEqual(t, "token", *p.AutomountServiceAccountToken, false)
	requireEqual(t, "links", *p.EnableServiceLinks, false)
	requireEqual(t, "name servers", p.DNSPolicy, corev1.DNSDefault)
	command := p.InitContainers[0].Command[2]
	for _, path := range []string{"/etc/hostname", "/etc/hosts"} {
		requireEqual(t, "leaves out "+path, strings.Contains(command, "--exclude-path '"+path+"'"), true)
	}
}

// Without an upgrade of the active system nothing is drained.
func TestUpgradeDrain(t *testing.T) {
	describe := func(spec string) string {
		return strings.TrimSpace(toYAML(t, upgrade.NewNodeOp(newUpgrade(t, spec)).Spec.DrainOptions))
	}
	requireEqual(t, "drain", describe(`{image: x}`), "deleteEmptyDirData: true\nenabled: true\nforce: false\nignoreDaemonSets: true")
	requireEqual(t, "without a drain", describe(`{image: x, upgradeActive: false, upgradeRecovery: true}`), "null")
}

// A change of nothing but the progress of a drain is no news.
func TestHasNews(t *testing.T) {
	status := func(left int32, message string) v1alpha1.NodeOpStatus {
		entry := v1alpha1.NodeStatus{Message: message, LastUpdated: metav1.Unix(int64(left), 0)}
		if left > 0 {
			entry.Drain = &skyhookv1.DrainProgress{PodsLeft: left}
		}
		return v1alpha1.NodeOpStatus{LastUpdated: metav1.Unix(int64(left), 0), NodeStatuses: map[string]v1alpha1.NodeStatus{"n1": entry}}
	}
	for _, c := range []struct {
		stored, status v1alpha1.NodeOpStatus
		want           bool
	}{
		{status(3, "waits"), status(2, "waits"), false},
		{status(0, "waits"), status(2, "waits"), false},
		{status(3, "waits"), status(0, "waits"), false},
		{status(3, "waits"), status(2, "runs"), true},
		{status(0, "waits"), status(0, "waits"), true},
	} {
		if got := report.HasNews(c.stored, c.status); got != c.want {
			t.Errorf("from %+v to %+v: %v", c.stored, c.status, got)
		}
		if c.stored.NodeStatuses["n1"].Drain != nil && c.stored.NodeStatuses["n1"].Drain.PodsLeft != 3 {
			t.Error("the stored status was changed")
		}
	}
}

// Labels of an earlier boot do not count.
func TestVersionOfBoot(t *testing.T) {
	n := &node.Node{BootID: "b2", Annotations: map[string]string{"kairos.io/version": "v1", v1alpha1.AnnotationLooked: "b1 kairos"}}
	requireEqual(t, "version", kairos.VersionOf(n), "")
	n.Annotations[v1alpha1.AnnotationLooked] = "b2 kairos"
	requireEqual(t, "version", kairos.VersionOf(n), "v1-")
}
