// SPDX-FileCopyrightText: The Skyhook authors
// SPDX-License-Identifier: Apache-2.0

package live

import (
	"context"
	"encoding/json"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	admissionv1 "k8s.io/api/admissionregistration/v1"
	appsv1 "k8s.io/api/apps/v1"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/yaml"

	opv1 "github.com/skyhook-k8s/skyhook/api/nodeop/v1alpha1"
	"github.com/skyhook-k8s/skyhook/api/skyhook/v1alpha1"
	"github.com/skyhook-k8s/skyhook/test/testenv"
)

// thief is somebody with the operator's token, and more rights than that has: only the policies stop him.
type thief struct {
	*testenv.Env
	client  client.Client
	skyhook *v1alpha1.Skyhook
	op      *opv1.NodeOp
	team    string // another namespace
}

// newThief installs the chart, and creates what pods can belong to.
func newThief(t *testing.T, values ...string) *thief {
	t.Helper()
	removeCRDs(t)
	w := testenv.New(t, plane, 2)
	mustHelm(t, "v4", w.Namespace, append([]string{"install", releaseName, "chart", "--set-string", quietly}, values...)...)
	t.Cleanup(func() { mustHelm(t, "v4", w.Namespace, "uninstall", releaseName, "--no-hooks") })
	requireDenying(w)
	account := releaseName + "-controller-manager"
	binding := &rbacv1.ClusterRoleBinding{
		ObjectMeta: metav1.ObjectMeta{Name: "stolen-" + w.Namespace},
		RoleRef:    rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: "cluster-admin"},
		Subjects:   []rbacv1.Subject{{Kind: "ServiceAccount", Namespace: w.Namespace, Name: account}},
	}
	w.Must(w.Client.Create(context.Background(), binding))
	t.Cleanup(func() { w.Must(w.Client.Delete(context.Background(), binding)) })
	config := rest.CopyConfig(plane.Config)
	config.Impersonate = rest.ImpersonationConfig{
		UserName: "system:serviceaccount:" + w.Namespace + ":" + account,
		Groups:   []string{"system:serviceaccounts", "system:serviceaccounts:" + w.Namespace, "system:authenticated"},
	}
	c, err := client.New(config, client.Options{Scheme: testenv.Scheme(t)})
	w.Must(err)
	x := &thief{Env: w, client: c, team: plane.Namespace(t)}
	w.Apply(strings.NewReplacer("VERSION", "1.0.0", "CONTENT", "a").Replace(manifest))
	w.Apply(`
apiVersion: operator.kairos.io/v1alpha1
kind: NodeOp
metadata: {name: op, namespace: ` + x.team + `}
spec: {command: [date], nodeSelector: {matchLabels: {pool: none}}}
`)
	x.skyhook, x.op = w.GetSkyhook("rights"), &opv1.NodeOp{}
	w.Must(w.Client.Get(context.Background(), client.ObjectKey{Namespace: x.team, Name: "op"}, x.op))
	w.Eventually("the policies are in force", func() bool {
		p := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: x.team, Name: "any"}, Spec: corev1.PodSpec{Containers: []corev1.Container{{Name: "c", Image: "i"}}}}
		u := x.skyhook.DeepCopy()
		u.Spec.Serial = !u.Spec.Serial
		o := &opv1.NodeOp{ObjectMeta: metav1.ObjectMeta{Namespace: x.team, Name: "forged"}, Spec: opv1.NodeOpSpec{Command: []string{"date"}}}
		return x.client.Create(context.Background(), p, client.DryRunAll) != nil && x.client.Update(context.Background(), u, client.DryRunAll) != nil &&
			x.client.Create(context.Background(), o, client.DryRunAll) != nil
	})
	return x
}

// requireDenying checks that the policies exist, and deny.
func requireDenying(w *testenv.Env) {
	for _, name := range []string{"skyhook-operator-pods", "skyhook-operator-changes", "skyhook-operator-nodeops"} {
		p, b := &admissionv1.ValidatingAdmissionPolicy{}, &admissionv1.ValidatingAdmissionPolicyBinding{}
		w.Must(w.Client.Get(context.Background(), client.ObjectKey{Name: name}, p))
		w.Must(w.Client.Get(context.Background(), client.ObjectKey{Name: name}, b))
		if *p.Spec.FailurePolicy != admissionv1.Fail || !slices.Equal(b.Spec.ValidationActions, []admissionv1.ValidationAction{admissionv1.Deny}) {
			w.Errorf("%s does not deny: %v %v", name, *p.Spec.FailurePolicy, b.Spec.ValidationActions)
		}
	}
}

var yes, no = true, false

// ownedBy has a Skyhook or NodeOp control an object.
func ownedBy(o client.Object, version, kind string) []metav1.OwnerReference {
	return []metav1.OwnerReference{{APIVersion: version, Kind: kind, Name: o.GetName(), UID: o.GetUID(), Controller: &yes, BlockOwnerDeletion: &yes}}
}

func (x *thief) ofSkyhook() []metav1.OwnerReference {
	return ownedBy(x.skyhook, v1alpha1.GroupVersion.String(), "Skyhook")
}

func (x *thief) ofNodeOp() []metav1.OwnerReference {
	return ownedBy(x.op, opv1.GroupVersion.String(), "NodeOp")
}

// read reads an object that the operator made in a test of its own.
func read(t testing.TB, into client.Object, path ...string) {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(append([]string{root, "internal"}, path...)...))
	if err != nil {
		t.Fatal(err)
	}
	if err := yaml.UnmarshalStrict(text, into); err != nil {
		t.Fatal(err)
	}
	into.SetUID("")
	into.SetCreationTimestamp(metav1.Time{})
}

// skyhookPod returns a pod of the operator's golden files, as one of this Skyhook.
func (x *thief) skyhookPod(name string) *corev1.Pod {
	x.Helper()
	p := &corev1.Pod{}
	read(x, p, "skyhook", "testdata", "golden", name+".pod.yaml")
	p.Namespace, p.OwnerReferences, p.Spec.NodeName, p.Spec.ServiceAccountName = x.Namespace, x.ofSkyhook(), "n1", releaseName+"-packages"
	p.Status = corev1.PodStatus{}
	return p
}

// lookPod returns a pod in the shape of one whose container is not privileged, with everything that such a pod may have.
func (x *thief) lookPod() *corev1.Pod {
	p := x.skyhookPod("kernel-apply")
	recursive, kind := corev1.RecursiveReadOnlyEnabled, corev1.HostPathDirectoryOrCreate
	dir := func(name, path string) corev1.Volume {
		return corev1.Volume{Name: name, VolumeSource: corev1.VolumeSource{HostPath: &corev1.HostPathVolumeSource{Path: path, Type: &kind}}}
	}
	p.Spec.HostPID, p.Spec.HostIPC, p.Spec.HostNetwork = false, true, true
	p.Spec.Volumes = []corev1.Volume{
		{Name: "root", VolumeSource: corev1.VolumeSource{HostPath: &corev1.HostPathVolumeSource{Path: "/"}}}, dir("sys", "/proc/sys"), dir("etc", "/etc/sysctl.d"),
		{Name: "tmp", VolumeSource: corev1.VolumeSource{EmptyDir: &corev1.EmptyDirVolumeSource{}}},
		{Name: "image", VolumeSource: corev1.VolumeSource{Image: &corev1.ImageVolumeSource{Reference: "registry.example/driver:1"}}},
	}
	for i := range p.Spec.InitContainers {
		c := &p.Spec.InitContainers[i]
		c.SecurityContext = &corev1.SecurityContext{
			AllowPrivilegeEscalation: &no, Capabilities: &corev1.Capabilities{Drop: []corev1.Capability{"ALL"}, Add: []corev1.Capability{"DAC_READ_SEARCH", "SYS_CHROOT"}},
			SeccompProfile: &corev1.SeccompProfile{Type: corev1.SeccompProfileTypeRuntimeDefault},
		}
		c.VolumeMounts = []corev1.VolumeMount{
			{Name: "root", MountPath: "/root", ReadOnly: true, RecursiveReadOnly: &recursive}, {Name: "tmp", MountPath: "/root/tmp"},
			{Name: "sys", MountPath: "/root/proc/sys"}, {Name: "etc", MountPath: "/root/etc/sysctl.d"}, {Name: "image", MountPath: "/skyhook-image", ReadOnly: true},
		}
	}
	return p
}

// pullPod returns a pod that pulls images.
func (x *thief) pullPod() *corev1.Pod {
	p := x.skyhookPod("kernel-apply")
	p.Spec.HostPID, p.Spec.Volumes, p.Spec.InitContainers = false, nil, nil
	shape := &corev1.SecurityContext{AllowPrivilegeEscalation: &no, ReadOnlyRootFilesystem: &yes, Capabilities: &corev1.Capabilities{Drop: []corev1.Capability{"ALL"}}}
	p.Spec.Containers = []corev1.Container{
		{Name: "package", Image: "registry.example/driver:1", Command: []string{"/bin/sh", "-c", ":"}, SecurityContext: shape},
		{Name: "agent-image", Image: "registry.example/agent:1", Args: []string{"--version"}, SecurityContext: shape},
		{Name: "pause-image", Image: "registry.k8s.io/pause:3.10", Args: []string{"-v"}, SecurityContext: shape},
	}
	return p
}

// probePod returns the pod that finds out whether a node runs Kairos.
func (x *thief) probePod() *corev1.Pod {
	p := &corev1.Pod{}
	read(x, p, "nodeop", "testdata", "look.pod.yaml")
	p.Namespace, p.Spec.NodeName = x.Namespace, "n1"
	return p
}

// opPod returns a pod of the NodeOp.
func (x *thief) opPod() *corev1.Pod {
	p := &corev1.Pod{}
	read(x, p, "nodeop", "testdata", "full.reboot.yaml")
	p.Namespace, p.OwnerReferences, p.Spec.NodeName = x.team, x.ofNodeOp(), "n1"
	return p
}

// opJob returns a Job of the NodeOp.
func (x *thief) opJob() *batchv1.Job {
	j := &batchv1.Job{}
	read(x, j, "nodeop", "testdata", "full.job.yaml")
	j.Namespace, j.OwnerReferences, j.Spec.Template.Spec.NodeName = x.team, x.ofNodeOp(), "n1"
	return j
}

// create asks for an object with a dry run.
func (x *thief) create(o client.Object) error {
	return x.client.Create(context.Background(), o, client.DryRunAll)
}

// requireDenied checks that a policy denied a request, for this reason.
func requireDenied(t *testing.T, what string, err error, want string) {
	t.Helper()
	if err == nil || !strings.Contains(err.Error(), "ValidatingAdmissionPolicy 'skyhook-operator-") || !strings.Contains(err.Error(), want) {
		t.Errorf("%s: %v, want that a policy says %q", what, err, want)
	}
}

// TestOperatorPods sends requests of somebody who has the operator's token. What the operator makes is let through, and what it never makes is
// refused, whatever rights the account has.
func TestOperatorPods(t *testing.T) {
	x := newThief(t)
	requireAdmitted(t, x)

	const (
		owner   = "pods in its namespace that one Skyhook or NodeOp controls"
		shape   = "is privileged; or has allowPrivilegeEscalation false"
		root    = "mounts the host's root directory readOnly"
		program = "runs the agent in one of its modes"
		volume  = "is a hostPath, configMap, emptyDir, downwardAPI or image"
		path    = "is the shortest path of a directory"
		extras  = "has no lifecycle, probe, stdin, tty, ports, volumeDevices or envFrom"
		probe   = "reads /etc of its node"
		ipc     = "has hostIPC without"
	)
	forbidden := []struct {
		what, want string
		make       func() *corev1.Pod
		change     func(*corev1.Pod)
	}{
		{"nobody owns it", owner, x.opPod, func(p *corev1.Pod) { p.OwnerReferences = nil }},
		{"two owners", owner, nil, func(p *corev1.Pod) {
			p.OwnerReferences = append(p.OwnerReferences, x.ofNodeOp()...)
			p.OwnerReferences[1].Controller = nil
		}},
		{"an owner that does not control it", owner, nil, func(p *corev1.Pod) { p.OwnerReferences[0].Controller = nil }},
		{"a ConfigMap owns it", owner, nil, func(p *corev1.Pod) { p.OwnerReferences[0].APIVersion, p.OwnerReferences[0].Kind = "v1", "ConfigMap" }},
		{"a Skyhook of another group owns it", owner, nil, func(p *corev1.Pod) { p.OwnerReferences[0].APIVersion = "example.com/v1" }},
		{"a pod of a Skyhook elsewhere", owner, nil, func(p *corev1.Pod) { p.Namespace, p.Spec.ServiceAccountName = x.team, "" }},
		{"a token", "automountServiceAccountToken", nil, func(p *corev1.Pod) { p.Spec.AutomountServiceAccountToken = nil }},
		{"another account", "serviceAccountName", nil, func(p *corev1.Pod) { p.Spec.ServiceAccountName = releaseName + "-controller-manager" }},
		{"the account of the namespace", "serviceAccountName", nil, func(p *corev1.Pod) { p.Spec.ServiceAccountName = "" }},
		{"no node", "nodeName is not set", nil, func(p *corev1.Pod) { p.Spec.NodeName = "" }},
		{"a Secret", volume, nil, func(p *corev1.Pod) {
			p.Spec.Volumes = append(p.Spec.Volumes, corev1.Volume{Name: "s", VolumeSource: corev1.VolumeSource{Secret: &corev1.SecretVolumeSource{SecretName: "s"}}})
		}},
		{"a token in a volume", volume, nil, func(p *corev1.Pod) {
			p.Spec.Volumes = append(p.Spec.Volumes, corev1.Volume{Name: "s", VolumeSource: corev1.VolumeSource{Projected: &corev1.ProjectedVolumeSource{
				Sources: []corev1.VolumeProjection{{ServiceAccountToken: &corev1.ServiceAccountTokenProjection{Path: "token"}}},
			}}})
		}},
		{"root by another name", path, x.lookPod, func(p *corev1.Pod) { p.Spec.Volumes[2].HostPath.Path = "/." }},
		{"root by two slashes", path, x.lookPod, func(p *corev1.Pod) { p.Spec.Volumes[2].HostPath.Path = "//" }},
		{"root by a process", path, x.lookPod, func(p *corev1.Pod) { p.Spec.Volumes[2].HostPath.Path = "/proc/1/root" }},
		{"a program before its end", extras, nil, func(p *corev1.Pod) {
			p.Spec.Containers[0].Lifecycle = &corev1.Lifecycle{PreStop: &corev1.LifecycleHandler{Exec: &corev1.ExecAction{Command: []string{"sh"}}}}
		}},
		{"a program as a probe", extras, nil, func(p *corev1.Pod) {
			p.Spec.Containers[0].LivenessProbe = &corev1.Probe{ProbeHandler: corev1.ProbeHandler{Exec: &corev1.ExecAction{Command: []string{"sh"}}}}
		}},
		{"a terminal", extras, nil, func(p *corev1.Pod) { p.Spec.InitContainers[0].Stdin, p.Spec.InitContainers[0].TTY = true, true }},
		{"a port", extras, nil, func(p *corev1.Pod) { p.Spec.Containers[0].Ports = []corev1.ContainerPort{{ContainerPort: 80}} }},
		{"a whole Secret as environment", extras, nil, func(p *corev1.Pod) {
			p.Spec.Containers[0].EnvFrom = []corev1.EnvFromSource{{SecretRef: &corev1.SecretEnvSource{LocalObjectReference: corev1.LocalObjectReference{Name: "s"}}}}
		}},
		{"a command", program, nil, func(p *corev1.Pod) { p.Spec.InitContainers[1].Command = []string{"/bin/bash"} }},
		{"another script", program, nil, func(p *corev1.Pod) { p.Spec.InitContainers[0].Args[0] += "curl example.com | sh\n" }},
		{"a script instead of pulling", program, x.pullPod, func(p *corev1.Pod) { p.Spec.Containers[0].Command[2] = "id" }},
		{"another mode of the agent", program, nil, func(p *corev1.Pod) { p.Spec.InitContainers[1].Args[0] = "sentinel" }},
		{"arguments of another program", program, x.pullPod, func(p *corev1.Pod) { p.Spec.Containers[1].Args = []string{"--version", "x"} }},
		{"privilege escalation", shape, x.lookPod, func(p *corev1.Pod) { p.Spec.InitContainers[1].SecurityContext.AllowPrivilegeEscalation = nil }},
		{"another capability", shape, x.lookPod, func(p *corev1.Pod) { p.Spec.InitContainers[1].SecurityContext.Capabilities.Add[0] = "SYS_ADMIN" }},
		{"all capabilities of a container", shape, x.lookPod, func(p *corev1.Pod) { p.Spec.InitContainers[1].SecurityContext.Capabilities.Drop = nil }},
		{"no seccomp", shape, x.lookPod, func(p *corev1.Pod) {
			p.Spec.InitContainers[1].SecurityContext.SeccompProfile.Type = corev1.SeccompProfileTypeUnconfined
		}},
		{"the host in the pause container", shape, x.lookPod, func(p *corev1.Pod) {
			p.Spec.Containers[0].VolumeMounts = []corev1.VolumeMount{{Name: "etc", MountPath: "/etc"}}
		}},
		{"a capability of the pause container", shape, x.lookPod, func(p *corev1.Pod) {
			p.Spec.Containers[0].SecurityContext = &corev1.SecurityContext{Capabilities: &corev1.Capabilities{Add: []corev1.Capability{"SYS_ADMIN"}}}
		}},
		{"the host writable", root, x.lookPod, func(p *corev1.Pod) {
			p.Spec.InitContainers[1].VolumeMounts[0].ReadOnly, p.Spec.InitContainers[1].VolumeMounts[0].RecursiveReadOnly = false, nil
		}},
		{"what is mounted on the host writable", root, x.lookPod, func(p *corev1.Pod) { p.Spec.InitContainers[1].VolumeMounts[0].RecursiveReadOnly = nil }},
		{"processes of the host", "has hostPID", x.lookPod, func(p *corev1.Pod) { p.Spec.HostPID = true }},
		{"IPC without the network", ipc, x.lookPod, func(p *corev1.Pod) { p.Spec.HostNetwork = false }},
		{"IPC of a privileged pod", ipc, nil, func(p *corev1.Pod) { p.Spec.HostIPC = true }},
		{"a probe with another program", probe, x.probePod, func(p *corev1.Pod) { p.Spec.Containers[0].Args = []string{"apply"} }},
		{"a probe with a command", probe, x.probePod, func(p *corev1.Pod) { p.Spec.Containers[0].Command = []string{"sh"} }},
		{"a probe of another directory", probe, x.probePod, func(p *corev1.Pod) { p.Spec.Volumes[0].HostPath.Path = "/var" }},
		{"a probe that writes", probe, x.probePod, func(p *corev1.Pod) {
			p.Spec.Containers[0].VolumeMounts[0].ReadOnly, p.Spec.Containers[0].VolumeMounts[0].RecursiveReadOnly = false, nil
		}},
		{"a privileged probe", probe, x.probePod, func(p *corev1.Pod) { p.Spec.Containers[0].SecurityContext = &corev1.SecurityContext{Privileged: &yes} }},
	}
	for _, c := range forbidden {
		if c.make == nil {
			c.make = func() *corev1.Pod { return x.skyhookPod("kernel-apply") }
		}
		p := c.make()
		c.change(p)
		requireDenied(t, c.what, x.create(p), c.want)
		if err := x.Client.Create(context.Background(), p, client.DryRunAll); err != nil {
			t.Errorf("%s: somebody else is refused: %v", c.what, err)
		}
	}
	job := x.opJob()
	job.OwnerReferences = nil
	requireDenied(t, "a Job that nobody owns", x.create(job), owner)
	job.OwnerReferences = x.ofSkyhook()
	requireDenied(t, "a Job of a Skyhook", x.create(job), owner)
	nodeOp := &opv1.NodeOp{ObjectMeta: metav1.ObjectMeta{Namespace: x.team, Name: "forged"}, Spec: opv1.NodeOpSpec{Command: []string{"date"}}}
	requireDenied(t, "a NodeOp", x.create(nodeOp), "one NodeOpUpgrade of the same name")
	nodeOp.OwnerReferences = x.ofNodeOp()
	requireDenied(t, "a NodeOp of a NodeOp", x.create(nodeOp), "one NodeOpUpgrade of the same name")
	nodeOp.OwnerReferences = ownedBy(x.op, opv1.GroupVersion.String(), "NodeOpUpgrade")
	requireDenied(t, "a NodeOp with another name than its upgrade", x.create(nodeOp), "one NodeOpUpgrade of the same name")
	nodeOp.Name = x.op.Name + "-2"
	nodeOp.OwnerReferences[0].Name = nodeOp.Name
	if err := x.create(nodeOp); err != nil {
		t.Errorf("the NodeOp of an upgrade is refused: %v", err)
	}
	requireSpecsStay(t, x)
}

// requireAdmitted checks that the policies let everything through that the operator makes.
func requireAdmitted(t *testing.T, x *thief) {
	t.Helper()
	admitted := map[string]client.Object{"a pod that only looks": x.lookPod(), "a pod that pulls": x.pullPod(), "a probe": x.probePod(), "a pod of a NodeOp": x.opPod(), "a Job": x.opJob()}
	files, err := filepath.Glob(filepath.Join(root, "internal", "skyhook", "testdata", "golden", "*.pod.yaml"))
	if err != nil || len(files) < 5 {
		t.Fatal(err, files)
	}
	for _, file := range files {
		name := strings.TrimSuffix(filepath.Base(file), ".pod.yaml")
		admitted[name] = x.skyhookPod(name)
	}
	inside := x.opPod()
	inside.Namespace = x.Namespace
	admitted["a pod of a NodeOp in the operator's namespace"] = inside
	quiet := x.lookPod()
	quiet.Spec.HostIPC = false
	admitted["a pod that only looks, without sysctls"] = quiet
	apart := x.lookPod()
	apart.Spec.HostIPC, apart.Spec.HostNetwork = false, false
	admitted["a preflight"] = apart
	mixed := x.lookPod()
	mixed.Spec.HostPID, mixed.Spec.InitContainers[0].SecurityContext = true, &corev1.SecurityContext{Privileged: &yes}
	admitted["a check of packages with and without full rights"] = mixed
	for what, o := range admitted {
		if err := x.create(o); err != nil {
			t.Errorf("%s is refused: %v", what, err)
		}
	}
}

// requireSpecsStay checks that the account changes metadata only.
func requireSpecsStay(t *testing.T, x *thief) {
	t.Helper()
	ctx := context.Background()
	policy := x.Apply("{apiVersion: skyhook.nvidia.com/v1alpha1, kind: DeploymentPolicy, metadata: {name: kept}, spec: {default: {budget: {count: 1}, strategy: {fixed: {initialBatch: 1}}}}}")
	upgrade := x.Apply("{apiVersion: operator.kairos.io/v1alpha1, kind: NodeOpUpgrade, metadata: {name: kept, namespace: " + x.team + "}, spec: {image: i}}")
	pod, job := x.skyhookPod("kernel-apply"), x.opJob()
	x.Must(x.Client.Create(ctx, pod))
	x.Must(x.Client.Create(ctx, job))
	foreign := x.opJob()
	foreign.Name, foreign.OwnerReferences = "foreign", nil
	x.Must(x.Client.Create(ctx, foreign))
	patch := func(c client.Client, o client.Object, text string) error {
		return c.Patch(ctx, o.DeepCopyObject().(client.Object), client.RawPatch("application/merge-patch+json", []byte(text)), client.DryRunAll)
	}
	image, err := json.Marshal(map[string]any{"spec": map[string]any{"containers": []any{map[string]any{"name": "pause", "image": "evil"}}}})
	x.Must(err)
	for _, c := range []struct {
		object     client.Object
		text, want string
	}{
		{x.skyhook, `{"spec":{"serial":true}}`, "changes no spec"},
		{policy, `{"spec":{"default":{"budget":{"count":9}}}}`, "changes no spec"},
		{x.op, `{"spec":{"command":["reboot"]}}`, "changes no spec"},
		{upgrade, `{"spec":{"image":"j"}}`, "changes no spec"},
		{pod, `{"metadata":{"ownerReferences":null}}`, "changes no ownerReferences"},
		{job, `{"metadata":{"ownerReferences":null}}`, "changes Jobs of NodeOps only"},
		{foreign, `{"spec":{"suspend":true}}`, "changes Jobs of NodeOps only"},
	} {
		requireDenied(t, c.object.GetName()+" "+c.text, patch(x.client, c.object, c.text), c.want)
		if err := patch(x.Client, c.object, c.text); err != nil {
			t.Errorf("%s %s: somebody else is refused: %v", c.object.GetName(), c.text, err)
		}
	}
	strategic := func(c client.Client) error {
		return c.Patch(ctx, pod.DeepCopy(), client.RawPatch("application/strategic-merge-patch+json", image), client.DryRunAll)
	}
	requireDenied(t, "another image of a pod", strategic(x.client), "changes no spec")
	x.Must(strategic(x.Client))
	for _, o := range []client.Object{x.skyhook, policy, x.op, upgrade, pod, job} {
		if err := patch(x.client, o, `{"metadata":{"annotations":{"a":"b"},"finalizers":["example.com/a"]}}`); err != nil && o != client.Object(pod) {
			t.Errorf("metadata of %s may not be changed: %v", o.GetName(), err)
		}
	}
	if err := patch(x.client, pod, `{"metadata":{"annotations":{"a":"b"}}}`); err != nil {
		t.Errorf("an annotation of a pod may not be changed: %v", err)
	}
	if err := patch(x.client, job, `{"spec":{"backoffLimit":0}}`); err != nil {
		t.Errorf("the backoffLimit of a Job may not be lowered: %v", err)
	}
	if err := x.client.Delete(ctx, pod, client.GracePeriodSeconds(0)); err != nil && !apierrors.IsNotFound(err) {
		t.Errorf("a pod may not be deleted: %v", err)
	}
	x.Must(client.IgnoreNotFound(x.Client.Delete(ctx, upgrade)))
}

// TestOperatorIsLetThrough has the operator make pods of each kind that TestRights does not: none is refused.
func TestOperatorIsLetThrough(t *testing.T) {
	removeCRDs(t)
	w := testenv.New(t, plane, 2)
	mustHelm(t, "v4", w.Namespace, "install", releaseName, "chart", "--set-string", quietly+",settings.prepull=true,settings.podLayout=Compatible")
	t.Cleanup(func() { mustHelm(t, "v4", w.Namespace, "uninstall", releaseName, "--no-hooks") })
	for _, name := range []string{"n1", "n2"} { // a preflight needs a runtime that mounts recursively read-only
		n := w.GetNode(name)
		n.Status.RuntimeHandlers = []corev1.NodeRuntimeHandler{{Features: &corev1.NodeRuntimeHandlerFeatures{RecursiveReadOnlyMounts: &yes}}}
		w.Must(w.Client.Status().Update(context.Background(), n))
	}
	w.StartKubelet()
	_, end := startOperator(t, w.Namespace)
	defer end()
	for _, step := range []struct {
		name, spec string
		pods       []string
	}{
		{"checks", "preflight: None, drift: {every: 1m}", []string{"prepull", "driver-1-0-0-apply", "drift"}},
		{"asks", "preflight: Ask", []string{"preflight"}},
	} {
		w.Apply(`
apiVersion: skyhook.nvidia.com/v1alpha1
kind: Skyhook
metadata: {name: ` + step.name + `}
spec: {nodeSelectors: {matchLabels: {pool: gpu}}, interruptionBudget: {count: 1}, packages: {driver: {version: 1.0.0, image: registry.example/driver}}, ` + step.spec + `}
`)
		for _, pod := range step.pods {
			name := step.name + "-" + pod + "-"
			w.Eventually("the operator made a pod "+name, func() bool {
				finishPulls(w)
				return slices.ContainsFunc(listRequests(t, w.Namespace), func(r request) bool {
					isMade := r.Verb == "create" && r.ResponseStatus.Code == 201 && !strings.Contains(r.RequestURI, "dryRun")
					return isMade && r.ObjectRef.Resource == "pods" && strings.HasPrefix(r.ObjectRef.Name, name)
				})
			})
		}
	}
	for _, r := range listRequests(t, w.Namespace) {
		if strings.Contains(r.ResponseStatus.Message, "ValidatingAdmissionPolicy") {
			t.Errorf("%s %s %s is refused: %s", r.Verb, r.RequestURI, r.ObjectRef.Name, r.ResponseStatus.Message)
		}
	}
}

// finishPulls ends the pods that pull images.
func finishPulls(w *testenv.Env) {
	for _, p := range w.ListPods() {
		if p.Labels[v1alpha1.LabelPrepull] == "" || p.Status.Phase == corev1.PodSucceeded {
			continue
		}
		p.Status = corev1.PodStatus{Phase: corev1.PodSucceeded}
		for _, c := range p.Spec.Containers {
			p.Status.ContainerStatuses = append(p.Status.ContainerStatuses, corev1.ContainerStatus{
				Name: c.Name, Image: c.Image, ImageID: c.Image, State: corev1.ContainerState{Terminated: &corev1.ContainerStateTerminated{}},
			})
		}
		_ = w.Client.Status().Update(context.Background(), &p) // it is tried again
	}
}

// TestOperatorPodImages: with operatorPods.images no other image is let through, but those of the chart.
func TestOperatorPodImages(t *testing.T) {
	x := newThief(t, "--set", "operatorPods.images={registry.local:5000/,registry.example/ops:}")
	d := &appsv1.Deployment{}
	x.Must(x.Client.Get(context.Background(), client.ObjectKey{Namespace: x.Namespace, Name: releaseName + "-controller-manager"}, d))
	agent := ""
	for _, e := range d.Spec.Template.Spec.Containers[0].Env {
		if e.Name == "AGENT_IMAGE" {
			agent = e.Value
		}
	}
	pod := func(image string) *corev1.Pod {
		p := x.skyhookPod("kernel-apply")
		for i := range p.Spec.InitContainers[1:] {
			p.Spec.InitContainers[1+i].Image = image
		}
		return p
	}
	op := func(image string) *batchv1.Job {
		j := x.opJob()
		j.Spec.Template.Spec.Containers[0].Image = image
		return j
	}
	mounted := pod(agent)
	mounted.Spec.Volumes = append(mounted.Spec.Volumes, corev1.Volume{Name: "i", VolumeSource: corev1.VolumeSource{Image: &corev1.ImageVolumeSource{Reference: "example.com/driver:1"}}})
	first := x.opJob()
	first.Spec.Template.Spec.Containers[0].Image, first.Spec.Template.Spec.InitContainers[0].Image = agent, "busybox:latest"
	const want = "operatorPods.images"
	for what, o := range map[string]client.Object{
		"another image":                   pod("example.com/agent:1"),
		"an image that begins like ours":  pod(agent + "-more"),
		"another image of an init volume": mounted,
		"another image of a Job":          op("registry.example/ops-2:1"),
		"another init image of a Job":     first,
	} {
		requireDenied(t, what, x.create(o), want)
	}
	for what, o := range map[string]client.Object{"a pod": pod(agent), "a Job": op("registry.example/ops:2")} {
		if err := x.create(o); err != nil {
			t.Errorf("%s with images that are allowed is refused: %v", what, err)
		}
	}
}
