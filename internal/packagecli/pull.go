// SPDX-FileCopyrightText: The Skyhook authors
// SPDX-License-Identifier: Apache-2.0

package packagecli

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/skyhook-k8s/skyhook/internal/image"
	"github.com/skyhook-k8s/skyhook/internal/output"
	"github.com/skyhook-k8s/skyhook/internal/pack"
	"github.com/skyhook-k8s/skyhook/internal/packagecli/pkgimage"
)

// pullOptions are the flags of package pull.
type pullOptions struct {
	registry            image.Registry
	shape, to, platform string
}

func (a *packageCommands) pullCommand() *cobra.Command {
	var p pullOptions
	cmd := &cobra.Command{
		Use:   "pull IMAGE",
		Short: "Fetch a package from a registry",
		Long: "Fetch a package from a registry: its folder, as it was built from, or the image as an OCI archive or layout. Existing\n" +
			"files are never overwritten.",
		Example: "  kubectl skyhook package pull ghcr.io/acme/motd:1.2.0\n" +
			"  kubectl skyhook package pull ghcr.io/acme/motd:1.2.0 --format archive --to motd.tar",
		Args: output.Args("IMAGE"),
		RunE: func(cmd *cobra.Command, args []string) error { return a.pullPackage(cmd.Context(), &p, args[0]) },
	}
	f := cmd.Flags()
	f.StringVar(&p.shape, "format", shapeFolder, "write the package's `folder`, or the image as archive or layout")
	a.AddOutputFlag(f, "format")
	f.StringVar(&p.to, "to", "", "the `path` to write to (default NAME-VERSION, with .tar for an archive)")
	f.StringVar(&p.platform, "platform", "", "take the folder from this `platform`, such as linux/arm64")
	a.addJSONFlag(f)
	registryFlags(cmd, &p.registry)
	return cmd
}

// localName returns the name of a new file or folder here for a package: strangers chose it, so it is never a path. It is empty when the
// package's name or version is not valid.
func localName(c pack.Config, problems pack.Problems) string {
	name := c.Name + "-" + c.Version
	isInvalid := func(p pack.Problem) bool { return p.Path == "$.package_name" || p.Path == "$.package_version" }
	if slices.ContainsFunc(problems.Only(pack.Error), isInvalid) || !filepath.IsLocal(name) || strings.ContainsAny(name, `/\`) {
		return ""
	}
	return name
}

func (a *packageCommands) pullPackage(ctx context.Context, p *pullOptions, ref string) (err error) {
	if p.shape != shapeFolder && p.shape != shapeLayout && p.shape != shapeArchive {
		return fmt.Errorf("--format %q must be folder, archive or layout", p.shape)
	}
	from, err := pkgimage.Open(ctx, p.registry, ref, p.platform)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, from.Close()) }()
	if from.Ref == nil {
		return fmt.Errorf("pulling %s: it is a file on this machine", ref)
	}
	config, problems := pack.Validate(os.DirFS(from.Dir), from.Want())
	for _, problem := range problems.Only(pack.Error) {
		fmt.Fprintln(a.ErrOut, problem)
	}
	to := cmp.Or(p.to, localName(config, problems))
	switch {
	case to == "":
		return fmt.Errorf("pulling %s: no file can be called after its name and version; name the target with --to", ref)
	case p.to == "" && p.shape == shapeArchive:
		to += ".tar"
	}
	if _, err := os.Lstat(to); err == nil {
		return fmt.Errorf("pulling %s: %s exists; remove it, or name another target with --to", ref, to)
	}
	digest, err := from.Index.Digest()
	if err != nil {
		return err
	}
	switch p.shape {
	case shapeFolder:
		if err = os.MkdirAll(filepath.Dir(to), 0o755); err == nil { //nolint:gosec // G301: a folder of the user's, who has an umask
			err = os.CopyFS(to, os.DirFS(from.Dir))
		}
	default:
		sbom, failed := pkgimage.SBOMArtifact(from.Index)
		if _, tooLarge := image.List(from.Index); tooLarge != nil {
			failed = fmt.Errorf("pulling %s: %w", ref, tooLarge)
		}
		if failed != nil {
			return failed
		}
		_, err = writeImage(p.shape, to, config, image.Named{Name: from.Ref.Name(), Index: from.Index}, sbom)
	}
	if err != nil {
		return fmt.Errorf("pulling %s: %w", ref, err)
	}
	return a.Print(output.Answer{
		Value: map[string]string{"reference": from.Ref.Name(), "digest": digest.String(), "package": config.Name, "version": config.Version, "file": to},
		Text:  func(bool) string { return fmt.Sprintf("pulled %s@%s to %s\n", from.Ref.Name(), digest, to) },
	})
}
