// SPDX-FileCopyrightText: The Skyhook authors
// SPDX-License-Identifier: Apache-2.0

package render

import (
	"slices"
	"strings"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/kubernetes/scheme"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// full is the name of most things where the release is called skyhook.
const full = "skyhook-operator"

// renderChart renders the chart, and fails the test on an error.
func renderChart(t *testing.T, values string) *Result {
	t.Helper()
	return renderWith(t, Options{Values: values})
}

func renderWith(t *testing.T, o Options) *Result {
	t.Helper()
	r, err := Chart(o)
	if err != nil {
		t.Fatalf("%v\nwith the values\n%s", err, o.Values)
	}
	return r
}

// findObject returns an object as a type that must know all of its fields.
func findObject[T client.Object](t *testing.T, r *Result, kind, name string, into T) T {
	t.Helper()
	u := r.Find(kind, name)
	if u == nil {
		t.Fatalf("there is no %s %s", kind, name)
	}
	if err := Into(u, into); err != nil {
		t.Fatal(err)
	}
	return into
}

func findDeployment(t *testing.T, r *Result) *appsv1.Deployment {
	t.Helper()
	return findObject(t, r, "Deployment", full+"-controller-manager", &appsv1.Deployment{})
}

func findManager(t *testing.T, r *Result) corev1.Container {
	t.Helper()
	return findDeployment(t, r).Spec.Template.Spec.Containers[0]
}

func findJob(t *testing.T, r *Result) *batchv1.Job {
	t.Helper()
	return findObject(t, r, "Job", full+"-skyhook-cleanup", &batchv1.Job{})
}

// environmentOf returns the environment variables of a container.
func environmentOf(c corev1.Container) map[string]string {
	out := map[string]string{}
	for _, e := range c.Env {
		out[e.Name] = e.Value
		if e.ValueFrom != nil && e.ValueFrom.FieldRef != nil {
			out[e.Name] = "$" + e.ValueFrom.FieldRef.FieldPath
		}
	}
	return out
}

// matrix are values that a person could have, with what is special about them.
var matrix = map[string]string{
	"defaults":      "",
	"one replica":   "replicaCount: 1",
	"no leader":     "controllerManager: {replicas: 1, podDisruptionBudget: null, manager: {env: {leaderElection: false}}}",
	"host network":  "useHostNetwork: true",
	"nothing extra": "{limitRange: null, networkPolicy: {enabled: false}, cleanup: {enabled: false}, crds: {install: false}, defaultImagePullSecret: null, controllerManager: {podDisruptionBudget: {minAvailable: null}, nodeAffinity: null, serviceAccount: null, manager: {env: {metricsPort: '0', probePort: '0'}}}}",
	"everything": "{cleanup: {enabled: true}, rbac: {createSkyhookViewerRole: true, createSkyhookEditorRole: true}, metrics: {addServiceAccountBinding: true, serviceMonitor: {enabled: true, labels: {team: a}}, prometheusRule: {enabled: true}, dashboards: {enabled: true}}, " +
		"imagePullSecret: mine, estimatedNodeCount: 5000, estimatedPackageCount: 10, networkPolicy: {metricsFrom: [{namespaceSelector: {}}]}, " +
		"controllerManager: {replicas: 3, podDisruptionBudget: {minAvailable: 50%}, tolerations: [{operator: Exists}], selectors: {pool: system}, priorityClassName: system-cluster-critical, serviceAccount: {annotations: {a: b}}, manager: {image: {tag: v9, pullPolicy: Always}}}}",
	"affinity":            "controllerManager: {nodeAffinity: {matchExpressions: [{key: pool, operator: In, values: [system]}]}}",
	"no proxy, no hooks":  "{webhook: {enable: true, secretName: webhook-cert}, webhookService: {type: ClusterIP}, controllerManager: {kubeRbacProxy: {args: [--v=0]}}}",
	"NodeWright's values": "{selectorMigration: {enabled: true, jobTimeoutSeconds: 120}, webhook: {removalImage: docker.io/alpine/kubectl, serviceName: ''}, controllerManager: {manager: {env: {jobStageTimeout: 1h, jobBackoffLimit: '3', jobTtlSucceeded: 1h, jobTtlFailed: 24h, legacyCleanupDelay: 24h, publishLegacyMetrics: 'true'}}}}",
	"a parent's values":   "{global: {anything: [1]}, nameOverride: sky, fullnameOverride: " + full + "}",
}

// TestMatrix renders all of it for every version of Kubernetes that is supported, and reads the objects strictly: a field
// in the wrong place is an error.
func TestMatrix(t *testing.T) {
	known := runtime.NewScheme()
	for _, add := range []func(*runtime.Scheme) error{scheme.AddToScheme, apiextensionsv1.AddToScheme} {
		if err := add(known); err != nil {
			t.Fatal(err)
		}
	}
	for name, values := range matrix {
		t.Run(name, func(t *testing.T) {
			for _, version := range []string{"v1.30.0", "v1.32.4-gke.1", "v1.36.3", "v1.37.0"} {
				r := renderWith(t, Options{Values: values, Kubernetes: version})
				for _, u := range slices.Concat(r.Objects, r.Hooks) {
					if strings.HasPrefix(u.GetAPIVersion(), "monitoring.coreos.com/") {
						continue
					}
					made, err := known.New(u.GroupVersionKind())
					if err != nil {
						t.Fatal(err)
					}
					o, ok := made.(client.Object)
					if !ok {
						t.Fatalf("%T is no object", made)
					}
					if err := Into(u, o); err != nil {
						t.Errorf("on Kubernetes %s: %v", version, err)
					}
					if o.GetLabels()["app.kubernetes.io/instance"] != "skyhook" {
						t.Errorf("%s %s does not say which release it belongs to", u.GetKind(), o.GetName())
					}
				}
			}
		})
	}
}

// TestOldKubernetes: the CRDs' rules need 1.30.
func TestOldKubernetes(t *testing.T) {
	if _, err := Chart(Options{Kubernetes: "v1.29.9"}); err == nil || !strings.Contains(err.Error(), "1.30") {
		t.Errorf("rendering for Kubernetes 1.29 gives %v", err)
	}
}
