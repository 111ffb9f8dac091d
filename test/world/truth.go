// SPDX-FileCopyrightText: The Skyhook authors
// SPDX-License-Identifier: Apache-2.0

package world

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	opv1 "github.com/skyhook-k8s/skyhook/api/nodeop/v1alpha1"
	"github.com/skyhook-k8s/skyhook/api/skyhook/v1alpha1"
	"github.com/skyhook-k8s/skyhook/internal/skyhook/podstate"
)

// truth is what really happened: what the operator wrote, not what annotations say since.
type truth struct {
	admitted   map[string]map[string]bool // by UID of the node, by Skyhook: by the operator's last write, and not reset since
	held       map[string]map[string]bool // likewise: the operator's cordon
	claimed    map[string]map[string]bool // likewise: by its record, after an edit that may have reset it
	gaveUp     map[string]map[string]bool // a stage failed for good in this admission: the seat may be free
	admission  map[string]int             // number of the latest, by UID of the node and Skyhook
	voided     map[string]int             // likewise: of the latest that a reset ended
	cordoned   map[string]bool            // by an administrator, while it was schedulable; by UID of the node
	unclear    map[string]bool            // likewise, but while the operator held the node: it cannot tell whose the cordon is
	interrupts map[string]string          // by id of an interrupt: the node it ran on
	seats      map[string][]string        // by Skyhook: the nodes, by UID, that it had at its last write
	nodeSince  map[string]int             // turn in which a node was created, by UID
	prepulled  map[string]bool            // by UID of the node and Skyhook: images were pulled since its last admission
	limits     map[string]int             // by Skyhook: its budget when the operator last wrote its status
	pins       map[pinKey]string          // digests that were recorded before this pass
	pulled     map[string]bool            // images with their digests, as nodes pulled them
	wentBack   map[string]int64           // the generation in which a node went back, by UIDs of node and Skyhook, and packages
	rollbacks  map[string]string          // by UID of the node and Skyhook: the packages from which its record says that it went back
	marks      foreignMarks
	answers    neighbour
	nextLeader *time.Duration // another operator leads from the next pass on, with this offset of its clock

	isKilled  bool // the leader, in this pass
	requests  int  // of this pass
	refused   bool // something in this pass
	writes    int  // that changed something in this pass
	unchanged []string

	idlePasses int // in a row, that wrote nothing and after which the next one was due at once
}

func newTruth() truth {
	return truth{
		admitted: map[string]map[string]bool{}, claimed: map[string]map[string]bool{}, held: map[string]map[string]bool{}, gaveUp: map[string]map[string]bool{},
		cordoned: map[string]bool{}, unclear: map[string]bool{}, interrupts: map[string]string{}, seats: map[string][]string{}, admission: map[string]int{}, voided: map[string]int{},
		marks:    foreignMarks{values: map[string]string{}, unclear: map[string]bool{}},
		answers:  neighbour{yes: map[string]bool{}},
		wentBack: map[string]int64{}, rollbacks: map[string]string{},
		pulled: map[string]bool{}, prepulled: map[string]bool{}, nodeSince: map[string]int{}, limits: map[string]int{},
	}
}

func (t *truth) beginPass() { t.requests, t.refused, t.writes, t.unchanged = 0, false, 0, nil }
func (t *truth) forgetAdmission(uid, skyhook string) {
	set(t.admitted, uid, skyhook, false)
	t.voided[uid+skyhook] = t.admission[uid+skyhook]
}

func set(m map[string]map[string]bool, uid, skyhook string, value bool) {
	if m[uid] == nil {
		m[uid] = map[string]bool{}
	}
	m[uid][skyhook] = value
}

// onWrite notes what the operator wrote, and checks what must be true at every moment.
func (r *Run) onWrite(w Write) {
	r.tracef("request  %s%s", w.Request, w.describePatch())
	isSame := w.Before != nil && w.After != nil && meta(w.Before).GetResourceVersion() == meta(w.After).GetResourceVersion()
	isApplied := w.Kind == ConfigMaps && w.Verb == "patch" // a new leader does not know what an earlier one applied
	if isSame && !isApplied {
		r.truth.unchanged = append(r.truth.unchanged, w.Request.String())
	} else {
		r.truth.writes++
	}
	if w.Kind == Nodes {
		r.onNodeWrite(w)
	}
	if w.Kind == Skyhooks && w.Subresource == "status" {
		r.truth.limits[w.Name] = readLimit(w.After)
		r.checkPins(w)
	}
	if w.Kind != Nodes && w.Subresource == "status" {
		r.checkReasons(w)
	}
	if isRemoval := w.Verb == "delete" || w.Subresource == "eviction"; w.Kind == Pods && isRemoval && w.Before != nil && isProtected(decode(w.Before, &corev1.Pod{})) {
		r.violate("protected pods never die", "the operator removes pod %s, which must not be interrupted", w.Name)
	}
	if w.Kind == Pods && w.Verb == "create" && w.After != nil && w.Subresource == "" {
		r.checkPodImage(w)
		if meta(w.After).GetLabels()[v1alpha1.LabelDrift] != "" {
			r.checkNewCheck(w.After)
		}
		if meta(w.After).GetLabels()[v1alpha1.LabelPreflight] != "" {
			r.checkNewPreflight(w.After)
		}
		if meta(w.After).GetLabels()[v1alpha1.LabelPrepull] != "" {
			r.checkNewPull(w.After)
		}
		r.checkSeats("creating pod " + w.Name)
	}
}

// checkReasons checks the conditions of a status: no reason says the opposite of its condition, and only with the profile Compatible any
// has a second name.
func (r *Run) checkReasons(w Write) {
	status := nestedMap(w.After, "status")
	conditions, _ := status["conditions"].([]any)
	for _, c := range conditions {
		condition := c.(content)
		kind, isSecond := strings.CutPrefix(condition["type"].(string), v1alpha1.Group+"/")
		if condition["status"] == "False" && condition["reason"] == kind || isSecond && nestedMap(status, "profile")["name"] == string(v1alpha1.ProfileRecommended) {
			r.violate("conditions are plain", "%s %s has %v=%v with the reason %v", w.Kind.Kind, w.Name, condition["type"], condition["status"], condition["reason"])
		}
	}
}

// describePatch names what a patch of a node changes.
func (w Write) describePatch() string {
	annotations := nestedMap(w.Patch, "metadata", "annotations")
	if w.Kind != Nodes {
		return ""
	}
	out := ""
	for _, key := range slices.Sorted(maps.Keys(annotations)) {
		text, _ := annotations[key].(string)
		out += fmt.Sprintf("\n          %s=%.700s", key, text)
	}
	if spec := nestedMap(w.Patch, "spec"); spec != nil {
		out += fmt.Sprintf("\n          spec %v", spec)
	}
	return out
}

// onNodeWrite notes admissions and holds that the operator wrote to a node.
func (r *Run) onNodeWrite(w Write) {
	uid := string(meta(w.After).GetUID())
	annotations, _ := nestedMap(w.Patch, "metadata")["annotations"].(map[string]any)
	for key, value := range annotations {
		text, _ := value.(string)
		if skyhook, is := strings.CutPrefix(key, v1alpha1.PrefixCordon); is && text == "" {
			set(r.truth.held, uid, skyhook, false)
		}
		if skyhook, is := strings.CutPrefix(key, v1alpha1.PrefixRecord); is {
			r.noteRecord(w, uid, skyhook, text)
		}
		if strings.HasPrefix(key, opv1.PrefixRecord) {
			r.checkOpReboot(w.Name, text)
		}
	}
	r.checkNote(w)
	was, _ := nestedMap(w.Before, "spec")["unschedulable"].(bool)
	is, _ := nestedMap(w.After, "spec")["unschedulable"].(bool)
	if was && !is && r.truth.cordoned[uid] {
		r.violate("foreign cordons stay", "the operator uncordoned node %s, which an administrator had cordoned", w.Name)
	}
	r.checkSeats("writing to node " + w.Name)
}

// noteRecord reads what matters of a record that the operator wrote.
func (r *Run) noteRecord(w Write, uid, skyhook, text string) {
	var rec struct {
		Skipped, First bool
		Rollback       *struct{ Of string }
		Admitted       bool
		Admission      int
		Held           *struct{}

		FinishedAt *time.Time
		Packages   map[string]struct {
			Attempts int
			FailedAt *time.Time
		}
	}
	if text != "" && json.Unmarshal([]byte(text), &rec) != nil {
		r.violate("records are readable", "the operator wrote %s", text)
		return
	}
	set(r.truth.held, uid, skyhook, rec.Held != nil)
	wasAdmitted := r.truth.admitted[uid][skyhook]
	if rec.Admission > r.truth.admission[uid+skyhook] && rec.Admitted {
		r.checkPulled(w, uid, skyhook, rec.Rollback != nil)
	}
	isVoid := rec.Admission <= r.truth.voided[uid+skyhook] // by a reset; the record may still say so
	set(r.truth.admitted, uid, skyhook, rec.Admitted && !isVoid)
	set(r.truth.claimed, uid, skyhook, rec.Admitted && isVoid)
	gaveUp := r.truth.gaveUp[uid][skyhook] && r.truth.admission[uid+skyhook] == rec.Admission
	r.truth.admission[uid+skyhook] = rec.Admission
	latest := r.now.Add(r.leader.clockOffset + clockTolerance)
	for _, name := range slices.Sorted(maps.Keys(rec.Packages)) {
		p := rec.Packages[name]
		gaveUp = gaveUp || p.Attempts >= finalFailures
		if p.FailedAt != nil && p.FailedAt.After(latest) {
			r.violate("containment", "the operator recorded for %s that %s failed at %s, in the future", skyhook, name, p.FailedAt)
		}
	}
	set(r.truth.gaveUp, uid, skyhook, gaveUp)
	if wasAdmitted && !rec.Admitted && text != "" {
		isPostponed := rec.FinishedAt == nil        // its work is not done, and goes on in another visit
		isEmpty := rec.Rollback != nil && rec.First // a first install that was taken back: nothing is left to prove
		r.checkRelease(w, skyhook, gaveUp || rec.Skipped || isPostponed || isEmpty)
	}
	was := r.truth.rollbacks[uid+skyhook]
	if r.truth.rollbacks[uid+skyhook] = ""; rec.Rollback != nil {
		if r.truth.rollbacks[uid+skyhook] = rec.Rollback.Of; was != rec.Rollback.Of {
			r.checkRollback(w, skyhook, rec.Rollback.Of)
		}
	}
}

// clockTolerance is how far beyond its clock an operator may believe a time.
const clockTolerance = 30 * time.Second

// noteInterrupt notes that an interrupt runs on a host.
func (r *Run) noteInterrupt(p *corev1.Pod, id string) {
	if node, known := r.truth.interrupts[id]; known && node != p.Spec.NodeName {
		r.violate("each interrupt once per id", "interrupt %s runs on %s and on %s", id, node, p.Spec.NodeName)
	}
	r.truth.interrupts[id] = p.Spec.NodeName
}

// podsOf are the nodes, by UID, on which a Skyhook has a pod that may be working, or that may still end as it was told.
func (r *Run) podsOf(skyhook string) map[string]bool {
	out := map[string]bool{}
	for key, c := range r.server.objects[Pods.Kind] {
		owner := metav1.GetControllerOfNoCopy(meta(c))
		isCheck := meta(c).GetLabels()[v1alpha1.LabelPreflight] != "" || meta(c).GetLabels()[v1alpha1.LabelDrift] != ""
		if key.Namespace != Namespace || owner == nil || owner.Kind != Skyhooks.Kind || owner.Name != skyhook || isCheck || hasEndedWell(c) {
			continue
		}
		if n := r.server.objects[Nodes.Kind][nodeKey(nestedString(c, "spec", "nodeName"))]; n != nil {
			out[string(meta(n).GetUID())] = true
		}
	}
	return out
}

// hasEndedWell reports whether every step of a package's pod succeeded: only a container that does nothing is left.
func hasEndedWell(pod content) bool {
	if meta(pod).GetAnnotations()[podstate.AnnotationStages] != "" {
		return nestedString(pod, "status", "phase") == string(corev1.PodSucceeded)
	}
	steps, _ := nestedMap(pod, "spec")["initContainers"].([]any)
	ended, _ := nestedMap(pod, "status")["initContainerStatuses"].([]any)
	if len(ended) < len(steps) {
		return false
	}
	return !slices.ContainsFunc(ended, func(s any) bool {
		terminated, is := nestedMap(s.(content), "state")["terminated"].(content)
		return !is || terminated["exitCode"] != int64(0)
	})
}

// noteCordon notes a cordon by an administrator. Beside a hold, real or forged, nobody can tell whose it is: who uncordons a
// held node and cordons it again before the operator has seen that leaves no trace.
func (r *Run) noteCordon(key client.ObjectKey) {
	uid, names := r.uidOf(key), ourAnnotations(r.server.objects[Nodes.Kind][key])
	isMarked := slices.ContainsFunc(names, func(name string) bool {
		return strings.HasPrefix(name, v1alpha1.PrefixCordon) || name == opv1.AnnotationCordonedBy
	})
	isHeld := slices.Contains(slices.Collect(maps.Values(r.truth.held[uid])), true)
	if isMarked || isHeld {
		r.truth.unclear[uid] = true
	} else {
		r.truth.cordoned[uid] = true
	}
}
