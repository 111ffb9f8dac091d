// SPDX-FileCopyrightText: The Skyhook authors
// SPDX-License-Identifier: Apache-2.0

package world

import (
	"math/rand/v2"
	"strings"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/skyhook-k8s/skyhook/api/skyhook/v1alpha1"
	"github.com/skyhook-k8s/skyhook/internal/rollout"
	"github.com/skyhook-k8s/skyhook/internal/sim"
)

// neighbour is another program that is asked for nodes: what it said.
type neighbour struct {
	yes          map[string]bool // by UID of the node, and when its object was created
	isRecordLost bool            // somebody damaged what a node records, so that nobody knows of an object
}

// newHandover asks the neighbour for each node, and then pods of which there are none.
func newHandover(random *rand.Rand) []any {
	ask := content{
		"name": "neighbour", "cel": "has(object.data) && object.data.state == 'yes'",
		"object":    content{"apiVersion": "v1", "kind": "ConfigMap", "metadata": content{"name": "ask-$(NODE_NAME)", "namespace": "default"}},
		"timeout":   []string{"0s", "1m", "10m"}[random.IntN(3)],
		"onTimeout": []string{"Wait", "Wait", "Proceed", "GiveBack"}[random.IntN(4)],
	}
	nobody := content{"name": "nobody", "objects": content{"apiVersion": "v1", "kind": "Pod", "selector": "of=nobody"}, "cel": "false"}
	return []any{ask, nobody}[:1+random.IntN(2)]
}

// stepNeighbour lets the neighbour answer: late, or never; it deletes what it is asked by, and takes back what it said. In the end it says yes.
// The garbage collector deletes what belongs to nodes that are gone.
func (r *Run) stepNeighbour() {
	for _, key := range r.server.keys(ConfigMaps) {
		c := r.server.objects[ConfigMaps.Kind][key]
		if _, isAsking := meta(c).GetLabels()[v1alpha1.LabelHandover]; !isAsking {
			continue
		}
		node := client.ObjectKey{Name: strings.TrimPrefix(key.Name, "ask-")}
		owner := meta(c).GetOwnerReferences()[0]
		if n := r.server.objects[Nodes.Kind][node]; n == nil || meta(n).GetUID() != owner.UID {
			_, _, _ = r.server.delete(ConfigMaps, key, metav1.DeleteOptions{}) // it was there a moment ago
			continue
		}
		isNever := r.random("neighbour", string(meta(c).GetUID())).IntN(4) == 0
		state, _ := nestedMap(c, "data")["state"].(string)
		switch chance := r.random("neighbour", string(meta(c).GetUID()), r.turn).IntN(100); {
		case r.isQuiet && state != "yes", chance < 30 && state != "yes" && !isNever:
			r.changeAsUser(ConfigMaps, key, "yes", func(c content) { part(c, "data")["state"] = "yes" })
			r.truth.answers.yes[string(owner.UID)+meta(c).GetAnnotations()[v1alpha1.AnnotationHandover]] = true
		case r.isQuiet:
		case chance < 40 && state == "yes":
			r.changeAsUser(ConfigMaps, key, "no", func(c content) { part(c, "data")["state"] = "no" })
		case chance > 95:
			r.deleteAsUser(ConfigMaps, key)
		}
	}
}

// resetGivenBack has what was given back because nobody answered in time tried again, and reports whether there was something.
func (r *Run) resetGivenBack() (isAny bool) {
	for _, key := range r.server.keys(Nodes) {
		for _, skyhook := range r.server.keys(Skyhooks) {
			record := meta(r.server.objects[Nodes.Kind][key]).GetAnnotations()[v1alpha1.PrefixRecord+skyhook.Name]
			if strings.Contains(record, `"skipped":true`) && !strings.Contains(record, `"rollback"`) {
				r.annotate(key, v1alpha1.PrefixNodeState+skyhook.Name, "")
				isAny = true
			}
		}
	}
	return isAny
}

// checkHandedOver: nothing is evicted or interrupted before all have said yes who are asked for the node.
func (c *planCheck) checkHandedOver(a acting) string {
	if a.Verb == rollout.VerbRun {
		if k := sim.FindTask(a.seen, a.Task); k == nil || k.Need == rollout.NeedNothing {
			return ""
		}
	}
	if len(a.rollout.Handover) > 0 && (a.seen.Handover == nil || !a.seen.Handover.Done) {
		return "the node is not handed over"
	}
	return ""
}

// checkAsk: a step is asked on a node that is held and whose protected pods have ended, after those before it have said yes, or were late and
// need not.
func (c *planCheck) checkAsk(a acting) string {
	steps, h := a.rollout.Handover, a.seen.Handover
	if !holdsNode(a.was, a.Rollout) || a.seen.HasProtectedPod() && !c.mayForceProtected(a) {
		return "the node is not held, or a protected pod runs there"
	}
	at := h.FindStep(steps)
	switch {
	case h != nil && h.Done:
		return "the node is handed over already"
	case at < 0 && a.Object == steps[0].Name:
		return ""
	case at < 0:
		return "it is not the first step"
	case a.Object == h.Step:
		return map[bool]string{false: "it was asked already"}[h.Absent]
	case at+1 < len(steps) && a.Object != steps[at+1].Name, at+1 == len(steps) && a.Object != "":
		return "it is not the next step"
	}
	expires := h.ExpiresAt(steps[at].Timeout)
	mayProceed := steps[at].OnTimeout == rollout.DrainForce && !expires.IsZero() && !c.seen.Now.Before(expires)
	switch {
	case mayProceed:
		return ""
	case h.Missing != nil:
		return "the step before did not say yes"
	case h.Step == "neighbour" && !c.run.saidYes(a.was.Name, a.was.UID):
		return "the neighbour did not say yes for this hold"
	}
	return ""
}

// saidYes reports whether the neighbour said yes by one of the objects that a node records. What somebody damaged proves nothing.
func (r *Run) saidYes(node, uid string) bool {
	n := r.server.objects[Nodes.Kind][nodeKey(node)]
	if r.truth.answers.isRecordLost || n == nil || string(meta(n).GetUID()) != uid {
		return true
	}
	for said := range r.truth.answers.yes {
		at, isOfNode := strings.CutPrefix(said, uid)
		if isOfNode && strings.Contains(meta(n).GetAnnotations()[v1alpha1.AnnotationHandover], at) {
			return true
		}
	}
	return false
}

// checkHandoverAtRest checks that nothing is left of a handover.
func (r *Run) checkHandoverAtRest(n *corev1.Node) {
	if text, exists := n.Annotations[v1alpha1.AnnotationHandover]; exists {
		r.violate("handovers end", "node %s records %s at rest", n.Name, text)
	}
	c := r.server.objects[ConfigMaps.Kind][client.ObjectKey{Namespace: "default", Name: "ask-" + n.Name}]
	if c != nil && !r.truth.answers.isRecordLost {
		r.violate("handovers end", "the neighbour is asked for node %s at rest: %v", n.Name, c)
	}
}
