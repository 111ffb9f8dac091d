// SPDX-FileCopyrightText: The Skyhook authors
// SPDX-License-Identifier: Apache-2.0

package argv

import (
	"bytes"
	"path/filepath"
	"strings"
	"testing"

	"github.com/skyhook-k8s/skyhook/internal/agent"
	"github.com/skyhook-k8s/skyhook/internal/pack"
)

func TestModeForms(t *testing.T) {
	for _, c := range []struct {
		args  string
		want  agent.Request
		known bool
		fails string
	}{
		{"apply /copy", agent.Request{Mode: "apply", RootMount: "/root", CopyDir: "/copy"}, true, ""},
		{"interrupt /copy DATA", agent.Request{Mode: "interrupt", RootMount: "/root", CopyDir: "/copy", Interrupt: "DATA"}, true, ""},
		{"apply-check /host /copy", agent.Request{Mode: "apply-check", RootMount: "/host", CopyDir: "/copy"}, true, ""},
		{"interrupt /host /copy DATA", agent.Request{Mode: "interrupt", RootMount: "/host", CopyDir: "/copy", Interrupt: "DATA"}, true, ""},
		{"apply local /copy", agent.Request{Mode: "apply", RootMount: "local", CopyDir: "/copy"}, true, ""},
		{"later /host /copy", agent.Request{}, false, ""},
		{"apply", agent.Request{}, false, "1 arguments given"},
		{"apply a b c d", agent.Request{}, false, "5 arguments given"},
		{"apply /host copy", agent.Request{}, true, "must be an absolute path"},
		{"interrupt /copy", agent.Request{}, true, "interrupt needs the interrupt"},
	} {
		req, known, err := ParseModeForm(strings.Fields(c.args))
		if known != c.known || (c.fails == "") != (err == nil) || err != nil && !strings.Contains(err.Error(), c.fails) {
			t.Errorf("%s: known %v, error %v", c.args, known, err)
		}
		if err == nil && known && req != c.want {
			t.Errorf("%s: %+v, want %+v", c.args, req, c.want)
		}
	}
}

// FuzzArguments runs random command lines on an empty host: the program never crashes, and prints a message when it
// fails.
func FuzzArguments(f *testing.F) {
	f.Add("apply\x00HOST\x00/copy", "demo-u-1_a_1.0.0")
	f.Add("interrupt\x00HOST\x00/copy\x00eyJ0eXBlIjoibm9fb3AifQ==", "demo-u-1_a_1.0.0")
	f.Add("interrupt\x00--root-mount\x00HOST\x00--id\x00x\x00{\"type\":\"noop\"}", "")
	f.Add("plan\x00config\x00--copy-dir\x00/x\x00--root-mount\x00HOST", "a_b")
	f.Add("status\x00--root-mount\x00HOST\x00-o\x00json", "")
	f.Add("--version", "")
	host := f.TempDir()
	f.Fuzz(func(t *testing.T, line, resource string) {
		args := strings.Split(line, "\x00")
		for i, arg := range args {
			switch {
			case arg == "HOST":
				args[i] = host
			case strings.HasPrefix(arg, "/") || strings.Contains(arg, "=/") || arg == "local" || strings.Contains(arg, ".."):
				args[i] = "/none/" + filepath.Base(arg) // no place of this machine
			}
		}
		if line := strings.Join(args, " "); !staysOnHost(args, host) || strings.Contains(line, "reboot") || strings.Contains(line, "restart") {
			return // the machine's own root, or what would be asked of its systemd
		}
		var stdout, stderr bytes.Buffer
		code := Run(Line{Args: args, Stdout: &stdout, Stderr: &stderr, Version: "fuzz", Environ: []string{
			pack.EnvResourceID + "=" + resource, pack.EnvRootDir + "=/state", pack.EnvLogDir + "=/logs", pack.EnvDataDir + "=/nowhere",
		}})
		if strings.Contains(stderr.String(), "the agent crashed") {
			t.Fatal(stderr.String())
		}
		if code != 0 && stdout.Len()+stderr.Len() == 0 {
			t.Fatalf("%q: exit code %d without a word", args, code)
		}
	})
}

// staysOnHost reports whether a command line works on the fake host. Without a root mount it would work on this
// machine.
func staysOnHost(args []string, host string) bool {
	if args[0] == "validate" {
		return true // reads
	}
	if req, known, err := ParseModeForm(args); err == nil && known {
		return req.RootMount == host
	}
	given, at := 0, -1
	for i, arg := range args {
		if strings.HasPrefix(arg, "--root-mount") {
			given, at = given+1, i
		}
		if arg == "--" {
			return false
		}
	}
	return given == 1 && args[at] == "--root-mount" && at > 0 && at+1 < len(args) && args[at+1] == host && !strings.HasPrefix(args[at-1], "-")
}

func TestLogs(t *testing.T) {
	for _, c := range []struct {
		args []string
		code int
		want string
	}{
		{[]string{"logs", t.TempDir()}, 0, "no logs in /"},
		{[]string{"logs", "/none"}, 1, "no such file"},
		{[]string{"logs", "/none", "--stage", "nosuch"}, pack.BadUsage.ExitCode(), `--stage "nosuch" is not one of `},
	} {
		var out bytes.Buffer
		if code := Run(Line{Args: c.args, Stdout: &out, Stderr: &out}); code != c.code || !strings.Contains(out.String(), c.want) {
			t.Errorf("%v: exit code %d: %s", c.args, code, out.String())
		}
	}
}
