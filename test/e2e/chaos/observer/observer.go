// SPDX-FileCopyrightText: The Skyhook authors
// SPDX-License-Identifier: Apache-2.0

// Package observer checks the promises of Skyhook while it works. It sees nodes and pods as the API server reports them, and what is
// on the hosts; it knows nothing of the operator's own view and changes nothing.
package observer

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
)

// Group is a set of nodes with one limit.
type Group struct {
	Name  string
	Limit int
	Nodes []string
}

// Setup is what the observer must know of the work.
type Setup struct {
	Groups     []Group
	Protected  []string // pods that must not die, as NAMESPACE/NAME
	Protecting []string // Skyhooks that wait for protected pods before they interrupt a node
	Compact    []string // Skyhooks whose stages share pods, which go on while no operator records it
	Guarded    string   // value of the label app of pods that may only be evicted
	MinReady   int      // how many of these their disruption budget wants to be available
}

// Violation is a promise that was broken.
type Violation struct {
	At   time.Time
	Rule string
	Text string
}

func (v Violation) String() string {
	return fmt.Sprintf("%s  %s: %s", v.At.UTC().Format("15:04:05.000"), v.Rule, v.Text)
}

// The rules.
const (
	RuleLimit     = "a group has at most as many nodes held as its limit"
	RuleDown      = "no node is held while others that are down use up the limit"
	RuleProtected = "protected pods never die"
	RuleInterrupt = "no interrupt begins beside a protected pod"
	RuleEvicted   = "pods with a disruption budget are evicted, not deleted"
	RuleBudget    = "an eviction leaves as many pods ready as the disruption budget wants"
	RuleOnce      = "each interrupt is carried out once"
	RuleRecord    = "what a node records is done on the host"
	RuleCordon    = "no node stays cordoned"
	RuleFinalizer = "no object and no finalizer stays"
)

// downFor is how long a node must be down until the operator must know it: longer than any fault keeps it from hearing that.
const downFor = 45 * time.Second

// Observer checks what it is told. It is safe for concurrent use.
type Observer struct {
	setup Setup

	mu         sync.Mutex
	nodes      map[string]nodeView
	alive      map[string]string    // UIDs of protected pods, by NAMESPACE/NAME
	on         map[string]string    // their nodes
	released   map[string]bool      // protected pods that may die
	excused    map[string]bool      // UIDs of pods that somebody else deleted
	guarded    map[string]readiness // of pods with a disruption budget, by UID
	reported   map[string]bool
	hosts      map[string]*hostView
	wanted     map[string]string // version that a package has or goes to, by SKYHOOK.PACKAGE
	violations []Violation
}

// nodeView is what counts of a node.
type nodeView struct {
	holders []string
	down    bool
	since   time.Time // of being down or not
}

// New returns an observer that has seen nothing yet.
func New(setup Setup) *Observer {
	return &Observer{
		setup: setup, nodes: map[string]nodeView{}, alive: map[string]string{}, on: map[string]string{}, released: map[string]bool{},
		excused: map[string]bool{}, guarded: map[string]readiness{}, reported: map[string]bool{}, hosts: map[string]*hostView{}, wanted: map[string]string{},
	}
}

// Violations returns what was broken so far.
func (o *Observer) Violations() []Violation {
	o.mu.Lock()
	defer o.mu.Unlock()
	return slices.Clone(o.violations)
}

// add records a violation, the same one only once.
func (o *Observer) add(at time.Time, rule, format string, args ...any) {
	v := Violation{At: at, Rule: rule, Text: fmt.Sprintf(format, args...)}
	if key := rule + v.Text; !o.reported[key] {
		o.reported[key] = true
		o.violations = append(o.violations, v)
	}
}

// Holders lists who holds a node cordoned: Skyhooks and NodeOps, as the node's annotations name them.
func Holders(n *corev1.Node) (holders []string) {
	if !n.Spec.Unschedulable {
		return nil
	}
	for key, value := range n.Annotations {
		if name, isHold := strings.CutPrefix(key, "skyhook.nvidia.com/cordon_"); isHold && value == "true" {
			holders = append(holders, "Skyhook "+name)
		}
		if key == "operator.kairos.io/cordoned-by" {
			name, _, _ := strings.Cut(value, "@")
			holders = append(holders, "NodeOp "+name)
		}
	}
	slices.Sort(holders)
	return holders
}

func isDown(n *corev1.Node) bool {
	for _, c := range n.Status.Conditions {
		if c.Type == corev1.NodeReady {
			return c.Status != corev1.ConditionTrue
		}
	}
	return true
}

// NodeChanged is told each state of a node, in the order of the API server.
func (o *Observer) NodeChanged(at time.Time, n *corev1.Node) {
	o.mu.Lock()
	defer o.mu.Unlock()
	before, isKnown := o.nodes[n.Name]
	now := nodeView{holders: Holders(n), down: isDown(n), since: before.since}
	if !isKnown || before.down != now.down {
		now.since = at
	}
	o.nodes[n.Name] = now
	if len(before.holders) > 0 || len(now.holders) == 0 {
		return
	}
	for _, g := range o.setup.Groups {
		if slices.Contains(g.Nodes, n.Name) {
			o.checkLimit(at, g, n.Name)
		}
	}
}

// checkLimit checks the limit of a group in which a node was just held.
func (o *Observer) checkLimit(at time.Time, g Group, held string) {
	var holds, all []string
	for _, name := range g.Nodes {
		n := o.nodes[name]
		isDownLong := n.down && at.Sub(n.since) >= downFor
		switch {
		case len(n.holders) > 0:
			text := fmt.Sprintf("%s by %s", name, strings.Join(n.holders, ", "))
			holds, all = append(holds, text), append(all, text)
		case isDownLong:
			all = append(all, fmt.Sprintf("%s down for %s", name, at.Sub(n.since).Round(time.Second)))
		}
	}
	if len(holds) > g.Limit {
		o.add(at, RuleLimit, "group %s with limit %d: %s", g.Name, g.Limit, strings.Join(holds, "; "))
		return
	}
	if len(all) > g.Limit {
		o.add(at, RuleDown, "%s was held in group %s with limit %d: %s", held, g.Name, g.Limit, strings.Join(all, "; "))
	}
}

// Release says that a protected pod may die from now on.
func (o *Observer) Release(pod string) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.released[pod] = true
}

// Excuse says that somebody else deletes the pod with this UID.
func (o *Observer) Excuse(uid string) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.excused[uid] = true
}

// PodChanged is told each state of a pod, and its last one when it was deleted.
func (o *Observer) PodChanged(at time.Time, p *corev1.Pod, isDeleted bool) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.checkProtected(at, p, isDeleted)
	o.checkInterrupt(at, p, isDeleted)
	o.checkEvicted(at, p, isDeleted)
	o.checkBudget(at, p, isDeleted)
}

// PodVanished is told a pod that is gone, as it was before: a watch that was cut has not shown its end. Whether it was evicted is not
// known then.
func (o *Observer) PodVanished(at time.Time, p *corev1.Pod) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.checkProtected(at, p, true)
	o.checkBudget(at, p, true)
}

func (o *Observer) checkProtected(at time.Time, p *corev1.Pod, isDeleted bool) {
	key := p.Namespace + "/" + p.Name
	if !slices.Contains(o.setup.Protected, key) {
		return
	}
	isDying := isDeleted || p.DeletionTimestamp != nil
	if isDying && !o.released[key] {
		o.add(at, RuleProtected, "pod %s on %s was deleted: %s", key, p.Spec.NodeName, describeDisruption(p))
	}
	if isDying || p.Spec.NodeName == "" {
		delete(o.alive, key)
		return
	}
	o.alive[key], o.on[key] = string(p.UID), p.Spec.NodeName
}

// checkInterrupt checks that a pod of an interrupt is not created on the node of a protected pod.
func (o *Observer) checkInterrupt(at time.Time, p *corev1.Pod, isDeleted bool) {
	isInterrupt := p.Labels["skyhook.nvidia.com/interrupt"] == "True"
	if !isInterrupt || isDeleted || p.DeletionTimestamp != nil || !slices.Contains(o.setup.Protecting, p.Labels["skyhook.nvidia.com/name"]) {
		return
	}
	for _, key := range slices.Sorted(maps.Keys(o.alive)) {
		if o.on[key] == p.Spec.NodeName && !o.released[key] {
			o.add(at, RuleInterrupt, "pod %s interrupts %s, where %s runs", p.Name, p.Spec.NodeName, key)
		}
	}
}

func (o *Observer) checkEvicted(at time.Time, p *corev1.Pod, isDeleted bool) {
	isGuarded := o.setup.Guarded != "" && p.Labels["app"] == o.setup.Guarded
	isDying := isDeleted || p.DeletionTimestamp != nil
	isOver := p.Status.Phase == corev1.PodFailed || p.Status.Phase == corev1.PodSucceeded
	if !isGuarded || !isDying || isOver || o.excused[string(p.UID)] || p.Spec.NodeName == "" {
		return
	}
	if describeDisruption(p) == "" {
		o.add(at, RuleEvicted, "pod %s/%s on %s was deleted without an eviction", p.Namespace, p.Name, p.Spec.NodeName)
	}
}

// readiness is whether a pod can be counted on.
type readiness struct {
	ready bool
	since time.Time
}

// checkBudget checks that evicting a ready pod leaves as many ready ones as its disruption budget wants. A pod that was lost in another
// way lately counts as ready: the API server may not have known.
func (o *Observer) checkBudget(at time.Time, p *corev1.Pod, isDeleted bool) {
	if o.setup.Guarded == "" || p.Labels["app"] != o.setup.Guarded {
		return
	}
	before := o.guarded[string(p.UID)]
	isDying := isDeleted || p.DeletionTimestamp != nil
	now := readiness{ready: !isDying && isReady(p), since: before.since}
	if now.ready != before.ready {
		now.since = at
	}
	isEvicted := isDying && describeDisruption(p) != ""
	if isEvicted {
		now.since = time.Time{} // which nobody can have missed
	}
	o.guarded[string(p.UID)] = now
	if !isEvicted || !before.ready {
		return
	}
	left := 0
	for _, other := range o.guarded {
		isLostLately := !other.since.IsZero() && at.Sub(other.since) < downFor
		if other.ready || isLostLately {
			left++
		}
	}
	if left < o.setup.MinReady {
		o.add(at, RuleBudget, "pod %s/%s on %s was evicted, which leaves %d of %d", p.Namespace, p.Name, p.Spec.NodeName, left, o.setup.MinReady)
	}
}

func isReady(p *corev1.Pod) bool {
	for _, c := range p.Status.Conditions {
		if c.Type == corev1.PodReady {
			return c.Status == corev1.ConditionTrue
		}
	}
	return false
}

// describeDisruption says who disrupts a pod, as the API server records it. It is empty for a plain deletion.
func describeDisruption(p *corev1.Pod) string {
	for _, c := range p.Status.Conditions {
		if c.Type == corev1.DisruptionTarget && c.Status == corev1.ConditionTrue {
			return c.Reason + ": " + c.Message
		}
	}
	return ""
}

// AtRest checks nodes after all work is done.
func (o *Observer) AtRest(at time.Time, nodes []corev1.Node) {
	o.mu.Lock()
	defer o.mu.Unlock()
	for _, n := range nodes {
		if n.Spec.Unschedulable {
			o.add(at, RuleCordon, "node %s is cordoned; holders: %v", n.Name, Holders(&n))
		}
	}
}

// Left says that an object or its finalizer stayed.
func (o *Observer) Left(at time.Time, what string) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.add(at, RuleFinalizer, "%s", what)
}
