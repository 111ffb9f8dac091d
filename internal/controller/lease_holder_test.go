// SPDX-FileCopyrightText: The Skyhook authors
// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"context"
	"strings"
	"testing"

	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	typedauthorizationv1 "k8s.io/client-go/kubernetes/typed/authorization/v1"
	typedcorev1 "k8s.io/client-go/kubernetes/typed/core/v1"

	"github.com/skyhook-k8s/skyhook/test/testenv"
)

// TestHolders: only a pod that has not ended, and whose account may patch nodes, holds a lease as an operator.
func TestHolders(t *testing.T) {
	s := &fixture{Env: testenv.New(t, plane, 1)} // without a kubelet, which would run the pods
	namespace := s.newNamespace("operator")
	newPod := func(name, account string, phase corev1.PodPhase, host bool) {
		s.createPod(namespace, corev1.Pod{
			ObjectMeta: metav1.ObjectMeta{Name: name}, Status: corev1.PodStatus{Phase: phase},
			Spec: corev1.PodSpec{ServiceAccountName: account, NodeName: "node-" + name, HostNetwork: host},
		})
	}
	newPod("manager", "operator", corev1.PodRunning, false)
	newPod("on-host", "operator", corev1.PodRunning, true)
	newPod("ended", "operator", corev1.PodSucceeded, false)
	newPod("tenant", "default", corev1.PodRunning, false)
	finder := &holderFinder{typedcorev1.NewForConfigOrDie(plane.Config), typedauthorizationv1.NewForConfigOrDie(plane.Config)}
	for holder, want := range map[string]bool{
		"manager_0b8c": true, "manager": true, "node-on-host_0b8c": true,
		"node-manager_0b8c": false, "ended_0b8c": false, "tenant_0b8c": false, "nobody_0b8c": false,
		"_0b8c": false, "a/b_0b8c": false, "..": false, strings.Repeat("a", 100_000): false,
	} {
		got, err := finder.runsOperator(context.Background(), &otherLeader{Namespace: namespace, Lease: coordinationv1.LeaseSpec{HolderIdentity: &holder}})
		if err != nil || got != want {
			t.Errorf("%.20s: is an operator: %v, %v; want %v", holder, got, err, want)
		}
	}
}
