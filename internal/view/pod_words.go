// SPDX-FileCopyrightText: The Skyhook authors
// SPDX-License-Identifier: Apache-2.0

package view

import (
	"cmp"
	"fmt"

	corev1 "k8s.io/api/core/v1"

	"github.com/skyhook-k8s/skyhook/api/skyhook/v1alpha1"
)

// LogStages are the stages that have pods.
var LogStages = []string{
	string(v1alpha1.StageUninstall), string(v1alpha1.StageUninstallInterrupt), string(v1alpha1.StageUpgrade), string(v1alpha1.StageApply),
	string(v1alpha1.StageConfig), string(v1alpha1.StageInterrupt), string(v1alpha1.StagePostInterrupt),
}

// HasStarted reports whether a container has run, so that it has a log.
func HasStarted(s corev1.ContainerStatus) bool {
	isRestarting := s.State.Waiting != nil && s.LastTerminationState.Terminated != nil
	return s.State.Running != nil || s.State.Terminated != nil || isRestarting
}

// FormatContainerState says what a container does, or why it waits or ended.
func FormatContainerState(s corev1.ContainerStatus) string {
	switch {
	case s.State.Running != nil:
		return "running"
	case s.State.Terminated != nil:
		return fmt.Sprintf("exited with %d", s.State.Terminated.ExitCode)
	case s.State.Waiting != nil:
		return "waiting: " + cmp.Or(s.State.Waiting.Reason, "unknown")
	}
	return "unknown"
}
