// SPDX-FileCopyrightText: The Skyhook authors
// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/util/retry"
	"sigs.k8s.io/controller-runtime/pkg/client"

	nodeopv1 "github.com/skyhook-k8s/skyhook/api/nodeop/v1alpha1"
	"github.com/skyhook-k8s/skyhook/api/skyhook/v1alpha1"
	"github.com/skyhook-k8s/skyhook/internal/output"
	"github.com/skyhook-k8s/skyhook/internal/policy"
	"github.com/skyhook-k8s/skyhook/internal/rollout"
	"github.com/skyhook-k8s/skyhook/internal/rollout/engine"
	"github.com/skyhook-k8s/skyhook/internal/sim"
	"github.com/skyhook-k8s/skyhook/internal/skyhook"
)

// approveOptions are the flags and arguments of approve.
type approveOptions struct {
	*factory
	owner, compartment string
	revoke             bool
}

func newApproveCommand(f *factory) *cobra.Command {
	o := &approveOptions{factory: f}
	cmd := &cobra.Command{
		Use:   "approve SKYHOOK|deploymentpolicy/NAME|nodeop/NAME COMPARTMENT",
		Short: "Let a compartment begin that waits for an approval",
		Long: "Let a compartment begin that has approval: Required in its DeploymentPolicy. The approval is for what is rolled out now:\n" +
			"other packages need a new one. It is an annotation, with your user name and the time, on the Skyhook or NodeOp, or on the\n" +
			"DeploymentPolicy when its scope is Policy. --revoke takes it back: no further node starts.",
		Example: "  kubectl skyhook approve demo rest\n" +
			"  kubectl skyhook approve deploymentpolicy/careful __default__\n" +
			"  kubectl skyhook approve demo rest --revoke",
		Args: output.Args("SKYHOOK", "COMPARTMENT"), ValidArgsFunction: f.completeSkyhooks,
		RunE: func(cmd *cobra.Command, args []string) error {
			o.owner, o.compartment = args[0], args[1]
			return o.run(cmd.Context())
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
}

func (o *approveOptions) run(ctx context.Context) error {
	c, err := o.connect()
	if err != nil {
		return err
	}
	v, err := loadView(ctx, o.factory, viewOptions{})
	if err != nil {
		return err
	}
	g, err := v.findApprovable(o.owner, o.compartment)
	if err != nil {
		return err
	}
	if g.Ref.Owner.Kind == policy.Kind {
		o.Note("the compartments of %s are those of all objects that name it", g.Ref.Owner.Title())
	}
	if g.Approval.Of == "" {
		return fmt.Errorf("it is not known what %s rolls out: see kubectl skyhook status", g.Ref.Owner.Title())
	}
	out := &approval{Owner: g.Ref.Owner, Compartment: o.compartment, Revision: g.Approval.Of, By: o.findUser(ctx), Of: v.describeRevision(g), Revoked: o.revoke, DryRun: o.DryRun}
	if !o.DryRun {
		if err := o.write(ctx, c, out); err != nil {
			return err
		}
	}
	if !o.revoke {
		out.Begins, out.Waits = v.previewApproval(g)
	}
	return o.Print(output.Answer{
		Value: out,
		Names: output.WithKind(strings.ToLower(out.Owner.Kind), out.Owner.Path()),
		Text:  func(bool) string { return out.formatText() },
	})
}

// findApprovable returns the group of a compartment that needs an approval.
func (v *view) findApprovable(arg, compartment string) (*rollout.Group, error) {
	owner, err := v.findOwner(arg)
	if err != nil {
		return nil, err
	}
	var all, approvable []string
	for i := range v.snapshot.Groups {
		g := &v.snapshot.Groups[i]
		if g.Ref.Owner != owner {
			continue
		}
		all = append(all, g.Ref.Compartment)
		if !g.Approval.Required {
			continue
		}
		approvable = append(approvable, g.Ref.Compartment)
		if g.Ref.Compartment == compartment {
			return g, nil
		}
	}
	switch {
	case !slices.Contains(all, compartment):
		return nil, fmt.Errorf("%s has no compartment %s: there are %s", owner.Title(), compartment, output.List(all, 10))
	case len(approvable) == 0:
		return nil, fmt.Errorf("compartment %s of %s needs no approval, and neither does another: approval: Required in the DeploymentPolicy asks for one", compartment, owner.Title())
	}
	return nil, fmt.Errorf("compartment %s of %s needs no approval: those that do are %s", compartment, owner.Title(), output.List(approvable, 10))
}

// findOwner returns the owner of the compartments that an argument names. For a Skyhook or NodeOp whose policy has scope Policy that is the
// policy.
func (v *view) findOwner(arg string) (rollout.Ref, error) {
	var found []rollout.Ref
	hasKind := strings.Contains(arg, "/")
	for i := range v.snapshot.Rollouts {
		if ref := v.snapshot.Rollouts[i].Ref; matchesName(ref, arg) || !hasKind && ref.Name == arg {
			found = append(found, ref)
		}
	}
	for _, p := range v.objects.Policies {
		if ref := policy.Ref(p); matchesPolicy(ref, arg) {
			found = append(found, ref)
		}
	}
	switch len(found) {
	case 1:
		return v.findGroupOwner(found[0])
	case 0:
		return rollout.Ref{}, fmt.Errorf("there is no Skyhook, NodeOp or DeploymentPolicy %s: %s", arg, v.listNames())
	}
	var names []string
	for _, ref := range found {
		names = append(names, strings.ToLower(ref.String()))
	}
	return rollout.Ref{}, fmt.Errorf("%s is the name of several objects: write one of %s", arg, strings.Join(names, ", "))
}

func matchesPolicy(ref rollout.Ref, arg string) bool {
	kind, name, hasKind := strings.Cut(arg, "/")
	if !hasKind {
		return arg == ref.Name
	}
	isKind := slices.Contains([]string{"dp", "deploymentpolicy", "deploymentpolicies"}, strings.ToLower(kind))
	return isKind && name == ref.Name
}

// findGroupOwner returns the owner of the compartments of an object that was found.
func (v *view) findGroupOwner(ref rollout.Ref) (rollout.Ref, error) {
	var users []string
	for i := range v.snapshot.Rollouts {
		r := &v.snapshot.Rollouts[i]
		owner := v.policyOwner(r)
		switch {
		case r.Ref == ref && !owner.IsZero():
			return owner, nil
		case owner == ref:
			return ref, nil
		case v.policyName(r) == ref.Name:
			users = append(users, strings.ToLower(r.Ref.String()))
		}
	}
	switch {
	case ref.Kind != policy.Kind:
		return ref, nil
	case len(users) == 0:
		return ref, fmt.Errorf("no object names %s: there is nothing to approve", ref.Title())
	}
	return ref, fmt.Errorf("%s has scope Skyhook, so that each object has approvals of its own: name one of %s", ref.Title(), output.List(users, 10))
}

// policyName returns the name of the policy that applies to a rollout; empty for none.
func (v *view) policyName(r *rollout.Rollout) string {
	if s := v.skyhookOf(r); s != nil {
		return v.objects.Compiled(s).PolicyName()
	}
	at := slices.IndexFunc(v.objects.NodeOps, func(op *nodeopv1.NodeOp) bool { return op.Namespace == r.Ref.Namespace && op.Name == r.Ref.Name })
	if at < 0 {
		return ""
	}
	return v.objects.NodeOps[at].Spec.DeploymentPolicy
}

// policyOwner returns the policy of scope Policy that applies to a rollout; none otherwise.
func (v *view) policyOwner(r *rollout.Rollout) rollout.Ref {
	name := v.policyName(r)
	for _, p := range v.objects.Policies {
		if p.Name == name && p.Spec.Scope == v1alpha1.ScopePolicy {
			return policy.Ref(p)
		}
	}
	return rollout.Ref{}
}

// describeRevision returns what is approved, for people.
func (v *view) describeRevision(g *rollout.Group) string {
	for _, s := range v.objects.Skyhooks {
		if skyhook.Ref(s.Name) != g.Ref.Owner {
			continue
		}
		for _, r := range s.Status.Revisions {
			if strings.HasSuffix(r.Name, "-"+string(g.Approval.Of)) {
				return fmt.Sprintf("revision %d of %s", r.Revision, g.Ref.Owner.Title())
			}
		}
		return "the packages of " + g.Ref.Owner.Title()
	}
	var users []string
	for i := range v.snapshot.Rollouts {
		r := &v.snapshot.Rollouts[i]
		if v.policyOwner(r) == g.Ref.Owner {
			users = append(users, r.Ref.Title())
		}
	}
	if len(users) == 0 {
		return g.Ref.Owner.Title()
	}
	return "what is rolled out now by " + output.List(users, 10)
}

// previewApproval returns the nodes that start at once when the group is approved, or what else it waits for.
func (v *view) previewApproval(g *rollout.Group) (begins []string, waits string) {
	g.Approval.Given, g.Approval.Problem = g.Approval.Of, ""
	stop := func(c *forecast, m sim.Step) bool { return m.At.After(c.start) }
	for _, waves := range v.simulateRollouts(assumeDurations(2*time.Minute), time.Second, stop).waves {
		for _, w := range waves {
			if w.group == g.Ref && w.after == 0 {
				begins = append(begins, w.Nodes...)
			}
		}
	}
	slices.Sort(begins)
	if len(begins) > 0 {
		return slices.Compact(begins), ""
	}
	for _, report := range engine.Decide(v.snapshot).Groups {
		if report.Group == g.Ref && report.Why != nil {
			return []string{}, report.Why.Text
		}
	}
	return []string{}, ""
}

// write writes the approval, or removes it.
func (o *approveOptions) write(ctx context.Context, c client.Client, a *approval) error {
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
		o.Note("patching %s: %s", a.Owner.Title(), raw)
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
	case skyhook.Kind:
		return &v1alpha1.Skyhook{}
	}
	return &nodeopv1.NodeOp{}
}

func (a *approval) formatText() string {
	suffix := "\n"
	if a.DryRun {
		suffix = " (dry run)\n"
	}
	name := fmt.Sprintf("compartment %s of %s", a.Compartment, a.Owner.Title())
	if a.Revoked {
		return "The approval of " + name + " is taken back: no further node starts there" + suffix
	}
	text := fmt.Sprintf("%s approved by %s, for %s%s", capitalize(name), a.By, a.Of, suffix)
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
