// SPDX-FileCopyrightText: The Skyhook authors
// SPDX-License-Identifier: Apache-2.0

package skyhook

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"

	"github.com/skyhook-k8s/skyhook/api/skyhook/v1alpha1"
	"github.com/skyhook-k8s/skyhook/internal/node"
	"github.com/skyhook-k8s/skyhook/internal/skyhook/plan"
)

// describeMay says what a pod may do on the host: its namespaces, and for each container whether it is privileged, or what it may write.
func describeMay(p *corev1.Pod) string {
	out := ""
	for name, is := range map[string]bool{"pid ": p.Spec.HostPID, "net ": p.Spec.HostNetwork, "ipc ": p.Spec.HostIPC} {
		if is {
			out += name
		}
	}
	words := strings.Fields(out)
	slices.Sort(words)
	lines := []string{strings.Join(words, " ")}
	for _, c := range slices.Concat(p.Spec.InitContainers, p.Spec.Containers) {
		switch of := c.SecurityContext; {
		case of == nil:
			continue
		case of.Privileged != nil:
			lines = append(lines, c.Name+": privileged")
			continue
		}
		var writes []string
		isReadOnly := false
		for _, m := range c.VolumeMounts {
			at := slices.IndexFunc(p.Spec.Volumes, func(v corev1.Volume) bool { return v.Name == m.Name })
			host := p.Spec.Volumes[at].HostPath
			if dir, isBelow := strings.CutPrefix(m.MountPath, plan.RootMount+"/"); isBelow && host != nil && !m.ReadOnly {
				writes = append(writes, "/"+dir)
			}
			isReadOnly = isReadOnly || m.MountPath == plan.RootMount && m.ReadOnly && *m.RecursiveReadOnly == corev1.RecursiveReadOnlyEnabled
		}
		env := ""
		for _, e := range c.Env {
			if e.Name == "SKYHOOK_PRIVILEGES" {
				env = ", steps have " + e.Value
			}
		}
		lines = append(lines, fmt.Sprintf("%s: writes %s, reads all: %v, %d capabilities%s", c.Name, strings.Join(writes, " "), isReadOnly, len(c.SecurityContext.Capabilities.Add), env))
	}
	return strings.Join(lines, "\n")
}

const privilegedHook = `
apiVersion: skyhook.nvidia.com/v1alpha1
kind: Skyhook
metadata: {name: demo}
spec:
  nodeSelectors: {matchLabels: {kubernetes.io/hostname: n1}}
  preflight: Ask
  packages:
    kernel: {version: 1.0.0, image: registry.example/kernel, interrupt: {type: reboot}}
    shell: {version: 2.0.0, image: registry.example/shell, dependsOn: {kernel: 1.0.0}, privileges: [/etc/motd.d]}
`

// TestPrivileges: pods may do what the Skyhook says, or else what config.json of the package declares. What cannot be limited, or is not
// declared, has all.
func TestPrivileges(t *testing.T) {
	const own = "/var/lib/skyhook/demo /var/log/skyhook/demo"
	for _, c := range []struct {
		layout      plan.PodLayout
		hangs, want string
	}{
		{plan.LayoutCompact, "kernel|1.0.0/apply", `ipc net pid
kernel-apply: writes ` + own + ` /proc/sys, reads all: true, 9 capabilities, steps have services,sysctl
kernel-config: writes ` + own + ` /proc/sys, reads all: true, 9 capabilities, steps have services,sysctl`},
		{plan.LayoutCompact, "kernel|1.0.0/interrupt", "net pid\ninterrupt: writes " + own + ", reads all: true, 9 capabilities, steps have reboot"},
		{plan.LayoutCompatible, "kernel|1.0.0/apply", `ipc net pid
kernel-init: writes /var/lib/skyhook/demo, reads all: false, 0 capabilities
kernel-apply: writes ` + own + ` /proc/sys, reads all: true, 9 capabilities, steps have services,sysctl
kernel-applycheck: writes ` + own + ` /proc/sys, reads all: true, 9 capabilities, steps have services,sysctl`},
		{plan.LayoutCompatible, "shell|2.0.0/config", `net
shell-init: writes /var/lib/skyhook/demo, reads all: false, 0 capabilities
shell-config: writes ` + own + ` /etc/motd.d, reads all: true, 9 capabilities, steps have /etc/motd.d
shell-configcheck: writes ` + own + ` /etc/motd.d, reads all: true, 9 capabilities, steps have /etc/motd.d`},
	} {
		w, s := newAskedClusterOf(t, privilegedHook)
		w.config.PodLayout = c.layout
		w.ask(s, "kernel reboot may services,sysctl")
		w.hangs[c.hangs] = true
		w.drive(s)
		if got := describeMay(w.pods[0]); got != c.want {
			t.Errorf("%s of layout %s:\n%s\nwant\n%s", c.hangs, c.layout, got, c.want)
		}
	}
}

// TestPrivilegesAreRemembered: a package is uninstalled and checked with what it declared when it was installed.
func TestPrivilegesAreRemembered(t *testing.T) {
	w, s := newAskedClusterOf(t, privilegedHook)
	s.Spec.Drift = &v1alpha1.Drift{}
	w.ask(s, "kernel reboot may services")
	w.drive(s)
	c := w.compile(s)
	pod := c.CheckPod(node.Parse(w.node("n1").DeepCopy(), nil))
	const want = "net\nkernel-drift-1-0-0-b7f0d0a5: writes , reads all: true, 5 capabilities, steps have services"
	if got := describeMay(pod); !strings.HasPrefix(got, "net\nkernel-") || strings.Count(got, "5 capabilities") != 2 || strings.Contains(got, "privileged") {
		t.Errorf("the check for drift is\n%s\nwant such as\n%s", got, want)
	}
	delete(s.Spec.Packages, "kernel")
	shell := s.Spec.Packages["shell"]
	shell.DependsOn = nil
	s.Spec.Packages["shell"] = shell
	s.Generation++
	w.hangs["kernel|1.0.0/uninstall"] = true
	w.drive(s)
	if got := describeMay(w.pods[0]); !strings.Contains(got, "steps have services") || strings.Contains(got, "privileged") {
		t.Errorf("the uninstall is\n%s", got)
	}
}

// TestMaxPrivileges: nothing begins on a node with a package that may need more than the policy allows.
func TestMaxPrivileges(t *testing.T) {
	for _, c := range []struct{ answer, most, want string }{
		{"", "Full", ""},
		{"kernel reboot may services", "Services", ""},
		{"kernel reboot may services", "Reboot", ""},
		{"kernel reboot may services,/etc", "Files", "maxPrivileges of policy limits is Files, and package kernel needs services"},
		{"kernel absent may full", "Reboot", "maxPrivileges of policy limits is Reboot, and package kernel has not declared what it needs, which counts as full"},
		{"", "Reboot", "maxPrivileges of policy limits is Reboot, and package kernel has not declared what it needs, which counts as full"},
	} {
		w, s := newAskedClusterOf(t, privilegedHook)
		w.policy = &v1alpha1.DeploymentPolicy{}
		w.policy.Name, w.policy.Spec.MaxPrivileges = "limits", v1alpha1.PrivilegeClass(c.most)
		if why := w.target(s).Blocked; why != nil {
			t.Errorf("%+v: it is blocked before its packages were asked: %s", c, why.Text)
		}
		w.ask(s, c.answer)
		got := ""
		if why := w.target(s).Blocked; why != nil {
			got = why.Text
		}
		if got != c.want {
			t.Errorf("%+v: it is blocked by %q", c, got)
		}
	}
	w, s := newAskedClusterOf(t, privilegedHook)
	w.node("n1").Status.RuntimeHandlers = nil
	w.bumpVersion(w.node("n1"))
	if why := w.target(s).Blocked; why == nil || !strings.Contains(why.Text, "does not mount the host read-only") {
		t.Errorf("a node whose runtime cannot limit pods is blocked by %+v", why)
	}
}

// TestPrivilegesAreOfImage: what the image of a package declared counts for the same image, and stages share no pod with those of a
// package that may do something else to the node.
func TestPrivilegesAreOfImage(t *testing.T) {
	w, s := newAskedClusterOf(t, privilegedHook)
	w.config.PodLayout = plan.LayoutCompact
	w.ask(s, "kernel apply may services,sysctl")
	joins := map[string]bool{}
	for _, task := range w.target(s).Tasks {
		joins[task.ID] = task.Joins
	}
	if !joins["kernel|1.0.0/apply"] || !joins["kernel|1.0.0/config"] || joins["shell|2.0.0/apply"] {
		t.Errorf("these share a pod: %v", joins)
	}
	c := w.compile(s)
	rec := node.Parse(w.node("n1").DeepCopy(), nil).Skyhook("demo").Record
	st := plan.NewStep(c.facts.Packages["kernel"], plan.Work{}, v1alpha1.StageApply)
	if got := c.facts.DeclaredOn(&rec, st); !got.Has("services") {
		t.Errorf("the package has the privileges %v", got)
	}
	edited := s.Spec.Packages["kernel"]
	for _, image := range []string{"registry.example/kernel", "registry.example/other"} {
		edited.Image, edited.ConfigMap = image, map[string]v1alpha1.ConfigData{"a": "b"}
		s.Spec.Packages["kernel"] = edited
		s.Generation++
		c = w.compile(s)
		look := c.CheckPod(node.Parse(w.node("n1").DeepCopy(), nil)).Spec
		if isKnown := image == "registry.example/kernel"; look.HostNetwork != isKnown || look.HostIPC != isKnown || look.HostPID {
			t.Errorf("with the image %s a preflight has the host's network: %v, IPC: %v, processes: %v", image, look.HostNetwork, look.HostIPC, look.HostPID)
		}
		got := c.facts.DeclaredOn(&rec, plan.NewStep(c.facts.Packages["kernel"], plan.Work{}, v1alpha1.StageApply))
		if got.Has("services") != (image == "registry.example/kernel") {
			t.Errorf("with the image %s and another configMap the package has the privileges %v", image, got)
		}
	}
}

// TestPrivilegesDuringVisit: a version that replaces one that fails gets what that declared, where a policy forbids everything; a package
// of which nothing is known waits.
func TestPrivilegesDuringVisit(t *testing.T) {
	w, s := newAskedClusterOf(t, privilegedHook)
	w.policy = &v1alpha1.DeploymentPolicy{}
	w.policy.Name, w.policy.Spec.MaxPrivileges = "limits", "Services"
	w.ask(s, "kernel reboot may services")
	w.hangs["kernel|1.0.0/apply"] = true
	w.drive(s)
	if why := w.target(s).Blocked; why != nil {
		t.Fatalf("it is blocked during its visit: %s", why.Text)
	}
	kernel := s.Spec.Packages["kernel"]
	kernel.Version = "1.0.1"
	s.Spec.Packages["kernel"] = kernel
	shell := s.Spec.Packages["shell"]
	shell.DependsOn = map[string]v1alpha1.PackageVersion{"kernel": "1.0.1"}
	s.Spec.Packages["shell"] = shell
	s.Generation++
	if why := w.target(s).Blocked; why != nil {
		t.Errorf("another version is blocked: %s", why.Text)
	}
	s.Spec.Packages["other"] = v1alpha1.Package{Version: "1.0.0", Image: "registry.example/other"}
	s.Generation++
	if why := w.target(s).Blocked; why == nil || !strings.Contains(why.Text, "package other has not declared") {
		t.Errorf("a package that nobody knows is blocked by %+v", why)
	}
}
