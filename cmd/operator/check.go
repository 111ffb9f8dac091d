// SPDX-FileCopyrightText: The Skyhook authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"errors"
	"fmt"
	"net"
	"path"
	"slices"
	"strings"

	"github.com/go-logr/logr"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/validation"

	"github.com/skyhook-k8s/skyhook/internal/controller"
	"github.com/skyhook-k8s/skyhook/internal/nodeop"
	"github.com/skyhook-k8s/skyhook/internal/skyhook"
)

// check finds every setting that cannot be right, and says what to change.
func (o *options) check() error {
	var errs []error
	wrong := func(name, env, format string, args ...any) {
		errs = append(errs, fmt.Errorf("--%s (%s): %s", name, env, fmt.Sprintf(format, args...)))
	}
	if msgs := validation.IsDNS1123Label(o.namespace); len(msgs) > 0 {
		wrong("namespace", "NAMESPACE", "%q is not the name of a namespace", o.namespace)
	}
	for _, i := range []struct{ name, env, image string }{
		{"agent-image", "AGENT_IMAGE", o.agentImage}, {"pause-image", "PAUSE_IMAGE", o.pauseImage},
	} {
		if !strings.Contains(i.image[strings.LastIndexByte(i.image, '/')+1:], ":") || strings.ContainsAny(i.image, " \t\n") {
			wrong(i.name, i.env, "%q is not an image with a tag or digest, such as registry.example/team/image:v1.2.3", i.image)
		}
	}
	for _, d := range []struct{ name, env, dir string }{
		{"copy-dir-root", "COPY_DIR_ROOT", o.copyDirRoot}, {"agent-log-root", "AGENT_LOG_ROOT", o.agentLogRoot},
	} {
		if !path.IsAbs(d.dir) || path.Clean(d.dir) == "/" {
			wrong(d.name, d.env, "%q is not an absolute path below /", d.dir)
		}
	}
	for _, n := range o.namespaces() {
		if len(validation.IsDNS1123Label(n)) > 0 {
			wrong("nodeop-namespaces", "NODEOP_NAMESPACES", "%q is not the name of a namespace", n)
		}
	}
	if o.imagePullSecret != "" && len(validation.IsDNS1123Subdomain(o.imagePullSecret)) > 0 {
		wrong("image-pull-secret", "IMAGE_PULL_SECRET", "%q is not the name of a Secret", o.imagePullSecret)
	}
	if _, err := parseTaint(o.runtimeTaint); err != nil {
		wrong("runtime-required-taint", "RUNTIME_REQUIRED_TAINT", "%v", err)
	}
	if !slices.Contains([]string{"bootID", "agent"}, o.rebootProof) {
		wrong("reboot-proof", "REBOOT_PROOF", "%q is neither bootID nor agent", o.rebootProof)
	}
	if o.defaultPolicy != "" && len(validation.IsDNS1123Subdomain(o.defaultPolicy)) > 0 {
		wrong("default-deployment-policy", "DEFAULT_DEPLOYMENT_POLICY", "%q is not the name of a DeploymentPolicy", o.defaultPolicy)
	}
	if o.stageDeadline <= 0 {
		wrong("stage-deadline", "STAGE_DEADLINE", "it must be longer than 0")
	}
	if o.interruptDeadline <= 0 {
		wrong("interrupt-deadline", "INTERRUPT_DEADLINE", "it must be longer than 0")
	}
	if o.parallel < 1 || o.parallel > 500 {
		wrong("parallel", "PARALLEL_NODES", "%d is not between 1 and 500", o.parallel)
	}
	for _, a := range []struct{ name, env, address string }{
		{"metrics-port", "METRICS_PORT", o.metricsAddress}, {"probe-port", "PROBE_PORT", o.probeAddress}, {"pprof-port", "PPROF_PORT", o.pprofAddress},
	} {
		if _, _, err := net.SplitHostPort(a.address); err != nil && a.address != "0" && (a.address != "" || a.name != "pprof-port") {
			wrong(a.name, a.env, "%q is not an address such as :8080 or 127.0.0.1:8080, nor 0 for none", a.address)
		}
	}
	return errors.Join(errs...)
}

// namespaces are those whose NodeOps are carried out; none for all.
func (o *options) namespaces() []string {
	return strings.FieldsFunc(o.nodeOpNamespaces, func(r rune) bool { return r == ',' || r == ' ' })
}

// parseTaint reads a taint as kubectl taint writes it: key=value:Effect or key:Effect.
func parseTaint(s string) (corev1.Taint, error) {
	if strings.HasSuffix(s, "-") {
		return corev1.Taint{}, fmt.Errorf("%q removes a taint: leave the - at its end out", s)
	}
	words, effect, ok := strings.Cut(s, ":")
	key, value, _ := strings.Cut(words, "=")
	effects := []string{string(corev1.TaintEffectNoSchedule), string(corev1.TaintEffectPreferNoSchedule), string(corev1.TaintEffectNoExecute)}
	switch {
	case !ok || !slices.Contains(effects, effect):
		return corev1.Taint{}, fmt.Errorf("%q is not a taint: write key=value:Effect with the effect NoSchedule, PreferNoSchedule or NoExecute", s)
	case len(validation.IsQualifiedName(key)) > 0:
		return corev1.Taint{}, fmt.Errorf("%q is not the key of a taint", key)
	case len(validation.IsValidLabelValue(value)) > 0:
		return corev1.Taint{}, fmt.Errorf("%q is not the value of a taint", value)
	}
	return corev1.Taint{Key: key, Value: value, Effect: corev1.TaintEffect(effect)}, nil
}

// settings are the options as the controller takes them.
func (o *options) settings(log logr.Logger) (controller.Options, error) {
	taint, err := parseTaint(o.runtimeTaint)
	if err != nil {
		return controller.Options{}, err
	}
	return controller.Options{
		Skyhook: skyhook.Config{
			Namespace: o.namespace, AgentImage: o.agentImage, PauseImage: o.pauseImage,
			CopyDirRoot: path.Clean(o.copyDirRoot), LogRoot: path.Clean(o.agentLogRoot), RuntimeTaint: taint,
			ReapplyOnReboot: o.reapplyOnReboot, TrustAgentReboots: o.rebootProof == "agent",
			ImagePullSecret: o.imagePullSecret, ServiceAccount: o.serviceAccount, OwnAccount: o.ownAccount, AlwaysPull: o.alwaysPull,
			DefaultPolicy: o.defaultPolicy, StageDeadline: o.stageDeadline, InterruptDeadline: o.interruptDeadline, Version: version,
		},
		NodeOps: nodeop.Config{
			AgentImage: o.agentImage, DefaultImage: o.nodeOpImage, SentinelImage: o.sentinelImage,
			CopyDirRoot: path.Clean(o.copyDirRoot), LogRoot: path.Clean(o.agentLogRoot),
			Namespace: o.namespace, PullSecret: o.imagePullSecret, LabelKairos: o.kairosLabels, Namespaces: o.namespaces(),
		},
		Node: o.nodeName, LeaderElection: o.leaderElection, Parallel: o.parallel, GuardRemoval: o.guardRemoval, Log: log,
		MetricsAddress: o.metricsAddress, MetricsSecure: o.metricsSecure, ProbeAddress: o.probeAddress, PprofAddress: o.pprofAddress,
	}, nil
}
