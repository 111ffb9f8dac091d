// SPDX-FileCopyrightText: The Skyhook authors
// SPDX-License-Identifier: Apache-2.0

package options

import (
	"strings"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/utils/ptr"
)

// LeaseName names the lease of the leading operator. The predecessor has the same one, so that the two never lead at
// the same time.
const LeaseName = "3c22c1ae.nvidia.com"

// maxLeaseTerm is the longest term that counts: whoever may write one lease must not stop an operator with a term of years.
const maxLeaseTerm = time.Minute

// LeaseTerm is how long a lease counts as held after it was renewed: as long as it says, and a minute at most.
func LeaseTerm(spec coordinationv1.LeaseSpec) time.Duration {
	return min(time.Duration(ptr.Deref(spec.LeaseDurationSeconds, 15))*time.Second, maxLeaseTerm)
}

// LeaseHost is the host name of a lease's holder, which is called hostname_UUID.
func LeaseHost(spec coordinationv1.LeaseSpec) string {
	host, _, _ := strings.Cut(ptr.Deref(spec.HolderIdentity, ""), "_")
	return host
}

// HasHostname reports whether a pod's processes see a host name: that of the pod, or that of its node.
func HasHostname(pod *corev1.Pod, host string) bool {
	return pod.Name == host || pod.Spec.HostNetwork && pod.Spec.NodeName == host
}
