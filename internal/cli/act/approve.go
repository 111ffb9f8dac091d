// SPDX-FileCopyrightText: The Skyhook authors
// SPDX-License-Identifier: Apache-2.0

package act

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/util/retry"
	"sigs.k8s.io/controller-runtime/pkg/client"

	nodeopv1 "github.com/skyhook-k8s/skyhook/api/nodeop/v1alpha1"
	"github.com/skyhook-k8s/skyhook/api/skyhook/v1alpha1"
	"github.com/skyhook-k8s/skyhook/internal/cli/session"
	"github.com/skyhook-k8s/skyhook/internal/output"
	"github.com/skyhook-k8s/skyhook/internal/policy"
	"github.com/skyhook-k8s/skyhook/internal/rollout"
	"github.com/skyhook-k8s/skyhook/internal/skyhook/plan"
)

// ApproveOptions are the flags and arguments of approve.
type ApproveOptions struct {
	*session.Factory
	Owner, Compartment string
	revoke             bool
}

// NewApproveCommand returns the command `approve`.
func NewApproveCommand(f *session.Factory) *cobra.Command {
	o := &ApproveOptions{Factory: f}
	cmd := &cobra.Command{
		Use:   "approve SKYHOOK|deploymentpolicy/NAME|nodeop/NAME COMPARTMENT",
		Short: "Let a compartment begin that waits for an approval",
		Long: "Let a compartment begin that has approval: Required in its DeploymentPolicy. The approval is for what is rolled out now:\n" +
			"other packages need a new one. It is an annotation, with your user name and the time, on the Skyhook or NodeOp, or on the\n" +
			"DeploymentPolicy when its scope is Policy. --revoke takes it back: no further node starts.",
		Example: "  kubectl skyhook approve demo rest\n" +
			"  kubectl skyhook approve deploymentpolicy/careful default\n" +
			"  kubectl skyhook approve demo rest --revoke",
		Args: output.Args("SKYHOOK", "COMPARTMENT"), ValidArgsFunction: f.CompleteSkyhooks,
		RunE: func(cmd *cobra.Command, args []string) error {
			o.Owner, o.Compartment = args[0], args[1]
			return o.Run(cmd.Context())
		},
	}
	cmd.Flags().BoolVar(&o.revoke, "revoke", false, "take an approval back; nodes in progress finish")
	return cmd
}

// approval is what approve prints.
type approval struct {
	Owner       rollout.Ref      `json:"owner"`
	Compartment string           `json:"compartment"`
	Revision    rollout.Versions `json:"revision"`
	By          string           `json:"by"`
	Of          string           `json:"of"` // what is rolled out, for people
	Revoked     bool             `json:"revoked,omitempty"`
	Begins      []string         `json:"begins"` // nodes that start now
	Waits       string           `json:"waits,omitempty"`
	DryRun      bool             `json:"dryRun"`
	suffix      string
}

// Run approves the next wave, or all of them.
func (o *ApproveOptions) Run(ctx context.Context) error {
	c, err := o.NewClient()
	if err != nil {
		return err
	}
	v, err := session.LoadView(ctx, o.Factory, session.ViewOptions{})
	if err != nil {
		return err
	}
	g, err := v.FindApprovable(o.Owner, o.Compartment)
	if err != nil {
		return err
	}
	if g.Ref.Owner.Kind == policy.Kind {
		o.Note("the compartments of %s are those of all objects that name it", g.Ref.Owner.Title())
	}
	if g.Approval.Of == "" {
		return fmt.Errorf("it is not known what %s rolls out: see kubectl skyhook status", g.Ref.Owner.Title())
	}
	out := &approval{Owner: g.Ref.Owner, Compartment: g.Ref.Compartment, Revision: g.Approval.Of, By: o.FindUser(ctx), Of: v.DescribeRevision(g), Revoked: o.revoke, DryRun: o.DryRun, suffix: o.DryRunSuffix() + "\n"}
	if err := o.write(ctx, c, out); err != nil {
		return err
	}
	if !o.revoke {
		out.Begins, out.Waits = v.PreviewApproval(g)
	}
	return o.Print(output.Answer{
		Value: out,
		Names: output.WithKind(strings.ToLower(out.Owner.Kind), out.Owner.Path()),
		Text:  func(bool) string { return out.formatText() },
	})
}

// write writes the approval, or removes it.
func (o *ApproveOptions) write(ctx context.Context, c client.Client, a *approval) error {
	object := newOwner(a.Owner)
	err := retry.RetryOnConflict(retry.DefaultBackoff, func() error {
		if err := c.Get(ctx, client.ObjectKey{Namespace: a.Owner.Namespace, Name: a.Owner.Name}, object); err != nil {
			return err
		}
		all, err := policy.ReadApprovals(object.GetAnnotations())
		if err != nil {
			o.Warn("%s: %v; it is replaced", a.Owner.Title(), err)
		}
		if all == nil {
			all = map[string]policy.GivenApproval{}
		}
		delete(all, a.Compartment)
		if !a.Revoked {
			all[a.Compartment] = policy.GivenApproval{Revision: a.Revision, By: a.By, At: time.Now().UTC().Truncate(time.Second)}
		}
		text, err := policy.FormatApprovals(all)
		if err != nil {
			return err
		}
		var value any // nil removes the annotation
		if text != "" {
			value = text
		}
		raw, err := json.Marshal(map[string]any{"metadata": map[string]any{
			"resourceVersion": object.GetResourceVersion(), "annotations": map[string]any{v1alpha1.AnnotationApprovals: value},
		}})
		if err != nil {
			return err
		}
		return c.Patch(ctx, object, client.RawPatch(types.MergePatchType, raw))
	})
	if err != nil {
		return fmt.Errorf("writing the approval to %s: %w", a.Owner.Title(), err)
	}
	return nil
}

// newOwner returns an empty object of the kind of an owner.
func newOwner(owner rollout.Ref) client.Object {
	switch owner.Kind {
	case policy.Kind:
		return &v1alpha1.DeploymentPolicy{}
	case plan.Kind:
		return &v1alpha1.Skyhook{}
	}
	return &nodeopv1.NodeOp{}
}

func (a *approval) formatText() string {
	name := fmt.Sprintf("compartment %s of %s", rollout.GroupRef{Compartment: a.Compartment}.Name(), a.Owner.Title())
	if a.Revoked {
		return "The approval of " + name + " is taken back: no further node starts there" + a.suffix
	}
	text := fmt.Sprintf("%s approved by %s, for %s%s", Capitalize(name), a.By, a.Of, a.suffix)
	switch {
	case len(a.Begins) > 0:
		text += "  begins now: " + output.Count(len(a.Begins), "node") + ": " + output.List(a.Begins, 6) + "\n"
	case a.Waits != "":
		text += "  it waits: " + a.Waits + "\n"
	default:
		text += "  no node of it has work\n"
	}
	return text
}
