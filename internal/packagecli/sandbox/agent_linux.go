// SPDX-FileCopyrightText: The Skyhook authors
// SPDX-License-Identifier: Apache-2.0

package sandbox

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/skyhook-k8s/skyhook/internal/image"
	"github.com/skyhook-k8s/skyhook/internal/pack"
)

// Where the agent keeps records and logs, as under the operator.
const (
	skyhook   = "trial"
	uid       = "00000000-0000-4000-8000-000000000000"
	recordDir = "/var/lib/skyhook/" + skyhook
	logDir    = "/var/log/skyhook/" + skyhook
)

// searchPath is PATH on the host.
const searchPath = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"

// rebootPollInterval is how often rebootFile is checked.
const rebootPollInterval = 20 * time.Millisecond

// skyhookName returns the name of the package in a Skyhook, where underscores are not allowed.
func (v Version) skyhookName() string {
	return strings.ToLower(strings.NewReplacer("_", "-", ".", "-").Replace(v.Name))
}

func (j *lifecycle) copyDir() string {
	return fmt.Sprintf("%s/%s-%s-%s-%d", recordDir, j.pkg.skyhookName(), j.pkg.Version, uid, j.generation)
}

// runPod does what a pod of the operator does for a stage: copy the package, run the stage, run its check.
func (j *lifecycle) runPod(s *Stage, m pack.Mode) (bool, error) {
	j.pods++
	id := fmt.Sprintf("pod-%d", j.pods)
	if err := j.addPackage(j.copyDir() + "." + id); err != nil {
		return false, fmt.Errorf("bringing the package to the host: %w", err)
	}
	for _, mode := range []pack.Mode{m, m.Check()} {
		run, err := j.runAgent(mode, []string{string(mode), j.dir, j.copyDir()}, "SKYHOOK_POD_UID="+id)
		if err != nil {
			return false, err
		}
		s.Runs = append(s.Runs, run)
		if run.Exit != 0 {
			return false, nil
		}
	}
	return true, nil
}

// addPackage copies the package to the host as from its image, with the config and the node's metadata.
func (j *lifecycle) addPackage(to string) error {
	if err := j.copyPackage(j.pkg.Dir, to); err != nil {
		return err
	}
	for key, value := range j.config {
		if err := j.write(path.Join(to, pack.ConfigMapDir, key), value, 0o600); err != nil {
			return err
		}
	}
	about, err := json.Marshal(map[string]any{"packages": map[string]any{
		j.pkg.skyhookName(): map[string]string{"name": j.pkg.skyhookName(), "version": j.pkg.Version},
	}})
	if err != nil {
		return err
	}
	for name, content := range map[string]string{
		"labels.json": `{"kubernetes.io/hostname":"trial"}`, "annotations.json": "{}", "packages.json": string(about),
	} {
		if err := j.write(path.Join(to, pack.NodeMetadataDir, name), content, 0o644); err != nil {
			return err
		}
	}
	return nil
}

// copyPackage copies the files of a package that are in its image.
func (h *host) copyPackage(dir, to string) error {
	from, err := os.OpenRoot(dir)
	if err != nil {
		return err
	}
	defer from.Close()
	return fs.WalkDir(from.FS(), ".", func(name string, d fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return err
		case name != "." && image.NotForHosts(name) && d.IsDir():
			return fs.SkipDir
		case d.IsDir() || image.NotForHosts(name):
			return nil
		}
		return h.copyEntry(from, name, path.Join(to, name), d)
	})
}

func (h *host) copyEntry(from *os.Root, name, to string, d fs.DirEntry) error {
	if d.Type() == fs.ModeSymlink {
		target, err := from.Readlink(name)
		if err != nil {
			return err
		}
		if err := h.root.MkdirAll(path.Dir(to)[1:], 0o755); err != nil {
			return err
		}
		return h.root.Symlink(target, to[1:])
	}
	content, err := from.ReadFile(name)
	if err != nil {
		return err
	}
	st, err := d.Info()
	if err != nil {
		return err
	}
	mode := fs.FileMode(0o644)
	if st.Mode()&0o100 != 0 {
		mode = 0o755
	}
	return h.write(to, string(content), mode)
}

// buildEnvironment returns the environment that the operator sets for the agent.
func (j *lifecycle) buildEnvironment(more ...string) []string {
	env := []string{"PATH=" + searchPath}
	for key, value := range j.Spec.Env {
		env = append(env, key+"="+value)
	}
	slices.Sort(env)
	env = append(env,
		pack.EnvLogDir+"="+logDir, pack.EnvRootDir+"="+recordDir, pack.EnvCopyResolv+"=false", pack.EnvNodeOrder+"=0",
		pack.EnvResourceID+"="+pack.ResourceID{
			Owner: fmt.Sprintf("%s-%s-%d", skyhook, uid, j.generation), Package: j.pkg.skyhookName(), Version: j.pkg.Version,
		}.String(),
		fmt.Sprintf("%s=run-%d", pack.EnvRunID, j.run),
		pack.EnvConfigDigest+"="+pack.ConfigDigest(j.config),
		pack.EnvDataDir+"=/nonexistent",
		"SKYHOOK_TERMINATION_LOG="+j.messageFile(),
	)
	if j.Timeout > 0 {
		env = append(env, pack.EnvStageTimeout+"="+j.Timeout.String())
	}
	return append(env, more...)
}

func (j *lifecycle) messageFile() string { return filepath.Join(j.Work, "message") }

// runAgent runs the agent once.
func (j *lifecycle) runAgent(m pack.Mode, args []string, more ...string) (Run, error) {
	cmd, said, err := j.startAgent(args, more...)
	if err != nil {
		return Run{}, err
	}
	return j.readResult(m, cmd.Wait(), said)
}

// Limits of what is kept of the agent's output, and of what is read of a file that a step may have written.
const (
	maxOutput = 16 << 10
	maxRead   = 4 << 20
)

// outputEnd keeps the end of what is written to it.
type outputEnd []byte

func (e *outputEnd) Write(p []byte) (int, error) {
	const cut = "(cut) "
	*e = append(*e, p...)
	if from := len(*e) - maxOutput; from > 0 {
		*e = append([]byte(cut), (*e)[from+len(cut):]...)
	}
	return len(p), nil
}

// readBounded reads a file that was opened, and no more than maxRead of it.
func readBounded(f *os.File, err error) ([]byte, error) {
	if err != nil {
		return nil, err
	}
	defer f.Close()
	return io.ReadAll(io.LimitReader(f, maxRead))
}

func (j *lifecycle) startAgent(args []string, more ...string) (*exec.Cmd, *outputEnd, error) {
	if err := os.WriteFile(j.messageFile(), nil, 0o600); err != nil {
		return nil, nil, err
	}
	said := new(outputEnd)
	cmd := exec.Command(agentFile, args...)
	cmd.Env, cmd.Dir, cmd.Stdout, cmd.Stderr = j.buildEnvironment(more...), "/", said, said
	if j.Verbose {
		cmd.Stdout = io.MultiWriter(said, os.Stderr)
		cmd.Stderr = cmd.Stdout
	}
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	if err := cmd.Start(); err != nil {
		return nil, nil, fmt.Errorf("starting the agent: %w", err)
	}
	return cmd, said, nil
}

// readResult reads the exit code and the termination message of a run of the agent.
func (j *lifecycle) readResult(m pack.Mode, err error, said *outputEnd) (Run, error) {
	run := Run{Mode: m}
	var exit *exec.ExitError
	switch {
	case errors.As(err, &exit):
		run.Exit = exit.ExitCode()
	case err != nil:
		return run, fmt.Errorf("running the agent: %w", err)
	}
	raw, err := readBounded(os.Open(j.messageFile()))
	if err != nil {
		return run, err
	}
	if left, ok := pack.DecodeMessage(string(raw)); ok {
		run.Class, run.Reason, run.Ran, run.Lines, run.Preflight = left.Class, left.Reason, left.Ran, left.Lines, left.Preflight
		return run, nil
	}
	lines := strings.Split(strings.TrimSpace(string(*said)), "\n")
	run.Lines = lines[max(0, len(lines)-10):]
	run.Reason = "it left no message"
	if run.Exit == 0 {
		return run, fmt.Errorf("%s is not an agent that can be used: it left no message; it said: %s", j.Agent, strings.Join(run.Lines, " | "))
	}
	return run, nil
}

// runInterrupt runs the interrupt. A reboot is simulated: when the agent requests it, all processes are killed and the
// agent starts again in the next boot.
func (j *lifecycle) runInterrupt(s *Stage) (bool, error) {
	what, err := j.Spec.Interrupt.encode()
	if err != nil {
		return false, err
	}
	args := []string{string(pack.ModeInterrupt), j.dir, j.copyDir(), what}
	id := fmt.Sprintf("%s=interrupt-%d", pack.EnvInterruptID, j.run)
	cmd, said, err := j.startAgent(args, id)
	if err != nil {
		return false, err
	}
	ended := make(chan error, 1)
	go func() { ended <- cmd.Wait() }()
	tick := time.NewTicker(rebootPollInterval)
	defer tick.Stop()
	for {
		select {
		case err := <-ended:
			run, err := j.readResult(pack.ModeInterrupt, err, said)
			s.Runs = append(s.Runs, run)
			return run.Exit == 0, err
		case <-tick.C:
		}
		if _, err := j.root.Stat(rebootFile); err != nil {
			continue
		}
		if err := syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL); err != nil {
			return false, fmt.Errorf("playing a reboot: %w", err)
		}
		<-ended //nolint:errcheck // it was killed
		if err := j.simulateBoot(); err != nil {
			return false, fmt.Errorf("playing a reboot: %w", err)
		}
		if cmd, said, err = j.startAgent(args, id); err != nil {
			return false, err
		}
		go func() { ended <- cmd.Wait() }()
	}
}
