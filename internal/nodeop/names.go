// SPDX-FileCopyrightText: The Skyhook authors
// SPDX-License-Identifier: Apache-2.0

package nodeop

import (
	"fmt"
	"hash/fnv"
	"strconv"
	"strings"

	"github.com/skyhook-k8s/skyhook/api/nodeop/v1alpha1"
)

// Names that other programs look for.
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

// annotationNodeUID is on jobs and pods: a node of the same name with another UID is another node.
const annotationNodeUID = v1alpha1.Group + "/node-uid"

// RolloutName is the name of a NodeOp's rollout.
func RolloutName(o *v1alpha1.NodeOp) string { return Kind + "/" + o.Namespace + "/" + o.Name }

// truncated cuts a name to at most so many characters; one that is cut ends in a hash of the whole.
func truncated(name string, most int) string {
	if len(name) <= most {
		return name
	}
	return strings.TrimRight(name[:most-13], "-.") + "-" + fmt.Sprintf("%016x", sum(name))[:12]
}

func sum(parts ...string) uint64 {
	h := fnv.New64a()
	_, _ = h.Write([]byte(strings.Join(parts, "\n"))) // never fails
	return h.Sum64()
}

// suffix is five characters that differ for every NodeOp, node and admission, and are always the same for one.
func suffix(parts ...string) string {
	const alphabet = "bcdfghjklmnpqrstvwxz2456789"
	out, n := make([]byte, 5), sum(parts...)
	for i := range out {
		out[i] = alphabet[n%uint64(len(alphabet))]
		n /= uint64(len(alphabet))
	}
	return string(out)
}

// nameOf names an object of ours for one admission of a node.
func (c *Compiled) nameOf(what string, n *Node, admission int) string {
	o := c.in.NodeOp
	parts := []string{o.Name}
	if what != "" {
		parts = append(parts, what)
	}
	readable := strings.Join(append(parts, n.Name), "-")
	return truncated(readable, 57) + "-" + suffix(string(o.UID), n.UID, n.Name, what, strconv.Itoa(admission))
}

// labelValue is a name as a label carries it.
func labelValue(name string) string { return truncated(name, 63) }

// bounded cuts a text to at most this many bytes.
func bounded(s string, most int) string {
	if len(s) <= most {
		return s
	}
	return strings.ToValidUTF8(s[:most-len("…")], "") + "…"
}
