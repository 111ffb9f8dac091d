// SPDX-FileCopyrightText: The Skyhook authors
// SPDX-License-Identifier: Apache-2.0

package live

import (
	"bufio"
	"context"
	"encoding/json"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	admissionv1 "k8s.io/api/admissionregistration/v1"
	appsv1 "k8s.io/api/apps/v1"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	opv1 "github.com/skyhook-k8s/skyhook/api/nodeop/v1alpha1"
	"github.com/skyhook-k8s/skyhook/api/skyhook/v1alpha1"
	"github.com/skyhook-k8s/skyhook/test/testenv"
)

// quietly are values for an operator that opens no ports on this machine.
const quietly = "controllerManager.manager.env.metricsPort=0,controllerManager.manager.env.probePort=0"

// unheard are rights that no request shows, and why they are there.
var unheard = map[string]string{
	"cluster update skyhooks/finalizers.skyhook.nvidia.com":       "the API server asks for it when it admits a pod with an owner; without it the pods of this test would be refused",
	"cluster update nodeops/finalizers.operator.kairos.io":        "likewise, for Jobs and pods of NodeOps",
	"cluster update nodeopupgrades/finalizers.operator.kairos.io": "likewise, for NodeOps of upgrades",
	"cluster list nodewrights.nodewright.nvidia.com":              "asked for where the CRD exists",
	"namespace get controllerrevisions.apps":                      "asked for when one exists that was not listed",
	"cluster get jobs.batch":                                      "asked for when a Job exists already, or does not appear in time",
}

// TestRights takes the operator through all it ever does, with the rights of the chart and not one more. No request may
// be refused for want of a right, and every right has to be used.
func TestRights(t *testing.T) {
	removeCRDs(t)
	w := testenv.New(t, plane, 2)
	mustHelm(t, "v4", w.Namespace, "install", releaseName, "chart", "--set-string", quietly+",controllerManager.manager.env.podLayout=Compact", "--set", "defaultDeploymentPolicy.create=true")
	kubelet := w.StartKubelet()
	createWebhooks(t, w)
	tenant := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: w.Namespace + "-tenant"}} // whose lease holds up nobody
	w.Must(w.Client.Create(context.Background(), tenant))
	createHolder(w, tenant.Name)
	w.Must(w.Client.Create(context.Background(), newHeldLease(tenant.Name)))
	p, end := startOperator(t, w.Namespace)
	w.Eventually("the webhooks of an earlier operator are gone", func() bool {
		left := &admissionv1.MutatingWebhookConfigurationList{}
		w.Must(w.Client.List(context.Background(), left))
		return len(left.Items) == 0
	})
	runSkyhook(t, w)
	recallStages(t, w, kubelet)
	end()
	if strings.Contains(strings.ToLower(p.log.String()), "forbidden") {
		t.Errorf("the operator was forbidden something:\n%s", p.log)
	}
	compareRights(t, w)
}

// createWebhooks creates the webhooks of an earlier operator: nothing serves them, so every write of a Skyhook fails.
func createWebhooks(t *testing.T, w *testenv.Env) {
	t.Helper()
	fail, none, path := admissionv1.Fail, admissionv1.SideEffectClassNone, "/x"
	rules := []admissionv1.RuleWithOperations{{
		Operations: []admissionv1.OperationType{admissionv1.OperationAll},
		Rule:       admissionv1.Rule{APIGroups: []string{v1alpha1.Group}, APIVersions: []string{"*"}, Resources: []string{"*/*"}},
	}}
	nobody := admissionv1.WebhookClientConfig{Service: &admissionv1.ServiceReference{Namespace: w.Namespace, Name: "nobody", Path: &path}}
	var all []client.Object
	for _, prefix := range []string{"skyhook-operator", "nodewright", releaseName + "-nodewright"} { // the names that the operator may delete
		all = append(all,
			&admissionv1.ValidatingWebhookConfiguration{
				ObjectMeta: metav1.ObjectMeta{Name: prefix + "-validating-webhook"},
				Webhooks: []admissionv1.ValidatingWebhook{{
					Name: "validate-skyhook.nvidia.com", FailurePolicy: &fail, SideEffects: &none, Rules: rules, ClientConfig: nobody, AdmissionReviewVersions: []string{"v1"},
				}},
			},
			&admissionv1.MutatingWebhookConfiguration{
				ObjectMeta: metav1.ObjectMeta{Name: prefix + "-mutating-webhook"},
				Webhooks: []admissionv1.MutatingWebhook{{
					Name: "mutate-skyhook.nvidia.com", FailurePolicy: &fail, SideEffects: &none, Rules: rules, ClientConfig: nobody, AdmissionReviewVersions: []string{"v1"},
				}},
			},
		)
	}
	for _, o := range all {
		w.Must(w.Client.Create(context.Background(), o))
	}
	w.Eventually("a write of a Skyhook is refused", func() bool {
		err := w.Client.Create(context.Background(), &v1alpha1.Skyhook{ObjectMeta: metav1.ObjectMeta{Name: "refused"}}, client.DryRunAll)
		return err != nil && strings.Contains(err.Error(), "webhook")
	})
}

const manifest = `
apiVersion: skyhook.nvidia.com/v1alpha1
kind: Skyhook
metadata: {name: rights}
spec:
  deploymentPolicy: shared
  nodeSelectors: {matchLabels: {pool: gpu}}
  drainConfig: {timeout: 1s, onTimeout: Force}
  revisionHistoryLimit: 1
  nodeMarks: {labels: {example.com/deploy: paused}}
  packages:
    driver:
      version: VERSION
      image: registry.example/driver
      interrupt: {type: reboot}
      uninstall: {enabled: true}
      configMap: {a.conf: CONTENT}
`

// runSkyhook makes the operator use all of its permissions for Skyhooks.
func runSkyhook(t *testing.T, w *testenv.Env) {
	t.Helper()
	elsewhere := map[string]string{"app": "elsewhere"} // a DaemonSet that asks for no node here
	w.Must(w.Client.Create(context.Background(), &appsv1.DaemonSet{
		ObjectMeta: metav1.ObjectMeta{Namespace: w.Namespace, Name: "elsewhere", Labels: elsewhere},
		Spec: appsv1.DaemonSetSpec{Selector: &metav1.LabelSelector{MatchLabels: elsewhere}, Template: corev1.PodTemplateSpec{
			ObjectMeta: metav1.ObjectMeta{Labels: elsewhere},
			Spec:       corev1.PodSpec{NodeSelector: map[string]string{"pool": "none"}, Containers: []corev1.Container{{Name: "c", Image: "i"}}},
		}},
	}))
	w.Apply(`
apiVersion: skyhook.nvidia.com/v1alpha1
kind: DeploymentPolicy
metadata: {name: shared}
spec:
  scope: Policy
  default: {budget: {count: 1}, strategy: {fixed: {initialBatch: 1}}}
  proof: {daemonSets: [` + w.Namespace + `/elsewhere]}
`)
	// a workload that its budget protects: it is evicted in vain, then deleted by force
	w.Apply(`
apiVersion: policy/v1
kind: PodDisruptionBudget
metadata: {name: never, namespace: ` + w.Namespace + `}
spec: {maxUnavailable: 0, selector: {matchLabels: {app: web}}}
`)
	w.Apply(`
apiVersion: v1
kind: Pod
metadata: {name: web, namespace: ` + w.Namespace + `, labels: {app: web}}
spec: {nodeName: n1, terminationGracePeriodSeconds: 0, containers: [{name: c, image: i}]}
`)
	say := func(version, content string) {
		w.Apply(strings.NewReplacer("VERSION", version, "CONTENT", content).Replace(manifest))
	}
	w.Apply(strings.NewReplacer("VERSION", "1.0.0", "CONTENT", "one", "timeout: 1s", "timeout: 1h").Replace(manifest))
	w.Eventually("the eviction was asked for", func() bool {
		return slices.ContainsFunc(listRequests(t, w.Namespace), func(r request) bool { return r.ObjectRef.Subresource == "eviction" })
	})
	say("1.0.0", "one") // it has lasted too long now
	w.WaitComplete("rights")

	say("1.0.0", "two") // the ConfigMap is updated
	w.WaitComplete("rights")
	rerunPackage(t, w)
	say("1.0.0", "one") // an earlier revision becomes the newest
	w.WaitComplete("rights")
	// a ConfigMap of the documented name that the operator's cache does not show
	foreign := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{
		Namespace: w.Namespace, Name: "rights-driver-2.0.0", Labels: map[string]string{v1alpha1.LabelNodeMeta: "rights"},
	}}
	w.Must(w.Client.Create(context.Background(), foreign))
	say("2.0.0", "two") // another ConfigMap replaces the first
	w.Eventually("the operator looked at the ConfigMap that it could not create", func() bool {
		return hasRequested(t, w, "get", "configmaps")
	})
	w.Must(w.Client.Delete(context.Background(), foreign))
	w.WaitComplete("rights")

	runNodeOps(t, w)
	// a hold whose owner does not exist
	w.Patch(w.GetNode("n2"), `{"metadata":{"annotations":{"skyhook.nvidia.com/cordon_ghost":"true"}}}`)
	w.Eventually("the operator looked for the owner of the hold", func() bool {
		return hasRequested(t, w, "list", "skyhooks")
	})
	w.Must(w.Client.Delete(context.Background(), w.GetSkyhook("rights")))
	w.Eventually("the Skyhook is gone", func() bool {
		return apierrors.IsNotFound(w.Client.Get(context.Background(), client.ObjectKey{Name: "rights"}, &v1alpha1.Skyhook{}))
	})
}

// runNodeOps takes a NodeOp through its life, and has one made for an upgrade.
func runNodeOps(t *testing.T, w *testenv.Env) {
	t.Helper()
	ctx := context.Background()
	w.Patch(w.GetNode("n2"), `{"metadata":{"annotations":{"operator.kairos.io/cordoned-by":"default/ghost@some-uid"}}}`)
	w.Eventually("the operator looked for the NodeOp that cordoned the node", func() bool { return hasRequested(t, w, "list", "nodeops") })
	w.Apply(`
apiVersion: operator.kairos.io/v1alpha1
kind: NodeOpUpgrade
metadata: {name: upgrade, namespace: ` + w.Namespace + `}
spec: {image: registry.example/kairos, nodeSelector: {matchLabels: {pool: none}}}
`)
	w.Eventually("the upgrade has a NodeOp", func() bool {
		u := &opv1.NodeOpUpgrade{}
		return w.Client.Get(ctx, client.ObjectKey{Namespace: w.Namespace, Name: "upgrade"}, u) == nil && u.Status.Phase == opv1.PhasePending && u.Status.NodeOpName != ""
	})
	w.Apply(`
apiVersion: operator.kairos.io/v1alpha1
kind: NodeOp
metadata: {name: check, namespace: ` + w.Namespace + `}
spec: {command: [date], nodeSelector: {matchLabels: {pool: gpu}}, ttlSecondsAfterFinished: 0}
`)
	w.Eventually("both nodes ran their Jobs, and the NodeOp is deleted with them", func() bool {
		finishJobs(w, true)
		return hasRequested(t, w, "delete", "jobs") && hasRequested(t, w, "delete", "nodeops")
	})
	deleteRunningNodeOp(t, w)
}

// deleteRunningNodeOp deletes a NodeOp while its command runs: its Job is kept from starting another attempt.
func deleteRunningNodeOp(t *testing.T, w *testenv.Env) {
	t.Helper()
	ctx := context.Background()
	key := client.ObjectKey{Namespace: w.Namespace, Name: "endless"}
	w.Apply(`
apiVersion: operator.kairos.io/v1alpha1
kind: NodeOp
metadata: {name: endless, namespace: ` + w.Namespace + `}
spec: {command: ["false"], nodeSelector: {matchLabels: {pool: gpu}}}
`)
	w.Eventually("the Jobs of the NodeOp exist", func() bool {
		jobs := &batchv1.JobList{}
		return w.Client.List(ctx, jobs, client.MatchingLabels{opv1.LabelNodeOp: key.Name}) == nil && len(jobs.Items) > 0
	})
	w.Must(w.Client.Delete(ctx, &opv1.NodeOp{ObjectMeta: metav1.ObjectMeta{Namespace: key.Namespace, Name: key.Name}}))
	w.Eventually("the operator lowered the limit of a Job", func() bool { return hasRequested(t, w, "patch", "jobs") })
	w.Eventually("the NodeOp is gone", func() bool {
		finishJobs(w, false)
		return apierrors.IsNotFound(w.Client.Get(ctx, key, &opv1.NodeOp{}))
	})
}

// recallStages edits a package while a pod has stages of it ahead: the pod is told to end before them. Stages share a pod
// only where the digest of the image is known.
func recallStages(t *testing.T, w *testenv.Env, kubelet *testenv.Kubelet) {
	t.Helper()
	kubelet.SetOutcome(func(*corev1.Pod) testenv.Outcome { return testenv.Hangs })
	digest := "sha256:" + strings.Repeat("a", 64)
	compact := `
apiVersion: skyhook.nvidia.com/v1alpha1
kind: Skyhook
metadata: {name: recalled}
spec:
  nodeSelectors: {matchLabels: {pool: gpu}}
  packages: {driver: {version: 1.0.0, image: registry.example/driver, containerSHA: "` + digest + `", env: [{name: A, value: CONTENT}]}}
`
	w.Apply(strings.Replace(compact, "CONTENT", "one", 1))
	w.Eventually("a pod of the Skyhook runs", func() bool {
		pods := &corev1.PodList{}
		w.Must(w.Client.List(context.Background(), pods, client.InNamespace(w.Namespace), client.MatchingLabels{v1alpha1.LabelName: "recalled"}))
		return len(pods.Items) > 0 && len(pods.Items[0].Status.ContainerStatuses) > 0
	})
	w.Apply(strings.Replace(compact, "CONTENT", "two", 1))
	w.Eventually("the operator told a pod to end before its next stage", func() bool { return hasRequested(t, w, "patch", "pods") })
}

// finishJobs ends the Jobs of NodeOps, as the Job controller would.
func finishJobs(w *testenv.Env, well bool) {
	ctx, jobs := context.Background(), &batchv1.JobList{}
	if w.Client.List(ctx, jobs, client.HasLabels{opv1.LabelNodeOp}) != nil {
		return // it is tried again
	}
	for i := range jobs.Items {
		_ = w.FinishJob(ctx, &jobs.Items[i], well, time.Now()) // it is tried again
	}
}

// rerunPackage runs a package again on n1, where a foreign pod has the name that the next pod needs.
func rerunPackage(t *testing.T, w *testenv.Env) {
	t.Helper()
	name := ""
	for _, r := range listRequests(t, w.Namespace) {
		if r.Verb == "create" && r.ObjectRef.Resource == "pods" && strings.HasPrefix(r.ObjectRef.Name, "rights-driver-1-0-0-apply-n1") {
			name = r.ObjectRef.Name
		}
	}
	if name == "" {
		t.Fatal("the API server's log does not show the pod for the stage apply on n1")
	}
	squatter := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Namespace: w.Namespace, Name: name},
		Spec:       corev1.PodSpec{NodeName: "n2", Containers: []corev1.Container{{Name: "c", Image: "i"}}},
	}
	w.Must(w.Client.Create(context.Background(), squatter))
	w.Patch(w.GetNode("n1"), `{"metadata":{"annotations":{"skyhook.nvidia.com/nodeState_rights":null}}}`)
	w.Eventually("the operator looked at the pod that it could not create", func() bool { return hasRequested(t, w, "get", "pods") })
	w.Eventually("the operator said so again", func() bool { return hasRequested(t, w, "patch", "events") })
	w.Must(w.Client.Delete(context.Background(), squatter, client.GracePeriodSeconds(0)))
	w.WaitComplete("rights")
}

// request is a line of the API server's audit log.
type request struct {
	Verb           string
	User           struct{ Username string }
	ObjectRef      struct{ APIGroup, Resource, Subresource, Namespace, Name string }
	ResponseStatus struct {
		Code    int
		Message string
	}
	RequestURI string
}

// hasRequested reports whether the operator has sent such a request.
func hasRequested(t *testing.T, w *testenv.Env, verb, resource string) bool {
	t.Helper()
	return slices.ContainsFunc(listRequests(t, w.Namespace), func(r request) bool { return r.Verb == verb && r.ObjectRef.Resource == resource })
}

// listRequests lists the requests of the operator in a namespace.
func listRequests(t *testing.T, namespace string) []request {
	t.Helper()
	f, err := os.Open(auditLog)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = f.Close() }()
	var out []request
	lines := bufio.NewScanner(f)
	lines.Buffer(nil, 1<<20)
	for lines.Scan() {
		var r request
		if json.Unmarshal(lines.Bytes(), &r) != nil {
			continue // the last line may not be whole yet
		}
		if r.User.Username == "system:serviceaccount:"+namespace+":"+releaseName+"-controller-manager" {
			out = append(out, r)
		}
	}
	if err := lines.Err(); err != nil {
		t.Fatal(err)
	}
	return out
}

// compareRights compares the operator's requests with its permissions.
func compareRights(t *testing.T, w *testenv.Env) {
	t.Helper()
	var cluster rbacv1.ClusterRole
	var here rbacv1.Role
	w.Must(w.Client.Get(context.Background(), client.ObjectKey{Name: "skyhook-operator-manager-role"}, &cluster))
	w.Must(w.Client.Get(context.Background(), client.ObjectKey{Namespace: w.Namespace, Name: releaseName + "-controller-manager"}, &here))
	unused := map[string]bool{}
	for scope, rules := range map[string][]rbacv1.PolicyRule{"cluster": cluster.Rules, "namespace": here.Rules} {
		for _, r := range rules {
			for _, right := range expandRule(scope, r) {
				unused[right] = true
			}
		}
	}
	for _, r := range listRequests(t, w.Namespace) {
		if r.ResponseStatus.Code == 403 && !strings.Contains(r.ResponseStatus.Message, "because it is being terminated") {
			t.Errorf("%s %s is forbidden: %s", r.Verb, r.RequestURI, r.ResponseStatus.Message)
		}
		what := r.Verb + " " + strings.TrimSuffix(r.ObjectRef.Resource+"/"+r.ObjectRef.Subresource, "/") + "." + r.ObjectRef.APIGroup
		for _, right := range []string{"namespace " + what, "cluster " + what, "cluster " + what + " " + r.ObjectRef.Name, "namespace " + what + " " + r.ObjectRef.Name} {
			_, has := unused[right]
			if has && (strings.HasPrefix(right, "cluster ") || r.ObjectRef.Namespace == w.Namespace) {
				unused[right] = false
				break
			}
		}
	}
	for right, is := range unused {
		if is && unheard[right] == "" {
			t.Errorf("nothing used the right to: %s", right)
		}
		if !is && unheard[right] != "" {
			t.Errorf("the right to %s is used, and this test says that it cannot be seen", right)
		}
	}
}

// expandRule lists each permission of a rule separately.
func expandRule(scope string, r rbacv1.PolicyRule) []string {
	names := r.ResourceNames
	if len(names) == 0 {
		names = []string{""}
	}
	var out []string
	for _, group := range r.APIGroups {
		for _, resource := range r.Resources {
			for _, verb := range r.Verbs {
				for _, name := range names {
					out = append(out, strings.TrimSuffix(scope+" "+verb+" "+resource+"."+group+" "+name, " "))
				}
			}
		}
	}
	return out
}
