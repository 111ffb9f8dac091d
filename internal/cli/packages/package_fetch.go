// SPDX-FileCopyrightText: The Skyhook authors
// SPDX-License-Identifier: Apache-2.0

package packages

import (
	"context"
	"errors"
	"fmt"
	"path"
	"slices"
	"strings"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/skyhook-k8s/skyhook/internal/cli/session"
	"github.com/skyhook-k8s/skyhook/internal/nodeop"
	"github.com/skyhook-k8s/skyhook/internal/output"
)

// Limits of --fetch: nodes, how long one pod may take, and bytes of its log.
const (
	maxFetchNodes = 10
	fetchTimeout  = 60 * time.Second
	maxFetchBytes = 1 << 20
)

// selectFetchNodes returns the nodes of --node.
func (o *LogsOptions) selectFetchNodes(ctx context.Context) ([]string, error) {
	if len(o.NodeArgs) == 0 {
		return nil, errors.New("--fetch needs --node: it starts a pod on each node")
	}
	for _, name := range []string{o.Name, o.Pkg} {
		if path.Base(name) != name || strings.Trim(name, ".") == "" {
			return nil, fmt.Errorf("%q is no name of a Skyhook or package", name)
		}
	}
	all, err := session.ListNodeMetadata(ctx, o.Factory, o.client)
	if err != nil {
		return nil, err
	}
	nodes, err := session.SelectNodes(all, o.NodeArgs)
	if err == nil && len(nodes) > maxFetchNodes {
		err = fmt.Errorf("--node selects %d nodes, and --fetch reads at most %d", len(nodes), maxFetchNodes)
	}
	return session.NodeNames(nodes), err
}

// fetchLogs prints the logs that hosts have, each read by a pod on its node.
func (o *LogsOptions) fetchLogs(ctx context.Context, nodes []string) error {
	if len(nodes) == 0 {
		return nil
	}
	settings, err := session.ReadOperatorSettings(ctx, o.Factory, o.client)
	if err != nil {
		return err
	}
	config := settings.NodeOps()
	folder := path.Join(config.LogRoot, o.Name)
	if o.DryRun {
		fmt.Fprintf(o.Out, "a pod of %s would read %s on %s%s\n", config.AgentImage, folder, output.List(nodes, maxFetchNodes), o.DryRunSuffix())
		return nil
	}
	texts, errs := make([]string, len(nodes)), make([]error, len(nodes))
	var group sync.WaitGroup
	for i, name := range nodes {
		group.Go(func() { texts[i], errs[i] = o.fetchLog(ctx, newFetchPod(config, name, folder, o.Pkg, o.Stage)) })
	}
	group.Wait()
	for i, text := range texts {
		if errs[i] == nil {
			fmt.Fprintf(o.Out, "==> Node: %s, Folder: %s <==\n%s", nodes[i], folder, text)
		}
	}
	return errors.Join(errs...)
}

// fetchLog runs a pod, returns its log, and deletes it.
func (o *LogsOptions) fetchLog(ctx context.Context, p *corev1.Pod) (text string, err error) {
	err = o.WithPod(ctx, o.client, p, fetchTimeout, func(ctx context.Context) error {
		if err := o.awaitEnd(ctx, p); err != nil {
			return err
		}
		raw, err := o.pods.GetLogs(p.Name, &corev1.PodLogOptions{LimitBytes: new(int64(maxFetchBytes))}).DoRaw(ctx)
		text = strings.TrimRight(string(raw), "\n")
		if err == nil && p.Status.Phase == corev1.PodFailed {
			err = errors.New("it failed: " + text)
		}
		return err
	})
	return text + "\n", err
}

// awaitEnd waits until the container of a pod has ended. An error says why it cannot.
func (o *LogsOptions) awaitEnd(ctx context.Context, p *corev1.Pod) error {
	for waits := "its kubelet has not begun"; ; {
		err := o.client.Get(ctx, client.ObjectKeyFromObject(p), p)
		var state corev1.ContainerState
		for _, s := range p.Status.ContainerStatuses {
			state = s.State
		}
		switch {
		case err != nil && ctx.Err() == nil:
			return err
		case state.Terminated != nil:
			return nil
		case p.Status.Phase == corev1.PodFailed:
			return fmt.Errorf("%s: %s", p.Status.Reason, p.Status.Message)
		case state.Waiting != nil:
			waits = strings.TrimSuffix(state.Waiting.Reason+": "+state.Waiting.Message, ": ")
			if !slices.Contains([]string{"", "ContainerCreating", "PodInitializing", "ErrImagePull"}, state.Waiting.Reason) {
				return errors.New(waits)
			}
			if err := o.findMountFailure(ctx, p); err != nil {
				return err
			}
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("it did not end within %s: %s", fetchTimeout, waits)
		case <-time.After(logPollInterval / 2):
		}
	}
}

// findMountFailure returns why the folder cannot be mounted: only an event says that. Who may not list events waits longer.
func (o *LogsOptions) findMountFailure(ctx context.Context, p *corev1.Pod) error {
	list, folder := &corev1.EventList{}, p.Spec.Volumes[0].HostPath.Path
	selector := fields.Set{"involvedObject.name": p.Name, "reason": "FailedMount"}.AsSelector()
	if err := o.client.List(ctx, list, client.InNamespace(p.Namespace), client.MatchingFieldsSelector{Selector: selector}); err != nil {
		o.Note("listing events: %v", err)
	}
	for i := range list.Items {
		if strings.Contains(list.Items[i].Message, "hostPath type check failed") {
			return fmt.Errorf("there is no folder %s on the node: no step of the Skyhook ran there, or its logs were removed", folder)
		}
	}
	return nil
}

// newFetchPod returns a pod that prints the logs in a folder of a node. It can only read the folder, as the user that owns it, and has
// no label by which the operator finds its own pods.
func newFetchPod(config nodeop.Config, nodeName, folder, pkg, stage string) *corev1.Pod {
	stage = strings.TrimPrefix(stage, "uninstall-") // for the agent an interrupt as any other
	small := corev1.ResourceList{corev1.ResourceCPU: resource.MustParse("5m"), corev1.ResourceMemory: resource.MustParse("16Mi")}
	limits := corev1.ResourceList{corev1.ResourceCPU: resource.MustParse("500m"), corev1.ResourceMemory: resource.MustParse("64Mi")}
	const volume = "logs"
	return &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{GenerateName: "package-logs-", Namespace: config.Namespace, Labels: map[string]string{"app.kubernetes.io/name": "package-logs"}},
		Spec: corev1.PodSpec{
			NodeName: nodeName, RestartPolicy: corev1.RestartPolicyNever, ActiveDeadlineSeconds: new(int64(fetchTimeout.Seconds())),
			AutomountServiceAccountToken: new(false), EnableServiceLinks: new(false), ImagePullSecrets: config.PullSecrets,
			Tolerations: []corev1.Toleration{{Operator: corev1.TolerationOpExists}},
			SecurityContext: &corev1.PodSecurityContext{
				RunAsUser: new(int64(0)), RunAsGroup: new(int64(0)), SeccompProfile: &corev1.SeccompProfile{Type: corev1.SeccompProfileTypeRuntimeDefault},
			},
			Containers: []corev1.Container{{
				Name: "logs", Image: config.AgentImage, Args: []string{"logs", folder, "--package", pkg, "--stage", stage},
				Resources: corev1.ResourceRequirements{Requests: small, Limits: limits},
				SecurityContext: &corev1.SecurityContext{
					Privileged: new(false), AllowPrivilegeEscalation: new(false), ReadOnlyRootFilesystem: new(true),
					Capabilities: &corev1.Capabilities{Drop: []corev1.Capability{"ALL"}},
				},
				VolumeMounts: []corev1.VolumeMount{{Name: volume, MountPath: folder, ReadOnly: true}},
			}},
			Volumes: []corev1.Volume{{Name: volume, VolumeSource: corev1.VolumeSource{
				HostPath: &corev1.HostPathVolumeSource{Path: folder, Type: new(corev1.HostPathDirectory)},
			}}},
		},
	}
}
