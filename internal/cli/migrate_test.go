// SPDX-FileCopyrightText: The Skyhook authors
// SPDX-License-Identifier: Apache-2.0

package cli_test

import (
	"bytes"
	"context"
	"encoding/json"
	"maps"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	admissionv1 "k8s.io/api/admissionregistration/v1"
	appsv1 "k8s.io/api/apps/v1"
	batchv1 "k8s.io/api/batch/v1"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	crdv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/envtest"
	"sigs.k8s.io/yaml"

	"github.com/skyhook-k8s/skyhook/api/skyhook/v1alpha1"
	"github.com/skyhook-k8s/skyhook/internal/cli"
	"github.com/skyhook-k8s/skyhook/internal/node"
	"github.com/skyhook-k8s/skyhook/test/controlplane"
)

// migrationTest is a cluster with NodeWright's objects.
type migrationTest struct {
	*testing.T
	client     client.Client
	kubeconfig string
	objects    []*unstructured.Unstructured
	proxy      *flakyProxy
}

// newMigrationTest creates the objects of files, and deletes everything at the end of the test.
func newMigrationTest(t *testing.T, files ...string) *migrationTest {
	t.Helper()
	p := server(t)
	installNodeWrightCRDs(t)
	c, err := client.New(p.Config, client.Options{})
	if err != nil {
		t.Fatal(err)
	}
	oneAtATime.Lock()
	m := &migrationTest{T: t, client: c, proxy: newFlakyProxy(t), kubeconfig: filepath.Join(t.TempDir(), "kubeconfig")}
	t.Cleanup(func() { m.clear(); oneAtATime.Unlock() })
	inner := newProxy(p.Config)
	t.Cleanup(inner.Close)
	m.proxy.setTarget(inner.URL)
	outer := &proxy{Server: m.proxy.Server}
	if err := outer.kubeconfig(m.kubeconfig); err != nil {
		t.Fatal(err)
	}
	for _, file := range files {
		m.create(file)
	}
	m.adoptJobs()
	return m
}

func (m *migrationTest) create(file string) {
	m.Helper()
	for _, o := range readObjects(m.T, file) {
		status, withStatus := o.Object["status"]
		err := m.client.Create(context.Background(), o)
		if o.GetKind() == "Namespace" {
			continue
		}
		if err != nil {
			m.Fatal(err)
		}
		m.objects = append(m.objects, o)
		if withStatus {
			o.Object["status"] = status
			if err := m.client.Status().Update(context.Background(), o); err != nil {
				m.Fatal(err)
			}
		}
	}
}

func readObjects(t *testing.T, file string) []*unstructured.Unstructured {
	t.Helper()
	raw, err := os.ReadFile(filepath.Join("testdata/migrate", file))
	if err != nil {
		t.Fatal(err)
	}
	var out []*unstructured.Unstructured
	for _, text := range strings.Split(string(raw), "\n---\n") {
		o := &unstructured.Unstructured{}
		if err := yaml.Unmarshal([]byte(text), &o.Object); err != nil {
			t.Fatal(err)
		}
		out = append(out, o)
	}
	return out
}

// adoptJobs gives each Job the NodeWright it is labelled with as its owner.
func (m *migrationTest) adoptJobs() {
	jobs := &batchv1.JobList{}
	if err := m.client.List(context.Background(), jobs, client.InNamespace("nodewright")); err != nil {
		m.Fatal(err)
	}
	for i := range jobs.Items {
		j := &jobs.Items[i]
		owner := m.get("NodeWright", j.Labels["nodewright.nvidia.com/name"])
		yes := true
		j.OwnerReferences = []metav1.OwnerReference{{APIVersion: owner.GetAPIVersion(), Kind: owner.GetKind(), Name: owner.GetName(), UID: owner.GetUID(), Controller: &yes}}
		if err := m.client.Update(context.Background(), j); err != nil {
			m.Fatal(err)
		}
	}
}

func (m *migrationTest) newObject(kind string) *unstructured.Unstructured {
	o := &unstructured.Unstructured{}
	o.SetAPIVersion(map[string]string{"NodeWright": "nodewright.nvidia.com/v1alpha1", "Node": "v1"}[kind])
	if o.GetAPIVersion() == "" {
		o.SetAPIVersion("skyhook.nvidia.com/v1alpha1")
	}
	o.SetKind(kind)
	return o
}

func (m *migrationTest) get(kind, name string) *unstructured.Unstructured {
	m.Helper()
	o := m.newObject(kind)
	if err := m.client.Get(context.Background(), client.ObjectKey{Name: name}, o); err != nil {
		m.Fatal(err)
	}
	return o
}

// clear deletes everything that the test and the command made.
func (m *migrationTest) clear() {
	ctx, now := context.Background(), int64(0)
	for _, kind := range []string{"skyhook.nvidia.com/v1alpha1 Skyhook", "skyhook.nvidia.com/v1alpha1 DeploymentPolicy", "nodewright.nvidia.com/v1alpha1 NodeWright",
		"nodewright.nvidia.com/v1alpha1 DeploymentPolicy", "v1 Node", "batch/v1 Job", "apps/v1 Deployment", "v1 ConfigMap", "coordination.k8s.io/v1 Lease", "v1 Pod",
		"admissionregistration.k8s.io/v1 ValidatingWebhookConfiguration"} {
		version, name, _ := strings.Cut(kind, " ")
		list := &unstructured.UnstructuredList{}
		list.SetAPIVersion(version)
		list.SetKind(name + "List")
		if err := m.client.List(ctx, list); err != nil {
			m.Error(err)
		}
		for i := range list.Items {
			o := &list.Items[i]
			if o.GetNamespace() != "" && o.GetNamespace() != "nodewright" && o.GetNamespace() != "skyhook" {
				continue
			}
			if len(o.GetFinalizers()) > 0 {
				_ = m.client.Patch(ctx, o, client.RawPatch("application/merge-patch+json", []byte(`{"metadata":{"finalizers":null}}`)))
			}
			policy := metav1.DeletePropagationBackground
			if err := client.IgnoreNotFound(m.client.Delete(ctx, o, &client.DeleteOptions{GracePeriodSeconds: &now, PropagationPolicy: &policy})); err != nil {
				m.Error(err)
			}
		}
	}
}

// run runs the plugin and returns what it prints.
func (m *migrationTest) run(args ...string) (code int, stdout, stderr string) {
	var out, errOut bytes.Buffer
	code = cli.Run(context.Background(), cli.Line{
		Args: append([]string{"--kubeconfig", m.kubeconfig}, args...), Stdin: strings.NewReader(""), Stdout: &out, Stderr: &errOut, Version: "test",
	})
	return code, out.String(), errOut.String()
}

func (m *migrationTest) mustRun(args ...string) (stdout, stderr string) {
	m.Helper()
	code, stdout, stderr := m.run(args...)
	if code != 0 {
		m.Fatalf("%v: exit code %d\n%s%s", args, code, stdout, stderr)
	}
	return stdout, stderr
}

// nodes returns the annotations, labels, taints and cordons of all nodes with a prefix, by node.
func (m *migrationTest) nodes(prefix string) map[string][]string {
	list := &corev1.NodeList{}
	if err := m.client.List(context.Background(), list); err != nil {
		m.Fatal(err)
	}
	out := map[string][]string{}
	for _, n := range list.Items {
		var keys []string
		for key, value := range n.Annotations {
			if strings.HasPrefix(key, prefix) {
				keys = append(keys, strings.TrimPrefix(key, prefix)+"="+value)
			}
		}
		for key, value := range n.Labels {
			if strings.HasPrefix(key, prefix) {
				keys = append(keys, "label "+strings.TrimPrefix(key, prefix)+"="+value)
			}
		}
		for _, t := range n.Spec.Taints {
			if strings.HasPrefix(t.Key, strings.TrimSuffix(prefix, "/")) {
				keys = append(keys, "taint "+t.ToString())
			}
		}
		if n.Spec.Unschedulable {
			keys = append(keys, "unschedulable")
		}
		slices.Sort(keys)
		out[n.Name] = keys
	}
	return out
}

// installNodeWrightCRDs makes NodeWright's CRDs from ours: same fields, except those that its v0.20 has and has not.
func installNodeWrightCRDs(t *testing.T) {
	t.Helper()
	var crds []*crdv1.CustomResourceDefinition
	for _, file := range []string{"skyhook.nvidia.com_skyhooks.yaml", "skyhook.nvidia.com_deploymentpolicies.yaml"} {
		raw, err := os.ReadFile(filepath.Join("../../chart/files/crds", file))
		if err != nil {
			t.Fatal(err)
		}
		d := &crdv1.CustomResourceDefinition{}
		if err := yaml.Unmarshal(raw, d); err != nil {
			t.Fatal(err)
		}
		d.Spec.Group = "nodewright.nvidia.com"
		d.Annotations, d.Labels = nil, nil
		d.Spec.Names.ShortNames, d.Spec.Names.Categories = nil, nil
		spec := d.Spec.Versions[0].Schema.OpenAPIV3Schema.Properties["spec"]
		if d.Spec.Names.Kind == "Skyhook" {
			d.Spec.Names = crdv1.CustomResourceDefinitionNames{Kind: "NodeWright", ListKind: "NodeWrightList", Plural: "nodewrights", Singular: "nodewright"}
			delete(spec.Properties, "drain")
			object, yes := crdv1.JSONSchemaProps{Type: "object", Properties: map[string]crdv1.JSONSchemaProps{}}, crdv1.JSONSchemaProps{Type: "boolean"}
			for name, kind := range map[string]string{"timeout": "string", "gracePeriod": "string", "disableEviction": "boolean", "deleteEmptyDirData": "boolean", "force": "boolean", "ignoreDaemonSets": "boolean"} {
				object.Properties[name] = crdv1.JSONSchemaProps{Type: kind}
			}
			spec.Properties["drainConfig"], spec.Properties["runtimeRequiredCordonAfter"] = object, yes
			packages := spec.Properties["packages"].AdditionalProperties.Schema
			delete(packages.Properties, "deadline")
			delete(packages.Properties, "retries")
			packages.Properties["stageTimeout"] = crdv1.JSONSchemaProps{Type: "string"}
		} else {
			for _, field := range []string{"scope", "paused", "soak", "maxUnavailablePerTopology", "windows", "health"} {
				delete(spec.Properties, field)
			}
		}
		dropRules(&spec)
		root := d.Spec.Versions[0].Schema.OpenAPIV3Schema
		root.Properties["spec"], root.XValidations = spec, nil
		d.Name = d.Spec.Names.Plural + ".nodewright.nvidia.com"
		crds = append(crds, d)
	}
	if _, err := envtest.InstallCRDs(server(t).Config, envtest.CRDInstallOptions{CRDs: crds, MaxTime: time.Minute}); err != nil {
		t.Fatal(err)
	}
}

// dropRules removes rules that name fields which are not there.
func dropRules(s *crdv1.JSONSchemaProps) {
	s.XValidations = nil
	for name, p := range s.Properties {
		dropRules(&p)
		s.Properties[name] = p
	}
	if s.AdditionalProperties != nil && s.AdditionalProperties.Schema != nil {
		dropRules(s.AdditionalProperties.Schema)
	}
	if s.Items != nil && s.Items.Schema != nil {
		dropRules(s.Items.Schema)
	}
}

// flakyProxy forwards requests, counts writes, and refuses writes to nodes once a number of them was forwarded.
type flakyProxy struct {
	*httptest.Server
	mu       sync.Mutex
	target   *httputil.ReverseProxy
	writes   []string
	nodes    int
	mayWrite int // nodes; negative for all
}

func newFlakyProxy(t *testing.T) *flakyProxy {
	p := &flakyProxy{mayWrite: -1}
	p.Server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if !p.admit(r) {
			http.Error(w, "the connection is lost", http.StatusBadGateway)
			return
		}
		controlplane.BufferBody(r)
		p.target.ServeHTTP(w, r)
	}))
	t.Cleanup(p.Close)
	return p
}

func (p *flakyProxy) setTarget(address string) {
	to, err := url.Parse(address)
	if err != nil {
		panic(err)
	}
	p.target = &httputil.ReverseProxy{FlushInterval: -1, Rewrite: func(r *httputil.ProxyRequest) { r.SetURL(to) }}
}

func (p *flakyProxy) admit(r *http.Request) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	if r.Method == http.MethodGet {
		return true
	}
	p.writes = append(p.writes, r.Method+" "+r.URL.Path)
	if strings.HasPrefix(r.URL.Path, "/api/v1/nodes/") {
		p.nodes++
		return p.mayWrite < 0 || p.nodes <= p.mayWrite
	}
	return true
}

func (p *flakyProxy) takeWrites() []string {
	p.mu.Lock()
	defer p.mu.Unlock()
	out := p.writes
	p.writes, p.nodes = nil, 0
	slices.Sort(out)
	return out
}

// nodesAfter is what the nodes of nodewright.yaml have of ours after the migration.
var nodesAfter = map[string][]string{
	"m1": {"known=true", "label status_demo=complete", `nodeState_demo={"kernel|1.4.0":{"name":"kernel","version":"1.4.0","image":"example.org/kernel","stage":"post-interrupt","state":"complete"},"tools|2.0.0":{"name":"tools","version":"2.0.0","image":"example.org/tools","stage":"config","state":"complete"}}`,
		"record_demo", "status_demo=complete", "version_demo=v0.20.0"},
	"m2": {"cordon_demo=true", "known=true", "label status_demo=in_progress", `nodeState_demo={"kernel|1.4.0":{"name":"kernel","version":"1.4.0","image":"example.org/kernel","stage":"upgrade","state":"complete"}}`,
		"record_demo held since 2026-11-22T10:00:00Z", "status_demo=in_progress", "unschedulable"},
	"m3": {"cordon_demo=true", "known=true", `nodeState_demo={"kernel|1.4.0":{"name":"kernel","version":"1.4.0","image":"example.org/kernel","stage":"interrupt","state":"complete"}}`,
		"record_demo held since 2026-11-22T10:00:00Z, cordoned before", "runtimeRequiredCordon=true", "unschedulable"},
	"m4": {"autoTaint_skyhook.nvidia.com=true", "known=true", "taint skyhook.nvidia.com=runtime-required:NoSchedule"},
	"m5": {"known=true", "label status_demo=waiting", "status_demo=waiting"},
	"m6": {"known=true", "label ignore=true", "label status_demo=erroring", `nodeState_demo={"tools|2.0.0":{"name":"tools","version":"2.0.0","image":"example.org/tools","stage":"apply","state":"erroring","restarts":3}}`, "record_demo", "status_demo=erroring"},
	"m7": {"label status_held=complete", `nodeState_held={"tools|1.0.0":{"name":"tools","version":"1.0.0","image":"example.org/tools","stage":"config","state":"complete"}}`, "status_held=complete"},
	"m8": {"known=true", "nodeState_fresh=no JSON", "record_fresh"},
	"m9": nil,
}

func (m *migrationTest) checkNodes(got, want map[string][]string) {
	m.Helper()
	for name, keys := range got {
		for i, key := range keys {
			of, raw, ok := strings.Cut(strings.TrimPrefix(key, "record_"), "=")
			if !ok || !strings.HasPrefix(key, "record_") {
				continue
			}
			original := m.get("NodeWright", of)
			rec, err := node.ParseSkyhookRecord(raw)
			if err != nil || rec.Node != string(m.get("Node", name).GetUID()) || rec.Skyhook != string(original.GetUID()) || rec.Generation != original.GetGeneration() {
				m.Fatalf("%s has the record %s (%v), which does not continue the ids of NodeWright %s", name, raw, err, of)
			}
			keys[i] = "record_" + of
			if rec.Held != nil {
				keys[i] += " held since " + rec.Held.At.Format(time.RFC3339)
				if rec.Held.WasCordoned {
					keys[i] += ", cordoned before"
				}
			}
		}
	}
	for name := range want {
		if !slices.Equal(got[name], want[name]) {
			m.Errorf("node %s has\n  %s\nwant\n  %s", name, strings.Join(got[name], "\n  "), strings.Join(want[name], "\n  "))
		}
	}
}

func TestMigrateNodeWright(t *testing.T) {
	m := newMigrationTest(t, "nodewright.yaml", "jobs.yaml", "operator.yaml")
	yes := true
	owner := m.get("NodeWright", "demo")
	cm := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: "demo-tools-2.0.0", Namespace: "nodewright", Labels: map[string]string{"nodewright.nvidia.com/name": "demo"},
		OwnerReferences: []metav1.OwnerReference{{APIVersion: owner.GetAPIVersion(), Kind: "NodeWright", Name: "demo", UID: owner.GetUID(), Controller: &yes}}}, Data: map[string]string{"a.conf": "one"}}
	if err := m.client.Create(context.Background(), cm); err != nil {
		t.Fatal(err)
	}
	args := []string{"migrate", "nodewright", "--apply", "--yes"}

	// The other operator runs.
	before := m.nodes("skyhook.nvidia.com/")
	code, _, stderr := m.run(args...)
	if want := "stop it with kubectl --namespace nodewright scale deployment nodewright-controller-manager --replicas=0"; code != 1 || !strings.Contains(stderr, want) {
		t.Fatalf("exit code %d, want 1 and %q:\n%s", code, want, stderr)
	}
	m.stopOperator()
	m.renewLease(time.Now())
	if code, _, stderr := m.run(args...); code != 1 || !strings.Contains(stderr, "Lease nodewright/3c22c1ae.nvidia.com is held by operator-1") {
		t.Fatalf("exit code %d: %s", code, stderr)
	}
	m.renewLease(time.Now().Add(-time.Hour))

	// Reviewing and a dry run change nothing.
	dir := filepath.Join(t.TempDir(), "review")
	m.mustRun("migrate", "nodewright", "--directory", dir)
	stdout, stderr := m.mustRun("migrate", "nodewright", "--apply", "--dry-run", "-o", "wide")
	for _, want := range []string{"m1 ", "skyhook.nvidia.com/nodeState_demo", "skyhook.nvidia.com/ignore", "demo-kernel-upgrade-m2", "nodewright-validating-webhook"} {
		if !strings.Contains(stderr, want) {
			t.Errorf("a dry run does not name %s:\n%s%s", want, stdout, stderr)
		}
	}
	if w := m.proxy.takeWrites(); len(w) > 0 {
		t.Fatalf("written without being asked to: %v", w)
	}
	m.checkNodes(m.nodes("skyhook.nvidia.com/"), before)
	if code, _, stderr := m.run("migrate", "nodewright", "--apply"); code != 1 || !strings.Contains(stderr, "not confirmed") {
		t.Fatalf("exit code %d: %s", code, stderr)
	}

	// Interrupted half-way.
	m.proxy.mayWrite = 3
	if code, _, stderr := m.run(args...); code != 1 || !strings.Contains(stderr, "run the command again") {
		t.Fatalf("exit code %d: %s", code, stderr)
	}
	if a := m.get("Skyhook", "demo").GetAnnotations(); a["skyhook.nvidia.com/pause"] != "true" {
		t.Errorf("interrupted, Skyhook demo has the annotations %v: it must be paused", a)
	}
	m.proxy.mayWrite = -1
	stdout, stderr = m.mustRun(args...)
	if !strings.Contains(stderr, "spec.packages.tools.stageTimeout") || strings.Contains(stderr, "runtimeRequiredCordonAfter") {
		t.Errorf("standard error names other fields than the one that is lost:\n%s", stderr)
	}
	for _, want := range []string{"Moved 4 objects", "fresh-tools-apply-m8", "is suspended", "demo-tools-apply-m6", "failed"} {
		if !strings.Contains(stdout, want) {
			t.Errorf("the report does not name %q:\n%s", want, stdout)
		}
	}
	m.checkNodes(m.nodes("skyhook.nvidia.com/"), nodesAfter)
	m.checkObjects()
	m.checkNothingRunsAgain()
	m.checkConditions("m6", "example.com/Healthy")

	// Twice.
	m.proxy.takeWrites()
	if stdout, _ := m.mustRun(args...); !strings.Contains(stdout, "All 4 objects were moved before") {
		t.Errorf("a second run says %s", stdout)
	}
	if w := m.proxy.takeWrites(); len(w) > 0 {
		t.Errorf("a second run writes %v", w)
	}
	m.checkBack()
}

// checkConditions checks the types of the conditions of a node.
func (m *migrationTest) checkConditions(name string, want ...string) {
	m.Helper()
	n := &corev1.Node{}
	if err := m.client.Get(context.Background(), client.ObjectKey{Name: name}, n); err != nil {
		m.Fatal(err)
	}
	var got []string
	for _, c := range n.Status.Conditions {
		got = append(got, string(c.Type))
	}
	if !slices.Equal(got, want) {
		m.Errorf("node %s has the conditions %v, want %v", name, got, want)
	}
}

// checkObjects checks the objects after the migration.
func (m *migrationTest) checkObjects() {
	m.Helper()
	demo := &v1alpha1.Skyhook{}
	convert(m.T, m.get("Skyhook", "demo"), demo)
	p := demo.Spec.Packages
	d := demo.Spec.DrainConfig
	if !demo.Spec.RuntimeRequiredCordonAfter || d == nil || d.Timeout.Duration != 30*time.Minute || d.GracePeriod.Duration != 45*time.Second || *d.Force || p["kernel"].StageTimeout.Duration != 20*time.Minute || p["tools"].StageTimeout.Duration != 168*time.Hour {
		m.Errorf("Skyhook demo has the spec %s", node.EncodeJSON(demo.Spec))
	}
	if a := demo.Annotations; a["example.com/owner"] != "gpu" || len(a) != 2 || a["skyhook.nvidia.com/migrated-from"] == "" {
		m.Errorf("Skyhook demo has the annotations %v", a)
	}
	if b := demo.Status.CompartmentStatuses["__default__"].BatchState; b == nil || !b.ShouldStop || b.CurrentBatch != 3 {
		m.Errorf("the batches of Skyhook demo are %+v: a rollout that stopped must stay stopped", b)
	}
	if a := m.get("Skyhook", "fresh").GetAnnotations(); a["skyhook.nvidia.com/pause"] != "true" {
		m.Errorf("Skyhook fresh has the annotations %v: it was paused", a)
	}
	held := &v1alpha1.Skyhook{}
	convert(m.T, m.get("Skyhook", "held"), held)
	if held.Spec.Packages["tools"].Version != "2.0.0" || held.Annotations["skyhook.nvidia.com/pause"] != "" {
		m.Errorf("Skyhook held is %s", node.EncodeJSON(held))
	}
	j := &batchv1.Job{}
	if err := m.client.Get(context.Background(), client.ObjectKey{Namespace: "nodewright", Name: "demo-kernel-upgrade-m2"}, j); err != nil {
		m.Fatal(err)
	}
	if j.Annotations["nodewright.nvidia.com/state-recorded"] != "true" {
		m.Errorf("the Job has the annotations %v", j.Annotations)
	}
	cm := &corev1.ConfigMap{}
	if err := m.client.Get(context.Background(), client.ObjectKey{Namespace: "nodewright", Name: "demo-tools-2.0.0"}, cm); err != nil {
		m.Fatal(err)
	}
	if o := metav1.GetControllerOf(cm); o.Kind != "Skyhook" || o.UID != demo.UID || cm.Labels["skyhook.nvidia.com/name"] != "demo" {
		m.Errorf("the ConfigMap has the owner %+v and the labels %v", o, cm.Labels)
	}
	webhooks := &admissionv1.ValidatingWebhookConfigurationList{}
	if err := m.client.List(context.Background(), webhooks); err != nil || len(webhooks.Items) > 0 {
		m.Errorf("webhook configurations: %v, %v", webhooks.Items, err)
	}
}

// checkNothingRunsAgain asks the operator's own plan: the complete node has no work, the others go on where they were.
func (m *migrationTest) checkNothingRunsAgain() {
	m.Helper()
	stdout, _ := m.mustRun("why", "m1", "--namespace", "nodewright")
	if want := "Finished: no work is pending"; !strings.Contains(stdout, want) {
		m.Errorf("why m1 says\n%s", stdout)
	}
}

// checkBack moves back, and compares with what was there.
func (m *migrationTest) checkBack() {
	m.Helper()
	was := m.nodes("nodewright.nvidia.com/")
	_, stderr := m.mustRun("migrate", "nodewright", "--apply", "--back", "--yes")
	if strings.Contains(stderr, "warning") {
		m.Logf("%s", stderr)
	}
	got := m.nodes("nodewright.nvidia.com/")
	for name := range was { // what NodeWright makes again
		was[name] = slices.DeleteFunc(was[name], func(key string) bool { return strings.HasPrefix(key, "drainStart_") })
	}
	was["m4"] = append(was["m4"], "taint nodewright.nvidia.com=runtime-required:NoSchedule")
	was["m7"] = []string{"label status_held=complete", `nodeState_held={"tools|1.0.0":{"name":"tools","version":"1.0.0","image":"example.org/tools","stage":"config","state":"complete"}}`, "status_held=complete"}
	m.checkNodes(got, was)
	list := &unstructured.UnstructuredList{}
	list.SetAPIVersion("skyhook.nvidia.com/v1alpha1")
	list.SetKind("SkyhookList")
	if err := m.client.List(context.Background(), list); err != nil || len(list.Items) > 0 {
		m.Errorf("Skyhooks after the way back: %d, %v", len(list.Items), err)
	}
	demo := m.get("NodeWright", "demo")
	drain, _, _ := unstructured.NestedMap(demo.Object, "spec", "drainConfig")
	if a := demo.GetAnnotations(); a["nodewright.nvidia.com/pause"] != "" || a["nodewright.nvidia.com/migrating"] != "" || drain["timeout"] != "30m0s" {
		m.Errorf("NodeWright demo has the annotations %v and drainConfig %v", a, drain)
	}
	if a := m.get("NodeWright", "fresh").GetAnnotations(); a["nodewright.nvidia.com/pause"] != "true" {
		m.Errorf("NodeWright fresh has the annotations %v", a)
	}
}

func (m *migrationTest) stopOperator() {
	d := &appsv1.Deployment{}
	if err := m.client.Get(context.Background(), client.ObjectKey{Namespace: "nodewright", Name: "nodewright-controller-manager"}, d); err != nil {
		m.Fatal(err)
	}
	zero := int32(0)
	d.Spec.Replicas = &zero
	if err := m.client.Update(context.Background(), d); err != nil {
		m.Fatal(err)
	}
}

func (m *migrationTest) renewLease(at time.Time) {
	holder, seconds, renewed := "operator-1", int32(15), metav1.NewMicroTime(at)
	l := &coordinationv1.Lease{ObjectMeta: metav1.ObjectMeta{Namespace: "nodewright", Name: "3c22c1ae.nvidia.com"}}
	_ = m.client.Get(context.Background(), client.ObjectKeyFromObject(l), l)
	l.Spec = coordinationv1.LeaseSpec{HolderIdentity: &holder, LeaseDurationSeconds: &seconds, RenewTime: &renewed}
	write := m.client.Update
	if l.UID == "" {
		if err := m.client.Create(context.Background(), l); err != nil {
			m.Fatal(err)
		}
		return
	}
	if err := write(context.Background(), l); err != nil {
		m.Fatal(err)
	}
}

func convert(t *testing.T, from *unstructured.Unstructured, to any) {
	t.Helper()
	raw, err := json.Marshal(from.Object)
	if err != nil {
		t.Fatal(err)
	}
	if err := json.Unmarshal(raw, to); err != nil {
		t.Fatal(err)
	}
}

// TestMigrateWaitsForJobs checks that a running stage stops the migration, and that --wait waits for it.
func TestMigrateWaitsForJobs(t *testing.T) {
	m := newMigrationTest(t, "nodewright.yaml", "jobs.yaml")
	j := &batchv1.Job{}
	if err := m.client.Get(context.Background(), client.ObjectKey{Namespace: "nodewright", Name: "fresh-tools-apply-m8"}, j); err != nil {
		t.Fatal(err)
	}
	no := false
	j.Spec.Suspend = &no
	if err := m.client.Update(context.Background(), j); err != nil {
		t.Fatal(err)
	}
	args := []string{"migrate", "nodewright", "--apply", "--yes"}
	if code, _, stderr := m.run(args...); code != 1 || !strings.Contains(stderr, "1 stage of packages run") || !strings.Contains(stderr, "fresh-tools-apply-m8") {
		t.Fatalf("exit code %d: %s", code, stderr)
	}
	go func() {
		time.Sleep(300 * time.Millisecond)
		_ = m.client.Delete(context.Background(), j, client.PropagationPolicy(metav1.DeletePropagationBackground))
	}()
	_, stderr := m.mustRun(append(args, "--wait", "1m")...)
	if !strings.Contains(stderr, "waiting: ") {
		t.Errorf("it does not say what it waits for:\n%s", stderr)
	}
	m.checkNodes(m.nodes("skyhook.nvidia.com/"), nodesAfter)
}

// TestMigrateReviewed checks that edits of a reviewed manifest are applied, and that a file that was edited is not written again.
func TestMigrateReviewed(t *testing.T) {
	m := newMigrationTest(t, "nodewright.yaml")
	dir := filepath.Join(t.TempDir(), "review")
	m.mustRun("migrate", "nodewright", "--directory", dir)
	file := filepath.Join(dir, "skyhook-demo.yaml")
	raw, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	if !strings.Contains(string(raw), "# spec.packages.tools.stageTimeout: ") {
		t.Errorf("the manifest does not say what is lost:\n%s", raw)
	}
	edited := strings.Replace(string(raw), "stageTimeout: 20m0s", "stageTimeout: 25m", 1)
	if err := os.WriteFile(file, []byte(edited), 0o600); err != nil {
		t.Fatal(err)
	}
	if code, _, stderr := m.run("migrate", "nodewright", "--directory", dir); code != 1 || !strings.Contains(stderr, "skyhook-demo.yaml differs") {
		t.Fatalf("exit code %d: %s", code, stderr)
	}
	m.mustRun("migrate", "nodewright", "--directory", dir, "--apply", "--yes")
	demo := &v1alpha1.Skyhook{}
	convert(t, m.get("Skyhook", "demo"), demo)
	if got := demo.Spec.Packages["kernel"].StageTimeout.Duration; got != 25*time.Minute {
		t.Errorf("the deadline is %v, and was edited to 25m", got)
	}
	if names := slices.Sorted(maps.Keys(demo.Spec.Packages)); len(names) != 2 {
		t.Errorf("packages: %v", names)
	}
}
