// SPDX-FileCopyrightText: The Skyhook authors
// SPDX-License-Identifier: Apache-2.0

package skyhook

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"

	"github.com/skyhook-k8s/skyhook/internal/node"
	"github.com/skyhook-k8s/skyhook/internal/rollout"
)

// target is a node of this Skyhook with everything known about it.
type target struct {
	node     *node.Node
	on       *node.SkyhookState
	rec      node.SkyhookRecord
	pods     podsOn
	steps    map[string]*step // by id; nil for a node without work
	edited   int
	selected bool
	stuck    *rollout.Why // a package cannot start because its dependency is uninstalled
	wanted   wanted
	revision string // key of the packages that are finished on the node; empty while one is between two definitions

	quiet rollout.Phase // the phase for which Words is empty, as noted by a pass; empty for none
}

// podsOn are the pods of a Skyhook on a node, in the order of their creation.
type podsOn struct {
	work  []*podInfo // that run stages, interrupts and commands of proofs
	drift []*podInfo // that check the node for drift
	pulls []*podInfo // that pull images before the node's turn
}

// readPods reads the pods of a Skyhook on a node. Those that check for drift or pull images are apart: they are no work, unless the
// Skyhook is being deleted and waits until they are gone.
func readPods(pods []*corev1.Pod, isDeleting bool) (out podsOn) {
	read := make([]*podInfo, len(pods))
	for i, p := range pods {
		read[i] = readPod(p)
	}
	slices.SortFunc(read, func(a, b *podInfo) int { return cmp.Or(a.created.Compare(b.created), strings.Compare(a.name, b.name)) })
	for _, p := range read {
		switch {
		case p.drift != nil && !isDeleting:
			out.drift = append(out.drift, p)
		case p.pull != nil && !isDeleting:
			out.pulls = append(out.pulls, p)
		default:
			out.work = append(out.work, p)
		}
	}
	return out
}

// findPod returns the pod of an entry of a nodeState: of the same package, version, stage and recorded run. The newest of
// several counts.
func findPod(pods []*podInfo, e entry) *podInfo {
	run := ""
	if e.rec != nil {
		run = e.rec.Run
	}
	for i := len(pods) - 1; i >= 0; i-- {
		for _, pod := range pods[i].works() {
			t := pod.tag
			if t.Name == e.Name && t.Version == e.Version && t.Stage == e.Stage && pod.run == run {
				return pod
			}
		}
	}
	return nil
}

// findDrift returns the pod of this name that checks the node for drift; nil if there is none.
func (p podsOn) findDrift(name string) *corev1.Pod {
	for _, pod := range p.drift {
		if pod.name == name {
			return pod.drift
		}
	}
	return nil
}

// mounts reports whether one of the pods mounts the ConfigMap of a package of the Skyhook.
func (p podsOn) mounts(skyhook, configMap string) bool {
	return slices.ContainsFunc(p.work, func(pod *podInfo) bool {
		return slices.ContainsFunc(pod.works(), func(of *podInfo) bool { return configMapName(skyhook, of.tag.Name, of.tag.Version) == configMap })
	})
}

// findStep returns the compiled step of a task; an error if there is none.
func (t *target) findStep(id string) (*step, error) {
	if t != nil && t.steps[id] != nil {
		return t.steps[id], nil
	}
	return nil, fmt.Errorf("task %s is not owed on its node", id)
}
