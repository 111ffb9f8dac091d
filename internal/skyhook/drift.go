// SPDX-FileCopyrightText: The Skyhook authors
// SPDX-License-Identifier: Apache-2.0

package skyhook

import (
	"hash/fnv"
	"maps"
	"strconv"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/skyhook-k8s/skyhook/api/skyhook/v1alpha1"
	"github.com/skyhook-k8s/skyhook/internal/node"
	"github.com/skyhook-k8s/skyhook/internal/pack"
	"github.com/skyhook-k8s/skyhook/internal/rollout"
)

// Defaults of spec.drift, and how long a check of one package and the pod of a node may take.
const (
	defaultDriftInterval    = 6 * time.Hour
	defaultDriftConcurrency = 10
	driftTimeout            = 10 * time.Minute
	driftPodTimeout         = 12 * time.Minute
)

// driftSlots is into how many parts the interval is divided: checks begin together at the end of one, so that they share passes.
const driftSlots = 500

func driftLimit(s *v1alpha1.Skyhook) int {
	switch d := s.Spec.Drift; {
	case d == nil:
		return 0
	case d.Concurrency == nil:
		return defaultDriftConcurrency
	default:
		return int(*d.Concurrency)
	}
}

// driftInterval returns how much time passes between two checks of a node.
func driftInterval(s *v1alpha1.Skyhook) time.Duration {
	if every := s.Spec.Drift.Every; every != nil {
		return every.Duration
	}
	return defaultDriftInterval
}

// compileDrift says when a node is checked for drift, and how far a check is.
func (c *nodeCompiler) compileDrift(t *target, out *rollout.Target) {
	pods := c.pods.drift
	if c.facts.Skyhook.Spec.Drift == nil && t.on.DriftText != "" && t.selected {
		e := node.Edit{}
		e.RemoveAnnotation(t.node, v1alpha1.PrefixDrift+c.facts.Skyhook.Name)
		c.edit(node.NamedEdit{Node: t.node.Name, Edit: e})
	}
	if c.facts.Skyhook.Spec.Drift == nil || !t.selected || !c.facts.hasPackageToCheck(&t.rec) {
		for _, pod := range pods {
			if !pod.leaving {
				out.Objects.Orphans = append(out.Objects.Orphans, pod.name)
			}
		}
		return
	}
	rec := c.facts.driftOf(t)
	c.result.readsClock = c.result.readsClock || t.on.Drift.IsInFuture(c.facts.Now)
	out.Drift = &rollout.Drift{Due: c.driftDue(t, rec), Limit: driftPodTimeout}
	for _, pod := range pods {
		phase := pod.drift.Status.Phase
		hasEnded := phase == corev1.PodSucceeded || phase == corev1.PodFailed
		switch {
		case pod.leaving:
			out.Drift.Going = out.Drift.Going || !hasEnded
		case pod.name != c.facts.driftPodName(t):
			out.Drift.Going = out.Drift.Going || !hasEnded
			if pod.name != rec.Pod {
				out.Drift.Old = append(out.Drift.Old, pod.name)
			}
		default:
			out.Drift.Object, out.Drift.Created, out.Drift.Ended = pod.name, pod.created, hasEnded
			found := c.facts.readDrift(t, pod.drift)
			out.Drift.Keep = len(node.DriftRecord{Packages: found}.Drifted()) > 0
		}
	}
}

// driftOf returns what the last check found on a node, as far as it still counts: for packages that have not changed since, on a node
// on which no work has been done since. A repair that is requested has not been done.
func (f *facts) driftOf(t *target) node.DriftRecord {
	rec := t.on.Drift.Effective(t.node.UID, string(f.Skyhook.UID), f.Now)
	if len(rec.Packages) == 0 {
		return rec
	}
	packages := map[string]node.PackageDrift{}
	for key, found := range rec.Packages {
		p := t.rec.Packages[key]
		isInstalled := !t.rec.Admitted && p != nil && p.Goal == "" && p.Hash == found.Hash
		if isInstalled || found.Repair != "" {
			packages[key] = found
		}
	}
	if t.rec.FinishedAt != nil && t.rec.FinishedAt.After(rec.CheckedAt) {
		packages = nil
	}
	if rec.Packages = packages; len(rec.Drifted()) == 0 {
		rec.Pod = ""
	}
	return rec
}

// driftDue returns when a node is checked next: within the interval after its last check or, the first time, after its work was done.
// Hashes spread that, so that it is the same for every operator.
func (c *nodeCompiler) driftDue(t *target, rec node.DriftRecord) time.Time {
	every, base, from := driftInterval(c.facts.Skyhook), rec.CheckedAt, 0.8
	if f := t.rec.FinishedAt; f != nil && f.After(base) {
		base, from = *f, 0.1
	}
	hash := fnv.New32a()
	hash.Write([]byte(t.node.UID + "\n" + string(c.facts.Skyhook.UID) + "\n" + strconv.FormatInt(base.Unix(), 10)))
	share := float64(hash.Sum32()) / (1 << 32)
	wait := time.Duration(float64(every) * (from + (1-from)*share))
	slot := max(every/driftSlots, time.Second)
	due := base.Add(wait).Truncate(slot)
	if refused, isRefused := c.refused[node.TaskDrift]; isRefused && refused.RetryAt().After(due) {
		return refused.RetryAt()
	}
	return due
}

// driftPodName returns the name of the pod of the next check.
func (f *facts) driftPodName(t *target) string {
	last := t.on.Drift.Effective(t.node.UID, string(f.Skyhook.UID), f.Now).CheckedAt
	return safeName(maxPodName, f.Skyhook.Name, "drift", t.node.Name, last.UTC().Format(time.RFC3339))
}

// DriftContainer returns the name of the container that checks a package, given as name|version.
func DriftContainer(key string) string {
	name, version, _ := cutKey(key)
	return safeName(63, packageName(name), "drift", version)
}

// checkedPackages returns the packages that are finished on a node, with their definitions; nil for one that is not known any more.
func (f *facts) checkedPackages(rec *node.SkyhookRecord) map[string]*Definition {
	out := map[string]*Definition{}
	for key, p := range rec.Packages {
		if p.Goal == "" && !p.Kept {
			out[key] = f.definition(p.Hash)
		}
	}
	return out
}

func (f *facts) hasPackageToCheck(rec *node.SkyhookRecord) bool {
	for _, p := range rec.Packages {
		if p.Goal == "" && !p.Kept && f.definition(p.Hash) != nil {
			return true
		}
	}
	return false
}

// driftPod returns the pod that checks a node for drift; nil if there is nothing to check.
func (r renderer) driftPod(t *target) *corev1.Pod {
	n := t.node
	if r.facts.Skyhook.Spec.Drift == nil {
		return nil
	}
	seconds := int64(driftPodTimeout.Seconds())
	spec := corev1.PodSpec{
		NodeName: n.Name, RestartPolicy: corev1.RestartPolicyNever, HostPID: true, HostNetwork: true, AutomountServiceAccountToken: new(false),
		ActiveDeadlineSeconds: &seconds,
		Volumes:               []corev1.Volume{{Name: volumeRoot, VolumeSource: corev1.VolumeSource{HostPath: &corev1.HostPathVolumeSource{Path: "/"}}}},
	}
	packages := r.facts.checkedPackages(&t.rec)
	maps.DeleteFunc(packages, func(_ string, def *Definition) bool { return def == nil })
	for _, key := range sortedNames(packages) {
		container, volume := r.driftContainer(key, packages[key], t)
		container.Env = append(container.Env, corev1.EnvVar{Name: pack.EnvMessageLimit, Value: strconv.Itoa(maxMessages / len(packages))})
		spec.Containers = append(spec.Containers, container)
		if volume != nil {
			spec.Volumes = append(spec.Volumes, *volume)
		}
	}
	if len(spec.Containers) == 0 {
		return nil
	}
	return r.newCheckPod(r.facts.driftPodName(t), v1alpha1.LabelDrift, n, spec)
}

// maxMessages is the most bytes that the termination messages of a pod have together, less some that encoding adds.
const maxMessages = 12<<10 - 512

// readOnlyRoot is where the host's root is mounted read-only beside rootMount.
const readOnlyRoot = "/root-read-only"

// driftContainer checks one package by what is on the host: its image is not needed. Its configMap is mounted to show how files differ.
func (r renderer) driftContainer(key string, def *Definition, t *target) (corev1.Container, *corev1.Volume) {
	st := newStep(def, work{}, t.on.State[key].Stage)
	st.setKey(key)
	checks := []string{string(pack.ModeApplyCheck), string(pack.ModeConfigCheck)}
	if st.stage == v1alpha1.StagePostInterrupt {
		checks = append(checks, string(pack.ModePostInterruptCheck))
	}
	timeout := []corev1.EnvVar{{Name: pack.EnvStageTimeout, Value: min(r.facts.deadlineOf(st), driftTimeout).String()}}
	dir := r.facts.Config.copyDir(r.facts.Skyhook.Name, r.ownerUID(&t.rec), st.name, st.version, t.rec.Packages[key].Generation)
	out := corev1.Container{
		Name: DriftContainer(key), Image: r.agentImage(def), ImagePullPolicy: r.pullPolicy(), SecurityContext: privilegedContext(),
		Args: []string{string(pack.ModeDrift), rootMount, dir},
		Env: append(r.packageEnv(st, &t.rec, timeout),
			corev1.EnvVar{Name: pack.EnvReadOnlyRoot, Value: readOnlyRoot}, corev1.EnvVar{Name: pack.EnvDriftChecks, Value: strings.Join(checks, ",")}),
		VolumeMounts: []corev1.VolumeMount{rootVolumeMount(), {Name: volumeRoot, MountPath: readOnlyRoot, ReadOnly: true}},
		Resources:    driftResources(def.Package.Resources),
	}
	if len(def.config) == 0 {
		return out, nil
	}
	volume, isOptional := r.configVolume(st), true
	volume.ConfigMap.Optional = &isOptional
	out.VolumeMounts = append(out.VolumeMounts, corev1.VolumeMount{Name: volume.Name, MountPath: configDir, ReadOnly: true})
	return out, &volume
}

// driftResources limits a check as the stages of the package are, and requests little: the checks of all packages run side by side.
func driftResources(of v1alpha1.Resources) corev1.ResourceRequirements {
	out := resourceRequirements(of)
	small := fixedResources("10m", "16Mi").Requests
	if out.Limits == nil {
		return corev1.ResourceRequirements{}
	}
	for name, request := range out.Requests {
		if request.Cmp(small[name]) > 0 {
			out.Requests[name] = small[name]
		}
	}
	return out
}

// recordDrift records what a check found, and requests the stages that repair it, if the Skyhook wants that.
func (r recorder) recordDrift(a rollout.Action, n *node.Node) node.Edit {
	t := r.target
	if t == nil || r.facts.Skyhook.Spec.Drift == nil {
		return node.Edit{}
	}
	last := r.facts.driftOf(t)
	rec := node.DriftRecord{Node: n.UID, Skyhook: string(r.facts.Skyhook.UID), CheckedAt: node.WholeSeconds(r.facts.Now), Repairs: last.RecentRepairs(r.facts.Now)}
	if pod := t.pods.findDrift(a.Object); pod != nil {
		rec.Packages = r.facts.readDrift(t, pod)
	}
	if len(rec.Drifted()) > 0 {
		rec.Pod = a.Object
	}
	edit := node.Edit{}
	if r.facts.Skyhook.Spec.Drift.Mode == v1alpha1.DriftRepair {
		edit = r.requestRepairs(&rec, n)
	} else {
		clearRepairs(&rec)
	}
	edit.SetAnnotation(n, v1alpha1.PrefixDrift+r.facts.Skyhook.Name, rec.String())
	return edit
}

func clearRepairs(rec *node.DriftRecord) {
	for key, found := range rec.Packages {
		found.Repair = ""
		rec.Packages[key] = found
	}
}

// requestRepairs returns the edit after which the packages that drifted run again, as a person would request it. What drifts again and
// again is only reported, and so is what drifted on a node that went back.
func (r recorder) requestRepairs(rec *node.DriftRecord, n *node.Node) node.Edit {
	edit, after := node.Edit{}, n
	rec.Packages = maps.Clone(rec.Packages)
	for _, key := range rec.Drifted() {
		found := rec.Packages[key]
		name, version, _ := cutKey(key)
		switch {
		case found.Repair == "":
		case n.Skyhook(r.facts.Skyhook.Name).Record.Rollback != nil:
			found.Repair = ""
		case !rec.MayRepair(name, r.facts.Now):
			found.Repair = ""
			found.Text = node.Truncate("it drifts again after three repairs within a day, and is only reported: "+found.Text, maxDriftText)
		default:
			e, err := after.Rerun(r.facts.Skyhook.Name, name, version, v1alpha1.Stage(found.Repair))
			if err != nil { // the package is not there any more
				found.Repair = ""
				break
			}
			edit, after = edit.Plus(e), after.With(e)
			rec.Repairs = rec.NoteRepair(name, r.facts.Now)
		}
		rec.Packages[key] = found
	}
	return edit
}

// newCheckPod returns a pod that checks a node, marked by a label.
func (r renderer) newCheckPod(name, label string, n *node.Node, spec corev1.PodSpec) *corev1.Pod {
	s := r.facts.Skyhook
	out := &corev1.Pod{
		TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "Pod"},
		ObjectMeta: metav1.ObjectMeta{
			Name: name, Namespace: r.facts.Config.Namespace, OwnerReferences: ownerReferences(s),
			Labels: map[string]string{v1alpha1.LabelName: s.Name, v1alpha1.LabelNode: nodeLabel(n.Name), label: "True"},
		},
		Spec: spec,
	}
	out.Spec.ServiceAccountName, out.Spec.Tolerations = r.facts.Config.ServiceAccount, r.tolerations()
	if r.facts.Config.ImagePullSecret != "" {
		out.Spec.ImagePullSecrets = []corev1.LocalObjectReference{{Name: r.facts.Config.ImagePullSecret}}
	}
	return out
}
