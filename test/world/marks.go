// SPDX-FileCopyrightText: The Skyhook authors
// SPDX-License-Identifier: Apache-2.0

package world

import (
	"math/rand/v2"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/skyhook-k8s/skyhook/api/skyhook/v1alpha1"
)

// markKeys are the labels and annotations of other programs that the operator puts on nodes, and where they are.
var markKeys = []struct{ where, key string }{
	{"labels", v1alpha1.LabelExcludeBalancers},
	{"annotations", v1alpha1.AnnotationScaleDown},
	{"annotations", v1alpha1.AnnotationDoNotDisrupt},
	{"labels", setLabel},
}

// setLabel is a label that Skyhooks set on held nodes, whatever people have put there.
const setLabel = "example.com/deploy"

// turningAway are the values of setLabel that Skyhooks set, and people do not.
var turningAway = []string{"paused", "stopped"}

func nodeLabels(c content) map[string]string { return meta(c).GetLabels() }

// turnsAway reports whether the labels of a node turn the pod of a DaemonSet away.
func turnsAway(labels map[string]string) bool { return slices.Contains(turningAway, labels[setLabel]) }

// lifecycleTypes are the conditions that the operator sets, and others may set as well.
var lifecycleTypes = []corev1.NodeConditionType{
	corev1.NodeMaintenancePlanned, corev1.NodeDrainInProgress, corev1.NodeDrained, corev1.NodeMaintenanceInProgress,
}

// foreignMarks is what people left on nodes, by UID of the node and key; a value "" is none.
type foreignMarks struct {
	values  map[string]string
	unclear map[string]bool // the operator cannot tell whose it is
}

// hasTurnedAwayPod reports whether the pod of a DaemonSet is on a node whose label turns it away.
func (r *Run) hasTurnedAwayPod(node string) bool {
	c := r.server.objects[Nodes.Kind][nodeKey(node)]
	return c != nil && turnsAway(nodeLabels(c)) && r.server.objects[Pods.Kind][client.ObjectKey{Namespace: "default", Name: "plugin-" + node}] != nil
}

// newNodeMarks are marks as a user asks for them.
func newNodeMarks(random *rand.Rand) content {
	marks := []any{}
	for _, mark := range []any{"Conditions", "ExcludeFromLoadBalancers", "DisableScaleDown", "DoNotDisrupt", "Description", "PreferNoSchedule"} {
		if random.IntN(2) == 0 {
			marks = append(marks, mark)
		}
	}
	out := content{"marks": marks}
	if random.IntN(2) == 0 {
		out["labels"] = content{setLabel: turningAway[random.IntN(2)]}
	}
	return out
}

// mark sets or removes a label, annotation or condition that the operator uses as well.
func (r *Run) mark(random *rand.Rand) {
	key, ok := r.pick(Nodes, random)
	if !ok {
		return
	}
	if random.IntN(3) == 0 {
		r.setForeignCondition(key, lifecycleTypes[random.IntN(len(lifecycleTypes))], random.IntN(2) == 0)
		return
	}
	m := markKeys[random.IntN(len(markKeys))]
	value := []string{"", "true", "false"}[random.IntN(3)]
	c := r.server.objects[Nodes.Kind][key]
	current, _ := nestedMap(c, "metadata", m.where)[m.key].(string)
	if current == value {
		return
	}
	mayBeOurs := strings.Contains(meta(c).GetAnnotations()[v1alpha1.AnnotationNodeMarks], m.key)
	r.changeAsUser(Nodes, key, m.key+"="+value, func(c content) {
		if value == "" {
			delete(part(c, "metadata", m.where), m.key)
		} else {
			part(c, "metadata", m.where)[m.key] = value
		}
	})
	at := r.uidOf(key) + m.key
	r.truth.marks.values[at] = value
	r.truth.marks.unclear[at] = mayBeOurs && value == "true" && m.key != setLabel // it looks like what the operator put there
}

// setForeignCondition sets a condition of the node that is not the operator's, or removes it.
func (r *Run) setForeignCondition(key client.ObjectKey, t corev1.NodeConditionType, isSet bool) {
	n := view(r, r.server.objects[Nodes.Kind][key], &corev1.Node{}).DeepCopy()
	n.Status.Conditions = slices.DeleteFunc(n.Status.Conditions, func(c corev1.NodeCondition) bool { return c.Type == t })
	value := ""
	if isSet {
		value = "Admin"
		n.Status.Conditions = append(n.Status.Conditions, corev1.NodeCondition{Type: t, Status: corev1.ConditionFalse, Reason: value})
	}
	r.tracef("Node %s: condition %s set by an administrator: %v", key.Name, t, isSet)
	r.writeStatus(Nodes, n)
	r.truth.marks.values[r.uidOf(key)+string(t)] = value
}

// blurMarks notes that the operator may not know any more which marks of a node are its own. One has its name as value.
func (r *Run) blurMarks(key client.ObjectKey) {
	for _, m := range markKeys[1:] {
		r.truth.marks.unclear[r.uidOf(key)+m.key] = true
	}
}

// checkMarks checks that a node at rest has the marks of people, and none of the operator.
func (r *Run) checkMarks(n *corev1.Node) {
	for _, m := range markKeys {
		got, want := n.Labels[m.key], r.truth.marks.values[string(n.UID)+m.key]
		if m.where == "annotations" {
			got = n.Annotations[m.key]
		}
		if got != want && !r.truth.marks.unclear[string(n.UID)+m.key] {
			r.violate("marks are restored", "node %s has %s=%q at rest, and an administrator left it %q", n.Name, m.key, got, want)
		}
	}
	for _, key := range []string{v1alpha1.AnnotationNodeMarks, v1alpha1.AnnotationMaintenance} {
		if value, exists := n.Annotations[key]; exists {
			r.violate("marks are restored", "node %s has %s=%s at rest", n.Name, key, value)
		}
	}
	for _, t := range lifecycleTypes {
		got := ""
		for _, c := range n.Status.Conditions {
			if c.Type == t {
				got = c.Reason
			}
		}
		if want := r.truth.marks.values[string(n.UID)+string(t)]; got != want {
			r.violate("marks are restored", "node %s has the condition %s with the reason %q at rest, and an administrator left it %q", n.Name, t, got, want)
		}
	}
}
