// SPDX-FileCopyrightText: The Skyhook authors
// SPDX-License-Identifier: Apache-2.0

package network

import (
	"net/netip"
	"testing"
)

// Every node has an address and a range of its own, inside the common ranges.
func TestAddresses(t *testing.T) {
	pods, services := netip.MustParsePrefix(PodCIDR), netip.MustParsePrefix(ServiceCIDR)
	nodes := netip.MustParsePrefix(Gateway + "/16")
	if pods.Overlaps(services) || pods.Overlaps(nodes) || services.Overlaps(nodes) {
		t.Fatal("the ranges of pods, Services and nodes overlap")
	}
	if !services.Contains(netip.MustParseAddr(APIService)) {
		t.Errorf("%s is no address of a Service", APIService)
	}
	seen := map[string]bool{Gateway: true}
	for i := 1; i <= MaxNodes; i++ {
		ip, own := netip.MustParseAddr(NodeIP(i)), netip.MustParsePrefix(NodePods(i))
		if !nodes.Contains(ip) || !pods.Overlaps(own) || own.Bits() < pods.Bits() {
			t.Errorf("node %d has address %s and pods %s", i, ip, own)
		}
		if seen[ip.String()] || seen[own.String()] {
			t.Errorf("node %d shares address %s or pods %s", i, ip, own)
		}
		seen[ip.String()], seen[own.String()] = true, true
	}
}
