// SPDX-FileCopyrightText: The Skyhook authors
// SPDX-License-Identifier: Apache-2.0

package nodeop

import (
	"slices"
	"testing"

	corev1 "k8s.io/api/core/v1"

	"github.com/skyhook-k8s/skyhook/api/nodeop/v1alpha1"
)

const rebootingOp = `{metadata: {name: up}, spec: {image: private/op, imagePullSecrets: [{name: s}], command: [x], cordon: true, rebootOnSuccess: true, concurrency: 1}}`

func rebooting(p *corev1.Pod) bool { return p.Labels[v1alpha1.LabelReboot] == "true" }

// A reboot pod that was evicted while its node was down is created again, and finds that the host has rebooted already.
func TestRebootPodIsLostOnTheWay(t *testing.T) {
	w := newWorld(t, "n1", "n2")
	o := w.apply(rebootingOp)
	for w.node("n1").BootID == "boot-1" {
		w.turn()
	}
	w.node("n1").Ready = false
	w.pods = slices.DeleteFunc(w.pods, rebooting)
	for range 6 {
		w.turn()
	}
	want(t, "order", w.order("run command"), "n1") // n1 is not ready again
	w.node("n1").Ready = true
	w.run()
	want(t, "phase", o.Status.Phase, v1alpha1.PhaseCompleted)
	want(t, "boot", w.node("n1").BootID, "boot-1'") // once
	want(t, "jobs", w.count("Job"), 2)
	want(t, "cordoned", w.node("n1").Unschedulable, false)
}

// The reboot pod depends on nothing while the node goes down: it has no API token, no service account, no secret, and
// no taint evicts it. It does not use the image of the operation.
func TestRebootPodNeedsNobody(t *testing.T) {
	w := newWorld(t, "n1")
	w.apply(rebootingOp)
	w.boots["n1"] = "never"
	for range 8 {
		w.turn()
	}
	p := w.pods[slices.IndexFunc(w.pods, rebooting)]
	want(t, "token", *p.Spec.AutomountServiceAccountToken, false)
	want(t, "account", p.Spec.ServiceAccountName, "")
	want(t, "secrets", len(p.Spec.ImagePullSecrets), 0)
	want(t, "tolerates everything", slices.Contains(p.Spec.Tolerations, corev1.Toleration{Operator: corev1.TolerationOpExists}), true)
	want(t, "image", p.Spec.Containers[0].Image, "example.org/agent:v1")
	want(t, "command", len(p.Spec.Containers[0].Command), 0) // no shell, no kubectl
	for _, v := range p.Spec.Volumes {
		want(t, "volume "+v.Name, v.HostPath != nil, true)
	}
}

// Our pods stay on a node with taints of every effect, and while it is not ready.
func TestTaintsDriveNothingAway(t *testing.T) {
	w := newWorld(t, "n1")
	w.apply(`{metadata: {name: up}, spec: {command: [x], rebootOnSuccess: true, preflight: {command: [y]}, tolerations: [{key: gpu, operator: Equal, value: a, effect: NoExecute}]}}`)
	seen := map[string][]corev1.Toleration{}
	for range 8 {
		w.turn()
		for _, p := range w.pods {
			seen[p.Name] = p.Spec.Tolerations
		}
	}
	want(t, "pods", len(seen), 3)
	for name, has := range seen {
		for _, taint := range []corev1.Taint{{Key: "node.kubernetes.io/not-ready", Effect: corev1.TaintEffectNoExecute}, {Key: "gpu", Value: "b", Effect: corev1.TaintEffectNoExecute}, {Key: "full", Effect: corev1.TaintEffectNoSchedule}} {
			want(t, name+" tolerates "+taint.Key, slices.ContainsFunc(has, func(t corev1.Toleration) bool {
				return t.TolerationSeconds == nil && (t.Key == "" || t.Key == taint.Key && t.Value == taint.Value) && (t.Effect == "" || t.Effect == taint.Effect)
			}), true)
		}
		want(t, name+" tolerates what was asked for", has[len(has)-1].Value, "a")
	}
}
