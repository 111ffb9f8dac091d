// SPDX-FileCopyrightText: The Skyhook authors
// SPDX-License-Identifier: Apache-2.0

package docs

import (
	"context"
	"fmt"
	"strings"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes/fake"
	kubectldrain "k8s.io/kubectl/pkg/drain"

	"github.com/skyhook-k8s/skyhook/internal/cluster/drain"
)

// variants are all kinds of pods that a drain could find: owners × volumes × annotations × phases.
func variants() []*corev1.Pod {
	yes := true
	owners := map[string][]metav1.OwnerReference{
		"bare":      nil,
		"owned":     {{APIVersion: "v1", Kind: "ReplicationController", Name: "x", UID: "x"}},
		"replica":   {{APIVersion: "apps/v1", Kind: "ReplicaSet", Name: "x", UID: "x", Controller: &yes}},
		"daemon":    {{APIVersion: "apps/v1", Kind: "DaemonSet", Name: "x", UID: "x", Controller: &yes}},
		"daemonold": {{APIVersion: "extensions/v1beta1", Kind: "DaemonSet", Name: "x", UID: "x", Controller: &yes}},
		"job":       {{APIVersion: "batch/v1", Kind: "Job", Name: "x", UID: "x", Controller: &yes}},
	}
	volumes := map[string][]corev1.Volume{
		"none":  nil,
		"empty": {{Name: "v", VolumeSource: corev1.VolumeSource{EmptyDir: &corev1.EmptyDirVolumeSource{}}}},
		"host":  {{Name: "v", VolumeSource: corev1.VolumeSource{HostPath: &corev1.HostPathVolumeSource{Path: "/x"}}}},
	}
	var out []*corev1.Pod
	for owner, refs := range owners {
		for volume, vs := range volumes {
			for _, mirror := range []bool{false, true} {
				for _, phase := range []corev1.PodPhase{corev1.PodPending, corev1.PodRunning, corev1.PodSucceeded, corev1.PodFailed} {
					p := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{
						Namespace: "default", Name: strings.ToLower(fmt.Sprintf("%s-%s-%v-%s", owner, volume, mirror, phase)), OwnerReferences: refs,
					}}
					p.UID, p.Spec.NodeName, p.Spec.Volumes, p.Status.Phase = types.UID(p.Name), "n1", vs, phase
					if mirror {
						p.Annotations = map[string]string{corev1.MirrorPodAnnotationKey: "x"}
					}
					out = append(out, p)
				}
			}
		}
	}
	return out
}

// TestRulesAsKubectl compares what is evicted, skipped and refused with kubectl drain. Only finished pods differ: they stay.
func TestRulesAsKubectl(t *testing.T) {
	api := fake.NewClientset(&appsv1.DaemonSet{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "x"}})
	for _, p := range variants() {
		for _, force := range []bool{false, true} {
			for _, empty := range []bool{false, true} {
				if err := api.Tracker().Add(p); err != nil {
					t.Fatal(err)
				}
				kubectl := kubectldrain.Helper{Ctx: context.Background(), Client: api, GracePeriodSeconds: -1, IgnoreAllDaemonSets: true, Force: force, DeleteEmptyDirData: empty}
				list, refused := kubectl.GetPodsForDeletion("n1")
				want := ""
				switch {
				case p.Status.Phase == corev1.PodSucceeded || p.Status.Phase == corev1.PodFailed:
				case len(refused) > 0:
					want = "keep"
				case len(list.Pods()) > 0:
					want = "evict"
				}
				got := ""
				for _, g := range (drain.Rules{Force: force, DeleteEmptyDirData: empty}).BlockingPods([]*corev1.Pod{p}, func(*corev1.Pod) bool { return false }, nil) {
					if got = "evict"; g.Keep != "" {
						got = "keep"
					}
				}
				if got != want {
					t.Errorf("%s with force %v, deleteEmptyDirData %v: %q, kubectl says %q", p.Name, force, empty, got, want)
				}
				if err := api.Tracker().Delete(corev1.SchemeGroupVersion.WithResource("pods"), p.Namespace, p.Name); err != nil {
					t.Fatal(err)
				}
			}
		}
	}
}
