// SPDX-FileCopyrightText: The Skyhook authors
// SPDX-License-Identifier: Apache-2.0

package session

import (
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/runtime/schema"

	opv1 "github.com/skyhook-k8s/skyhook/api/nodeop/v1alpha1"
	"github.com/skyhook-k8s/skyhook/api/skyhook/v1alpha1"
)

// TestSupportedKinds checks that the plugin reads what the operator reads, such as the DaemonSets of a proof, where the API server has it.
func TestSupportedKinds(t *testing.T) {
	_, mapper, err := SupportedKinds()
	if err != nil {
		t.Fatal(err)
	}
	for resource, kind := range map[string]schema.GroupVersionKind{
		"daemonsets": appsv1.SchemeGroupVersion.WithKind("DaemonSet"), "controllerrevisions": appsv1.SchemeGroupVersion.WithKind("ControllerRevision"),
		"poddisruptionbudgets": policyv1.SchemeGroupVersion.WithKind("PodDisruptionBudget"), "nodeopupgrades": opv1.GroupVersion.WithKind("NodeOpUpgrade"),
		"nodes": corev1.SchemeGroupVersion.WithKind("Node"), "skyhooks": v1alpha1.GroupVersion.WithKind("Skyhook"),
		"deploymentpolicies": v1alpha1.GroupVersion.WithKind("DeploymentPolicy"), "validatingadmissionpolicybindings": PolicyBinding,
	} {
		m, err := mapper.RESTMapping(kind.GroupKind(), kind.Version)
		if err != nil {
			t.Error(err)
			continue
		}
		isRoot := resource == "nodes" || resource == "skyhooks" || resource == "deploymentpolicies" || kind == PolicyBinding
		if m.Resource.Resource != resource || (m.Scope.Name() == meta.RESTScopeNameRoot) != isRoot {
			t.Errorf("%s is %s, %s", kind.Kind, m.Resource.Resource, m.Scope.Name())
		}
	}
}

// TestIsLocal checks that responses are compressed, except from a server on this machine.
func TestIsLocal(t *testing.T) {
	for server, want := range map[string]bool{
		"https://127.0.0.1:6443": true, "https://[::1]:6443": true, "https://localhost:6443": true, "http://127.1.2.3": true,
		"https://10.0.0.1:6443": false, "https://api.example.org": false, "https://localhost.example.org": false, "api.example.org": false, "": false, ":%": false,
	} {
		if isLocal(server) != want {
			t.Errorf("%q: %v", server, !want)
		}
	}
}
