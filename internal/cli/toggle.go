// SPDX-FileCopyrightText: The Skyhook authors
// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"context"
	"fmt"
	"strings"

	"github.com/spf13/cobra"
	"k8s.io/apimachinery/pkg/api/meta"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/skyhook-k8s/skyhook/api/skyhook/v1alpha1"
	"github.com/skyhook-k8s/skyhook/internal/output"
	"github.com/skyhook-k8s/skyhook/internal/pack"
)

// firstWithAnnotations is the first operator that reads the annotations; earlier ones have fields in the spec.
const firstWithAnnotations = "0.8.0"

// toggle is a command that sets or removes an annotation of a Skyhook.
type toggle struct {
	verb, done  string
	annotation  string
	set         bool
	field       string // of the spec, in operators without the annotations
	short, long string
}

var toggles = []toggle{
	{
		verb: "pause", done: "paused", annotation: v1alpha1.AnnotationPause, set: true, field: "pause",
		short: "Pause a Skyhook",
		long: "Pause a Skyhook: it starts nothing new. Running stages finish. Later Skyhooks keep waiting for this one; see disable\n" +
			"to let them continue.",
	},
	{
		verb: "resume", done: "resumed", annotation: v1alpha1.AnnotationPause, field: "pause",
		short: "Resume a paused Skyhook",
		long:  "Resume a paused Skyhook. The command does not ask; --confirm is accepted and ignored.",
	},
	{
		verb: "disable", done: "disabled", annotation: v1alpha1.AnnotationDisable, set: true, field: "disable",
		short: "Disable a Skyhook",
		long:  "Disable a Skyhook: it starts nothing new, and later Skyhooks do not wait for it. Installed packages stay.",
	},
	{
		verb: "enable", done: "enabled", annotation: v1alpha1.AnnotationDisable, field: "disable",
		short: "Enable a disabled Skyhook",
		long:  "Enable a disabled Skyhook. The command does not ask; --confirm is accepted and ignored.",
	},
}

func newToggleCommand(f *factory, t toggle) *cobra.Command {
	var sure confirmation
	cmd := &cobra.Command{
		Use:     t.verb + " SKYHOOK",
		Short:   t.short,
		Long:    t.long,
		Example: fmt.Sprintf("  kubectl skyhook %s demo", t.verb),
		Args:    output.Args("SKYHOOK"), ValidArgsFunction: f.completeSkyhooks,
		RunE: func(cmd *cobra.Command, args []string) error { return t.run(cmd.Context(), f, &sure, args[0]) },
	}
	if t.set {
		cmd.Example += fmt.Sprintf("\n  kubectl skyhook %s demo --confirm", t.verb)
		sure.addFlags(cmd.Flags())
	} else {
		addIgnoredConfirmation(cmd.Flags())
	}
	return cmd
}

func (t *toggle) run(ctx context.Context, f *factory, sure *confirmation, name string) error {
	c, err := f.connect()
	if err != nil {
		return err
	}
	s, err := f.getSkyhook(ctx, c, name)
	if err != nil {
		return err
	}
	if err := t.checkOperator(ctx, f, c, s); err != nil {
		return err
	}
	if t.set { // what ends a stop does not ask
		if err := f.confirm(sure, fmt.Sprintf("%s Skyhook %q?", capitalize(t.verb), name)); err != nil {
			return err
		}
	}
	if !f.DryRun {
		var value *string
		if t.set {
			value = new("true")
		}
		if err := f.patchAnnotation(ctx, c, s, t.annotation, value); err != nil {
			return err
		}
	}
	return f.Print(output.Answer{
		Value: map[string]any{"skyhookName": name, "action": t.done, "dryRun": f.DryRun},
		Names: output.WithKind("skyhook", name),
		Text:  func(bool) string { return fmt.Sprintf("Skyhook %q %s%s\n", name, t.done, f.dryRunSuffix()) },
	})
}

// checkOperator returns an error when the operator does not read the annotation. An operator that sets Accepted reads it:
// older ones have no such condition, and number their versions differently.
func (t *toggle) checkOperator(ctx context.Context, f *factory, c client.Client, s *v1alpha1.Skyhook) error {
	if meta.FindStatusCondition(s.Status.Conditions, v1alpha1.ConditionAccepted) != nil {
		return nil
	}
	version := s.Annotations[v1alpha1.AnnotationVersion]
	if version == "" {
		var err error
		if version, err = findOperatorVersion(ctx, f, c); err != nil {
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

func capitalize(word string) string { return strings.ToUpper(word[:1]) + word[1:] }
