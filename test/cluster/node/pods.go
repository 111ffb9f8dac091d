// SPDX-FileCopyrightText: The Skyhook authors
// SPDX-License-Identifier: Apache-2.0

package node

import (
	"fmt"
	"strings"

	"github.com/skyhook-k8s/skyhook/test/cluster/network"
)

// podNetwork is the CNI configuration of node i: pods get addresses of the node's own range, on a bridge that the node routes for.
// There is no NAT between nodes, which have routes to each other's ranges.
func podNetwork(i int) []byte {
	return fmt.Appendf(nil, `{
  "cniVersion": "1.0.0",
  "name": "pods",
  "plugins": [
    {
      "type": "bridge", "bridge": "cni0", "isGateway": true, "ipMasq": false, "hairpinMode": true,
      "ipam": {"type": "host-local", "ranges": [[{"subnet": %q}]], "routes": [{"dst": "0.0.0.0/0"}]}
    },
    {"type": "portmap", "capabilities": {"portMappings": true}}
  ]
}
`, network.NodePods(i))
}

// registerTaint is the part of the kubelet's configuration that makes it register with a taint KEY=VALUE:EFFECT.
func registerTaint(taint string) []byte {
	if taint == "" {
		return nil
	}
	pair, effect, _ := strings.Cut(taint, ":")
	key, value, _ := strings.Cut(pair, "=")
	return fmt.Appendf(nil, "registerWithTaints: [{key: %q, value: %q, effect: %q}]\n", key, value, effect)
}
