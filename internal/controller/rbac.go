// SPDX-FileCopyrightText: The Skyhook authors
// SPDX-License-Identifier: Apache-2.0

package controller

// The permissions of the operator, and what each is for. The chart's roles are generated from these lines. A test runs the
// operator with them and reads the API server's audit log, so that it finds missing and unused permissions.
//
// Cluster-wide:
//
// Nodes carry our records, holds, labels and conditions.
// +kubebuilder:rbac:groups="",resources=nodes,verbs=list;watch;patch
// +kubebuilder:rbac:groups="",resources=nodes/status,verbs=patch
//
// Pods on held nodes are watched, evicted, and deleted where a Skyhook allows to force a drain. Pods and Jobs of NodeOps are
// created in the NodeOp's namespace; the Job of a deleted one is patched so that it begins no further attempt.
// +kubebuilder:rbac:groups="",resources=pods,verbs=get;list;watch;create;delete
// +kubebuilder:rbac:groups=batch,resources=jobs,verbs=get;list;watch;create;patch;delete
// +kubebuilder:rbac:groups="",resources=pods/eviction,verbs=create
//
// Of our own kinds the operator writes the finalizer, its version and the status; it creates and deletes NodeOps only. API servers
// with OwnerReferencesPermissionEnforcement require the permission for finalizers.
// +kubebuilder:rbac:groups=skyhook.nvidia.com,resources=skyhooks,verbs=list;watch;patch
// +kubebuilder:rbac:groups=skyhook.nvidia.com,resources=skyhooks/finalizers,verbs=update
// +kubebuilder:rbac:groups=skyhook.nvidia.com,resources=deploymentpolicies,verbs=list;watch;patch
// +kubebuilder:rbac:groups=skyhook.nvidia.com,resources=skyhooks/status;deploymentpolicies/status,verbs=patch
//
// Proofs read the DaemonSets that they name, and list all to find those that labels of nodeMarks turned away.
// +kubebuilder:rbac:groups=apps,resources=daemonsets,verbs=get;list
// NodeOps are created for upgrades, which own them, and deleted when they ask for it after they have finished.
// +kubebuilder:rbac:groups=operator.kairos.io,resources=nodeops,verbs=list;watch;create;patch;delete
// +kubebuilder:rbac:groups=operator.kairos.io,resources=nodeopupgrades,verbs=list;watch
// +kubebuilder:rbac:groups=operator.kairos.io,resources=nodeops/finalizers;nodeopupgrades/finalizers,verbs=update
// +kubebuilder:rbac:groups=operator.kairos.io,resources=nodeops/status;nodeopupgrades/status,verbs=patch
//
// Events about nodes and Skyhooks, which have no namespace, go to the namespace default.
// +kubebuilder:rbac:groups="",resources=events,verbs=create;patch
//
// Webhooks of an earlier operator, which nothing serves any more, would refuse every write of a Skyhook. They are recognised by
// their content. The chart adds the names that a release of the predecessor with its own names would have.
// +kubebuilder:rbac:groups=admissionregistration.k8s.io,resources=validatingwebhookconfigurations;mutatingwebhookconfigurations,verbs=list
// +kubebuilder:rbac:groups=admissionregistration.k8s.io,resources=validatingwebhookconfigurations,resourceNames=skyhook-operator-validating-webhook;nodewright-validating-webhook,verbs=delete
// +kubebuilder:rbac:groups=admissionregistration.k8s.io,resources=mutatingwebhookconfigurations,resourceNames=skyhook-operator-mutating-webhook;nodewright-mutating-webhook,verbs=delete
//
// Skyhooks that NodeWright has taken over are not touched before they are migrated.
// +kubebuilder:rbac:groups=nodewright.nvidia.com,resources=nodewrights,verbs=list
//
// An earlier operator in another namespace leads as long as it holds the lease of this name there. Who may not change nodes is no
// operator: the API server is asked about the holder's account.
// +kubebuilder:rbac:groups=coordination.k8s.io,resources=leases,resourceNames=3c22c1ae.nvidia.com,verbs=list;watch
// +kubebuilder:rbac:groups=authorization.k8s.io,resources=subjectaccessreviews,verbs=create
//
// Secure metrics authenticate and authorize readers with the API server. The chart adds tokenreviews only for secure metrics, and
// subjectaccessreviews for either.
// +kubebuilder:rbac:groups=authentication.k8s.io,resources=tokenreviews,verbs=create
//
// The policies that guard the removal of the operator are deleted when it is not to be guarded. To create them is a role of
// its own in the chart.
// +kubebuilder:rbac:groups=admissionregistration.k8s.io,resources=validatingadmissionpolicies;validatingadmissionpolicybindings,resourceNames=skyhook-operator-in-use;skyhook-operator-in-use-by-nodeops,verbs=delete
//
// In the operator's own namespace, called skyhook here and renamed by the chart:
//
// The revisions of Skyhooks.
// +kubebuilder:rbac:groups=apps,namespace=skyhook,resources=controllerrevisions,verbs=get;list;create;patch;delete
//
// Compact pods are told by an annotation to end before their next stage.
// +kubebuilder:rbac:groups="",namespace=skyhook,resources=pods,verbs=patch
//
// The ConfigMaps that pods mount, and the lease of the leader.
// +kubebuilder:rbac:groups="",namespace=skyhook,resources=configmaps,verbs=get;list;watch;create;update;patch;delete
// +kubebuilder:rbac:groups=coordination.k8s.io,namespace=skyhook,resources=leases,verbs=get;create;update
//
// Pods name the default Secret for pulling images only while it exists. Kubelets read Secrets, not the operator: it asks for the name.
// +kubebuilder:rbac:groups="",namespace=skyhook,resources=secrets,resourceNames=node-init-secret,verbs=get

//go:generate go tool -modfile=../../go.tools.mod controller-gen rbac:roleName=operator paths=. output:rbac:dir=../../chart/files/rbac
