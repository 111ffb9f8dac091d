// SPDX-FileCopyrightText: The Skyhook authors
// SPDX-License-Identifier: Apache-2.0

package support

import (
	"cmp"
	"context"
	"fmt"
	"io"
	"slices"
	"strings"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	coreclient "k8s.io/client-go/kubernetes/typed/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/skyhook-k8s/skyhook/api/skyhook/v1alpha1"
	"github.com/skyhook-k8s/skyhook/internal/cli/session"
	"github.com/skyhook-k8s/skyhook/internal/output"
)

// maxLogBytes limits each log.
const maxLogBytes = 20 << 20

// addEvents adds the events of our namespace, and those of nodes and Skyhooks.
func (b *bundle) addEvents(ctx context.Context, c client.Client) {
	var all []corev1.Event
	for _, namespace := range []string{b.Namespace(ctx), "default"} {
		list := &corev1.EventList{}
		if err := c.List(ctx, list, client.InNamespace(namespace)); err != nil {
			b.add("events of namespace "+namespace, nil, err)
			continue
		}
		for _, e := range list.Items {
			isOurs := e.InvolvedObject.Kind == "Node" || strings.HasPrefix(e.InvolvedObject.APIVersion, v1alpha1.Group+"/")
			if isOurs || namespace == b.Namespace(ctx) {
				all = append(all, e)
			}
		}
	}
	slices.SortStableFunc(all, func(x, y corev1.Event) int {
		return cmp.Or(x.LastTimestamp.Compare(y.LastTimestamp.Time), cmp.Compare(x.Name, y.Name))
	})
	var rows [][]string
	for _, e := range all {
		rows = append(rows, []string{
			e.LastTimestamp.UTC().Format(time.RFC3339), e.Type, e.Reason, strings.ToLower(e.InvolvedObject.Kind) + "/" + e.InvolvedObject.Name,
			fmt.Sprint(max(e.Count, 1)), strings.Join(strings.Fields(e.Message), " "),
		})
	}
	b.add("events.txt", []byte(output.FormatTable([]string{"LAST", "TYPE", "REASON", "OBJECT", "COUNT", "MESSAGE"}, rows, nil)), nil)
}

// addLogs adds the logs of the operator and of failing packages.
func (b *bundle) addLogs(ctx context.Context, c client.Client, since time.Duration) {
	core, err := b.CoreClient()
	if err != nil {
		b.add("logs", nil, err)
		return
	}
	pods := &corev1.PodList{}
	if err := c.List(ctx, pods, client.InNamespace(b.Namespace(ctx))); err != nil {
		b.add("logs", nil, err)
		return
	}
	for name, err := range FindSilentOperators(pods.Items, b.Namespace(ctx)) {
		b.add(name, nil, err)
	}
	for i := range pods.Items {
		p := &pods.Items[i]
		for _, s := range slices.Concat(p.Status.InitContainerStatuses, p.Status.ContainerStatuses) {
			if !isLogNeeded(p, s) {
				continue
			}
			o := &corev1.PodLogOptions{Container: s.Name, SinceSeconds: new(int64(since.Seconds())), LimitBytes: new(int64(maxLogBytes))}
			b.addLog(ctx, core.Pods(p.Namespace), p.Name, s.Name+".log", o)
			if s.RestartCount > 0 {
				o.Previous = true
				b.addLog(ctx, core.Pods(p.Namespace), p.Name, s.Name+".previous.log", o)
			}
		}
	}
}

func (b *bundle) addLog(ctx context.Context, pods coreclient.PodInterface, pod, file string, o *corev1.PodLogOptions) {
	name := "logs/" + pod + "/" + file
	in, err := pods.GetLogs(pod, o).Stream(ctx)
	if err != nil {
		b.add(name, nil, err)
		return
	}
	defer in.Close()
	text, err := io.ReadAll(io.LimitReader(in, maxLogBytes))
	b.add(name, text, err)
}

// FindSilentOperators returns why operators have no log, by the name of the missing file.
func FindSilentOperators(pods []corev1.Pod, namespace string) map[string]error {
	missing := map[string]error{}
	hasOperator := false
	for i := range pods {
		p := &pods[i]
		if !isOperatorPod(p) {
			continue
		}
		hasOperator = true
		if slices.ContainsFunc(p.Status.ContainerStatuses, func(s corev1.ContainerStatus) bool { return isLogNeeded(p, s) }) {
			continue
		}
		missing["logs/"+p.Name] = fmt.Errorf("the operator's pod is %s, and %s", cmp.Or(string(p.Status.Phase), "new"), explainSilence(p))
	}
	if !hasOperator {
		missing["logs"] = fmt.Errorf("no pod of an operator is in namespace %s", namespace)
	}
	return missing
}

func explainSilence(p *corev1.Pod) string {
	why := "no container has started"
	for _, s := range slices.Concat(p.Status.InitContainerStatuses, p.Status.ContainerStatuses) {
		if w := s.State.Waiting; w != nil {
			why = strings.TrimSuffix(fmt.Sprintf("container %s waits: %s: %s", s.Name, w.Reason, w.Message), ": ")
		}
	}
	for _, c := range p.Status.Conditions {
		if c.Type == corev1.PodScheduled && c.Status == corev1.ConditionFalse {
			why = "it has no node: " + c.Message
		}
	}
	return why
}

// isOperatorPod reports whether a pod runs an operator.
func isOperatorPod(p *corev1.Pod) bool {
	d := &appsv1.Deployment{}
	d.Labels, d.Spec.Template.Spec = p.Labels, p.Spec
	return p.Labels[v1alpha1.LabelName] == "" && len(session.OperatorImages(d)) > 0
}

// isLogNeeded reports whether a container is an operator's, or one of a package that did not succeed at once.
func isLogNeeded(p *corev1.Pod, s corev1.ContainerStatus) bool {
	isRunning, hasRestarted := s.State.Running != nil, s.RestartCount > 0
	if p.Labels[v1alpha1.LabelName] == "" {
		return isOperatorPod(p) && (isRunning || hasRestarted || s.State.Terminated != nil)
	}
	hasFailed := s.State.Terminated != nil && s.State.Terminated.ExitCode != 0
	return hasFailed || hasRestarted || isRunning && s.Name != "pause"
}
