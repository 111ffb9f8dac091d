// SPDX-FileCopyrightText: The Skyhook authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"errors"
	"flag"
	"fmt"
	"io"
	"strconv"
	"strings"
	"text/tabwriter"
	"time"
)

// options are what the operator is started with.
type options struct {
	namespace         string
	imagePullSecret   string
	serviceAccount    string
	ownAccount        string
	copyDirRoot       string
	agentLogRoot      string
	agentImage        string
	pauseImage        string
	nodeOpImage       string
	sentinelImage     string
	kairosLabels      bool
	nodeOpNamespaces  string
	alwaysPull        bool
	runtimeTaint      string
	reapplyOnReboot   bool
	rebootProof       string
	defaultPolicy     string
	stageDeadline     time.Duration
	interruptDeadline time.Duration
	parallel          int
	leaderElection    bool
	guardRemoval      bool
	nodeName          string
	metricsAddress    string
	metricsSecure     bool
	probeAddress      string
	pprofAddress      string
	logEncoder        string
	logLevel          string
	logStackLevel     string
	logTimeEncoder    string
	kubeconfig        string
	ignored           []string // settings that were given and have no effect
}

// errVersion says that only the version was asked for.
var errVersion = errors.New("version asked for")

// setting is one setting: a flag, an environment variable, a default and what it means.
type setting struct {
	name, env, initial, help string
	store                    func(string) error
	boolean                  bool
}

// IsBoolFlag lets a flag stand without a value.
func (s *setting) IsBoolFlag() bool { return s.boolean }

// String is the default, for the flag package.
func (s *setting) String() string { return s.initial }

// Set takes a value.
func (s *setting) Set(value string) error { return s.store(value) }

// table lists all settings. The environment names are older than the flags.
func (o *options) table() []*setting {
	return []*setting{
		text("namespace", "NAMESPACE", "skyhook", "namespace of the pods and ConfigMaps of packages, and of the leader's lease", &o.namespace),
		text("agent-image", "AGENT_IMAGE", "ghcr.io/nvidia/skyhook/agent:latest", "image of the agent, with a tag or digest", &o.agentImage),
		text("pause-image", "PAUSE_IMAGE", "registry.k8s.io/pause:3.10", "image of the container that keeps a finished pod around, with a tag or digest", &o.pauseImage),
		text("nodeop-default-image", "NODEOP_DEFAULT_IMAGE", "busybox:latest", "image of NodeOps that name none", &o.nodeOpImage),
		text("sentinel-image", "SENTINEL_IMAGE", "", "image with a shell that makes the file a NodeOp's reboot waits for; empty for the agent's", &o.sentinelImage),
		text("nodeop-namespaces", "NODEOP_NAMESPACES", "", "namespaces whose NodeOps and NodeOpUpgrades are carried out, separated by commas; empty for all", &o.nodeOpNamespaces),
		flagged("kairos-labels", "KAIROS_LABELS", "false", "look once for each boot of a node whether it runs Kairos, by a pod that reads its /etc, and label it if so", &o.kairosLabels),
		text("image-pull-secret", "IMAGE_PULL_SECRET", "", "name of a Secret in the namespace with credentials for registries; empty for none", &o.imagePullSecret),
		flagged("always-pull", "ALWAYS_PULL", "false", "pull images each time; otherwise as Kubernetes defaults it for the tag or digest", &o.alwaysPull),
		text("service-account", "PACKAGE_SERVICE_ACCOUNT", "", "service account of the pods of packages; empty for the namespace's default", &o.serviceAccount),
		text("own-service-account", "OWN_SERVICE_ACCOUNT", "", "service account of the operators themselves: no drain moves their pods away; empty when unknown", &o.ownAccount),
		text("copy-dir-root", "COPY_DIR_ROOT", "/var/lib/skyhook", "directory on hosts for packages and their records", &o.copyDirRoot),
		text("agent-log-root", "AGENT_LOG_ROOT", "/var/log/skyhook", "directory on hosts for the logs of packages", &o.agentLogRoot),
		text("runtime-required-taint", "RUNTIME_REQUIRED_TAINT", "skyhook.nvidia.com=runtime-required:NoSchedule", "taint of nodes that wait for runtime-required Skyhooks, as for kubectl taint", &o.runtimeTaint),
		flagged("reapply-on-reboot", "REAPPLY_ON_REBOOT", "false", "apply packages again on a node that booted for other reasons than our interrupts", &o.reapplyOnReboot),
		text("reboot-proof", "REBOOT_PROOF", "bootID", "what proves a reboot: bootID, a changed boot id and a ready node; or agent, the agent's exit code (for tests with stub images)", &o.rebootProof),
		duration("stage-deadline", "STAGE_DEADLINE", "1h", "how long one attempt of a stage may take, unless the package says otherwise", &o.stageDeadline),
		duration("interrupt-deadline", "INTERRUPT_DEADLINE", "30m", "how long one attempt of an interrupt may take, unless the package says otherwise", &o.interruptDeadline),
		text("default-deployment-policy", "DEFAULT_DEPLOYMENT_POLICY", "", "DeploymentPolicy for Skyhooks that name none and have no interruptionBudget; empty for none", &o.defaultPolicy),
		number("parallel", "PARALLEL_NODES", "16", "nodes that are written to at the same time", &o.parallel),
		flagged("leader-election", "LEADER_ELECTION", "true", "have one of several operators lead; turn off only where a single process runs", &o.leaderElection),
		flagged("guard-removal", "GUARD_REMOVAL", "false", "have the API server refuse to delete the operator, its rights and the CRDs while Skyhooks or running NodeOps need it", &o.guardRemoval),
		text("node-name", "NODE_NAME", "", "node this operator runs on: it is worked on last; empty when unknown", &o.nodeName),
		text("metrics-port", "METRICS_PORT", ":8080", "address for metrics; 0 for none", &o.metricsAddress),
		flagged("metrics-secure", "METRICS_SECURE", "false", "serve metrics over TLS, and only to those whom the API server lets get /metrics; otherwise over plain HTTP to everybody", &o.metricsSecure),
		text("probe-port", "PROBE_PORT", ":8081", "address for /healthz and /readyz; 0 for none", &o.probeAddress),
		text("pprof-port", "PPROF_PORT", "", "address for Go's profiles over plain HTTP; empty for none", &o.pprofAddress),
		text("log-encoder", "LOG_ENCODER", "json", "json or console", &o.logEncoder),
		text("log-level", "LOG_LEVEL", "debug", "debug, info, warn or error", &o.logLevel),
		text("log-stack-trace-level", "LOG_STACK_TRACE_LEVEL", "warn", "level from which log lines carry a stack trace: debug, info, warn, error or panic", &o.logStackLevel),
		text("log-time-encoder", "LOG_TIME_ENCODER", "rfc3339", "rfc3339, rfc3339nano, iso8601, millis, nanos or epoch", &o.logTimeEncoder),
		o.without("default-interval", "DEFAULT_INTERVAL", "nothing is polled"),
		o.without("enable-webhooks", "ENABLE_WEBHOOKS", "the rules are in the CRDs"),
		o.without("webhook-secret-name", "WEBHOOK_SECRET_NAME", "there are no webhooks"),
		o.without("webhook-service-name", "WEBHOOK_SERVICE_NAME", "there are no webhooks"),
	}
}

func text(name, env, initial, help string, into *string) *setting {
	return &setting{name: name, env: env, initial: initial, help: help, store: func(v string) error { *into = v; return nil }}
}

func flagged(name, env, initial, help string, into *bool) *setting {
	return &setting{name: name, env: env, initial: initial, help: help, boolean: true, store: func(v string) error {
		b, err := strconv.ParseBool(v)
		if err != nil {
			return fmt.Errorf("%q is neither true nor false", v)
		}
		*into = b
		return nil
	}}
}

func duration(name, env, initial, help string, into *time.Duration) *setting {
	return &setting{name: name, env: env, initial: initial, help: help, store: func(v string) error {
		d, err := time.ParseDuration(v)
		if err != nil {
			return fmt.Errorf("%q is not a duration such as 90s or 1h", v)
		}
		*into = d
		return nil
	}}
}

func number(name, env, initial, help string, into *int) *setting {
	return &setting{name: name, env: env, initial: initial, help: help, store: func(v string) error {
		n, err := strconv.Atoi(v)
		if err != nil {
			return fmt.Errorf("%q is not a whole number", v)
		}
		*into = n
		return nil
	}}
}

// without is a setting of earlier operators that manifests still carry.
func (o *options) without(name, env, why string) *setting {
	return &setting{name: name, env: env, help: "accepted and without effect: " + why, boolean: name == "enable-webhooks", store: func(string) error {
		o.ignored = append(o.ignored, env+": "+why)
		return nil
	}}
}

// parse reads settings: a flag wins over the environment, and that over the default. An empty environment variable
// counts as not set.
func parse(args []string, env func(string) (string, bool), out io.Writer) (*options, error) {
	o := &options{}
	all := o.table()
	flags := flag.NewFlagSet("operator", flag.ContinueOnError)
	flags.SetOutput(io.Discard)
	showVersion := flags.Bool("version", false, "")
	flags.StringVar(&o.kubeconfig, "kubeconfig", "", "")
	for _, s := range all {
		flags.Var(s, s.name, s.help)
	}
	for _, s := range all {
		if s.initial != "" {
			if err := s.store(s.initial); err != nil {
				return nil, fmt.Errorf("default of --%s: %w", s.name, err)
			}
		}
		if v, ok := env(s.env); ok && v != "" {
			if err := s.store(v); err != nil {
				return nil, fmt.Errorf("environment variable %s: %w", s.env, err)
			}
		}
	}
	if err := flags.Parse(args); err != nil {
		if errors.Is(err, flag.ErrHelp) {
			usage(out, all)
		}
		return nil, err
	}
	if *showVersion {
		return nil, errVersion
	}
	if flags.NArg() > 0 {
		return nil, fmt.Errorf("%q is not a flag; see --help", flags.Arg(0))
	}
	return o, o.check()
}

// usage prints the settings as a table.
func usage(out io.Writer, all []*setting) {
	fmt.Fprint(out, "operator takes the packages of Skyhooks to the nodes of a cluster.\n\n"+
		"Each setting is a flag or an environment variable; the flag wins.\n\n")
	t := tabwriter.NewWriter(out, 0, 0, 2, ' ', 0)
	for _, s := range all {
		initial := s.initial
		if initial == "" {
			initial = "-"
		}
		fmt.Fprintf(t, "  --%s\t%s\t%s\n", s.name, s.env, initial)
		fmt.Fprintf(t, "      %s\n", strings.ReplaceAll(s.help, "\t", " "))
	}
	fmt.Fprintf(t, "  --kubeconfig\tKUBECONFIG\t-\n      file that says how to reach the API server, outside a cluster\n")
	fmt.Fprintf(t, "  --version\n      print the version and end\n")
	_ = t.Flush() // a table for people, on stderr
}
