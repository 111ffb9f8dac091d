// SPDX-FileCopyrightText: The Skyhook authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/kubernetes"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"

	opv1 "github.com/skyhook-k8s/skyhook/api/nodeop/v1alpha1"
	"github.com/skyhook-k8s/skyhook/api/skyhook/v1alpha1"
)

const namespace = "skyhook"

// simulation is the simulated nodes, and the objects for them.
type simulation struct {
	*run
	client client.Client
	typed  *kubernetes.Clientset

	oldest                    atomic.Int64 // number of the oldest node that exists; there are as many from it on as were asked for
	active, mostActive, ended atomic.Int64 // pods and Jobs that run, their highest number, and those that have ended
	reboots, checks           atomic.Int64 // checks for drift that have ended
}

func newSimulation(config *rest.Config, r *run) (*simulation, error) {
	config = rest.CopyConfig(config)
	config.QPS = -1
	scheme := runtime.NewScheme()
	if err := errors.Join(clientgoscheme.AddToScheme(scheme), v1alpha1.AddToScheme(scheme), opv1.AddToScheme(scheme)); err != nil {
		return nil, err
	}
	c, err := client.New(config, client.Options{Scheme: scheme})
	if err != nil {
		return nil, fmt.Errorf("creating a client: %w", err)
	}
	typed, err := kubernetes.NewForConfig(config)
	if err != nil {
		return nil, fmt.Errorf("creating a client: %w", err)
	}
	return &simulation{run: r, client: c, typed: typed}, nil
}

// createNodes creates the namespace and the nodes.
func (f *simulation) createNodes(ctx context.Context) error {
	err := f.client.Create(ctx, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: namespace}})
	if err != nil && !apierrors.IsAlreadyExists(err) {
		return fmt.Errorf("creating the namespace: %w", err)
	}
	return runParallel(32, f.nodes, func(i int) error {
		n := newNode(i)
		if f.installed {
			n.Annotations[v1alpha1.PrefixNodeState+objectName] = f.completeState()
		}
		return f.createNode(ctx, n)
	})
}

// createNode creates a node that is ready.
func (f *simulation) createNode(ctx context.Context, n *corev1.Node) error {
	status := n.Status
	if err := f.client.Create(ctx, n); err != nil {
		return fmt.Errorf("creating a node: %w", err)
	}
	if err := f.client.Patch(ctx, n, client.RawPatch("application/merge-patch+json", []byte(`{"spec":{"taints":null}}`))); err != nil {
		return fmt.Errorf("removing the taints of a node: %w", err)
	}
	created := n.DeepCopy() // the operator may write to the node from here on
	n.Status = status
	if err := f.client.Status().Patch(ctx, n, client.MergeFrom(created)); err != nil {
		return fmt.Errorf("setting the status of a node: %w", err)
	}
	return nil
}

// newNode returns a node of the size of those of clouds: labels, annotations, conditions and a list of images.
func newNode(i int) *corev1.Node {
	n := &corev1.Node{ObjectMeta: metav1.ObjectMeta{
		Name:        fmt.Sprintf("ip-10-%d-%d-%d.eu-central-1.compute.internal", i/65536, i/256%256, i%256),
		Labels:      map[string]string{"pool": "gpu", "topology.kubernetes.io/zone": fmt.Sprintf("eu-central-1%c", 'a'+i%3)},
		Annotations: map[string]string{},
	}}
	for j := range 25 {
		n.Labels[fmt.Sprintf("vendor.example/feature-%02d", j)] = fmt.Sprintf("value-%d", i%7)
	}
	for j := range 8 {
		n.Annotations[fmt.Sprintf("vendor.example/note-%02d", j)] = "some words that a controller left on this node for itself"
	}
	for _, t := range []corev1.NodeConditionType{corev1.NodeMemoryPressure, corev1.NodeDiskPressure, corev1.NodePIDPressure} {
		n.Status.Conditions = append(n.Status.Conditions, corev1.NodeCondition{Type: t, Status: corev1.ConditionFalse, Reason: "KubeletHasEnough", Message: "kubelet has no pressure"})
	}
	n.Status.Conditions = append(n.Status.Conditions, corev1.NodeCondition{Type: corev1.NodeReady, Status: corev1.ConditionTrue, Reason: "KubeletReady", Message: "kubelet is posting ready status"})
	n.Status.Capacity = corev1.ResourceList{corev1.ResourceCPU: resource.MustParse("64"), corev1.ResourceMemory: resource.MustParse("512Gi"), corev1.ResourcePods: resource.MustParse("110")}
	n.Status.Allocatable = n.Status.Capacity
	n.Status.NodeInfo = corev1.NodeSystemInfo{BootID: fmt.Sprintf("%08d-0000-4000-8000-000000000000", i), KernelVersion: "6.8.0", OSImage: "Ubuntu 24.04", KubeletVersion: "v1.36.0", ContainerRuntimeVersion: "containerd://2.2.0"}
	for j := range 40 {
		n.Status.Images = append(n.Status.Images, corev1.ContainerImage{SizeBytes: int64(j) << 20, Names: []string{
			fmt.Sprintf("registry.example/some/team/with/image-%02d@sha256:%064d", j, j), fmt.Sprintf("registry.example/some/team/with/image-%02d:v1.%d.0", j, j)}})
	}
	return n
}

// runParallel calls do for every index with several workers, and returns the errors.
func runParallel(workers, n int, do func(i int) error) error {
	var next atomic.Int64
	var mu sync.Mutex
	var errs []error
	var wait sync.WaitGroup
	for range workers {
		wait.Add(1)
		go func() {
			defer wait.Done()
			for i := int(next.Add(1)) - 1; i < n; i = int(next.Add(1)) - 1 {
				if err := do(i); err != nil {
					mu.Lock()
					errs = append(errs, err)
					mu.Unlock()
					return
				}
			}
		}()
	}
	wait.Wait()
	return errors.Join(errs...)
}
