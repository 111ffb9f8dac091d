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
	"github.com/skyhook-k8s/skyhook/internal/pack"
)

// Limits of looking at nodes.
const (
	mostLooks  = 10 // nodes that are looked at at the same time
	lookLimit  = 10 * time.Minute
	lookAgain  = time.Hour // after a look that failed
	lookedFrom = "/host"
	labeler    = "node-labeler"
	volumeEtc  = "host-etc"
)

// Looks is what there is to do so that nodes that run Kairos say so. Nobody knows that from a Node object, so a pod that
// only reads /etc looks at each node, once for each boot, and goes.
type Looks struct {
	Edits []NodeEdit
	Make  []*corev1.Pod
	Drop  []*corev1.Pod // read, or of a boot that is over
	Again time.Time
}

// Look finds what there is to do. Pods are those of every namespace that carry LabelNode.
func Look(nodes []*Node, pods []*corev1.Pod, c Config, now time.Time) Looks {
	var out Looks
	if !c.LabelKairos {
		return out
	}
	found := map[string]*corev1.Pod{}
	for _, p := range pods {
		if p.Namespace == c.Namespace && looks(p) {
			found[p.Name] = p
		}
	}
	running := 0
	var asked []*Node
	for _, n := range nodes {
		if !wanted(n) {
			continue
		}
		name := lookName(n)
		p := found[name]
		switch {
		case p == nil && n.Ready:
			asked = append(asked, n)
		case p == nil:
		case p.DeletionTimestamp != nil:
			delete(found, name)
		case p.Status.Phase == corev1.PodSucceeded && seen(p) != nil:
			out.Edits = append(out.Edits, NodeEdit{n.Name, labelled(n, *seen(p))})
			delete(found, name) // it goes once the node says what it saw
		case Over(p):
			if at := p.CreationTimestamp.Add(lookAgain); now.Before(at) {
				delete(found, name)
				out.Again = sooner(out.Again, at)
			}
		default:
			delete(found, name)
			if n.Ready {
				running++
			}
		}
	}
	for _, n := range asked[:min(len(asked), max(0, mostLooks-running))] {
		out.Make = append(out.Make, c.lookPod(n))
	}
	for _, p := range pods {
		if found[p.Name] == p && p.DeletionTimestamp == nil {
			out.Drop = append(out.Drop, p)
		}
	}
	return out
}

// Looking says that a pod of the operator's namespace looks at a node.
func Looking(p *corev1.Pod, namespace string) bool { return p.Namespace == namespace && looks(p) }

func looks(p *corev1.Pod) bool {
	_, node := p.Labels[v1alpha1.LabelNode]
	return node && p.Labels[v1alpha1.LabelApp] == v1alpha1.AppLabeler && metav1.GetControllerOf(p) == nil
}

// wanted says that a node has to be looked at: it was not in this boot, or somebody took its label away since.
func wanted(n *Node) bool {
	managed := n.Labels[v1alpha1.LabelManaged]
	if managed == "false" || n.BootID == "" {
		return false
	}
	boot, _, _ := strings.Cut(n.Annotations[v1alpha1.AnnotationLooked], " ")
	return boot != n.BootID || LabelledByUs(n.Annotations) && managed != "true"
}

func sooner(a, b time.Time) time.Time {
	if a.IsZero() || !b.IsZero() && b.Before(a) {
		return b
	}
	return a
}

// lookName is the name of the pod that looks at a node in its present boot.
func lookName(n *Node) string {
	return truncated(v1alpha1.AppLabeler+"-"+n.Name, 57) + "-" + suffix(n.UID, n.Name, n.BootID)
}

// seen is what a pod found; nil when it left nothing that can be read.
func seen(p *corev1.Pod) *pack.Kairos {
	for _, s := range p.Status.ContainerStatuses {
		if s.Name == labeler && s.State.Terminated != nil {
			if k, ok := pack.DecodeKairos(s.State.Terminated.Message); ok {
				return &k
			}
		}
	}
	return nil
}

// lookPod looks at a node. It may do nothing but read the host's /etc, and has no API token: what it found is its
// termination message.
func (c Config) lookPod(n *Node) *corev1.Pod {
	out := &corev1.Pod{
		TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "Pod"},
		ObjectMeta: metav1.ObjectMeta{
			Name: lookName(n), Namespace: c.Namespace,
			Labels: map[string]string{
				v1alpha1.LabelApp: v1alpha1.AppLabeler, v1alpha1.LabelLabelerNode: labelValue(n.Name), v1alpha1.LabelNode: labelValue(n.Name),
			},
			Annotations: map[string]string{annotationNodeUID: n.UID, "cluster-autoscaler.kubernetes.io/safe-to-evict": "true"},
		},
		Spec: corev1.PodSpec{
			NodeName: n.Name, RestartPolicy: corev1.RestartPolicyNever, ActiveDeadlineSeconds: pointer(int64(lookLimit.Seconds())),
			AutomountServiceAccountToken: pointer(false), EnableServiceLinks: pointer(false),
			Tolerations: []corev1.Toleration{{Operator: corev1.TolerationOpExists}},
			SecurityContext: &corev1.PodSecurityContext{
				RunAsNonRoot: pointer(true), RunAsUser: pointer(int64(1000)), RunAsGroup: pointer(int64(1000)),
				SeccompProfile: &corev1.SeccompProfile{Type: corev1.SeccompProfileTypeRuntimeDefault},
			},
			Containers: []corev1.Container{{
				Name: labeler, Image: c.AgentImage, Args: []string{"kairos", "--root-mount", lookedFrom},
				Env: []corev1.EnvVar{fieldEnv(envNodeName, "spec.nodeName")},
				// A namespace's defaults may be more than a full node has left.
				Resources: corev1.ResourceRequirements{
					Requests: corev1.ResourceList{corev1.ResourceCPU: resource.MustParse("5m"), corev1.ResourceMemory: resource.MustParse("16Mi")},
					Limits:   corev1.ResourceList{corev1.ResourceCPU: resource.MustParse("500m"), corev1.ResourceMemory: resource.MustParse("64Mi")},
				},
				SecurityContext: &corev1.SecurityContext{
					AllowPrivilegeEscalation: pointer(false), ReadOnlyRootFilesystem: pointer(true),
					Capabilities: &corev1.Capabilities{Drop: []corev1.Capability{"ALL"}},
				},
				TerminationMessagePolicy: corev1.TerminationMessageReadFile,
				VolumeMounts:             []corev1.VolumeMount{{Name: volumeEtc, MountPath: lookedFrom + "/etc", ReadOnly: true}},
			}},
			Volumes: []corev1.Volume{hostVolume(volumeEtc, "/etc", pointer(corev1.HostPathDirectory))},
		},
	}
	if c.PullSecret != "" {
		out.Spec.ImagePullSecrets = []corev1.LocalObjectReference{{Name: c.PullSecret}}
	}
	return out
}
