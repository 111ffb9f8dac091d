// SPDX-FileCopyrightText: The Skyhook authors
// SPDX-License-Identifier: Apache-2.0

package nodeop

import (
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/skyhook-k8s/skyhook/api/nodeop/v1alpha1"
	"github.com/skyhook-k8s/skyhook/internal/node"
	"github.com/skyhook-k8s/skyhook/internal/pack"
)

const (
	maxKairosProbes    = 10 // that run at the same time
	kairosProbeTimeout = 10 * time.Minute
	kairosProbeRetry   = time.Hour // after a probe that failed
	kairosProbeMount   = "/host"
	containerProbe     = "node-labeler"
	volumeEtc          = "host-etc"
)

// KairosProbes is what has to be done so that nodes that run Kairos have its labels. A Node object does not say what runs
// there, so a pod that can only read /etc probes each node once per boot and is deleted afterwards.
type KairosProbes struct {
	Edits   []node.NamedEdit
	Create  []*corev1.Pod
	Delete  []*corev1.Pod // whose result is on the node, or which belong to an earlier boot
	RetryAt time.Time     // zero when nothing is to be retried
}

// PlanKairosProbes compares nodes with the pods that probed them. Pods are those of every namespace that carry LabelNode.
func PlanKairosProbes(nodes []*node.Node, pods []*corev1.Pod, config Config, now time.Time) KairosProbes {
	var out KairosProbes
	if !config.LabelKairos {
		return out
	}
	obsolete := map[string]*corev1.Pod{} // probes by name; those that are needed are taken out below
	for _, p := range pods {
		if IsKairosProbe(p, config.Namespace) {
			obsolete[p.Name] = p
		}
	}

	running := 0
	var missing []*node.Node
	for _, n := range nodes {
		if !needsKairosProbe(n) {
			continue
		}
		p := obsolete[kairosProbeName(n)]
		if p == nil {
			if n.Ready {
				missing = append(missing, n)
			}
			continue
		}

		needed, found := true, kairosResult(p)
		switch {
		case p.DeletionTimestamp != nil:
		case found != nil: // the pod is deleted once the node is labelled
			out.Edits = append(out.Edits, node.NamedEdit{Node: n.Name, Edit: kairosEdit(n, *found)})
		case IsPodFinished(p):
			retryAt := p.CreationTimestamp.Add(kairosProbeRetry)
			if needed = now.Before(retryAt); needed {
				out.RetryAt = node.Earlier(out.RetryAt, retryAt)
			}
		case n.Ready:
			running++
		}
		if needed {
			delete(obsolete, p.Name)
		}
	}

	for _, n := range missing[:min(len(missing), max(0, maxKairosProbes-running))] {
		out.Create = append(out.Create, config.kairosProbe(n))
	}
	for _, p := range pods {
		if obsolete[p.Name] == p && p.DeletionTimestamp == nil {
			out.Delete = append(out.Delete, p)
		}
	}
	return out
}

// IsKairosProbe reports whether a pod is a probe of the operator that runs in a namespace.
func IsKairosProbe(p *corev1.Pod, namespace string) bool {
	_, node := p.Labels[v1alpha1.LabelNode]
	labelled := node && p.Labels[v1alpha1.LabelApp] == v1alpha1.AppLabeler
	return labelled && p.Namespace == namespace && metav1.GetControllerOf(p) == nil
}

// needsKairosProbe reports whether a node was not probed in this boot, or lost the label that we gave it.
func needsKairosProbe(n *node.Node) bool {
	managed := n.Labels[v1alpha1.LabelManaged]
	if managed == "false" || n.BootID == "" {
		return false
	}
	boot, _, _ := strings.Cut(n.Annotations[v1alpha1.AnnotationLooked], " ")
	lostLabel := HasOwnKairosLabels(n.Annotations) && managed != "true"
	return boot != n.BootID || lostLabel
}

// kairosProbeName names the pod that probes a node in its present boot.
func kairosProbeName(n *node.Node) string {
	return truncateName(v1alpha1.AppLabeler+"-"+n.Name, 57) + "-" + nameSuffix(n.UID, n.Name, n.BootID)
}

// kairosResult reads the result of a probe; nil when it has none that can be read.
func kairosResult(p *corev1.Pod) *pack.Kairos {
	if p.Status.Phase != corev1.PodSucceeded {
		return nil
	}
	for _, s := range p.Status.ContainerStatuses {
		if s.Name != containerProbe || s.State.Terminated == nil {
			continue
		}
		if k, ok := pack.DecodeKairos(s.State.Terminated.Message); ok {
			return &k
		}
	}
	return nil
}

// kairosProbe renders the pod that probes a node. It can only read the host's /etc, and has no API token: its result is its
// termination message.
func (c Config) kairosProbe(n *node.Node) *corev1.Pod {
	out := &corev1.Pod{
		TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "Pod"},
		ObjectMeta: metav1.ObjectMeta{
			Name: kairosProbeName(n), Namespace: c.Namespace,
			Labels: map[string]string{
				v1alpha1.LabelApp: v1alpha1.AppLabeler, v1alpha1.LabelLabelerNode: labelValue(n.Name), v1alpha1.LabelNode: labelValue(n.Name),
			},
			Annotations: map[string]string{annotationNodeUID: n.UID, "cluster-autoscaler.kubernetes.io/safe-to-evict": "true"},
		},
		Spec: corev1.PodSpec{
			NodeName: n.Name, RestartPolicy: corev1.RestartPolicyNever, ActiveDeadlineSeconds: new(int64(kairosProbeTimeout.Seconds())),
			AutomountServiceAccountToken: new(false), EnableServiceLinks: new(false),
			Tolerations: []corev1.Toleration{{Operator: corev1.TolerationOpExists}},
			SecurityContext: &corev1.PodSecurityContext{
				RunAsNonRoot: new(true), RunAsUser: new(int64(1000)), RunAsGroup: new(int64(1000)),
				SeccompProfile: &corev1.SeccompProfile{Type: corev1.SeccompProfileTypeRuntimeDefault},
			},
			Containers: []corev1.Container{{
				Name: containerProbe, Image: c.AgentImage, Args: []string{"kairos", "--root-mount", kairosProbeMount},
				Env: []corev1.EnvVar{fieldEnv(envNodeName, "spec.nodeName")},
				// The defaults of a namespace may exceed what a full node has left.
				Resources: corev1.ResourceRequirements{
					Requests: corev1.ResourceList{corev1.ResourceCPU: resource.MustParse("5m"), corev1.ResourceMemory: resource.MustParse("16Mi")},
					Limits:   corev1.ResourceList{corev1.ResourceCPU: resource.MustParse("500m"), corev1.ResourceMemory: resource.MustParse("64Mi")},
				},
				SecurityContext: &corev1.SecurityContext{
					AllowPrivilegeEscalation: new(false), ReadOnlyRootFilesystem: new(true),
					Capabilities: &corev1.Capabilities{Drop: []corev1.Capability{"ALL"}},
				},
				TerminationMessagePolicy: corev1.TerminationMessageReadFile,
				VolumeMounts:             []corev1.VolumeMount{{Name: volumeEtc, MountPath: kairosProbeMount + "/etc", ReadOnly: true}},
			}},
			Volumes: []corev1.Volume{hostVolume(volumeEtc, "/etc", new(corev1.HostPathDirectory))},
		},
	}
	if c.PullSecret != "" {
		out.Spec.ImagePullSecrets = []corev1.LocalObjectReference{{Name: c.PullSecret}}
	}
	return out
}
