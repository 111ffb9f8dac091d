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

// Names that other programs depend on.
const (
	containerCommand   = "nodeop"
	containerSentinel  = "sentinel-creator"
	containerReboot    = "reboot"
	containerPreflight = "preflight"
	volumeHost         = "host-root"
	volumeSentinel     = "sentinel-volume"
	envHostDir         = "HOST_DIR"
	envJobName         = "JOB_NAME"
	envNodeName        = "NODE_NAME"
	sentinelFolder     = "/usr/local/.kairos" // on the host
	sentinelMount      = "/sentinel"
	defaultHostMount   = "/host"
)

// annotationNodeUID is on Jobs and pods: a node of the same name with another UID is another node.
const annotationNodeUID = v1alpha1.Group + "/node-uid"

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

// labelValue makes a name fit into a label.
func labelValue(name string) string { return truncateName(name, 63) }
