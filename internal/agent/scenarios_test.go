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

// TestMain lets scenarios run this test binary as the agent.
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

// killAt kills the agent before its n-th change of the host.
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

// scenarios describes each script. A script that is not listed is an error.
var scenarios = map[string]string{
	"agent-log":                 "log lines have a level and a time, and are complete",
	"checks-read-only":          "checks do not change the rootfs overlay and write a readable result",
	"command-line":              "help, version, usage with exit code 2, unknown modes with 0",
	"delivery":                  "a package is replaced as a whole; removed files disappear, those that steps created stay",
	"delivery-config":           "links of a mounted ConfigMap become private files, and an outdated config is rejected",
	"delivery-in-place":         "a copy in the final directory gets a manifest and the config of the stage",
	"delivery-from-image":       "without an init container the agent copies the package itself",
	"downgrade":                 "a downgrade installs an earlier version again",
	"drift":                     "a drift check finds what changed since the package was installed, shows it, and changes nothing",
	"drift-unknown":             "a drift check says why nothing is known",
	"environment":               "a step gets exactly the documented environment; values keep their lines",
	"expected-config":           "a package does not run without the config files it expects",
	"failed-check-doubts":       "a failed check makes self-managed steps run again within the same run",
	"historic-files":            "flags, history and logs are at the documented paths",
	"historic-forms":            "the four forms of the command line",
	"history":                   "history grows only with changes, and broken records are renamed with a number",
	"host-full":                 "a full disk is reported, and the old state stays",
	"host-links":                "links of the host are resolved on the host",
	"hostile-paths":             "names and paths of a package never leave its directories",
	"image":                     "a package is copied from its mounted image once; only config and metadata are renewed",
	"interrupt-after-file":      "an interrupt can wait for a file first",
	"interrupt-data":            "interrupt data is parsed leniently and rejected with a clear message",
	"interrupt-without-package": "an interrupt needs no package and is executed once per ID",
	"kairos":                    "the agent detects whether a host runs Kairos, and which",
	"killed":                    "a step never outlives its agent",
	"mounts-are-lost":           "a mount that only the pod sees causes a warning",
	"noexec":                    "a noexec mount is reported as the cause",
	"on-host-false":             "on_host false runs on the host with a warning",
	"one-at-a-time":             "two agents never run one package at the same time",
	"output":                    "output is one ordered log, line by line",
	"overlay":                   "the rootfs overlay copies files to the host and restores the original ones",
	"overlay-changed-since":     "files that were changed since are not restored",
	"overlay-links":             "overlay paths stay on the host, and directories keep their modes",
	"plan":                      "plan prints what would happen and changes nothing",
	"post-interrupt-again":      "post-interrupt steps run after every interrupt",
	"preflight":                 "a preflight answers what a package needs, and changes nothing",
	"previous-file":             "a stage waits for the one before it in its pod, and lets the next one begin",
	"privileges":                "a stage with few privileges is confined, and its check only reads",
	"reboot-asks-again":         "a reboot that did not happen is requested again, a few times",
	"reboot-former":             "a reboot flagged by an earlier agent counts if the host has booted since",
	"reboot-once":               "a reboot happens once per ID and is proven by the boot ID",
	"reboot-record-lost":        "a reboot whose record is unreadable is never requested again",
	"resolv":                    "the host's name servers are not changed unless requested",
	"restart-all-services":      "restarting all services excludes the services of the host itself",
	"result":                    "the termination message says why",
	"retention":                 "logs, copies and flags are limited",
	"returncodes":               "the real exit code of a step decides",
	"run-id":                    "a done step is skipped within a run, but not in another one",
	"secrets":                   "secrets are printed nowhere",
	"services":                  "services are restarted one by one, and unknown ones are rejected",
	"sigterm":                   "a step gets SIGTERM, and SIGKILL after the grace period",
	"start-failures":            "a step that cannot be started says why",
	"status":                    "status prints what is installed",
	"stop-file":                 "no stage begins when the operator wants none to; one that has begun goes on",
	"step-identity":             "a step is identified by its whole definition, not by its file name",
	"takeover":                  "a host of an earlier agent runs the right steps",
	"timeout":                   "a step's timeout and the stage's deadline end it",
	"two-packages-one-image":    "two packages of one image do not share records",
	"uninstall":                 "an uninstalled package keeps no records, and can be installed again",
	"upgrade":                   "an upgrade gets the previous version",
	"validate":                  "validate lists every fault",
	"version-drift":             "a version that differs from the Skyhook's is a warning",
	"with-check":                "a stage and its check run in one container",
}

func TestScenarios(t *testing.T) {
	shell := staticBusybox(t, t.TempDir())
	for _, e := range must(os.ReadDir("testdata/script"))(t) {
		if name := strings.TrimSuffix(e.Name(), ".txtar"); scenarios[name] == "" {
			t.Errorf("%s has no description in scenarios", name)
		}
	}
	for name := range scenarios {
		if _, err := os.Stat(filepath.Join("testdata/script", name+".txtar")); err != nil {
			t.Errorf("%s is listed in scenarios and does not exist", name)
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
			env.Vars = append(env.Vars, noSleepAtExit)
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
			"tree": treeCmd, "read-only": readOnlyCmd,
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
