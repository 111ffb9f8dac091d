// SPDX-FileCopyrightText: The Skyhook authors
// SPDX-License-Identifier: Apache-2.0

package rollout

import (
	"cmp"
	"math"
)

// maxRanked is how many candidates of a rollout are compared by the pods on their nodes: the first ones in the usual order. When one
// of them is admitted, the next one is listed.
const maxRanked = 100

// disruption is what the drain of a node would disturb.
type disruption struct {
	isHindered bool // a pod may not leave now: it is protected, or a disruption budget or the drain options keep it
	pods       int
}

// ranksByPods reports whether a candidate is compared with others by the pods on its node.
func (t *targetState) ranksByPods() bool {
	return t.rollout.Drain.FewestPods && !t.isHeld && !t.isReserved && t.target.NeedsDrain()
}

// disruption returns what a drain of the node would disturb: nothing if none is needed, and the most if its pods are not listed.
func (t *targetState) disruption() disruption {
	switch {
	case !t.ranksByPods():
		return disruption{}
	case !t.target.PodsSeen:
		return disruption{isHindered: true, pods: math.MaxInt}
	}
	isHindered, pods := t.rollout.Drain.Disturbs(t.target.Pods)
	return disruption{isHindered, pods}
}

// Disturbs returns what a drain of a node with these pods would disturb: whether a pod may not leave now, and how many have to.
func (d *Drain) Disturbs(all []Pod) (isHindered bool, pods int) {
	for _, p := range all {
		if p.Leaving || p.Stays {
			continue
		}
		pods++
		isHindered = isHindered || p.Wait || p.Keep != "" || p.Forbidden != "" && !d.Delete
	}
	return isHindered, pods
}

// sortCandidates returns the candidates of a rollout in the order in which they are admitted. If that depends on pods, those go first
// whose drains disturb least, and the pods of the first ones are listed.
func (l *podLooker) sortCandidates(r *rolloutState) []*targetState {
	candidates := r.sortedCandidates()
	if !r.Drain.FewestPods {
		return candidates
	}
	ranked, protected := 0, 0
	for _, t := range candidates {
		if t.waitsFirst() && t.target.PodsSeen && t.target.hasProtectedPod() {
			protected++ // it is waited for, and stays listed for that
		}
	}
	for _, t := range candidates {
		isWaiting := t.waitsFirst() && (t.target.PodsSeen && t.target.hasProtectedPod() || protected >= maxWatched && l.wasProtected(t))
		if ranked == maxRanked || isWaiting || !t.ranksByPods() || checkOpen(t) != nil {
			continue
		}
		ranked++
		l.plan.lookAt(t)
	}
	byTarget := make(map[*targetState]disruption, len(candidates))
	for _, t := range candidates {
		byTarget[t] = t.disruption()
	}
	sortStable(candidates, func(a, b *targetState) int {
		one, two := byTarget[a], byTarget[b]
		return cmp.Or(
			comparePrecedence(a, b),
			compareBool(one.isHindered, two.isHindered),
			cmp.Compare(one.pods, two.pods),
		)
	})
	return candidates
}

// openChecks are the conditions of a group under which anything is admitted to the node of a candidate.
var openChecks = []func(*targetState) *Why{checkNodeFree, checkGroupFrozen, checkWave, checkGroupOpen, checkClosing}

// checkOpen returns why nothing of a group is admitted to the node of a candidate, whatever its limits say.
func checkOpen(t *targetState) *Why {
	for _, check := range openChecks {
		if why := check(t); why != nil {
			return why
		}
	}
	return nil
}
