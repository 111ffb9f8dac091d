// SPDX-FileCopyrightText: The Skyhook authors
// SPDX-License-Identifier: Apache-2.0

package skyhook_test

import (
	"context"
	"slices"
	"strings"
	"sync"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/clientcmd"
	cloudprovider "k8s.io/cloud-provider"
	servicecontroller "k8s.io/cloud-provider/controllers/service"
	"k8s.io/component-base/featuregate"
	controllersmetrics "k8s.io/component-base/metrics/prometheus/controllers"

	"github.com/skyhook-k8s/skyhook/test/e2e/suite"
)

// balancer is a cloud with load balancers only. It remembers the nodes that the service controller of Kubernetes gave them.
type balancer struct {
	cloudprovider.Interface
	mu    sync.Mutex
	lists [][]string
}

func (b *balancer) LoadBalancer() (cloudprovider.LoadBalancer, bool) { return b, true }
func (b *balancer) HasClusterID() bool                               { return true }
func (b *balancer) ProviderName() string                             { return "test" }

func (b *balancer) GetLoadBalancer(context.Context, string, *corev1.Service) (*corev1.LoadBalancerStatus, bool, error) {
	return &corev1.LoadBalancerStatus{}, false, nil
}

func (b *balancer) GetLoadBalancerName(context.Context, string, *corev1.Service) string { return "web" }

func (b *balancer) EnsureLoadBalancer(_ context.Context, _ string, _ *corev1.Service, nodes []*corev1.Node) (*corev1.LoadBalancerStatus, error) {
	b.note(nodes)
	return &corev1.LoadBalancerStatus{Ingress: []corev1.LoadBalancerIngress{{IP: "192.0.2.1"}}}, nil
}

func (b *balancer) UpdateLoadBalancer(_ context.Context, _ string, _ *corev1.Service, nodes []*corev1.Node) error {
	b.note(nodes)
	return nil
}

func (b *balancer) EnsureLoadBalancerDeleted(context.Context, string, *corev1.Service) error {
	return nil
}

func (b *balancer) note(nodes []*corev1.Node) {
	var names []string
	for _, n := range nodes {
		names = append(names, n.Name)
	}
	slices.Sort(names)
	b.mu.Lock()
	defer b.mu.Unlock()
	b.lists = append(b.lists, names)
}

// list returns the latest list of nodes.
func (b *balancer) list() []string {
	b.mu.Lock()
	defer b.mu.Unlock()
	if len(b.lists) == 0 {
		return nil
	}
	return b.lists[len(b.lists)-1]
}

// startServiceController runs the service controller of Kubernetes for a cloud, until the test ends.
func startServiceController(t *testing.T, cloud cloudprovider.Interface) {
	t.Helper()
	config, err := clientcmd.BuildConfigFromFlags("", cluster.Kubeconfig())
	if err != nil {
		t.Fatal(err)
	}
	client, err := kubernetes.NewForConfig(config)
	if err != nil {
		t.Fatal(err)
	}
	factory := informers.NewSharedInformerFactory(client, 0)
	controller, err := servicecontroller.New(cloud, client, factory.Core().V1().Services(), factory.Core().V1().Nodes(), "e2e", featuregate.NewFeatureGate())
	if err != nil {
		t.Fatal(err)
	}
	factory.Start(t.Context().Done())
	go controller.Run(t.Context(), 1, controllersmetrics.NewControllerManagerMetrics("e2e"))
}

// TestLoadBalancer: the service controller of Kubernetes takes a held node out of the list of a Service of type LoadBalancer before the
// first pod is evicted, and puts it there again when the node is released. Marks of others stay.
func TestLoadBalancer(t *testing.T) {
	const (
		name  = "balanced"
		label = "node.kubernetes.io/exclude-from-external-load-balancers"
		scale = "cluster-autoscaler.kubernetes.io/scale-down-disabled"
		ours  = "karpenter.sh/do-not-disrupt"
	)
	if !cluster.IsOurs() {
		t.Skip("another service controller may make a real load balancer: only test/cluster has none")
	}
	n := cluster.ShareInterruptibleNodes(t, 1)[0]
	cluster.RequireService(t, n, "cron")
	selectNodes(t, name, n)
	cluster.Kubectl(t, "annotate", "node", n, scale+"=false")
	t.Cleanup(func() { _, _ = cluster.TryKubectl("", "annotate", "node", n, scale+"-") })
	cloud := &balancer{}
	startServiceController(t, cloud)
	cluster.ApplyUntilCleanup(t, strings.ReplaceAll(`
apiVersion: v1
kind: Service
metadata: {name: balanced}
spec: {type: LoadBalancer, allocateLoadBalancerNodePorts: false, selector: {app: balanced}, ports: [{port: 80}]}
---
apiVersion: v1
kind: Pod
metadata: {name: balanced, labels: {app: balanced}}
spec:
  nodeName: NODE
  terminationGracePeriodSeconds: 1
  containers: [{name: main, image: "registry.k8s.io/pause:3.10"}]
`, "NODE", n))
	cluster.Kubectl(t, "wait", "--for=condition=Ready", "pod/balanced", "--timeout="+suite.Timeout.String())
	requireListed := func(what string, want bool) {
		t.Helper()
		suite.Eventually(t, what, func() error {
			if list := cloud.list(); slices.Contains(list, n) != want {
				return errListed(list)
			}
			return nil
		})
	}
	requireListed("the node is in the list of the load balancer", true)

	spec := "\n  nodeMarks: {marks: [Conditions, ExcludeFromLoadBalancers, DisableScaleDown, DoNotDisrupt, Description]}\n  drainConfig: {loadBalancerDelay: 15s}"
	cluster.Apply(t, suite.Manifest(name, spec, interruptingPackage("{type: service, services: [cron]}")))
	requireListed("the held node has left the list of the load balancer", false)
	// The conditions are written after the node, and the service controller may be faster.
	cluster.EventuallyPrints(t, "the held node says so", func(held string) bool { return held == "true true True" }, "get", "node", n, "-o",
		`jsonpath={.spec.unschedulable} {.metadata.annotations.karpenter\.sh/do-not-disrupt} {.status.conditions[?(@.type=="DrainInProgress")].status}`)
	if pod := cluster.Kubectl(t, "get", "pod", "balanced", "-o", "jsonpath={.metadata.deletionTimestamp}"); pod != "" {
		t.Errorf("while load balancers have time, the pod leaves at %q", pod)
	}
	cluster.WaitComplete(t, name)
	requireListed("the released node is in the list of the load balancer again", true)
	after := cluster.Kubectl(t, "get", "node", n, "-o", "jsonpath={.metadata.labels} {.metadata.annotations} {.status.conditions[*].type}")
	for _, gone := range []string{label, ours, "skyhook.nvidia.com/nodeMarks", "skyhook.nvidia.com/maintenance", "DrainInProgress", "MaintenanceInProgress"} {
		if strings.Contains(after, gone) {
			t.Errorf("the released node has %s: %s", gone, after)
		}
	}
	if !strings.Contains(after, `"`+scale+`":"false"`) {
		t.Errorf("the annotation of somebody else is gone: %s", after)
	}
	cluster.RemoveSkyhook(t, name)
}

// errListed is a list that is not as it should be.
type errListed []string

func (e errListed) Error() string { return "the nodes are " + strings.Join(e, ", ") }
