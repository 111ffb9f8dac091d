// SPDX-FileCopyrightText: The Skyhook authors
// SPDX-License-Identifier: Apache-2.0

package skyhook

import (
	"regexp"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/skyhook-k8s/skyhook/api/skyhook/v1alpha1"
	"github.com/skyhook-k8s/skyhook/internal/rollout/timing"
)

// injectFault changes something that users or failures change.
func (l *randomRun) injectFault() {
	n := l.nodes[l.rng.Intn(len(l.nodes))]
	switch {
	case l.chance(3):
		delete(n.Annotations, v1alpha1.PrefixNodeState+"demo")
		delete(l.damaged, n.Name)
		l.log = append(l.log, n.Name+" reset by hand")
	case l.chance(2):
		n.Annotations[v1alpha1.PrefixNodeState+"demo"] = "{}"
		delete(l.damaged, n.Name)
		l.log = append(l.log, n.Name+" emptied by hand")
	case l.chance(4):
		l.damage(n)
	case l.chance(3) && len(l.pods) > 0:
		i := l.rng.Intn(len(l.pods))
		l.log = append(l.log, "lost "+l.pods[i].Name)
		l.pods = slices.Delete(l.pods, i, i+1)
	case l.chance(3):
		n.Status.NodeInfo.BootID = l.nextBoot(n.Status.NodeInfo.BootID)
		l.log = append(l.log, n.Name+" booted")
	case l.chance(2):
		l.s.Annotations = map[string]string{v1alpha1.AnnotationPause: "true"}
	case l.chance(3):
		l.restartOperator()
	case l.chance(3):
		l.forgeTimes(n)
	default:
		if l.rng.Intn(4) == 0 || l.quiet {
			l.s.Annotations = nil
		}
	}
	l.bumpVersion(n)
}

// damage makes the nodeState of a node unreadable, or repairs it: it is as before, or removed.
func (l *randomRun) damage(n *corev1.Node) {
	key := v1alpha1.PrefixNodeState + "demo"
	was, isDamaged := l.damaged[n.Name]
	switch {
	case !isDamaged && n.Annotations[key] == "":
	case !isDamaged:
		l.damaged[n.Name] = n.Annotations[key]
		n.Annotations[key] = "damaged"
		l.log = append(l.log, n.Name+" damaged by hand")
	default:
		delete(l.damaged, n.Name)
		if n.Annotations[key] = was; l.rng.Intn(2) == 0 {
			delete(n.Annotations, key)
		}
		l.log = append(l.log, n.Name+" repaired by hand")
	}
}

// restartOperator makes the operator a new process, whose clock may be wrong.
func (l *randomRun) restartOperator() {
	l.durations = timing.NewDurations()
	l.skew = []time.Duration{0, 2 * time.Hour, -3 * time.Hour, 26 * time.Hour}[l.rng.Intn(4)]
	l.log = append(l.log, "the clock of the operator is wrong by "+l.skew.String())
}

var recordedTime = regexp.MustCompile(`"20\d\d-[^"]*Z"`)

// forgeTimes moves the times that a node records to the far future.
func (l *randomRun) forgeTimes(n *corev1.Node) {
	key := v1alpha1.PrefixRecord + "demo"
	if record := n.Annotations[key]; record != "" {
		n.Annotations[key] = recordedTime.ReplaceAllString(record, `"2099-01-01T00:00:00Z"`)
		l.log = append(l.log, n.Name+" times forged")
	}
}
