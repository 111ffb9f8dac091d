// SPDX-FileCopyrightText: The Skyhook authors
// SPDX-License-Identifier: Apache-2.0

package nodeop

import (
	"math"
	"strconv"
	"strings"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/skyhook-k8s/skyhook/api/nodeop/v1alpha1"
	skyhookv1 "github.com/skyhook-k8s/skyhook/api/skyhook/v1alpha1"
	"github.com/skyhook-k8s/skyhook/internal/node"
	"github.com/skyhook-k8s/skyhook/internal/policy"
	"github.com/skyhook-k8s/skyhook/internal/rollout"
)

// Limits that apply where the spec sets none.
const (
	defaultPreflightTimeout = 120 * time.Second
	defaultTryTimeout       = time.Hour // of one pod of a Job
	defaultRebootTimeout    = 30 * time.Minute
	defaultBackoffLimit     = 6
	imagePullTimeout        = time.Hour        // of a preflight pod
	maxRetryDelay           = 10 * time.Minute // between two attempts of a Job
	deadlineGrace           = 90 * time.Second // after which a Job that missed its own deadline is failed
)

// operation is what the NodeOp object says: its identity, its spec, and the limits that follow from the spec. Every stage
// reads it.
type operation struct {
	nodeOp *v1alpha1.NodeOp
	config Config
	marks  skyhookv1.NodeMarks
	proofs node.Proofs

	mark      string // names this NodeOp in annotations of nodes
	recordKey string // the annotation of its record
}

func newOperation(in *Input) *operation {
	o := in.NodeOp
	return &operation{nodeOp: o, config: in.Config, marks: in.Marks, proofs: in.Proofs, mark: v1alpha1.CordonedBy(o), recordKey: node.OpRecordKey(string(o.UID))}
}

// passState is what is known of an operation in one pass only.
type passState struct {
	*operation
	status     *v1alpha1.NodeOpStatus
	now        time.Time
	timing     *rollout.Durations
	refused    node.Refusals
	findings   node.Findings
	usualVisit time.Duration // how long a node usually takes; 0 if unknown
}

func (op *operation) spec() *v1alpha1.NodeOpSpec { return &op.nodeOp.Spec }

func (op *operation) ref() rollout.Ref { return Ref(op.nodeOp) }

func (op *operation) isDeleting() bool { return op.nodeOp.DeletionTimestamp != nil }

// isFinished reports whether the phase is terminal.
func (op *operation) isFinished() bool {
	phase := op.nodeOp.Status.Phase
	return phase == v1alpha1.PhaseCompleted || phase == v1alpha1.PhaseFailed
}

// selectsNodes reports whether further nodes may be started.
func (op *operation) selectsNodes() bool { return !op.isFinished() && !op.isDeleting() }

func (op *operation) reboots() bool { return isTrue(op.spec().RebootOnSuccess) }

// sharesReboot reports whether the reboot waits for others that owe one on the node. After an upgrade it does not: only the pod of its
// own reboot sees which system came up.
func (op *operation) sharesReboot() bool {
	return op.reboots() && isTrue(op.spec().ShareReboots) && isTrue(op.spec().Cordon) && !op.isUpgrade()
}

// rebootsAtOnce reports whether the pod that reboots the node waits for the Job by itself.
func (op *operation) rebootsAtOnce() bool { return op.reboots() && !op.sharesReboot() }

// isUpgrade reports whether this NodeOp carries a NodeOpUpgrade out.
func (op *operation) isUpgrade() bool {
	owner := metav1.GetControllerOf(op.nodeOp)
	return owner != nil && owner.Kind == UpgradeKind && strings.HasPrefix(owner.APIVersion, v1alpha1.Group+"/")
}

// owns reports whether a Job or Pod is controlled by this NodeOp.
func (op *operation) owns(m metav1.Object) bool {
	owner := metav1.GetControllerOfNoCopy(m)
	return owner != nil && owner.UID == op.nodeOp.UID && owner.UID != ""
}

// recordOn returns the record of this NodeOp on a node. A record of another node of that name does not count.
func (op *operation) recordOn(n *node.Node) (rec node.OpRecord, ok bool) {
	recorded := op.stateOn(n)
	ok = recorded.Problem == "" && recorded.Record.NodeOp == op.mark && recorded.Record.Node == n.UID
	return recorded.Record, ok
}

// stateOn returns what a node records of this NodeOp, whatever it is. The key of a record has a part of the UID only: one that
// names another NodeOp is not of this one.
func (op *operation) stateOn(n *node.Node) node.OpState {
	found := n.NodeOpState(op.recordKey)
	isReadable := found.Problem == "" && found.Record.NodeOp != ""
	if isReadable && found.Record.NodeOp != op.mark {
		return node.OpState{}
	}
	return found
}

// isOn reports whether a node carries an annotation of this NodeOp.
func (op *operation) isOn(n *node.Node) bool {
	return op.stateOn(n).Exists || op.isCordonedByMark(n)
}

// isCordonedByMark reports whether the predecessor's annotation on a node names this NodeOp.
func (op *operation) isCordonedByMark(n *node.Node) bool {
	return n.Annotations[v1alpha1.AnnotationCordonedBy] == op.mark
}

// objectName names the Job (what is empty) or a pod for one admission of a node. The same input gives the same name.
func (op *operation) objectName(what string, n *node.Node, admission int) string {
	parts := []string{op.nodeOp.Name, what, n.Name}
	if what == "" {
		parts = []string{op.nodeOp.Name, n.Name}
	}
	return truncateName(strings.Join(parts, "-"), 57) + "-" + nameSuffix(string(op.nodeOp.UID), n.UID, n.Name, what, strconv.Itoa(admission))
}

func (op *operation) preflightName(n *node.Node, rec *node.OpRecord) string {
	return op.objectName(containerPreflight, n, max(1, rec.Admission))
}

func (op *operation) preflightTimeout() time.Duration {
	if d := op.spec().Preflight.ActiveDeadlineSeconds; d != nil && *d > 0 {
		return time.Duration(*d) * time.Second
	}
	return defaultPreflightTimeout
}

func (op *operation) backoffLimit() int32 {
	if limit := op.spec().BackoffLimit; limit != nil {
		return *limit
	}
	return defaultBackoffLimit
}

// activeDeadlineSeconds is the deadline of a Job; nil for none. It is at most that of a pod, 68 years: the Job controller
// multiplies it to nanoseconds, which overflow above 292 years, and then fails the Job at once.
func (op *operation) activeDeadlineSeconds() *int64 {
	if d := op.spec().ActiveDeadlineSeconds; d != nil {
		return new(min(*d, math.MaxInt32))
	}
	return nil
}

// commandTimeout is the time after which a Job is failed that does not end by itself.
func (op *operation) commandTimeout() time.Duration {
	if d := op.activeDeadlineSeconds(); d != nil {
		return time.Duration(*d)*time.Second + deadlineGrace
	}
	tries := time.Duration(min(op.backoffLimit(), 1000)) + 1
	return tries*(defaultTryTimeout+maxRetryDelay) + deadlineGrace
}

func (op *operation) rebootTimeout() time.Duration {
	if d := op.spec().RebootTimeoutSeconds; d != nil {
		return time.Duration(*d) * time.Second
	}
	return defaultRebootTimeout
}

// translateDrain translates the drain options. With a timeout the node is skipped after it, unless onTimeout says otherwise.
func translateDrain(d *v1alpha1.DrainOptions) rollout.Drain {
	out := rollout.Drain{OnTimeout: rollout.DrainWait}
	if d == nil {
		return out
	}
	if d.TimeoutSeconds != nil && *d.TimeoutSeconds > 0 {
		out.Timeout, out.OnTimeout = time.Duration(*d.TimeoutSeconds)*time.Second, rollout.DrainSkip
		if d.OnTimeout != "" {
			out.OnTimeout = rollout.DrainTimeout(d.OnTimeout)
		}
	}
	if isTrue(d.Enabled) {
		out.Delete = isTrue(d.DisableEviction)
		policy.AddPodOptions(&out, &d.DrainPodOptions)
	}
	if d.LoadBalancerDelaySeconds != nil {
		out.LoadBalancerDelay = time.Duration(*d.LoadBalancerDelaySeconds) * time.Second
	}
	return out
}

// isTrue reports whether an optional field is set to true.
func isTrue(b *bool) bool { return b != nil && *b }
