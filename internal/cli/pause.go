// SPDX-FileCopyrightText: The Skyhook authors
// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"context"
	"fmt"

	"github.com/spf13/cobra"
	"k8s.io/apimachinery/pkg/api/meta"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/skyhook-k8s/skyhook/api/skyhook/v1alpha1"
	"github.com/skyhook-k8s/skyhook/internal/output"
	"github.com/skyhook-k8s/skyhook/internal/pack"
)

// since is the first operator that reads the annotations; those before it had fields in the spec.
const since = "0.8.0"

// A lever is one of the two annotations that stop a Skyhook, set or taken away.
type toggle struct {
	verb, done string
	annotation string
	set        bool
	short      string
	long       string
	field      string // of the spec, in operators before the annotations
}

func (a *factory) pauseCommand() *cobra.Command {
	return a.leverCommand(toggle{
		verb: "pause", done: "paused", annotation: v1alpha1.AnnotationPause, set: true, field: "pause",
		short: "Stop a Skyhook from starting anything",
		long: "Stop a Skyhook from starting anything. What runs on a node ends; later Skyhooks go on waiting for this one.\n" +
			"See disable to let later ones pass.",
	})
}

func (a *factory) resumeCommand() *cobra.Command {
	return a.leverCommand(toggle{
		verb: "resume", done: "resumed", annotation: v1alpha1.AnnotationPause, field: "pause",
		short: "Let a paused Skyhook go on",
		long:  "Let a paused Skyhook go on.",
	})
}

func (a *factory) disableCommand() *cobra.Command {
	return a.leverCommand(toggle{
		verb: "disable", done: "disabled", annotation: v1alpha1.AnnotationDisable, set: true, field: "disable",
		short: "Stop a Skyhook and let others pass",
		long:  "Stop a Skyhook from starting anything, and let later Skyhooks pass it. What it installed stays.",
	})
}

func (a *factory) enableCommand() *cobra.Command {
	return a.leverCommand(toggle{
		verb: "enable", done: "enabled", annotation: v1alpha1.AnnotationDisable, field: "disable",
		short: "Let a disabled Skyhook go on",
		long:  "Let a disabled Skyhook go on.",
	})
}

func (a *factory) leverCommand(l toggle) *cobra.Command {
	var sure confirmation
	cmd := &cobra.Command{
		Use:     l.verb + " SKYHOOK",
		Short:   l.short,
		Long:    l.long,
		Example: fmt.Sprintf("  kubectl skyhook %s demo\n  kubectl skyhook %s demo --confirm", l.verb, l.verb),
		Args:    output.Args("SKYHOOK"), ValidArgsFunction: a.completeSkyhooks,
		RunE: func(cmd *cobra.Command, args []string) error { return a.pull(cmd.Context(), l, &sure, args[0]) },
	}
	sure.flags(cmd.Flags())
	return cmd
}

// pull pulls the lever.
func (a *factory) pull(ctx context.Context, l toggle, sure *confirmation, name string) error {
	if _, err := a.CheckFormat(); err != nil {
		return err
	}
	c, err := a.newClient()
	if err != nil {
		return err
	}
	s, err := a.getSkyhook(ctx, c, name)
	if err != nil {
		return err
	}
	if err := a.understands(ctx, c, s, l); err != nil {
		return err
	}
	if err := a.confirm(sure, fmt.Sprintf("%s Skyhook %q?", capital(l.verb), name)); err != nil {
		return err
	}
	would := ""
	if a.DryRun {
		would = " (dry run)"
	} else {
		var value *string
		if yes := "true"; l.set {
			value = &yes
		}
		if err := a.patchAnnotation(ctx, c, s, l.annotation, value); err != nil {
			return err
		}
	}
	return a.Print(output.Answer{
		Value: map[string]any{"skyhookName": name, "action": l.done, "dryRun": a.DryRun},
		Names: output.WithKind("skyhook", name),
		Text:  func(bool) string { return fmt.Sprintf("Skyhook %q %s%s\n", name, l.done, would) },
	})
}

// understands makes sure that the operator reads the annotation. One that accepts Skyhooks does: operators that are too old
// know no such condition, and count their versions differently.
func (a *factory) understands(ctx context.Context, c client.Client, s *v1alpha1.Skyhook, l toggle) error {
	if meta.FindStatusCondition(s.Status.Conditions, v1alpha1.ConditionAccepted) != nil {
		return nil
	}
	version := s.Annotations[v1alpha1.AnnotationVersion]
	if version == "" {
		var err error
		if version, err = a.operatorVersion(ctx, c); err != nil {
			a.Warn("the operator's version is not known (%v): versions before v%s do not read this annotation", err, since)
			return nil
		}
	}
	if _, err := pack.ParseVersion(version); err != nil {
		a.Warn("the operator's version is %q: versions before v%s do not read this annotation", version, since)
		return nil
	}
	if pack.CompareVersions(version, since) < 0 {
		return fmt.Errorf("the operator is %s, which does not read this annotation: edit spec.%s of the Skyhook instead, or install v%s or newer", version, l.field, since)
	}
	return nil
}

// capital is a word with its first letter capital.
func capital(word string) string { return string(word[0]-'a'+'A') + word[1:] }
