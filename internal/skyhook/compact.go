// SPDX-FileCopyrightText: The Skyhook authors
// SPDX-License-Identifier: Apache-2.0

package skyhook

import (
	"cmp"
	"encoding/json"
	"slices"
	"strconv"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"

	"github.com/skyhook-k8s/skyhook/api/skyhook/v1alpha1"
	"github.com/skyhook-k8s/skyhook/internal/node"
	"github.com/skyhook-k8s/skyhook/internal/pack"
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

// podStage is one stage of a compact pod: what its container was made from, and what is recorded when it begins.
type podStage struct {
	Name       string              `json:"name"`
	Version    string              `json:"version"`
	Stage      v1alpha1.Stage      `json:"stage"`
	Container  string              `json:"container"`
	Run        string              `json:"run"`
	Generation int64               `json:"generation"`
	Hash       string              `json:"hash"`
	Content    string              `json:"content"`
	Goal       node.Goal           `json:"goal,omitempty"`
	From       string              `json:"from,omitempty"`
	Effect     *v1alpha1.Interrupt `json:"effect,omitempty"`
}

func (s *podStage) key() string { return s.Name + "|" + s.Version }

func (s *podStage) id() string { return s.key() + "/" + string(s.Stage) }

// readPodStages reads the stages of a compact pod, in their order; nil for another pod, or if they cannot be read.
func readPodStages(p *corev1.Pod) []podStage {
	text := p.Annotations[annotationStages]
	if text == "" {
		return nil
	}
	var out []podStage
	if err := json.Unmarshal([]byte(text), &out); err != nil {
		return nil
	}
	return out
}

// compactPod runs steps one after the other, each in a container that also checks it. The kubelet starts the containers together, and
// each waits for the one before it: init containers would begin only when the kubelet has seen that the one before has ended, for which
// it looks once a second. Each container restarts by itself.
func (r renderer) compactPod(steps []*step, rec *node.SkyhookRecord, n *node.Node) *corev1.Pod {
	planned := rec.Clone()
	first := steps[0]
	out := r.renderPod(first, planned.Packages[first.key], n)
	out.Annotations[annotationContent] = r.contentOf(first, first.payload, true)
	stages := make([]podStage, len(steps))
	containers := make([]corev1.Container, len(steps))
	var grace int64
	for i, st := range steps {
		p := r.planRun(st, &planned, n)
		if st.isInterrupt() {
			containers[i] = r.interruptContainer(st, &planned)
		} else {
			containers[i] = r.compactContainer(out, st, &planned, n)
		}
		stages[i] = podStage{
			Name: st.name, Version: st.version, Stage: st.stage, Container: containers[i].Name, Run: p.Run, Generation: p.Generation,
			Hash: st.def.Hash, Content: r.contentOf(st, st.payload, true), Goal: st.goal, From: st.from, Effect: st.effect,
		}
		if g := st.def.Package.GracefulShutdown; g != nil && !st.isInterrupt() {
			grace = max(grace, 1, int64(g.Seconds()))
		}
	}
	if grace > 0 {
		out.Spec.TerminationGracePeriodSeconds = &grace
	}
	limitMessages(containers)
	if len(containers) > 1 {
		putInOrder(&out.Spec, containers)
		requestOnce(containers)
	}
	out.Spec.Containers = containers
	out.Annotations[annotationStages] = node.EncodeJSON(stages)
	if id := rec.Queues[first.id].ID; id != "" {
		out.Annotations[annotationQueue] = id
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
	limit := maxMessages / len(containers)
	if limit >= pack.MaxMessage {
		return
	}
	for i := range containers {
		containers[i].Env = append(containers[i].Env, corev1.EnvVar{Name: pack.EnvMessageLimit, Value: strconv.Itoa(limit)})
	}
}

// planRun returns the run of a step as it is recorded, or as it will be recorded when the step begins.
func (r renderer) planRun(st *step, planned *node.SkyhookRecord, n *node.Node) *node.PackageRecord {
	p := planned.Packages[st.key]
	if p == nil || p.Run == "" || p.Goal == "" && p.Interrupt == "" {
		p = &node.PackageRecord{Run: r.facts.runID(n, planned, st), Generation: planned.Offset + r.facts.Skyhook.Generation, Goal: st.goal}
		planned.Packages[st.key] = p
	}
	return p
}

// compactContainer runs a stage and its check, with the image of the package mounted, and adds the volumes that it needs to the pod.
func (r renderer) compactContainer(pod *corev1.Pod, st *step, rec *node.SkyhookRecord, n *node.Node) corev1.Container {
	d, p := st.def, rec.Packages[st.key]
	image := r.imageVolume(d)
	volumes := []corev1.Volume{image}
	mounts := []corev1.VolumeMount{
		rootVolumeMount(), {Name: r.addMetadata(pod, n), MountPath: metadataDir}, {Name: image.Name, MountPath: imageMount, ReadOnly: true},
	}
	if len(d.config) > 0 {
		config := r.configVolume(st)
		volumes, mounts = append(volumes, config), append(mounts, corev1.VolumeMount{Name: config.Name, MountPath: configDir})
	}
	env := append(r.packageEnv(st, rec, r.timeoutEnv(st)),
		corev1.EnvVar{Name: pack.EnvImageDir, Value: imageMount}, corev1.EnvVar{Name: pack.EnvWithCheck, Value: "true"})
	for _, v := range volumes {
		addVolume(&pod.Spec, v)
	}
	return corev1.Container{
		Name: packageName(st.name) + "-" + string(st.stage), Image: r.agentImage(d), ImagePullPolicy: r.pullPolicy(), SecurityContext: privilegedContext(),
		Args: []string{string(st.stage), rootMount, r.facts.Config.copyDir(r.facts.Skyhook.Name, r.ownerUID(rec), st.name, st.version, p.Generation)},
		Env:  env, VolumeMounts: mounts, Resources: resourceRequirements(d.Package.Resources),
	}
}

// timeoutEnv returns how long a stage may take. When it must have ended is not known: it begins after others.
func (r renderer) timeoutEnv(st *step) []corev1.EnvVar {
	out := []corev1.EnvVar{{Name: pack.EnvDeadline}}
	if limit := r.facts.deadlineOf(st); limit > 0 {
		out = append(out, corev1.EnvVar{Name: pack.EnvStageTimeout, Value: limit.String()})
	}
	return out
}

// imageVolume is the image of a package. Images that Compatible pulls by the same reference are the same on the node.
func (r renderer) imageVolume(d *Definition) corev1.Volume {
	return corev1.Volume{Name: safeName(63, "image", d.Package.Name), VolumeSource: corev1.VolumeSource{
		Image: &corev1.ImageVolumeSource{Reference: r.imageOf(d), PullPolicy: r.pullPolicy()},
	}}
}

// podInfoVolume has the annotation that ends a pod before its next stage.
func podInfoVolume() corev1.Volume {
	return corev1.Volume{Name: volumePodInfo, VolumeSource: corev1.VolumeSource{DownwardAPI: &corev1.DownwardAPIVolumeSource{
		Items: []corev1.DownwardAPIVolumeFile{{
			Path: stopFile, FieldRef: &corev1.ObjectFieldSelector{APIVersion: "v1", FieldPath: "metadata.annotations['" + AnnotationStop + "']"},
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
func (r renderer) interruptContainer(st *step, rec *node.SkyhookRecord) corev1.Container {
	p := rec.Packages[st.key]
	dir := r.facts.Config.copyDir(r.facts.Skyhook.Name, r.ownerUID(rec), st.name, st.version, p.Generation)
	return corev1.Container{
		Name: containerInterrupt, Image: r.agentImage(st.def), ImagePullPolicy: r.pullPolicy(), SecurityContext: privilegedContext(),
		Args:         []string{string(pack.ModeInterrupt), rootMount, dir, encodeInterrupt(st.payload)},
		Env:          append(append(r.agentEnv(st, rec), corev1.EnvVar{Name: pack.EnvInterruptID, Value: p.Interrupt}), r.deadlineEnv(st)...),
		VolumeMounts: []corev1.VolumeMount{rootVolumeMount()},
		Resources:    fixedResources("500m", cmp.Or(r.facts.Config.InterruptMemory, DefaultInterruptMemory)),
	}
}
