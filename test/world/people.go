// SPDX-FileCopyrightText: The Skyhook authors
// SPDX-License-Identifier: Apache-2.0

package world

import (
	"fmt"
	"maps"
	"math/rand/v2"
	"reflect"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/skyhook-k8s/skyhook/api/skyhook/v1alpha1"
	"github.com/skyhook-k8s/skyhook/internal/node"
)

// pick returns one of the objects of a kind.
func (r *Run) pick(k Kind, random *rand.Rand) (client.ObjectKey, bool) {
	keys := r.server.keys(k)
	if len(keys) == 0 {
		return client.ObjectKey{}, false
	}
	return keys[random.IntN(len(keys))], true
}

// changeAsUser changes an object as kubectl does, without a version.
func (r *Run) changeAsUser(k Kind, key client.ObjectKey, what string, edit func(content)) {
	_, _, err := r.server.change(k, key, "", func(c content) error {
		before := runtime.DeepCopyJSON(nestedMap(c, "spec"))
		if edit(c); k == Skyhooks && !reflect.DeepEqual(before, nestedMap(c, "spec")) {
			r.specs[key.Name] = before
		}
		unset(c, "metadata", "resourceVersion")
		return nil
	})
	if k == Nodes {
		r.forgetRollbacks(r.uidOf(key))
	}
	r.tracef("%s %s: %s: %v", k.Kind, key.Name, what, errText(err))
}

func unset(c content, path ...string) {
	for _, key := range path[:len(path)-1] {
		next, ok := c[key].(map[string]any)
		if !ok {
			return
		}
		c = next
	}
	delete(c, path[len(path)-1])
}

// nestedMap is a map inside an object, to be read only; nil when it is missing.
func nestedMap(c content, path ...string) content {
	for _, key := range path {
		c, _ = c[key].(map[string]any)
	}
	return c
}

// part is a map inside an object; it is made when it is missing.
func part(c content, path ...string) content {
	for _, key := range path {
		next, ok := c[key].(map[string]any)
		if !ok {
			next = content{}
			c[key] = next
		}
		c = next
	}
	return c
}

func (r *Run) editSpec(random *rand.Rand) {
	key, ok := r.pick(Skyhooks, random)
	if !ok {
		r.createAsUser(Skyhooks, newSkyhook("base", random, r.hasPolicy()))
		return
	}
	r.changeAsUser(Skyhooks, key, "edited", func(c content) {
		if random.IntN(2) == 0 { // one package only
			packages := part(c, "spec", "packages")
			for _, name := range slices.Sorted(maps.Keys(packages)) {
				part(packages, name, "configMap")["a"] = fmt.Sprint(random.IntN(5))
				break
			}
			return
		}
		spec := newSkyhookSpec(random)
		for _, kept := range []string{"deploymentPolicy", "interruptionBudget"} {
			if value, found := part(c, "spec")[kept]; found {
				spec[kept] = value
			}
		}
		c["spec"] = runtime.DeepCopyJSON(spec)
	})
}

// toggles are fields of a Skyhook's spec with what they may be; a field below another one changes only where that is there.
var toggles = []struct {
	path   string
	values []any
}{
	{"serial", []any{true, false}},
	{"runtimeRequired", []any{true, true, false}},
	{"shareReboots", []any{true, false}},
	{"resetBatchStateOnCompletion", []any{true, false}},
	{"drainConfig.wait", []any{"BeforeCordon", "AfterCordon"}},
	{"drainConfig.order", []any{"ByPriority", "Together"}},
	{"rollback.scope", []any{"Node", "Rollout"}},
	{"drift.mode", []any{"Report", "Repair"}},
	{"proof.onTimeout", []any{"Hold", "Release", "Rollback"}},
	{"proof.timeout", []any{"0s", "1m", "5m"}},
	{"nodeMarks.marks", []any{
		[]any{}, []any{"Conditions"}, []any{"DoNotDisrupt", "ExcludeFromLoadBalancers"}, []any{"Conditions", "Description", "PreferNoSchedule"},
	}},
	{"nodeMarks.labels", []any{content{}, content{setLabel: "paused"}, content{setLabel: "stopped"}}},
}

func (r *Run) toggle(random *rand.Rand) {
	key, ok := r.pick(Skyhooks, random)
	if !ok {
		return
	}
	of := toggles[random.IntN(len(toggles))]
	value := of.values[random.IntN(len(of.values))]
	r.changeAsUser(Skyhooks, key, fmt.Sprintf("%s: %v", of.path, value), func(c content) {
		parent, field, isBelow := strings.Cut(of.path, ".")
		spec := part(c, "spec")
		if !isBelow {
			spec[parent] = value
		} else if below, isThere := spec[parent].(content); isThere {
			below[field] = value
		}
	})
}

// upgrade asks for another version of a package, perhaps one that was there before. Those that depend on it follow.
func (r *Run) upgrade(random *rand.Rand) {
	key, ok := r.pick(Skyhooks, random)
	if !ok {
		return
	}
	version, together := versions[random.IntN(len(versions))], random.IntN(3) == 0
	r.changeAsUser(Skyhooks, key, "asks for version "+version, func(c content) {
		packages := part(c, "spec", "packages")
		names := slices.Sorted(maps.Keys(packages))
		if together {
			part(c, "spec", "rollback")["scope"] = "Rollout"
		}
		if len(names) == 0 {
			return
		}
		name := names[random.IntN(len(names))]
		part(packages, name)["version"] = version
		for _, other := range names {
			if on := nestedMap(packages, other, "dependsOn"); on[name] != nil {
				on[name] = version
			}
		}
	})
}

func (r *Run) undo(random *rand.Rand) {
	if key, ok := r.pick(Skyhooks, random); ok && r.specs[key.Name] != nil {
		before := r.specs[key.Name]
		r.changeAsUser(Skyhooks, key, "taken back", func(c content) { c["spec"] = before })
	}
}

func (r *Run) pause(random *rand.Rand) {
	if key, ok := r.pick(Skyhooks, random); ok {
		which := []string{v1alpha1.AnnotationPause, v1alpha1.AnnotationDisable}[random.IntN(2)]
		value := fmt.Sprint(random.IntN(2) == 0)
		r.changeAsUser(Skyhooks, key, which+"="+value, func(c content) { part(c, "metadata", "annotations")[which] = value })
	}
}

// deleteOne deletes one of the objects of a kind.
func deleteOne(k Kind) func(*Run, *rand.Rand) {
	return func(r *Run, random *rand.Rand) {
		if key, ok := r.pick(k, random); ok {
			r.deleteAsUser(k, key)
		}
	}
}

// deleteBlocked deletes a Skyhook, and something keeps it from going: mostly, packages are to be uninstalled.
func (r *Run) deleteBlocked(random *rand.Rand) {
	key, ok := r.pick(Skyhooks, random)
	on, hasNode := r.pick(Nodes, random)
	if !ok || !hasNode {
		return
	}
	which := random.IntN(7)
	r.changeAsUser(Skyhooks, key, "to be uninstalled", func(c content) {
		for _, name := range slices.Sorted(maps.Keys(part(c, "spec", "packages"))) {
			part(c, "spec", "packages", name, "uninstall")["enabled"] = random.IntN(4) > 0
		}
		if which < 2 {
			part(c, "metadata", "annotations")[[]string{v1alpha1.AnnotationPause, v1alpha1.AnnotationDisable}[which]] = "true"
		}
	})
	switch which {
	case 2:
		r.changeAsUser(Nodes, on, "ignored", func(c content) { part(c, "metadata", "labels")[v1alpha1.LabelIgnore] = "true" })
	case 3:
		r.changeAsUser(Nodes, on, "tainted", func(c content) {
			taints, _ := part(c, "spec")["taints"].([]any)
			part(c, "spec")["taints"] = append(taints, content{"key": foreignTaint, "effect": "NoSchedule"})
		})
	case 4:
		r.annotate(on, v1alpha1.PrefixNodeState+key.Name, "{")
	case 5:
		r.refusePods(random)
	case 6:
		deleteOne(Policies)(r, random)
	}
	r.deleteAsUser(Skyhooks, key)
}

// foreignTaint is the key of a taint that nothing tolerates.
const foreignTaint = "example.com/dedicated"

func (r *Run) deleteAsUser(k Kind, key client.ObjectKey) {
	_, _, err := r.server.delete(k, key, metav1.DeleteOptions{})
	r.tracef("%s %s: deleted: %v", k.Kind, key.Name, errText(err))
}

func (r *Run) editPolicy(random *rand.Rand) {
	if key, ok := r.pick(Policies, random); ok {
		count := int64(random.IntN(3))
		r.changeAsUser(Policies, key, fmt.Sprintf("budget %d", count), func(c content) { part(c, "spec", "default", "budget")["count"] = max(1, count) })
	}
}

func (r *Run) changeScope(random *rand.Rand) {
	if key, ok := r.pick(Policies, random); ok && random.IntN(2) == 0 {
		scope := []string{"Skyhook", "Policy"}[random.IntN(2)]
		r.changeAsUser(Policies, key, "scope "+scope, func(c content) { part(c, "spec")["scope"] = scope })
		return
	}
	key, ok := r.pick(Skyhooks, random)
	if !ok {
		return
	}
	r.changeAsUser(Skyhooks, key, "policy dropped or named", func(c content) {
		spec := part(c, "spec")
		if _, named := spec["deploymentPolicy"]; named || !r.hasPolicy() {
			delete(spec, "deploymentPolicy")
			spec["interruptionBudget"] = content{"count": int64(1)}
			return
		}
		delete(spec, "interruptionBudget")
		spec["deploymentPolicy"] = "policy"
	})
}

func (r *Run) createNodeOp(random *rand.Rand) {
	r.createAsUser(NodeOps, newNodeOp(fmt.Sprintf("op%d", random.IntN(3)), random, r.hasPolicy()))
}

// quarantined is the label of NVSentinel.
const quarantined = "dgxc.nvidia.com/nvsentinel-state"

// cordon does what kubectl cordon and kubectl uncordon do: nothing when the node is so already. NVSentinel sets its label, too.
func (r *Run) cordon(random *rand.Rand) {
	key, ok := r.pick(Nodes, random)
	if !ok {
		return
	}
	want := random.IntN(2) == 0
	isCordoned, _ := nestedMap(r.server.objects[Nodes.Kind][key], "spec")["unschedulable"].(bool)
	switch {
	case want == isCordoned:
	case want:
		r.changeAsUser(Nodes, key, "cordoned", func(c content) {
			part(c, "spec")["unschedulable"] = true
			part(c, "metadata", "labels")[[]string{quarantined, "other"}[random.IntN(2)]] = "quarantined"
		})
		r.noteCordon(key)
	default:
		r.uncordon(key)
	}
}

func (r *Run) uncordon(key client.ObjectKey) {
	r.changeAsUser(Nodes, key, "uncordoned", func(c content) {
		delete(part(c, "spec"), "unschedulable")
		delete(part(c, "metadata", "labels"), quarantined)
	})
	r.truth.cordoned[r.uidOf(key)] = false
	r.truth.unclear[r.uidOf(key)] = false
}

func (r *Run) relabel(random *rand.Rand) {
	if key, ok := r.pick(Nodes, random); ok {
		pool := []string{"gpu", "other"}[random.IntN(2)]
		r.changeAsUser(Nodes, key, "pool="+pool, func(c content) { part(c, "metadata", "labels")["pool"] = pool })
	}
}

// onNode changes the annotations of a node by an edit of the plugin.
func (r *Run) onNode(key client.ObjectKey, what string, edit func(*node.Node) node.Edit) {
	n := node.Parse(decode(r.server.objects[Nodes.Kind][key], &corev1.Node{}), nil)
	e := edit(n)
	r.changeAsUser(Nodes, key, what, func(c content) {
		all := part(c, "metadata", "annotations")
		for name, value := range e.Annotations {
			if value == nil {
				delete(all, name)
			} else {
				all[name] = *value
			}
		}
	})
}

func (r *Run) resetNode(random *rand.Rand) {
	if key, ok := r.pick(Nodes, random); ok {
		name := []string{"base", "extra"}[random.IntN(2)]
		r.onNode(key, "reset for "+name, func(n *node.Node) node.Edit { return n.Restart(name) })
		r.truth.forgetAdmission(r.uidOf(key), name)
	}
}

func (r *Run) uidOf(key client.ObjectKey) string {
	return string(meta(r.server.objects[Nodes.Kind][key]).GetUID())
}

func (r *Run) rerun(random *rand.Rand) {
	key, ok := r.pick(Nodes, random)
	if !ok {
		return
	}
	skyhook := []string{"base", "base", "extra"}[random.IntN(3)]
	r.onNode(key, "a package of "+skyhook+" run again", func(n *node.Node) node.Edit {
		state := n.Skyhook(skyhook).State
		if len(state) == 0 {
			return node.Edit{}
		}
		entry := state[slices.Sorted(maps.Keys(state))[random.IntN(len(state))]]
		stage := []v1alpha1.Stage{"", v1alpha1.StageConfig, v1alpha1.StageApply}[random.IntN(3)]
		e, err := n.Rerun(skyhook, entry.Name, entry.Version, stage)
		if random.IntN(4) == 0 {
			e, err = n.Replace(skyhook, entry.Name, entry.Version)
		} else if stage == "" && len(state) == 1 { // nothing is left of the record
			r.truth.forgetAdmission(n.UID, skyhook)
		}
		if err != nil {
			return node.Edit{}
		}
		return e
	})
}

func (r *Run) replaceNode(random *rand.Rand) {
	if key, ok := r.pick(Nodes, random); ok {
		r.replace(key, random)
	}
}

func (r *Run) replaceAll(random *rand.Rand) {
	for _, key := range r.server.keys(Nodes) {
		r.replace(key, random)
	}
}

// replace deletes a node with its pods, and mostly creates another one of its name.
func (r *Run) replace(key client.ObjectKey, random *rand.Rand) {
	if len(r.server.keys(Nodes)) > 1 || random.IntN(2) == 0 {
		r.deleteAsUser(Nodes, key)
		for _, pod := range r.server.keys(Pods) {
			c := r.server.objects[Pods.Kind][pod]
			if nestedString(c, "spec", "nodeName") == key.Name {
				r.server.remove(Pods, keyOf(c)) // as the garbage collector of pods does
			}
		}
	}
	if random.IntN(3) > 0 && r.server.objects[Nodes.Kind][key] == nil {
		r.addNode(key.Name)
		r.tracef("Node %s: created again", key.Name)
	}
}

// onHost lets something happen to the host of a node.
func onHost(happen func(*Run, *host, *rand.Rand)) func(*Run, *rand.Rand) {
	return func(r *Run, random *rand.Rand) {
		if key, ok := r.pick(Nodes, random); ok {
			r.tracef("on node %s", key.Name)
			happen(r, r.host(key.Name), random)
		}
	}
}

func (r *Run) rebootNode(h *host, random *rand.Rand) {
	if h.downFor >= 0 {
		h.boots++
		h.downFor, h.silentFor = 1+random.IntN(3), random.IntN(4)
	}
}

func (r *Run) stopNode(h *host, random *rand.Rand) {
	h.boots++
	h.downFor = -1
	if random.IntN(2) == 0 {
		h.downFor = 5 + random.IntN(15)
	}
}

func (r *Run) changeLeader(random *rand.Rand) {
	r.truth.nextLeader, r.truth.isKilled = new(time.Duration(0)), random.IntN(2) == 0
}

func (r *Run) changeLeaderClock(random *rand.Rand) {
	offset := time.Duration(random.IntN(8*3600)-4*3600) * time.Second
	r.truth.nextLeader = &offset
}

// loseRequest lets a few of the next requests fail in a way that another attempt may not.
func (r *Run) loseRequest(random *rand.Rand) {
	kind := random.IntN(3)
	r.refusals = append(r.refusals, refusal{until: r.turn + 3, left: 1 + random.IntN(3), matches: Request.IsWrite, answer: func(q Request) error {
		isVersioned := q.Verb == "patch" || q.Verb == "update" // nothing else conflicts by chance
		switch {
		case kind == 0, kind == 2 && !isVersioned:
			return apierrors.NewInternalError(fmt.Errorf("etcdserver: request timed out"))
		case kind == 1:
			return apierrors.NewTooManyRequests("the server is busy", 1)
		}
		return apierrors.NewConflict(q.Kind.resource(), q.Name, fmt.Errorf("the object has been modified"))
	}})
}

func (r *Run) refuseEvictions(random *rand.Rand) {
	r.refusals = append(r.refusals, refusal{until: r.turn + 2 + random.IntN(15), left: 1000, matches: func(q Request) bool { return q.Subresource == "eviction" },
		answer: func(Request) error {
			return apierrors.NewTooManyRequests("Cannot evict pod as it would violate the pod's disruption budget.", 10)
		}})
}

// refusePods is a webhook that refuses pods of the operator; or their dry runs only, which some webhooks cannot serve.
func (r *Run) refusePods(random *rand.Rand) {
	all := random.IntN(3) > 0
	r.refusals = append(r.refusals, refusal{until: r.turn + 3 + random.IntN(20), left: 1000,
		matches: func(q Request) bool {
			return q.Kind == Pods && q.Verb == "create" && q.Subresource == "" && (all || q.DryRun)
		},
		answer: func(q Request) error {
			return apierrors.NewForbidden(q.Kind.resource(), q.Name, fmt.Errorf("admission webhook denied the request"))
		}})
}

// refuseByRule is an admission policy or a quota: it refuses requests of one kind, of all nodes or for one.
func (r *Run) refuseByRule(random *rand.Rand) {
	rules := []func(Request) bool{
		func(q Request) bool { return q.Kind == Pods && q.Verb == "create" && q.Subresource == "" },
		func(q Request) bool { return q.Kind == Pods && q.Verb == "delete" },
		func(q Request) bool { return q.Kind == ConfigMaps },
		func(q Request) bool { return q.Kind == Nodes && q.Subresource == "" },
		func(q Request) bool { return q.Kind == Nodes && q.Subresource == "status" },
		func(q Request) bool { return q.Kind.Ours && q.Subresource == "status" },
		func(q Request) bool { return q.Subresource == "eviction" },
		func(q Request) bool { return q.Kind == Jobs },
	}
	rule, code := rules[random.IntN(len(rules))], random.IntN(3)
	only, isForOne := r.pick(Nodes, random)
	isForOne = isForOne && random.IntN(2) == 0
	r.refusals = append(r.refusals, refusal{until: r.turn + 3 + random.IntN(20), left: 1000,
		matches: func(q Request) bool {
			return q.IsWrite() && rule(q) && (!isForOne || strings.Contains(q.Name, only.Name))
		},
		answer: func(q Request) error {
			switch code {
			case 0:
				return apierrors.NewForbidden(q.Kind.resource(), q.Name, fmt.Errorf("exceeded quota"))
			case 1:
				return apierrors.NewBadRequest("admission webhook denied the request")
			}
			return apierrors.NewInvalid(q.Kind.GroupKind(), q.Name, nil)
		}})
}
