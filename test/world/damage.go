// SPDX-FileCopyrightText: The Skyhook authors
// SPDX-License-Identifier: Apache-2.0

package world

import (
	"encoding/json"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	apimeta "k8s.io/apimachinery/pkg/api/meta"
	"sigs.k8s.io/controller-runtime/pkg/client"

	opv1 "github.com/skyhook-k8s/skyhook/api/nodeop/v1alpha1"
	"github.com/skyhook-k8s/skyhook/api/skyhook/v1alpha1"
	"github.com/skyhook-k8s/skyhook/internal/node"
)

// ourAnnotations are the annotations of a node that the operator reads.
func ourAnnotations(c content) []string {
	var out []string
	for key := range meta(c).GetAnnotations() {
		if strings.HasPrefix(key, v1alpha1.Group+"/") || strings.HasPrefix(key, opv1.Group+"/") {
			out = append(out, key)
		}
	}
	slices.Sort(out)
	return out
}

// annotate writes an annotation of a node as a person or a program with that right does.
func (r *Run) annotate(key client.ObjectKey, name, value string) {
	r.changeAsUser(Nodes, key, fmt.Sprintf("annotation %s=%.200s", name, value), func(c content) {
		if value == "" {
			delete(part(c, "metadata", "annotations"), name)
		} else {
			part(c, "metadata", "annotations")[name] = value
		}
	})
	if strings.HasPrefix(name, v1alpha1.PrefixCordon) && value != "" { // a predecessor's holds look like this one
		r.truth.unclear[r.uidOf(key)] = r.truth.unclear[r.uidOf(key)] || r.truth.cordoned[r.uidOf(key)]
		r.truth.cordoned[r.uidOf(key)] = false
	}
	if name == v1alpha1.AnnotationNodeMarks {
		r.blurMarks(key)
	}
	if name == v1alpha1.AnnotationHandover {
		r.truth.answers.isRecordLost = true
	}
	isRecord := strings.HasPrefix(name, v1alpha1.PrefixRecord) || strings.HasPrefix(name, opv1.Group+"/")
	if isRecord && nestedMap(r.server.objects[Nodes.Kind][key], "spec")["unschedulable"] == true { // it said who cordoned the node
		r.truth.unclear[r.uidOf(key)], r.truth.cordoned[r.uidOf(key)] = true, false
	}
	if skyhook, is := strings.CutPrefix(name, v1alpha1.PrefixRecord); is {
		r.truth.forgetAdmission(r.uidOf(key), skyhook)
	}
	if skyhook, is := strings.CutPrefix(name, v1alpha1.PrefixNodeState); is {
		r.truth.forgetAdmission(r.uidOf(key), skyhook)
	}
	for _, prefix := range []string{v1alpha1.PrefixRecord, v1alpha1.PrefixCordon} {
		if skyhook, is := strings.CutPrefix(name, prefix); is && !r.saysHeld(key, skyhook) {
			set(r.truth.held, r.uidOf(key), skyhook, false)
		}
	}
}

// saysHeld reports whether the node still says that a Skyhook holds it, in its record or beside it. Nobody can count a hold of which
// both are lost.
func (r *Run) saysHeld(key client.ObjectKey, skyhook string) bool {
	all := meta(r.server.objects[Nodes.Kind][key]).GetAnnotations()
	var rec struct{ Held *struct{} }
	isRecorded := json.Unmarshal([]byte(all[v1alpha1.PrefixRecord+skyhook]), &rec) == nil && rec.Held != nil
	return isRecorded || all[v1alpha1.PrefixCordon+skyhook] == "true"
}

// damage changes one annotation of a node a little: it is cut, one character changes, it vanishes.
func (r *Run) damage(random *rand.Rand) {
	key, ok := r.pick(Nodes, random)
	if !ok {
		return
	}
	c := r.server.objects[Nodes.Kind][key]
	names := ourAnnotations(c)
	if len(names) == 0 {
		return
	}
	name := names[random.IntN(len(names))]
	value := meta(c).GetAnnotations()[name]
	at := random.IntN(len(value) + 1)
	switch random.IntN(4) {
	case 0:
		value = ""
	case 1:
		value = value[:at]
	case 2:
		value = value[:at] + string(rune('!'+random.IntN(90))) + value[min(at+1, len(value)):]
	default:
		value = value[:at] + value[:at]
	}
	r.annotate(key, name, value)
}

// forge writes an annotation of ours that is well-formed and not true.
func (r *Run) forge(random *rand.Rand) {
	key, ok := r.pick(Nodes, random)
	if !ok {
		return
	}
	c := r.server.objects[Nodes.Kind][key]
	name := []string{"base", "extra", "gone"}[random.IntN(3)]
	future := r.now.Add(time.Duration(random.IntN(100*365*24)) * time.Hour).UTC()
	switch random.IntN(6) {
	case 0: // a record of the future
		r.annotate(key, v1alpha1.PrefixRecord+name, fmt.Sprintf(`{"node":%q,"at":%q,"admitted":true}`, meta(c).GetUID(), future.Format(time.RFC3339)))
	case 1: // the times of the real record in the future
		if value := meta(c).GetAnnotations()[v1alpha1.PrefixRecord+name]; value != "" {
			r.annotate(key, v1alpha1.PrefixRecord+name, strings.ReplaceAll(value, r.now.Format("2006-"), future.Format("2006-")))
		}
	case 2: // the record of another node
		r.copyAnnotations(key, random)
	case 3: // a hold of an owner that does not exist
		r.annotate(key, v1alpha1.PrefixCordon+fmt.Sprintf("nobody-%d", random.IntN(3)), "true")
	case 4: // an entry that the schema of statuses refuses
		n := node.Parse(decode(c, &corev1.Node{}), nil)
		state := maps.Clone(n.Skyhook(name).State)
		for _, entry := range slices.Sorted(maps.Keys(state)) {
			s := state[entry]
			s.Image = strings.Repeat("x", 1100)
			state[entry] = s
			r.annotate(key, v1alpha1.PrefixNodeState+name, node.FormatState(state))
			break
		}
	case 5: // no longer admitted
		if value := meta(c).GetAnnotations()[v1alpha1.PrefixRecord+name]; value != "" {
			r.annotate(key, v1alpha1.PrefixRecord+name, strings.Replace(value, `"admitted":true`, `"admitted":false`, 1))
		}
	}
}

// copyAnnotations copies what stands on one node to another.
func (r *Run) copyAnnotations(to client.ObjectKey, random *rand.Rand) {
	from, _ := r.pick(Nodes, random)
	c := r.server.objects[Nodes.Kind][from]
	for _, name := range ourAnnotations(c) {
		isHold := strings.HasPrefix(name, v1alpha1.PrefixCordon) || strings.HasPrefix(name, opv1.Group)
		if from != to && !isHold {
			r.annotate(to, name, meta(c).GetAnnotations()[name])
		}
	}
}

// writeExtreme edits a Skyhook to something at the limits of what the schema accepts.
func (r *Run) writeExtreme(random *rand.Rand) {
	key, ok := r.pick(Skyhooks, random)
	if !ok {
		return
	}
	env := []any{
		content{"name": "X", "valueFrom": content{}},
		content{"name": "X", "valueFrom": content{"fieldRef": content{"fieldPath": "spec.nothing"}}},
		content{"name": "X", "valueFrom": content{"secretKeyRef": content{"name": "", "key": ""}}},
	}
	kind, many := random.IntN(7), content{}
	r.changeAsUser(Skyhooks, key, fmt.Sprintf("extreme %d", kind), func(c content) {
		packages := part(c, "spec", "packages")
		p := content{"version": "1.0.0", "image": "registry.example/x", "configMap": content{"a": "1"}}
		switch kind {
		case 0:
			packages["root-mount"] = p
		case 1:
			p["configMap"] = content{"a": strings.Repeat("x", 1<<19)}
			packages["large"] = p
		case 2: // as many dependencies as there may be, or as many packages
			for i := range []int{32, 100 - len(packages)}[random.IntN(2)] {
				name := fmt.Sprint("many-", i)
				packages[name] = content{"version": "1.0.0", "image": "registry.example/x", "uninstall": content{"enabled": random.IntN(2) == 0}}
				many[name] = "1.0.0"
			}
			if len(many) == 32 {
				p["dependsOn"], packages["many"] = many, p
			}
		case 3, 4:
			p["env"] = []any{env[random.IntN(len(env))]}
			packages["env"] = p
		default:
			packages[strings.Repeat("a", 43)] = p
		}
	})
}

// repair does what the documentation tells administrators to do about what stays otherwise: it resets nodes whose
// annotations cannot be read or that were given up, and resumes what stopped.
func (r *Run) repair() {
	for _, key := range r.server.keys(Nodes) {
		c := r.server.objects[Nodes.Kind][key]
		for _, name := range ourAnnotations(c) {
			if strings.HasPrefix(name, opv1.PrefixRecord) {
				r.repairOpRecord(key, name)
				continue
			}
			skyhook, isState := strings.CutPrefix(name, v1alpha1.PrefixNodeState)
			if !isState {
				skyhook, _ = strings.CutPrefix(name, v1alpha1.PrefixRecord)
			}
			n := node.Parse(decode(r.server.objects[Nodes.Kind][key], &corev1.Node{}), nil)
			on := n.Skyhook(skyhook)
			if on.Problem != "" || on.RecordUnreadable {
				r.annotate(key, v1alpha1.PrefixRecord+skyhook, "")
				r.annotate(key, v1alpha1.PrefixNodeState+skyhook, "")
			} else if on.Record.Skipped {
				r.onNode(key, "reset for "+skyhook, func(n *node.Node) node.Edit { return n.Restart(skyhook) })
			}
		}
	}
	for _, key := range r.server.keys(Pods) {
		pod := meta(r.server.objects[Pods.Kind][key])
		if h := r.host(nestedString(pod.Object, "spec", "nodeName")); h != nil && h.hung[string(pod.GetUID())] && pod.GetLabels()[v1alpha1.LabelPrepull] != "" {
			r.deleteAsUser(Pods, key)
		}
	}
	for _, key := range r.server.keys(Nodes) {
		r.changeAsUser(Nodes, key, "neither ignored nor tainted", func(c content) {
			delete(part(c, "metadata", "labels"), v1alpha1.LabelIgnore)
			delete(part(c, "metadata", "labels"), quarantined)
			if taints, isTainted := part(c, "spec")["taints"].([]any); isTainted {
				part(c, "spec")["taints"] = slices.DeleteFunc(taints, func(t any) bool { return t.(content)["key"] == foreignTaint })
			}
		})
	}
	for _, key := range r.server.keys(Skyhooks) {
		r.changeAsUser(Skyhooks, key, "resumed", func(c content) {
			all := part(c, "metadata", "annotations")
			delete(all, v1alpha1.AnnotationPause)
			delete(all, v1alpha1.AnnotationDisable)
			all[v1alpha1.AnnotationResume] = "now"
			delete(part(c, "spec"), "runtimeRequired") // its taint keeps off earlier Skyhooks that do not tolerate it, which it waits for
			endReleases(part(c, "spec"), r.config().Profile)
			packages := part(c, "spec", "packages")
			for _, extreme := range []string{"root-mount", "large", "env", strings.Repeat("a", 43), "many"} {
				maps.DeleteFunc(packages, func(name string, _ any) bool { return strings.HasPrefix(name, extreme) })
			}
		})
	}
	if r.isPolicyUsed() && !r.hasPolicy() { // it was deleted before its finalizer was written; its users say that somebody must create it
		r.createAsUser(Policies, newPolicy(r.random("policy")))
	}
	for _, key := range r.server.keys(Nodes) {
		if (r.truth.cordoned[r.uidOf(key)] || r.truth.unclear[r.uidOf(key)]) && (r.hasPolicy() || r.config().Profile == v1alpha1.ProfileRecommended) { // budgets count these nodes, so others may wait for ever
			r.uncordon(key)
		}
	}
	for _, key := range r.server.keys(Policies) {
		r.changeAsUser(Policies, key, "resumed, and needs no approval", func(c content) {
			part(c, "metadata", "annotations")[v1alpha1.AnnotationResume] = "now"
			delete(part(c, "spec", "default"), "approval")
		})
	}
	r.deleteFailedNodeOps()
}

// deleteFailedNodeOps deletes the NodeOps of the policy that failed on a node: that is final, and their other nodes, which may come after
// it, would wait for ever. It reports whether there was one.
func (r *Run) deleteFailedNodeOps() (isAny bool) {
	for _, key := range r.server.keys(NodeOps) {
		o := r.server.objects[NodeOps.Kind][key]
		hasFailed := false
		for _, entry := range nestedMap(o, "status", "nodeStatuses") {
			fields, _ := entry.(content)
			hasFailed = hasFailed || fields["phase"] == "Failed"
		}
		if hasFailed && nestedMap(o, "spec")["deploymentPolicy"] != nil {
			r.deleteAsUser(NodeOps, key)
			isAny = true
		}
	}
	return isAny
}

// resumeStopped resumes the Skyhooks that failures stopped, with their policy, and reports whether there was one.
func (r *Run) resumeStopped() (isAny bool) {
	resume := func(c content) {
		part(c, "metadata", "annotations")[v1alpha1.AnnotationResume] = fmt.Sprint("turn ", r.turn)
	}
	for _, key := range r.server.keys(Skyhooks) {
		s := decode(r.server.objects[Skyhooks.Kind][key], &v1alpha1.Skyhook{})
		if !apimeta.IsStatusConditionTrue(s.Status.Conditions, v1alpha1.ConditionRolloutStopped) {
			continue
		}
		isAny = true
		r.changeAsUser(Skyhooks, key, "resumed", resume)
		for _, policy := range r.server.keys(Policies) {
			r.changeAsUser(Policies, policy, "resumed", resume)
		}
	}
	return isAny
}

// repairOpRecord deletes the record of a NodeOp that cannot be read.
func (r *Run) repairOpRecord(key client.ObjectKey, name string) {
	text := meta(r.server.objects[Nodes.Kind][key]).GetAnnotations()[name]
	if _, err := node.ParseNodeOpRecord(text); err != nil {
		r.annotate(key, name, "")
	}
}
