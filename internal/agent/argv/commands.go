// SPDX-FileCopyrightText: The Skyhook authors
// SPDX-License-Identifier: Apache-2.0

package argv

import (
	"cmp"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/skyhook-k8s/skyhook/internal/agent"
	"github.com/skyhook-k8s/skyhook/internal/agent/host"
	"github.com/skyhook-k8s/skyhook/internal/agent/interrupt"
	"github.com/skyhook-k8s/skyhook/internal/agent/retain"
	"github.com/skyhook-k8s/skyhook/internal/pack"
)

// stateRoots are the default locations of records: those of the operator and of the agent.
var stateRoots = []string{"/var/lib/skyhook", pack.DefaultRootDir}

func (l Line) runCommand() *cobra.Command {
	var req agent.Request
	cmd := &cobra.Command{
		Use:   "run MODE",
		Short: "Run a mode of a package",
		Example: `  skyhook-agent run apply --copy-dir /var/lib/skyhook/demo/tuning-1.1.0
  skyhook-agent run config --root-mount local --copy-dir /opt/my-package`,
		Args: exactArgs("MODE"),
		RunE: func(_ *cobra.Command, args []string) error {
			if err := setPlace(&req, args[0]); err != nil {
				return err
			}
			return l.runAgent(req, nil)
		},
	}
	placeFlags(cmd, &req)
	return cmd
}

func placeFlags(cmd *cobra.Command, req *agent.Request) {
	cmd.Flags().StringVar(&req.RootMount, "root-mount", pack.DefaultRootMount, "where the host's / is mounted; local when the agent runs on the host itself")
	cmd.Flags().StringVar(&req.CopyDir, "copy-dir", os.Getenv(pack.EnvSkyhookDir), "the package, as the host sees it")
}

func setPlace(req *agent.Request, word string) error {
	mode, known := pack.ParseMode(word)
	if !known || !mode.HasSteps() {
		return usageError{fmt.Errorf("mode %q has no steps; the modes are %s", word, strings.ReplaceAll(modeNames(), string(pack.ModeInterrupt)+", ", ""))}
	}
	if !filepath.IsAbs(req.CopyDir) {
		return usageError{fmt.Errorf("--copy-dir %q must be an absolute path as the host sees it", req.CopyDir)}
	}
	req.Mode = mode
	return nil
}

func (l Line) interruptCommand() *cobra.Command {
	req := agent.Request{Mode: pack.ModeInterrupt}
	var id, root string
	cmd := &cobra.Command{
		Use:   "interrupt [[ROOT_MOUNT] COPY_DIR] INTERRUPT",
		Short: "Restart services or reboot, once per id",
		Long: "Restart services or reboot the host, once per id. INTERRUPT is JSON or base64 of it, with type reboot, service,\n" +
			"restartAllServices or noop, and services for type service. It needs no package and no API server.",
		Example: `  skyhook-agent interrupt --id first-reboot '{"type": "reboot"}'
  skyhook-agent interrupt --id job-1 --after-file '/usr/local/.kairos/job-1-*' '{"type": "reboot"}'
  skyhook-agent interrupt --id cron-1 '{"type": "service", "services": ["cron"]}'`,
		Args: func(_ *cobra.Command, args []string) error {
			if len(args) < 1 || len(args) > 3 {
				return usageError{fmt.Errorf("%d arguments given: it takes INTERRUPT, COPY_DIR INTERRUPT, or ROOT_MOUNT COPY_DIR INTERRUPT", len(args))}
			}
			return nil
		},
		RunE: func(_ *cobra.Command, args []string) error {
			req.Interrupt, req.RootMount = args[len(args)-1], root
			if len(args) > 1 {
				old, _, err := ParseModeForm(append([]string{string(pack.ModeInterrupt)}, args...))
				if err != nil {
					return usageError{err}
				}
				req.CopyDir = old.CopyDir
				if len(args) == 3 {
					req.RootMount = old.RootMount
				}
			}
			return l.runAgent(req, func(set *agent.Settings) {
				if id != "" {
					set.InterruptID = id
				}
			})
		},
	}
	cmd.Flags().StringVar(&root, "root-mount", pack.DefaultRootMount, "where the host's / is mounted; local when the agent runs on the host itself")
	cmd.Flags().StringVar(&req.AfterFile, "after-file", "", "wait for a file of the host first; the last element may be a pattern; the file is removed")
	cmd.Flags().DurationVar(&req.Settle, "settle", 0, "how old the file of --after-file must be")
	cmd.Flags().StringVar(&id, "id", "", "the name under which it happens once (default $"+pack.EnvInterruptID+")")
	return cmd
}

// sentinelCommand creates the file that an interrupt waits for.
func (l Line) sentinelCommand() *cobra.Command {
	return &cobra.Command{
		Use:     "sentinel PATH",
		Short:   "Make a file PATH-SECONDS, for an interrupt that waits with --after-file",
		Example: "  skyhook-agent sentinel /usr/local/.kairos/job-1",
		Args:    exactArgs("PATH"),
		RunE: func(_ *cobra.Command, args []string) error {
			made, err := interrupt.CreateSentinel(args[0], time.Now())
			if err == nil {
				_, err = fmt.Fprintln(l.Stdout, "made", made)
			}
			return err
		},
	}
}

// kairosCommand detects Kairos. Of the host it needs only /etc.
func (l Line) kairosCommand() *cobra.Command {
	root := ""
	cmd := &cobra.Command{
		Use:     "kairos",
		Short:   "Say whether the host runs Kairos, and which, and in which boot it is",
		Example: "  skyhook-agent kairos --root-mount /host",
		Args:    exactArgs(),
		RunE: func(*cobra.Command, []string) error {
			return agent.ReportKairos(root, agent.ReadSettings(l.Environ), l.Stdout)
		},
	}
	cmd.Flags().StringVar(&root, "root-mount", pack.DefaultRootMount, "where the host's / is mounted; local when the agent runs on the host itself")
	return cmd
}

func (l Line) validateCommand() *cobra.Command {
	var output string
	var want pack.Want
	cmd := &cobra.Command{
		Use:   "validate DIR|config.json",
		Short: "Say everything that is wrong with a package",
		Example: `  skyhook-agent validate ./my-package
  skyhook-agent validate -o json --version 1.2.0 ./my-package/config.json`,
		Args: exactArgs("DIR|config.json"),
		RunE: func(cmd *cobra.Command, args []string) error {
			dir := args[0]
			if st, err := os.Stat(dir); err != nil {
				return usageError{fmt.Errorf("validating a package: %w", err)}
			} else if !st.IsDir() {
				dir, want.File = filepath.Split(dir)
				dir = filepath.Clean(dir)
			}
			_, problems := pack.Validate(os.DirFS(dir), want)
			err := printOutput(cmd, output, problems.Text(), func() ([]byte, error) { return problems.JSON() })
			if err == nil && problems.Failed() {
				err = exitStatus{1}
			}
			return err
		},
	}
	outputFlag(cmd, &output)
	cmd.Flags().StringVar(&want.Name, "name", "", "the image's name, to compare with package_name")
	cmd.Flags().StringVar(&want.Version, "version", "", "the image's tag, to compare with package_version")
	return cmd
}

func (l Line) planCommand() *cobra.Command {
	var req agent.Request
	var output string
	cmd := &cobra.Command{
		Use:     "plan MODE",
		Short:   "Say what a mode of a package would do on this host",
		Example: `  skyhook-agent plan apply --root-mount local --copy-dir /var/lib/skyhook/demo/tuning-1.1.0 -o json`,
		Args:    exactArgs("MODE"),
		RunE: func(cmd *cobra.Command, args []string) error {
			if err := setPlace(&req, args[0]); err != nil {
				return err
			}
			set := agent.ReadSettings(l.Environ)
			if set.ResourceErr != nil {
				return usageError{set.ResourceErr}
			}
			a, err := agent.New(req, set, l.Version, l.Stderr)
			if err != nil {
				return usageError{err}
			}
			preview, err := a.Preview()
			if err != nil && !pack.IsInvalid(err) {
				return err
			}
			shown := printOutput(cmd, output, preview.Text(), func() ([]byte, error) { return json.MarshalIndent(preview, "", "  ") })
			if shown == nil && err != nil {
				return exitStatus{pack.InvalidPackage.ExitCode()}
			}
			return shown
		},
	}
	placeFlags(cmd, &req)
	outputFlag(cmd, &output)
	return cmd
}

// rootsFlags are the flags of the commands that only read records.
type rootsFlags struct{ mount, state, logs string }

func (l Line) addRootsFlags(cmd *cobra.Command, f *rootsFlags) {
	set := agent.ReadSettings(l.Environ)
	cmd.Flags().StringVar(&f.mount, "root-mount", "/", "where the host's / is mounted")
	cmd.Flags().StringVar(&f.state, "state-root", set.Env[pack.EnvRootDir], "the state root of one Skyhook or of several (default "+strings.Join(stateRoots, " and ")+")")
	cmd.Flags().StringVar(&f.logs, "log-root", set.LogDir, "the log root of the same")
}

// eachRoot visits the existing state directories one after the other.
func (f rootsFlags) eachRoot(visit func(root *host.Root, dir string) error) error {
	root, err := host.Open(f.mount)
	if err != nil {
		return usageError{err}
	}
	defer root.Close()
	at := stateRoots
	if f.state != "" {
		at = []string{f.state}
	}
	for _, parent := range at {
		dirs, err := agent.StateDirs(root, parent)
		if err != nil {
			return err
		}
		for _, dir := range dirs {
			if err := visit(root, dir); err != nil {
				return err
			}
		}
	}
	return nil
}

func (l Line) statusCommand() *cobra.Command {
	var f rootsFlags
	var output string
	cmd := &cobra.Command{
		Use:   "status",
		Short: "Say what is installed on this host",
		Args:  exactArgs(),
		RunE: func(cmd *cobra.Command, _ []string) error {
			all := []agent.Status{}
			text := ""
			if err := f.eachRoot(func(root *host.Root, dir string) error {
				s, err := agent.ReadStatus(root, dir)
				if err == nil {
					all, text = append(all, s), text+s.Text()
				}
				return err
			}); err != nil {
				return err
			}
			if len(all) == 0 {
				text = "no records on this host\n"
			}
			return printOutput(cmd, output, text, func() ([]byte, error) { return json.MarshalIndent(all, "", "  ") })
		},
	}
	l.addRootsFlags(cmd, &f)
	outputFlag(cmd, &output)
	return cmd
}

func (l Line) gcCommand() *cobra.Command {
	var f rootsFlags
	var dry bool
	cmd := &cobra.Command{
		Use:   "gc",
		Short: "Remove logs, copies and flags that are over",
		Args:  exactArgs(),
		RunE: func(cmd *cobra.Command, _ []string) error {
			return f.eachRoot(func(root *host.Root, dir string) error {
				logs := f.logs
				if filepath.Clean(f.state) != dir { // one of several: their logs are separate too
					logs = filepath.Join(logs, filepath.Base(dir))
				}
				removed, err := retain.Prune(root, dir, logs, dry)
				for _, r := range removed {
					fmt.Fprintf(cmd.OutOrStdout(), "%s: %s\n", r.Path, r.Why)
				}
				return err
			})
		},
	}
	l.addRootsFlags(cmd, &f)
	cmd.Flags().BoolVar(&dry, "dry-run", false, "only say what would be removed")
	return cmd
}

// logsCommand prints logs for the plugin, which finds no shell in the agent's image.
func (l Line) logsCommand() *cobra.Command {
	var stage, of string
	cmd := &cobra.Command{
		Use:     "logs DIR",
		Short:   "Print the end of the newest log of each step of a package",
		Example: "  skyhook-agent logs /var/log/skyhook/demo --package tuning --stage apply",
		Args:    exactArgs("DIR"),
		RunE: func(_ *cobra.Command, args []string) error {
			mode, isKnown := pack.ParseMode(stage)
			if stage != "" && !isKnown {
				return usageError{fmt.Errorf("--stage %q is not one of %s", stage, modeNames())}
			}
			root, err := host.Open("/")
			if err != nil {
				return usageError{err}
			}
			defer root.Close()
			found, err := retain.WriteTailsOf(l.Stdout, root, args[0], of, mode)
			if err == nil && found == 0 {
				_, err = fmt.Fprintf(l.Stdout, "no logs in %s\n", args[0])
			}
			return err
		},
	}
	cmd.Flags().StringVar(&of, "package", "", "only logs of this package of the Skyhook with this folder")
	cmd.Flags().StringVar(&stage, "stage", "", "only logs of this mode and its check")
	return cmd
}

func outputFlag(cmd *cobra.Command, output *string) {
	cmd.Flags().StringVarP(output, "output", "o", "text", "text or json")
}

func printOutput(cmd *cobra.Command, output, text string, toJSON func() ([]byte, error)) error {
	switch output {
	case "text":
	case "json":
		content, err := toJSON()
		if err != nil {
			return err
		}
		text = string(content) + "\n"
	default:
		return usageError{fmt.Errorf("--output %q must be text or json", output)}
	}
	_, err := fmt.Fprint(cmd.OutOrStdout(), text)
	return err
}

// exactArgs requires exactly these arguments.
func exactArgs(names ...string) cobra.PositionalArgs {
	return func(_ *cobra.Command, args []string) error {
		if len(args) != len(names) {
			return usageError{fmt.Errorf("%d arguments given: it takes %s", len(args), cmp.Or(strings.Join(names, " "), "none"))}
		}
		return nil
	}
}
