// SPDX-FileCopyrightText: The Skyhook authors
// SPDX-License-Identifier: Apache-2.0

package render

import (
	"maps"
	"slices"
	"strconv"
	"strings"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/skyhook-k8s/skyhook/api/skyhook/v1alpha1"
	"github.com/skyhook-k8s/skyhook/internal/node"
	"github.com/skyhook-k8s/skyhook/internal/pack"
	"github.com/skyhook-k8s/skyhook/internal/skyhook/plan"
	"github.com/skyhook-k8s/skyhook/internal/skyhook/podstate"
)

// DriftPod returns the pod that checks a node for drift; nil if there is nothing to check.
func (r Renderer) DriftPod(t *plan.Target) *corev1.Pod {
	n := t.Node
	if r.Facts.Skyhook.Spec.Drift == nil {
		return nil
	}
	seconds := int64(plan.DriftPodTimeout.Seconds())
	spec := corev1.PodSpec{
		NodeName: n.Name, RestartPolicy: corev1.RestartPolicyNever, HostPID: true, HostNetwork: true, AutomountServiceAccountToken: new(false),
		ActiveDeadlineSeconds: &seconds,
		Volumes:               []corev1.Volume{{Name: podstate.VolumeRoot, VolumeSource: corev1.VolumeSource{HostPath: &corev1.HostPathVolumeSource{Path: "/"}}}},
	}
	packages := r.Facts.CheckedPackages(&t.Record)
	maps.DeleteFunc(packages, func(_ string, def *plan.Definition) bool { return def == nil })
	for _, key := range plan.SortedNames(packages) {
		if r.Facts.IsRightByAnswer(t, key) {
			r.addPreflight(&spec, key, packages[key], t)
			continue
		}
		container, volume := r.driftContainer(&spec, key, packages[key], t)
		spec.Containers = append(spec.Containers, container)
		if volume != nil {
			spec.Volumes = append(spec.Volumes, *volume)
		}
	}
	if len(spec.Containers) == 0 {
		return nil
	}
	spec.HostPID = slices.ContainsFunc(spec.Containers, func(c corev1.Container) bool { return c.SecurityContext.Privileged != nil })
	shareMessages(spec.Containers)
	return r.newCheckPod(r.Facts.DriftPodName(t), v1alpha1.LabelDrift, n, spec)
}

// maxMessages is the most bytes that the termination messages of a pod have together, less some that encoding adds.
const maxMessages = 12<<10 - 512

// shareMessages shares them evenly among containers.
func shareMessages(containers []corev1.Container) {
	for i := range containers {
		containers[i].Env = append(containers[i].Env, corev1.EnvVar{Name: pack.EnvMessageLimit, Value: strconv.Itoa(maxMessages / len(containers))})
	}
}

// readOnlyRoot is where the host's root is mounted read-only beside rootMount.
const readOnlyRoot = "/root-read-only"

// driftContainer checks one package by what is on the host: its image is not needed. Its configMap is mounted to show how files differ.
func (r Renderer) driftContainer(spec *corev1.PodSpec, key string, def *plan.Definition, t *plan.Target) (corev1.Container, *corev1.Volume) {
	st := plan.NewStep(def, plan.Work{}, t.On.State[key].Stage)
	st.SetKey(key)
	checks := []string{string(pack.ModeApplyCheck), string(pack.ModeConfigCheck)}
	if st.Stage == v1alpha1.StagePostInterrupt {
		checks = append(checks, string(pack.ModePostInterruptCheck))
	}
	timeout := []corev1.EnvVar{{Name: pack.EnvStageTimeout, Value: min(r.Facts.DeadlineOf(st), plan.DriftTimeout).String()}}
	dir := r.Facts.Config.CopyDir(r.Facts.Skyhook.Name, r.ownerUID(&t.Record), st.Name, st.Version, t.Record.Packages[key].Generation)
	p, files := r.Facts.PrivilegesOf(st, &t.Record, t.Node), readOnlyRoot
	if !p.IsFull() {
		files = plan.RootMount
	}
	out := corev1.Container{
		Name: plan.DriftContainer(key), Image: r.agentImage(def), ImagePullPolicy: r.pullPolicy(), SecurityContext: privilegedContext(),
		Args: []string{string(pack.ModeDrift), plan.RootMount, dir},
		Env: append(r.packageEnv(st, &t.Record, timeout),
			corev1.EnvVar{Name: pack.EnvReadOnlyRoot, Value: files}, corev1.EnvVar{Name: pack.EnvDriftChecks, Value: strings.Join(checks, ",")}),
		VolumeMounts: []corev1.VolumeMount{
			rootVolumeMount(), {Name: podstate.VolumeRoot, MountPath: readOnlyRoot, ReadOnly: true, RecursiveReadOnly: new(corev1.RecursiveReadOnlyIfPossible)},
		},
		Resources: driftResources(def.Package.Resources),
	}
	if !p.IsFull() {
		out.SecurityContext = unprivilegedContext(lookingCapabilities...)
		out.VolumeMounts = []corev1.VolumeMount{readOnlyRootMount(), privateMount(spec, out.Name, privateTmp)}
		out.Env = append(out.Env, corev1.EnvVar{Name: pack.EnvPrivileges, Value: strings.Join(p, ",")})
		spec.HostIPC = spec.HostIPC || p.Has(pack.PrivilegeSysctl)
	}
	if len(def.Files) == 0 {
		return out, nil
	}
	volume, isOptional := r.configVolume(st), true
	volume.ConfigMap.Optional = &isOptional
	out.VolumeMounts = append(out.VolumeMounts, corev1.VolumeMount{Name: volume.Name, MountPath: plan.ConfigDir, ReadOnly: true})
	return out, &volume
}

// driftResources limits a check as the stages of the package are, and requests little: the checks of all packages run side by side.
func driftResources(of v1alpha1.Resources) corev1.ResourceRequirements {
	out := resourceRequirements(of)
	small := fixedResources("10m", "16Mi").Requests
	if out.Limits == nil {
		return corev1.ResourceRequirements{}
	}
	for name, request := range out.Requests {
		if request.Cmp(small[name]) > 0 {
			out.Requests[name] = small[name]
		}
	}
	return out
}

// newCheckPod returns a pod that checks a node, marked by a label.
func (r Renderer) newCheckPod(name, label string, n *node.Node, spec corev1.PodSpec) *corev1.Pod {
	s := r.Facts.Skyhook
	out := &corev1.Pod{
		TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "Pod"},
		ObjectMeta: metav1.ObjectMeta{
			Name: name, Namespace: r.Facts.Config.Namespace, OwnerReferences: plan.OwnerReferences(s),
			Labels: map[string]string{v1alpha1.LabelName: s.Name, v1alpha1.LabelNode: plan.NodeLabel(n.Name), label: "True"},
		},
		Spec: spec,
	}
	out.Spec.ServiceAccountName, out.Spec.Tolerations = r.Facts.Config.ServiceAccount, r.tolerations()
	out.Spec.ImagePullSecrets = plan.PullSecrets(r.Facts.Config.ImagePullSecret)
	return out
}
