// SPDX-FileCopyrightText: The Skyhook authors
// SPDX-License-Identifier: Apache-2.0

package options

import (
	"github.com/skyhook-k8s/skyhook/api/skyhook/v1alpha1"
	"github.com/skyhook-k8s/skyhook/internal/published"
	"github.com/skyhook-k8s/skyhook/internal/skyhook/plan"
)

// Use says what reads an option.
type Use int

// The uses. Only options of Decision reach the configuration of Skyhooks and NodeOps, or the order of nodes.
const (
	Decision Use = iota
	Process      // how the operator's process runs
	Nothing      // accepted because manifests of earlier operators carry it
)

// Option is one setting. A flag wins over the environment variable, which wins over the default.
type Option struct {
	Flag, Env, Default, Help string
	Use                      Use

	target any                // pointer to the field of Options that it sets
	check  func(string) error // rejects values that cannot work; nil when every value of the type can
	given  bool
}

// Table lists every option. The environment variables are older than the flags.
func (o *Options) Table() []*Option {
	ignored := func(flag, env string, target any, reason string) *Option {
		return &Option{Flag: flag, Env: env, Help: "accepted and without effect: " + reason, Use: Nothing, target: target}
	}
	return []*Option{
		{Flag: "namespace", Env: "NAMESPACE", Default: "skyhook", target: &o.Namespace, check: checkNamespace,
			Help: "namespace of the pods and ConfigMaps of packages, and of the leader's lease"},
		{Flag: "profile", Env: "PROFILE", Default: string(v1alpha1.ProfileCompatible), target: &o.Profile, check: checkOneOf(v1alpha1.ProfileRecommended, v1alpha1.ProfileCompatible),
			Help: "defaults of objects that leave fields out, unless their own profile says otherwise: Recommended, which chart and config/default set for a new installation, or Compatible, those of earlier operators"},
		{Flag: "agent-image", Env: "AGENT_IMAGE", Default: published.Images + "/agent:latest", target: &o.AgentImage, check: checkImage,
			Help: "image of the agent, with a tag or digest"},
		{Flag: "pause-image", Env: "PAUSE_IMAGE", Default: "registry.k8s.io/pause:3.10", target: &o.PauseImage, check: checkImage,
			Help: "image of the container that keeps a finished pod around, with a tag or digest"},
		{Flag: "nodeop-default-image", Env: "NODEOP_DEFAULT_IMAGE", Default: "busybox:latest", target: &o.NodeOpDefaultImage,
			Help: "image of NodeOps that name none"},
		{Flag: "sentinel-image", Env: "SENTINEL_IMAGE", target: &o.NodeOpSentinelImage,
			Help: "image with a shell that makes the file a NodeOp's reboot waits for; empty for the agent's"},
		{Flag: "nodeop-namespaces", Env: "NODEOP_NAMESPACES", target: &o.NodeOpNamespaces, check: checkNamespaces,
			Help: "namespaces whose NodeOps and NodeOpUpgrades are carried out, separated by commas; empty for all"},
		{Flag: "kairos-labels", Env: "KAIROS_LABELS", Default: "true", target: &o.KairosLabels,
			Help: "check once for each boot of a node whether it runs Kairos, by a pod that reads its /etc, and label it if so"},
		{Flag: "image-pull-secret", Env: "IMAGE_PULL_SECRET", target: &o.ImagePullSecret, check: checkSecrets,
			Help: "names of Secrets in the namespace with credentials for registries, separated by commas; empty for none. Pods name node-init-secret only while it exists"},
		{Flag: "always-pull", Env: "ALWAYS_PULL", Default: "false", target: &o.AlwaysPull,
			Help: "pull images each time; otherwise as Kubernetes defaults it for the tag or digest"},
		{Flag: "service-account", Env: "PACKAGE_SERVICE_ACCOUNT", target: &o.ServiceAccount,
			Help: "service account of the pods of packages; empty for the namespace's default"},
		{Flag: "own-service-account", Env: "OWN_SERVICE_ACCOUNT", target: &o.OwnAccount,
			Help: "service account of the operator's own pods, which no drain evicts; empty when unknown"},
		{Flag: "copy-dir-root", Env: "COPY_DIR_ROOT", Default: "/var/lib/skyhook", target: &o.CopyDirRoot, check: checkPath,
			Help: "directory on hosts for packages and their records"},
		{Flag: "agent-log-root", Env: "AGENT_LOG_ROOT", Default: "/var/log/skyhook", target: &o.LogRoot, check: checkPath,
			Help: "directory on hosts for the logs of packages"},
		{Flag: "runtime-required-taint", Env: "RUNTIME_REQUIRED_TAINT", Default: "skyhook.nvidia.com=runtime-required:NoSchedule", target: &o.RuntimeTaint,
			Help: "taint of nodes that wait for runtime-required Skyhooks, as for kubectl taint"},
		{Flag: "reapply-on-reboot", Env: "REAPPLY_ON_REBOOT", Default: "false", target: &o.ReapplyOnReboot,
			Help: "apply packages again on a node that booted for other reasons than our interrupts"},
		{Flag: "reboot-proof", Env: "REBOOT_PROOF", Default: "bootID", target: (*rebootProof)(&o.TrustAgentReboots),
			Help: "what proves a reboot: bootID, a changed boot id and a ready node; or agent, the agent's exit code (for tests with stub images)"},
		{Flag: "stage-deadline", Env: "STAGE_DEADLINE", Default: "1h", target: &o.StageDeadline, check: checkPositive,
			Help: "how long one attempt of a stage may take, unless the package says otherwise"},
		{Flag: "interrupt-deadline", Env: "INTERRUPT_DEADLINE", Default: "30m", target: &o.InterruptDeadline, check: checkPositive,
			Help: "how long one attempt of an interrupt may take, unless the package says otherwise"},
		{Flag: "interrupt-memory", Env: "INTERRUPT_MEMORY", Default: plan.DefaultInterruptMemory, target: &o.InterruptMemory, check: checkMemory,
			Help: "memory request and limit of the container that carries out an interrupt"},
		{Flag: "pin-images", Env: "PIN_IMAGES", target: &o.PinImages,
			Help: "true or false: have every node pull the image of a package by the digest that the first node pulled; empty for true under the profile Recommended"},
		{Flag: "prepull", Env: "PREPULL", target: &o.Prepull,
			Help: "true or false: have the images of the next nodes pulled before their turn, by a pod that does nothing else; empty for false"},
		{Flag: "pod-layout", Env: "POD_LAYOUT", target: &o.PodLayout, check: checkOneOf("", plan.LayoutCompatible, plan.LayoutCompact),
			Help: "how stages become pods: Compatible, one pod for each, or Compact, several in one where nodes can mount images; empty for Compact under the profile Recommended, else Compatible"},
		{Flag: "image-volumes-from", Env: "IMAGE_VOLUMES_FROM", Default: plan.DefaultImageVolumesFrom, target: &o.ImageVolumesFrom, check: checkKubernetesVersion,
			Help: "version of Kubernetes from which kubelets mount images as volumes: lower it where the feature gate ImageVolume is on"},
		{Flag: "keep-removed-packages", Env: "KEEP_REMOVED_PACKAGES", Default: "false", target: &o.KeepRemovedPackages,
			Help: "do not uninstall a package without an uninstall section that is removed from its Skyhook, or whose version is lowered"},
		{Flag: "default-deployment-policy", Env: "DEFAULT_DEPLOYMENT_POLICY", target: &o.DefaultPolicy, check: checkNameOf("a DeploymentPolicy"),
			Help: "DeploymentPolicy for Skyhooks that name none and have no interruptionBudget; empty for none"},
		{Flag: "default-deployment-policy-spec", Env: "DEFAULT_DEPLOYMENT_POLICY_SPEC", Use: Process, target: &o.DefaultPolicySpec, check: checkOptionalObject,
			Help: "spec, as JSON, with which the default-deployment-policy is created if it does not exist; empty: it is not created"},
		{Flag: "prometheus-endpoints", Env: "PROMETHEUS_ENDPOINTS", target: &o.PrometheusEndpoints, check: checkEndpoints,
			Help: "beginnings of URLs of Prometheus servers that policies may query beside Services of the cluster, separated by commas; * for all"},
		{Flag: "prometheus-token-file", Env: "PROMETHEUS_TOKEN_FILE", Use: Process, target: &o.PrometheusTokenFile, check: checkOptionalPath,
			Help: "file with a bearer token, read before each query, for the https servers of prometheus-endpoints and no others; empty for none"},
		{Flag: "node-name", Env: "NODE_NAME", target: &o.Node,
			Help: "node this operator runs on, which is worked on last; empty when unknown"},
		{Flag: "parallel", Env: "PARALLEL_NODES", Default: "16", Use: Process, target: &o.Parallel, check: checkParallel,
			Help: "nodes that are written to at the same time"},
		{Flag: "leader-election", Env: "LEADER_ELECTION", Default: "true", Use: Process, target: &o.LeaderElection,
			Help: "have one of several operators lead; turn off only where a single process runs"},
		{Flag: "wait-for-other-operators", Env: "WAIT_FOR_OTHER_OPERATORS", Default: "true", Use: Process, target: &o.WaitForOthers,
			Help: "do not lead while an operator of another namespace holds a lease with the same name"},
		{Flag: "guard-removal", Env: "GUARD_REMOVAL", Default: "false", Use: Process, target: &o.GuardRemoval,
			Help: "have the API server refuse to delete the operator, its rights and the CRDs while Skyhooks or running NodeOps need it"},
		{Flag: "metrics-port", Env: "METRICS_PORT", Default: ":8080", Use: Process, target: &o.MetricsAddress, check: checkAddress,
			Help: "address for metrics; 0 for none"},
		{Flag: "metrics-secure", Env: "METRICS_SECURE", Default: "false", Use: Process, target: &o.MetricsSecure,
			Help: "serve metrics over TLS, and only to clients that the API server allows to get /metrics; otherwise over plain HTTP to everybody"},
		{Flag: "metrics-cert-dir", Env: "METRICS_CERT_DIR", Use: Process, target: &o.MetricsCertDir, check: checkOptionalPath,
			Help: "directory with tls.crt and tls.key, the certificate for metrics over TLS, read again when it changes; empty: the operator signs one itself, which nobody can verify"},
		{Flag: "probe-port", Env: "PROBE_PORT", Default: ":8081", Use: Process, target: &o.ProbeAddress, check: checkAddress,
			Help: "address for /healthz and /readyz; 0 for none"},
		{Flag: "pprof-port", Env: "PPROF_PORT", Use: Process, target: &o.PprofAddress, check: checkOptionalAddress,
			Help: "address for Go's profiles over plain HTTP; empty for none"},
		{Flag: "log-encoder", Env: "LOG_ENCODER", Default: "json", Use: Process, target: &o.LogEncoder,
			Help: "json or console"},
		{Flag: "log-level", Env: "LOG_LEVEL", Default: "info", Use: Process, target: &o.LogLevel,
			Help: "debug, info, warn or error"},
		{Flag: "log-stack-trace-level", Env: "LOG_STACK_TRACE_LEVEL", Default: "panic", Use: Process, target: &o.LogStackLevel,
			Help: "level from which log lines carry a stack trace: debug, info, warn, error or panic"},
		{Flag: "log-time-encoder", Env: "LOG_TIME_ENCODER", Default: "rfc3339", Use: Process, target: &o.LogTimeEncoder,
			Help: "rfc3339, rfc3339nano, iso8601, millis, nanos or epoch"},
		ignored("default-interval", "DEFAULT_INTERVAL", new(string), "nothing is polled"),
		ignored("enable-webhooks", "ENABLE_WEBHOOKS", new(bool), "the rules are in the CRDs"),
		ignored("webhook-secret-name", "WEBHOOK_SECRET_NAME", new(string), "there are no webhooks"),
		ignored("webhook-service-name", "WEBHOOK_SERVICE_NAME", new(string), "there are no webhooks"),
	}
}
