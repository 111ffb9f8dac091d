// SPDX-FileCopyrightText: The Skyhook authors
// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strconv"

	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/skyhook-k8s/skyhook/api/skyhook/v1alpha1"
	"github.com/skyhook-k8s/skyhook/internal/output"
)

// batches are what earlier batches taught, and the objects whose status remembers it.
type batches struct {
	skyhook *v1alpha1.Skyhook
	policy  *v1alpha1.DeploymentPolicy // when its scope is Policy: then the memory is its own, for all who name it
}

// batches finds out where a Skyhook's batches are remembered.
func (a *factory) batches(ctx context.Context, c client.Client, s *v1alpha1.Skyhook) (*batches, error) {
	b := &batches{skyhook: s}
	if s.Spec.DeploymentPolicy == "" {
		return b, nil
	}
	p := &v1alpha1.DeploymentPolicy{}
	a.Note("reading DeploymentPolicy %s", s.Spec.DeploymentPolicy)
	if err := c.Get(ctx, client.ObjectKey{Name: s.Spec.DeploymentPolicy}, p); err != nil {
		if client.IgnoreNotFound(err) != nil {
			return nil, fmt.Errorf("reading DeploymentPolicy %s: %w", s.Spec.DeploymentPolicy, err)
		}
		return b, nil // what the Skyhook remembers is its own
	}
	if p.Spec.Scope == v1alpha1.ScopePolicy {
		b.policy = p
	}
	return b, nil
}

func (b *batches) compartments() map[string]v1alpha1.CompartmentStatus {
	if b.policy != nil {
		return b.policy.Status.CompartmentStatuses
	}
	return b.skyhook.Status.CompartmentStatuses
}

// shared says who else's batches begin again, or nothing.
func (b *batches) shared() string {
	if b.policy == nil {
		return ""
	}
	return fmt.Sprintf("DeploymentPolicy %s has scope Policy: its batches begin again for %s that name it\n",
		b.policy.Name, output.Count(max(b.policy.Status.Users, 1), "object"))
}

// text is a table of what is remembered.
func (b *batches) text() string {
	all := b.compartments()
	if len(all) == 0 {
		return "No compartment remembers a batch.\n"
	}
	var rows [][]string
	for _, name := range slices.Sorted(maps.Keys(all)) {
		row := []string{name, "-", "-", "-", "-", "-"}
		if s := all[name].BatchState; s != nil {
			row = []string{
				name, strconv.Itoa(s.CurrentBatch), strconv.FormatBool(s.ShouldStop), strconv.Itoa(s.ConsecutiveFailures),
				strconv.Itoa(s.CompletedNodes), strconv.Itoa(s.FailedNodes),
			}
		}
		rows = append(rows, row)
	}
	return output.FormatTable([]string{"COMPARTMENT", "BATCH", "STOPPED", "FAILED-IN-A-ROW", "COMPLETED", "FAILED"}, rows, nil)
}

// forget makes batches begin again: with no memory at all, as before the first one. Two things of the Skyhook count
// along with them: where nodes are numbered from, and when each was admitted.
func (a *factory) forget(ctx context.Context, c client.Client, b *batches) error {
	if b.policy != nil {
		if err := a.forgetIn(ctx, c, b.policy, nil); err != nil {
			return err
		}
	}
	return a.forgetIn(ctx, c, b.skyhook, map[string]any{"nodeOrderOffset": 0, "nodePriority": nil})
}

// forgetIn patches the status of one object, provided that it is the version that was read.
func (a *factory) forgetIn(ctx context.Context, c client.Client, o client.Object, more map[string]any) error {
	kind, again := kindOf(o), false
	err := onConflict(func() error {
		if again {
			if err := c.Get(ctx, client.ObjectKeyFromObject(o), o); err != nil {
				return err
			}
		}
		again = true
		status := map[string]any{}
		maps.Copy(status, more)
		compartments := map[string]any{}
		for name := range compartmentsOf(o) {
			compartments[name] = map[string]any{"batchState": nil}
		}
		if len(compartments) > 0 {
			status["compartmentStatuses"] = compartments
		}
		if len(status) == 0 {
			return nil
		}
		raw, err := json.Marshal(map[string]any{"metadata": map[string]any{"resourceVersion": o.GetResourceVersion()}, "status": status})
		if err != nil {
			return err
		}
		a.Note("patching the status of %s %s: %s", kind, o.GetName(), raw)
		return c.Status().Patch(ctx, o, client.RawPatch(types.MergePatchType, raw))
	})
	if err != nil {
		return fmt.Errorf("resetting the batches of %s %s: %w", kind, o.GetName(), err)
	}
	return nil
}

func kindOf(o client.Object) string {
	if _, ok := o.(*v1alpha1.DeploymentPolicy); ok {
		return "DeploymentPolicy"
	}
	return "Skyhook"
}

func compartmentsOf(o client.Object) map[string]v1alpha1.CompartmentStatus {
	switch o := o.(type) {
	case *v1alpha1.DeploymentPolicy:
		return o.Status.CompartmentStatuses
	case *v1alpha1.Skyhook:
		return o.Status.CompartmentStatuses
	}
	return nil
}
