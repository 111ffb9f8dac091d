// SPDX-FileCopyrightText: The Skyhook authors
// SPDX-License-Identifier: Apache-2.0

package packages

import (
	"bytes"
	"encoding/json"
	"flag"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/cockroachdb/datadriven"
	"github.com/rogpeppe/go-internal/txtar"

	"github.com/skyhook-k8s/skyhook/internal/agent"
	"github.com/skyhook-k8s/skyhook/internal/agent/argv"
	format "github.com/skyhook-k8s/skyhook/internal/pack"
)

// TestMain removes the copied tools at the end.
func TestMain(m *testing.M) {
	code := m.Run()
	if toolsDir != "" {
		_ = os.RemoveAll(toolsDir)
	}
	os.Exit(code)
}

// TestScenarios runs testdata/PACKAGE/SCENARIO.txt: the agent runs the package on a simulated host, stage by stage. The output
// has the result of each mode, the output of the steps, the differences of the host (+ - ~), and the recorded calls ($). Every
// successful stage is repeated and must change nothing then, and a check for drift must find nothing.
//
//	host OS [without=(PROGRAM…)]            a new host
//	file PATH                               a file of the host, created by somebody else; remove PATH
//	config                                  the configMap, as txtar; env: NAME=VALUE lines
//	install|upgrade|change|uninstall PACKAGE [version=V] [as=NAME]
//	after-interrupt PACKAGE                 post-interrupt and its check
//	preflight PACKAGE                       what the package answers; it must change nothing
//	admin                                   a script that somebody runs on the host
//	boot                                    a reboot
//	pristine, same                          store the state of the host; compare with it
//
// Packages that declare privileges run a second time, as in pods that have no more than these: the same must happen.
func TestScenarios(t *testing.T) {
	requireRoot(t)
	files, err := filepath.Glob("testdata/*/*.txt")
	if err != nil || len(files) == 0 {
		t.Fatalf("no scenarios: %v", err)
	}
	for _, file := range files {
		name := strings.TrimSuffix(strings.TrimPrefix(file, "testdata/"), ".txt")
		config, _ := format.Validate(os.DirFS(filepath.Dir(name)), format.Want{})
		run := func(name string, privileges format.Privileges) {
			t.Run(name, func(t *testing.T) {
				t.Parallel()
				s := &scenario{t: t, uid: "11111111-2222-3333-4444-555555555555", installed: map[string]install{}, privileges: privileges}
				datadriven.RunTest(t, file, s.runCommand)
				if _, err := os.Stat(s.host.path("stub/started")); (err == nil) != (len(privileges) > 0) {
					t.Errorf("steps were handed over to systemd, in a pod with the privileges %v: %v", privileges, err == nil)
				}
			})
		}
		run(name, nil)
		isRewriting := flag.Lookup("rewrite").Value.String() == "true" // one of the two is enough
		if len(config.Privileges) > 0 && !isRewriting {
			run(name+"-confined", config.Privileges)
		}
	}
}

// An install is the last input of one package on the host.
type install struct {
	dir, version string
	config       map[string]string
	env          []string
}

type scenario struct {
	t         *testing.T
	host      host
	uid       string
	admission int
	config    map[string]string
	env       []string
	installed map[string]install // by name
	was       hostTree

	privileges format.Privileges // of pods but those of preflights, which have none
}

// runCommand runs one command of a scenario and returns its output.
func (s *scenario) runCommand(t *testing.T, d *datadriven.TestData) string {
	s.t = t
	var lines []string
	var err error
	switch d.Cmd {
	case "host":
		err = s.startHost(d)
	case "file":
		err = s.host.writeFile(firstArgument(d), d.Input+"\n", 0o644)
	case "remove":
		err = os.RemoveAll(s.host.path(firstArgument(d)))
	case "config":
		s.config = map[string]string{}
		for _, f := range txtar.Parse([]byte(d.Input)).Files {
			s.config[f.Name] = strings.ReplaceAll(string(f.Data), "␍", "\r")
		}
	case "env":
		s.env = strings.Fields(d.Input)
	case "install":
		lines, err = s.runStages(d, format.ModeApply, format.ModeConfig)
	case "upgrade":
		lines, err = s.runStages(d, format.ModeUpgrade, format.ModeConfig)
	case "change":
		lines, err = s.runStages(d, format.ModeConfig)
	case "after-interrupt":
		lines, err = s.runStages(d, format.ModePostInterrupt)
	case "preflight":
		lines, err = s.runPreflight(d)
	case "uninstall":
		lines, err = s.runStages(d, format.ModeUninstall)
	case "admin":
		lines, err = s.runAsAdmin(d.Input)
	case "boot":
		err = s.host.simulateBoot()
	case "pristine":
		s.was, err = s.host.readTree()
	case "same":
		var now hostTree
		if now, err = s.host.readTree(); err == nil {
			lines = now.diff(s.was)
		}
	default:
		t.Fatalf("%s: unknown command %q", d.Pos, d.Cmd)
	}
	if err != nil {
		t.Fatalf("%s: %v", d.Pos, err)
	}
	if len(lines) == 0 {
		return ""
	}
	return strings.Join(lines, "\n") + "\n"
}

func firstArgument(d *datadriven.TestData) string {
	if len(d.CmdArgs) == 0 {
		return ""
	}
	return d.CmdArgs[0].Key
}

func (s *scenario) startHost(d *datadriven.TestData) error {
	var without []string
	if arg, ok := d.Arg("without"); ok {
		without = arg.Vals
	}
	var err error
	s.installed, s.config, s.env = map[string]install{}, nil, nil
	s.host, err = newHost(s.t.TempDir(), firstArgument(d), without)
	return err
}

func (s *scenario) runAsAdmin(script string) ([]string, error) {
	out, err := s.host.runScript(script)
	if err != nil {
		return nil, fmt.Errorf("%w: %s", err, out)
	}
	return nonEmpty(out), os.WriteFile(s.host.path("stub/calls"), nil, 0o600)
}

func nonEmpty(text string) []string {
	var lines []string
	for line := range strings.Lines(text) {
		if line = strings.TrimRight(line, " \n"); line != "" {
			lines = append(lines, line)
		}
	}
	return lines
}

// runStages runs stages as the operator would: in one admission, with its own copy on the host.
func (s *scenario) runStages(d *datadriven.TestData, modes ...format.Mode) ([]string, error) {
	name, now := s.readInstall(d)
	if was, ok := s.installed[name]; ok {
		now.version = was.version
		if slices.Contains(modes, format.ModeUninstall) {
			now = was // with the definition that was installed
		}
	}
	if d.HasArg("version") {
		d.ScanArgs(s.t, "version", &now.version)
	}
	s.installed[name] = now
	before, err := s.host.readTree()
	if err != nil {
		return nil, err
	}
	lines, failed, err := s.runModes(name, now, modes)
	if err != nil {
		return nil, err
	}
	after, err := s.host.readTree()
	if err != nil {
		return nil, err
	}
	lines = append(lines, after.diff(before)...)
	calls, err := s.recordedCalls()
	if err != nil || failed {
		return append(lines, calls...), err
	}
	return append(lines, calls...), s.repeatStages(name, now, modes, after)
}

// readInstall returns what a command installs, by the configMap and the variables so far.
func (s *scenario) readInstall(d *datadriven.TestData) (string, install) {
	dir := firstArgument(d)
	name := dir
	if d.HasArg("as") {
		d.ScanArgs(s.t, "as", &name)
	}
	return name, install{dir: dir, version: "9.0.0", config: maps.Clone(s.config), env: s.env}
}

// runPreflight asks a package what the host needs. What is below /tmp is the pod's own.
func (s *scenario) runPreflight(d *datadriven.TestData) ([]string, error) {
	name, now := s.readInstall(d)
	before, err := s.host.readTree()
	if err != nil {
		return nil, err
	}
	image := s.t.TempDir()
	if err := makeImage(image, now); err != nil {
		return nil, err
	}
	lines, _, err := s.runAgent(name, now, image, format.ModePreflight)
	if err != nil {
		return nil, err
	}
	content, err := os.ReadFile(messageFile(image))
	if err != nil {
		return nil, err
	}
	if m, ok := format.DecodeMessage(string(content)); ok && m.Preflight != nil {
		lines = []string{fmt.Sprintf("%s %s: %s", m.Preflight.Answer, strings.Join(m.Preflight.Services, ","), m.Preflight.Reason)}
		if m.Preflight.Wrong {
			lines = append(lines, "wrong")
		}
	}
	if err := os.RemoveAll(s.host.path("tmp/skyhook")); err != nil {
		return nil, err
	}
	after, err := s.host.readTree()
	if err != nil {
		return nil, err
	}
	calls, err := s.recordedCalls()
	if changes := append(after.diff(before), calls...); len(changes) > 0 {
		return nil, fmt.Errorf("the preflight changed something:\n%s", strings.Join(changes, "\n"))
	}
	return lines, err
}

// repeatStages runs the stages again and checks that nothing changes.
func (s *scenario) repeatStages(name string, now install, modes []format.Mode, was hostTree) error {
	lines, failed, err := s.runModes(name, now, modes)
	if err != nil {
		return err
	}
	after, err := s.host.readTree()
	if err != nil {
		return err
	}
	calls, err := s.recordedCalls()
	if changes := append(after.diff(was), calls...); failed || len(changes) > 0 {
		return fmt.Errorf("the second run changed something:\n%s\n%s", strings.Join(changes, "\n"), strings.Join(lines, "\n"))
	}
	if err != nil || slices.Contains(modes, format.ModeUninstall) {
		return err
	}
	return s.checkDrift(name, now, modes, after)
}

// checkDrift checks that the package counts as it was left, and that this changes nothing and calls no tool that changes something.
func (s *scenario) checkDrift(name string, now install, modes []format.Mode, was hostTree) error {
	image := s.t.TempDir()
	if err := makeImage(image, now); err != nil {
		return err
	}
	checks := []string{string(format.ModeApplyCheck), string(format.ModeConfigCheck)}
	if slices.Contains(modes, format.ModePostInterrupt) {
		checks = append(checks, string(format.ModePostInterruptCheck))
	}
	checked := now
	checked.env = append(slices.Clone(now.env), format.EnvDriftChecks+"="+strings.Join(checks, ","), format.EnvReadOnlyRoot+"="+s.host.root)
	lines, _, err := s.runAgent(name, checked, image, format.ModeDrift)
	if err != nil {
		return err
	}
	content, err := os.ReadFile(messageFile(image))
	if err != nil {
		return err
	}
	if m, ok := format.DecodeMessage(string(content)); !ok || m.Drift == nil || m.Drift.IsDrifted() || m.Drift.NotCheckable != "" {
		return fmt.Errorf("nothing has changed, and the check for drift found %s\n%s", content, strings.Join(lines, "\n"))
	}
	after, err := s.host.readTree()
	if err != nil {
		return err
	}
	calls, err := s.recordedCalls()
	if changes := append(after.diff(was), calls...); len(changes) > 0 {
		return fmt.Errorf("the check for drift changed something:\n%s", strings.Join(changes, "\n"))
	}
	return err
}

// messageFile is where the agent leaves its result for a copy of an image.
func messageFile(image string) string {
	return filepath.Join(image, "..", filepath.Base(image)+"-message")
}

func (s *scenario) recordedCalls() ([]string, error) {
	content, err := os.ReadFile(s.host.path("stub/calls"))
	var lines []string
	for _, line := range nonEmpty(string(content)) {
		lines = append(lines, "$ "+line)
	}
	if err == nil {
		err = os.WriteFile(s.host.path("stub/calls"), nil, 0o600)
	}
	return lines, err
}

// runModes runs each mode and its check until one fails.
func (s *scenario) runModes(name string, now install, modes []format.Mode) (lines []string, failed bool, err error) {
	s.admission++
	image := s.t.TempDir()
	if err := makeImage(image, now); err != nil {
		return nil, false, err
	}
	for _, action := range modes {
		for _, mode := range []format.Mode{action, action.Check()} {
			told, code, err := s.runAgent(name, now, image, mode)
			lines = append(lines, told...)
			if err != nil || code != 0 {
				return lines, true, err
			}
		}
	}
	return lines, false, nil
}

var stamped = regexp.MustCompile(`^\d{4}-\d\d-\d\dT[^ ]+Z (.*)$`)

// bashDifferences matches messages that differ between versions of bash.
var bashDifferences = regexp.MustCompile(`(: line \d+: syntax error).*`)

// runAgent runs the real agent in this process, with the chroot, the environment and the copy that a pod has.
func (s *scenario) runAgent(name string, now install, image string, mode format.Mode) ([]string, int, error) {
	id := fmt.Sprintf("demo-%s-%d_%s_%s", s.uid, s.admission, name, now.version)
	copyDir := fmt.Sprintf("/var/lib/skyhook/demo/%s-%s-%s-%d", name, now.version, s.uid, s.admission)
	if mode == format.ModePreflight {
		copyDir = "/tmp/skyhook/" + name
	}
	message := messageFile(image)
	if mode != format.ModePreflight && len(s.privileges) > 0 {
		now.env = append(slices.Clone(now.env), format.EnvPrivileges+"="+strings.Join(s.privileges, ","))
	}
	var out bytes.Buffer
	code := argv.Run(argv.Line{
		Args: []string{string(mode), s.host.root, copyDir}, Stdout: &out, Stderr: &out, Version: "test",
		Environ: append([]string{"TUNED_WAIT=0"}, append(slices.Clone(now.env),
			format.EnvResourceID+"="+id, format.EnvRootDir+"=/var/lib/skyhook/demo", format.EnvLogDir+"=/var/log/skyhook/demo",
			format.EnvDataDir+"="+image, format.EnvRunID+"="+fmt.Sprint(s.admission), agent.EnvMessageFile+"="+message)...),
	})
	var lines []string
	for _, line := range nonEmpty(out.String()) {
		m := stamped.FindStringSubmatch(line)
		if m == nil || strings.HasPrefix(m[1], string(mode)+": ") {
			continue
		}
		lines = append(lines, "  "+bashDifferences.ReplaceAllString(strings.ReplaceAll(m[1], copyDir, "$SKYHOOK_DIR"), "$1"))
	}
	if len(lines) == 0 && code == 0 {
		return nil, 0, nil
	}
	content, err := os.ReadFile(message)
	if err != nil {
		return nil, code, err
	}
	m, ok := format.DecodeMessage(string(content))
	if !ok {
		return nil, code, fmt.Errorf("%s left no result: %s", mode, out.String())
	}
	head := string(mode)
	if m.Class != "" {
		head += ": " + string(m.Class)
	}
	return append([]string{head}, lines...), code, nil
}

// makeImage creates the content of the package's image at /skyhook-package, with the mounted configMap.
func makeImage(to string, now install) error {
	err := filepath.WalkDir(now.dir, func(at string, e fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		target := filepath.Join(to, strings.TrimPrefix(at, now.dir))
		if e.IsDir() {
			return os.MkdirAll(target, 0o755)
		}
		st, err := e.Info()
		if err != nil {
			return err
		}
		return copyFile(at, target, st.Mode().Perm())
	})
	if err != nil {
		return err
	}
	file := filepath.Join(to, format.ConfigFile)
	var config map[string]any
	content, err := os.ReadFile(file)
	if err == nil {
		err = json.Unmarshal(content, &config)
	}
	if err != nil {
		return err
	}
	config["package_version"] = now.version
	if content, err = json.Marshal(config); err != nil {
		return err
	}
	if err := os.WriteFile(file, content, 0o600); err != nil {
		return err
	}
	if now.config == nil {
		return nil
	}
	if err := os.Mkdir(filepath.Join(to, format.ConfigMapDir), 0o755); err != nil {
		return err
	}
	for key, value := range now.config {
		if err := os.WriteFile(filepath.Join(to, format.ConfigMapDir, key), []byte(value), 0o600); err != nil {
			return err
		}
	}
	return nil
}

// TestTrace checks that only SET_X makes the scripts of tuning trace their commands.
func TestTrace(t *testing.T) {
	requireRoot(t)
	h, err := newHost(t.TempDir(), "debian-12", nil)
	if err != nil {
		t.Fatal(err)
	}
	s := &scenario{t: t, host: h, uid: "11111111-2222-3333-4444-555555555555"}
	for env, want := range map[string]bool{"SET_X=1": true, "SET_X=0": false} {
		lines, failed, err := s.runModes("tuning", install{dir: "tuning", version: "9.0.0", config: map[string]string{}, env: []string{env}}, []format.Mode{format.ModeConfig})
		if err != nil || failed {
			t.Fatalf("%s: %v %v", env, err, lines)
		}
		if got := slices.Contains(lines, "  + sysctl_apply"); got != want {
			t.Errorf("with %s it is traced: %v, want %v", env, got, want)
		}
	}
}
