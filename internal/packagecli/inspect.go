// SPDX-FileCopyrightText: The Skyhook authors
// SPDX-License-Identifier: Apache-2.0

package packagecli

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net/http"
	"os"
	"strings"

	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/remote"
	"github.com/google/go-containerregistry/pkg/v1/remote/transport"
	"github.com/spf13/cobra"

	"github.com/skyhook-k8s/skyhook/internal/image"
	"github.com/skyhook-k8s/skyhook/internal/output"
	"github.com/skyhook-k8s/skyhook/internal/pack"
	"github.com/skyhook-k8s/skyhook/internal/packagecli/lint"
	"github.com/skyhook-k8s/skyhook/internal/packagecli/pkgimage"
)

// signatureType is the artifact type of what cosign sign attaches to an image.
const signatureType = "application/vnd.dev.sigstore.bundle.v0.3+json"

// inspectResult is the answer of package inspect.
type inspectResult struct {
	Package     string            `json:"package"`
	Version     string            `json:"version"`
	From        string            `json:"from"`
	Digest      string            `json:"digest,omitempty"`
	Base        string            `json:"base,omitempty"`
	Images      []imageListing    `json:"images,omitempty"`
	Annotations map[string]string `json:"annotations,omitempty"`
	SBOM        []string          `json:"sbom,omitempty"`
	Signatures  int               `json:"signatures,omitempty"` // stored beside the image, and not verified
	Valid       bool              `json:"valid"`
	Lifecycle   []lint.Stage      `json:"lifecycle"`
	Config      pack.Config       `json:"config"`
}

func (a *packageCommands) inspectCommand() *cobra.Command {
	var r image.Registry
	var platform string
	cmd := &cobra.Command{
		Use:   "inspect IMAGE|DIR",
		Short: "Show what is in a package",
		Long: "Show what is in a package: its steps, and for an image its digest, platforms, sizes, base and SBOM. IMAGE is a\n" +
			"reference, an OCI archive or an OCI layout folder. -o json has the whole config.json.",
		Example: "  kubectl skyhook package inspect ghcr.io/acme/motd:1.2.0\n" +
			"  kubectl skyhook package inspect ./motd -o json",
		Args: output.Args("IMAGE|DIR"),
		RunE: func(cmd *cobra.Command, args []string) error {
			return a.inspectPackage(cmd.Context(), r, args[0], platform)
		},
	}
	cmd.Flags().StringVar(&platform, "platform", "", "show the package of this `platform` of an image, such as linux/arm64")
	registryFlags(cmd, &r)
	return cmd
}

func (a *packageCommands) inspectPackage(ctx context.Context, r image.Registry, what, platform string) (err error) {
	p, err := pkgimage.Open(ctx, r, what, platform)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, p.Close()) }()
	config, problems := pack.Validate(os.DirFS(p.Dir), p.Want())
	out := inspectResult{
		Package: config.Name, Version: config.Version, From: what, Valid: !problems.Failed(),
		Lifecycle: lint.Coverage(config), Config: config,
	}
	if p.Index != nil {
		if err := out.addImageDetails(ctx, r, p); err != nil {
			return err
		}
	}
	return a.Print(output.Answer{
		Value: out, Names: output.WithKind("package", config.Name),
		Text: func(wide bool) string { return out.formatText(wide) },
	})
}

// addImageDetails adds digest, platforms, base and SBOM.
func (i *inspectResult) addImageDetails(ctx context.Context, r image.Registry, p *pkgimage.Package) error {
	digest, err := p.Index.Digest()
	if err != nil {
		return err
	}
	i.Digest = digest.String()
	if i.Images, err = listImages(p.Index); err != nil {
		return err
	}
	manifest, err := p.Index.IndexManifest()
	if err != nil {
		return err
	}
	i.Annotations = manifest.Annotations
	const base = "org.opencontainers.image.base."
	if d := i.Annotations[base+"digest"]; d != "" {
		i.Base = strings.TrimPrefix(i.Annotations[base+"name"]+"@"+d, "@")
	}
	if p.Ref == nil {
		return nil
	}
	if i.SBOM, err = r.Attached(ctx, p.From, digest, pkgimage.SBOMType); err != nil {
		return err
	}
	i.Signatures, err = countSignatures(ctx, r, p, digest)
	return err
}

// countSignatures counts the bundles that cosign attached, and the layers of the tag in which it keeps the older format.
func countSignatures(ctx context.Context, r image.Registry, p *pkgimage.Package, digest v1.Hash) (int, error) {
	bundles, err := r.Attached(ctx, p.From, digest, signatureType)
	if err != nil {
		return 0, err
	}
	img, err := remote.Image(p.Ref.Context().Tag(digest.Algorithm+"-"+digest.Hex+".sig"), r.RemoteOptions(ctx)...)
	var refused *transport.Error
	if errors.As(err, &refused) && refused.StatusCode == http.StatusNotFound {
		return len(bundles), nil
	}
	if err != nil {
		return 0, fmt.Errorf("reading the signatures of %s: %w", p.From, err)
	}
	layers, err := img.Layers()
	return len(bundles) + len(layers), err
}

func (i *inspectResult) formatSignatures() string {
	if i.Signatures == 0 {
		return ""
	}
	return output.Count(i.Signatures, "signature") + ", see cosign verify"
}

func (i *inspectResult) formatText(wide bool) string {
	text := fmt.Sprintf("Package:  %s %s\nFrom:     %s\n", cmp.Or(i.Package, "unknown"), i.Version, i.From)
	for _, line := range [][2]string{{"Digest", i.Digest}, {"Base", i.Base}, {"SBOM", strings.Join(i.SBOM, " ")}, {"Signed", i.formatSignatures()}, {"Privileges", strings.Join(i.Config.Privileges, ", ")}} {
		if line[1] != "" {
			text += fmt.Sprintf("%-9s %s\n", line[0]+":", line[1])
		}
	}
	if !i.Valid {
		text += "It is not valid: see package validate\n"
	}
	if len(i.Config.ExpectedConfigFiles) > 0 {
		text += "Expects:  " + strings.Join(i.Config.ExpectedConfigFiles, ", ") + "\n"
	}
	if i.Config.RefusesRollback() {
		text += "Rollback: refused, nodes do not go back from this version\n"
	}
	if len(i.Images) > 0 {
		text += "\n" + formatImages(i.Images)
	}
	header, rows := []string{"MODE", "STEP", "FILE", "ARGUMENTS"}, [][]string{}
	if wide {
		header = append(header, "TIMEOUT", "RETURNCODES", "IDEMPOTENCE")
	}
	for _, m := range pack.Modes() {
		for _, s := range i.Config.Steps(m) {
			row := []string{string(m), s.Name, s.File(), strings.Join(s.Arguments, " ")}
			if wide {
				timeout := "-"
				if s.Timeout > 0 {
					timeout = s.Timeout.String()
				}
				row = append(row, timeout, strings.Trim(fmt.Sprint(s.ReturnCodes), "[]"), fmt.Sprint(s.Idempotence))
			}
			rows = append(rows, row)
		}
	}
	return text + "\n" + output.FormatTable(header, rows, nil)
}
