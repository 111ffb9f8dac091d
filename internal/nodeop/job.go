// SPDX-FileCopyrightText: The Skyhook authors
// SPDX-License-Identifier: Apache-2.0

package nodeop

import (
	"cmp"
	"fmt"
	"slices"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/skyhook-k8s/skyhook/api/nodeop/v1alpha1"
	"github.com/skyhook-k8s/skyhook/internal/pack"
)

// Objects are what an action Run makes, in the order in which it has to be made: the pod that reboots comes before the
// Job it waits for.
type Objects struct {
	Pods []*corev1.Pod
	Job  *batchv1.Job
}

// fallbackImage runs the command when nobody names an image.
const fallbackImage = "busybox:latest"

// Objects of a task, made from what the node records after Change(Run).
func (c *Compiled) Objects(task string, n *Node) (Objects, error) {
	rec := c.recordOf(n)
	if !rec.Admitted {
		return Objects{}, fmt.Errorf("making %s for node %s: the node does not record an admission", task, n.Name)
	}
	switch task {
	case taskPreflight:
		return Objects{Pods: []*corev1.Pod{c.preflightPod(n, &rec)}}, nil
	case taskReboot:
		return Objects{Pods: []*corev1.Pod{c.rebootPodFor(n, &rec, false)}}, nil
	case taskCommand:
		out := Objects{Job: c.jobFor(n, &rec)}
		if on(c.in.NodeOp.Spec.RebootOnSuccess) {
			out.Pods = append(out.Pods, c.rebootPodFor(n, &rec, true))
		}
		return out, nil
	}
	return Objects{}, fmt.Errorf("making %s for node %s: there is no such task", task, n.Name)
}

// meta is what our objects have in common.
func (c *Compiled) meta(name string, n *Node) metav1.ObjectMeta {
	o, yes := c.in.NodeOp, true
	return metav1.ObjectMeta{
		Name: name, Namespace: o.Namespace,
		Labels:      map[string]string{v1alpha1.LabelNodeOp: labelValue(o.Name), v1alpha1.LabelNode: labelValue(n.Name)},
		Annotations: map[string]string{annotationNodeUID: n.UID},
		OwnerReferences: []metav1.OwnerReference{{
			APIVersion: v1alpha1.GroupVersion.String(), Kind: Kind, Name: o.Name, UID: o.UID, Controller: &yes, BlockOwnerDeletion: &yes,
		}},
	}
}

func (c *Compiled) image() string {
	return cmp.Or(c.in.NodeOp.Spec.Image, c.in.Config.DefaultImage, fallbackImage)
}

func (c *Compiled) hostMount() string {
	return cmp.Or(c.in.NodeOp.Spec.HostMountPath, defaultHostMount)
}

func hostVolume(name, path string, kind *corev1.HostPathType) corev1.Volume {
	return corev1.Volume{Name: name, VolumeSource: corev1.VolumeSource{HostPath: &corev1.HostPathVolumeSource{Path: path, Type: kind}}}
}

func fieldEnv(name, path string) corev1.EnvVar {
	return corev1.EnvVar{Name: name, ValueFrom: &corev1.EnvVarSource{FieldRef: &corev1.ObjectFieldSelector{APIVersion: "v1", FieldPath: path}}}
}

// env is what every command finds, after its own.
func (c *Compiled) env() []corev1.EnvVar {
	var out []corev1.EnvVar
	for _, e := range c.in.NodeOp.Spec.Env {
		out = append(out, corev1.EnvVar{Name: e.Name, Value: e.Value, ValueFrom: e.ValueFrom.DeepCopy()})
	}
	out = slices.DeleteFunc(out, func(e corev1.EnvVar) bool { return e.Name == envHostDir || e.Name == envNodeName })
	return append(out, corev1.EnvVar{Name: envHostDir, Value: c.hostMount()}, fieldEnv(envNodeName, "spec.nodeName"))
}

// jobFor runs the command. With a reboot the command is an init container, and what follows it makes the file that the
// reboot waits for.
func (c *Compiled) jobFor(n *Node, rec *Record) *batchv1.Job {
	o := c.in.NodeOp
	backoff := c.backoff()
	command := corev1.Container{
		Name: containerCommand, Image: c.image(), Command: o.Spec.Command, Env: c.env(),
		SecurityContext:          &corev1.SecurityContext{Privileged: pointer(true)},
		VolumeMounts:             []corev1.VolumeMount{{Name: volumeHost, MountPath: c.hostMount()}},
		TerminationMessagePolicy: corev1.TerminationMessageFallbackToLogsOnError,
	}
	if r := o.Spec.Resources; r != nil {
		command.Resources = *r.DeepCopy()
	}
	out := &batchv1.Job{
		TypeMeta:   metav1.TypeMeta{APIVersion: "batch/v1", Kind: "Job"},
		ObjectMeta: c.meta(rec.Job, n),
		Spec: batchv1.JobSpec{
			BackoffLimit: &backoff, ActiveDeadlineSeconds: o.Spec.ActiveDeadlineSeconds,
			// A pod that the node or the control plane ends is no failure of the command.
			PodFailurePolicy: &batchv1.PodFailurePolicy{Rules: []batchv1.PodFailurePolicyRule{{
				Action:          batchv1.PodFailurePolicyActionIgnore,
				OnPodConditions: []batchv1.PodFailurePolicyOnPodConditionsPattern{{Type: corev1.DisruptionTarget, Status: corev1.ConditionTrue}},
			}}},
			Template: corev1.PodTemplateSpec{
				ObjectMeta: metav1.ObjectMeta{Labels: c.meta("", n).Labels},
				Spec: corev1.PodSpec{
					NodeName: n.Name, RestartPolicy: corev1.RestartPolicyNever, ImagePullSecrets: o.Spec.ImagePullSecrets,
					Tolerations: c.tolerations(), Containers: []corev1.Container{command},
					Volumes: []corev1.Volume{hostVolume(volumeHost, "/", nil)},
				},
			},
		},
	}
	pod := &out.Spec.Template.Spec
	if o.Spec.ActiveDeadlineSeconds == nil {
		pod.ActiveDeadlineSeconds = pointer(int64(defaultTry.Seconds()))
	}
	if c.upgrades() { // it copies what it finds in its own root: as little of the cluster as can be is to be there
		pod.AutomountServiceAccountToken, pod.EnableServiceLinks, pod.DNSPolicy = pointer(false), pointer(false), corev1.DNSDefault
	}
	if on(o.Spec.RebootOnSuccess) {
		pod.InitContainers, pod.Containers = pod.Containers, []corev1.Container{c.sentinel()}
		pod.Volumes = append(pod.Volumes, hostVolume(volumeSentinel, sentinelFolder, pointer(corev1.HostPathDirectoryOrCreate)))
	}
	return out
}

func pointer[T any](v T) *T { return &v }

// sentinel makes the file. It needs nothing of the command's image, which may have no shell or no rights to write there.
func (c *Compiled) sentinel() corev1.Container {
	out := corev1.Container{
		Name: containerSentinel, Image: c.in.Config.AgentImage,
		Args:         []string{"sentinel", sentinelMount + "/$(" + envJobName + ")"},
		Env:          []corev1.EnvVar{fieldEnv(envJobName, "metadata.labels['batch.kubernetes.io/job-name']")},
		VolumeMounts: []corev1.VolumeMount{{Name: volumeSentinel, MountPath: sentinelMount}},

		SecurityContext: &corev1.SecurityContext{RunAsUser: pointer(int64(0))}, // the folder is root's
	}
	if image := c.in.Config.SentinelImage; image != "" {
		out.Image, out.Args, out.SecurityContext = image, nil, nil
		out.Command = []string{"/bin/sh", "-c", `echo "Job completed at $(date)" | tee "` + sentinelMount + `/$` + envJobName + `-$(date +%s)"`}
	}
	return out
}

// rebootPodFor reboots the node once: the agent keeps on the host that it did. It has no API token and no pull secret.
// One that is made before the Job waits for the Job's file; one that is made afterwards need not.
func (c *Compiled) rebootPodFor(n *Node, rec *Record, waits bool) *corev1.Pod {
	args := []string{"interrupt", "--root-mount", "/root", "--id", rec.Job}
	if waits {
		args = append(args, "--after-file", sentinelFolder+"/"+rec.Job+"-*", "--settle", "5s")
	}
	out := c.pod(c.nameOf(containerReboot, n, rec.Admission), n)
	out.Labels[v1alpha1.LabelReboot] = "true"
	out.Spec.HostPID, out.Spec.AutomountServiceAccountToken = true, pointer(false)
	out.Spec.Containers = []corev1.Container{{
		Name: containerReboot, Image: c.in.Config.AgentImage, Args: append(args, `{"type":"reboot"}`),
		SecurityContext: &corev1.SecurityContext{Privileged: pointer(true), RunAsUser: pointer(int64(0))},
		Env: []corev1.EnvVar{
			{Name: pack.EnvLogDir, Value: c.in.Config.LogRoot + "/nodeop"}, {Name: pack.EnvRootDir, Value: c.in.Config.CopyDirRoot + "/nodeop"},
			fieldEnv(envNodeName, "spec.nodeName"),
		},
		VolumeMounts: []corev1.VolumeMount{{Name: volumeHost, MountPath: "/root", MountPropagation: pointer(corev1.MountPropagationHostToContainer)}},
	}}
	return out
}

func (c *Compiled) pod(name string, n *Node) *corev1.Pod {
	return &corev1.Pod{
		TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "Pod"}, ObjectMeta: c.meta(name, n),
		Spec: corev1.PodSpec{
			NodeName: n.Name, RestartPolicy: corev1.RestartPolicyOnFailure, Tolerations: c.tolerations(),
			Volumes: []corev1.Volume{hostVolume(volumeHost, "/", nil)},
		},
	}
}

// preflightPod looks at the node and changes nothing. Only the operation's own image is pulled with its secrets.
func (c *Compiled) preflightPod(n *Node, rec *Record) *corev1.Pod {
	p := c.in.NodeOp.Spec.Preflight
	out := c.pod(c.nameOf(containerPreflight, n, max(1, rec.Admission)), n)
	out.Labels[v1alpha1.LabelPreflight] = "true"
	out.Spec.ActiveDeadlineSeconds = pointer(int64((c.preflightLimit() + pullLimit + grace).Seconds()))
	image := cmp.Or(p.Image, c.image())
	if image == c.image() {
		out.Spec.ImagePullSecrets = c.in.NodeOp.Spec.ImagePullSecrets
	}
	out.Spec.Containers = []corev1.Container{{
		Name: containerPreflight, Image: image, Command: p.Command, Env: c.env(),
		TerminationMessagePolicy: corev1.TerminationMessageReadFile,
		VolumeMounts:             []corev1.VolumeMount{{Name: volumeHost, MountPath: c.hostMount(), ReadOnly: true}},
	}}
	return out
}
