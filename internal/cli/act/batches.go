// SPDX-FileCopyrightText: The Skyhook authors
// SPDX-License-Identifier: Apache-2.0

package act

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strconv"

	"github.com/spf13/cobra"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/util/retry"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/skyhook-k8s/skyhook/api/skyhook/v1alpha1"
	"github.com/skyhook-k8s/skyhook/internal/cli/session"
	"github.com/skyhook-k8s/skyhook/internal/output"
	"github.com/skyhook-k8s/skyhook/internal/rollout"
)

// NewRestartBatchesCommand returns the command `restart-batches`.
func NewRestartBatchesCommand(f *session.Factory) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "restart-batches SKYHOOK",
		Short: "Restart the batches of a Skyhook",
		Long: "Restart the batches of a Skyhook with the first one: a rollout that stopped because of failures continues. Nodes keep\n" +
			"their state. The argument is the name of a Skyhook; when its policy has scope Policy, the batches of all objects that\n" +
			"name this policy restart. The command does not ask; --confirm is accepted and ignored.",
		Example: "  kubectl skyhook restart-batches demo\n  kubectl skyhook restart-batches demo --dry-run=server",
		Args:    output.Args("SKYHOOK"), ValidArgsFunction: f.CompleteSkyhooks,
		RunE: func(cmd *cobra.Command, args []string) error { return runBatchReset(cmd.Context(), f, args[0]) },
	}
	session.AddIgnoredConfirmation(cmd.Flags())
	return cmd
}

func runBatchReset(ctx context.Context, f *session.Factory, name string) error {
	c, err := f.NewClient()
	if err != nil {
		return err
	}
	s, err := f.GetSkyhook(ctx, c, name)
	if err != nil {
		return err
	}
	b, err := findBatchState(ctx, f, c, s)
	if err != nil {
		return err
	}
	fmt.Fprint(f.ErrOut, b.formatText())
	if err := b.reset(ctx, c); err != nil {
		return err
	}
	value := map[string]any{"skyhookName": name, "compartments": len(b.compartments())}
	return f.PrintChange(value, output.WithKind("skyhook", name), fmt.Sprintf("Batch state of Skyhook %q reset", name))
}

// batchState is the result of earlier batches, with the objects whose status holds it.
type batchState struct {
	skyhook *v1alpha1.Skyhook
	policy  *v1alpha1.DeploymentPolicy // with scope Policy: it holds the state for all objects that name it
}

// findBatchState finds the object that holds the batch state of a Skyhook.
func findBatchState(ctx context.Context, f *session.Factory, c client.Client, s *v1alpha1.Skyhook) (*batchState, error) {
	b := &batchState{skyhook: s}
	if s.Spec.DeploymentPolicy == "" {
		return b, nil
	}
	p := &v1alpha1.DeploymentPolicy{}
	f.Note("reading DeploymentPolicy %s", s.Spec.DeploymentPolicy)
	if err := c.Get(ctx, client.ObjectKey{Name: s.Spec.DeploymentPolicy}, p); err != nil {
		if client.IgnoreNotFound(err) != nil {
			return nil, fmt.Errorf("reading DeploymentPolicy %s: %w", s.Spec.DeploymentPolicy, err)
		}
		return b, nil // the Skyhook has a state of its own
	}
	if p.Spec.Scope == v1alpha1.ScopePolicy {
		b.policy = p
	}
	return b, nil
}

func (b *batchState) compartments() map[string]v1alpha1.CompartmentStatus {
	if b.policy != nil {
		return b.policy.Status.CompartmentStatuses
	}
	return b.skyhook.Status.CompartmentStatuses
}

// formatText describes the state for people.
func (b *batchState) formatText() string {
	text := ""
	if b.policy != nil {
		text = fmt.Sprintf("DeploymentPolicy %s has scope Policy: its batches restart for %s that name it\n",
			b.policy.Name, output.Count(max(int(b.policy.Status.Users), 1), "object"))
	}
	all := b.compartments()
	if len(all) == 0 {
		return text + "No compartment has batch state.\n"
	}
	var rows [][]string
	for _, name := range slices.Sorted(maps.Keys(all)) {
		row := []string{rollout.GroupRef{Compartment: name}.Name(), "-", "-", "-", "-", "-"}
		if s := all[name].BatchState; s != nil {
			row = []string{
				row[0], strconv.Itoa(int(s.CurrentBatch)), strconv.FormatBool(s.ShouldStop), strconv.Itoa(int(s.ConsecutiveFailures)),
				strconv.Itoa(int(s.CompletedNodes)), strconv.Itoa(int(s.FailedNodes)),
			}
		}
		rows = append(rows, row)
	}
	return text + output.FormatTable([]string{"COMPARTMENT", "BATCH", "STOPPED", "FAILED-IN-A-ROW", "COMPLETED", "FAILED"}, rows, nil)
}

// reset begins with the first batch again, and removes from the Skyhook the order and the admission times of its nodes.
func (b *batchState) reset(ctx context.Context, c client.Client) error {
	if b.policy != nil {
		compartments := func() map[string]v1alpha1.CompartmentStatus { return b.policy.Status.CompartmentStatuses }
		if err := resetBatchStatus(ctx, c, b.policy, "DeploymentPolicy", compartments, nil); err != nil {
			return err
		}
	}
	compartments := func() map[string]v1alpha1.CompartmentStatus { return b.skyhook.Status.CompartmentStatuses }
	return resetBatchStatus(ctx, c, b.skyhook, "Skyhook", compartments, map[string]any{"nodeOrderOffset": 0, "nodePriority": nil})
}

// resetBatchStatus patches the status of one object, if it did not change since it was read; otherwise it reads it again.
func resetBatchStatus(ctx context.Context, c client.Client, o client.Object, kind string,
	compartments func() map[string]v1alpha1.CompartmentStatus, fields map[string]any,
) error {
	isRetry := false
	err := retry.RetryOnConflict(retry.DefaultBackoff, func() error {
		if isRetry {
			if err := c.Get(ctx, client.ObjectKeyFromObject(o), o); err != nil {
				return err
			}
		}
		isRetry = true
		status := map[string]any{}
		maps.Copy(status, fields)
		states := map[string]any{}
		for name, c := range compartments() {
			restarted, err := restartBatches(c.BatchState)
			if err != nil {
				return err
			}
			states[name] = map[string]any{"batchState": restarted}
		}
		if len(states) > 0 {
			status["compartmentStatuses"], status["internal"] = states, map[string]any{"batches": nil}
		}
		if len(status) == 0 {
			return nil
		}
		raw, err := json.Marshal(map[string]any{"metadata": map[string]any{"resourceVersion": o.GetResourceVersion()}, "status": status})
		if err != nil {
			return err
		}
		return c.Status().Patch(ctx, o, client.RawPatch(types.MergePatchType, raw))
	})
	if err != nil {
		return fmt.Errorf("resetting the batches of %s %s: %w", kind, o.GetName(), err)
	}
	return nil
}

// restartBatches returns the merge patch that begins a batch state again with the first batch.
func restartBatches(b *v1alpha1.BatchState) (map[string]any, error) {
	patch := map[string]any{}
	if b != nil {
		fields, err := runtime.DefaultUnstructuredConverter.ToUnstructured(b)
		if err != nil {
			return nil, fmt.Errorf("converting the batch state: %w", err)
		}
		for name := range fields {
			patch[name] = nil
		}
	}
	patch["currentBatch"] = 1
	return patch, nil
}
