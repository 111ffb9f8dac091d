// SPDX-FileCopyrightText: The Skyhook authors
// SPDX-License-Identifier: Apache-2.0

package packagecli

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"

	"github.com/google/go-containerregistry/pkg/name"
	"github.com/spf13/cobra"

	"github.com/skyhook-k8s/skyhook/internal/image"
	"github.com/skyhook-k8s/skyhook/internal/output"
	"github.com/skyhook-k8s/skyhook/internal/pack"
	"github.com/skyhook-k8s/skyhook/internal/packagecli/pkgimage"
)

func (a *packageCommands) pushCommand() *cobra.Command {
	var r image.Registry
	cmd := &cobra.Command{
		Use:   "push ARCHIVE|LAYOUT REFERENCE",
		Short: "Push the image of a package that was built before",
		Long: "Push the image of a package that was built before, and attach its SBOM (SPDX). A\n" +
			"reference without a tag gets the package's version as its tag. The digest is the one that was built.",
		Example: "  kubectl skyhook package push motd-1.2.0.tar ghcr.io/acme/motd",
		Args:    output.Args("ARCHIVE|LAYOUT", "REFERENCE"),
		RunE: func(cmd *cobra.Command, args []string) error {
			return a.pushImage(cmd.Context(), r, args[0], args[1])
		},
	}
	a.addJSONFlag(cmd.Flags())
	registryFlags(cmd, &r)
	cmd.Flags().BoolVar(&r.Overwrite, "overwrite", false, "move a tag that is published with another image")
	return cmd
}

func (a *packageCommands) pushImage(ctx context.Context, r image.Registry, file, ref string) (err error) {
	to, tagged, err := parseReference(r, ref)
	if err != nil {
		return err
	}
	if _, err := os.Stat(file); err != nil {
		return fmt.Errorf("pushing %s: %w", file, err)
	}
	p, err := pkgimage.Open(ctx, r, file, "")
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, p.Close()) }()
	if p.Index == nil {
		return fmt.Errorf("pushing %s: it is the folder of a package, not an image; push it with package build %s -t %s --push", file, file, ref)
	}
	config, problems := pack.Validate(os.DirFS(p.Dir), wantFromReference(to, tagged))
	for _, p := range problems {
		if p.Rule == "version-mismatch" || p.Rule == "name-mismatch" {
			fmt.Fprintln(a.ErrOut, p)
		}
	}
	if !tagged {
		if config.Version == "" {
			return fmt.Errorf("pushing %s: it has no version; give the reference a tag", file)
		}
		to = to.(name.Tag).Context().Tag(pkgimage.Tag(config.Version))
	}
	sbom, err := pkgimage.SBOMArtifact(p.Index)
	list, unlisted := listImages(p.Index)
	digest, unknown := p.Index.Digest()
	if err := cmp.Or(err, unlisted, unknown); err != nil {
		return err
	}
	out := buildResult{Reference: to.Name(), Digest: digest.String(), Images: list, Pushed: true, Problems: pack.Problems{}}
	if out.SBOM, err = a.pushWithSBOM(ctx, r, to.Name(), p.Index, sbom); err != nil {
		return err
	}
	return a.Print(output.Answer{Value: out, Text: func(bool) string { return out.formatText() }})
}
