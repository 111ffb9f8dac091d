// SPDX-FileCopyrightText: The Skyhook authors
// SPDX-License-Identifier: Apache-2.0

package packages

import (
	"bytes"
	"encoding/json"
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

// TestMain removes the tools of the fake hosts in the end.
func TestMain(m *testing.M) {
	code := m.Run()
	if toolsDir != "" {
		_ = os.RemoveAll(toolsDir)
	}
	os.Exit(code)
}

// TestStories plays testdata/PACKAGE/STORY.txt: what the agent does with the package on a fake host, stage by stage. Told
// are how each mode ended, what the steps said, + - ~ what became different on the host, and $ what was called. Every
// stage that succeeds is run once more and must change nothing then.
//
//	host OS [without=(PROGRAM…)]            a new host
//	file PATH                               a file of the host, made by somebody else; remove PATH
//	config                                  the configMap, as txtar; env: NAME=VALUE lines
//	install|upgrade|change|uninstall PACKAGE [version=V] [as=NAME]
//	after-interrupt PACKAGE                 post-interrupt and its check
//	admin                                   a script that somebody runs on the host
//	boot                                    a reboot
//	pristine, same                          remember what the host is like; compare with that
func TestStories(t *testing.T) {
	needRoot(t)
	files, err := filepath.Glob("testdata/*/*.txt")
	if err != nil || len(files) == 0 {
		t.Fatalf("no stories: %v", err)
	}
	for _, file := range files {
		t.Run(strings.TrimSuffix(strings.TrimPrefix(file, "testdata/"), ".txt"), func(t *testing.T) {
			t.Parallel()
			s := &story{t: t, uid: "11111111-2222-3333-4444-555555555555", installed: map[string]install{}}
			datadriven.RunTest(t, file, s.tell)
		})
	}
}

// An install is what one package on the host was last given.
type install struct {
	dir, version string
	config       map[string]string
	env          []string
}

type story struct {
	t         *testing.T
	host      host
	uid       string
	admission int
	config    map[string]string
	env       []string
	installed map[string]install // by name
	was       tree
}

// tell carries out one command and returns what is to be told.
func (s *story) tell(t *testing.T, d *datadriven.TestData) string {
	s.t = t
	var lines []string
	var err error
	switch d.Cmd {
	case "host":
		err = s.newHost(d)
	case "file":
		err = s.host.write(first(d), d.Input+"\n", 0o644)
	case "remove":
		err = os.RemoveAll(s.host.path(first(d)))
	case "config":
		s.config = map[string]string{}
		for _, f := range txtar.Parse([]byte(d.Input)).Files {
			s.config[f.Name] = strings.ReplaceAll(string(f.Data), "␍", "\r")
		}
	case "env":
		s.env = strings.Fields(d.Input)
	case "install":
		lines, err = s.stages(d, format.ModeApply, format.ModeConfig)
	case "upgrade":
		lines, err = s.stages(d, format.ModeUpgrade, format.ModeConfig)
	case "change":
		lines, err = s.stages(d, format.ModeConfig)
	case "after-interrupt":
		lines, err = s.stages(d, format.ModePostInterrupt)
	case "uninstall":
		lines, err = s.stages(d, format.ModeUninstall)
	case "admin":
		lines, err = s.admin(d.Input)
	case "boot":
		err = s.host.boot()
	case "pristine":
		s.was, err = s.host.tree()
	case "same":
		var now tree
		if now, err = s.host.tree(); err == nil {
			lines = now.since(s.was)
		}
	default:
		t.Fatalf("%s: the command %q is not known", d.Pos, d.Cmd)
	}
	if err != nil {
		t.Fatalf("%s: %v", d.Pos, err)
	}
	if len(lines) == 0 {
		return ""
	}
	return strings.Join(lines, "\n") + "\n"
}

func first(d *datadriven.TestData) string {
	if len(d.CmdArgs) == 0 {
		return ""
	}
	return d.CmdArgs[0].Key
}

func (s *story) newHost(d *datadriven.TestData) error {
	var without []string
	if arg, ok := d.Arg("without"); ok {
		without = arg.Vals
	}
	var err error
	s.installed, s.config, s.env = map[string]install{}, nil, nil
	s.host, err = newHost(s.t.TempDir(), first(d), without)
	return err
}

func (s *story) admin(script string) ([]string, error) {
	out, err := s.host.run(script)
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

// stages takes a package through stages as the operator would: in one admission, with its own copy on the host.
func (s *story) stages(d *datadriven.TestData, modes ...format.Mode) ([]string, error) {
	dir := first(d)
	name, now := dir, install{dir: dir, version: "9.0.0", config: maps.Clone(s.config), env: s.env}
	if d.HasArg("as") {
		d.ScanArgs(s.t, "as", &name)
	}
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
	before, err := s.host.tree()
	if err != nil {
		return nil, err
	}
	lines, failed, err := s.play(name, now, modes)
	if err != nil {
		return nil, err
	}
	after, err := s.host.tree()
	if err != nil {
		return nil, err
	}
	lines = append(lines, after.since(before)...)
	calls, err := s.calls()
	if err != nil || failed {
		return append(lines, calls...), err
	}
	return append(lines, calls...), s.again(name, now, modes, after)
}

// again runs the stages once more: nothing changes, and nothing that changes anything is called.
func (s *story) again(name string, now install, modes []format.Mode, was tree) error {
	lines, failed, err := s.play(name, now, modes)
	if err != nil {
		return err
	}
	after, err := s.host.tree()
	if err != nil {
		return err
	}
	calls, err := s.calls()
	if changes := append(after.since(was), calls...); failed || len(changes) > 0 {
		return fmt.Errorf("run once more, it is not the same:\n%s\n%s", strings.Join(changes, "\n"), strings.Join(lines, "\n"))
	}
	return err
}

func (s *story) calls() ([]string, error) {
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

// play runs each mode and its check until one fails.
func (s *story) play(name string, now install, modes []format.Mode) (lines []string, failed bool, err error) {
	s.admission++
	image := s.t.TempDir()
	if err := makeImage(image, now); err != nil {
		return nil, false, err
	}
	for _, action := range modes {
		for _, mode := range []format.Mode{action, action.Check()} {
			told, code, err := s.agent(name, now, image, mode)
			lines = append(lines, told...)
			if err != nil || code != 0 {
				return lines, true, err
			}
		}
	}
	return lines, false, nil
}

var stamped = regexp.MustCompile(`^\d{4}-\d\d-\d\dT[^ ]+Z (.*)$`)

// varying is what one bash says otherwise than another.
var varying = regexp.MustCompile(`(: line \d+: syntax error).*`)

// agent runs the real agent, in this process, with the chroot, the environment and the copy that a pod gives it.
func (s *story) agent(name string, now install, image string, mode format.Mode) ([]string, int, error) {
	id := fmt.Sprintf("demo-%s-%d_%s_%s", s.uid, s.admission, name, now.version)
	copyDir := fmt.Sprintf("/var/lib/skyhook/demo/%s-%s-%s-%d", name, now.version, s.uid, s.admission)
	message := filepath.Join(image, "..", filepath.Base(image)+"-message")
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
		lines = append(lines, "  "+varying.ReplaceAllString(strings.ReplaceAll(m[1], copyDir, "$SKYHOOK_DIR"), "$1"))
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

// makeImage is what the package's image has at /skyhook-package, with the configMap mounted.
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

// TestTrace: SET_X traces the scripts of tuning, and nothing else does.
func TestTrace(t *testing.T) {
	needRoot(t)
	h, err := newHost(t.TempDir(), "debian-12", nil)
	if err != nil {
		t.Fatal(err)
	}
	s := &story{t: t, host: h, uid: "11111111-2222-3333-4444-555555555555"}
	for env, want := range map[string]bool{"SET_X=1": true, "SET_X=0": false} {
		lines, failed, err := s.play("tuning", install{dir: "tuning", version: "9.0.0", config: map[string]string{}, env: []string{env}}, []format.Mode{format.ModeConfig})
		if err != nil || failed {
			t.Fatalf("%s: %v %v", env, err, lines)
		}
		if got := slices.Contains(lines, "  + sysctl_apply"); got != want {
			t.Errorf("with %s it is traced: %v, want %v", env, got, want)
		}
	}
}
