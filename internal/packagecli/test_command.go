// SPDX-FileCopyrightText: The Skyhook authors
// SPDX-License-Identifier: Apache-2.0

package packagecli

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/skyhook-k8s/skyhook/internal/image"
	"github.com/skyhook-k8s/skyhook/internal/output"
	"github.com/skyhook-k8s/skyhook/internal/pack"
	"github.com/skyhook-k8s/skyhook/internal/packagecli/pkgimage"
	"github.com/skyhook-k8s/skyhook/internal/packagecli/sandbox"
)

// sandboxCommandName is the hidden command by which package test starts itself in namespaces.
const sandboxCommandName = "test-sandbox"

const agentProgram = "skyhook-agent"

// testOptions are the flags of package test.
type testOptions struct {
	registry           image.Registry
	platform           string
	root, like         string
	older              string
	agent              string
	spec               string
	config, change     string
	interrupt          string
	env, ignore        []string
	network, showDiffs bool
	timeout            time.Duration
}

func (a *packageCommands) testCommand() *cobra.Command {
	var t testOptions
	cmd := &cobra.Command{
		Use:   "test DIR|IMAGE",
		Short: "Test the lifecycle of a package on a temporary host",
		Long: "Test the lifecycle of a package on a temporary host: install, install again, change the config, change it back,\n" +
			"uninstall, uninstall again; and with --upgrade-from, upgrade from an older version. After each stage it shows what\n" +
			"changed on the host. It fails when a step or check fails, when repeating a stage changes anything, when going back\n" +
			"to an earlier config does not restore the earlier host, and when the uninstall leaves anything behind. A preflight runs\n" +
			"before and after: it must change nothing, and answer that nothing is to be done after the install.\n\n" +
			"The host is a copy of a root file system (--root), or a small one like a distribution (--host-like) with the\n" +
			"programs of this machine. The real agent runs the steps there as root, isolated from this machine: kernel settings are\n" +
			"plain files, systemctl and reboots are simulated, and there is no network unless --network is given. -v shows the\n" +
			"output of the agent and the steps.\n\n" +
			"The inputs are in " + sandbox.SpecFile + " of the package: config, change, env, services, interrupt, host, ignore.\n" +
			"Flags override them. It needs Linux, and root or user namespaces.",
		Example: "  kubectl skyhook package test ./motd --host-like debian\n" +
			"  kubectl skyhook package test ./motd --root /srv/roots/bookworm --upgrade-from ghcr.io/acme/motd:1.1.0\n" +
			"  kubectl skyhook package test ./tuning --host-like debian --interrupt reboot --diff",
		Args: output.Args("DIR|IMAGE"),
		RunE: func(cmd *cobra.Command, args []string) error { return a.testPackage(cmd.Context(), &t, args[0]) },
	}
	f := cmd.Flags()
	f.StringVar(&t.root, "root", "", "copy this root file system, a `folder`")
	f.StringVar(&t.like, "host-like", "", "create a host like this `distribution`: "+strings.Join(sandbox.Distributions, ", "))
	f.StringVar(&t.older, "upgrade-from", "", "an older version of the package, a `folder or image`")
	f.StringVar(&t.agent, "agent", "", "the `program` "+agentProgram+" (default: the one beside this program, then the one in PATH)")
	f.StringVar(&t.spec, "spec", "", "read this `file` instead of "+sandbox.SpecFile)
	f.StringVar(&t.config, "config", "", "the configMap of the first install: a `folder` with a file for each key")
	f.StringVar(&t.change, "change", "", "the configMap after the change: a `folder` with a file for each key")
	f.StringVar(&t.interrupt, "interrupt", "", "the interrupt of the Skyhook: reboot, restartAllServices, noop or service=NAME,NAME")
	f.StringArrayVar(&t.env, "env", nil, "a variable of the package, as `NAME=VALUE`; may be repeated")
	f.StringArrayVar(&t.ignore, "ignore", nil, "a `path` in which differences do not count, such as /var/cache/**; may be repeated")
	f.BoolVar(&t.network, "network", false, "allow steps to use this machine's network")
	f.BoolVar(&t.showDiffs, "diff", false, "show what changed inside of text files")
	f.DurationVar(&t.timeout, "timeout", 10*time.Minute, "how long a stage may take")
	f.StringVar(&t.platform, "platform", "", "test the package of this `platform` of an image")
	registryFlags(cmd, &t.registry)
	return cmd
}

// sandboxCommand is started by package test, not by people.
func (a *packageCommands) sandboxCommand() *cobra.Command {
	return &cobra.Command{
		Use: sandboxCommandName, Hidden: true, Args: output.Args(),
		RunE: func(*cobra.Command, []string) error { return sandbox.ServeRequest(a.In, a.Out) },
	}
}

func (a *packageCommands) testPackage(ctx context.Context, t *testOptions, what string) error {
	report, err := a.runTest(ctx, t, what)
	if err != nil {
		return err
	}
	err = a.Print(output.Answer{
		Value: report, Names: output.WithKind("package", report.Package),
		Text: func(bool) string {
			var b bytes.Buffer
			report.WriteText(&b, t.showDiffs)
			return b.String()
		},
	})
	if err != nil {
		return err
	}
	if !report.Passed {
		return output.ProblemsFound()
	}
	return nil
}

// runTest prepares a request and runs it.
func (a *packageCommands) runTest(ctx context.Context, t *testOptions, what string) (report sandbox.Report, err error) {
	o, err := t.sandboxRequest()
	if err != nil {
		return report, err
	}
	o.Verbose = a.Verbose
	p, err := pkgimage.Open(ctx, t.registry, what, t.platform)
	if err != nil {
		return report, err
	}
	defer func() { err = errors.Join(err, p.Close()) }()
	if o.Package, err = packageVersion(p); err != nil {
		return report, err
	}
	if o.Spec, err = t.readSpec(p.Dir); err != nil {
		return report, err
	}
	if t.older != "" {
		older, err := pkgimage.Open(ctx, t.registry, t.older, t.platform)
		if err != nil {
			return report, err
		}
		defer func() { err = errors.Join(err, older.Close()) }()
		if err := setOlderVersion(&o, older); err != nil {
			return report, err
		}
	}
	private, err := os.MkdirTemp("", "skyhook-test-")
	if err != nil {
		return report, fmt.Errorf("making a folder for the host: %w", err)
	}
	defer func() { err = errors.Join(err, removeHosts(private)) }()
	// A step can open the root of the test to everybody, such as for a program with set-user-ID, but not the folder above it.
	o.Work = filepath.Join(private, "root")
	if err := os.Mkdir(o.Work, 0o700); err != nil {
		return report, fmt.Errorf("making a folder for the host: %w", err)
	}
	return sandbox.RunTest(ctx, []string{os.Args[0], "package", sandboxCommandName}, o, a.ErrOut)
}

// sandboxRequest checks the flags that do not depend on the package.
func (t *testOptions) sandboxRequest() (sandbox.Request, error) {
	o := sandbox.Request{Root: t.root, Distribution: t.like, Network: t.network, Timeout: t.timeout}
	if (t.root == "") == (t.like == "") {
		return o, errors.New("name the host: --root with a root file system, or --host-like with one of " + strings.Join(sandbox.Distributions, ", "))
	}
	if t.like != "" && !slices.Contains(sandbox.Distributions, t.like) {
		return o, fmt.Errorf("--host-like %q is not one of %s", t.like, strings.Join(sandbox.Distributions, ", "))
	}
	var err error
	if t.root != "" {
		if st, err := os.Stat(t.root); err != nil || !st.IsDir() {
			return o, fmt.Errorf("--root %s is not a folder: unpack the root file system there", t.root)
		}
		if o.Root, err = filepath.Abs(t.root); err != nil {
			return o, err
		}
	}
	o.Agent, err = t.findAgent()
	return o, err
}

// findAgent returns the path of the agent's program.
func (t *testOptions) findAgent() (string, error) {
	if t.agent != "" {
		if _, err := exec.LookPath(t.agent); err != nil {
			return "", fmt.Errorf("--agent %s cannot be run: %w", t.agent, err)
		}
		return filepath.Abs(t.agent)
	}
	if agent, err := exec.LookPath(findBeside(agentProgram)); err == nil {
		return agent, nil
	}
	at, err := exec.LookPath(agentProgram)
	if err != nil {
		return "", fmt.Errorf("there is no %s beside this program and none in PATH: install it from the same release, or name it with --agent", agentProgram)
	}
	return filepath.Abs(at)
}

// findBeside returns a file that was installed together with this program, or nothing if there is none.
func findBeside(name string) string {
	self, err := os.Executable()
	file := filepath.Join(filepath.Dir(self), name)
	if _, missing := os.Stat(file); cmp.Or(err, missing) != nil {
		return ""
	}
	return file
}

// packageVersion returns name and version of a valid package.
func packageVersion(p *pkgimage.Package) (sandbox.Version, error) {
	config, problems := pack.Validate(os.DirFS(p.Dir), pack.Want{})
	if err := problems.Err(); err != nil {
		return sandbox.Version{}, fmt.Errorf("package %s is not valid: %w; see package validate", p.From, err)
	}
	dir, err := filepath.Abs(p.Dir)
	return sandbox.Version{Dir: dir, Name: config.Name, Version: config.Version}, err
}

func setOlderVersion(o *sandbox.Request, p *pkgimage.Package) error {
	older, err := packageVersion(p)
	if err != nil {
		return err
	}
	if pack.CompareVersions(older.Version, o.Package.Version) >= 0 {
		return fmt.Errorf("--upgrade-from: %s is version %s, which is not older than %s: raise package_version, or name an older package",
			p.From, older.Version, o.Package.Version)
	}
	if older.Name != o.Package.Name {
		return fmt.Errorf("--upgrade-from: %s is package %s, not %s", p.From, older.Name, o.Package.Name)
	}
	o.Older = &older
	return nil
}

// readSpec reads the spec of the test and applies the flags to it.
func (t *testOptions) readSpec(dir string) (sandbox.Spec, error) {
	file := cmp.Or(t.spec, filepath.Join(dir, filepath.FromSlash(sandbox.SpecFile)))
	raw, err := t.readSpecFile(dir)
	if err != nil {
		return sandbox.Spec{}, fmt.Errorf("reading the inputs of the test: %w", err)
	}
	spec, err := sandbox.ReadSpec(raw)
	if err != nil {
		return spec, fmt.Errorf("%s: %w", file, err)
	}
	if t.config != "" {
		if spec.Config, err = readConfigMapFolder(t.config); err != nil {
			return spec, fmt.Errorf("--config: %w", err)
		}
	}
	if t.change != "" {
		if spec.Change, err = diffConfigMap(spec.Config, t.change); err != nil {
			return spec, fmt.Errorf("--change: %w", err)
		}
	}
	for _, pair := range t.env {
		name, value, ok := strings.Cut(pair, "=")
		if !ok || name == "" {
			return spec, fmt.Errorf("--env %q must be NAME=VALUE", pair)
		}
		if spec.Env == nil {
			spec.Env = map[string]string{}
		}
		spec.Env[name] = value
	}
	if t.interrupt != "" {
		kind, services, _ := strings.Cut(t.interrupt, "=")
		spec.Interrupt = &sandbox.Interrupt{Type: kind}
		if services != "" {
			spec.Interrupt.Services = strings.Split(services, ",")
		}
	}
	spec.Ignore = append(spec.Ignore, t.ignore...)
	// Validate again: the same rules apply to values from flags.
	whole, err := json.Marshal(spec)
	if err != nil {
		return spec, err
	}
	if spec, err = sandbox.ReadSpec(whole); err != nil {
		return spec, fmt.Errorf("--interrupt or --ignore: %w", err)
	}
	return spec, nil
}

func (t *testOptions) readSpecFile(dir string) ([]byte, error) {
	if t.spec != "" {
		return os.ReadFile(t.spec)
	}
	root, err := os.OpenRoot(dir) // no link of the package leads to a file of the machine
	if err != nil {
		return nil, err
	}
	defer root.Close()
	raw, err := root.ReadFile(sandbox.SpecFile)
	if errors.Is(err, fs.ErrNotExist) {
		err = nil
	}
	return raw, err
}

// readConfigMapFolder reads a folder with one file per key.
func readConfigMapFolder(dir string) (map[string]string, error) {
	if _, err := os.Stat(dir); err != nil {
		return nil, err
	}
	return pack.ReadConfigMap(os.DirFS(dir))
}

// diffConfigMap returns the changes from a configMap to that of a folder.
func diffConfigMap(from map[string]string, dir string) (map[string]*string, error) {
	to, err := readConfigMapFolder(dir)
	if err != nil {
		return nil, err
	}
	out := map[string]*string{}
	for key := range from {
		out[key] = nil
	}
	for key, value := range to {
		out[key] = &value
	}
	return out, nil
}

// removeHosts removes the temporary hosts. Steps may have created directories that are not writable.
func removeHosts(dir string) error {
	_ = filepath.WalkDir(dir, func(name string, d fs.DirEntry, err error) error {
		if err == nil && d.IsDir() {
			err = os.Chmod(name, 0o700) //nolint:gosec // G302: a folder that is to go
		}
		return err
	})
	if err := os.RemoveAll(dir); err != nil {
		return fmt.Errorf("removing the temporary host: %w", err)
	}
	return nil
}
