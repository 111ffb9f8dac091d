// SPDX-FileCopyrightText: The Skyhook authors
// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"context"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/skyhook-k8s/skyhook/internal/output"
)

// statusOptions are the flags of status.
type statusOptions struct {
	*factory
	from     viewOptions
	watch    bool
	interval time.Duration
	args     []string // a rollout; none for all
}

func newStatusCommand(f *factory) *cobra.Command {
	o := &statusOptions{factory: f}
	cmd := &cobra.Command{
		Use:   "status [SKYHOOK|nodeop/NAME]",
		Short: "Show the progress, speed and problems of rollouts",
		Long: "Show the progress, speed and problems of rollouts: one line for each rollout, or details of the named one.\n\n" +
			"With -w it continues until everything is done or interrupted. A terminal is redrawn; elsewhere changes are appended.",
		Example: "  kubectl skyhook status\n" +
			"  kubectl skyhook status demo -w\n" +
			"  kubectl skyhook status nodeop/kernel-version -o json",
		Args: cobra.MaximumNArgs(1), ValidArgsFunction: f.completeSkyhooks,
		RunE: func(cmd *cobra.Command, args []string) error {
			o.args = args
			if o.watch {
				return o.runWatch(cmd.Context())
			}
			answer, _, err := o.load(cmd.Context())
			if err != nil {
				return err
			}
			return f.Print(answer)
		},
	}
	o.from.addFromFlag(cmd)
	cmd.Flags().BoolVarP(&o.watch, "watch", "w", false, "watch for changes")
	cmd.Flags().DurationVar(&o.interval, "interval", 2*time.Second, "with -w: time between updates")
	return cmd
}

// load returns the status, and whether everything in it is done.
func (o *statusOptions) load(ctx context.Context) (output.Answer, bool, error) {
	if _, err := o.CheckFormat(); err != nil {
		return output.Answer{}, false, err
	}
	v, err := loadView(ctx, o.factory, o.from)
	if err != nil {
		return output.Answer{}, false, err
	}
	if err := v.checkNames(o.args); err != nil {
		return output.Answer{}, false, err
	}
	all, names, isDone := []rolloutStatus{}, []string(nil), true
	for _, r := range v.selectRollouts(o.args) {
		s := summarizeRollout(v, r)
		all, names = append(all, s), append(names, strings.ToLower(s.Name.String()))
		isDone = isDone && (s.Ended || s.Complete == s.Nodes)
	}
	if len(o.args) > 0 {
		details := func(wide bool) string { return all[0].formatDetails(o.Printer, wide) }
		return output.Answer{Value: all[0], Names: names, Text: details}, isDone, nil
	}
	return output.Answer{Value: all, Names: names, Text: func(bool) string { return formatOverview(o.Printer, all) }}, isDone, nil
}
