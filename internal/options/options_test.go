// SPDX-FileCopyrightText: The Skyhook authors
// SPDX-License-Identifier: Apache-2.0

package options

import (
	"bytes"
	"errors"
	"flag"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/skyhook-k8s/skyhook/internal/skyhook/plan"
)

func with(pairs ...string) func(string) (string, bool) {
	env := map[string]string{}
	for i := 0; i < len(pairs); i += 2 {
		env[pairs[i]] = pairs[i+1]
	}
	return func(name string) (string, bool) { v, ok := env[name]; return v, ok }
}

func read(t *testing.T, env func(string) (string, bool), args ...string) *Options {
	t.Helper()
	o, err := Parse(args, env)
	if err != nil {
		t.Fatal(err)
	}
	return o
}

// The defaults are those of the chart, which published manifests expect, too, but for the agent's image, logs and leader election.
func TestDefaults(t *testing.T) {
	o := read(t, with())
	c := o.Skyhook("")
	for _, d := range []struct{ what, got, want string }{
		{"NAMESPACE", c.Namespace, "skyhook"},
		{"IMAGE_PULL_SECRET", c.ImagePullSecret, ""},
		{"COPY_DIR_ROOT", c.CopyDirRoot, "/var/lib/skyhook"},
		{"AGENT_LOG_ROOT", c.LogRoot, "/var/log/skyhook"},
		{"PAUSE_IMAGE", c.PauseImage, "registry.k8s.io/pause:3.10"},
		{"AGENT_IMAGE", c.AgentImage, "ghcr.io/skyhook-k8s/skyhook/agent:latest"},
		{"METRICS_PORT", o.MetricsAddress, ":8080"},
		{"PROBE_PORT", o.ProbeAddress, ":8081"},
		{"LOG_ENCODER", o.LogEncoder, "json"},
		{"LOG_LEVEL", o.LogLevel, "info"},
		{"LOG_STACK_TRACE_LEVEL", o.LogStackLevel, "panic"},
		{"LOG_TIME_ENCODER", o.LogTimeEncoder, "rfc3339"},
		{"STAGE_DEADLINE", c.StageDeadline.String(), "1h0m0s"},
		{"INTERRUPT_DEADLINE", c.InterruptDeadline.String(), "30m0s"},
		{"INTERRUPT_MEMORY", c.InterruptMemory, "256Mi"},
	} {
		if d.got != d.want {
			t.Errorf("%s is %q, want %q", d.what, d.got, d.want)
		}
	}
	if want := (corev1.Taint{Key: "skyhook.nvidia.com", Value: "runtime-required", Effect: corev1.TaintEffectNoSchedule}); c.RuntimeTaint != want {
		t.Errorf("RUNTIME_REQUIRED_TAINT is %v", c.RuntimeTaint)
	}
	if c.ReapplyOnReboot || c.TrustAgentReboots || c.AlwaysPull || c.KeepRemovedPackages || !o.LeaderElection {
		t.Errorf("REAPPLY_ON_REBOOT %v, REBOOT_PROOF=agent %v, ALWAYS_PULL %v, KEEP_REMOVED_PACKAGES %v, LEADER_ELECTION %v",
			c.ReapplyOnReboot, c.TrustAgentReboots, c.AlwaysPull, c.KeepRemovedPackages, o.LeaderElection)
	}
}

// A flag wins over the environment, and that over the default; an empty variable is none.
func TestPrecedence(t *testing.T) {
	env := with("NAMESPACE", "from-env", "AGENT_IMAGE", "r.example:5000/agent:v2", "REAPPLY_ON_REBOOT", "true", "COPY_DIR_ROOT", "", "STAGE_DEADLINE", "90s", "LEADER_ELECTION", "false")
	o := read(t, env, "--namespace=from-flag", "--reboot-proof", "agent", "--leader-election")
	if o.Namespace != "from-flag" || o.AgentImage != "r.example:5000/agent:v2" || !o.ReapplyOnReboot || o.CopyDirRoot != "/var/lib/skyhook" ||
		o.StageDeadline.Duration != 90*time.Second || !o.TrustAgentReboots || !o.LeaderElection {
		t.Errorf("%+v", o)
	}
}

// Settings of earlier operators are accepted, and reported as without effect.
func TestIgnored(t *testing.T) {
	o := read(t, with("ENABLE_WEBHOOKS", "true", "WEBHOOK_SECRET_NAME", "x", "DEFAULT_INTERVAL", "10m"), "--webhook-service-name", "y", "--enable-webhooks=false")
	if len(o.Ignored) != 4 {
		t.Errorf("%q", o.Ignored)
	}
}

// A value that cannot work stops the process, with the name of the option and what to change.
func TestWrong(t *testing.T) {
	for _, c := range []struct {
		env  func(string) (string, bool)
		args []string
		want string
	}{
		{with("NAMESPACE", "A_b"), nil, `--namespace (NAMESPACE): "A_b" is not the name of a namespace`},
		{with("AGENT_IMAGE", "r.example:5000/agent"), nil, `--agent-image (AGENT_IMAGE): "r.example:5000/agent" is not an image with a tag or digest, such as registry.example/team/image:v1.2.3`},
		{with("PAUSE_IMAGE", "pause"), nil, `--pause-image (PAUSE_IMAGE): "pause" is not an image`},
		{with("COPY_DIR_ROOT", "var/lib"), nil, `--copy-dir-root (COPY_DIR_ROOT): "var/lib" is not an absolute path below /`},
		{with("AGENT_LOG_ROOT", "/"), nil, `--agent-log-root (AGENT_LOG_ROOT): "/" is not an absolute path below /`},
		{with("IMAGE_PULL_SECRET", "A B"), nil, `--image-pull-secret (IMAGE_PULL_SECRET): "A B" is not the name of a Secret`},
		{with("IMAGE_PULL_SECRET", "a, B"), nil, `"B" is not the name of a Secret`},
		{with("RUNTIME_REQUIRED_TAINT", "a=b:NoSchedule-"), nil, `removes a taint: leave the - at its end out`},
		{with("RUNTIME_REQUIRED_TAINT", "a=b"), nil, `"a=b" is not a taint: write key=value:Effect`},
		{with("RUNTIME_REQUIRED_TAINT", "a=b:Sometimes"), nil, `"a=b:Sometimes" is not a taint`},
		{with("RUNTIME_REQUIRED_TAINT", "a b=c:NoSchedule"), nil, `"a b" is not the key of a taint`},
		{with("RUNTIME_REQUIRED_TAINT", "a=b c:NoSchedule"), nil, `"b c" is not the value of a taint`},
		{with("REBOOT_PROOF", "hope"), nil, `environment variable REBOOT_PROOF: "hope" is neither bootID nor agent`},
		{with("STAGE_DEADLINE", "soon"), nil, `environment variable STAGE_DEADLINE: "soon" is not a duration such as 90s or 1h`},
		{with("DEFAULT_DEPLOYMENT_POLICY", "Not A Name"), nil, `--default-deployment-policy (DEFAULT_DEPLOYMENT_POLICY): "Not A Name" is not the name of a DeploymentPolicy`},
		{with("PROMETHEUS_TOKEN_FILE", "token"), nil, `--prometheus-token-file (PROMETHEUS_TOKEN_FILE): "token" is not an absolute path below /`},
		{with("PROMETHEUS_TOKEN_FILE", "/token", "PROMETHEUS_ENDPOINTS", "http://a.example,*"), nil, `no server gets the token: name one that begins with https:// in --prometheus-endpoints`},
		{with("STAGE_DEADLINE", "0s"), nil, `--stage-deadline (STAGE_DEADLINE): it must be longer than 0`},
		{with("INTERRUPT_MEMORY", "1Mi"), nil, `--interrupt-memory (INTERRUPT_MEMORY): "1Mi" is not an amount of memory of at least 32Mi`},
		{with("INTERRUPT_DEADLINE", "-1s"), nil, `--interrupt-deadline (INTERRUPT_DEADLINE): it must be longer than 0`},
		{with("REAPPLY_ON_REBOOT", "maybe"), nil, `environment variable REAPPLY_ON_REBOOT: "maybe" is neither true nor false`},
		{with(), []string{"--parallel", "0"}, `--parallel (PARALLEL_NODES): 0 is not between 1 and 500`},
		{with(), []string{"--parallel", "x"}, `invalid value "x" for flag -parallel: "x" is not a whole number`},
		{with("METRICS_PORT", "8080"), nil, `--metrics-port (METRICS_PORT): "8080" is not an address such as :8080 or 127.0.0.1:8080, nor 0 for none`},
		{with(), []string{"--probe-port", ""}, `--probe-port (PROBE_PORT): "" is not an address`},
		{with(), []string{"--pprof-port", "x"}, `--pprof-port (PPROF_PORT): "x" is not an address`},
		{with(), []string{"--no-such"}, `flag provided but not defined: -no-such`},
		{with(), []string{"run"}, `"run" is not a flag; see --help`},
	} {
		_, err := Parse(c.args, c.env)
		if err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%v: the error is %v, without %q", c.args, err, c.want)
		}
	}
	_, err := Parse([]string{"--namespace", "A", "--parallel", "0"}, with())
	if err == nil || strings.Count(err.Error(), "\n") != 1 {
		t.Errorf("two settings are wrong, and the error is %v", err)
	}
}

func TestHelp(t *testing.T) {
	var out bytes.Buffer
	if _, err := Parse([]string{"--help"}, with()); !errors.Is(err, flag.ErrHelp) {
		t.Errorf("the error is %v", err)
	}
	if err := Usage(&out); err != nil {
		t.Fatal(err)
	}
	for _, row := range Defaults().Table() {
		if !strings.Contains(out.String(), "--"+row.Flag) || !strings.Contains(out.String(), row.Env) || !strings.Contains(out.String(), row.Help) {
			t.Errorf("help does not describe %s", row.Flag)
		}
	}
	if _, err := Parse([]string{"--version"}, with()); !errors.Is(err, ErrVersion) {
		t.Errorf("the error is %v", err)
	}
}

// The page about running the operator lists every setting with its default.
func TestDocumented(t *testing.T) {
	page, err := os.ReadFile(filepath.Join("..", "..", "docs", "operations.md"))
	if err != nil {
		t.Fatal(err)
	}
	for _, option := range Defaults().Table() {
		initial := "`" + option.Default + "`"
		if option.Default == "" {
			initial = ""
		}
		if row := "| `--" + option.Flag + "` | `" + option.Env + "` | " + initial; !strings.Contains(string(page), row) {
			t.Errorf("docs/operations.md has no row that begins with %q", row)
		}
	}
}

// Pods of packages and Kairos probes name all Secrets.
func TestPullSecrets(t *testing.T) {
	o := read(t, with("IMAGE_PULL_SECRET", "a, b"))
	want := []corev1.LocalObjectReference{{Name: "a"}, {Name: "b"}}
	if got, probe := plan.PullSecrets(o.Skyhook("").ImagePullSecret), o.NodeOps().PullSecrets; !slices.Equal(got, want) || !slices.Equal(probe, want) {
		t.Errorf("packages are pulled with %v, probes with %v", got, probe)
	}
}
