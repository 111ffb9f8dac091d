// SPDX-FileCopyrightText: The Skyhook authors
// SPDX-License-Identifier: Apache-2.0

package packagecli

import (
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"strconv"

	"github.com/google/go-containerregistry/pkg/name"
	"github.com/spf13/cobra"

	"github.com/skyhook-k8s/skyhook/internal/image"
	"github.com/skyhook-k8s/skyhook/internal/output"
	"github.com/skyhook-k8s/skyhook/internal/pack"
	"github.com/skyhook-k8s/skyhook/internal/packagecli/lint"
	"github.com/skyhook-k8s/skyhook/internal/packagecli/pkgimage"
)

// validating is one validation.
type validating struct {
	registry image.Registry
	platform string
	tag      string
	strict   bool
	ignore   []string // rules
}

// verdict is what is said of a package.
type verdict struct {
	Package   string        `json:"package,omitempty"`
	Version   string        `json:"version,omitempty"`
	Valid     bool          `json:"valid"`
	Errors    int           `json:"errors"`
	Warnings  int           `json:"warnings"`
	Problems  pack.Problems `json:"problems"`
	Lifecycle []lint.Stage  `json:"lifecycle"`
}

func (a *app) packageValidateCommand() *cobra.Command {
	var v validating
	cmd := &cobra.Command{
		Use:   "validate DIR|IMAGE",
		Short: "Say everything that is wrong with a package",
		Long: "Say everything that is wrong with a package: the rules the agent applies, the shell of its scripts, and for an image\n" +
			"what surrounds the package there. A table says which parts of a package's life have steps and checks.\n\n" +
			"DIR is a folder with a config.json; IMAGE a reference, an OCI archive or an OCI layout folder. The version is\n" +
			"compared with the image's tag, or with --tag: a tag that is another version is an error.\n\n" +
			"Exit code 0 means valid, 1 not valid, 2 that it could not be looked at.",
		Example: "  kubectl skyhook package validate ./motd\n" +
			"  kubectl skyhook package validate ./motd --tag 1.2.0 --strict -o json\n" +
			"  kubectl skyhook package validate ghcr.io/acme/motd:1.2.0",
		Args: output.Args("DIR|IMAGE"),
		RunE: func(cmd *cobra.Command, args []string) error { return a.validate(cmd.Context(), &v, args[0]) },
	}
	registryFlags(cmd, &v.registry)
	cmd.Flags().StringVar(&v.platform, "platform", "", "look at the package of this `platform` of an image, such as linux/arm64")
	cmd.Flags().StringVar(&v.tag, "tag", "", "the `version` the package is used as")
	cmd.Flags().BoolVar(&v.strict, "strict", false, "let warnings count as errors")
	cmd.Flags().StringArrayVar(&v.ignore, "ignore", nil, "do not warn of this `rule`; may be repeated")
	return cmd
}

// registryFlags add how registries are spoken to. Credentials are those of docker login and podman login.
func registryFlags(cmd *cobra.Command, r *image.Registry) {
	cmd.Flags().BoolVar(&r.PlainHTTP, "plain-http", false, "speak to a registry without TLS")
}

func (a *app) validate(ctx context.Context, v *validating, what string) error {
	if _, err := a.CheckFormat(); err != nil {
		return output.NotChecked(err)
	}
	p, err := pkgimage.Open(ctx, v.registry, what, v.platform)
	if err != nil {
		return output.NotChecked(err)
	}
	said, err := v.judge(p)
	if err = errors.Join(err, p.Close()); err != nil {
		return output.NotChecked(err)
	}
	err = a.Print(output.Answer{
		Value: said, Names: output.WithKind("package", said.Package),
		Text: func(bool) string { return said.Problems.Text() + "\n" + lifecycle(said.Lifecycle) },
	})
	if err != nil {
		return output.NotChecked(err)
	}
	if !said.Valid {
		return output.ProblemsFound()
	}
	return nil
}

// judge applies every rule to a package.
func (v *validating) judge(p *pkgimage.Parcel) (verdict, error) {
	want := p.Want()
	if v.tag != "" {
		want.Version = v.tag
	}
	dir := os.DirFS(p.Dir)
	config, problems := pack.Validate(dir, want)
	problems = append(problems, lint.Scripts(dir, config)...)
	if p.Index != nil {
		around, err := pkgimage.Around(p.Index)
		if err != nil {
			return verdict{}, err
		}
		problems = append(problems, around...)
	}
	problems = slices.DeleteFunc(problems, func(p pack.Problem) bool {
		return p.Severity == pack.Warning && slices.Contains(v.ignore, p.Rule)
	})
	drifted(problems, want)
	if v.strict {
		for i := range problems {
			problems[i].Severity = pack.Error
		}
	}
	if problems == nil {
		problems = pack.Problems{}
	}
	return verdict{
		Package: config.Name, Version: config.Version, Valid: !problems.Failed(),
		Errors: len(problems.Only(pack.Error)), Warnings: len(problems.Only(pack.Warning)),
		Problems: problems, Lifecycle: lint.Coverage(config),
	}, nil
}

// drifted makes an error of a tag that is another version. To the agent it is none, because so much was published like that;
// but whoever makes a package can correct it, and an upgrade is only seen by the version.
func drifted(problems pack.Problems, want pack.Want) {
	if _, err := pack.ParseVersion(want.Version); err != nil {
		return // dev, latest
	}
	for i, p := range problems {
		if p.Rule == "version-mismatch" {
			problems[i].Severity = pack.Error
		}
	}
}

// lifecycle is a table of what the steps cover.
func lifecycle(stages []lint.Stage) string {
	var rows [][]string
	for _, s := range stages {
		rows = append(rows, []string{string(s.Stage), number(s.Steps), number(s.Checks), s.Note})
	}
	return output.FormatTable([]string{"STAGE", "STEPS", "CHECKS", "NOTE"}, rows, nil)
}

// number is a number, or a dash for none.
func number(n int) string {
	if n == 0 {
		return "-"
	}
	return strconv.Itoa(n)
}

// wantOf is what a reference says of the package behind it; a reference without a tag says only the name.
func wantOf(ref name.Reference, tagged bool) pack.Want {
	tag, ok := ref.(name.Tag)
	if !ok {
		return pack.Want{}
	}
	want := pkgimage.WantOf(tag)
	if !tagged {
		want.Version = ""
	}
	return want
}

// reference reads a reference, and says whether it has a tag of its own.
func reference(r image.Registry, ref string) (name.Reference, bool, error) {
	out, err := r.Reference(ref)
	if err != nil {
		return nil, false, err
	}
	tag, ok := out.(name.Tag)
	if !ok {
		return nil, false, fmt.Errorf("reference %q has a digest: name a tag, or no more than the repository", ref)
	}
	_, err = name.NewTag(ref, name.StrictValidation)
	return tag, err == nil, nil
}
