// SPDX-FileCopyrightText: The Skyhook authors
// SPDX-License-Identifier: Apache-2.0

package manifest

import (
	"maps"
	"regexp"
	"slices"
	"strings"

	"github.com/skyhook-k8s/skyhook/internal/pack"
)

// removedField is a field of builds before the first release.
type removedField struct {
	kinds   []string
	path    string // below spec; [] stands for each entry
	instead string
}

// removedFields are those that docs/upgrading.md lists.
var removedFields = []removedField{
	{[]string{"Skyhook"}, "rollback.when", "remove it: nodes go back for both causes"},
	{[]string{"Skyhook"}, "drift.concurrency", "remove it: ten nodes are checked at the same time"},
	{[]string{"Skyhook"}, "podLayout", "use the operator's setting podLayout"},
	{[]string{"Skyhook"}, "pinImages", "use the operator's setting pinImages"},
	{[]string{"Skyhook"}, "prepull", "use the operator's setting prepull"},
	{[]string{"NodeOp", "NodeOpUpgrade"}, "proof", "use proof of the policy that deploymentPolicy names"},
	{[]string{"NodeOp"}, "nodeMarks", "use nodeMarks of the policy that deploymentPolicy names"},
	{[]string{"NodeOp"}, "targets", "remove it: all selected nodes belong to the operation"},
	{[]string{"NodeOp"}, "ttlIncludesNodeOp", "use profile: Recommended, under which ttlSecondsAfterFinished removes the NodeOp too"},
	{[]string{"NodeOp"}, "tolerations", "remove it: the pods tolerate every taint"},
	{[]string{"NodeOp"}, "resources.claims", "remove it"},
	{[]string{"NodeOp"}, "env[].valueFrom.fieldRef", "use NODE_NAME, which is always set, or a value"},
	{[]string{"NodeOp"}, "env[].valueFrom.resourceFieldRef", "use a value"},
	{[]string{"NodeOp"}, "drainOptions.skipSelector", "use podSelector with NotIn or DoesNotExist"},
	{[]string{"NodeOpUpgrade"}, "drainOptions", "use a NodeOp with drainOptions, such as the one that an upgrade makes"},
	{[]string{"NodeOpUpgrade"}, "countUnavailable", "use countUnavailable in the budget of the policy that deploymentPolicy names"},
	{[]string{"Skyhook"}, "drainConfig.skipSelector", "use podSelector with NotIn or DoesNotExist"},
	{[]string{"Skyhook", "DeploymentPolicy"}, "proof.daemonSets[].selector", "write namespace/name for each DaemonSet, or use proof.objects"},
	{[]string{"Skyhook", "DeploymentPolicy"}, "proof.daemonSets[].namespace", "write namespace/name for each DaemonSet"},
	{[]string{"Skyhook", "DeploymentPolicy"}, "proof.daemonSets[].name", "write namespace/name for each DaemonSet"},
	{[]string{"Skyhook", "DeploymentPolicy"}, "proof.nodeConditions[].type", "write the type alone, or Type=False"},
	{[]string{"Skyhook", "DeploymentPolicy"}, "proof.nodeConditions[].status", "write Type=False where it must be False"},
	{[]string{"Skyhook", "DeploymentPolicy"}, "nodeMarks.conditions", "write marks: [Conditions]"},
	{[]string{"Skyhook", "DeploymentPolicy"}, "nodeMarks.excludeFromLoadBalancers", "write marks: [ExcludeFromLoadBalancers]"},
	{[]string{"Skyhook", "DeploymentPolicy"}, "nodeMarks.disableScaleDown", "write marks: [DisableScaleDown]"},
	{[]string{"Skyhook", "DeploymentPolicy"}, "nodeMarks.doNotDisrupt", "write marks: [DoNotDisrupt]"},
	{[]string{"Skyhook", "DeploymentPolicy"}, "nodeMarks.description", "write marks: [Description]"},
	{[]string{"Skyhook", "DeploymentPolicy"}, "nodeMarks.preferNoSchedule", "write marks: [PreferNoSchedule]"},
	{[]string{"DeploymentPolicy"}, "health.nodeConditions", "use proof.nodeConditions"},
	{[]string{"DeploymentPolicy"}, "health.daemonSets", "use proof.daemonSets"},
	{[]string{"DeploymentPolicy"}, "health.resources", "use proof.resources with an entry such as {name: nvidia.com/gpu}"},
}

var entryPattern = regexp.MustCompile(`\[[^]]*\]`)

// DescribeUnknown says of a field of UnknownFields what happens to it, and what replaces it if it is gone.
func (o *Object) DescribeUnknown(field string) string {
	path := entryPattern.ReplaceAllString(field, "[]")
	for _, f := range removedFields {
		if path == "spec."+f.path && slices.Contains(f.kinds, o.GetKind()) {
			return field + " is gone, and the API server would drop it: " + f.instead
		}
	}
	return field + " is unknown" + o.suggestField(field) + ", and the API server would drop it"
}

// suggestField asks for a field that stands beside an unknown one.
func (o *Object) suggestField(field string) string {
	path := strings.Split(entryPattern.ReplaceAllString(field, ".[]"), ".")
	at := o.structural
	for _, name := range path[:len(path)-1] {
		switch property, isProperty := at.Properties[name]; {
		case isProperty:
			at = &property
		case name == "[]" && at.Items != nil:
			at = at.Items
		case at.AdditionalProperties != nil && at.AdditionalProperties.Structural != nil:
			at = at.AdditionalProperties.Structural
		default:
			return ""
		}
	}
	return pack.SuggestWord(path[len(path)-1], slices.Sorted(maps.Keys(at.Properties)))
}
