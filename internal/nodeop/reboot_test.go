// SPDX-FileCopyrightText: The Skyhook authors
// SPDX-License-Identifier: Apache-2.0

package nodeop_test

import (
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"

	"github.com/skyhook-k8s/skyhook/api/nodeop/v1alpha1"
	skyhookv1 "github.com/skyhook-k8s/skyhook/api/skyhook/v1alpha1"
	"github.com/skyhook-k8s/skyhook/internal/node"
	"github.com/skyhook-k8s/skyhook/internal/nodeop"
	"github.com/skyhook-k8s/skyhook/internal/rollout"
)

const rebootingOp = `{metadata: {name: up}, spec: {image: private/op, imagePullSecrets: [{name: s}], command: [x], cordon: true, rebootOnSuccess: true, concurrency: 1}}`

func isRebootPod(p *corev1.Pod) bool { return p.Labels[v1alpha1.LabelReboot] == "true" }

// A reboot pod that was evicted while its node was down is created again, and finds that the host has rebooted already.
func TestLostRebootPod(t *testing.T) {
	w := newEnvironment(t, "n1", "n2")
	o := w.applyYAML(rebootingOp)
	for w.node("n1").BootID == "boot-1" {
		w.tick()
	}
	w.node("n1").Ready = false
	w.pods = slices.DeleteFunc(w.pods, isRebootPod)
	for range 6 {
		w.tick()
	}
	requireEqual(t, "order", w.actionOrder("run command"), "n1") // n1 is not ready again
	w.node("n1").Ready = true
	w.runToEnd()
	requireEqual(t, "phase", o.Status.Phase, v1alpha1.PhaseCompleted)
	requireEqual(t, "boot", w.node("n1").BootID, "boot-1'") // once
	requireEqual(t, "jobs", w.countCreated("Job"), 2)
	requireEqual(t, "cordoned", w.node("n1").Unschedulable, false)
}

// A node that has rebooted is running until it is proven, and says that its reboot is done.
func TestProofAfterReboot(t *testing.T) {
	w := newEnvironment(t, "n1")
	w.policy = &skyhookv1.DeploymentPolicy{Spec: skyhookv1.DeploymentPolicySpec{Proof: &skyhookv1.Proof{
		Objects: []skyhookv1.ObjectCheck{{ObjectSelector: skyhookv1.ObjectSelector{APIVersion: "v1", Kind: "ConfigMap", Name: "tests"}, CEL: "object.data.ok"}},
	}}}
	o := w.applyYAML(`{metadata: {name: up}, spec: {command: [x], cordon: true, rebootOnSuccess: true}}`)
	w.findings = node.Findings{{"n1": "the tests have not passed"}}
	for range 20 {
		w.tick()
	}
	entry := o.Status.NodeStatuses["n1"]
	requireEqual(t, "boot", w.node("n1").BootID, "boot-1'")
	requireEqual(t, "phase", entry.Phase, v1alpha1.PhaseRunning)
	requireEqual(t, "reboot", entry.RebootStatus, v1alpha1.RebootCompleted)
	requireEqual(t, "message", entry.Message, "the tests have not passed")
	requireEqual(t, "cordoned", w.node("n1").Unschedulable, true)
	w.findings = node.Findings{{"n1": ""}}
	w.runToEnd()
	requireEqual(t, "phase", o.Status.Phase, v1alpha1.PhaseCompleted)
	requireEqual(t, "cordoned", w.node("n1").Unschedulable, false)
}

// A node that boots again before the operator has seen the first boot has rebooted.
func TestSecondBoot(t *testing.T) {
	w := newEnvironment(t, "n1")
	o := w.applyYAML(rebootingOp)
	w.rebootModes["n1"] = "twice"
	w.runToEnd()
	requireEqual(t, "phase", o.Status.Phase, v1alpha1.PhaseCompleted)
	requireEqual(t, "boot", w.node("n1").BootID, "boot-1''")
	requireEqual(t, "cordoned", w.node("n1").Unschedulable, false)
}

// The reboot pod depends on nothing while the node goes down: it has no API token, no service account, no secret, and
// no taint evicts it. It does not use the image of the operation.
func TestRebootPodIsIndependent(t *testing.T) {
	w := newEnvironment(t, "n1")
	w.applyYAML(rebootingOp)
	w.rebootModes["n1"] = "never"
	for range 8 {
		w.tick()
	}
	p := w.pods[slices.IndexFunc(w.pods, isRebootPod)]
	requireEqual(t, "token", *p.Spec.AutomountServiceAccountToken, false)
	requireEqual(t, "account", p.Spec.ServiceAccountName, "")
	requireEqual(t, "secrets", len(p.Spec.ImagePullSecrets), 0)
	requireEqual(t, "tolerates everything", slices.Contains(p.Spec.Tolerations, corev1.Toleration{Operator: corev1.TolerationOpExists}), true)
	requireEqual(t, "image", p.Spec.Containers[0].Image, "example.org/agent:v1")
	requireEqual(t, "command", len(p.Spec.Containers[0].Command), 0) // no shell, no kubectl
	for _, v := range p.Spec.Volumes {
		requireEqual(t, "volume "+v.Name, v.HostPath != nil, true)
	}
}

// Our pods stay on a node with taints of every effect, and while it is not ready.
func TestPodsTolerateTaints(t *testing.T) {
	w := newEnvironment(t, "n1")
	w.applyYAML(`{metadata: {name: up}, spec: {command: [x], rebootOnSuccess: true, preflight: {command: [y]}}}`)
	seen := map[string][]corev1.Toleration{}
	for range 8 {
		w.tick()
		for _, p := range w.pods {
			seen[p.Name] = p.Spec.Tolerations
		}
	}
	requireEqual(t, "pods", len(seen), 3)
	for name, has := range seen {
		for _, taint := range []corev1.Taint{{Key: "node.kubernetes.io/not-ready", Effect: corev1.TaintEffectNoExecute}, {Key: "gpu", Value: "b", Effect: corev1.TaintEffectNoExecute}, {Key: "full", Effect: corev1.TaintEffectNoSchedule}} {
			requireEqual(t, name+" tolerates "+taint.Key, slices.ContainsFunc(has, func(t corev1.Toleration) bool {
				return t.TolerationSeconds == nil && (t.Key == "" || t.Key == taint.Key && t.Value == taint.Value) && (t.Effect == "" || t.Effect == taint.Effect)
			}), true)
		}
	}
}

const sharingOp = `, spec: {image: private/op, command: [x], cordon: true, rebootOnSuccess: true, shareReboots: true}}`

// NodeOps that share their reboots reboot a node once, after all of their commands. The pod that reboots it is made after the command, and
// the command makes no file for it.
func TestSharedReboot(t *testing.T) {
	w := newEnvironment(t, "n1")
	one, two := w.applyYAML(`{metadata: {name: one}`+sharingOp), w.applyYAML(`{metadata: {name: two}`+sharingOp)
	for w.node("n1").BootID == "boot-1" {
		w.tick()
		for _, j := range w.jobs {
			spec := j.Spec.Template.Spec
			requireEqual(t, "containers", len(spec.Containers), 1)
			requireEqual(t, "command", spec.Containers[0].Name, nodeop.ContainerCommand)
			requireEqual(t, "containers before it", len(spec.InitContainers), 1)
			requireEqual(t, "first", strings.Join(append(spec.InitContainers[0].Args, spec.InitContainers[0].Image), " "), "kairos --root-mount /root example.org/agent:v1")
		}
	}
	requireEqual(t, "commands before the reboot", w.countCreated("Job"), 2)
	w.runToEnd()
	requireEqual(t, "phase", one.Status.Phase, v1alpha1.PhaseCompleted)
	requireEqual(t, "phase", two.Status.Phase, v1alpha1.PhaseCompleted)
	requireEqual(t, "message", two.Status.NodeStatuses["n1"].Message, nodeop.TextRebootDone)
	requireEqual(t, "boot", w.node("n1").BootID, "boot-1'") // once
	requireEqual(t, "reboot pods", len(slices.DeleteFunc(slices.Clone(w.pods), func(p *corev1.Pod) bool { return !isRebootPod(p) })), 1)
	requireEqual(t, "cordoned", w.node("n1").Unschedulable, false)
}

// A node crashes and reports its new boot after NodeOps await their shared reboot. That boot is the reboot for the commands that ended before
// the crash, and for those of which an older agent does not say in which boot they ran.
func TestCrashBeforeSharedReboot(t *testing.T) {
	const (
		latePods = "before the commands end, and their pods are observed after that is recorded"
		gonePods = "before the commands end, and their pods are gone once that is recorded"
	)
	for _, c := range []struct{ name, said, seen, want string }{
		{"before the commands end", "boot-2", "boot-1", "boot-2'"},
		{latePods, "boot-2", "boot-1", "boot-2'"},
		{gonePods, "boot-2", "boot-1", "boot-2'"},
		{"after they ended", "boot-1", "boot-1", "boot-2"},
		{"after they ended, and the node reports that before the operator sees it", "boot-1", "boot-2", "boot-2'"},
		{"before the commands end, with an older agent", "", "boot-1", "boot-2"},
	} {
		t.Run(c.name, func(t *testing.T) {
			w := newEnvironment(t, "n1")
			one, two := w.applyYAML(`{metadata: {name: one}`+sharingOp), w.applyYAML(`{metadata: {name: two}`+sharingOp)
			w.agentBoot = func(name string) string {
				w.node(name).BootID = c.seen
				return c.said
			}
			hasCrashed, recorded := false, 0
			w.hides = func(p *corev1.Pod) bool {
				isHidden := c.name == latePods && !hasCrashed || c.name == gonePods && recorded == 2
				return isHidden && p.Labels[v1alpha1.LabelReboot] == ""
			}
			w.loses = func(a rollout.Action) bool {
				if a.Verb == rollout.VerbRecord && a.Task == nodeop.TaskCommand && a.State == rollout.StateDone {
					recorded++
				}
				isLast := a.Verb == rollout.VerbRun && a.Task == nodeop.TaskReboot && !hasCrashed
				if isLast {
					w.node("n1").BootID, hasCrashed = "boot-2", true
				}
				return isLast
			}
			w.runToEnd()
			requireEqual(t, "crashed", hasCrashed, true)
			requireEqual(t, "phase", one.Status.Phase, v1alpha1.PhaseCompleted)
			requireEqual(t, "phase", two.Status.Phase, v1alpha1.PhaseCompleted)
			requireEqual(t, "boot", w.node("n1").BootID, c.want)
		})
	}
}
