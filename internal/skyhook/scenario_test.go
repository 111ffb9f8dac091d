// SPDX-FileCopyrightText: The Skyhook authors
// SPDX-License-Identifier: Apache-2.0

package skyhook

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/cockroachdb/datadriven"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/skyhook-k8s/skyhook/api/skyhook/v1alpha1"
	"github.com/skyhook-k8s/skyhook/internal/node"
	"github.com/skyhook-k8s/skyhook/internal/pack"
	"github.com/skyhook-k8s/skyhook/internal/rollout"
	"github.com/skyhook-k8s/skyhook/internal/skyhook/plan"
	"github.com/skyhook-k8s/skyhook/internal/skyhook/podstate"
	"github.com/skyhook-k8s/skyhook/test/kubelet"
)

// TestScenarios runs the scripts in testdata/scenarios; each documents one rule. Rewrite them with
// go test ./internal/skyhook -run TestScenarios -rewrite, and review the difference.
//
//	skyhook                  applies the YAML below the command
//	node NAME…               adds nodes
//	compile                  prints the tasks
//	drive                    runs until nothing is left to do, and prints what ran
//	state NODE               prints nodeState and the other visible marks of the node
//	set NODE KEY=VALUE…      changes a node: boot, label.K, annotation.K, unschedulable, ready, taint
//	admit|hold|release|retire NODE, run|fail|finish|pull|reject|lose NODE TASK
//	containers|begin|uncreated NODE TASK
//	                         prints the containers of a pod; its first one runs; it cannot be created
//	delete                   deletes the Skyhook
//	replace NODE PACKAGE VERSION
//	                         replaces the running stage, as package rerun --now does
//	pulling|pulled NODE TASK [DIGEST|IMAGE-ID]
//	                         the node has not pulled the image of the pod; it has, and names it so
//	status                   stores the status, and prints what it says about images, and the events
//	recreate                 creates the Skyhook below the command under a new UID, after its deletion
func TestScenarios(t *testing.T) {
	datadriven.Walk(t, "testdata/scenarios", func(t *testing.T, path string) {
		w := newTestCluster(t)
		datadriven.RunTest(t, path, func(t *testing.T, d *datadriven.TestData) string {
			w.t = t
			return w.command(d)
		})
	})
}

func (w *testCluster) skyhook(d *datadriven.TestData) *v1alpha1.Skyhook {
	name := ""
	for _, a := range d.CmdArgs {
		if a.Key == "skyhook" {
			name = a.Vals[0]
		}
	}
	for _, s := range w.skyhooks {
		if name == "" || s.Name == name {
			return s
		}
	}
	w.t.Fatalf("%s: there is no such Skyhook", d.Pos)
	return nil
}

func (w *testCluster) command(d *datadriven.TestData) string {
	arg := func(i int) string {
		if i < len(d.CmdArgs) {
			return d.CmdArgs[i].Key
		}
		return ""
	}
	switch d.Cmd {
	case "skyhook":
		w.apply(d.Input)
		return ""
	case "node":
		for _, a := range d.CmdArgs {
			w.addNode(a.Key)
		}
		return ""
	case "remove":
		w.nodes = w.nodes[:0:0]
		return ""
	case "config":
		for _, a := range d.CmdArgs {
			w.configure(d, a.Key)
		}
		return ""
	case "compile":
		return formatRollout(w.compile(w.skyhook(d)))
	case "drive":
		return w.drive(w.skyhook(d))
	case "set":
		w.set(d)
		return ""
	case "state":
		return w.state(arg(0))
	case "fails":
		for _, a := range d.CmdArgs {
			w.fails[a.Key] = 2
		}
		return ""
	case "hangs":
		w.hangs = map[string]bool{}
		for _, a := range d.CmdArgs {
			w.hangs[a.Key] = true
		}
		return ""
	case "replace":
		n := node.Parse(w.node(arg(0)).DeepCopy(), nil)
		e, err := n.Replace(w.skyhook(d).Name, arg(1), arg(2))
		if err != nil {
			return err.Error()
		}
		w.write(arg(0), e)
		return ""
	case "recreate":
		w.recreate(d.Input)
		return ""
	case "status":
		return w.storeImageStatus(w.skyhook(d))
	case "delete":
		now := metav1.NewTime(w.now)
		w.skyhook(d).DeletionTimestamp = &now
		return ""
	}
	return w.action(d, arg(0), arg(1))
}

func (w *testCluster) configure(d *datadriven.TestData, word string) {
	switch word {
	case "reapply-on-reboot":
		w.config.ReapplyOnReboot = true
	case "keep-removed-packages":
		w.config.KeepRemovedPackages = true
	case "pin-images":
		w.config.PinImages = new(true)
	case "no-pin-images":
		w.config.PinImages = new(false)
	case "compact":
		w.config.PodLayout = plan.LayoutCompact
	case "policy-missing":
		w.missing = true
	case "policy-exists":
		w.missing = false
	case "trust-agent":
		w.config.TrustAgentReboots = true
	default:
		d.Fatalf(w.t, "unknown option %s", word)
	}
}

func (w *testCluster) set(d *datadriven.TestData) {
	n := w.node(d.CmdArgs[0].Key)
	for _, a := range d.CmdArgs[1:] {
		value := ""
		if len(a.Vals) > 0 {
			value = strings.Join(a.Vals, ",")
		}
		kind, key, _ := strings.Cut(a.Key, ".")
		switch kind {
		case "boot":
			n.Status.NodeInfo.BootID = value
		case "uid":
			n.UID = "node-" + n.UID
		case "label":
			n.Labels[key] = value
		case "unlabel":
			delete(n.Labels, key)
		case "annotation":
			n.Annotations["skyhook.nvidia.com/"+key] = strings.ReplaceAll(value, "`", `"`)
		case "unannotate":
			delete(n.Annotations, "skyhook.nvidia.com/"+key)
		case "unschedulable":
			n.Spec.Unschedulable = value == "true"
		case "kubelet":
			n.Status.NodeInfo.KubeletVersion = value
		case "runtime":
			n.Status.NodeInfo.ContainerRuntimeVersion = value
		case "ready":
			n.Status.Conditions[0].Status = corev1.ConditionStatus(map[string]string{"true": "True", "false": "False"}[value])
		case "taint":
			key, effect, _ := strings.Cut(value, ":")
			n.Spec.Taints = append(n.Spec.Taints, corev1.Taint{Key: key, Effect: corev1.TaintEffect(effect)})
		default:
			d.Fatalf(w.t, "cannot set %s", a.Key)
		}
	}
	w.bumpVersion(n)
}

// state prints what people see on a node.
func (w *testCluster) state(name string) string {
	n := w.node(name)
	show := map[string]string{}
	for key, value := range n.Annotations {
		short := strings.TrimPrefix(key, "skyhook.nvidia.com/")
		if !strings.HasPrefix(short, "record_") {
			show[short] = value
		}
	}
	out := lines(show)
	if n.Spec.Unschedulable {
		out += "unschedulable\n"
	}
	for _, t := range n.Spec.Taints {
		out += "taint " + t.ToString() + "\n"
	}
	return out
}

func (w *testCluster) action(d *datadriven.TestData, node, task string) string {
	s := w.skyhook(d)
	w.now = w.now.Add(10 * time.Second)
	verbs := map[string]rollout.Verb{
		"admit": rollout.VerbAdmit, "hold": rollout.VerbHold, "release": rollout.VerbRelease, "retire": rollout.VerbRetire,
		"run": rollout.VerbRun, "taint": rollout.VerbTaint, "untaint": rollout.VerbUntaint,
	}
	if verb, ok := verbs[d.Cmd]; ok {
		a := rollout.Action{Verb: verb, Node: node, Task: task}
		for _, arg := range d.CmdArgs {
			if arg.Key == "covers" {
				a.Covers = arg.Vals
			}
			if arg.Key == "then" {
				a.Then = arg.Vals
			}
			a.Wipe = a.Wipe || arg.Key == "wipe"
			a.Skip = a.Skip || arg.Key == "skip"
		}
		w.applyAction(w.compile(s), a)
		return ""
	}
	pod := w.podOf(s, node, task)
	if pod == nil {
		d.Fatalf(w.t, "there is no pod for %s on %s", task, node)
	}
	kubelet.Create(pod)
	switch d.Cmd {
	case "finish":
		if podstate.Read(pod).State == podstate.Succeeded { // it has another message, as if it had ended only now
			pod.Status = corev1.PodStatus{}
		}
		w.endPod(pod, 0, strings.TrimSpace(d.Input))
	case "record":
		w.applyAction(w.compile(s), rollout.Action{Verb: rollout.VerbRecord, Node: node, Task: task, State: rollout.StateDone})
		w.applyAction(w.compile(s), rollout.Action{Verb: rollout.VerbSweep, Node: node, Object: pod.Name})
	case "fail":
		w.endPod(pod, 1, string(pack.Message{Mode: pack.Mode(strings.Split(task, "/")[1]), Outcome: pack.Failed, Class: pack.StepFailed,
			Reason: "step run.sh ended with exit code 7", Lines: []string{"one", "no such file"}}.Encode()))
		w.applyAction(w.compile(s), rollout.Action{Verb: rollout.VerbRecord, Node: node, Task: task, State: rollout.StateFailing, Attempts: 1})
	case "containers":
		return formatContainers(pod)
	case "uncreated":
		kubelet.Wait(pod, 0, "CreateContainerError", "failed to mkdir \"\": no such file or directory")
	case "recall":
		w.applyAction(w.compile(s), rollout.Action{Verb: rollout.VerbRecall, Node: node, Object: pod.Name})
	case "begin":
		kubelet.Begin(pod, 0, w.now)
	case "pull":
		kubelet.Wait(pod, 0, "ImagePullBackOff", "manifest unknown")
	case "working":
		kubelet.End(pod, 0, 0, "", w.now)
	case "pulling":
		w.setPull(pod, corev1.ContainerState{Waiting: &corev1.ContainerStateWaiting{Reason: "PodInitializing"}}, "")
	case "pulled":
		w.setPull(pod, corev1.ContainerState{Running: &corev1.ContainerStateRunning{}}, d.CmdArgs[2].Key)
	case "image":
		return pod.Spec.InitContainers[0].Image
	case "reject":
		kubelet.Reject(pod, "OutOfcpu", "Node didn't have enough resource: cpu")
	case "lose":
		w.pods = nil
	default:
		return fmt.Sprintf("unknown command %s", d.Cmd)
	}
	return ""
}
