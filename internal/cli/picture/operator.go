// SPDX-FileCopyrightText: The Skyhook authors
// SPDX-License-Identifier: Apache-2.0

package picture

import (
	"context"
	"fmt"
	"strconv"
	"strings"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/skyhook-k8s/skyhook/internal/skyhook"
)

// Defaults is what an operator is started with when nobody says otherwise.
func Defaults(namespace string) skyhook.Config {
	return skyhook.Config{
		Namespace: namespace, AgentImage: "ghcr.io/nvidia/skyhook/agent:latest", PauseImage: "registry.k8s.io/pause:3.10",
		CopyDirRoot: "/var/lib/skyhook", LogRoot: "/var/log/skyhook",
		RuntimeTaint:  corev1.Taint{Key: "skyhook.nvidia.com", Value: "runtime-required", Effect: corev1.TaintEffectNoSchedule},
		StageDeadline: skyhook.DefaultStageDeadline, InterruptDeadline: skyhook.DefaultInterruptDeadline,
	}
}

// FindOperator reads from its deployment how the operator was started. When there is none it says so; then the defaults
// are in force.
func (p *Picture) FindOperator(ctx context.Context, namespace string, ours func(*appsv1.Deployment) bool) error {
	p.Config = Defaults(namespace)
	list := &appsv1.DeploymentList{}
	if err := p.List(ctx, list, client.InNamespace(namespace)); err != nil {
		return fmt.Errorf("listing deployments in namespace %s: %w", namespace, err)
	}
	for i := range list.Items {
		if ours(&list.Items[i]) {
			pod := &list.Items[i].Spec.Template.Spec
			for _, c := range pod.Containers {
				p.started(c, pod.ServiceAccountName)
			}
			return nil
		}
	}
	return fmt.Errorf("no operator in namespace %s", namespace)
}

// started reads the settings of one container: its environment, then its flags, which win. It is told of its own account.
func (p *Picture) started(c corev1.Container, account string) {
	given := map[string]string{}
	for _, e := range c.Env {
		switch field := e.ValueFrom; {
		case e.Value != "":
			given[e.Name] = e.Value
		case field != nil && field.FieldRef != nil && field.FieldRef.FieldPath == "spec.serviceAccountName":
			given[e.Name] = account
		}
	}
	for _, arg := range c.Args {
		name, value, ok := strings.Cut(strings.TrimLeft(arg, "-"), "=")
		if env := flagged[name]; env != "" && strings.HasPrefix(arg, "-") {
			if !ok {
				value = "true"
			}
			given[env] = value
		}
	}
	k := &p.Config
	text := func(env string, into *string) {
		if v := given[env]; v != "" {
			*into = v
		}
	}
	text("AGENT_IMAGE", &k.AgentImage)
	text("PAUSE_IMAGE", &k.PauseImage)
	text("COPY_DIR_ROOT", &k.CopyDirRoot)
	text("AGENT_LOG_ROOT", &k.LogRoot)
	text("IMAGE_PULL_SECRET", &k.ImagePullSecret)
	text("PACKAGE_SERVICE_ACCOUNT", &k.ServiceAccount)
	text("OWN_SERVICE_ACCOUNT", &k.OwnAccount)
	k.ReapplyOnReboot = yes(given["REAPPLY_ON_REBOOT"], k.ReapplyOnReboot)
	k.AlwaysPull = yes(given["ALWAYS_PULL"], k.AlwaysPull)
	k.TrustAgentReboots = k.TrustAgentReboots || given["REBOOT_PROOF"] == "agent"
	k.StageDeadline = lasts(given["STAGE_DEADLINE"], k.StageDeadline)
	k.InterruptDeadline = lasts(given["INTERRUPT_DEADLINE"], k.InterruptDeadline)
	if words, effect, ok := strings.Cut(given["RUNTIME_REQUIRED_TAINT"], ":"); ok {
		key, value, _ := strings.Cut(words, "=")
		k.RuntimeTaint = corev1.Taint{Key: key, Value: value, Effect: corev1.TaintEffect(effect)}
	}
}

// flagged are the operator's flags that a decision depends on, and their environment variables.
var flagged = map[string]string{ //nolint:gosec // names of variables, no secrets
	"agent-image": "AGENT_IMAGE", "pause-image": "PAUSE_IMAGE", "copy-dir-root": "COPY_DIR_ROOT", "agent-log-root": "AGENT_LOG_ROOT",
	"image-pull-secret": "IMAGE_PULL_SECRET", "service-account": "PACKAGE_SERVICE_ACCOUNT", "own-service-account": "OWN_SERVICE_ACCOUNT", "reapply-on-reboot": "REAPPLY_ON_REBOOT",
	"always-pull": "ALWAYS_PULL", "reboot-proof": "REBOOT_PROOF", "stage-deadline": "STAGE_DEADLINE",
	"interrupt-deadline": "INTERRUPT_DEADLINE", "runtime-required-taint": "RUNTIME_REQUIRED_TAINT",
}

func yes(text string, otherwise bool) bool {
	if b, err := strconv.ParseBool(text); err == nil {
		return b
	}
	return otherwise
}

func lasts(text string, otherwise time.Duration) time.Duration {
	if d, err := time.ParseDuration(text); err == nil {
		return d
	}
	return otherwise
}
