// SPDX-FileCopyrightText: The Skyhook authors
// SPDX-License-Identifier: Apache-2.0

package render

import (
	"path"
	"strings"

	corev1 "k8s.io/api/core/v1"

	"github.com/skyhook-k8s/skyhook/api/skyhook/v1alpha1"
	"github.com/skyhook-k8s/skyhook/internal/pack"
	"github.com/skyhook-k8s/skyhook/internal/skyhook/plan"
	"github.com/skyhook-k8s/skyhook/internal/skyhook/podstate"
)

// privateTmp is the directory of the host over which a preflight has one of its own: the only one that it can write. Every host has it.
const privateTmp = "/tmp"

// CheckPod returns the pod that asks the packages of a node what it needs, or checks it for drift; nil if nothing is to be checked.
func (r Renderer) CheckPod(t *plan.Target) *corev1.Pod {
	if asked := r.Facts.PackagesToAsk(t); len(asked) > 0 {
		return r.PreflightPod(t, asked)
	}
	return r.DriftPod(t)
}

// PreflightPod returns the pod in which packages look what a node needs. They can read the whole host, and change nothing of it: the root is
// mounted read-only with all that is mounted below, they have none of the host's namespaces but those of parameters that they declared, and
// the agent runs them as a user without rights.
func (r Renderer) PreflightPod(t *plan.Target, asked map[string]*plan.Definition) *corev1.Pod {
	seconds := int64(plan.PreflightPodTimeout.Seconds())
	spec := corev1.PodSpec{
		NodeName: t.Node.Name, RestartPolicy: corev1.RestartPolicyNever, AutomountServiceAccountToken: new(false), ActiveDeadlineSeconds: &seconds,
		Volumes: []corev1.Volume{{Name: podstate.VolumeRoot, VolumeSource: corev1.VolumeSource{HostPath: &corev1.HostPathVolumeSource{Path: "/"}}}},
	}
	for _, key := range plan.SortedNames(asked) {
		r.addPreflight(&spec, key, asked[key], t)
	}
	shareMessages(spec.Containers)
	return r.newCheckPod(r.Facts.PreflightPodName(t, asked), v1alpha1.LabelPreflight, t.Node, spec)
}

// addPreflight adds the container in which one package looks, and brings the package to it.
func (r Renderer) addPreflight(spec *corev1.PodSpec, key string, def *plan.Definition, t *plan.Target) {
	st := plan.NewStep(def, plan.Work{}, v1alpha1.StageApply)
	st.SetKey(key)
	planned := t.Record.Clone()
	r.planRun(st, &planned, t.Node)
	name := plan.PreflightContainer(key)
	dir := path.Join(privateTmp, r.Facts.Config.CopyDir(r.Facts.Skyhook.Name, r.ownerUID(&planned), st.Name, st.Version, planned.Packages[key].Generation))
	tmp := corev1.Volume{Name: plan.SafeName(63, "tmp", key), VolumeSource: corev1.VolumeSource{EmptyDir: &corev1.EmptyDirVolumeSource{}}}
	addVolume(spec, tmp)
	writable := corev1.VolumeMount{Name: tmp.Name, MountPath: plan.RootMount + privateTmp}
	limit := plan.PreflightTimeout
	if own := r.Facts.DeadlineOf(st); own > 0 {
		limit = min(limit, own)
	}
	timeout := []corev1.EnvVar{{Name: pack.EnvStageTimeout, Value: limit.String()}}
	look := corev1.Container{
		Name: name, Image: r.agentImage(def), ImagePullPolicy: r.pullPolicy(), SecurityContext: unprivilegedContext(lookingCapabilities...), Resources: driftResources(def.Package.Resources),
		Args: []string{string(pack.ModePreflight), plan.RootMount, dir}, Env: r.packageEnv(st, &planned, timeout),
		VolumeMounts: []corev1.VolumeMount{readOnlyRootMount(), writable},
	}
	if p := r.Facts.PrivilegesOf(st, &t.Record, t.Node); !p.IsFull() {
		look.Env = append(look.Env, corev1.EnvVar{Name: pack.EnvPrivileges, Value: strings.Join(p, ",")})
		if p.Has(pack.PrivilegeSysctl) { // whose values are those of the namespaces in which they are read
			spec.HostNetwork, spec.HostIPC = true, true
		}
	}
	var files []corev1.VolumeMount
	if len(def.Files) > 0 {
		config := r.configVolume(st)
		config.Name = plan.SafeName(63, "config", st.Name)
		addVolume(spec, config)
		files = append(files, corev1.VolumeMount{Name: config.Name, MountPath: plan.ConfigDir, ReadOnly: true})
	}
	if r.Facts.IsCompactOn(t.Node, &t.Record) && def.Package.AgentImageOverride == "" {
		image := r.imageVolume(def)
		addVolume(spec, image)
		look.VolumeMounts = append(append(look.VolumeMounts, corev1.VolumeMount{Name: image.Name, MountPath: imageMount, ReadOnly: true}), files...)
		look.Env = append(look.Env, corev1.EnvVar{Name: pack.EnvImageDir, Value: imageMount})
	} else {
		spec.InitContainers = append(spec.InitContainers, corev1.Container{
			Name: plan.SafeName(63, name, "copy"), Image: r.ImageOf(def), ImagePullPolicy: r.pullPolicy(), SecurityContext: unprivilegedContext(), Resources: look.Resources,
			Command: []string{"/bin/sh", "-c"}, Args: []string{copyScript}, Env: []corev1.EnvVar{{Name: pack.EnvSkyhookDir, Value: dir}, podUID()},
			VolumeMounts: append(files, writable),
		})
	}
	spec.Containers = append(spec.Containers, look)
}
