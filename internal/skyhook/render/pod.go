// SPDX-FileCopyrightText: The Skyhook authors
// SPDX-License-Identifier: Apache-2.0

package render

import (
	"cmp"
	"fmt"
	"slices"
	"strconv"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/skyhook-k8s/skyhook/api/skyhook/v1alpha1"
	"github.com/skyhook-k8s/skyhook/internal/node"
	"github.com/skyhook-k8s/skyhook/internal/pack"
	"github.com/skyhook-k8s/skyhook/internal/skyhook/plan"
	"github.com/skyhook-k8s/skyhook/internal/skyhook/podstate"
)

// copyScript copies the package to the host, into a directory beside its final one: our agent moves
// that copy into place under its lock. Other agents expect the package in its final directory, so it is also copied there
// when that is missing; without an agent of ours only there. It uses only sh, mkdir and cp,
// because it runs in the package's image. It follows links: those of a mounted configMap do not resolve on the host. That may hold secrets, so
// its directory is private before the first file is there: cp keeps the mode of a directory that exists.
const copyScript = `set -e
bring() {
  mkdir -p "$1"
  if [ -d ` + plan.ConfigDir + ` ]; then mkdir -p -m 0700 "$1/` + pack.ConfigMapDir + `"; fi
  cp -rL ` + plan.PackageDir + `/. "$1/"
}
to="` + plan.RootMount + `${SKYHOOK_DIR}"
if [ -e "$to/` + pack.DeliveryFile + `" ] || [ ! -e "$to" ]; then bring "$to.${SKYHOOK_POD_UID}"; fi
if [ ! -e "$to/` + pack.DeliveryFile + `" ]; then bring "$to"; fi
`

// Object returns the pod of a task, and of those that it runs afterwards, from the record of the node after Change for its run.
func (r Renderer) Object(t *plan.Target, task string, then []string, n *node.Node) (*corev1.Pod, error) {
	st, err := t.FindStep(task)
	if err != nil {
		return nil, err
	}
	rec := n.Skyhook(r.Facts.Skyhook.Name).Record
	p := rec.Packages[st.Key]
	if p == nil || p.At != string(st.Stage)+"/"+string(v1alpha1.StateInProgress) && !(p.Again && p.At == string(st.Stage)+"/"+string(v1alpha1.StateErroring)) {
		return nil, fmt.Errorf("making the pod for %s on node %s: the node does not record it as running", task, n.Name)
	}
	if st.IsInterrupt() {
		if p.Payload == nil || p.Interrupt == "" {
			return nil, fmt.Errorf("making the pod for %s on node %s: the node does not record the interrupt", task, n.Name)
		}
		frozen := *st
		frozen.Payload = p.Payload
		return r.taskPod([]*plan.Step{&frozen}, &rec, n), nil
	}
	steps := []*plan.Step{st}
	for _, id := range then {
		next, err := t.FindStep(id)
		if err != nil {
			return nil, err
		}
		steps = append(steps, next)
	}
	return r.taskPod(steps, &rec, n), nil
}

// taskPod returns the pod of steps, in the layout of the node.
func (r Renderer) taskPod(steps []*plan.Step, rec *node.SkyhookRecord, n *node.Node) *corev1.Pod {
	st := steps[0]
	var out *corev1.Pod
	switch {
	case r.Facts.IsCompactStep(st, n, rec):
		out = r.compactPod(steps, rec, n)
	case st.IsInterrupt():
		out = r.interruptPod(st, rec, n)
	default:
		out = r.stagePod(st, rec, n)
	}
	if st.IsInterrupt() {
		out.Labels[v1alpha1.LabelInterrupt] = "True"
	}
	return out
}

// renderPod returns the common parts of stage and interrupt pods.
func (r Renderer) renderPod(st *plan.Step, p *node.PackageRecord, n *node.Node) *corev1.Pod {
	s, no := r.Facts.Skyhook, false
	out := &corev1.Pod{
		TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "Pod"},
		ObjectMeta: metav1.ObjectMeta{
			Name: plan.PodName(s.Name, st, n.Name), Namespace: r.Facts.Config.Namespace, OwnerReferences: plan.OwnerReferences(s),
			Labels: map[string]string{
				v1alpha1.LabelName:       s.Name,
				v1alpha1.LabelPackage:    plan.LabelValue(st.Name + "-" + st.Version),
				v1alpha1.LabelStage:      string(st.Stage),
				v1alpha1.LabelNode:       plan.NodeLabel(n.Name),
				v1alpha1.LabelGeneration: strconv.FormatInt(p.Generation, 10),
			},
			Annotations: map[string]string{
				v1alpha1.AnnotationPackage: podstate.WritePodAnnotation(podstate.Annotation{
					Name: st.Name, Version: st.Version, Skyhook: s.Name, Stage: st.Stage,
					Image: st.Definition.Package.Image, ContainerSHA: st.Definition.Package.ContainerSHA,
				}),
				podstate.AnnotationRun:     p.Run,
				podstate.AnnotationContent: r.ContentOf(st, st.Payload, false),
			},
		},
		Spec: corev1.PodSpec{
			NodeName: n.Name, RestartPolicy: corev1.RestartPolicyOnFailure, HostPID: true, HostNetwork: true,
			ServiceAccountName: r.Facts.Config.ServiceAccount, AutomountServiceAccountToken: &no,
			Tolerations: r.tolerations(),
			Volumes:     []corev1.Volume{{Name: podstate.VolumeRoot, VolumeSource: corev1.VolumeSource{HostPath: &corev1.HostPathVolumeSource{Path: "/"}}}},
			Containers:  []corev1.Container{r.pauseContainer()},
		},
	}
	if p.Attempts > 0 {
		out.Annotations[podstate.AnnotationAttempts] = strconv.Itoa(p.Attempts)
	}
	out.Spec.ImagePullSecrets = plan.PullSecrets(r.Facts.Config.ImagePullSecret)
	return out
}

func (r Renderer) pauseContainer() corev1.Container {
	return corev1.Container{Name: podstate.ContainerPause, Image: r.Facts.Config.PauseImage, Resources: fixedResources("100m", "20Mi")}
}

func fixedResources(cpu, memory string) corev1.ResourceRequirements {
	list := corev1.ResourceList{corev1.ResourceCPU: resource.MustParse(cpu), corev1.ResourceMemory: resource.MustParse(memory)}
	return corev1.ResourceRequirements{Requests: list, Limits: list.DeepCopy()}
}

// stagePod copies the package to the host, runs the stage and then its check.
func (r Renderer) stagePod(st *plan.Step, rec *node.SkyhookRecord, n *node.Node) *corev1.Pod {
	s, d, p := r.Facts.Skyhook, st.Definition, rec.Packages[st.Key]
	out := r.renderPod(st, p, n)
	out.Spec.Volumes = append(out.Spec.Volumes, r.metadataVolume(n))
	mounts := []corev1.VolumeMount{rootVolumeMount(), {Name: r.metadataVolume(n).Name, MountPath: plan.MetadataDir}}
	if len(d.Files) > 0 {
		out.Spec.Volumes = append(out.Spec.Volumes, r.configVolume(st))
		mounts = append(mounts, corev1.VolumeMount{Name: plan.ConfigVolumeName(st.Name), MountPath: plan.ConfigDir})
	}
	dir := r.Facts.Config.CopyDir(s.Name, r.ownerUID(rec), st.Name, st.Version, p.Generation)
	container := func(suffix, image string) corev1.Container {
		return corev1.Container{
			Name: plan.PackageName(st.Name) + suffix, Image: image, ImagePullPolicy: r.pullPolicy(), SecurityContext: privilegedContext(),
			VolumeMounts: mounts, Resources: resourceRequirements(d.Package.Resources),
		}
	}
	first := container(podstate.SuffixCopy, r.ImageOf(d))
	first.Command, first.Args = []string{"/bin/sh", "-c"}, []string{copyScript}
	first.Env = []corev1.EnvVar{{Name: pack.EnvSkyhookDir, Value: dir}, podUID()}
	privileges := r.Facts.PrivilegesOf(st, rec, n)
	r.confineCopy(&out.Spec, &first, privileges)
	confinePod(&out.Spec, privileges)
	out.Spec.InitContainers = append(out.Spec.InitContainers, first)
	env := r.stageEnv(st, rec)
	for _, check := range []string{"", "-" + podstate.SuffixCheck} {
		run := container("-"+string(st.Stage)+strings.TrimPrefix(check, "-"), r.agentImage(d))
		run.Args = []string{string(st.Stage) + check, plan.RootMount, dir}
		run.Env = slices.Clone(env)
		r.confine(&out.Spec, &run, privileges)
		out.Spec.InitContainers = append(out.Spec.InitContainers, run)
	}
	if g := d.Package.GracefulShutdown; g != nil {
		seconds := max(1, int64(g.Seconds()))
		out.Spec.TerminationGracePeriodSeconds = &seconds
	}
	return out
}

// interruptPod needs the host and no package.
func (r Renderer) interruptPod(st *plan.Step, rec *node.SkyhookRecord, n *node.Node) *corev1.Pod {
	out := r.renderPod(st, rec.Packages[st.Key], n)
	out.Spec.InitContainers = []corev1.Container{r.interruptContainer(&out.Spec, st, rec, n)}
	confinePod(&out.Spec, r.Facts.PrivilegesOf(st, rec, n))
	return out
}

// agentEnv returns the documented environment in its documented order, and the run id.
func (r Renderer) agentEnv(st *plan.Step, rec *node.SkyhookRecord) []corev1.EnvVar {
	s, config, p := r.Facts.Skyhook, r.Facts.Config, rec.Packages[st.Key]
	return []corev1.EnvVar{
		{Name: pack.EnvLogDir, Value: config.LogRoot + "/" + s.Name},
		{Name: pack.EnvRootDir, Value: config.CopyDirRoot + "/" + s.Name},
		{Name: pack.EnvCopyResolv, Value: "false"},
		{Name: pack.EnvResourceID, Value: plan.ResourceID(s.Name, r.ownerUID(rec), st.Name, st.Version, p.Generation)},
		{Name: pack.EnvNodeOrder, Value: strconv.Itoa(rec.Order)},
		{Name: pack.EnvRunID, Value: p.Run},
	}
}

// stageEnv returns the environment of a stage.
func (r Renderer) stageEnv(st *plan.Step, rec *node.SkyhookRecord) []corev1.EnvVar {
	return r.packageEnv(st, rec, r.deadlineEnv(st))
}

// packageEnv returns the package's own environment, then the agent's.
func (r Renderer) packageEnv(st *plan.Step, rec *node.SkyhookRecord, deadline []corev1.EnvVar) []corev1.EnvVar {
	var out []corev1.EnvVar
	var secret []string
	for _, e := range st.Definition.Package.Env {
		out = append(out, corev1.EnvVar{Name: e.Name, Value: e.Value, ValueFrom: e.ValueFrom.Kubernetes()})
		if e.ValueFrom != nil && e.ValueFrom.SecretKeyRef != nil {
			secret = append(secret, e.Name)
		}
	}
	out = append(out, r.agentEnv(st, rec)...)
	out = append(out, corev1.EnvVar{Name: pack.EnvConfigDigest, Value: pack.ConfigDigest(st.Definition.Files)})
	out = append(out, deadline...)
	out = append(out, podUID())
	if len(secret) > 0 {
		out = append(out, corev1.EnvVar{Name: pack.EnvRedact, Value: pack.JoinNames(secret)})
	}
	return out
}

// ownerUID returns the UID in resource ids and copy directories: that of the first Skyhook of this name that worked on the
// node, so that agents find what they recorded for it.
func (r Renderer) ownerUID(rec *node.SkyhookRecord) string {
	return cmp.Or(rec.Owner, string(r.Facts.Skyhook.UID))
}

// deadlineEnv returns how long the stage may take, and for earlier agents when it must have ended by the operator's clock.
func (r Renderer) deadlineEnv(st *plan.Step) []corev1.EnvVar {
	limit := r.Facts.DeadlineOf(st)
	if limit == 0 {
		return []corev1.EnvVar{{Name: pack.EnvDeadline}}
	}
	return []corev1.EnvVar{
		{Name: pack.EnvDeadline, Value: pack.FormatDeadline(r.Facts.Now.Add(limit))},
		{Name: pack.EnvStageTimeout, Value: limit.String()},
	}
}

func podUID() corev1.EnvVar {
	return corev1.EnvVar{Name: pack.EnvPodUID, ValueFrom: &corev1.EnvVarSource{FieldRef: &corev1.ObjectFieldSelector{APIVersion: "v1", FieldPath: "metadata.uid"}}}
}

func rootVolumeMount() corev1.VolumeMount {
	propagate := corev1.MountPropagationHostToContainer
	return corev1.VolumeMount{Name: podstate.VolumeRoot, MountPath: plan.RootMount, MountPropagation: &propagate}
}

func (r Renderer) metadataVolume(n *node.Node) corev1.Volume {
	return corev1.Volume{Name: plan.SafeName(63, podstate.PrefixMetadata, n.Name), VolumeSource: corev1.VolumeSource{
		ConfigMap: &corev1.ConfigMapVolumeSource{LocalObjectReference: corev1.LocalObjectReference{Name: plan.MetadataName(r.Facts.Skyhook.Name, n.Name)}},
	}}
}

// configVolume mounts the documented ConfigMap if it has this definition, otherwise the frozen one.
func (r Renderer) configVolume(st *plan.Step) corev1.Volume {
	source := &corev1.ConfigMapVolumeSource{LocalObjectReference: corev1.LocalObjectReference{
		Name: plan.ConfigMapName(r.Facts.Skyhook.Name, st.Name, st.Version)}}
	if want := r.Facts.Packages[st.Name]; want == nil || want.Hash != st.Definition.Hash {
		source.Name = plan.DefinitionName(r.Facts.Skyhook.Name, st.Definition)
		for _, key := range plan.SortedNames(st.Definition.Files) {
			source.Items = append(source.Items, corev1.KeyToPath{Key: key, Path: key})
		}
	}
	return corev1.Volume{Name: plan.ConfigVolumeName(st.Name), VolumeSource: corev1.VolumeSource{ConfigMap: source}}
}

func (r Renderer) pullPolicy() corev1.PullPolicy {
	if r.Facts.Config.AlwaysPull {
		return corev1.PullAlways
	}
	return "" // the default of Kubernetes for the tag or digest
}

func privilegedContext() *corev1.SecurityContext {
	yes := true
	return &corev1.SecurityContext{Privileged: &yes}
}

func (r Renderer) agentImage(d *plan.Definition) string {
	if d.Package.AgentImageOverride != "" {
		return d.Package.AgentImageOverride
	}
	return r.Facts.Config.AgentImage
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

// ContentOf hashes the inputs of a pod that do not change with every run. A pod is never compared with a new
// rendering, because the API server sets defaults.
func (r Renderer) ContentOf(st *plan.Step, payload *v1alpha1.Interrupt, isCompact bool) string {
	return r.ContentFor(st, payload, r.Facts.RecordedDigest(st.Definition), isCompact)
}

// ContentFor is contentOf with another digest of the package's image; empty for its tag.
func (r Renderer) ContentFor(st *plan.Step, payload *v1alpha1.Interrupt, digest string, isCompact bool) string {
	config := r.Facts.Config
	parts := []string{r.agentImage(st.Definition), config.PauseImage, config.ImagePullSecret, node.EncodeJSON(r.Facts.Skyhook.Spec.AdditionalTolerations)}
	if st.IsInterrupt() {
		parts = append(parts, node.EncodeJSON(payload))
	} else {
		parts = append(parts, st.Definition.PodHash)
		if digest != "" {
			parts = append(parts, digest)
		}
	}
	if isCompact {
		parts = append(parts, string(plan.LayoutCompact))
	}
	return plan.HashID(parts...)
}
