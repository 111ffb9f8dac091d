// SPDX-FileCopyrightText: The Skyhook authors
// SPDX-License-Identifier: Apache-2.0

package agent_test

import (
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"github.com/rogpeppe/go-internal/testscript"
	"golang.org/x/sys/unix"

	"github.com/skyhook-k8s/skyhook/internal/agent"
	"github.com/skyhook-k8s/skyhook/internal/agent/argv"
	"github.com/skyhook-k8s/skyhook/internal/pack"
)

// TestMain lets the stories call this test binary as the agent.
func TestMain(m *testing.M) {
	testscript.Main(m, map[string]func(){
		"skyhook-agent": func() {
			os.Exit(argv.Run(argv.Line{
				Args: os.Args[1:], Environ: os.Environ(), Stdout: os.Stdout, Stderr: os.Stderr, Version: "test",
				Prepare: killAt,
			}))
		},
	})
}

// killAt ends the agent the hard way just before its n-th change of the host.
func killAt(a *agent.Agent) {
	n, err := strconv.Atoi(os.Getenv("TEST_KILL_AT"))
	if err != nil {
		return
	}
	a.Host.OnChange = func(string, string) {
		if n--; n == 0 {
			_ = unix.Kill(unix.Getpid(), unix.SIGKILL)
			select {}
		}
	}
}

// stories says what each script shows; a script that is not here has not been thought of.
var stories = map[string]string{
	"agent-log":                 "what the agent says is leveled, timed and complete",
	"checks-read-only":          "checks change nothing of the overlay and leave a readable result",
	"command-line":              "help, version, usage with exit code 2, unknown modes with 0",
	"delivery":                  "a package is moved into place whole; files that left it do not linger, those steps made stay",
	"delivery-config":           "links of a mounted ConfigMap become private files, and a config of another time is refused",
	"delivery-in-place":         "what was copied straight to the place becomes a delivery, with the config the stage is for",
	"delivery-from-image":       "without an init container the agent copies the package itself",
	"downgrade":                 "a version that was installed before is really installed again",
	"environment":               "a step sees exactly the environment it should; values keep their lines",
	"expected-config":           "a package does not run without the config files it expects",
	"failed-check-doubts":       "a failed check makes self-managed steps run again within the same run",
	"historic-files":            "flags, history and logs are where people look for them",
	"historic-forms":            "the four forms of the command line",
	"history":                   "history grows only with changes, and broken records are set aside under a number",
	"host-full":                 "a full disk is named, and the old state stays",
	"host-links":                "links of the host lead to places on the host",
	"hostile-paths":             "names and paths of a package never leave its places",
	"interrupt-after-file":      "an interrupt can wait for a file first",
	"interrupt-data":            "interrupt data is read tolerantly and refused clearly",
	"interrupt-without-package": "an interrupt needs no package and happens once per id",
	"kairos":                    "a host says whether it runs Kairos, and which",
	"killed":                    "a step never outlives its agent",
	"mounts-are-lost":           "a mount that only the pod sees is pointed out",
	"noexec":                    "a file system mounted noexec is named as the cause",
	"on-host-false":             "on_host false runs on the host with a warning",
	"one-at-a-time":             "two agents never work on one package at once",
	"output":                    "output is one ordered log, line by line",
	"overlay":                   "the overlay lays files over the host's and takes them back",
	"overlay-changed-since":     "files that others changed since are left to them",
	"overlay-links":             "overlay paths stay on the host, and folders keep their modes",
	"plan":                      "plan says what would happen and changes nothing",
	"post-interrupt-again":      "post-interrupt steps run after every interrupt",
	"reboot-asks-again":         "a reboot that did not happen is asked for again, a few times",
	"reboot-former":             "a reboot an earlier agent flagged counts if the host was started since",
	"reboot-once":               "a reboot happens once per id and is proven by the boot id",
	"reboot-record-lost":        "a reboot whose record is unreadable is never asked for again",
	"resolv":                    "the host's name servers are left alone unless asked otherwise",
	"restart-all-services":      "restarting all services restarts what runs, but not what carries the host",
	"result":                    "the result left behind says why",
	"retention":                 "logs, copies and flags do not pile up",
	"returncodes":               "the real exit code of a step decides",
	"run-id":                    "within a run a finished step is skipped, across two it is not",
	"secrets":                   "secrets are printed nowhere",
	"services":                  "services are restarted one by one, and unknown ones are refused",
	"sigterm":                   "SIGTERM reaches the step, and after the grace SIGKILL",
	"start-failures":            "a step that cannot be started says why",
	"status":                    "status says what is installed",
	"step-identity":             "a step is known by all that makes it, not by its file name",
	"takeover":                  "a host managed before neither runs everything again nor skips wrongly",
	"timeout":                   "a step's timeout and the stage's deadline end it",
	"two-packages-one-image":    "two packages of one image do not share records",
	"uninstall":                 "an uninstalled package is forgotten, and installed anew when it comes back",
	"upgrade":                   "an upgrade knows the version it comes from",
	"validate":                  "validate names every fault",
	"version-drift":             "a version that differs from the Skyhook's is a warning",
}

func TestStories(t *testing.T) {
	shell := staticBusybox(t, t.TempDir())
	for _, e := range must(os.ReadDir("testdata/script"))(t) {
		if name := strings.TrimSuffix(e.Name(), ".txtar"); stories[name] == "" {
			t.Errorf("%s is not listed with what it shows", name)
		}
	}
	for name := range stories {
		if _, err := os.Stat(filepath.Join("testdata/script", name+".txtar")); err != nil {
			t.Errorf("%s is listed and not there", name)
		}
	}
	systemctl := must(filepath.Abs("testdata/systemctl"))(t)
	testscript.Run(t, testscript.Params{
		Dir: "testdata/script",
		Setup: func(env *testscript.Env) error {
			env.Setenv("HOST", filepath.Join(env.WorkDir, "host"))
			env.Setenv("SYSTEMCTL", systemctl)
			env.Setenv("STATE", "/var/lib/skyhook/demo")
			env.Setenv("UID", "11111111-2222-3333-4444-555555555555")
			env.Setenv("COPY", "/var/lib/skyhook/demo/tuning-1.0.0-11111111-2222-3333-4444-555555555555-1")
			env.Setenv(pack.EnvRootDir, "/var/lib/skyhook/demo")
			env.Setenv(pack.EnvLogDir, "/var/log/skyhook/demo")
			env.Setenv(pack.EnvResourceID, "demo-11111111-2222-3333-4444-555555555555-1_tuning_1.0.0")
			env.Setenv(pack.EnvDataDir, filepath.Join(env.WorkDir, "image"))
			env.Setenv(agent.EnvMessageFile, filepath.Join(env.WorkDir, "message"))
			env.Defer(func() { _ = unix.Unmount(filepath.Join(env.WorkDir, "host/mnt"), unix.MNT_DETACH) }) // what a step mounts there ends with its pod
			return makeHost(filepath.Join(env.WorkDir, "host"), shell)
		},
		Cmds: map[string]func(*testscript.TestScript, bool, []string){
			"package":  packageCmd,
			"exits":    exitsCmd,
			"await":    awaitCmd,
			"mode":     modeCmd,
			"count":    countCmd,
			"numbered": numberedCmd, "digest": digestCmd, "deadline": deadlineCmd, "tmpfs": tmpfsCmd, "systemd": systemdCmd, "terminate": terminateCmd, "gone": goneCmd, "multiline": multilineCmd,
		},
		Condition: func(name string) (bool, error) {
			if name == "mounts" {
				return canMount(), nil
			}
			return false, fmt.Errorf("condition %q is not known", name)
		},
		RequireExplicitExec: true,
		RequireUniqueNames:  true,
	})
}
