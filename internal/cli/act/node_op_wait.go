// SPDX-FileCopyrightText: The Skyhook authors
// SPDX-License-Identifier: Apache-2.0

package act

import (
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	nodeopv1 "github.com/skyhook-k8s/skyhook/api/nodeop/v1alpha1"
	"github.com/skyhook-k8s/skyhook/internal/nodeop"
	"github.com/skyhook-k8s/skyhook/internal/output"
	"github.com/skyhook-k8s/skyhook/internal/view"
)

// waitForEnd prints progress, no line twice, until the NodeOp has ended, and then its result.
func (o *nodeOpOptions) waitForEnd(ctx context.Context) error {
	if o.timeout > 0 {
		limited, cancel := context.WithTimeout(ctx, o.timeout)
		defer cancel()
		ctx = limited
	}
	op := o.nodeOp
	printed := map[string]bool{}
	isNew := func(line string) bool {
		was := printed[line]
		printed[line] = true
		return !was
	}
	for {
		switch err := o.client.Get(ctx, client.ObjectKeyFromObject(op), op); {
		case ctx.Err() != nil:
			return fmt.Errorf("stopped waiting; it goes on: kubectl skyhook status nodeop/%s/%s", op.Namespace, op.Name)
		case client.IgnoreNotFound(err) != nil:
			if isNew(err.Error()) {
				o.Warn("%v; trying again", err)
			}
		case err != nil:
			return fmt.Errorf("nodeop/%s was deleted", op.Name)
		}
		for _, name := range slices.Sorted(maps.Keys(op.Status.NodeStatuses)) {
			if line := name + "  " + formatProgress(op.Status.NodeStatuses[name]); isNew(line) {
				fmt.Fprintln(o.ErrOut, line)
			}
		}
		if view.HasEnded(op) {
			return o.finish(ctx)
		}
		select {
		case <-ctx.Done():
		case <-time.After(time.Second):
		}
	}
}

func formatProgress(s nodeopv1.NodeStatus) string {
	line := strings.ToLower(string(s.Phase))
	if s.RebootStatus == nodeopv1.RebootPending && s.Phase == nodeopv1.PhaseCompleted {
		line = "rebooting"
	}
	message := s.Message
	if nodeop.IsEntrySkipped(s) {
		line, message = "skipped", strings.TrimPrefix(message, nodeop.PrefixSkipped)
	}
	if message != "" {
		line += ": " + output.Clip(message, 200)
	}
	return line
}

// nodeResult is the result of a NodeOp on one node.
type nodeResult struct {
	Node    string `json:"node"`
	Phase   string `json:"phase"`
	Message string `json:"message,omitempty"`
	Exit    *int32 `json:"exitCode,omitempty"`
	Output  string `json:"output,omitempty"`
}

func newNodeResult(name string, s nodeopv1.NodeStatus) nodeResult {
	return nodeResult{Node: name, Phase: string(s.Phase), Message: s.Message, Exit: s.ExitCode, Output: s.Output}
}

// finish prints the result of each node, deletes the NodeOp if it succeeded, and returns the highest exit code.
func (o *nodeOpOptions) finish(ctx context.Context) error {
	op := o.nodeOp
	results, exitCode := []nodeResult{}, int32(0)
	for _, name := range slices.Sorted(maps.Keys(op.Status.NodeStatuses)) {
		s := op.Status.NodeStatuses[name]
		results = append(results, newNodeResult(name, s))
		if s.ExitCode != nil {
			exitCode = max(exitCode, *s.ExitCode)
		}
	}
	if o.verb == "run" {
		pods, err := o.listPods(ctx)
		if err != nil {
			o.Warn("%v", err)
		}
		o.readOutputs(ctx, pods, results)
	}
	failed := op.Status.Phase == nodeopv1.PhaseFailed
	if !failed && !o.keep {
		if err := client.IgnoreNotFound(o.client.Delete(ctx, op, client.PropagationPolicy(metav1.DeletePropagationBackground))); err != nil {
			o.Warn("deleting nodeop/%s: %v", op.Name, err)
		}
	}
	err := o.Print(output.Answer{Value: results, Names: []string{"nodeop/" + op.Name}, Text: func(bool) string { return formatResults(results, &op.Status) }})
	if err != nil || !failed {
		return err
	}
	fmt.Fprintf(o.ErrOut, "nodeop/%s failed and stays: kubectl skyhook why nodeop/%s/%s\n", op.Name, op.Namespace, op.Name)
	return &output.ExitError{Code: int(min(max(exitCode, 1), 255))}
}

func formatResults(results []nodeResult, s *nodeopv1.NodeOpStatus) string {
	var b strings.Builder
	for _, n := range results {
		if n.Output != "" {
			fmt.Fprintf(&b, "==> %s <==\n%s\n", n.Node, strings.TrimRight(n.Output, "\n"))
		}
	}
	fmt.Fprintf(&b, "%d of %s done", s.Completed, output.Count(int(s.Total), "node"))
	if s.Failed > 0 {
		fmt.Fprintf(&b, ", %d failed", s.Failed)
	}
	if s.Skipped > 0 {
		fmt.Fprintf(&b, ", %d skipped", s.Skipped)
	}
	return b.String() + "\n"
}

// Limits of the command output that is kept: the last bytes of each node, and nodes.
const (
	maxOutputBytes = 16 << 10
	maxOutputNodes = 50
)

// listPods lists the pods of the command, the newest last.
func (o *nodeOpOptions) listPods(ctx context.Context) ([]corev1.Pod, error) {
	list := &corev1.PodList{}
	if err := o.client.List(ctx, list, client.InNamespace(o.nodeOp.Namespace), client.MatchingLabels{nodeopv1.LabelNodeOp: o.nodeOp.Name}); err != nil {
		return nil, fmt.Errorf("listing the pods of nodeop/%s: %w", o.nodeOp.Name, err)
	}
	pods := slices.DeleteFunc(list.Items, func(p corev1.Pod) bool {
		return p.Labels[nodeopv1.LabelReboot] != "" || p.Labels[nodeopv1.LabelPreflight] != ""
	})
	slices.SortStableFunc(pods, func(a, b corev1.Pod) int { return a.CreationTimestamp.Compare(b.CreationTimestamp.Time) })
	return pods, nil
}

// readOutputs reads what the command printed on each node. A pod that is gone has no output.
func (o *nodeOpOptions) readOutputs(ctx context.Context, pods []corev1.Pod, results []nodeResult) {
	results = results[:min(len(results), maxOutputNodes)]
	for i := range pods {
		at := slices.IndexFunc(results, func(r nodeResult) bool { return r.Node == pods[i].Spec.NodeName })
		if at < 0 {
			continue
		}
		if text := o.readOutput(ctx, &pods[i]); text != "" {
			results[at].Output = text
		}
	}
}

// readOutput reads the end of the log of the command.
func (o *nodeOpOptions) readOutput(ctx context.Context, p *corev1.Pod) string {
	core, err := o.CoreClient()
	if err != nil {
		return ""
	}
	in, err := core.Pods(p.Namespace).GetLogs(p.Name, &corev1.PodLogOptions{Container: nodeop.ContainerCommand}).Stream(ctx)
	if err != nil {
		o.Note("reading the log of pod %s: %v", p.Name, err)
		return ""
	}
	defer in.Close()
	var text []byte
	for chunk := make([]byte, maxOutputBytes); err == nil; {
		var n int
		n, err = in.Read(chunk)
		text = append(text, chunk[:n]...)
		text = text[max(0, len(text)-maxOutputBytes):]
	}
	if !errors.Is(err, io.EOF) {
		o.Note("reading the log of pod %s: %v", p.Name, err)
	}
	return string(text)
}
