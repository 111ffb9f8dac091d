// SPDX-FileCopyrightText: The Skyhook authors
// SPDX-License-Identifier: Apache-2.0

package wire

import (
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime"
)

// The kinds of objects whose events are filtered, and the kept fields: those that some Strip function of the back end keeps.
type kind struct {
	path, plural  string // of its requests: path, perhaps a namespace, plural
	version, name string // apiVersion and kind
	newObject     func() object
	kept          part
	isOwn         bool // pods of ours, or of NodeOps
}

// object is an object of a kind, which decodes itself.
type object interface {
	runtime.Object
	Unmarshal(encoded []byte) error
}

// part lists the fields of a message that are kept, by number, and which parts of them. Other fields are removed.
type part map[uint32]part

// all of a field is kept; of a field with nothing, only its presence.
var (
	all     part
	nothing = part{}
)

var kinds = []kind{
	{path: "/api/v1/", plural: "nodes", version: "v1", name: "Node", newObject: func() object { return &corev1.Node{} }, kept: part{1: metadata, 2: nodeSpec, 3: nodeStatus}},
	{path: "/api/v1/", plural: "pods", version: "v1", name: "Pod", newObject: func() object { return &corev1.Pod{} }, kept: part{1: metadata, 2: podSpec, 3: podStatus}},
	{path: "/apis/batch/v1/", plural: "jobs", version: "batch/v1", name: "Job", newObject: func() object { return &batchv1.Job{} }, kept: part{1: metadata, 2: jobSpec, 3: all}},
}

// metadata is everything but managedFields (17).
var metadata = part{
	1:  all, // name
	2:  all, // generateName
	3:  all, // namespace
	4:  all, // selfLink
	5:  all, // uid
	6:  all, // resourceVersion
	7:  all, // generation
	8:  all, // creationTimestamp
	9:  all, // deletionTimestamp
	10: all, // deletionGracePeriodSeconds
	11: all, // labels
	12: all, // annotations
	13: all, // ownerReferences
	14: all, // finalizers
}

var nodeSpec = part{
	4: all, // unschedulable
	5: all, // taints
}

var nodeStatus = part{
	2: all, // allocatable
	4: part{ // conditions, without lastHeartbeatTime
		1: all, // type
		2: all, // status
		4: all, // lastTransitionTime
		5: all, // reason
		6: all, // message
	},
	7: part{ // nodeInfo
		3: all, // bootID
		6: all, // containerRuntimeVersion
		7: all, // kubeletVersion
	},
}

// ownPod lists the fields that are read of our pods and of those of NodeOps, which are watched by their labels.
var ownPod = part{1: metadata, 2: ownPodSpec, 3: podStatus}

var ownPodSpec = part{
	2: part{ // containers
		1: all, // name
		2: all, // image
	},
	10: all, // nodeName
	20: part{ // initContainers
		1:  all, // name
		2:  all, // image
		24: all, // restartPolicy
	},
}

// podSpec lists the fields that are read of any pod: of ours, or of one that blocks a drain.
var podSpec = part{
	1: part{ // volumes
		1: all,              // name
		2: part{2: nothing}, // volumeSource: whether it is an emptyDir
	},
	2:  ownPodSpec[2],
	5:  all, // activeDeadlineSeconds
	8:  all, // serviceAccountName
	10: all, // nodeName
	20: ownPodSpec[20],
	22: all, // tolerations
	25: all, // priority
}

var podStatus = part{
	1:  all, // phase
	2:  all, // conditions
	3:  all, // message
	4:  all, // reason
	7:  all, // startTime
	8:  ends,
	10: ends,
}

// ends lists the states of the containers (8) and init containers (10) of a pod.
var ends = part{
	1: all, // name
	2: all, // state
	3: all, // lastState
	5: all, // restartCount
	6: all, // image
	7: all, // imageID
}

var jobSpec = part{
	6: part{2: part{10: all}}, // template: spec: nodeName
	7: all,                    // backoffLimit
}
