// SPDX-FileCopyrightText: The Skyhook authors
// SPDX-License-Identifier: Apache-2.0

// Package act has the commands that change what the operator does: pause, approve, reset, undo, cleanup, and operations on nodes.
package act

import (
	"context"
	"fmt"
	"strings"

	"github.com/spf13/cobra"
	"k8s.io/apimachinery/pkg/api/meta"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/skyhook-k8s/skyhook/api/skyhook/v1alpha1"
	"github.com/skyhook-k8s/skyhook/internal/cli/session"
	"github.com/skyhook-k8s/skyhook/internal/output"
	"github.com/skyhook-k8s/skyhook/internal/pack"
)

// firstWithAnnotations is the first operator that reads the annotations; earlier ones have fields in the spec.
const firstWithAnnotations = "0.8.0"

// Toggle is a command that sets or removes an annotation of a Skyhook.
type Toggle struct {
	Verb, done  string
	Annotation  string
	Set         bool
	field       string // of the spec, in operators without the annotations
	short, long string
}

// Toggles are the commands that switch a Skyhook between two states.
var Toggles = []Toggle{
	{
		Verb: "pause", done: "paused", Annotation: v1alpha1.AnnotationPause, Set: true, field: "pause",
		short: "Pause a Skyhook",
		long: "Pause a Skyhook: it starts nothing new. Running stages finish. Later Skyhooks keep waiting for this one; see disable\n" +
			"to let them continue.",
	},
	{
		Verb: "resume", done: "resumed", Annotation: v1alpha1.AnnotationPause, field: "pause",
		short: "Resume a paused Skyhook",
		long:  "Resume a paused Skyhook. The command does not ask; --confirm is accepted and ignored.",
	},
	{
		Verb: "disable", done: "disabled", Annotation: v1alpha1.AnnotationDisable, Set: true, field: "disable",
		short: "Disable a Skyhook",
		long:  "Disable a Skyhook: it starts nothing new, and later Skyhooks do not wait for it. Installed packages stay.",
	},
	{
		Verb: "enable", done: "enabled", Annotation: v1alpha1.AnnotationDisable, field: "disable",
		short: "Enable a disabled Skyhook",
		long:  "Enable a disabled Skyhook. The command does not ask; --confirm is accepted and ignored.",
	},
}

// NewToggleCommand returns the command of a toggle.
func NewToggleCommand(f *session.Factory, t Toggle) *cobra.Command {
	var sure session.Confirmation
	cmd := &cobra.Command{
		Use:     t.Verb + " SKYHOOK",
		Short:   t.short,
		Long:    t.long,
		Example: fmt.Sprintf("  kubectl skyhook %s demo", t.Verb),
		Args:    output.Args("SKYHOOK"), ValidArgsFunction: f.CompleteSkyhooks,
		RunE: func(cmd *cobra.Command, args []string) error { return t.Run(cmd.Context(), f, &sure, args[0]) },
	}
	if t.Set {
		cmd.Example += fmt.Sprintf("\n  kubectl skyhook %s demo --confirm", t.Verb)
		sure.AddFlags(cmd.Flags())
	} else {
		session.AddIgnoredConfirmation(cmd.Flags())
	}
	return cmd
}

// Run switches a Skyhook, unless it is in that state already.
func (t *Toggle) Run(ctx context.Context, f *session.Factory, sure *session.Confirmation, name string) error {
	c, err := f.NewClient()
	if err != nil {
		return err
	}
	s, err := f.GetSkyhook(ctx, c, name)
	if err != nil {
		return err
	}
	if err := t.checkOperator(ctx, f, c, s); err != nil {
		return err
	}
	if t.Set { // what ends a stop does not ask
		if err := f.Confirm(sure, fmt.Sprintf("%s Skyhook %q?", Capitalize(t.Verb), name)); err != nil {
			return err
		}
	}
	var value *string
	if t.Set {
		value = new("true")
	}
	if err := f.PatchAnnotation(ctx, c, s, t.Annotation, value); err != nil {
		return err
	}
	return f.PrintChange(map[string]any{"skyhookName": name, "action": t.done}, output.WithKind("skyhook", name), fmt.Sprintf("Skyhook %q %s", name, t.done))
}

// checkOperator returns an error when the operator does not read the annotation. An operator that sets Accepted reads it:
// older ones have no such condition, and number their versions differently.
func (t *Toggle) checkOperator(ctx context.Context, f *session.Factory, c client.Client, s *v1alpha1.Skyhook) error {
	if meta.FindStatusCondition(s.Status.Conditions, v1alpha1.ConditionAccepted) != nil {
		return nil
	}
	version := s.Annotations[v1alpha1.AnnotationVersion]
	if version == "" {
		var err error
		if version, err = session.FindOperatorVersion(ctx, f, c); err != nil {
			f.Warn("the operator's version is not known (%v): versions before v%s do not read this annotation", err, firstWithAnnotations)
			return nil
		}
	}
	if _, err := pack.ParseVersion(version); err != nil {
		f.Warn("the operator's version is %q: versions before v%s do not read this annotation", version, firstWithAnnotations)
		return nil
	}
	if pack.CompareVersions(version, firstWithAnnotations) < 0 {
		return fmt.Errorf("the operator is %s, which does not read this annotation: edit spec.%s of the Skyhook instead, or install v%s or newer",
			version, t.field, firstWithAnnotations)
	}
	return nil
}

// Capitalize returns a word with its first letter in upper case.
func Capitalize(word string) string { return strings.ToUpper(word[:1]) + word[1:] }
