// SPDX-FileCopyrightText: The Skyhook authors
// SPDX-License-Identifier: Apache-2.0

package look

import (
	"bufio"
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	coreclient "k8s.io/client-go/kubernetes/typed/core/v1"

	"github.com/skyhook-k8s/skyhook/api/skyhook/v1alpha1"
	"github.com/skyhook-k8s/skyhook/internal/cli/packages"
	"github.com/skyhook-k8s/skyhook/internal/cli/session"
	"github.com/skyhook-k8s/skyhook/internal/nodeop"
	"github.com/skyhook-k8s/skyhook/internal/rollout"
	"github.com/skyhook-k8s/skyhook/internal/skyhook/podstate"
	"github.com/skyhook-k8s/skyhook/internal/view"
)

// logLines is how much of the log of a stage is shown.
const logLines = 50

// AddRead adds what only the API server knows of a node: events, logs of stages, and differences of files. A dump has none.
func AddRead(ctx context.Context, f *session.Factory, v *view.Cluster, out *view.Node) error {
	if !v.Dump.Live() {
		return nil
	}
	out.Events = listEvents(ctx, f, out.Name)
	if out.Drift != nil {
		if err := readDiffs(ctx, f, out.Drift); err != nil {
			return err
		}
	}
	for i := range out.Work {
		for j := range out.Work[i].Stages {
			stage := &out.Work[i].Stages[j]
			if mayHaveLog(v, out.Work[i].Ref, out.Name, stage) {
				stage.Log = cmp.Or(readLog(ctx, f, v, out.Work[i].Rollout, out.Name, stage), stage.Log)
			}
		}
	}
	return nil
}

// mayHaveLog reports whether a stage runs or fails, or has succeeded in a pod that still exists.
func mayHaveLog(v *view.Cluster, of rollout.Ref, nodeName string, stage *view.Stage) bool {
	switch stage.State {
	case string(rollout.StateRunning), string(rollout.StateFailing):
		return true
	case string(rollout.StateDone):
		return of.Kind == nodeop.Kind || slices.ContainsFunc(v.Objects.Pods, func(p *corev1.Pod) bool {
			return p.Spec.NodeName == nodeName && p.Labels[v1alpha1.LabelName] == of.Name && slices.ContainsFunc(podstate.StageContainers(p), func(c podstate.StageContainer) bool {
				return stage.Label == c.Package+" "+string(c.Stage)
			})
		})
	}
	return false
}

// listEvents returns the events of a node, the newest first. Those of objects without a namespace are in the default one. Without the right to list events there are none.
func listEvents(ctx context.Context, f *session.Factory, name string) []view.NodeEvent {
	out := []view.NodeEvent{}
	core, err := f.CoreClient()
	if err != nil {
		return out
	}
	ctx, cancel := context.WithTimeout(ctx, 5*time.Second)
	defer cancel()
	selector := fields.Set{"involvedObject.kind": "Node", "involvedObject.name": name}.AsSelector().String()
	list, err := core.Events(metav1.NamespaceDefault).List(ctx, metav1.ListOptions{FieldSelector: selector, Limit: 200})
	if err != nil {
		return append(out, view.NodeEvent{At: time.Now().UTC(), Type: corev1.EventTypeWarning, Reason: "NotListed", Text: err.Error()})
	}
	for i := range list.Items {
		e := &list.Items[i]
		at := e.LastTimestamp.Time
		for _, t := range []time.Time{e.EventTime.Time, e.CreationTimestamp.Time} {
			if at.IsZero() {
				at = t
			}
		}
		out = append(out, view.NodeEvent{At: at.UTC(), Type: e.Type, Reason: e.Reason, Text: e.Message, Count: max(e.Count, 1)})
	}
	slices.SortStableFunc(out, func(a, b view.NodeEvent) int { return b.At.Compare(a.At) })
	return out
}

// readLog returns the end of the log of a stage, as package logs prints it, or of a step of a NodeOp.
func readLog(ctx context.Context, f *session.Factory, v *view.Cluster, of, nodeName string, stage *view.Stage) string {
	ctx, cancel := context.WithTimeout(ctx, 5*time.Second)
	defer cancel()
	if r := v.FindRollout(of); r != nil && v.NodeOpOf(r) != nil {
		p := v.PodOfStep(v.NodeOpOf(r), nodeName, stage.Label)
		if p == nil {
			return ""
		}
		return readPodLog(ctx, f, p.Namespace, p.Name)
	}
	var out strings.Builder
	printer := *f.Printer
	printer.Out = &out
	silent := *f
	silent.Printer = &printer
	_, stageName, _ := strings.Cut(stage.Label, " ")
	o := &packages.LogsOptions{Factory: &silent, Name: of, Pkg: stage.Package, NodeArgs: []string{nodeName}, Tail: logLines}
	if slices.Contains(view.LogStages, stageName) {
		o.Stage = stageName
	}
	if err := o.Run(ctx); err != nil && out.Len() == 0 {
		return "" // the kubelet has no log yet, or any more
	}
	return out.String()
}

// readPodLog returns the end of the log of each container of a pod that has one.
func readPodLog(ctx context.Context, f *session.Factory, namespace, name string) string {
	core, err := f.CoreClient()
	if err != nil {
		return ""
	}
	pods := core.Pods(namespace)
	p, err := pods.Get(ctx, name, metav1.GetOptions{})
	if err != nil {
		return "" // it is gone
	}
	var out strings.Builder
	for _, status := range slices.Concat(p.Status.InitContainerStatuses, p.Status.ContainerStatuses) {
		if view.HasStarted(status) {
			fmt.Fprintf(&out, "==> Pod: %s, Container: %s [%s], Node: %s <==\n", p.Name, status.Name, view.FormatContainerState(status), p.Spec.NodeName)
			writeLog(ctx, &out, pods, p.Name, status)
		}
	}
	return out.String()
}

// writeLog writes the last lines of a log. A log that cannot be read is left out: the kubelet has none yet, or any more.
func writeLog(ctx context.Context, out *strings.Builder, pods coreclient.PodInterface, name string, status corev1.ContainerStatus) {
	options := &corev1.PodLogOptions{Container: status.Name, Previous: status.State.Waiting != nil, TailLines: new(int64(logLines))}
	in, err := pods.GetLogs(name, options).Stream(ctx)
	if err != nil {
		return
	}
	defer in.Close()
	for lines := bufio.NewScanner(in); lines.Scan(); {
		fmt.Fprintln(out, lines.Text())
	}
}
