// SPDX-FileCopyrightText: The Skyhook authors
// SPDX-License-Identifier: Apache-2.0

package render

import (
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"helm.sh/helm/v4/pkg/action"
	admissionv1 "k8s.io/api/admissionregistration/v1"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/yaml"
)

// TestLint: helm lint has nothing to say.
func TestLint(t *testing.T) {
	root, err := Root()
	if err != nil {
		t.Fatal(err)
	}
	for name, text := range matrix {
		var values map[string]any
		if err := yaml.Unmarshal([]byte(text), &values); err != nil {
			t.Fatal(err)
		}
		lint := action.NewLint()
		lint.Strict, lint.Namespace = true, "skyhook"
		for _, m := range lint.Run([]string{filepath.Join(root, "chart")}, values).Messages {
			t.Errorf("%s: %s", name, m)
		}
	}
}

// TestCRDs: the chart brings the generated CRDs, all of them, whole, and they stay when the release goes.
func TestCRDs(t *testing.T) {
	root, err := Root()
	if err != nil {
		t.Fatal(err)
	}
	files, err := filepath.Glob(filepath.Join(root, "chart", "files", "crds", "*.yaml"))
	if err != nil || len(files) != 4 {
		t.Fatalf("CRDs are in %v, %v; want four", files, err)
	}
	r := renderChart(t, "")
	for _, file := range files {
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		want, err := Parse(text)
		if err != nil {
			t.Fatal(err)
		}
		got := r.Find("CustomResourceDefinition", want[0].GetName())
		if got == nil {
			t.Fatalf("the chart does not bring %s", want[0].GetName())
		}
		if keep := got.GetAnnotations()["helm.sh/resource-policy"]; keep != "keep" {
			t.Errorf("%s has the resource policy %q", got.GetName(), keep)
		}
		if diff := cmp.Diff(want[0].Object["spec"], got.Object["spec"]); diff != "" {
			t.Errorf("%s: the chart's spec is not the generated one (-generated +chart)\n%s", got.GetName(), diff)
		}
		if v := want[0].GetAnnotations()["controller-gen.kubebuilder.io/version"]; v == "" || got.GetAnnotations()["controller-gen.kubebuilder.io/version"] != v {
			t.Errorf("%s lost the annotations of its generator: %v", got.GetName(), got.GetAnnotations())
		}
	}
	uninstall, _, err := unstructured.NestedMap(r.Find("CustomResourceDefinition", "skyhooks.skyhook.nvidia.com").Object, "spec")
	if err != nil || !strings.Contains(fmt.Sprint(uninstall), "uninstall-interrupt") {
		t.Errorf("the Skyhook CRD does not know the stage uninstall-interrupt (%v)", err)
	}
}

// TestRights: no role has more than the code asks for; above all no wildcards, no escalation, and no Secrets but the name of one.
func TestRights(t *testing.T) {
	r := renderChart(t, matrix["everything"])
	for _, u := range slices.Concat(r.Objects, r.Hooks) {
		if u.GetKind() != "ClusterRole" && u.GetKind() != "Role" {
			continue
		}
		role := findObject(t, r, u.GetKind(), u.GetName(), &rbacv1.ClusterRole{})
		for _, rule := range role.Rules {
			if u.GetKind() == "Role" && cmp.Equal(rule, defaultPullSecret) {
				continue
			}
			for _, word := range slices.Concat(rule.Verbs, rule.Resources, rule.APIGroups) {
				if slices.Contains([]string{"*", "secrets", "escalate", "bind", "impersonate", "roles", "clusterroles", "serviceaccounts/token"}, word) {
					t.Errorf("%s %s allows %s", u.GetKind(), u.GetName(), rule.String())
				}
			}
		}
	}
	for _, u := range slices.Concat(r.Objects, r.Hooks) {
		if !strings.HasSuffix(u.GetKind(), "RoleBinding") {
			continue
		}
		b := findObject(t, r, u.GetKind(), u.GetName(), &rbacv1.ClusterRoleBinding{})
		for _, s := range b.Subjects {
			if s.Name == full+"-packages" {
				t.Errorf("pods of packages have rights, by %s", b.Name)
			}
		}
		kind := b.RoleRef.Kind
		if r.Find(kind, b.RoleRef.Name) == nil {
			t.Errorf("%s binds %s %s, which the chart does not have", b.Name, kind, b.RoleRef.Name)
		}
	}
}

var defaultPullSecret = rbacv1.PolicyRule{APIGroups: []string{""}, Resources: []string{"secrets"}, ResourceNames: []string{"node-init-secret"}, Verbs: []string{"get"}}

// TestPullSecretRight: the operator may ask for the default Secret for pulling images only if it is among those of the chart.
func TestPullSecretRight(t *testing.T) {
	for values, want := range map[string]bool{
		"": true, "imagePullSecrets: [{name: mine}, {name: node-init-secret}]": true, "imagePullSecret: node-init-secret": true,
		"imagePullSecrets: []": false, "imagePullSecrets: null": false, "imagePullSecrets: [{name: mine}]": false,
	} {
		role := findObject(t, renderChart(t, values), "Role", full+"-controller-manager", &rbacv1.Role{})
		isThere := slices.ContainsFunc(role.Rules, func(r rbacv1.PolicyRule) bool { return cmp.Equal(r, defaultPullSecret) })
		if isThere != want {
			t.Errorf("%q: the operator may ask for the Secret: %v", values, isThere)
		}
	}
}

// TestGuardedMetrics: metrics that are guarded are read over https, and only then the operator may ask who reads them; what another
// account may do it asks of the holders of leases, too.
func TestGuardedMetrics(t *testing.T) {
	const monitor = "metrics: {serviceMonitor: {enabled: true}}"
	for values, guarded := range map[string]bool{
		monitor: false,
		"metrics: {tlsSecret: a, serviceMonitor: {enabled: true}}\ncontrollerManager: {manager: {env: {metricsSecure: 'true'}}}":           true,
		"metrics: {serviceMonitor: {enabled: true, insecureSkipVerify: true}}\ncontrollerManager: {manager: {env: {metricsSecure: true}}}": true,
		"controllerManager: {manager: {env: {metricsSecure: 'true', metricsPort: '0'}}}":                                                   false,
		"controllerManager: {manager: {env: {waitForOtherOperators: 'false'}}}":                                                            false,
	} {
		r := renderChart(t, values)
		var reviews []string
		for _, rule := range findObject(t, r, "ClusterRole", "skyhook-operator-manager-role", &rbacv1.ClusterRole{}).Rules {
			if slices.ContainsFunc(rule.APIGroups, func(g string) bool { return g == "authentication.k8s.io" || g == "authorization.k8s.io" }) {
				reviews = append(reviews, rule.Resources...)
			}
		}
		var want []string
		if guarded {
			want = append(want, "tokenreviews")
		}
		if guarded || !strings.Contains(values, "waitForOtherOperators") {
			want = append(want, "subjectaccessreviews")
		}
		if diff := cmp.Diff(want, reviews); diff != "" {
			t.Errorf("%s: the operator may review (-want +got)\n%s", values, diff)
		}
		for _, u := range r.Objects {
			scheme := u.GetAnnotations()["prometheus.io/scheme"]
			if u.GetKind() == "Service" && (scheme == "https") != guarded {
				t.Errorf("%s: Prometheus is told to use %q", values, scheme)
			}
			ends, _, err := unstructured.NestedSlice(u.Object, "spec", "endpoints")
			if said := fmt.Sprint(ends); u.GetKind() == "ServiceMonitor" && (err != nil || strings.Contains(said, "scheme:https") != guarded || strings.Contains(said, "bearerTokenFile:/") != guarded) {
				t.Errorf("%s: the ServiceMonitor reads %s (%v)", values, said, err)
			}
		}
	}
}

// TestPods: nothing of ours runs as root, writes to its root, or gets a token that does not expire.
func TestPods(t *testing.T) {
	r := renderChart(t, "cleanup: {enabled: true}")
	for what, pod := range map[string]corev1.PodSpec{"operator": findDeployment(t, r).Spec.Template.Spec, "clean-up": findJob(t, r).Spec.Template.Spec} {
		s, c := pod.SecurityContext, pod.Containers[0].SecurityContext
		if s == nil || !*s.RunAsNonRoot || *s.RunAsUser != 10001 || s.SeccompProfile.Type != corev1.SeccompProfileTypeRuntimeDefault {
			t.Errorf("%s: security context of the pod is %v", what, s)
		}
		if c == nil || *c.AllowPrivilegeEscalation || !*c.ReadOnlyRootFilesystem || !slices.Equal(c.Capabilities.Drop, []corev1.Capability{"ALL"}) || c.Privileged != nil {
			t.Errorf("%s: security context of the container is %v", what, c)
		}
		if pod.AutomountServiceAccountToken == nil || *pod.AutomountServiceAccountToken {
			t.Errorf("%s: a token is mounted without end", what)
		}
		if len(pod.Volumes) != 1 || *pod.Volumes[0].Projected.Sources[0].ServiceAccountToken.ExpirationSeconds != 3607 {
			t.Errorf("%s: volumes are %v", what, pod.Volumes)
		}
		if len(pod.Containers[0].Resources.Limits) != 2 || len(pod.Containers[0].Resources.Requests) != 2 {
			t.Errorf("%s: resources are %v", what, pod.Containers[0].Resources)
		}
	}
	env := environmentOf(findManager(t, r))
	if env["PACKAGE_SERVICE_ACCOUNT"] != full+"-packages" || env["NAMESPACE"] != "$metadata.namespace" || env["NODE_NAME"] != "$spec.nodeName" || env["OWN_SERVICE_ACCOUNT"] != "$spec.serviceAccountName" {
		t.Errorf("the operator is told %v", env)
	}
	packages := findObject(t, r, "ServiceAccount", full+"-packages", &corev1.ServiceAccount{})
	if packages.AutomountServiceAccountToken == nil || *packages.AutomountServiceAccountToken {
		t.Error("pods of packages get a token")
	}
}

// TestResources: computed from the estimates, unless given.
func TestResources(t *testing.T) {
	for _, c := range []struct{ values, cpuLimit, memoryLimit, cpu, memory string }{
		{"", "1000m", "512Mi", "100m", "128Mi"},
		{"{estimatedNodeCount: 1000, estimatedPackageCount: 2}", "1000m", "512Mi", "100m", "192Mi"},
		{"{estimatedNodeCount: 2501, estimatedPackageCount: 1}", "1001m", "602Mi", "251m", "301Mi"},
		{"{estimatedNodeCount: 5000, estimatedPackageCount: 10}", "2", "1616Mi", "500m", "808Mi"},
		{"{estimatedNodeCount: 10000, estimatedPackageCount: 0}", "4", "1616Mi", "1", "808Mi"},
		{"{estimatedNodeCount: 0, estimatedPackageCount: 0}", "1000m", "512Mi", "100m", "128Mi"},
		{"{estimatedNodeCount: 5000, controllerManager: {manager: {resources: {limits: {cpu: 1, memory: 1Gi}, requests: {cpu: 100m, memory: 128Mi}}}}}", "1", "1Gi", "100m", "128Mi"},
	} {
		r := findManager(t, renderChart(t, c.values)).Resources
		got := []string{r.Limits.Cpu().String(), r.Limits.Memory().String(), r.Requests.Cpu().String(), r.Requests.Memory().String()}
		want := []string{c.cpuLimit, c.memoryLimit, c.cpu, c.memory}
		for i, w := range want {
			if got[i] != w && !(w == "1000m" && got[i] == "1") {
				t.Errorf("%s gives %v, want %v", c.values, got, want)
				break
			}
		}
	}
}

// TestRuntimeLimits: the Go runtime runs as many threads at the same time as the CPU limit has cores and keeps to the memory limit, unless
// somebody else says how much.
func TestRuntimeLimits(t *testing.T) {
	for values, want := range map[string]map[string]string{
		"": {"GOMAXPROCS": "limits.cpu", "GOMEMLIMIT": "limits.memory"},
		"controllerManager: {manager: {extraEnv: [{name: GOMEMLIMIT, value: 1GiB}]}}":                                 {"GOMAXPROCS": "limits.cpu", "GOMEMLIMIT": "1GiB"},
		"controllerManager: {manager: {extraEnv: [{name: GOMEMLIMIT, value: 1GiB}, {name: GOMAXPROCS, value: '3'}]}}": {"GOMAXPROCS": "3", "GOMEMLIMIT": "1GiB"},
	} {
		got := map[string][]string{}
		for _, e := range findManager(t, renderChart(t, values)).Env {
			value := e.Value
			if e.ValueFrom != nil && e.ValueFrom.ResourceFieldRef != nil {
				value = e.ValueFrom.ResourceFieldRef.Resource
			}
			got[e.Name] = append(got[e.Name], value)
		}
		for name, value := range want {
			if !slices.Equal(got[name], []string{value}) {
				t.Errorf("%s gives %s %v, want %s", values, name, got[name], value)
			}
		}
	}
}

// TestResourcesFitMeasurements: of what an operator took at its highest, a half more fits into the limit and a tenth more
// into the request. The points are those of docs/internals/scale.md, with two packages.
func TestResourcesFitMeasurements(t *testing.T) {
	page, err := os.ReadFile("../../../docs/internals/scale.md")
	if err != nil {
		t.Fatal(err)
	}
	points := regexp.MustCompile(`(?m)^\| ([0-9,]+) \| [^|]+ \|(?: [^|]+ \|){3} \**([0-9]+) MiB`).FindAllStringSubmatch(string(page), -1)
	if len(points) < 4 {
		t.Fatalf("the page has the points %v", points)
	}
	for _, p := range points {
		nodes := strings.ReplaceAll(p[1], ",", "")
		highest, err := resource.ParseQuantity(p[2] + "Mi")
		if err != nil {
			t.Fatal(err)
		}
		r := findManager(t, renderChart(t, "{estimatedNodeCount: "+nodes+", estimatedPackageCount: 2}")).Resources
		if r.Limits.Memory().Value() < highest.Value()*3/2 || r.Requests.Memory().Value() < highest.Value()*11/10 {
			t.Errorf("%s nodes took %s, and get a request of %s and a limit of %s", p[1], &highest, r.Requests.Memory(), r.Limits.Memory())
		}
	}
}

// TestNames: as documented, and never longer than Kubernetes takes.
func TestNames(t *testing.T) {
	for _, c := range []struct{ release, values, want string }{
		{"skyhook", "", "skyhook-operator"},
		{"skyhook", "fullnameOverride: skyhook-skyhook-operator", "skyhook-skyhook-operator"},
		{"sky", "", "sky-skyhook-operator"},
		{"operator", "", "operator-skyhook-operator"},
		{"skyhook-operator", "", "skyhook-operator"},
		{"my-skyhook-operator", "", "my-skyhook-operator"},
		{"skyhook", "nameOverride: sky", "skyhook"},
		{"a", "nameOverride: sky", "a-sky"},
		{"a", "fullnameOverride: f", "f"},
		{strings.Repeat("long-", 10) + "end", "", strings.Repeat("long-", 8) + "long"},
		{"a", "fullnameOverride: " + strings.Repeat("n", 63), strings.Repeat("n", 44)},
	} {
		r := renderWith(t, Options{Release: c.release, Values: c.values})
		if r.Find("Deployment", c.want+"-controller-manager") == nil {
			t.Errorf("release %s with %q: there is no Deployment %s-controller-manager", c.release, c.values, c.want)
		}
		for _, u := range slices.Concat(r.Objects, r.Hooks) {
			if strings.Contains("Deployment Job Service", u.GetKind()) && len(u.GetName()) > 63 {
				t.Errorf("release %s: the name %s has more than 63 characters", c.release, u.GetName())
			}
			for key, value := range u.GetLabels() {
				if len(value) > 63 {
					t.Errorf("release %s: the label %s of %s has more than 63 characters", c.release, key, u.GetName())
				}
			}
		}
	}
	// these are named in other people's bindings, dashboards and scripts
	everything := renderChart(t, matrix["everything"])
	for kind, names := range map[string][]string{
		"ClusterRole":         {"skyhook-viewer-role", "skyhook-editor-role", "skyhook-operator-metrics-reader", "skyhook-operator-manager-role"},
		"Service":             {"skyhook-operator-controller-manager-metrics-service"},
		"LimitRange":          {full + "-default-limits"},
		"Job":                 {full + "-skyhook-cleanup"},
		"NetworkPolicy":       {full + "-controller-manager"},
		"PodDisruptionBudget": {full + "-controller-manager-pdb"},
	} {
		for _, name := range names {
			if everything.Find(kind, name) == nil {
				t.Errorf("there is no %s %s", kind, name)
			}
		}
	}
}

// TestSelector: what a Deployment selects by can never change, so manifests rendered without a cluster have the selector of
// the predecessor's charts up to v0.16, unless they are given another one.
func TestSelector(t *testing.T) {
	for _, c := range []struct {
		release, values string
		want            map[string]string
	}{
		{"skyhook-operator", "", map[string]string{"control-plane": "controller-manager", "app.kubernetes.io/name": "skyhook-operator", "app.kubernetes.io/instance": "skyhook-operator"}},
		{"gpu", matrix["everything"], map[string]string{"control-plane": "controller-manager", "app.kubernetes.io/name": "skyhook-operator", "app.kubernetes.io/instance": "gpu"}},
		{"gpu", "{fullnameOverride: skyhook-operator, controllerManager: {selectorLabels: {app.kubernetes.io/name: nodewright, a: b}}}", map[string]string{"app.kubernetes.io/name": "nodewright", "a": "b"}},
	} {
		r := renderWith(t, Options{Release: c.release, Values: c.values})
		name := "gpu-skyhook-operator-controller-manager"
		if r.Find("Deployment", name) == nil {
			name = "skyhook-operator-controller-manager"
		}
		d := findObject(t, r, "Deployment", name, &appsv1.Deployment{})
		if diff := cmp.Diff(c.want, d.Spec.Selector.MatchLabels); diff != "" {
			t.Errorf("release %s with %q: the selector changed (-want +got)\n%s", c.release, c.values, diff)
		}
		requireSelected(t, r, d.Spec.Template.Labels)
	}
}

// TestSelects: whatever selects pods of ours by label finds those that the Deployment makes, and the ServiceMonitor finds
// the Service.
func TestSelects(t *testing.T) {
	r := renderChart(t, matrix["everything"])
	if seen := requireSelected(t, r, findDeployment(t, r).Spec.Template.Labels); len(seen) != 5 {
		t.Errorf("the chart has %v only", seen)
	}
}

// TestPorts: other pods reach the ports for metrics and probes of the operator and no others, such as the one for profiles, whatever
// ports it has.
func TestPorts(t *testing.T) {
	for values, want := range map[string][]int32{
		"controllerManager: {manager: {env: {pprofPort: ':6060'}}}":                                       {8080, 8081},
		"controllerManager: {manager: {env: {pprofPort: ':6060', metricsPort: ':9090', probePort: '0'}}}": {9090},
		"controllerManager: {manager: {env: {pprofPort: ':6060', metricsPort: '0', probePort: '0'}}}":     nil,
	} {
		r := renderChart(t, values)
		policy := findObject(t, r, "NetworkPolicy", full+"-controller-manager", &networkingv1.NetworkPolicy{})
		var got []int32
		for _, rule := range policy.Spec.Ingress {
			if len(rule.Ports) == 0 {
				t.Errorf("%s: a rule admits every port", values)
			}
			for _, p := range rule.Ports {
				got = append(got, p.Port.IntVal)
			}
		}
		if !slices.Equal(got, want) || !slices.Contains(policy.Spec.PolicyTypes, networkingv1.PolicyTypeIngress) {
			t.Errorf("%s: %v admits the ports %v, want %v", values, policy.Spec.PolicyTypes, got, want)
		}
	}
}

// requireSelected checks that everything that selects the operator's pods finds them. It returns the kinds that do.
func requireSelected(t *testing.T, r *Result, pod map[string]string) map[string]bool {
	t.Helper()
	seen := map[string]bool{}
	for _, u := range r.Objects {
		at, of := []string{"spec", "selector", "matchLabels"}, pod
		switch u.GetKind() {
		case "Service":
			at = []string{"spec", "selector"}
		case "NetworkPolicy":
			at = []string{"spec", "podSelector", "matchLabels"}
		case "ServiceMonitor":
			of = r.Find("Service", "skyhook-operator-controller-manager-metrics-service").GetLabels()
		case "PodDisruptionBudget", "Deployment":
		default:
			continue
		}
		seen[u.GetKind()] = true
		want, _, err := unstructured.NestedStringMap(u.Object, at...)
		if err != nil || len(want) == 0 {
			t.Errorf("%s %s selects by %v (%v)", u.GetKind(), u.GetName(), want, err)
		}
		for key, value := range want {
			if of[key] != value {
				t.Errorf("%s %s selects %s=%s, and there is %v", u.GetKind(), u.GetName(), key, value, of)
			}
		}
	}
	return seen
}

// TestSwitches: what is turned off is not there, and nothing points to it.
func TestSwitches(t *testing.T) {
	for _, c := range []struct {
		values string
		absent []string // kinds
	}{
		{"limitRange: null", []string{"LimitRange"}},
		{"limitRange: false", []string{"LimitRange"}},
		{"networkPolicy: {enabled: false}", []string{"NetworkPolicy"}},
		{"controllerManager: {podDisruptionBudget: {minAvailable: 0}}", []string{"PodDisruptionBudget"}},
		{"controllerManager: {podDisruptionBudget: {minAvailable: false}}", []string{"PodDisruptionBudget"}},
		{"crds: {install: false}", []string{"CustomResourceDefinition"}},
		{"{operatorPods: {restrict: false}, admissionWarnings: {create: false}}", []string{"ValidatingAdmissionPolicy", "ValidatingAdmissionPolicyBinding"}},
		{"controllerManager: {manager: {env: {metricsPort: '0'}}}", []string{"Service"}},
		{"", []string{"Job", "ServiceMonitor", "ValidatingWebhookConfiguration", "MutatingWebhookConfiguration", "Secret", "Namespace"}},
	} {
		r := renderChart(t, c.values)
		for _, u := range slices.Concat(r.Objects, r.Hooks) {
			if slices.Contains(c.absent, u.GetKind()) {
				t.Errorf("with %s there is still the %s %s", c.values, u.GetKind(), u.GetName())
			}
		}
	}
	if c := findManager(t, renderChart(t, "controllerManager: {manager: {env: {probePort: '0', metricsPort: '0'}}}")); c.LivenessProbe != nil || c.ReadinessProbe != nil || len(c.Ports) > 0 {
		t.Errorf("nothing listens, and still there are ports %v and probes %v %v", c.Ports, c.LivenessProbe, c.ReadinessProbe)
	}
	c := findManager(t, renderChart(t, "controllerManager: {manager: {env: {probePort: ':9091', metricsPort: '0.0.0.0:9090'}}}"))
	if len(c.Ports) != 2 || c.Ports[0].ContainerPort != 9090 || c.Ports[1].ContainerPort != 9091 || c.LivenessProbe.HTTPGet.Port.String() != "probes" {
		t.Errorf("other ports give %v and %v", c.Ports, c.LivenessProbe)
	}
}

// TestOperatorPods: each policy about the operator's account is bound, denies, and names the account that the Deployment has.
func TestOperatorPods(t *testing.T) {
	for values, account := range map[string]string{
		"":                            "system:serviceaccount:skyhook:skyhook-operator-controller-manager",
		"serviceAccount: {name: own}": "system:serviceaccount:skyhook:own",
	} {
		r := renderChart(t, values)
		for _, name := range []string{"skyhook-operator-pods", "skyhook-operator-changes", "skyhook-operator-nodeops"} {
			var p admissionv1.ValidatingAdmissionPolicy
			var b admissionv1.ValidatingAdmissionPolicyBinding
			for kind, into := range map[string]client.Object{"ValidatingAdmissionPolicy": &p, "ValidatingAdmissionPolicyBinding": &b} {
				u := r.Find(kind, name)
				if u == nil {
					t.Fatalf("there is no %s %s", kind, name)
				}
				if err := Into(u, into); err != nil {
					t.Fatal(err)
				}
			}
			if b.Spec.PolicyName != name || !slices.Equal(b.Spec.ValidationActions, []admissionv1.ValidationAction{admissionv1.Deny}) || *p.Spec.FailurePolicy != admissionv1.Fail {
				t.Errorf("%s does not deny: %+v", name, b.Spec)
			}
			if conditions := p.Spec.MatchConditions; len(conditions) != 1 || conditions[0].Expression != "request.userInfo.username == '"+account+"'" {
				t.Errorf("%s is about %v, want %s", name, conditions, account)
			}
		}
	}
}

// TestNotes: what is ignored is said, and only then.
func TestNotes(t *testing.T) {
	for name, words := range map[string][]string{
		"no proxy, no hooks":  {"controllerManager.kubeRbacProxy:", "webhook:", "webhookService:"},
		"NodeWright's values": {"webhook:", "selectorMigration:", "env.jobStageTimeout: set stageDeadline", "env.jobBackoffLimit:", "env.jobTtlSucceeded:", "env.jobTtlFailed:", "env.legacyCleanupDelay:", "env.publishLegacyMetrics:"},
	} {
		quiet, loud := renderChart(t, ""), renderChart(t, matrix[name])
		for _, word := range words {
			if strings.Contains(quiet.Notes, word) || !strings.Contains(loud.Notes, word) {
				t.Errorf("the notes say %q without reason, or do not say it:\n%s\n---\n%s", word, quiet.Notes, loud.Notes)
			}
		}
		if renderedText(t, quiet) != renderedText(t, loud) {
			t.Errorf("ignored values of %s change what is rendered", name)
		}
	}
	if notes := renderChart(t, "cleanup: {enabled: false}").Notes; !strings.Contains(notes, "leaves Skyhooks") {
		t.Errorf("without clean-up the notes say\n%s", notes)
	}
	for values, isSaid := range map[string]bool{
		"profile: Recommended": true, "profile: Compatible": false, "{profile: Compatible, settings: {podLayout: Compact}}": true, "{profile: Recommended, settings: {podLayout: Compatible}}": false,
	} {
		if notes := renderChart(t, values).Notes; strings.Contains(notes, "spec.volumes[].image") != isSaid {
			t.Errorf("with %s the notes say about images of volumes: %v\n%s", values, !isSaid, notes)
		}
	}
}

// TestRightsInNamespaces: with nodeOpNamespaces the operator may create pods and Jobs in these namespaces, and pods in its own; without, in all.
func TestRightsInNamespaces(t *testing.T) {
	creates := func(values string) (out []string) {
		r := renderChart(t, values)
		note := func(where string, rules []rbacv1.PolicyRule) {
			for _, rule := range rules {
				for _, resource := range rule.Resources {
					if slices.Contains(rule.Verbs, "create") && (resource == "pods" || resource == "jobs") {
						out = append(out, where+" "+resource)
					}
				}
			}
		}
		for _, u := range r.Objects {
			switch u.GetKind() {
			case "ClusterRole":
				note("everywhere", findObject(t, r, u.GetKind(), u.GetName(), &rbacv1.ClusterRole{}).Rules)
			case "Role":
				role := &rbacv1.Role{}
				if err := Into(u, role); err != nil {
					t.Fatal(err)
				}
				note(u.GetNamespace(), role.Rules)
			}
		}
		slices.Sort(out)
		return out
	}
	if diff := cmp.Diff([]string{"everywhere jobs", "everywhere pods"}, creates("")); diff != "" {
		t.Errorf("by default (-want +got):\n%s", diff)
	}
	want := []string{"edge jobs", "edge pods", "ops jobs", "ops pods", "skyhook pods"}
	if diff := cmp.Diff(want, creates("controllerManager: {manager: {env: {nodeOpNamespaces: \"ops, edge\"}}}")); diff != "" {
		t.Errorf("with namespaces (-want +got):\n%s", diff)
	}
}
