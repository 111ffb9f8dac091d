// SPDX-FileCopyrightText: The Skyhook authors
// SPDX-License-Identifier: Apache-2.0

package rollout

import "time"

// Drain defines what happens to pods that do not leave their node.
type Drain struct {
	Timeout   time.Duration // 0 for none
	OnTimeout DrainTimeout
	Delete    bool // pods are deleted instead of evicted
	// how long a node is held before its first pod is evicted, and before other work on it begins
	LoadBalancerDelay time.Duration
	// protected pods are waited for before the node is cordoned: it takes no slot until they have ended
	WaitFirst     bool
	WaitTimeout   time.Duration // how long protected pods are waited for; 0 for no limit
	OnWaitTimeout DrainTimeout  // Force evicts them like other pods
	ByPriority    bool          // pods of the lowest priority leave first
}

// DrainTimeout is what happens when a drain takes longer than its Timeout, or protected pods run longer than WaitTimeout.
type DrainTimeout string

// The choices: continue to wait, release the node and continue with others, or delete the pods.
const (
	DrainWait  DrainTimeout = "Wait"
	DrainSkip  DrainTimeout = "Skip"
	DrainForce DrainTimeout = "Force"
)

// Pod is a workload that must leave a node before it counts as drained.
type Pod struct {
	Namespace, Name, UID string
	Wait                 bool      // protected: it is never evicted, the drain waits for it
	Protection           string    // with Wait: what protects it, one of the Protected constants; empty if unknown
	EndsAt               time.Time // with Wait: when it ends by itself at the latest; zero if unknown
	Leaving              bool      // already being deleted
	LeavesAt             time.Time // with Leaving: end of its grace period; zero if unknown
	Finalizers           []string  // with Leaving: it stays until those who set them have removed them
	Refused              string    // why the last eviction was refused, for example the disruption budget that forbids it
	Denied               bool      // an admission policy refused it, not a disruption budget
	Asked                bool      // its eviction was requested before; only then it is deleted because the drain takes too long
	RetryAt              time.Time // neither evicted nor deleted again before; zero for now
	TurnedAway           bool      // by labels of nodeMarks: the controller of its DaemonSet deletes it
	Keep                 string    // why the drain options do not allow its eviction (bare pod without force, …); blocks the node
	Stays                bool      // with Wait: it need not leave the node when nobody waits for it any more
	Priority             int32     // of its priority class
}

// The values of Pod.Keep.
const (
	KeepDaemonSet = "its DaemonSet would recreate it, and ignoreDaemonSets is false"
	KeepEmptyDir  = "it would lose its emptyDir volume, and deleteEmptyDirData is false"
	KeepUnmanaged = "nothing recreates it, and force is false"
)

// The values of Pod.Protection.
const (
	ProtectedByLabels       = "podNonInterruptLabels"
	ProtectedByAnnotation   = "skyhook.nvidia.com/do-not-interrupt"
	ProtectedByDoNotDisrupt = "karpenter.sh/do-not-disrupt"
)
