// SPDX-FileCopyrightText: The Skyhook authors
// SPDX-License-Identifier: Apache-2.0

package v1alpha1

// Group is the API group, and the domain of our own annotations.
const Group = "operator.kairos.io"

// Finalizers.
const (
	FinalizerNodeOp = Group + "/nodeop"
	// FinalizerReboot was put on NodeOps by kairos-operator; it is only ever removed.
	FinalizerReboot = "nodeop-reboot.kairos.io/clusterrolebinding"
)

// DefaultCompartment is the name of the compartment for nodes that no other selects.
const DefaultCompartment = "__default__"

// Annotations on a node.
const (
	AnnotationCordonedBy = Group + "/cordoned-by" // CordonedBy of the NodeOp that holds a cordon
	PrefixRecord         = Group + "/record-"     // 12 hexadecimal digits of the NodeOp's UID follow: what we know of the node
)

// Labels and annotations on jobs, pods and NodeOps of ours.
const (
	LabelNodeOp           = "kairos.io/nodeop"
	LabelNode             = "kairos.io/node"
	LabelReboot           = "kairos.io/reboot"    // "true" on the pod that reboots
	LabelPreflight        = "kairos.io/preflight" // "true" on the pod that checks
	LabelManagedBy        = "app.kubernetes.io/managed-by"
	ManagedByUpgrade      = "nodeopupgrade-controller" // value of LabelManagedBy
	LabelUpgrade          = "nodeopupgrade.kairos.io/name"
	AnnotationRebootState = "kairos.io/reboot-state" // on the pod that reboots
)

// LabelManaged is the label of nodes that run Kairos; "false", set by a person, opts out.
const LabelManaged = "kairos.io/managed"

// Keys of the pods that look whether a node runs Kairos, and what is kept of that on the node.
const (
	LabelApp         = "app"
	AppLabeler       = "kairos-node-labeler" // value of LabelApp
	LabelLabelerNode = "node"
	AnnotationLooked = Group + "/looked-at" // on a node: the boot id it had, and "kairos" or "other"
)

// Conditions of a NodeOp and of a NodeOpUpgrade.
const (
	ConditionAccepted    = "Accepted"    // the spec can be carried out
	ConditionProgressing = "Progressing" // work is under way or can start
	ConditionReady       = "Ready"       // finished on every selected node, without a failure
)

// Reasons of conditions.
const (
	ReasonAccepted    = "Accepted"
	ReasonInvalidSpec = "InvalidSpec"
	ReasonCompleted   = "Completed"
	ReasonFailed      = "Failed"
	ReasonRunning     = "Running"
	ReasonWaiting     = "Waiting"
	ReasonSuspended   = "Suspended"
	ReasonNoNodes     = "NoNodes"
)

// CordonedBy is the value of AnnotationCordonedBy.
func CordonedBy(o *NodeOp) string { return o.Namespace + "/" + o.Name + "@" + string(o.UID) }
