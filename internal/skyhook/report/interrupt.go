// SPDX-FileCopyrightText: The Skyhook authors
// SPDX-License-Identifier: Apache-2.0

package report

import (
	"github.com/skyhook-k8s/skyhook/api/skyhook/v1alpha1"
)

// describeInterrupt describes an interrupt for users.
func describeInterrupt(i *v1alpha1.Interrupt) string {
	switch {
	case i == nil:
		return "nothing"
	case i.Type == v1alpha1.InterruptReboot:
		return "a reboot"
	case i.Type == v1alpha1.InterruptRestartAllServices:
		return "a restart of all services"
	case i.Type == v1alpha1.InterruptService:
		return "a restart of " + listNames(i.Services, 5)
	}
	return "an interrupt that does nothing"
}
