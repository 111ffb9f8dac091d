// SPDX-FileCopyrightText: The Skyhook authors
// SPDX-License-Identifier: Apache-2.0

package skyhook

import (
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"

	"github.com/skyhook-k8s/skyhook/api/skyhook/v1alpha1"
	"github.com/skyhook-k8s/skyhook/internal/node"
	"github.com/skyhook-k8s/skyhook/internal/rollout"
	"github.com/skyhook-k8s/skyhook/internal/skyhook/plan"
	"github.com/skyhook-k8s/skyhook/internal/skyhook/podstate"
	"github.com/skyhook-k8s/skyhook/internal/skyhook/record"
	"github.com/skyhook-k8s/skyhook/internal/skyhook/render"
	"github.com/skyhook-k8s/skyhook/internal/skyhook/report"
)

// What is made of a compiled Skyhook: a renderer makes the objects of a task, a recorder the edits of a node, and a reporter what users
// read.

func (c *Compiled) renderer() render.Renderer { return render.Renderer{Facts: c.facts} }

func (c *Compiled) reporter() report.Reporter {
	return report.Reporter{
		Facts: c.facts, Stored: c.stored, Rollout: &c.Rollout, Groups: c.Groups, Problems: c.Problems, Removed: c.Removed, Nodes: c.clusterNodes,
		Targets: c.targets, Target: c.target, Pulls: c.pulls, Unnamed: c.unnamed, Unlimited: c.unlimited,
	}
}

// Change returns the edit of a node for an action of the plan: taint, admit, hold, count, join, run, cover, record, prove, rollback, note, release,
// untaint and retire; other verbs have an empty edit. n is the node after the edits of Adopt and of the earlier actions of
// the plan (With), holds are all holds on it, including those of NodeOps. The edit of a run is written before its Object is
// created. Change is idempotent.
func (c *Compiled) Change(a rollout.Action, n *node.Node, holds []rollout.Hold) (node.Edit, error) {
	return record.Recorder{Facts: c.facts, Target: c.target(n.Name)}.Change(a, n, holds)
}

// Object returns the pod of a task, and of those that it runs afterwards, from the record of the node after Change for its run.
func (c *Compiled) Object(task string, then []string, n *node.Node) (*corev1.Pod, error) {
	return c.renderer().Object(c.target(n.Name), task, then, n)
}

// IsStage reports whether a task on a node runs a stage of a package, not an interrupt.
func (c *Compiled) IsStage(nodeName, task string) bool {
	st, err := c.target(nodeName).FindStep(task)
	return err == nil && !st.IsInterrupt()
}

// CheckPod returns the pod that asks the packages of a node what it needs, or checks it for drift; nil if there is nothing to check.
func (c *Compiled) CheckPod(n *node.Node) *corev1.Pod {
	if t := c.target(n.Name); t != nil {
		return c.renderer().CheckPod(t)
	}
	return nil
}

// AnswersOf returns what the packages of the spec said that a node needs, by name|version.
func (c *Compiled) AnswersOf(n *node.Node) map[string]node.Answer {
	out := map[string]node.Answer{}
	for key, a := range n.Skyhook(c.facts.Skyhook.Name).Record.Preflight {
		if c.facts.ByHash[a.Hash] != nil {
			out[key] = a
		}
	}
	return out
}

// NodesToAsk returns the nodes whose packages say before their turn what they need, unless they have done so a moment ago.
func (c *Compiled) NodesToAsk() (nodes []*node.Node) {
	for i, t := range c.targets {
		if k := c.Rollout.Targets[i].Check; k != nil && k.Before && t.Node.Ready && !c.facts.Now.Before(k.Due) {
			nodes = append(nodes, t.Node)
		}
	}
	return nodes
}

// RecordAnswers returns the edit of a node for what its packages said in a pod.
func (c *Compiled) RecordAnswers(n *node.Node, pod *corev1.Pod) (node.Edit, error) {
	t := *c.target(n.Name)
	t.Pods.Checks = []*podstate.Pod{podstate.Read(pod)}
	return record.Recorder{Facts: c.facts, Target: &t}.Change(rollout.Action{Verb: rollout.VerbNote, Node: n.Name, Object: pod.Name}, n, nil)
}

// PullPod returns the pod that pulls the images for a node before its turn; nil if nothing is to be pulled.
func (c *Compiled) PullPod(n *node.Node) *corev1.Pod {
	if t := c.target(n.Name); t != nil {
		return c.renderer().PullPod(t)
	}
	return nil
}

// DryRunPods returns a pod for each kind of pod that a node needs, by the hash of what it is made from. It is never created: the API
// server says of it whether it would refuse such a pod. Those that are known already are left out.
func (c *Compiled) DryRunPods(n *node.Node, isKnown func(hash string) bool) map[string]*corev1.Pod {
	if t := c.target(n.Name); t != nil {
		return c.renderer().DryRunPods(t, n, isKnown)
	}
	return nil
}

// NodeMetadata returns the ConfigMap with a node's labels and annotations, written before the pods that mount it.
func (c *Compiled) NodeMetadata(n *node.Node) *corev1.ConfigMap { return c.renderer().NodeMetadata(n) }

// NodeMetadataName returns the name of that ConfigMap.
func (c *Compiled) NodeMetadataName(node string) string {
	return plan.MetadataName(c.facts.Skyhook.Name, node)
}

// NodeMetadataVersion identifies everything in NodeMetadata that is the same for all nodes.
func (c *Compiled) NodeMetadataVersion() string { return c.renderer().NodeMetadataVersion() }

// MountsMetadata reports whether the pod of a task, or any pod of the node if none is named, mounts the ConfigMap with the node's
// metadata.
func (c *Compiled) MountsMetadata(n *node.Node, task string) bool {
	t := c.target(n.Name)
	return t == nil || c.renderer().MountsMetadata(t, n, task)
}

// NewRevision returns the ControllerRevision of the packages of the spec.
func (c *Compiled) NewRevision(number int64) (*appsv1.ControllerRevision, error) {
	return c.renderer().NewRevision(number)
}

// RevisionKey returns the key of the packages of the spec.
func (c *Compiled) RevisionKey() string { return c.facts.Key }

// Skyhook returns the name of the compiled Skyhook.
func (c *Compiled) Skyhook() string { return c.facts.Skyhook.Name }

// Marks returns the marks that the Skyhook and its policy put on nodes.
func (c *Compiled) Marks() v1alpha1.NodeMarks { return plan.Marks(c.facts.Skyhook, c.facts.Policy) }

// PolicyName returns the name of the policy that applies to the Skyhook; empty for none.
func (c *Compiled) PolicyName() string { return c.facts.PolicyName() }

// Status returns the status of the compiled generation. Transition
// times of unchanged conditions are kept, and so is the ledger, which is written separately.
func (c *Compiled) Status(r rollout.Report, groups []rollout.GroupReport) v1alpha1.SkyhookStatus {
	return c.reporter().Status(r, groups)
}

// Events returns the events for applied actions and changes of the status. Events on a node report admission,
// interrupts, failures and completion; others are aggregated on the Skyhook.
func (c *Compiled) Events(done []rollout.Action, was, is v1alpha1.SkyhookStatus) []report.Event {
	return c.reporter().Events(done, was, is)
}

// Words returns the edit of a node's status marks: annotation, label, version and node conditions. It is empty when all are current.
func (c *Compiled) Words(n *node.Node, v rollout.Verdict) node.Edit { return c.reporter().Words(n, v) }

// NoteQuiet notes that Words has nothing to say about a node that is finished, waits, or has the conditions of one in progress. The pass
// that has the node, and those that take it over, need not ask again; what it says about other nodes depends on the clock. It is for the
// goroutine that makes the passes.
func (c *Compiled) NoteQuiet(n *node.Node, v *rollout.Verdict) {
	isSteady := v.Phase == rollout.PhaseFinished || v.Phase == rollout.PhaseWaiting ||
		v.Phase == rollout.PhaseInFlight && c.reporter().HasConditions(n, true, n.Skyhook(c.facts.Skyhook.Name).Erroring)
	if t := c.target(n.Name); t != nil && t.Node == n && isSteady {
		t.Quiet = v.Phase
	}
}

// IsQuiet reports whether that was noted. The verdict is at this place of its report.
func (c *Compiled) IsQuiet(at int, v *rollout.Verdict) bool {
	t := c.targetAt(at, v.Node)
	return t != nil && t.Quiet != "" && t.Quiet == v.Phase
}

// targetAt returns the target on a node, which is at this place if the targets are those of a report.
func (c *Compiled) targetAt(at int, nodeName string) *plan.Target {
	if at < len(c.targets) && c.targets[at].Node.Name == nodeName {
		return c.targets[at]
	}
	return c.target(nodeName)
}

// Purpose returns the purpose of a task on a node; false when there is no such task.
func (c *Compiled) Purpose(nodeName, task string) (report.Purpose, bool) {
	return c.reporter().Purpose(nodeName, task)
}

// Images lists the images of the packages of a Skyhook that records digests; nothing for others.
func (c *Compiled) Images() []report.ImageOfPackage { return c.reporter().Images() }

// Tallies counts, for every package version of the spec or of some node, the nodes by state and by stage.
func (c *Compiled) Tallies() []report.Tally { return c.reporter().Tallies() }

// EditedNodes counts the nodes on which an edit of a finished package runs nothing.
func (c *Compiled) EditedNodes() int { return c.reporter().EditedNodes() }

// DriftOf returns what the last check for drift found on a node, as far as it still counts.
func (c *Compiled) DriftOf(nodeName string) node.DriftRecord { return c.reporter().Drift(nodeName) }

// Answers counts, for each package of the spec that has a preflight, the nodes by what it said last; nil when nobody asks.
func (c *Compiled) Answers() map[string]map[string]int { return c.reporter().Answers() }

// DriftedNodes counts, for each package of the spec, the nodes on which it is not as it was left; nil when nobody looks.
func (c *Compiled) DriftedNodes() map[string]int { return c.reporter().DriftedNodes() }
