// SPDX-FileCopyrightText: The Skyhook authors
// SPDX-License-Identifier: Apache-2.0

package world

import (
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/skyhook-k8s/skyhook/api/skyhook/v1alpha1"
	"github.com/skyhook-k8s/skyhook/internal/node"
	"github.com/skyhook-k8s/skyhook/internal/pack"
	"github.com/skyhook-k8s/skyhook/internal/skyhook/plan"
	"github.com/skyhook-k8s/skyhook/test/kubelet"
)

// conditionValidated is the condition of nodes that proofs ask for. A validator sets it, whenever it likes.
const conditionValidated = "example.com/Validated"

// addReleases lets a Skyhook prove its nodes, go back from what fails, and look for drift, one node at a time.
func addReleases(spec content, random *rand.Rand) {
	if random.IntN(5) == 0 {
		spec["proof"] = newProof()
	}
	if random.IntN(4) == 0 {
		spec["rollback"] = content{"scope": []string{"Node", "Rollout"}[random.IntN(2)]}
	}
	if random.IntN(4) == 0 {
		spec["drift"] = content{"every": "1m", "mode": []string{"Report", "Repair"}[random.IntN(2)]}
	}
}

func newProof() content {
	return content{"nodeConditions": []any{conditionValidated}, "timeout": "0s"}
}

// failsOften reports whether the stages of a Skyhook fail more often than others, so that nodes go back.
func (r *Run) failsOften(skyhook string) bool {
	return nestedMap(r.server.objects[Skyhooks.Kind][client.ObjectKey{Name: skyhook}], "spec", "rollback") != nil
}

// endReleases lets what is left come to rest: nobody looks for drift any more, and what went back gets other packages.
func endReleases(spec content, of v1alpha1.Profile) {
	delete(spec, "drift")
	spec["profile"] = string(v1alpha1.ProfileCompatible)
	if spec["rollback"] == nil && of != v1alpha1.ProfileRecommended {
		return
	}
	delete(spec, "rollback")
	packages := part(spec, "packages")
	for name := range packages {
		part(packages, name, "configMap")["b"] = "mended"
	}
}

// stepValidator sets the condition that proofs ask for, and reports whether that is new.
func (r *Run) stepValidator(n *corev1.Node) bool {
	isAsked := slices.ContainsFunc(r.server.keys(Skyhooks), func(key client.ObjectKey) bool {
		return nestedMap(r.server.objects[Skyhooks.Kind][key], "spec", "proof") != nil
	})
	if !isAsked {
		return false
	}
	random := r.random("validator", n.UID, r.turn)
	status := corev1.ConditionTrue
	if !r.isQuiet && random.IntN(3) == 0 || r.provesTogether && !r.isComplete(n) {
		status = corev1.ConditionFalse
	}
	at := slices.IndexFunc(n.Status.Conditions, func(c corev1.NodeCondition) bool { return c.Type == conditionValidated })
	isToChange := r.isQuiet || at < 0 || random.IntN(4) == 0
	if at < 0 {
		n.Status.Conditions = append(n.Status.Conditions, corev1.NodeCondition{Type: conditionValidated})
		at = len(n.Status.Conditions) - 1
	}
	if !isToChange || n.Status.Conditions[at].Status == status {
		return false
	}
	n.Status.Conditions[at].Status, n.Status.Conditions[at].LastTransitionTime = status, metav1.NewTime(r.now)
	return true
}

// isComplete reports whether every package of the Skyhooks that work on a node, and do not go back, has reached its last stage there.
func (r *Run) isComplete(n *corev1.Node) bool {
	on := node.Parse(n, nil)
	for _, key := range r.server.keys(Skyhooks) {
		s := on.Skyhook(key.Name)
		for name, p := range nestedMap(r.server.objects[Skyhooks.Kind][key], "spec", "packages") {
			at := s.State[v1alpha1.PackageKey(name, v1alpha1.PackageVersion(nestedString(p.(content), "version")))]
			isLast := at.State == v1alpha1.StateComplete && (at.Stage == v1alpha1.StageConfig || at.Stage == v1alpha1.StagePostInterrupt)
			if r.truth.admitted[string(n.UID)][key.Name] && s.Record.Rollback == nil && !isLast {
				return false
			}
		}
	}
	return true
}

// proveTogether lets two Skyhooks share reboots, and each prove what may need the last stage of the other.
func (r *Run) proveTogether(random *rand.Rand) {
	r.provesTogether = true
	for _, name := range []string{"base", "extra"} {
		if key := (client.ObjectKey{Name: name}); r.server.objects[Skyhooks.Kind][key] == nil {
			r.createAsUser(Skyhooks, newSkyhook(name, random, r.hasPolicy()))
		}
		r.changeAsUser(Skyhooks, client.ObjectKey{Name: name}, "proven, and reboots together", func(c content) {
			spec := part(c, "spec")
			spec["shareReboots"], spec["proof"] = true, newProof()
			for of := range part(spec, "packages") {
				part(spec, "packages", of)["interrupt"] = content{"type": "reboot"}
			}
		})
	}
}

// isValidated reports whether a node has the condition that proofs ask for.
func isValidated(node content) bool {
	conditions, _ := nestedMap(node, "status")["conditions"].([]any)
	return slices.ContainsFunc(conditions, func(c any) bool {
		condition, _ := c.(content)
		return condition["type"] == conditionValidated && condition["status"] == "True"
	})
}

// stepCheck lets the containers of a pod that checks a node for drift end, all at once. Some find something.
func (r *Run) stepCheck(p *corev1.Pod, random *rand.Rand) {
	kubelet.Create(p)
	for i := kubelet.Next(p); i >= 0; i = kubelet.Next(p) {
		if i < len(p.Spec.InitContainers) || strings.Contains(p.Spec.Containers[i-len(p.Spec.InitContainers)].Name, "-preflight-") { // a package that never ran
			m := pack.Message{Mode: pack.ModePreflight, Outcome: pack.Succeeded, Package: "p", Preflight: r.newAnswer(random)}
			kubelet.End(p, i, 0, string(m.Encode()), r.now)
			continue
		}
		found := &pack.Drift{}
		if !r.isQuiet && random.IntN(3) == 0 {
			found.Checks = []pack.Mode{[]pack.Mode{pack.ModeApplyCheck, pack.ModeConfigCheck, pack.ModePostInterruptCheck}[random.IntN(3)]}
		}
		m := pack.Message{Mode: pack.ModeDrift, Outcome: pack.Succeeded, Package: "p", Drift: found}
		kubelet.End(p, i, 0, string(m.Encode()), r.now)
	}
	r.writeStatus(Pods, p)
}

// checkNewCheck: a node is checked for drift only while nobody works on it or holds it, one of a Skyhook at a time.
func (r *Run) checkNewCheck(pod content) {
	skyhook := meta(pod).GetLabels()[v1alpha1.LabelName]
	uid := r.uidOf(nodeKey(nestedString(pod, "spec", "nodeName")))
	for _, of := range []map[string]bool{r.truth.admitted[uid], r.truth.held[uid]} {
		for by, is := range of {
			if is && r.hasSkyhook(by) {
				r.violate("drift checks disturb nobody", "%s checks node %s, on which %s works", skyhook, r.nameOf(uid), by)
			}
		}
	}
	var running []string
	for _, key := range r.server.keys(Pods) {
		c := r.server.objects[Pods.Kind][key]
		phase, node := nestedString(c, "status", "phase"), nestedString(c, "spec", "nodeName")
		isOther := key.Name != meta(pod).GetName() && meta(c).GetLabels()[v1alpha1.LabelDrift] != "" && meta(c).GetLabels()[v1alpha1.LabelName] == skyhook
		isOver := phase == string(corev1.PodSucceeded) || phase == string(corev1.PodFailed) || meta(c).GetDeletionTimestamp() != nil
		if isOther && !isOver && r.isOlderThan(node, meta(c).GetCreationTimestamp()) && isOfOwner(c, pod) {
			running = append(running, key.Name)
		}
	}
	if len(running) >= plan.MaxChecks {
		r.violate("drift checks disturb nobody", "%s checks node %s, and %s too", skyhook, r.nameOf(uid), strings.Join(running, ", "))
	}
}

func (r *Run) hasSkyhook(name string) bool {
	return r.server.objects[Skyhooks.Kind][client.ObjectKey{Name: name}] != nil
}

// isOfOwner reports whether two pods have the same owner: a Skyhook that was created again counts its own.
func isOfOwner(a, b content) bool {
	one, two := metav1.GetControllerOfNoCopy(meta(a)), metav1.GetControllerOfNoCopy(meta(b))
	return one != nil && two != nil && one.UID == two.UID
}

// isOlderThan reports whether a node existed at a time: a pod of one that was replaced meanwhile counts nowhere.
func (r *Run) isOlderThan(node string, at metav1.Time) bool {
	c := r.server.objects[Nodes.Kind][nodeKey(node)]
	return c != nil && meta(c).GetCreationTimestamp().Time.Before(at.Time)
}

// checkNote: what is noted of a check changes nothing else on the node, unless it is repaired.
func (r *Run) checkNote(w Write) {
	annotations := nestedMap(w.Patch, "metadata", "annotations")
	for key, value := range annotations {
		skyhook, isNote := strings.CutPrefix(key, v1alpha1.PrefixDrift)
		s := r.server.objects[Skyhooks.Kind][client.ObjectKey{Name: skyhook}]
		text, _ := value.(string)
		if !isNote || text == "" || nestedMap(s, "spec", "drift")["mode"] != "Report" || strings.Contains(text, `"repair":`) {
			continue
		}
		for _, prefix := range []string{v1alpha1.PrefixNodeState, v1alpha1.PrefixCordon} {
			if _, isChanged := annotations[prefix+skyhook]; isChanged {
				r.violate("drift checks change nothing", "noting a check of node %s changes %s", w.Name, prefix+skyhook)
			}
		}
	}
}

// seesProof reports whether nodes of a Skyhook have to be proven, as it is and as its leader has seen it.
func (r *Run) seesProof(skyhook string) bool {
	key := client.ObjectKey{Name: skyhook}
	c := r.server.objects[Skyhooks.Kind][key]
	seen, isSeen := r.leader.caches[0].watchedOf(Skyhooks).objects[key].(*v1alpha1.Skyhook)
	return c != nil && meta(c).GetDeletionTimestamp() == nil && nestedMap(c, "spec", "proof") != nil &&
		isSeen && seen.Spec.Proof != nil && seen.DeletionTimestamp == nil && seen.UID == meta(c).GetUID()
}

// checkRelease: a node on which work succeeded is not given back before it is proven.
func (r *Run) checkRelease(w Write, skyhook string, hasFailed bool) {
	labels, _ := nestedMap(w.Before, "metadata", "labels")["pool"].(string)
	if hasFailed || labels != "gpu" || !r.seesProof(skyhook) || isValidated(w.Before) {
		return
	}
	r.violate("no release before proof", "%s gives node %s back, which is not proven", skyhook, w.Name)
}

// forgetRollbacks forgets that a node went back: a person changed it, perhaps so that its packages are tried again.
func (r *Run) forgetRollbacks(uid string) {
	maps.DeleteFunc(r.truth.wentBack, func(key string, _ int64) bool { return strings.HasPrefix(key, uid+" ") })
}

// checkRollback: a node goes back once from the packages of a generation, until a person changes something there.
func (r *Run) checkRollback(w Write, skyhook, of string) {
	c := r.server.objects[Skyhooks.Kind][client.ObjectKey{Name: skyhook}]
	if c == nil {
		return
	}
	key := fmt.Sprint(meta(w.After).GetUID(), " ", meta(c).GetUID(), " ", of)
	if r.truth.wentBack[key] == meta(c).GetGeneration() {
		r.violate("a node goes back once", "node %s goes back from %s of %s again in generation %d", w.Name, of, skyhook, meta(c).GetGeneration())
	}
	r.truth.wentBack[key] = meta(c).GetGeneration()
}
