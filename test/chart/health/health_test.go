// SPDX-FileCopyrightText: The Skyhook authors
// SPDX-License-Identifier: Apache-2.0

// Package health shows what programs that know nothing of Skyhook make of its objects: kstatus (Flux, kpt, Helm 4), and Argo CD by the
// scripts of examples/gitops.
package health

import (
	"context"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/fluxcd/cli-utils/pkg/kstatus/status"
	lua "github.com/yuin/gopher-lua"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/skyhook-k8s/skyhook/api/skyhook/v1alpha1"
	"github.com/skyhook-k8s/skyhook/internal/cluster"
	"github.com/skyhook-k8s/skyhook/internal/dump"
	"github.com/skyhook-k8s/skyhook/internal/nodeop/report"
	"github.com/skyhook-k8s/skyhook/internal/nodeop/upgrade"
	"github.com/skyhook-k8s/skyhook/internal/policy"
	"github.com/skyhook-k8s/skyhook/internal/rollout/engine"
	"github.com/skyhook-k8s/skyhook/test/chart/render"
)

// objects is a dump with a node, and the object of a case.
const objects = `
apiVersion: cli.skyhook.nvidia.com/v1
kind: Dump
taken: "2026-11-21T12:00:00Z"
operator: {namespace: skyhook}
items:
- apiVersion: v1
  kind: Node
  metadata: {name: n1, uid: n1, labels: {pool: gpu}}
  spec: {taints: [TAINTS]}
  status: {conditions: [{type: Ready, status: "True"}], nodeInfo: {bootID: one}}
`

// The specs of the cases.
const (
	someWork  = "nodeSelectors: {matchLabels: {pool: gpu}}, packages: {tool: {version: 1.0.0, image: example.org/tool}}"
	noNodes   = "nodeSelectors: {matchLabels: {pool: none}}, packages: {tool: {version: 1.0.0, image: example.org/tool}}"
	unknown   = "nodeSelectors: {matchLabels: {pool: gpu}}, packages: {tool: {version: 1.0.0, image: example.org/tool, dependsOn: {other: 1.0.0}}}"
	someOp    = "image: example.org/tools, command: [date]"
	someImage = "image: example.org/os:v2"
	approval  = "default: {approval: Required}"
	closed    = "default: {}, windows: {open: [{schedule: \"0 22 * * *\", duration: 1h}]}"
	stopped   = "compartmentStatuses: {__default__: {matched: 1, ceiling: 1, inProgress: 0, completed: 0, progressPercent: 0, batchState: {currentBatch: 2, consecutiveFailures: 1, shouldStop: true, lastBatchFailed: true}}}"
)

// A state is an object in a cluster, and what programs are to make of it.
type state struct {
	name               string
	kind, meta, spec   string
	was                string // the status as it is stored
	policy             string // the spec of DeploymentPolicy limits
	taints             string
	verdict            v1alpha1.Verdict
	reason             string
	kstatus            status.Status
	argo               string
	isUnseen, isParent bool // the operator has not seen this version; the object of the status is the upgrade of the NodeOp
}

var states = []state{
	{name: "new", kind: "Skyhook", spec: someWork, isUnseen: true, kstatus: status.InProgressStatus, argo: "Progressing"},
	{name: "nothing to do", kind: "Skyhook", spec: noNodes, verdict: "Ready", reason: "NodesConverged", kstatus: status.CurrentStatus, argo: "Healthy"},
	{name: "about to start", kind: "Skyhook", spec: someWork, verdict: "Progressing", reason: "Progressing", kstatus: status.InProgressStatus, argo: "Progressing"},
	{name: "paused", kind: "Skyhook", meta: `annotations: {skyhook.nvidia.com/pause: "true"}`, spec: someWork, verdict: "Suspended", reason: "Paused", kstatus: status.InProgressStatus, argo: "Suspended"},
	{name: "disabled", kind: "Skyhook", meta: `annotations: {skyhook.nvidia.com/disable: "true"}`, spec: someWork, verdict: "Suspended", reason: "Disabled", kstatus: status.InProgressStatus, argo: "Suspended"},
	{name: "approval", kind: "Skyhook", spec: someWork + ", deploymentPolicy: limits", policy: approval, verdict: "Suspended", reason: "Approval", kstatus: status.InProgressStatus, argo: "Suspended"},
	{name: "closed window", kind: "Skyhook", spec: someWork + ", deploymentPolicy: limits", policy: closed, verdict: "Suspended", reason: "Window", kstatus: status.InProgressStatus, argo: "Suspended"},
	{name: "not accepted", kind: "Skyhook", spec: unknown, verdict: "Failed", reason: "InvalidSpec", kstatus: status.FailedStatus, argo: "Degraded"},
	{name: "policy missing", kind: "Skyhook", spec: someWork + ", deploymentPolicy: other", verdict: "Failed", reason: "PolicyMissing", kstatus: status.FailedStatus, argo: "Degraded"},
	{name: "taint", kind: "Skyhook", spec: someWork, taints: "{key: dedicated, value: x, effect: NoSchedule}", verdict: "Failed", reason: "TaintNotTolerated", kstatus: status.FailedStatus, argo: "Degraded"},
	{name: "stopped", kind: "Skyhook", spec: someWork + ", deploymentPolicy: limits", policy: "default: {strategy: {fixed: {failureThreshold: 1}}}", was: stopped, verdict: "Failed", reason: "FailureThreshold", kstatus: status.FailedStatus, argo: "Degraded"},
	{name: "deleted", kind: "Skyhook", meta: `deletionTimestamp: "2026-11-21T12:00:00Z", finalizers: [skyhook.nvidia.com/skyhook]`, spec: someWork, verdict: "", kstatus: status.TerminatingStatus, argo: "Progressing"},

	{name: "new", kind: "DeploymentPolicy", spec: "default: {}", isUnseen: true, kstatus: status.InProgressStatus, argo: "Progressing"},
	{name: "nobody uses it", kind: "DeploymentPolicy", spec: "default: {}", verdict: "Ready", reason: "NodesConverged", kstatus: status.CurrentStatus, argo: "Healthy"},
	{name: "not accepted", kind: "DeploymentPolicy", spec: "default: {}, compartments: [{name: a, after: [b]}]", verdict: "Failed", reason: "InvalidSpec", kstatus: status.FailedStatus, argo: "Degraded"},

	{name: "new", kind: "NodeOp", spec: someOp, isUnseen: true, kstatus: status.InProgressStatus, argo: "Progressing"},
	{name: "about to start", kind: "NodeOp", spec: someOp, verdict: "Progressing", reason: "Running", kstatus: status.InProgressStatus, argo: "Progressing"},
	{name: "no node", kind: "NodeOp", spec: someOp + ", nodeSelector: {matchLabels: {pool: none}}", verdict: "Progressing", reason: "NoNodes", kstatus: status.InProgressStatus, argo: "Progressing"},
	{name: "suspended", kind: "NodeOp", spec: someOp + ", suspend: true", verdict: "Suspended", reason: "Suspended", kstatus: status.InProgressStatus, argo: "Suspended"},
	{name: "approval", kind: "NodeOp", spec: someOp + ", deploymentPolicy: limits", policy: approval, verdict: "Suspended", reason: "Approval", kstatus: status.InProgressStatus, argo: "Suspended"},
	{name: "closed window", kind: "NodeOp", spec: someOp + ", deploymentPolicy: limits", policy: closed, verdict: "Suspended", reason: "Window", kstatus: status.InProgressStatus, argo: "Suspended"},
	{name: "policy missing", kind: "NodeOp", spec: someOp + ", deploymentPolicy: other", verdict: "Failed", reason: "PolicyMissing", kstatus: status.FailedStatus, argo: "Degraded"},
	{name: "ended without a verdict", kind: "NodeOp", spec: someOp, was: "phase: Completed, total: 1, completed: 1", verdict: "Ready", reason: "Completed", kstatus: status.CurrentStatus, argo: "Healthy"},
	{name: "failed without a verdict", kind: "NodeOp", spec: someOp, was: "phase: Failed, total: 1, failed: 1", verdict: "Failed", reason: "Failed", kstatus: status.FailedStatus, argo: "Degraded"},

	{name: "new", kind: "NodeOpUpgrade", spec: someImage, isUnseen: true, kstatus: status.InProgressStatus, argo: "Progressing"},
	{name: "no NodeOp yet", kind: "NodeOpUpgrade", spec: someImage, verdict: "Progressing", reason: "Waiting", kstatus: status.InProgressStatus, argo: "Progressing"},
	{name: "its NodeOp is gone", kind: "NodeOpUpgrade", spec: someImage, was: "nodeOpName: demo", verdict: "Failed", reason: "Failed", kstatus: status.FailedStatus, argo: "Degraded"},
	{name: "ended without a verdict", kind: "NodeOpUpgrade", spec: someImage, was: "nodeOpName: demo, phase: Completed", verdict: "Ready", reason: "Completed", kstatus: status.CurrentStatus, argo: "Healthy"},
	{name: "foreign NodeOp", kind: "NodeOp", spec: someOp, isParent: true, verdict: "Failed", reason: "InvalidSpec", kstatus: status.FailedStatus, argo: "Degraded"},
	{name: "approval", kind: "NodeOp", meta: "ownerReferences: [{apiVersion: operator.kairos.io/v1alpha1, kind: NodeOpUpgrade, name: demo, uid: demo, controller: true}]", isParent: true,
		spec: someOp + ", deploymentPolicy: limits", policy: approval, verdict: "Suspended", reason: "Approval", kstatus: status.InProgressStatus, argo: "Suspended"},
}

// TestStates: kstatus, Argo CD and programs that read the verdict agree about each state of each kind.
func TestStates(t *testing.T) {
	for _, s := range states {
		t.Run(s.kind+"/"+s.name, func(t *testing.T) {
			u := s.object(t)
			if verdict, _, _ := unstructured.NestedString(u.Object, "status", "verdict"); s.verdict != "" && verdict != string(s.verdict) {
				t.Errorf("the verdict is %s, want %s", verdict, s.verdict)
			}
			if reason, _, _ := unstructured.NestedString(u.Object, "status", "reason"); s.reason != "" && reason != s.reason {
				t.Errorf("the reason is %s, want %s", reason, s.reason)
			}
			r, err := status.Compute(u)
			if err != nil {
				t.Fatal(err)
			}
			if r.Status != s.kstatus {
				t.Errorf("kstatus says %s, want %s: %v", r.Status, s.kstatus, u.Object["status"])
			}
			if argo := assess(t, u); argo != s.argo {
				t.Errorf("Argo CD says %s, want %s: %v", argo, s.argo, u.Object["status"])
			}
		})
	}
}

// object returns the object with the status that the operator gives it.
func (s *state) object(t *testing.T) *unstructured.Unstructured {
	t.Helper()
	item := func(version, kind, name, meta, spec, was string) string {
		return "- {apiVersion: " + version + ", kind: " + kind + ", metadata: {name: " + name + ", uid: " + name + ", generation: 2, " + meta + "}, spec: {" + spec + "}, status: {observedGeneration: 0, " + was + "}}\n"
	}
	version, meta := v1alpha1.GroupVersion.String(), s.meta
	if strings.HasPrefix(s.kind, "NodeOp") {
		version, meta = "operator.kairos.io/v1alpha1", "namespace: default, "+meta
	}
	text := strings.Replace(objects, "TAINTS", s.taints, 1) + item(version, s.kind, "demo", meta, s.spec, s.was)
	if s.isParent {
		text += item(version, "NodeOpUpgrade", "demo", "namespace: default", someImage, "")
	}
	if s.policy != "" {
		text += item(v1alpha1.GroupVersion.String(), "DeploymentPolicy", "limits", "", s.policy, "")
	}
	c, err := dump.Read(strings.NewReader(text))
	if err != nil {
		t.Fatal(err)
	}
	backend := cluster.New(cluster.Options{
		Config: c.Operator.Skyhook(""), NodeOps: c.Operator.NodeOps(), Live: c, Workloads: c, Clock: func() time.Time { return c.Taken },
	})
	o, err := backend.Observe(context.Background())
	if err != nil {
		t.Fatal(err)
	}
	return toUnstructured(t, s.withStatus(o, c.Taken))
}

// withStatus gives the object the status that follows from a pass, unless no pass saw it.
func (s *state) withStatus(o *cluster.Objects, now time.Time) client.Object {
	compiled := cluster.Compile(o, now)
	plan := engine.Decide(compiled.Snapshot)
	var out client.Object
	for i, r := range plan.Reports {
		for _, hook := range o.Skyhooks {
			if c := compiled.Skyhook(hook); c.Rollout.Ref == r.Rollout && !s.isUnseen {
				hook = hook.DeepCopy()
				hook.Status = c.Status(plan.Reports[i], plan.Groups)
				out = hook
			}
		}
		for j, op := range o.NodeOps {
			if c := compiled.NodeOp(op); c.Rollout.Ref == r.Rollout && !s.isUnseen {
				op = op.DeepCopy()
				op.Status = report.Status(c, plan.Reports[i], plan.Groups)
				o.NodeOps[j], out = op, op
			}
		}
	}
	switch {
	case s.kind == "DeploymentPolicy":
		p := o.Policies[0].DeepCopy()
		if !s.isUnseen {
			p.Status = policy.BuildStatus(p, o.PolicyUsers(plan)[p.Name], plan.Groups, now)
		}
		return p
	case s.kind == "NodeOpUpgrade" || s.isParent:
		u := o.Upgrades[0].DeepCopy()
		if s.isUnseen {
			return u
		}
		u.Status = upgrade.Status(u, nil, o.Nodes, now)
		if s.isParent {
			u.Status = upgrade.Status(u, o.NodeOps[0], o.Nodes, now)
		}
		return u
	case out != nil:
		return out
	case s.kind == "NodeOp":
		return o.NodeOps[0]
	}
	return o.Skyhooks[0]
}

// toUnstructured returns an object as a client reads it, with the default of its status.
func toUnstructured(t *testing.T, o client.Object) *unstructured.Unstructured {
	t.Helper()
	fields, err := runtime.DefaultUnstructuredConverter.ToUnstructured(o)
	if err != nil {
		t.Fatal(err)
	}
	u := &unstructured.Unstructured{Object: fields}
	if _, isThere, _ := unstructured.NestedInt64(fields, "status", "observedGeneration"); !isThere {
		if err := unstructured.SetNestedField(fields, int64(0), "status", "observedGeneration"); err != nil {
			t.Fatal(err)
		}
	}
	return u
}

// assess returns the health that Argo CD finds: that of a deletion, or else what the script of the example says.
func assess(t *testing.T, u *unstructured.Unstructured) string {
	t.Helper()
	if u.GetDeletionTimestamp() != nil {
		return "Progressing"
	}
	return runScript(t, findScript(t, u), u)
}

// runScript runs a script as Argo CD does: with few libraries, the object as the global obj, and a table with a status as result.
func runScript(t *testing.T, script string, u *unstructured.Unstructured) string {
	t.Helper()
	l := lua.NewState(lua.Options{SkipOpenLibs: true})
	defer l.Close()
	for name, open := range map[string]lua.LGFunction{lua.BaseLibName: lua.OpenBase, lua.TabLibName: lua.OpenTable} {
		if err := l.CallByParam(lua.P{Fn: l.NewFunction(open), Protect: true}, lua.LString(name)); err != nil {
			t.Fatal(err)
		}
	}
	ctx, stop := context.WithTimeout(context.Background(), time.Second)
	defer stop()
	l.SetContext(ctx)
	l.SetGlobal("obj", toLua(l, u.Object))
	if err := l.DoString(script); err != nil {
		t.Fatalf("the script for Argo CD: %v", err)
	}
	table, is := l.Get(-1).(*lua.LTable)
	if !is {
		t.Fatalf("the script for Argo CD returns %v", l.Get(-1))
	}
	return table.RawGetString("status").String()
}

// toLua converts JSON to a value of Lua.
func toLua(l *lua.LState, of any) lua.LValue {
	switch of := of.(type) {
	case map[string]any:
		t := l.NewTable()
		for k, v := range of {
			t.RawSetString(k, toLua(l, v))
		}
		return t
	case []any:
		t := l.NewTable()
		for _, v := range of {
			t.Append(toLua(l, v))
		}
		return t
	case string:
		return lua.LString(of)
	case bool:
		return lua.LBool(of)
	case int64:
		return lua.LNumber(of)
	case float64:
		return lua.LNumber(of)
	}
	return lua.LNil
}

// findScript returns the script for the kind of an object in the example for Argo CD.
func findScript(t *testing.T, u *unstructured.Unstructured) string {
	t.Helper()
	text, err := os.ReadFile("../../../examples/gitops/argocd.yaml")
	if err != nil {
		t.Fatal(err)
	}
	parsed, err := render.Parse(text)
	if err != nil {
		t.Fatal(err)
	}
	gvk := u.GroupVersionKind()
	for _, o := range parsed {
		if script, _, _ := unstructured.NestedString(o.Object, "data", "resource.customizations.health."+gvk.Group+"_"+gvk.Kind); script != "" {
			return script
		}
	}
	t.Fatalf("examples/gitops/argocd.yaml has no script for %s", gvk)
	return ""
}

// TestEveryVerdict: Argo CD has a word for each verdict, and none of a version that the operator has not seen is Healthy.
func TestEveryVerdict(t *testing.T) {
	for verdict, want := range map[v1alpha1.Verdict]string{"Ready": "Healthy", "Progressing": "Progressing", "Suspended": "Suspended", "Failed": "Degraded", "Deleting": "Progressing"} {
		hook := &v1alpha1.Skyhook{TypeMeta: metav1.TypeMeta{APIVersion: v1alpha1.GroupVersion.String(), Kind: "Skyhook"}, ObjectMeta: metav1.ObjectMeta{Generation: 2}}
		hook.Status.Verdict = verdict
		for observed, want := range map[int64]string{1: "Progressing", 2: want} {
			hook.Status.ObservedGeneration = observed
			if got := assess(t, toUnstructured(t, hook)); got != want {
				t.Errorf("%s of generation %d of 2: %s, want %s", verdict, observed, got, want)
			}
		}
	}
}
