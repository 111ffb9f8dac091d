// SPDX-FileCopyrightText: The Skyhook authors
// SPDX-License-Identifier: Apache-2.0

package migrate

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/spf13/cobra"
	corev1 "k8s.io/api/core/v1"

	"github.com/skyhook-k8s/skyhook/internal/cli/session"
	"github.com/skyhook-k8s/skyhook/internal/migrate"
	"github.com/skyhook-k8s/skyhook/internal/options"
	"github.com/skyhook-k8s/skyhook/internal/output"
)

// migrateOptions are the flags of migrate nodewright.
type migrateOptions struct {
	*session.Factory
	sure         session.Confirmation
	apply, back  bool
	again        bool
	directory    string
	runtimeTaint string
	wait         time.Duration
}

func newMigrateNodeWrightCommand(f *session.Factory) *cobra.Command {
	o := &migrateOptions{Factory: f}
	cmd := &cobra.Command{
		Use:   "nodewright",
		Short: "Move from NodeWright v0.18 to v0.20, or back",
		Long: "Move from NodeWright v0.18 to v0.20: NodeWrights and their policies become Skyhooks and DeploymentPolicies, and what nodes\n" +
			"record of them moves to the keys of this operator, so that nothing runs again. See docs/upgrading.md.\n\n" +
			"Without --apply it changes nothing: it prints what would change, and with --directory it writes the manifests to review.\n" +
			"With --apply it asks, and then changes the cluster: it removes the webhook configurations of NodeWright, creates policies\n" +
			"and paused Skyhooks, writes each node with one patch, records Jobs that are complete, takes over ConfigMaps, and resumes\n" +
			"the Skyhooks. NodeWrights and their keys stay. With --directory it applies the manifests in that directory.\n\n" +
			"Both operators must be stopped, and no Job of a package may run. It can be interrupted anywhere and run again: what is\n" +
			"complete is left alone. --back moves to NodeWright again, and deletes the Skyhooks at its end.",
		Example: "  kubectl skyhook migrate nodewright --directory review\n" +
			"  kubectl skyhook migrate nodewright --apply --dry-run -o wide\n" +
			"  kubectl skyhook migrate nodewright --apply --directory review --wait 30m\n" +
			"  kubectl skyhook migrate nodewright --apply --back --yes",
		Args: output.Args(),
		RunE: func(cmd *cobra.Command, _ []string) error { return o.run(cmd.Context()) },
	}
	o.sure.AddFlags(cmd.Flags())
	cmd.Flags().BoolVar(&o.apply, "apply", false, "change the cluster")
	cmd.Flags().BoolVar(&o.back, "back", false, "move from Skyhooks to NodeWrights")
	cmd.Flags().BoolVar(&o.again, "again", false, "also move objects that were moved before; what nodes record since then is lost")
	cmd.Flags().StringVar(&o.directory, "directory", "", "write the manifests to this `DIRECTORY`; with --apply, apply those in it")
	cmd.Flags().DurationVar(&o.wait, "wait", 0, "wait this `DURATION` for Jobs to end and for an operator to stop, such as 30m")
	cmd.Flags().StringVar(&o.runtimeTaint, "runtime-required-taint", "", "the runtime-required `TAINT` of this operator, if it is not found in its Deployment")
	_ = cmd.MarkFlagDirname("directory")
	return cmd
}

func (o *migrateOptions) direction() migrate.Direction {
	if o.back {
		return migrate.ToNodeWright
	}
	return migrate.ToSkyhook
}

func (o *migrateOptions) run(ctx context.Context) error {
	if o.ServerDryRun {
		return errors.New("--dry-run=server cannot check a migration, whose steps read what those before them wrote: use --dry-run=client")
	}
	c, err := newMigrationClient(o.Factory)
	if err != nil {
		return err
	}
	m := &migration{migrateOptions: o, client: c, direction: o.direction()}
	if err := m.awaitQuiet(ctx); err != nil {
		return err
	}
	if err := m.read(ctx); err != nil {
		return err
	}
	if err := m.plan(); err != nil {
		return err
	}
	if !o.apply {
		return m.review()
	}
	if m.isDone() {
		return m.report()
	}
	if o.DryRun || !o.sure.Given {
		fmt.Fprint(o.ErrOut, m.formatPlan())
	}
	if err := o.Confirm(&o.sure, "Change all of this?"); err != nil {
		return err
	}
	if !o.DryRun {
		if err := m.write(ctx); err != nil {
			return fmt.Errorf("%w\nwhat is done stays; run the command again to continue", err)
		}
	}
	return m.report()
}

// awaitQuiet waits until no operator and no Job of a package runs, at most as long as --wait says.
func (m *migration) awaitQuiet(ctx context.Context) error {
	deadline := time.Now().Add(m.wait)
	said := ""
	for {
		err := m.checkQuiet(ctx)
		var busy *busyError
		switch {
		case err == nil:
			return nil
		case !errors.As(err, &busy):
			return err
		case !m.apply || m.DryRun:
			m.Warn("%v", err)
			return nil
		case busy.never || !time.Now().Before(deadline):
			return err
		}
		if text := err.Error(); text != said {
			said = text
			fmt.Fprintf(m.ErrOut, "waiting: %s\n", text)
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-time.After(min(2*time.Second, time.Until(deadline)+time.Millisecond)):
		}
	}
}

// busyError names the operators that must stop before anything is changed.
type busyError struct {
	text  string
	never bool // waiting does not help
}

func (e *busyError) Error() string { return e.text }

// chooseTaints sets the runtime-required taints of both operators: what the Deployments say, or else the defaults. A taint
// that NodeWright was told to use is kept.
func (m *migration) chooseTaints() error {
	theirs, err := parseTaintOr(m.taintOf(migrate.NodeWright), migrate.NodeWright.Taint)
	if err != nil {
		return err
	}
	ours, err := parseTaintOr(m.ourTaint(), migrate.Skyhook.Taint)
	if err != nil {
		return err
	}
	if m.ourTaint() == "" && theirs != migrate.NodeWright.Taint {
		ours = theirs
	}
	m.rules.FromTaint, m.rules.ToTaint = theirs, ours
	if m.back {
		m.rules.FromTaint, m.rules.ToTaint = ours, theirs
	}
	return nil
}

func (m *migration) ourTaint() string {
	if m.runtimeTaint != "" {
		return m.runtimeTaint
	}
	return m.taintOf(migrate.Skyhook)
}

func parseTaintOr(text string, absent corev1.Taint) (corev1.Taint, error) {
	if text == "" {
		return absent, nil
	}
	taint, err := options.ParseTaint(text)
	if err != nil {
		return corev1.Taint{}, fmt.Errorf("the runtime-required taint: %w", err)
	}
	return taint, nil
}
