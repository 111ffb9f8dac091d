// SPDX-FileCopyrightText: The Skyhook authors
// SPDX-License-Identifier: Apache-2.0

package migrate

import (
	"encoding/json"
	"fmt"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/skyhook-k8s/skyhook/api/skyhook/v1alpha1"
)

// JobPhase is how far a Job of NodeWright is.
type JobPhase string

// The phases.
const (
	JobRunning   JobPhase = "running"
	JobSuspended JobPhase = "suspended"
	JobSucceeded JobPhase = "succeeded" // and nobody has recorded it
	JobRecorded  JobPhase = "recorded"
	JobFailed    JobPhase = "failed"
)

// Annotations of NodeWright's Jobs.
const (
	suffixPackage       = "package" // what the Job runs, as JSON
	suffixStateRecorded = "state-recorded"
)

// AnnotationStateRecorded marks a Job whose outcome the node has.
const AnnotationStateRecorded = "nodewright.nvidia.com/" + suffixStateRecorded

// LabelJobs is the label of NodeWright's Jobs, pods and ConfigMaps; its value is the name of the NodeWright.
const LabelJobs = "nodewright.nvidia.com/name"

// Job is one stage of one package on one node, as NodeWright runs it.
type Job struct {
	Namespace, Name  string
	Object           string // of the NodeWright
	Package, Version string
	Stage            v1alpha1.Stage
	Node             string
	Phase            JobPhase
}

// ReadJob reads a Job that a NodeWright owns; false for any other.
func ReadJob(j *batchv1.Job) (Job, bool, error) {
	owner := metav1.GetControllerOf(j)
	if owner == nil || owner.Kind != NodeWright.Kind || j.Labels[LabelJobs] == "" {
		return Job{}, false, nil
	}
	out := Job{Namespace: j.Namespace, Name: j.Name, Object: j.Labels[LabelJobs], Node: j.Spec.Template.Spec.NodeName, Phase: jobPhase(j)}
	if out.Node == "" {
		out.Node = j.Labels[NodeWright.Key("node")]
	}
	var of struct {
		Name, Version string
		Stage         v1alpha1.Stage
	}
	if err := json.Unmarshal([]byte(j.Annotations[NodeWright.Key(suffixPackage)]), &of); err != nil {
		return Job{}, false, fmt.Errorf("job %s/%s: annotation %s: %w", j.Namespace, j.Name, NodeWright.Key(suffixPackage), err)
	}
	out.Package, out.Version, out.Stage = of.Name, of.Version, of.Stage
	return out, true, nil
}

func jobPhase(j *batchv1.Job) JobPhase {
	for _, c := range j.Status.Conditions {
		switch {
		case c.Status != corev1.ConditionTrue:
		case c.Type == batchv1.JobComplete && j.Annotations[AnnotationStateRecorded] == valueTrue:
			return JobRecorded
		case c.Type == batchv1.JobComplete:
			return JobSucceeded
		case c.Type == batchv1.JobFailed:
			return JobFailed
		}
	}
	if j.Spec.Suspend != nil && *j.Spec.Suspend && j.Status.Active == 0 {
		return JobSuspended
	}
	return JobRunning
}

// Record writes the outcome of a Job that succeeded into a node's state, and reports whether it changed. A state that has
// no such stage under way stays as it is: an outcome never creates an entry, and counts once.
func (j Job) Record(state v1alpha1.NodeState, hasInterrupt bool) bool {
	key := v1alpha1.PackageKey(j.Package, v1alpha1.PackageVersion(j.Version))
	entry, ok := state[key]
	if !ok || entry.Stage != j.Stage || entry.State != v1alpha1.StateInProgress && entry.State != v1alpha1.StateErroring {
		return false
	}
	entry.State = v1alpha1.StateComplete
	switch j.Stage {
	case v1alpha1.StageUninstall:
		if !hasInterrupt {
			delete(state, key)
			return true
		}
		entry.Stage, entry.State, entry.Restarts = v1alpha1.StageUninstallInterrupt, v1alpha1.StateInProgress, 0
	case v1alpha1.StageUpgrade:
		for other, e := range state {
			if other != key && e.Name == j.Package {
				delete(state, other)
			}
		}
	case v1alpha1.StageInterrupt:
		for other, e := range state {
			if e.Stage == v1alpha1.StageInterrupt && e.State == v1alpha1.StateSkipped {
				e.State = v1alpha1.StateComplete
				state[other] = e
			}
		}
	}
	state[key] = entry
	return true
}

func (j Job) String() string {
	return fmt.Sprintf("job %s/%s (%s %s, %s on %s)", j.Namespace, j.Name, j.Package, j.Version, j.Stage, j.Node)
}
