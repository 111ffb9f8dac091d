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

// validateOptions are the flags of package validate.
type validateOptions struct {
	registry image.Registry
	platform string
	tag      string
	strict   bool
	ignore   []string // rules
}

// validateResult is the answer of package validate.
type validateResult struct {
	Package   string        `json:"package,omitempty"`
	Version   string        `json:"version,omitempty"`
	Valid     bool          `json:"valid"`
	Errors    int           `json:"errors"`
	Warnings  int           `json:"warnings"`
	Problems  pack.Problems `json:"problems"`
	Lifecycle []lint.Stage  `json:"lifecycle"`
}

func (a *packageCommands) validateCommand() *cobra.Command {
	var v validateOptions
	cmd := &cobra.Command{
		Use:   "validate DIR|IMAGE",
		Short: "Check a package and print all problems",
		Long: "Check a package and print all problems: against the rules of the agent, in the shell code of its scripts, and for an\n" +
			"image also outside of the package. A table shows which stages have steps and checks.\n\n" +
			"DIR is a folder with a config.json; IMAGE a reference, an OCI archive or an OCI layout folder. The version is\n" +
			"compared with the image's tag, or with --tag: a tag that is another version is an error.",
		Example: "  kubectl skyhook package validate ./motd\n" +
			"  kubectl skyhook package validate ./motd --tag 1.2.0 --strict -o json\n" +
			"  kubectl skyhook package validate ghcr.io/acme/motd:1.2.0",
		Args: output.Args("DIR|IMAGE"),
		RunE: func(cmd *cobra.Command, args []string) error { return a.validatePackage(cmd.Context(), &v, args[0]) },
	}
	registryFlags(cmd, &v.registry)
	cmd.Flags().StringVar(&v.platform, "platform", "", "check the package of this `platform` of an image, such as linux/arm64")
	cmd.Flags().StringVar(&v.tag, "tag", "", "the `version` the package is used as")
	cmd.Flags().BoolVar(&v.strict, "strict", false, "treat warnings as errors")
	cmd.Flags().StringArrayVar(&v.ignore, "ignore", nil, "do not warn of this `rule`; may be repeated")
	return cmd
}

// registryFlags adds the flags for registries. Credentials are those of docker login and podman login.
func registryFlags(cmd *cobra.Command, r *image.Registry) {
	cmd.Flags().BoolVar(&r.PlainHTTP, "plain-http", false, "use plain HTTP for registries")
}

func (a *packageCommands) validatePackage(ctx context.Context, v *validateOptions, what string) error {
	p, err := pkgimage.Open(ctx, v.registry, what, v.platform)
	if err != nil {
		return err
	}
	said, err := v.checkPackage(p)
	if err = errors.Join(err, p.Close()); err != nil {
		return err
	}
	err = a.Print(output.Answer{
		Value: said, Names: output.WithKind("package", said.Package),
		Text: func(bool) string { return said.Problems.Text() + "\n" + formatLifecycle(said.Lifecycle) },
	})
	if err != nil {
		return err
	}
	if !said.Valid {
		return output.ProblemsFound()
	}
	return nil
}

// checkPackage applies every rule to a package.
func (v *validateOptions) checkPackage(p *pkgimage.Package) (validateResult, error) {
	want := p.Want()
	if v.tag != "" {
		want.Version = v.tag
	}
	dir := os.DirFS(p.Dir)
	config, problems := pack.Validate(dir, want)
	problems = append(append(pack.Problems{}, problems...), lint.Scripts(dir, config)...)
	if p.Index != nil {
		around, err := pkgimage.CheckSurroundings(p.Index)
		if err != nil {
			return validateResult{}, err
		}
		problems = append(problems, around...)
	}
	problems = slices.DeleteFunc(problems, func(p pack.Problem) bool {
		return p.Severity == pack.Warning && slices.Contains(v.ignore, p.Rule)
	})
	raiseVersionMismatch(problems, want)
	if v.strict {
		for i := range problems {
			problems[i].Severity = pack.Error
		}
	}
	return validateResult{
		Package: config.Name, Version: config.Version, Valid: !problems.Failed(),
		Errors: len(problems.Only(pack.Error)), Warnings: len(problems.Only(pack.Warning)),
		Problems: problems, Lifecycle: lint.Coverage(config),
	}, nil
}

// raiseVersionMismatch makes an error of a tag that differs from the version. The agent accepts it because such images were
// published, but an author can correct it, and upgrades are detected by the version.
func raiseVersionMismatch(problems pack.Problems, want pack.Want) {
	if _, err := pack.ParseVersion(want.Version); err != nil {
		return // dev, latest
	}
	for i, p := range problems {
		if p.Rule == "version-mismatch" {
			problems[i].Severity = pack.Error
		}
	}
}

// formatLifecycle formats the coverage of the stages as a table.
func formatLifecycle(stages []lint.Stage) string {
	var rows [][]string
	for _, s := range stages {
		rows = append(rows, []string{string(s.Stage), formatCount(s.Steps), formatCount(s.Checks), s.Note})
	}
	return output.FormatTable([]string{"STAGE", "STEPS", "CHECKS", "NOTE"}, rows, nil)
}

// formatCount returns a number, or a dash for zero.
func formatCount(n int) string {
	if n == 0 {
		return "-"
	}
	return strconv.Itoa(n)
}

// wantFromReference returns the name and version that a reference implies; without a tag only the name.
func wantFromReference(ref name.Reference, tagged bool) pack.Want {
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

// parseReference parses a reference and reports whether it has an explicit tag.
func parseReference(r image.Registry, ref string) (name.Reference, bool, error) {
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
