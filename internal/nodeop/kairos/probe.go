// SPDX-FileCopyrightText: The Skyhook authors
// SPDX-License-Identifier: Apache-2.0

package kairos

import (
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/skyhook-k8s/skyhook/api/nodeop/v1alpha1"
	"github.com/skyhook-k8s/skyhook/internal/node"
	"github.com/skyhook-k8s/skyhook/internal/nodeop"
	"github.com/skyhook-k8s/skyhook/internal/pack"
)

const (
	maxProbes      = 10 // that run at the same time
	probeTimeout   = 10 * time.Minute
	probeLimit     = 2 * probeTimeout // after which a probe has failed of which nothing is heard
	probeRetry     = time.Hour        // after a probe that failed
	probeMount     = "/host"
	containerProbe = "node-labeler"
	volumeEtc      = "host-etc"
)

// Probes is what has to be done so that nodes that run Kairos have its labels. A Node object does not say what runs
// there, so a pod that can only read /etc probes each node once per boot and is deleted afterwards.
type Probes struct {
	Edits   []node.NamedEdit
	Create  []*corev1.Pod
	Delete  []*corev1.Pod // whose result is on the node, or which belong to an earlier boot
	RetryAt time.Time     // zero when nothing is to be retried
}

// PlanProbes compares nodes with the pods that probed them. Pods are those of every namespace that carry LabelNode.
func PlanProbes(nodes []*node.Node, pods []*corev1.Pod, config nodeop.Config, now time.Time) Probes {
	var out Probes
	if !config.LabelKairos {
		return out
	}
	obsolete := map[string]*corev1.Pod{} // probes by name; those that are needed are taken out below
	for _, p := range pods {
		if IsProbe(p, config.Namespace) {
			obsolete[p.Name] = p
		}
	}

	running := 0
	var missing []*node.Node
	for _, n := range nodes {
		if !needsProbe(n) {
			continue
		}
		p := obsolete[probeName(n)]
		if p == nil {
			if n.Ready {
				missing = append(missing, n)
			}
			continue
		}

		needed, found := true, readResult(p)
		switch {
		case p.DeletionTimestamp != nil:
		case found != nil: // the pod is deleted once the node is labelled
			out.Edits = append(out.Edits, node.NamedEdit{Node: n.Name, Edit: editLabels(n, *found)})
		case nodeop.IsPodFinished(p) || !now.Before(p.CreationTimestamp.Add(probeLimit)):
			retryAt := p.CreationTimestamp.Add(probeRetry)
			if needed = now.Before(retryAt); needed {
				out.RetryAt = node.Earlier(out.RetryAt, retryAt)
			}
		case n.Ready:
			running++
			out.RetryAt = node.Earlier(out.RetryAt, p.CreationTimestamp.Add(probeLimit))
		}
		if needed {
			delete(obsolete, p.Name)
		}
	}

	for _, n := range missing[:min(len(missing), max(0, maxProbes-running))] {
		out.Create = append(out.Create, newProbe(config, n))
	}
	for _, p := range pods {
		if obsolete[p.Name] == p && p.DeletionTimestamp == nil {
			out.Delete = append(out.Delete, p)
		}
	}
	return out
}

// IsProbe reports whether a pod is a probe of the operator that runs in a namespace.
func IsProbe(p *corev1.Pod, namespace string) bool {
	_, node := p.Labels[v1alpha1.LabelNode]
	labelled := node && p.Labels[v1alpha1.LabelApp] == v1alpha1.AppLabeler
	return labelled && p.Namespace == namespace && metav1.GetControllerOf(p) == nil
}

// needsProbe reports whether a node was not probed in this boot, or lost the label that we gave it.
func needsProbe(n *node.Node) bool {
	managed := n.Labels[v1alpha1.LabelManaged]
	if managed == "false" || n.BootID == "" {
		return false
	}
	boot, _, _ := strings.Cut(n.Annotations[v1alpha1.AnnotationLooked], " ")
	lostLabel := HasOwnLabels(n.Annotations) && managed != "true"
	return boot != n.BootID || lostLabel
}

// probeName names the pod that probes a node in its present boot.
func probeName(n *node.Node) string {
	return nodeop.NewObjectName(v1alpha1.AppLabeler+"-"+n.Name, n.UID, n.Name, n.BootID)
}

// readResult reads the result of a probe; nil when it has none that can be read.
func readResult(p *corev1.Pod) *pack.Kairos {
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

// newProbe renders the pod that probes a node. It can only read the host's /etc, and has no API token: its result is its
// termination message.
func newProbe(config nodeop.Config, n *node.Node) *corev1.Pod {
	out := &corev1.Pod{
		TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "Pod"},
		ObjectMeta: metav1.ObjectMeta{
			Name: probeName(n), Namespace: config.Namespace,
			Labels: map[string]string{
				v1alpha1.LabelApp: v1alpha1.AppLabeler, v1alpha1.LabelLabelerNode: nodeop.LabelValue(n.Name), v1alpha1.LabelNode: nodeop.LabelValue(n.Name),
			},
			Annotations: map[string]string{nodeop.AnnotationNodeUID: n.UID, "cluster-autoscaler.kubernetes.io/safe-to-evict": "true"},
		},
		Spec: corev1.PodSpec{
			NodeName: n.Name, RestartPolicy: corev1.RestartPolicyNever, ActiveDeadlineSeconds: new(int64(probeTimeout.Seconds())),
			AutomountServiceAccountToken: new(false), EnableServiceLinks: new(false),
			Tolerations: []corev1.Toleration{{Operator: corev1.TolerationOpExists}},
			SecurityContext: &corev1.PodSecurityContext{
				RunAsNonRoot: new(true), RunAsUser: new(int64(1000)), RunAsGroup: new(int64(1000)),
				SeccompProfile: &corev1.SeccompProfile{Type: corev1.SeccompProfileTypeRuntimeDefault},
			},
			Containers: []corev1.Container{{
				Name: containerProbe, Image: config.AgentImage, Args: []string{"kairos", "--root-mount", probeMount},
				Env: []corev1.EnvVar{{Name: "NODE_NAME", ValueFrom: &corev1.EnvVarSource{FieldRef: &corev1.ObjectFieldSelector{APIVersion: "v1", FieldPath: "spec.nodeName"}}}},
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
				VolumeMounts:             []corev1.VolumeMount{{Name: volumeEtc, MountPath: probeMount + "/etc", ReadOnly: true, RecursiveReadOnly: new(corev1.RecursiveReadOnlyIfPossible)}},
			}},
			Volumes: []corev1.Volume{{Name: volumeEtc, VolumeSource: corev1.VolumeSource{HostPath: &corev1.HostPathVolumeSource{Path: "/etc", Type: new(corev1.HostPathDirectory)}}}},
		},
	}
	out.Spec.ImagePullSecrets = slices.Clone(config.PullSecrets)
	return out
}
