// SPDX-FileCopyrightText: The Skyhook authors
// SPDX-License-Identifier: Apache-2.0

package render

import (
	"cmp"
	"slices"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"

	"github.com/skyhook-k8s/skyhook/internal/node"
	"github.com/skyhook-k8s/skyhook/internal/pack"
	"github.com/skyhook-k8s/skyhook/internal/skyhook/plan"
	"github.com/skyhook-k8s/skyhook/internal/skyhook/podstate"
)

// Paths inside the containers of a compact pod.
const (
	imageMount  = "/skyhook-image"
	podInfoDir  = "/skyhook-pod"
	stopFile    = "stop"
	progressDir = "/skyhook-progress"
)

// Volumes of a compact pod.
const (
	volumePodInfo  = "pod-info"
	volumeProgress = "progress" // has a file for each stage that has succeeded, with the name of its container
)

// compactPod runs steps one after the other, each in a container that also checks it. The kubelet starts the containers together, and
// each waits for the one before it: init containers would begin only when the kubelet has seen that the one before has ended, for which
// it looks once a second. Each container restarts by itself.
func (r Renderer) compactPod(steps []*plan.Step, rec *node.SkyhookRecord, n *node.Node) *corev1.Pod {
	planned := rec.Clone()
	first := steps[0]
	out := r.renderPod(first, planned.Packages[first.Key], n)
	out.Annotations[podstate.AnnotationContent] = r.ContentOf(first, first.Payload, true)
	stages := make([]podstate.Stage, len(steps))
	containers := make([]corev1.Container, len(steps))
	var grace int64
	for i, st := range steps {
		p := r.planRun(st, &planned, n)
		if st.IsInterrupt() {
			containers[i] = r.interruptContainer(&out.Spec, st, &planned, n)
		} else {
			containers[i] = r.compactContainer(out, st, &planned, n)
		}
		stages[i] = podstate.Stage{
			Name: st.Name, Version: st.Version, Stage: st.Stage, Container: containers[i].Name, Run: p.Run, Generation: p.Generation,
			Hash: st.Definition.Hash, Content: r.ContentOf(st, st.Payload, true), Goal: st.Goal, From: st.From, Effect: st.Effect,
		}
		if g := st.Definition.Package.GracefulShutdown; g != nil && !st.IsInterrupt() {
			grace = max(grace, 1, int64(g.Seconds()))
		}
	}
	confinePod(&out.Spec, r.Facts.PrivilegesOf(first, &planned, n))
	if grace > 0 {
		out.Spec.TerminationGracePeriodSeconds = &grace
	}
	limitMessages(containers)
	if len(containers) > 1 {
		putInOrder(&out.Spec, containers)
		requestOnce(containers)
	}
	out.Spec.Containers = containers
	out.Annotations[podstate.AnnotationStages] = node.EncodeJSON(stages)
	if id := rec.Queues[first.ID].ID; id != "" {
		out.Annotations[podstate.AnnotationQueue] = id
	}
	return out
}

// putInOrder has each container wait for the one before it, and begin nothing if the pod was told to stop.
func putInOrder(spec *corev1.PodSpec, containers []corev1.Container) {
	size := resource.MustParse("1Mi")
	progress := corev1.Volume{Name: volumeProgress, VolumeSource: corev1.VolumeSource{EmptyDir: &corev1.EmptyDirVolumeSource{SizeLimit: &size}}}
	spec.Volumes = append(spec.Volumes, progress, podInfoVolume())
	for i := range containers {
		c := &containers[i]
		c.VolumeMounts = append(c.VolumeMounts, corev1.VolumeMount{Name: volumeProgress, MountPath: progressDir})
		if i > 0 {
			c.VolumeMounts = append(c.VolumeMounts, corev1.VolumeMount{Name: volumePodInfo, MountPath: podInfoDir, ReadOnly: true})
			c.Env = append(c.Env, corev1.EnvVar{Name: pack.EnvStopFile, Value: podInfoDir + "/" + stopFile},
				corev1.EnvVar{Name: pack.EnvPreviousFile, Value: progressDir + "/" + containers[i-1].Name})
		}
		if i < len(containers)-1 {
			c.Env = append(c.Env, corev1.EnvVar{Name: pack.EnvSuccessFile, Value: progressDir + "/" + c.Name})
		}
	}
}

// requestOnce has containers of which one works at a time request as much as the largest of them: of each resource only one container
// requests anything. Those without resources of their own get the namespace's defaults, but request nothing, except for the first.
func requestOnce(containers []corev1.Container) {
	isDefault := func(c *corev1.Container) bool { return len(c.Resources.Requests) == 0 }
	first := slices.IndexFunc(containers, func(c corev1.Container) bool { return isDefault(&c) })
	for _, name := range []corev1.ResourceName{corev1.ResourceCPU, corev1.ResourceMemory} {
		largest := -1
		for i := range containers {
			if q := containers[i].Resources.Requests[name]; !q.IsZero() && (largest < 0 || q.Cmp(containers[largest].Resources.Requests[name]) > 0) {
				largest = i
			}
		}
		for i := range containers {
			if i == largest || i == first && isDefault(&containers[i]) {
				continue
			}
			requests := containers[i].Resources.Requests.DeepCopy()
			if requests == nil {
				requests = corev1.ResourceList{}
			}
			requests[name] = resource.Quantity{}
			containers[i].Resources.Requests = requests
		}
	}
}

// limitMessages shares what the kubelet keeps of a pod's termination messages among many containers: it cuts what is over.
func limitMessages(containers []corev1.Container) {
	if maxMessages/len(containers) < pack.MaxMessage {
		shareMessages(containers)
	}
}

// planRun returns the run of a step as it is recorded, or as it will be recorded when the step begins.
func (r Renderer) planRun(st *plan.Step, planned *node.SkyhookRecord, n *node.Node) *node.PackageRecord {
	p := planned.Packages[st.Key]
	if p == nil || p.Run == "" || p.Goal == "" && p.Interrupt == "" {
		p = &node.PackageRecord{Run: r.Facts.RunID(n, planned, st), Generation: planned.Offset + r.Facts.Skyhook.Generation, Goal: st.Goal}
		p.Privileges = r.Facts.DeclaredOn(planned, st)
		planned.Packages[st.Key] = p
	}
	return p
}

// compactContainer runs a stage and its check, with the image of the package mounted, and adds the volumes that it needs to the pod.
func (r Renderer) compactContainer(pod *corev1.Pod, st *plan.Step, rec *node.SkyhookRecord, n *node.Node) corev1.Container {
	d, p := st.Definition, rec.Packages[st.Key]
	image := r.imageVolume(d)
	mounts := []corev1.VolumeMount{
		rootVolumeMount(), {Name: r.addMetadata(pod, n), MountPath: plan.MetadataDir}, {Name: image.Name, MountPath: imageMount, ReadOnly: true},
	}
	addVolume(&pod.Spec, image)
	if len(d.Files) > 0 {
		config := r.configVolume(st)
		config.Name = plan.SafeName(63, "config", st.Name) // no other volume of the pod has such a name
		addVolume(&pod.Spec, config)
		mounts = append(mounts, corev1.VolumeMount{Name: config.Name, MountPath: plan.ConfigDir})
	}
	env := append(r.packageEnv(st, rec, r.timeoutEnv(st)),
		corev1.EnvVar{Name: pack.EnvImageDir, Value: imageMount}, corev1.EnvVar{Name: pack.EnvWithCheck, Value: "true"})
	out := corev1.Container{
		Name: plan.PackageName(st.Name) + "-" + string(st.Stage), Image: r.agentImage(d), ImagePullPolicy: r.pullPolicy(), SecurityContext: privilegedContext(),
		Args: []string{string(st.Stage), plan.RootMount, r.Facts.Config.CopyDir(r.Facts.Skyhook.Name, r.ownerUID(rec), st.Name, st.Version, p.Generation)},
		Env:  env, VolumeMounts: mounts, Resources: resourceRequirements(d.Package.Resources),
	}
	r.confine(&pod.Spec, &out, r.Facts.PrivilegesOf(st, rec, n))
	return out
}

// timeoutEnv returns how long a stage may take. When it must have ended is not known: it begins after others.
func (r Renderer) timeoutEnv(st *plan.Step) []corev1.EnvVar {
	out := []corev1.EnvVar{{Name: pack.EnvDeadline}}
	if limit := r.Facts.DeadlineOf(st); limit > 0 {
		out = append(out, corev1.EnvVar{Name: pack.EnvStageTimeout, Value: limit.String()})
	}
	return out
}

// imageVolume is the image of a package. Images that Compatible pulls by the same reference are the same on the node.
func (r Renderer) imageVolume(d *plan.Definition) corev1.Volume {
	return corev1.Volume{Name: plan.SafeName(63, "image", d.Package.Name), VolumeSource: corev1.VolumeSource{
		Image: &corev1.ImageVolumeSource{Reference: r.ImageOf(d), PullPolicy: r.pullPolicy()},
	}}
}

// podInfoVolume has the annotation that ends a pod before its next stage.
func podInfoVolume() corev1.Volume {
	return corev1.Volume{Name: volumePodInfo, VolumeSource: corev1.VolumeSource{DownwardAPI: &corev1.DownwardAPIVolumeSource{
		Items: []corev1.DownwardAPIVolumeFile{{
			Path: stopFile, FieldRef: &corev1.ObjectFieldSelector{APIVersion: "v1", FieldPath: "metadata.annotations['" + podstate.AnnotationStop + "']"},
		}},
	}}}
}

func addVolume(spec *corev1.PodSpec, v corev1.Volume) {
	for _, known := range spec.Volumes {
		if known.Name == v.Name {
			return
		}
	}
	spec.Volumes = append(spec.Volumes, v)
}

// interruptContainer carries out an interrupt.
func (r Renderer) interruptContainer(spec *corev1.PodSpec, st *plan.Step, rec *node.SkyhookRecord, n *node.Node) corev1.Container {
	p := rec.Packages[st.Key]
	dir := r.Facts.Config.CopyDir(r.Facts.Skyhook.Name, r.ownerUID(rec), st.Name, st.Version, p.Generation)
	out := corev1.Container{
		Name: podstate.ContainerInterrupt, Image: r.agentImage(st.Definition), ImagePullPolicy: r.pullPolicy(), SecurityContext: privilegedContext(),
		Args:         []string{string(pack.ModeInterrupt), plan.RootMount, dir, plan.EncodeInterrupt(st.Payload)},
		Env:          append(append(r.agentEnv(st, rec), corev1.EnvVar{Name: pack.EnvInterruptID, Value: p.Interrupt}), r.deadlineEnv(st)...),
		VolumeMounts: []corev1.VolumeMount{rootVolumeMount()},
		Resources:    fixedResources("500m", cmp.Or(r.Facts.Config.InterruptMemory, plan.DefaultInterruptMemory)),
	}
	r.confine(spec, &out, r.Facts.PrivilegesOf(st, rec, n))
	return out
}
