// SPDX-FileCopyrightText: The Skyhook authors
// SPDX-License-Identifier: Apache-2.0

package world

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strconv"
	"strings"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	opv1 "github.com/skyhook-k8s/skyhook/api/nodeop/v1alpha1"
	"github.com/skyhook-k8s/skyhook/api/skyhook/v1alpha1"
	"github.com/skyhook-k8s/skyhook/internal/pack"
	"github.com/skyhook-k8s/skyhook/internal/skyhook/podstate"
	"github.com/skyhook-k8s/skyhook/test/kubelet"
)

// host is the machine below a node: what survives a reboot, and what the node cannot know.
type host struct {
	boots               int
	downFor             int             // turns until it is back; below 0: it does not come back by itself
	silentFor           int             // turns that it works after a boot before its node reports anything
	stuck               bool            // its pods do not end when they are deleted
	again               bool            // the next reboot is followed by another one at once
	toHang, pullsToHang int             // so many of the next pods hang until they are deleted; of those that pull images
	hung                map[string]bool // pods that do, by UID
	rejectsUntil        int             // the turn from which on its kubelet accepts pods

	rebooted map[string]pack.Reboot // by interrupt id: recorded by the agent on the host
	prepared map[string]int         // by Skyhook and package, or Job: the boot in which its last stage before an interrupt succeeded, or its command
}

func (h *host) bootID() string { return fmt.Sprintf("boot-%d", h.boots) }

// stepHosts lets every kubelet, the Job controller and the garbage collector take one step.
func (r *Run) stepHosts() {
	for _, key := range r.server.keys(Nodes) {
		r.stepNode(key)
	}
	for _, key := range r.server.keys(Jobs) {
		r.stepJob(decode(r.server.objects[Jobs.Kind][key], &batchv1.Job{}))
	}
	for _, key := range r.server.keys(Pods) {
		if c := r.server.objects[Pods.Kind][key]; c != nil {
			r.stepPod(view(r, c, &corev1.Pod{}).DeepCopy())
		}
	}
	r.stepDaemonSet()
	r.stepNeighbour()
	r.collectGarbage()
}

// stepDaemonSet lets the controller of DaemonSets create a pod on each node that its DaemonSet selects, and delete that of others.
func (r *Run) stepDaemonSet() {
	for _, key := range r.server.keys(DaemonSets) {
		set := view(r, r.server.objects[DaemonSets.Kind][key], &appsv1.DaemonSet{})
		for _, node := range r.server.keys(Nodes) {
			isTurnedAway := turnsAway(nodeLabels(r.server.objects[Nodes.Kind][node]))
			p := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: key.Namespace, Name: key.Name + "-" + node.Name}, Spec: *set.Spec.Template.Spec.DeepCopy()}
			p.OwnerReferences = []metav1.OwnerReference{*metav1.NewControllerRef(set, DaemonSets.GroupVersionKind)}
			p.Spec.NodeName = node.Name
			switch exists := r.server.objects[Pods.Kind][client.ObjectKeyFromObject(p)] != nil; {
			case exists && isTurnedAway:
				_, _, _ = r.server.delete(Pods, client.ObjectKeyFromObject(p), metav1.DeleteOptions{}) // it was there a moment ago
			case !exists && !isTurnedAway:
				_ = r.create(Pods, p) // the next turn tries again
			}
		}
	}
}

// addDaemonSet creates a DaemonSet that selects all nodes but those whose label turns it away.
func (r *Run) addDaemonSet() {
	term := corev1.NodeSelectorTerm{MatchExpressions: []corev1.NodeSelectorRequirement{{Key: setLabel, Operator: corev1.NodeSelectorOpNotIn, Values: turningAway}}}
	set := &appsv1.DaemonSet{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "plugin"}}
	set.Spec.Template.Spec = corev1.PodSpec{
		Containers: []corev1.Container{{Name: "plugin", Image: "plugin"}},
		Affinity: &corev1.Affinity{NodeAffinity: &corev1.NodeAffinity{
			RequiredDuringSchedulingIgnoredDuringExecution: &corev1.NodeSelector{NodeSelectorTerms: []corev1.NodeSelectorTerm{term}},
		}},
	}
	if err := r.create(DaemonSets, set); err != nil {
		r.violate("set up", "DaemonSet: %v", err)
	}
}

// view is a decoded object, which must not be changed. Each version is decoded once.
func view[T client.Object](r *Run, c content, into T) T {
	m := meta(c)
	id := string(m.GetUID()) + m.GetResourceVersion()
	if known, ok := r.typed[id].(T); ok {
		return known
	}
	decode(c, into)
	r.typed[id] = into
	return into
}

func (r *Run) host(node string) *host {
	c := r.server.objects[Nodes.Kind][client.ObjectKey{Name: node}]
	if c == nil {
		return nil
	}
	uid := string(meta(c).GetUID())
	if r.hosts[uid] == nil {
		r.hosts[uid] = &host{boots: 1, hung: map[string]bool{}, rebooted: map[string]pack.Reboot{}, prepared: map[string]int{}}
	}
	return r.hosts[uid]
}

// stepNode brings a node that is down closer to its return, and its status up to date.
func (r *Run) stepNode(key client.ObjectKey) {
	h := r.host(key.Name)
	if r.isQuiet && (h.downFor < 0 || h.downFor > 3) {
		h.downFor = 3 // somebody switches it on
	}
	if h.downFor > 0 {
		if h.downFor--; h.downFor == 0 && h.again {
			h.again, h.downFor = false, 2
			h.boots++
		}
	}
	if h.downFor == 0 && h.silentFor > 0 {
		h.silentFor--
		return
	}
	n := view(r, r.server.objects[Nodes.Kind][key], &corev1.Node{}).DeepCopy()
	ready := corev1.ConditionTrue
	if h.downFor != 0 {
		ready = corev1.ConditionFalse
	}
	at := slices.IndexFunc(n.Status.Conditions, func(c corev1.NodeCondition) bool { return c.Type == corev1.NodeReady })
	isSame := !r.stepValidator(n) && at >= 0 && n.Status.Conditions[at].Status == ready && (h.downFor != 0 || n.Status.NodeInfo.BootID == h.bootID())
	if isSame {
		return
	}
	if at < 0 {
		n.Status.Conditions = append(n.Status.Conditions, corev1.NodeCondition{Type: corev1.NodeReady})
		at = len(n.Status.Conditions) - 1
	}
	n.Status.Conditions[at].Status, n.Status.Conditions[at].LastTransitionTime = ready, metav1.NewTime(r.now)
	if h.downFor == 0 {
		n.Status.NodeInfo.BootID = h.bootID()
		n.Status.RuntimeHandlers = []corev1.NodeRuntimeHandler{{Features: &corev1.NodeRuntimeHandlerFeatures{RecursiveReadOnlyMounts: new(true)}}}
		n.Status.NodeInfo.ContainerRuntimeVersion = "containerd://2.1.4"
		n.Status.NodeInfo.KubeletVersion = []string{"v1.34.3", "v1.35.0", "v1.35.1"}[r.random("kubelet", n.Name).IntN(3)]
	}
	r.writeStatus(Nodes, n)
}

// writeStatus replaces the status of an object.
func (r *Run) writeStatus(k Kind, o client.Object) {
	raw, err := encode(o)
	if err != nil {
		panic(err) // it was decoded from the server
	}
	_, _, err = r.server.change(k, client.ObjectKeyFromObject(o), "status", func(into content) error {
		into["status"] = raw["status"]
		return nil
	})
	if err != nil {
		panic(fmt.Sprintf("status of %s: %v", o.GetName(), err))
	}
}

// stepPod lets a pod begin, go on, end or vanish.
func (r *Run) stepPod(p *corev1.Pod) {
	h := r.host(p.Spec.NodeName)
	random := r.random("pod", string(p.UID), r.turn)
	if h != nil && h.downFor == 0 && p.Namespace == Namespace && p.DeletionTimestamp == nil {
		h.hangNext(p)
	}
	switch {
	case h == nil:
		r.endPod(p) // as the garbage collector of pods does
	case h.downFor != 0:
	case p.DeletionTimestamp != nil:
		if r.isQuiet || !h.stuck && random.IntN(100) < 70 {
			r.endPod(p)
		}
	case h.hung[string(p.UID)]:
	case random.IntN(100) < 25 && !r.isQuiet: // nothing happens yet
	case p.Namespace == Namespace && r.turn < h.rejectsUntil && len(p.Status.InitContainerStatuses)+len(p.Status.ContainerStatuses) == 0 && !kubelet.HasEnded(p):
		r.rejectPod(p)
	case p.Labels[opv1.LabelReboot] == "true":
		r.stepOpReboot(p, h)
	case p.Labels[opv1.LabelPreflight] == "true":
		r.finish(p, random, 0, "")
	case metav1.GetControllerOf(p) != nil && metav1.GetControllerOf(p).Kind == Jobs.Kind:
		r.stepCommand(p, h, random)
	case p.Labels[v1alpha1.LabelDrift] != "":
		r.stepCheck(p, random)
	case p.Labels[v1alpha1.LabelPreflight] != "":
		r.stepPreflight(p, random)
	case p.Labels[v1alpha1.LabelPrepull] != "":
		r.stepPull(p, random)
	case p.Namespace == Namespace:
		r.stepPackage(p, h, random)
	case p.Status.Phase == corev1.PodPending:
		p.Status.Phase = corev1.PodRunning
		p.Status.Conditions = append(p.Status.Conditions, corev1.PodCondition{Type: corev1.PodReady, Status: corev1.ConditionTrue, LastTransitionTime: metav1.NewTime(r.now)})
		r.writeStatus(Pods, p)
	case isProtected(p) && !r.now.Before(p.CreationTimestamp.Add(protectedFor)):
		p.Status.Phase = corev1.PodSucceeded
		r.writeStatus(Pods, p)
	}
}

// hangNext lets a pod hang, whatever it has to do next, if more are to.
func (h *host) hangNext(p *corev1.Pod) {
	left := &h.toHang
	if p.Labels[v1alpha1.LabelPrepull] != "" {
		left = &h.pullsToHang
	}
	if *left > 0 && !h.hung[string(p.UID)] {
		*left--
		h.hung[string(p.UID)] = true
	}
}

// rejectPod lets the kubelet refuse a pod.
func (r *Run) rejectPod(p *corev1.Pod) {
	kubelet.Reject(p, "OutOfpods", "Node didn't have enough resource: pods")
	if p.Labels[v1alpha1.LabelPrepull] != "" {
		r.notePulled(p)
	}
	r.writeStatus(Pods, p)
}

// protectedFor is how long a pod runs that must not be interrupted.
const protectedFor = 20 * time.Minute

// isProtected reports whether a pod runs that must not be interrupted.
func isProtected(p *corev1.Pod) bool {
	return p.Annotations[v1alpha1.AnnotationDoNotInterrupt] == "true" && p.Status.Phase != corev1.PodSucceeded
}

func (r *Run) endPod(p *corev1.Pod) {
	now := int64(0)
	_, _, _ = r.server.delete(Pods, client.ObjectKeyFromObject(p), metav1.DeleteOptions{GracePeriodSeconds: &now}) // it was there a moment ago
}

// finish ends all containers of a pod of a NodeOp, sometimes with a failure.
func (r *Run) finish(p *corev1.Pod, random *rand.Rand, failPercent int, message string) {
	if kubelet.HasEnded(p) {
		return
	}
	code := int32(0)
	if !r.isQuiet && random.IntN(100) < failPercent {
		code = 1
	}
	kubelet.EndAll(p, code, message, r.now)
	r.writeStatus(Pods, p)
}

// stepPackage takes a pod of a Skyhook one step further.
func (r *Run) stepPackage(p *corev1.Pod, h *host, random *rand.Rand) {
	if podstate.IsCompact(p) {
		r.stepCompact(p, h, random)
		return
	}
	isNew := len(p.Status.InitContainerStatuses) == 0
	if kubelet.Create(p); kubelet.HasEnded(p) || kubelet.Next(p) >= len(p.Spec.InitContainers) {
		return
	}
	chance := random.IntN(100)
	if r.failsOften(p.Labels[v1alpha1.LabelName]) {
		chance /= 4
	}
	if r.isQuiet {
		chance = 99
	}
	message := string(pack.Message{Outcome: pack.Succeeded, Boot: h.bootID()}.Encode())
	if p.Spec.InitContainers[0].Name == "interrupt" {
		proof, isDone := r.interrupt(p, &p.Spec.InitContainers[0], h)
		if !isDone {
			return
		}
		message, chance = proof, max(chance, 20) // what it did is done
	}
	switch {
	case chance < 4 && isNew:
		kubelet.Reject(p, "OutOfcpu", "Node didn't have enough resource: cpu")
	case chance < 7 && isNew:
		kubelet.Wait(p, 0, "ImagePullBackOff", "not found")
	case chance < 16:
		r.failPackage(p)
	default:
		for i := kubelet.Next(p); i < len(p.Spec.InitContainers); i = kubelet.Next(p) {
			kubelet.End(p, i, 0, message, r.now)
		}
		r.notePodStage(p, h)
	}
	if first := kubelet.Status(p, 0); len(p.Spec.InitContainers) > 1 && first.State.Terminated != nil && first.ImageID == "" {
		first.ImageID = r.pullImage(p, p.Spec.InitContainers[0].Image)
	}
	r.writeStatus(Pods, p)
}

// A pod says how often its stage failed before; after three failures the node gives its seat back.
const (
	annotationAttempts = v1alpha1.Group + "/attempts"
	finalFailures      = 3
)

func attemptsBefore(p *corev1.Pod) int {
	before, _ := strconv.Atoi(p.Annotations[annotationAttempts])
	return before
}

// failPackage lets the stage of a pod fail; the kubelet will start it again.
func (r *Run) failPackage(p *corev1.Pod) {
	stage := min(1, len(p.Spec.InitContainers)-1)
	if kubelet.Next(p) < stage {
		kubelet.End(p, 0, 0, "", r.now)
	}
	kubelet.End(p, stage, 1, "", r.now)
	r.noteFailure(p, attemptsBefore(p)+int(kubelet.Status(p, stage).RestartCount))
}

// noteFailure notes that a stage that had failed so often before failed again.
func (r *Run) noteFailure(p *corev1.Pod, before int) {
	if before+1 >= finalFailures {
		set(r.truth.gaveUp, r.uidOf(nodeKey(p.Spec.NodeName)), p.Labels[v1alpha1.LabelName], true)
	}
}

// interrupt does to the host what an interrupt pod asks for, once for each id, and returns the agent's message.
func (r *Run) interrupt(p *corev1.Pod, c *corev1.Container, h *host) (message string, isDone bool) {
	what, err := pack.DecodeInterrupt(c.Args[3])
	if err != nil {
		panic(err) // the operator wrote it
	}
	at := slices.IndexFunc(c.Env, func(e corev1.EnvVar) bool { return e.Name == pack.EnvInterruptID })
	r.noteInterrupt(p, c.Env[at].Value)
	out := pack.Message{Mode: pack.ModeInterrupt, Outcome: pack.Succeeded}
	if what.Type == pack.InterruptReboot {
		proof, isDone := r.reboot(h, c.Env[at].Value)
		if !isDone {
			return "", false
		}
		out.Reboot = &proof
	}
	return string(out.Encode()), true
}

// reboot reboots a host, once for each id. It is not done until the host is back.
func (r *Run) reboot(h *host, id string) (pack.Reboot, bool) {
	if proof, did := h.rebooted[id]; did {
		return proof, true
	}
	from := h.bootID()
	h.boots++
	h.rebooted[id] = pack.Reboot{From: from, To: h.bootID()}
	h.downFor = 1 + r.random("reboot", id).IntN(3)
	return pack.Reboot{}, false
}

// stepOpReboot takes the pod that reboots a node for a NodeOp one step further.
func (r *Run) stepOpReboot(p *corev1.Pod, h *host) {
	args := p.Spec.Containers[0].Args
	id := args[slices.Index(args, "--id")+1]
	if slices.Contains(args, "--after-file") && !r.hasSucceeded(p.Namespace, id) {
		return
	}
	if proof, isDone := r.reboot(h, "nodeop "+id); isDone {
		r.finish(p, r.random("op"), 0, string(pack.Message{Outcome: pack.Succeeded, Reboot: &proof}.Encode()))
	}
}

// hasSucceeded reports whether the command of a Job ended well.
func (r *Run) hasSucceeded(namespace, job string) bool {
	c := r.server.objects[Pods.Kind][client.ObjectKey{Namespace: namespace, Name: job + "-0"}]
	return c != nil && nestedString(c, "status", "phase") == string(corev1.PodSucceeded)
}

// stepJob creates the pod of a Job, and ends the Job after it.
func (r *Run) stepJob(j *batchv1.Job) {
	isOver := kubelet.HasJobEnded(j) || j.DeletionTimestamp != nil
	if isOver || r.host(j.Spec.Template.Spec.NodeName) == nil { // without its node it would be tried again for ever
		return
	}
	pod := r.server.objects[Pods.Kind][client.ObjectKey{Namespace: j.Namespace, Name: j.Name + "-0"}]
	if pod == nil {
		if r.create(Pods, kubelet.JobPod(j)) == nil {
			j.Status.Active = 1
			r.writeStatus(Jobs, j)
		}
		return
	}
	if phase := corev1.PodPhase(nestedString(pod, "status", "phase")); phase == corev1.PodSucceeded || phase == corev1.PodFailed {
		kubelet.EndJob(j, phase == corev1.PodSucceeded, r.now)
		r.writeStatus(Jobs, j)
	}
}

func (r *Run) create(k Kind, o client.Object) error {
	raw, err := encode(o)
	if err != nil {
		return err
	}
	_, err = r.server.create(k, raw)
	return err
}

// collectGarbage deletes what belongs to an object of our kinds, or to a Job, that does not exist.
func (r *Run) collectGarbage() {
	exists := map[string]bool{}
	for _, k := range []Kind{Skyhooks, NodeOps, Jobs, Upgrades} {
		for _, c := range r.server.objects[k.Kind] {
			exists[string(meta(c).GetUID())] = true
		}
	}
	for _, k := range []Kind{Pods, ConfigMaps, Revisions, Jobs, NodeOps} {
		for _, key := range r.server.keys(k) {
			owner := metav1.GetControllerOfNoCopy(meta(r.server.objects[k.Kind][key]))
			isOurs := owner != nil && (strings.HasSuffix(owner.APIVersion, "/v1alpha1") || owner.Kind == Jobs.Kind)
			if isOurs && !exists[string(owner.UID)] {
				_, _, _ = r.server.delete(k, key, metav1.DeleteOptions{}) // it was there a moment ago
			}
		}
	}
}
