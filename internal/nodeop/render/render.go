// SPDX-FileCopyrightText: The Skyhook authors
// SPDX-License-Identifier: Apache-2.0

// Package render makes the Job and the pods of a NodeOp on one node from what the node records.
package render

import (
	"cmp"
	"fmt"
	"math"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/skyhook-k8s/skyhook/api/nodeop/v1alpha1"
	"github.com/skyhook-k8s/skyhook/internal/node"
	"github.com/skyhook-k8s/skyhook/internal/nodeop"
	"github.com/skyhook-k8s/skyhook/internal/pack"
)

// Objects are created for an action Run, in this order: the pod that reboots exists before the Job it waits for.
type Objects struct {
	Pods []*corev1.Pod
	Job  *batchv1.Job
}

// Names that other programs depend on.
const (
	containerSentinel = "sentinel-creator"
	volumeHost        = "host-root"
	volumeSentinel    = "sentinel-volume"
	envHostDir        = "HOST_DIR"
	envJobName        = "JOB_NAME"
	envNodeName       = "NODE_NAME"
	sentinelFolder    = "/usr/local/.kairos" // on the host
	sentinelMount     = "/sentinel"
)

// fallbackImage runs the command when neither the NodeOp nor the operator names an image.
const fallbackImage = "busybox:latest"

// renderer builds the objects of one node from what the node records.
type renderer struct {
	op     *nodeop.Operation
	config nodeop.Config
	node   *node.Node
	rec    *node.OpRecord
}

// TaskObjects renders the objects of a task. The node records the action Run already.
func TaskObjects(op *nodeop.Operation, config nodeop.Config, task string, n *node.Node) (Objects, error) {
	rec, _ := op.RecordOn(n)
	if !rec.Admitted {
		return Objects{}, fmt.Errorf("making %s for node %s: the node does not record an admission", task, n.Name)
	}
	r := &renderer{op, config, n, &rec}
	switch task {
	case nodeop.TaskPreflight:
		return Objects{Pods: []*corev1.Pod{r.preflightPod()}}, nil
	case nodeop.TaskReboot:
		return Objects{Pods: []*corev1.Pod{r.rebootPod(false)}}, nil
	case nodeop.TaskCommand:
		out := Objects{Job: r.job()}
		if op.RebootsAtOnce() {
			out.Pods = append(out.Pods, r.rebootPod(true))
		}
		return out, nil
	}
	return Objects{}, fmt.Errorf("making %s for node %s: there is no such task", task, n.Name)
}

// DryRunObjects returns an object of each kind that a node needs. They are never created: the API server says of them whether it would
// refuse such objects.
func DryRunObjects(op *nodeop.Operation, config nodeop.Config, n *node.Node) Objects {
	rec := node.OpRecord{Admitted: true, Admission: 1, Job: op.ObjectName("", n, 1)}
	r := &renderer{op, config, n, &rec}
	out := Objects{Job: r.job()}
	if op.Spec().Preflight != nil {
		out.Pods = append(out.Pods, r.preflightPod())
	}
	if op.Reboots() {
		out.Pods = append(out.Pods, r.rebootPod(true))
	}
	return out
}

// objectMeta is the metadata that all our objects share.
func (r *renderer) objectMeta(name string) metav1.ObjectMeta {
	o := r.op.NodeOp
	return metav1.ObjectMeta{
		Name:        name,
		Namespace:   o.Namespace,
		Labels:      map[string]string{v1alpha1.LabelNodeOp: nodeop.LabelValue(o.Name), v1alpha1.LabelNode: nodeop.LabelValue(r.node.Name)},
		Annotations: map[string]string{nodeop.AnnotationNodeUID: r.node.UID},
		OwnerReferences: []metav1.OwnerReference{{
			APIVersion: v1alpha1.GroupVersion.String(), Kind: nodeop.Kind, Name: o.Name, UID: o.UID, Controller: new(true), BlockOwnerDeletion: new(true),
		}},
	}
}

func (r *renderer) image() string {
	return cmp.Or(r.op.Spec().Image, r.config.DefaultImage, fallbackImage)
}

func (r *renderer) hostMountPath() string {
	return cmp.Or(r.op.Spec().HostMountPath, nodeop.DefaultHostMount)
}

// toleratesAll lets our pods run on every selected node, and stay there while it is not ready.
var toleratesAll = []corev1.Toleration{{Operator: corev1.TolerationOpExists}}

// env is the environment of the command and of the check. The spec cannot override the variables we set.
func (r *renderer) env() []corev1.EnvVar {
	var out []corev1.EnvVar
	for _, e := range r.op.Spec().Env {
		isReserved := e.Name == envHostDir || e.Name == envNodeName
		if !isReserved {
			out = append(out, corev1.EnvVar{Name: e.Name, Value: e.Value, ValueFrom: e.ValueFrom.Kubernetes()})
		}
	}
	return append(out, corev1.EnvVar{Name: envHostDir, Value: r.hostMountPath()}, fieldEnv(envNodeName, "spec.nodeName"))
}

// job runs the command. With a reboot the command is an init container, and the container after it creates the file that
// the reboot pod waits for. With one that others may share a container before the command says in which boot it runs.
func (r *renderer) job() *batchv1.Job {
	out := &batchv1.Job{
		TypeMeta:   metav1.TypeMeta{APIVersion: "batch/v1", Kind: "Job"},
		ObjectMeta: r.objectMeta(r.rec.Job),
		Spec: batchv1.JobSpec{
			BackoffLimit:          new(r.op.BackoffLimit()),
			ActiveDeadlineSeconds: r.op.ActiveDeadlineSeconds(),
			// A pod that the node or the control plane ended does not count as a failure of the command.
			PodFailurePolicy: &batchv1.PodFailurePolicy{Rules: []batchv1.PodFailurePolicyRule{{
				Action:          batchv1.PodFailurePolicyActionIgnore,
				OnPodConditions: []batchv1.PodFailurePolicyOnPodConditionsPattern{{Type: corev1.DisruptionTarget, Status: corev1.ConditionTrue}},
			}}},
		},
	}
	template := &out.Spec.Template
	template.Labels = r.objectMeta("").Labels
	template.Spec = r.podSpec(corev1.RestartPolicyNever, r.commandContainer())
	template.Spec.ImagePullSecrets = r.op.Spec().ImagePullSecrets
	if r.op.Spec().ActiveDeadlineSeconds == nil {
		template.Spec.ActiveDeadlineSeconds = new(int64(nodeop.DefaultTryTimeout.Seconds()))
	}
	if r.op.IsUpgrade() { // it copies its own root filesystem: the cluster should add as little to it as possible
		template.Spec.AutomountServiceAccountToken, template.Spec.EnableServiceLinks = new(false), new(false)
		template.Spec.DNSPolicy = corev1.DNSDefault
	}
	if r.op.SharesReboot() {
		template.Spec.InitContainers = []corev1.Container{r.bootContainer()}
	}
	if r.op.RebootsAtOnce() {
		template.Spec.InitContainers, template.Spec.Containers = template.Spec.Containers, []corev1.Container{r.sentinelContainer()}
		template.Spec.Volumes = append(template.Spec.Volumes, hostVolume(volumeSentinel, sentinelFolder, new(corev1.HostPathDirectoryOrCreate)))
	}
	return out
}

func (r *renderer) commandContainer() corev1.Container {
	out := corev1.Container{
		Name: nodeop.ContainerCommand, Image: r.image(), Command: r.op.Spec().Command, Env: r.env(),
		SecurityContext:          &corev1.SecurityContext{Privileged: new(true)},
		VolumeMounts:             []corev1.VolumeMount{{Name: volumeHost, MountPath: r.hostMountPath()}},
		TerminationMessagePolicy: corev1.TerminationMessageFallbackToLogsOnError,
	}
	if resources := r.op.Spec().Resources; resources != nil {
		out.Resources = corev1.ResourceRequirements{Limits: resources.Limits.DeepCopy(), Requests: resources.Requests.DeepCopy()}
	}
	return out
}

// bootContainer says in which boot the command runs, because the node may report its boot later. All containers of a pod that is not
// restarted run in one boot.
func (r *renderer) bootContainer() corev1.Container {
	return corev1.Container{
		Name: nodeop.ContainerBoot, Image: r.config.AgentImage, Args: []string{"kairos", "--root-mount", "/root"},
		SecurityContext: &corev1.SecurityContext{Privileged: new(true), RunAsUser: new(int64(0))},
		VolumeMounts:    []corev1.VolumeMount{{Name: volumeHost, MountPath: "/root", ReadOnly: true}},
	}
}

// sentinelContainer creates the file. It does not use the command's image, which may have no shell and no right to write
// there.
func (r *renderer) sentinelContainer() corev1.Container {
	out := corev1.Container{
		Name:            containerSentinel,
		Image:           r.config.AgentImage,
		Args:            []string{"sentinel", sentinelMount + "/$(" + envJobName + ")"},
		Env:             []corev1.EnvVar{fieldEnv(envJobName, "metadata.labels['batch.kubernetes.io/job-name']")},
		VolumeMounts:    []corev1.VolumeMount{{Name: volumeSentinel, MountPath: sentinelMount}},
		SecurityContext: &corev1.SecurityContext{RunAsUser: new(int64(0))}, // root owns the folder
	}
	if image := r.config.SentinelImage; image != "" {
		out.Image, out.Args, out.SecurityContext = image, nil, nil
		out.Command = []string{"/bin/sh", "-c", `echo "Job completed at $(date)" | tee "` + sentinelMount + `/$` + envJobName + `-$(date +%s)"`}
	}
	return out
}

// rebootPod reboots the node once: the agent records on the host that it did. It has no API token and no pull secret. A pod
// that is made before the Job waits for the Job's file.
func (r *renderer) rebootPod(waits bool) *corev1.Pod {
	args := []string{"interrupt", "--root-mount", "/root", "--id", r.rec.Job}
	if waits {
		args = append(args, "--after-file", sentinelFolder+"/"+r.rec.Job+"-*", "--settle", "5s")
	}
	out := r.pod(r.op.ObjectName(nodeop.ContainerReboot, r.node, r.rec.Admission), corev1.Container{
		Name: nodeop.ContainerReboot, Image: r.config.AgentImage, Args: append(args, `{"type":"reboot"}`),
		SecurityContext: &corev1.SecurityContext{Privileged: new(true), RunAsUser: new(int64(0))},
		Env: []corev1.EnvVar{
			{Name: pack.EnvLogDir, Value: r.config.LogRoot + "/nodeop"},
			{Name: pack.EnvRootDir, Value: r.config.CopyDirRoot + "/nodeop"},
			fieldEnv(envNodeName, "spec.nodeName"),
		},
		VolumeMounts: []corev1.VolumeMount{{Name: volumeHost, MountPath: "/root", MountPropagation: new(corev1.MountPropagationHostToContainer)}},
	})
	out.Labels[v1alpha1.LabelReboot] = "true"
	out.Spec.HostPID, out.Spec.AutomountServiceAccountToken = true, new(false)
	return out
}

// preflightPod runs the check, whose mount of the host is read-only. Only the image of the operation is pulled with
// the secrets of the spec.
func (r *renderer) preflightPod() *corev1.Pod {
	preflight := r.op.Spec().Preflight
	image := cmp.Or(preflight.Image, r.image())
	out := r.pod(r.op.PreflightName(r.node, r.rec), corev1.Container{
		Name: nodeop.ContainerPreflight, Image: image, Command: preflight.Command, Env: r.env(),
		TerminationMessagePolicy: corev1.TerminationMessageReadFile,
		VolumeMounts:             []corev1.VolumeMount{{Name: volumeHost, MountPath: r.hostMountPath(), ReadOnly: true, RecursiveReadOnly: new(corev1.RecursiveReadOnlyIfPossible)}},
	})
	out.Labels[v1alpha1.LabelPreflight] = "true"
	limit := int64((r.op.PreflightTimeout() + nodeop.ImagePullTimeout + nodeop.DeadlineGrace).Seconds())
	out.Spec.ActiveDeadlineSeconds = new(min(limit, math.MaxInt32)) // pods have no longer one
	if image == r.image() {
		out.Spec.ImagePullSecrets = r.op.Spec().ImagePullSecrets
	}
	return out
}

func (r *renderer) pod(name string, container corev1.Container) *corev1.Pod {
	return &corev1.Pod{
		TypeMeta:   metav1.TypeMeta{APIVersion: "v1", Kind: "Pod"},
		ObjectMeta: r.objectMeta(name),
		Spec:       r.podSpec(corev1.RestartPolicyOnFailure, container),
	}
}

func (r *renderer) podSpec(restart corev1.RestartPolicy, container corev1.Container) corev1.PodSpec {
	return corev1.PodSpec{
		NodeName: r.node.Name, RestartPolicy: restart, Tolerations: toleratesAll, Containers: []corev1.Container{container},
		Volumes: []corev1.Volume{hostVolume(volumeHost, "/", nil)},
	}
}

func hostVolume(name, path string, kind *corev1.HostPathType) corev1.Volume {
	return corev1.Volume{Name: name, VolumeSource: corev1.VolumeSource{HostPath: &corev1.HostPathVolumeSource{Path: path, Type: kind}}}
}

func fieldEnv(name, path string) corev1.EnvVar {
	return corev1.EnvVar{Name: name, ValueFrom: &corev1.EnvVarSource{FieldRef: &corev1.ObjectFieldSelector{APIVersion: "v1", FieldPath: path}}}
}
