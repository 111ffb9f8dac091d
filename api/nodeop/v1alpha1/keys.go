// SPDX-FileCopyrightText: The Skyhook authors
// SPDX-License-Identifier: Apache-2.0

package v1alpha1

// Group is the API group, and the domain of the annotations that this project defines.
const Group = "operator.kairos.io"

// Finalizers.
const (
	FinalizerNodeOp = Group + "/nodeop"
	// FinalizerReboot was set by kairos-operator. It is only removed.
	FinalizerReboot = "nodeop-reboot.kairos.io/clusterrolebinding"
)

// DefaultCompartment is the compartment of nodes that no other selects.
const DefaultCompartment = "__default__"

// Annotations on a node.
const (
	AnnotationCordonedBy = Group + "/cordoned-by" // CordonedBy of the NodeOp that holds a cordon
	PrefixRecord         = Group + "/record-"     // 12 hexadecimal digits of the NodeOp's UID follow: what we know of the node
)

// Labels and annotations on the Jobs, pods and NodeOps that the operator creates.
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

// Labels of Kairos probes, the pods that detect whether a node runs Kairos, and the annotation with their result.
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
