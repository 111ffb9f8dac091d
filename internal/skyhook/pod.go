// SPDX-FileCopyrightText: The Skyhook authors
// SPDX-License-Identifier: Apache-2.0

package skyhook

import (
	"cmp"
	"fmt"
	"strconv"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/skyhook-k8s/skyhook/api/skyhook/v1alpha1"
	"github.com/skyhook-k8s/skyhook/internal/node"
	"github.com/skyhook-k8s/skyhook/internal/pack"
)

// copyScript copies the package to the host, into a directory beside its final one: our agent moves
// that copy into place under its lock. Other agents expect the package in its final directory, so it is also copied there
// when that is missing; without an agent of ours only there. It uses only sh, mkdir and cp,
// because it runs in the package's image. It follows links: those of a mounted configMap do not resolve on the host.
const copyScript = `set -e
bring() { mkdir -p "$1"; cp -rL ` + packageDir + `/. "$1/"; }
to="` + rootMount + `${SKYHOOK_DIR}"
if [ -e "$to/` + pack.DeliveryFile + `" ] || [ ! -e "$to" ]; then bring "$to.${SKYHOOK_POD_UID}"; fi
if [ ! -e "$to/` + pack.DeliveryFile + `" ]; then bring "$to"; fi
`

// object returns the pod of a task, and of those that it runs afterwards, from the record of the node after Change for its run.
func (r renderer) object(t *target, task string, then []string, n *node.Node) (*corev1.Pod, error) {
	st, err := t.findStep(task)
	if err != nil {
		return nil, err
	}
	rec := n.Skyhook(r.facts.Skyhook.Name).Record
	p := rec.Packages[st.key]
	if p == nil || p.At != string(st.stage)+"/"+string(v1alpha1.StateInProgress) && !(p.Again && p.At == string(st.stage)+"/"+string(v1alpha1.StateErroring)) {
		return nil, fmt.Errorf("making the pod for %s on node %s: the node does not record it as running", task, n.Name)
	}
	if st.isInterrupt() {
		if p.Payload == nil || p.Interrupt == "" {
			return nil, fmt.Errorf("making the pod for %s on node %s: the node does not record the interrupt", task, n.Name)
		}
		frozen := *st
		frozen.payload = p.Payload
		return r.taskPod([]*step{&frozen}, &rec, n), nil
	}
	steps := []*step{st}
	for _, id := range then {
		next, err := t.findStep(id)
		if err != nil {
			return nil, err
		}
		steps = append(steps, next)
	}
	return r.taskPod(steps, &rec, n), nil
}

// taskPod returns the pod of steps, in the layout of the node.
func (r renderer) taskPod(steps []*step, rec *node.SkyhookRecord, n *node.Node) *corev1.Pod {
	st := steps[0]
	var out *corev1.Pod
	switch {
	case r.facts.isCompactStep(st, n, rec):
		out = r.compactPod(steps, rec, n)
	case st.isInterrupt():
		out = r.interruptPod(st, rec, n)
	default:
		out = r.stagePod(st, rec, n)
	}
	if st.isInterrupt() {
		out.Labels[v1alpha1.LabelInterrupt] = "True"
	}
	return out
}

func ownerReferences(s *v1alpha1.Skyhook) []metav1.OwnerReference {
	yes := true
	return []metav1.OwnerReference{{
		APIVersion: v1alpha1.GroupVersion.String(), Kind: Kind, Name: s.Name, UID: s.UID, Controller: &yes, BlockOwnerDeletion: &yes,
	}}
}

// renderPod returns the common parts of stage and interrupt pods.
func (r renderer) renderPod(st *step, p *node.PackageRecord, n *node.Node) *corev1.Pod {
	s, no := r.facts.Skyhook, false
	out := &corev1.Pod{
		TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "Pod"},
		ObjectMeta: metav1.ObjectMeta{
			Name: podName(s.Name, st, n.Name), Namespace: r.facts.Config.Namespace, OwnerReferences: ownerReferences(s),
			Labels: map[string]string{
				v1alpha1.LabelName:       s.Name,
				v1alpha1.LabelPackage:    labelValue(st.name + "-" + st.version),
				v1alpha1.LabelStage:      string(st.stage),
				v1alpha1.LabelNode:       nodeLabel(n.Name),
				v1alpha1.LabelGeneration: strconv.FormatInt(p.Generation, 10),
			},
			Annotations: map[string]string{
				v1alpha1.AnnotationPackage: writePodAnnotation(podAnnotation{
					Name: st.name, Version: st.version, Skyhook: s.Name, Stage: st.stage,
					Image: st.def.Package.Image, ContainerSHA: st.def.Package.ContainerSHA,
				}),
				annotationRun:     p.Run,
				annotationContent: r.contentOf(st, st.payload, false),
			},
		},
		Spec: corev1.PodSpec{
			NodeName: n.Name, RestartPolicy: corev1.RestartPolicyOnFailure, HostPID: true, HostNetwork: true,
			ServiceAccountName: r.facts.Config.ServiceAccount, AutomountServiceAccountToken: &no,
			Tolerations: r.tolerations(),
			Volumes:     []corev1.Volume{{Name: volumeRoot, VolumeSource: corev1.VolumeSource{HostPath: &corev1.HostPathVolumeSource{Path: "/"}}}},
			Containers:  []corev1.Container{r.pauseContainer()},
		},
	}
	if p.Attempts > 0 {
		out.Annotations[annotationAttempts] = strconv.Itoa(p.Attempts)
	}
	if r.facts.Config.ImagePullSecret != "" {
		out.Spec.ImagePullSecrets = []corev1.LocalObjectReference{{Name: r.facts.Config.ImagePullSecret}}
	}
	return out
}

func (r renderer) pauseContainer() corev1.Container {
	return corev1.Container{Name: containerPause, Image: r.facts.Config.PauseImage, Resources: fixedResources("100m", "20Mi")}
}

func fixedResources(cpu, memory string) corev1.ResourceRequirements {
	list := corev1.ResourceList{corev1.ResourceCPU: resource.MustParse(cpu), corev1.ResourceMemory: resource.MustParse(memory)}
	return corev1.ResourceRequirements{Requests: list, Limits: list.DeepCopy()}
}

// stagePod copies the package to the host, runs the stage and then its check.
func (r renderer) stagePod(st *step, rec *node.SkyhookRecord, n *node.Node) *corev1.Pod {
	s, d, p := r.facts.Skyhook, st.def, rec.Packages[st.key]
	out := r.renderPod(st, p, n)
	out.Spec.Volumes = append(out.Spec.Volumes, r.metadataVolume(n))
	mounts := []corev1.VolumeMount{rootVolumeMount(), {Name: r.metadataVolume(n).Name, MountPath: metadataDir}}
	if len(d.config) > 0 {
		out.Spec.Volumes = append(out.Spec.Volumes, r.configVolume(st))
		mounts = append(mounts, corev1.VolumeMount{Name: configVolumeName(st.name), MountPath: configDir})
	}
	dir := r.facts.Config.copyDir(s.Name, r.ownerUID(rec), st.name, st.version, p.Generation)
	container := func(suffix, image string) corev1.Container {
		return corev1.Container{
			Name: packageName(st.name) + suffix, Image: image, ImagePullPolicy: r.pullPolicy(), SecurityContext: privilegedContext(),
			VolumeMounts: mounts, Resources: resourceRequirements(d.Package.Resources),
		}
	}
	first := container(suffixCopy, r.imageOf(d))
	first.Command, first.Args = []string{"/bin/sh", "-c"}, []string{copyScript}
	first.Env = []corev1.EnvVar{{Name: pack.EnvSkyhookDir, Value: dir}, podUID()}
	out.Spec.InitContainers = append(out.Spec.InitContainers, first)
	env := r.stageEnv(st, rec)
	for _, check := range []string{"", "-" + suffixCheck} {
		run := container("-"+string(st.stage)+strings.TrimPrefix(check, "-"), r.agentImage(d))
		run.Args = []string{string(st.stage) + check, rootMount, dir}
		run.Env = env
		out.Spec.InitContainers = append(out.Spec.InitContainers, run)
	}
	if g := d.Package.GracefulShutdown; g != nil {
		seconds := max(1, int64(g.Seconds()))
		out.Spec.TerminationGracePeriodSeconds = &seconds
	}
	return out
}

// interruptPod needs the host and no package.
func (r renderer) interruptPod(st *step, rec *node.SkyhookRecord, n *node.Node) *corev1.Pod {
	out := r.renderPod(st, rec.Packages[st.key], n)
	out.Spec.InitContainers = []corev1.Container{r.interruptContainer(st, rec)}
	return out
}

// agentEnv returns the documented environment in its documented order, and the run id.
func (r renderer) agentEnv(st *step, rec *node.SkyhookRecord) []corev1.EnvVar {
	s, config, p := r.facts.Skyhook, r.facts.Config, rec.Packages[st.key]
	return []corev1.EnvVar{
		{Name: pack.EnvLogDir, Value: config.LogRoot + "/" + s.Name},
		{Name: pack.EnvRootDir, Value: config.CopyDirRoot + "/" + s.Name},
		{Name: pack.EnvCopyResolv, Value: "false"},
		{Name: pack.EnvResourceID, Value: resourceID(s.Name, r.ownerUID(rec), st.name, st.version, p.Generation)},
		{Name: pack.EnvNodeOrder, Value: strconv.Itoa(rec.Order)},
		{Name: pack.EnvRunID, Value: p.Run},
	}
}

// stageEnv returns the environment of a stage.
func (r renderer) stageEnv(st *step, rec *node.SkyhookRecord) []corev1.EnvVar {
	return r.packageEnv(st, rec, r.deadlineEnv(st))
}

// packageEnv returns the package's own environment, then the agent's.
func (r renderer) packageEnv(st *step, rec *node.SkyhookRecord, deadline []corev1.EnvVar) []corev1.EnvVar {
	var out []corev1.EnvVar
	var secret []string
	for _, e := range st.def.Package.Env {
		out = append(out, corev1.EnvVar{Name: e.Name, Value: e.Value, ValueFrom: e.ValueFrom.DeepCopy()})
		if e.ValueFrom != nil && e.ValueFrom.SecretKeyRef != nil {
			secret = append(secret, e.Name)
		}
	}
	out = append(out, r.agentEnv(st, rec)...)
	out = append(out, corev1.EnvVar{Name: pack.EnvConfigDigest, Value: pack.ConfigDigest(st.def.config)})
	out = append(out, deadline...)
	out = append(out, podUID())
	if len(secret) > 0 {
		out = append(out, corev1.EnvVar{Name: pack.EnvRedact, Value: pack.JoinNames(secret)})
	}
	return out
}

// ownerUID returns the UID in resource ids and copy directories: that of the first Skyhook of this name that worked on the
// node, so that agents find what they recorded for it.
func (r renderer) ownerUID(rec *node.SkyhookRecord) string {
	return cmp.Or(rec.Owner, string(r.facts.Skyhook.UID))
}

// deadlineEnv returns how long the stage may take, and for earlier agents when it must have ended by the operator's clock.
func (r renderer) deadlineEnv(st *step) []corev1.EnvVar {
	limit := r.facts.deadlineOf(st)
	if limit == 0 {
		return []corev1.EnvVar{{Name: pack.EnvDeadline}}
	}
	return []corev1.EnvVar{
		{Name: pack.EnvDeadline, Value: pack.FormatDeadline(r.facts.Now.Add(limit))},
		{Name: pack.EnvStageTimeout, Value: limit.String()},
	}
}

func podUID() corev1.EnvVar {
	return corev1.EnvVar{Name: pack.EnvPodUID, ValueFrom: &corev1.EnvVarSource{FieldRef: &corev1.ObjectFieldSelector{APIVersion: "v1", FieldPath: "metadata.uid"}}}
}

func rootVolumeMount() corev1.VolumeMount {
	propagate := corev1.MountPropagationHostToContainer
	return corev1.VolumeMount{Name: volumeRoot, MountPath: rootMount, MountPropagation: &propagate}
}

func (r renderer) metadataVolume(n *node.Node) corev1.Volume {
	return corev1.Volume{Name: safeName(63, prefixMetadata, n.Name), VolumeSource: corev1.VolumeSource{
		ConfigMap: &corev1.ConfigMapVolumeSource{LocalObjectReference: corev1.LocalObjectReference{Name: metadataName(r.facts.Skyhook.Name, n.Name)}},
	}}
}

// configVolume mounts the documented ConfigMap if it has this definition, otherwise the frozen one.
func (r renderer) configVolume(st *step) corev1.Volume {
	source := &corev1.ConfigMapVolumeSource{LocalObjectReference: corev1.LocalObjectReference{
		Name: configMapName(r.facts.Skyhook.Name, st.name, st.version)}}
	if want := r.facts.Packages[st.name]; want == nil || want.Hash != st.def.Hash {
		source.Name = definitionName(r.facts.Skyhook.Name, st.def)
		for _, key := range sortedNames(st.def.config) {
			source.Items = append(source.Items, corev1.KeyToPath{Key: key, Path: key})
		}
	}
	return corev1.Volume{Name: configVolumeName(st.name), VolumeSource: corev1.VolumeSource{ConfigMap: source}}
}

func (r renderer) pullPolicy() corev1.PullPolicy {
	if r.facts.Config.AlwaysPull {
		return corev1.PullAlways
	}
	return "" // the default of Kubernetes for the tag or digest
}

func privilegedContext() *corev1.SecurityContext {
	yes := true
	return &corev1.SecurityContext{Privileged: &yes}
}

// imageOf returns the reference that a package names, by digest if it has one.
func imageOf(p v1alpha1.Package) string {
	if p.ContainerSHA != "" {
		return p.Image + "@" + p.ContainerSHA
	}
	return p.Image + ":" + versionTag(p.Version)
}

// versionTag returns the tag of a version. A tag cannot have the plus sign that a version may have.
func versionTag(v v1alpha1.PackageVersion) string { return strings.ReplaceAll(string(v), "+", "_") }

func (r renderer) agentImage(d *Definition) string {
	if d.Package.AgentImageOverride != "" {
		return d.Package.AgentImageOverride
	}
	return r.facts.Config.AgentImage
}

// resourceRequirements returns the resources of the package: all four, or none, so that the namespace's defaults apply.
func resourceRequirements(r v1alpha1.Resources) corev1.ResourceRequirements {
	if r.CPURequest.IsZero() && r.CPULimit.IsZero() && r.MemoryRequest.IsZero() && r.MemoryLimit.IsZero() {
		return corev1.ResourceRequirements{}
	}
	return corev1.ResourceRequirements{
		Requests: corev1.ResourceList{corev1.ResourceCPU: r.CPURequest, corev1.ResourceMemory: r.MemoryRequest},
		Limits:   corev1.ResourceList{corev1.ResourceCPU: r.CPULimit, corev1.ResourceMemory: r.MemoryLimit},
	}
}

// contentOf hashes the inputs of a pod that do not change with every run. A pod is never compared with a new
// rendering, because the API server sets defaults.
func (r renderer) contentOf(st *step, payload *v1alpha1.Interrupt, isCompact bool) string {
	return r.contentFor(st, payload, r.facts.recordedDigest(st.def), isCompact)
}

// contentFor is contentOf with another digest of the package's image; empty for its tag.
func (r renderer) contentFor(st *step, payload *v1alpha1.Interrupt, digest string, isCompact bool) string {
	config := r.facts.Config
	parts := []string{r.agentImage(st.def), config.PauseImage, config.ImagePullSecret, node.EncodeJSON(r.facts.Skyhook.Spec.AdditionalTolerations)}
	if st.isInterrupt() {
		parts = append(parts, node.EncodeJSON(payload))
	} else {
		parts = append(parts, st.def.pod)
		if digest != "" {
			parts = append(parts, digest)
		}
	}
	if isCompact {
		parts = append(parts, string(v1alpha1.PodLayoutCompact))
	}
	return hashID(parts...)
}
