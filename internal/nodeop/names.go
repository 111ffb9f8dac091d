// SPDX-FileCopyrightText: The Skyhook authors
// SPDX-License-Identifier: Apache-2.0

package nodeop

import (
	"fmt"
	"hash/fnv"
	"strings"

	"github.com/skyhook-k8s/skyhook/api/nodeop/v1alpha1"
	"github.com/skyhook-k8s/skyhook/internal/rollout"
)

// Names of containers, which other programs depend on.
const (
	ContainerCommand   = "nodeop"
	ContainerReboot    = "reboot"
	ContainerPreflight = "preflight"
	ContainerBoot      = "boot"
)

// DefaultHostMount is where a command sees the host.
const DefaultHostMount = "/host"

// AnnotationNodeUID is on Jobs and pods: a node of the same name with another UID is another node.
const AnnotationNodeUID = v1alpha1.Group + "/node-uid"

// Ref names a NodeOp, its rollout and its holds.
func Ref(o *v1alpha1.NodeOp) rollout.Ref {
	return rollout.Ref{Kind: Kind, Namespace: o.Namespace, Name: o.Name}
}

// truncateName cuts a name to at most this many characters. A name that is cut ends in a hash of the whole.
func truncateName(name string, most int) string {
	if len(name) <= most {
		return name
	}
	return strings.TrimRight(name[:most-13], "-.") + "-" + fmt.Sprintf("%016x", hashParts(name))[:12]
}

func hashParts(parts ...string) uint64 {
	h := fnv.New64a()
	_, _ = h.Write([]byte(strings.Join(parts, "\n"))) // never fails
	return h.Sum64()
}

// NewObjectName names an object. The same input gives the same name.
func NewObjectName(name string, uniqueBy ...string) string {
	return truncateName(name, 57) + "-" + nameSuffix(uniqueBy...)
}

// nameSuffix is five characters that depend on the parts alone.
func nameSuffix(parts ...string) string {
	const alphabet = "bcdfghjklmnpqrstvwxz2456789"
	out, n := make([]byte, 5), hashParts(parts...)
	for i := range out {
		out[i] = alphabet[n%uint64(len(alphabet))]
		n /= uint64(len(alphabet))
	}
	return string(out)
}

// LabelValue makes a name fit into a label.
func LabelValue(name string) string { return truncateName(name, 63) }
