// SPDX-FileCopyrightText: The Skyhook authors
// SPDX-License-Identifier: Apache-2.0

package world

import (
	"fmt"
	"math/rand/v2"

	opv1 "github.com/skyhook-k8s/skyhook/api/nodeop/v1alpha1"
	"github.com/skyhook-k8s/skyhook/api/skyhook/v1alpha1"
)

// versions are those of every package.
var versions = []string{"1.0.0", "1.1.0", "2.0.0"}

// newSkyhook is a Skyhook as a user writes it.
func newSkyhook(name string, random *rand.Rand, hasPolicy bool) content {
	spec := newSkyhookSpec(random)
	if hasPolicy && random.IntN(3) > 0 {
		spec["deploymentPolicy"] = "policy"
	} else if random.IntN(3) > 0 {
		spec["interruptionBudget"] = content{"count": int64(1 + random.IntN(2))}
	}
	return content{
		"apiVersion": v1alpha1.GroupVersion.String(), "kind": "Skyhook", "metadata": content{"name": name}, "spec": spec,
	}
}

// newSkyhookSpec has a few packages that depend on earlier ones.
func newSkyhookSpec(random *rand.Rand) content {
	packages, names := content{}, []string{}
	for i := range 1 + random.IntN(3) {
		name := fmt.Sprintf("p%c", 'a'+i)
		p := content{
			"version": versions[random.IntN(len(versions))], "image": "registry.example/" + name,
			"configMap": content{"a": fmt.Sprint(random.IntN(3)), "b": fmt.Sprint(random.IntN(2))},
		}
		switch random.IntN(6) {
		case 0, 1:
			p["interrupt"] = content{"type": "reboot"}
		case 2:
			p["interrupt"] = content{"type": "service", "services": []any{"kubelet"}}
		}
		if random.IntN(3) == 0 {
			p["configInterrupts"] = content{"a": content{"type": "service", "services": []any{"a"}}}
		}
		if random.IntN(4) == 0 {
			p["uninstall"] = content{"enabled": true}
		}
		if len(names) > 0 && random.IntN(2) == 0 {
			other := names[random.IntN(len(names))]
			p["dependsOn"] = content{other: packages[other].(content)["version"]}
		}
		packages[name], names = p, append(names, name)
	}
	spec := content{"packages": packages, "nodeSelectors": content{"matchLabels": content{"pool": "gpu"}}, "autoTaintNewNodes": true}
	if random.IntN(4) == 0 {
		spec["priority"] = int64(100 + random.IntN(3))
	}
	if random.IntN(5) == 0 {
		spec["serial"] = true
	}
	if random.IntN(2) == 0 {
		spec["nodeMarks"] = newNodeMarks(random)
	}
	if random.IntN(4) == 0 {
		spec["drainConfig"] = content{"loadBalancerDelay": "90s"}
	}
	if random.IntN(3) == 0 {
		addWait(part(spec, "drainConfig"), random)
	}
	addReleases(spec, random)
	if random.IntN(2) == 0 {
		spec["shareReboots"] = true
	}
	if random.IntN(3) == 0 {
		spec["preflight"] = "Ask"
	}
	return spec
}

// addWait lets a drain wait for protected pods before the cordon, perhaps with a timeout after which it waits on and says so.
func addWait(drain content, random *rand.Rand) {
	drain["wait"] = "BeforeCordon"
	if random.IntN(2) == 0 {
		drain["waitTimeout"] = "5m"
	}
	if random.IntN(2) == 0 {
		drain["order"] = "ByPriority"
	}
}

// newPolicy is a policy whose budget some Skyhooks share.
func newPolicy(random *rand.Rand) content {
	spec := content{"default": content{
		"budget":   content{"count": int64(1 + random.IntN(2))},
		"strategy": content{"fixed": content{"initialBatch": int64(1 + random.IntN(2)), "batchThreshold": int64(50), "safetyLimit": int64(90)}},
	}}
	if random.IntN(2) == 0 {
		spec["scope"] = "Policy"
	}
	if random.IntN(3) == 0 {
		spec["nodeMarks"] = newNodeMarks(random)
	}
	if random.IntN(3) == 0 {
		addWaves(spec, random)
	}
	if random.IntN(4) == 0 {
		spec["windows"] = newWindows(random)
	}
	if random.IntN(3) == 0 {
		spec["avoid"] = content{"taints": []any{"node.kubernetes.io/unschedulable"}}
	}
	if random.IntN(3) == 0 {
		spec["handover"] = newHandover(random)
	}
	return content{"apiVersion": v1alpha1.GroupVersion.String(), "kind": "DeploymentPolicy", "metadata": content{"name": "policy"}, "spec": spec}
}

// newWindows are windows that are open every second hour, begin nothing shortly before their end, and perhaps hold what is in flight then.
func newWindows(random *rand.Rand) content {
	window := content{"schedule": "0 */2 * * *", "duration": "1h"}
	if random.IntN(2) == 0 {
		window["margin"] = "10m"
	}
	if random.IntN(2) == 0 {
		window["atEnd"] = "Hold"
	}
	return content{"open": []any{window}}
}

// addWaves lets a policy begin with canaries that the operator chooses, and perhaps wait for a person then.
func addWaves(policy content, random *rand.Rand) {
	canary := content{"name": "canary", "selector": content{}, "budget": content{"count": int64(1)}, "canary": content{"count": int64(1 + random.IntN(2)), "spreadBy": "zone"}}
	if random.IntN(2) == 0 {
		canary["soak"] = "30s"
	}
	policy["compartments"] = []any{canary}
	rest := nestedMap(policy, "default")
	rest["after"] = []any{"canary"}
	if random.IntN(3) == 0 {
		rest["approval"] = "Required"
	}
}

// newNodeOp runs a command on every node, and perhaps reboots it.
func newNodeOp(name string, random *rand.Rand, hasPolicy bool) content {
	spec := content{
		"nodeSelector": content{"matchLabels": content{"pool": "gpu"}}, "command": []any{"true"}, "cordon": true, "uncordonOnFailure": true,
		"rebootOnSuccess": random.IntN(2) == 0, "backoffLimit": int64(0), "concurrency": int64(1 + random.IntN(2)),
	}
	if random.IntN(2) == 0 {
		spec["drainOptions"] = content{"enabled": true, "loadBalancerDelaySeconds": int64(random.IntN(2) * 60)}
	}
	if hasPolicy && random.IntN(2) == 0 {
		spec["deploymentPolicy"] = "policy"
	}
	if drain, drains := spec["drainOptions"].(content); drains && random.IntN(2) == 0 {
		addWait(drain, random)
	}
	if spec["rebootOnSuccess"] == true && random.IntN(2) == 0 {
		spec["shareReboots"] = true
	}
	return content{
		"apiVersion": opv1.GroupVersion.String(), "kind": "NodeOp", "metadata": content{"name": name, "namespace": "default"}, "spec": spec,
	}
}
