// SPDX-FileCopyrightText: The Skyhook authors
// SPDX-License-Identifier: Apache-2.0

package v1alpha1

// Group is the API group, and the domain of the annotations, labels and taints that this project defines.
const Group = "skyhook.nvidia.com"

// Finalizers.
const (
	FinalizerSkyhook          = Group + "/skyhook"
	FinalizerDeploymentPolicy = Group + "/deploymentpolicy" // while somebody names the policy
)

// Admission policies, and their bindings, that protect the operator from deletion. The one for NodeOps is bound while a
// NodeOp is in progress.
const (
	InUse          = "skyhook-operator-in-use"
	InUseByNodeOps = "skyhook-operator-in-use-by-nodeops"
)

// LabelAggregate on a ClusterRole with the value "true" grants the operator the rights of that role, such as to read the objects
// that proofs and health gates name.
const LabelAggregate = Group + "/aggregate-to-operator"

// NodeNameVariable in the name of an ObjectSelector, or in a string of an object of a handover, is the name of the node.
const NodeNameVariable = "$(NODE_NAME)"

// DefaultCompartment is the compartment of nodes that no other selects.
const DefaultCompartment = "__default__"

// Annotations on a Skyhook. Of the first two only the value "true" counts.
const (
	AnnotationPause   = Group + "/pause"
	AnnotationDisable = Group + "/disable"
	AnnotationVersion = Group + "/version" // of the operator that last wrote
	AnnotationResume  = Group + "/resume"  // on a DeploymentPolicy too: each new value resumes batches that stopped
	// on a NodeOp and a DeploymentPolicy too: who approved which compartment for what, as JSON
	AnnotationApprovals = Group + "/approvals"
)

// AnnotationDoNotInterrupt on a pod protects it from interrupts. Only the value "true" counts. With
// drainConfig.honorDoNotDisrupt AnnotationDoNotDisrupt protects it too.
const AnnotationDoNotInterrupt = Group + "/do-not-interrupt"

// Annotations and labels on a node that concern one Skyhook; its name follows the underscore.
const (
	PrefixNodeState = Group + "/nodeState_" // annotation: the source of truth, a NodeState as JSON
	PrefixRecord    = Group + "/record_"    // annotation: what we need to know beyond the node state
	PrefixStatus    = Group + "/status_"    // annotation and label: Status
	PrefixCordon    = Group + "/cordon_"    // annotation: "true" while the Skyhook holds a cordon
	PrefixVersion   = Group + "/version_"   // annotation: of the operator that last wrote
	PrefixDrift     = Group + "/drift_"     // annotation: when the node was checked, and what had changed
	PrefixAutoTaint = Group + "/autoTaint_" // annotation: "true"; the key of the taint follows, not a Skyhook
)

// Annotations and labels on a node that concern every Skyhook.
const (
	LabelIgnore     = Group + "/ignore" // "true": leave this node alone
	AnnotationKnown = Group + "/known"  // the node is not new to us: it is not tainted on sight any more
	// "true": cordoned when its runtime-required taint was removed, until somebody makes the node schedulable
	AnnotationRuntimeRequiredCordon = Group + "/runtimeRequiredCordon"
	AnnotationNodeMarks             = Group + "/nodeMarks"   // which marks are ours, and whose: JSON
	AnnotationMaintenance           = Group + "/maintenance" // who holds the node, and why: JSON
	// how far the handover to each holder is: JSON. On an object that was created for one: when. LabelHandover is for whom
	AnnotationHandover = Group + "/handover"
	LabelHandover      = AnnotationHandover
)

// Marks of others' domains: what these programs read of a node.
const (
	LabelExcludeBalancers      = "node.kubernetes.io/exclude-from-external-load-balancers" // service controllers
	AnnotationScaleDown        = "cluster-autoscaler.kubernetes.io/scale-down-disabled"    // the cluster autoscaler
	AnnotationDoNotDisrupt     = "karpenter.sh/do-not-disrupt"                             // Karpenter
	TaintMaintenancePlanned    = Group + "/maintenance-planned"                            // the scheduler; ours
	NodeConditionReasonSkyhook = "SkyhookMaintenance"                                      // reason of lifecycle conditions that are ours
)

// Labels and annotations on the pods and ConfigMaps that the operator creates.
const (
	LabelName                = Group + "/name"    // of the Skyhook; on ConfigMaps an annotation too
	LabelPackage             = Group + "/package" // <package>-<version>
	LabelStage               = Group + "/stage"
	LabelNode                = Group + "/node"              // its name, or a hash of a longer one
	LabelGeneration          = Group + "/generation"        // of the Skyhook, at the package's first stage in this admission
	LabelInterrupt           = Group + "/interrupt"         // "True" on interrupt pods
	LabelDrift               = Group + "/drift"             // "True" on pods that check whether a node is as it was left
	LabelPreflight           = Group + "/preflight"         // "True" on pods that look what a node needs before its turn
	LabelPrepull             = Group + "/prepull"           // "True" on pods that pull images before their turn
	LabelNodeMeta            = Group + "/skyhook-node-meta" // Skyhook whose node metadata a ConfigMap holds
	LabelRevisionOf          = Group + "/revision-of"       // Skyhook whose packages a ControllerRevision holds
	AnnotationRevision       = Group + "/revision"          // its number
	AnnotationRevisionKey    = Group + "/revision-key"      // the same for equal sets of packages
	AnnotationImagePins      = Group + "/image-pins"        // digests that nodes pull for a revision, as JSON
	AnnotationPackage        = Group + "/package"           // what a pod runs, as JSON
	AnnotationPackageName    = Group + "/Package.Name"
	AnnotationPackageVersion = Group + "/Package.Version"
	AnnotationNodeName       = Group + "/Node.name"
)

// DefaultRuntimeRequiredTaint is the taint of nodes that wait for their runtime-required Skyhooks.
const DefaultRuntimeRequiredTaint = Group + "=runtime-required:NoSchedule"

// Conditions of a Skyhook. The first five are on every kind. With the profile Compatible a condition
// with a legacy twin is also written under the type LegacyCondition.
const (
	ConditionAccepted    = "Accepted"    // the spec can be carried out
	ConditionProgressing = "Progressing" // work is under way or can start
	ConditionReady       = "Ready"       // every selected node is complete for this generation; has a twin
	ConditionReconciling = "Reconciling" // for kstatus: the verdict is Progressing or Deleting; absent otherwise
	ConditionStalled     = "Stalled"     // for kstatus: the verdict is Failed; absent otherwise

	ConditionTaintNotTolerable        = "TaintNotTolerable"        // has a twin
	ConditionNodesIgnored             = "NodesIgnored"             // has a twin
	ConditionApplyPackage             = "ApplyPackage"             // has a twin
	ConditionDeploymentPolicyNotFound = "DeploymentPolicyNotFound" // has a twin
	ConditionBlocked                  = "Blocked"
	ConditionDrainBlocked             = "DrainBlocked"
	ConditionUninstallInProgress      = "UninstallInProgress"
	ConditionUninstallFailed          = "UninstallFailed"
	ConditionNodeStateMalformed       = "NodeStateMalformed"
	ConditionDeletionBlocked          = "DeletionBlocked"
	ConditionRolloutStopped           = "RolloutStopped"      // too many failures; on a DeploymentPolicy too
	ConditionImagesPinned             = "ImagesPinned"        // with pinImages: every node pulled the recorded digests
	ConditionDrifted                  = "Drifted"             // with drift: nodes are not as their packages left them
	ConditionUnlimited                = "Unlimited"           // packages interrupt many nodes, and no budget limits how many at a time
	ConditionTransition               = Group + "/Transition" // written with the prefix only
)

// Reasons of the condition Ready, one for each Status.
const (
	ReasonNodesConverged = "NodesConverged"
	ReasonProgressing    = "Progressing"
	ReasonBlocked        = "Blocked"
	ReasonErroring       = "Erroring"
	ReasonRolledBack     = "RolledBack"
	ReasonPaused         = "Paused"
	ReasonWaiting        = "Waiting"
	ReasonDisabled       = "Disabled"
	ReasonUnknown        = "Unknown"
	ReasonDeleting       = "Deleting" // of Reconciling only
)

// Reasons of the other conditions. TaintNotTolerable, NodesIgnored, ApplyPackage and DeploymentPolicyNotFound have
// their own type as reason while they are true.
const (
	ReasonAccepted                     = "Accepted"
	ReasonInvalidSpec                  = "InvalidSpec"
	ReasonDependencyUninstalled        = "DependencyUninstalled"
	ReasonNonInterruptPodsRunning      = "NonInterruptPodsRunning"
	ReasonPodDisruptionBudget          = "PodDisruptionBudget"
	ReasonUnmanagedPod                 = "UnmanagedPod"
	ReasonEmptyDirData                 = "EmptyDirData"
	ReasonDaemonSetPod                 = "DaemonSetPod"
	ReasonMultipleCauses               = "MultipleCauses"
	ReasonUninstallInProgress          = "UninstallInProgress"
	ReasonUninstallPodFailing          = "UninstallPodFailing"
	ReasonParseError                   = "ParseError"
	ReasonMalformedNodeState           = "MalformedNodeState"
	ReasonPausedWithPendingUninstall   = "PausedWithPendingUninstall"
	ReasonDisabledWithPendingUninstall = "DisabledWithPendingUninstall"
	ReasonFailureThreshold             = "FailureThreshold"
	ReasonHealthGate                   = "HealthGate"
	ReasonNoBudget                     = "NoBudget"
	ReasonInUse                        = "InUse"
	ReasonDigestsRecorded              = "DigestsRecorded"
	ReasonDigestsUnknown               = "DigestsUnknown"
	ReasonTagMoved                     = "TagMoved"
	ReasonNodesDrifted                 = "NodesDrifted"
	ReasonNoDrift                      = "NoDrift"
	ReasonTaintsTolerated              = "TaintsTolerated"
	ReasonNoneIgnored                  = "NoneIgnored"
	ReasonNoStageRuns                  = "NoStageRuns"
)

// Reasons of events.
const (
	EventApply           = "Apply"
	EventInterrupt       = "Interrupt"
	EventState           = "State"
	EventDrain           = "Drain" // protected pods keep a node from being drained, or its drain timed out
	EventReboot          = "Reboot"
	EventAutoTaint       = "AutoTaint" // a new node cannot be tainted
	EventDeletionBlocked = "DeletionBlocked"
	EventFieldIgnored    = "FieldIgnored"
	EventImagePinned     = "ImagePinned"    // the digest of an image is recorded
	EventDrift           = "Drift"          // a package on a node is not as it was left, or is again
	EventPreflight       = "Preflight"      // packages said what a node needs
	EventPreflightWrong  = "PreflightWrong" // a package said that it needs less than it does
	EventTagMoved        = "TagMoved"       // a node pulled another digest than the recorded one
)

// LegacyCondition is the type under which a condition is written a second time, for programs that read the older name.
func LegacyCondition(condition string) string { return Group + "/" + condition }

// NodeConditionNotReady is the type of the condition on a node that is True while a Skyhook is not complete there.
func NodeConditionNotReady(skyhook string) string { return Group + "/" + skyhook + "/NotReady" }

// NodeConditionErroring is the type of the condition on a node that is True while a package of a Skyhook fails there.
func NodeConditionErroring(skyhook string) string { return Group + "/" + skyhook + "/Erroring" }

// PackageKey is the key of a package in a NodeState.
func PackageKey(name string, version PackageVersion) string { return name + "|" + string(version) }
