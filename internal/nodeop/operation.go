// SPDX-FileCopyrightText: The Skyhook authors
// SPDX-License-Identifier: Apache-2.0

package nodeop

import (
	"cmp"
	"math"
	"strconv"
	"strings"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"

	"github.com/skyhook-k8s/skyhook/api/nodeop/v1alpha1"
	skyhookv1 "github.com/skyhook-k8s/skyhook/api/skyhook/v1alpha1"
	"github.com/skyhook-k8s/skyhook/internal/node"
	"github.com/skyhook-k8s/skyhook/internal/profile"
	"github.com/skyhook-k8s/skyhook/internal/rollout"
)

// Limits that apply where the spec sets none.
const (
	DefaultPreflightTimeout = 120 * time.Second
	DefaultBackoffLimit     = 6
	ImagePullTimeout        = time.Hour        // of a preflight pod
	MaxRetryDelay           = 10 * time.Minute // between two attempts of a Job
	DeadlineGrace           = 90 * time.Second // after which a Job that missed its own deadline is failed

	DefaultTryTimeout    = time.Hour // of one pod of a Job
	defaultRebootTimeout = 30 * time.Minute
)

// Operation is what the NodeOp object says: its identity, its spec, and the limits that follow from the spec. Every package reads it.
type Operation struct {
	NodeOp *v1alpha1.NodeOp
	Marks  skyhookv1.NodeMarks // of its policy
	Proofs node.Proofs         // likewise

	Owner     rollout.Ref // of its rollout and its holds
	Mark      string      // names this NodeOp in annotations of nodes
	RecordKey string      // the annotation of its record
	IsOrphan  bool        // the NodeOp no longer exists

	TargetsAtStart bool // only the nodes that are selected when it starts belong to it; otherwise also those of later
	RemoveWithTTL  bool // the NodeOp goes after ttlSecondsAfterFinished, too; otherwise only its Jobs and pods
}

// NewOperation reads a NodeOp and its policy, which may be nil.
func NewOperation(o *v1alpha1.NodeOp, p *skyhookv1.DeploymentPolicy) *Operation {
	out := &Operation{NodeOp: o, Marks: node.MarksOf(nil, p), Proofs: node.ProofsOf(nil, p), Owner: Ref(o), Mark: v1alpha1.CordonedBy(o), RecordKey: node.OpRecordKey(string(o.UID))}
	if o.Spec.Profile == skyhookv1.ProfileRecommended {
		out.TargetsAtStart, out.RemoveWithTTL = true, true
		if p == nil {
			out.Marks, out.Proofs = profile.Marks, node.NewProofs(&profile.Proof)
		}
	}
	return out
}

// NewOrphan is the operation of a NodeOp that no longer exists and left a hold behind, so that the hold is released.
func NewOrphan(owner rollout.Ref, now time.Time) *Operation {
	name, uid, _ := strings.Cut(owner.Name, "@")
	o := &v1alpha1.NodeOp{}
	o.Namespace, o.Name, o.UID, o.DeletionTimestamp = owner.Namespace, name, types.UID(uid), &metav1.Time{Time: now}
	out := NewOperation(o, nil)
	out.Owner, out.IsOrphan = owner, true
	return out
}

// Spec returns the spec.
func (op *Operation) Spec() *v1alpha1.NodeOpSpec { return &op.NodeOp.Spec }

// IsDeleting reports whether the NodeOp is being deleted.
func (op *Operation) IsDeleting() bool { return op.NodeOp.DeletionTimestamp != nil }

// IsFinished reports whether the phase is terminal.
func (op *Operation) IsFinished() bool {
	phase := op.NodeOp.Status.Phase
	return phase == v1alpha1.PhaseCompleted || phase == v1alpha1.PhaseFailed
}

// SelectsNodes reports whether further nodes may be started.
func (op *Operation) SelectsNodes() bool { return !op.IsFinished() && !op.IsDeleting() }

// Concurrency is how many nodes run the operation at the same time; 0 for all.
func (op *Operation) Concurrency() int { return int(ptr.Deref(op.Spec().Concurrency, 0)) }

// Reboots reports whether a node reboots after the command.
func (op *Operation) Reboots() bool { return IsTrue(op.Spec().RebootOnSuccess) }

// SharesReboot reports whether the reboot waits for others that owe one on the node. After an upgrade it does not: only the pod of its
// own reboot sees which system came up.
func (op *Operation) SharesReboot() bool {
	return op.Reboots() && IsTrue(op.Spec().ShareReboots) && IsTrue(op.Spec().Cordon) && !op.IsUpgrade()
}

// RebootsAtOnce reports whether the pod that reboots the node waits for the Job by itself.
func (op *Operation) RebootsAtOnce() bool { return op.Reboots() && !op.SharesReboot() }

// IsUpgrade reports whether this NodeOp carries a NodeOpUpgrade out.
func (op *Operation) IsUpgrade() bool {
	owner := metav1.GetControllerOf(op.NodeOp)
	return owner != nil && owner.Kind == UpgradeKind && strings.HasPrefix(owner.APIVersion, v1alpha1.Group+"/")
}

// Owns reports whether a Job or Pod is controlled by this NodeOp.
func (op *Operation) Owns(m metav1.Object) bool {
	owner := metav1.GetControllerOfNoCopy(m)
	return owner != nil && owner.UID == op.NodeOp.UID && owner.UID != ""
}

// RecordOn returns the record of this NodeOp on a node. A record of another node of that name does not count.
func (op *Operation) RecordOn(n *node.Node) (rec node.OpRecord, ok bool) {
	recorded := op.StateOn(n)
	ok = recorded.Problem == "" && recorded.Record.NodeOp == op.Mark && recorded.Record.Node == n.UID
	return recorded.Record, ok
}

// StateOn returns what a node records of this NodeOp, whatever it is. The key of a record has a part of the UID only: one that
// names another NodeOp is not of this one.
func (op *Operation) StateOn(n *node.Node) node.OpState {
	found := n.NodeOpState(op.RecordKey)
	isReadable := found.Problem == "" && found.Record.NodeOp != ""
	if isReadable && found.Record.NodeOp != op.Mark {
		return node.OpState{}
	}
	return found
}

// ProvingSince returns when a node was admitted on which all work of the NodeOp is done and its proof is waited for; nil for others.
func (op *Operation) ProvingSince(n *node.Node) *time.Time {
	if rec, isRecorded := op.RecordOn(n); isRecorded && rec.Admitted && rec.Proving != nil {
		return cmp.Or(rec.At, rec.Proving)
	}
	return nil
}

// Holder names the NodeOp in the marks of nodes.
func (op *Operation) Holder() string { return node.HolderOf(op.Owner, string(op.NodeOp.UID)) }

// IsOn reports whether a node carries an annotation of this NodeOp.
func (op *Operation) IsOn(n *node.Node) bool {
	return op.StateOn(n).Exists || op.IsCordonedByMark(n)
}

// IsCordonedByMark reports whether the predecessor's annotation on a node names this NodeOp.
func (op *Operation) IsCordonedByMark(n *node.Node) bool {
	return n.Annotations[v1alpha1.AnnotationCordonedBy] == op.Mark
}

// ObjectName names the Job (what is empty) or a pod for one admission of a node.
func (op *Operation) ObjectName(what string, n *node.Node, admission int) string {
	parts := []string{op.NodeOp.Name, what, n.Name}
	if what == "" {
		parts = []string{op.NodeOp.Name, n.Name}
	}
	return NewObjectName(strings.Join(parts, "-"), string(op.NodeOp.UID), n.UID, n.Name, what, strconv.Itoa(admission))
}

// PreflightName names the pod of the check.
func (op *Operation) PreflightName(n *node.Node, rec *node.OpRecord) string {
	return op.ObjectName(ContainerPreflight, n, max(1, rec.Admission))
}

// PreflightTimeout is how long the check may take.
func (op *Operation) PreflightTimeout() time.Duration {
	if d := op.Spec().Preflight.ActiveDeadlineSeconds; d != nil && *d > 0 {
		return time.Duration(*d) * time.Second
	}
	return DefaultPreflightTimeout
}

// BackoffLimit is how often a failed attempt is followed by another one.
func (op *Operation) BackoffLimit() int32 {
	if limit := op.Spec().BackoffLimit; limit != nil {
		return *limit
	}
	return DefaultBackoffLimit
}

// ActiveDeadlineSeconds is the deadline of a Job; nil for none. It is at most that of a pod, 68 years: the Job controller
// multiplies it to nanoseconds, which overflow above 292 years, and then fails the Job at once.
func (op *Operation) ActiveDeadlineSeconds() *int64 {
	if d := op.Spec().ActiveDeadlineSeconds; d != nil {
		return new(min(*d, math.MaxInt32))
	}
	return nil
}

// CommandTimeout is the time after which a Job is failed that does not end by itself.
func (op *Operation) CommandTimeout() time.Duration {
	if d := op.ActiveDeadlineSeconds(); d != nil {
		return time.Duration(*d)*time.Second + DeadlineGrace
	}
	tries := time.Duration(min(op.BackoffLimit(), 1000)) + 1
	return tries*(DefaultTryTimeout+MaxRetryDelay) + DeadlineGrace
}

// RebootTimeout is how long a reboot may take.
func (op *Operation) RebootTimeout() time.Duration {
	if d := op.Spec().RebootTimeoutSeconds; d != nil {
		return time.Duration(*d) * time.Second
	}
	return defaultRebootTimeout
}

// IsTrue reports whether an optional field is set to true.
func IsTrue(b *bool) bool { return b != nil && *b }
