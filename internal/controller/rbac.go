// SPDX-FileCopyrightText: The Skyhook authors
// SPDX-License-Identifier: Apache-2.0

package controller

// What the operator may do, and what for: all of it, and no more. The chart's roles are generated from these lines; a
// test runs the operator with them and reads the API server's audit log, so that a right that is missing and a right
// that nothing uses are both found.
//
// In the whole cluster:
//
// Nodes carry the records, holds, labels and conditions of ours.
// +kubebuilder:rbac:groups="",resources=nodes,verbs=list;watch;patch
// +kubebuilder:rbac:groups="",resources=nodes/status,verbs=patch
//
// Pods in the way are watched on nodes that are held, evicted, and deleted where a Skyhook says that a drain may be forced.
// Pods and Jobs of NodeOps are made in the NodeOp's namespace.
// +kubebuilder:rbac:groups="",resources=pods,verbs=get;list;watch;create;delete
// +kubebuilder:rbac:groups=batch,resources=jobs,verbs=get;list;watch;create;delete
// +kubebuilder:rbac:groups="",resources=pods/eviction,verbs=create
//
// Of our own kinds the operator writes the finalizer, its version and the status. Of these it creates and deletes none. The
// right to finalizers is asked for by API servers that guard owner references.
// +kubebuilder:rbac:groups=skyhook.nvidia.com,resources=skyhooks,verbs=get;list;watch;patch
// +kubebuilder:rbac:groups=skyhook.nvidia.com,resources=skyhooks/finalizers,verbs=update
// +kubebuilder:rbac:groups=skyhook.nvidia.com,resources=deploymentpolicies,verbs=list;watch;patch
// +kubebuilder:rbac:groups=skyhook.nvidia.com,resources=skyhooks/status;deploymentpolicies/status,verbs=patch
//
// The DaemonSets that a policy's health gates name are looked at while a node has to prove itself.
// +kubebuilder:rbac:groups=apps,resources=daemonsets,verbs=get
// NodeOps are made for upgrades, whose owner references API servers may guard too.
// +kubebuilder:rbac:groups=operator.kairos.io,resources=nodeops,verbs=get;list;watch;create;patch
// +kubebuilder:rbac:groups=operator.kairos.io,resources=nodeopupgrades,verbs=list;watch
// +kubebuilder:rbac:groups=operator.kairos.io,resources=nodeops/finalizers;nodeopupgrades/finalizers,verbs=update
// +kubebuilder:rbac:groups=operator.kairos.io,resources=nodeops/status;nodeopupgrades/status,verbs=patch
//
// Events about nodes and Skyhooks, which have no namespace, go to the namespace default.
// +kubebuilder:rbac:groups="",resources=events,verbs=create;patch
//
// Webhooks of an earlier operator that nobody serves any more would refuse every write of a Skyhook.
// +kubebuilder:rbac:groups=admissionregistration.k8s.io,resources=validatingwebhookconfigurations,resourceNames=skyhook-operator-validating-webhook,verbs=delete
// +kubebuilder:rbac:groups=admissionregistration.k8s.io,resources=mutatingwebhookconfigurations,resourceNames=skyhook-operator-mutating-webhook,verbs=delete
//
// Guarded metrics ask the API server who reads them and whether they may. The chart leaves these two out where metrics are
// not guarded.
// +kubebuilder:rbac:groups=authentication.k8s.io,resources=tokenreviews,verbs=create
// +kubebuilder:rbac:groups=authorization.k8s.io,resources=subjectaccessreviews,verbs=create
//
// Policies that have the removal of the operator refused are taken away when they are not wanted any more; to make them is
// a role of its own in the chart.
// +kubebuilder:rbac:groups=admissionregistration.k8s.io,resources=validatingadmissionpolicies;validatingadmissionpolicybindings,resourceNames=skyhook-operator-in-use;skyhook-operator-in-use-by-nodeops,verbs=delete
//
// In the operator's own namespace, called skyhook here and as it is by the chart:
//
// The ConfigMaps that pods mount, and the lease of the leader. Not Secrets: nodes read those.
// +kubebuilder:rbac:groups="",namespace=skyhook,resources=configmaps,verbs=get;list;watch;create;update;patch;delete
// +kubebuilder:rbac:groups=coordination.k8s.io,namespace=skyhook,resources=leases,verbs=get;create;update

//go:generate go tool -modfile=../../go.tools.mod controller-gen rbac:roleName=operator paths=. output:rbac:dir=../../chart/files/rbac
