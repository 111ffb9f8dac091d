// SPDX-FileCopyrightText: The Skyhook authors
// SPDX-License-Identifier: Apache-2.0

package packagecli

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"time"

	"github.com/google/go-containerregistry/pkg/name"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/spf13/cobra"

	"github.com/skyhook-k8s/skyhook/internal/image"
	"github.com/skyhook-k8s/skyhook/internal/output"
	"github.com/skyhook-k8s/skyhook/internal/pack"
	"github.com/skyhook-k8s/skyhook/internal/packagecli/lint"
	"github.com/skyhook-k8s/skyhook/internal/packagecli/pkgimage"
	"github.com/skyhook-k8s/skyhook/internal/published"
)

// The formats of an image on disk.
const (
	shapeLayout  = "layout"
	shapeArchive = "archive"
	shapeFolder  = "folder"
)

// buildOptions are the flags of package build.
type buildOptions struct {
	registry  image.Registry
	ref       string
	base      string
	platforms []string
	push      bool
	shape, to string
	sbom      string
	created   time.Time
	name      name.Tag // of the image
	problems  pack.Problems
}

// buildResult is the answer of package build and push.
type buildResult struct {
	Reference string         `json:"reference"`
	Digest    string         `json:"digest"`
	Pushed    bool           `json:"pushed"`
	File      string         `json:"file,omitempty"`
	SBOM      string         `json:"sbom,omitempty"`
	Images    []imageListing `json:"images"`
	Problems  pack.Problems  `json:"problems"`
}

// imageListing is one image of an index.
type imageListing struct {
	Platform string `json:"platform"`
	Digest   string `json:"digest"`
	Size     int64  `json:"size"`
}

func (a *packageCommands) buildCommand() *cobra.Command {
	var b buildOptions
	cmd := &cobra.Command{
		Use:   "build DIR -t REFERENCE",
		Short: "Build the image of a package from its folder",
		Long: "Build the image of a package from its folder, for several platforms at once, without Docker. The same folder, base and\n" +
			"platforms give the same digest. A reference without a tag gets the package's version as its tag.\n\n" +
			"The base image needs sh, cp and mkdir: it is skyhook-shell.tar beside this program, the one of this release, or --base.\n" +
			"With --push the image is pushed to its registry, with its SBOM (SPDX) attached. Otherwise, or with --format as well, it\n" +
			"is written to a file or folder. The package is validated first; errors stop the build.\n\n" +
			"SOURCE_DATE_EPOCH in the environment sets the time of all files; without it that is 1970-01-01.",
		Example: "  kubectl skyhook package build ./motd -t ghcr.io/acme/motd --push\n" +
			"  kubectl skyhook package build ./motd -t ghcr.io/acme/motd:1.2.0 --format layout --to dist/motd --platform linux/amd64",
		Args: output.Args("DIR"),
		RunE: func(cmd *cobra.Command, args []string) error { return a.buildPackage(cmd.Context(), &b, args[0]) },
	}
	f := cmd.Flags()
	f.StringVarP(&b.ref, "tag", "t", "", "the image's `reference`; required")
	_ = cmd.MarkFlagRequired("tag")
	f.StringVar(&b.base, "base", a.defaultBaseImage(), "the base image, as a `reference`, an OCI archive or an OCI layout folder")
	f.StringSliceVar(&b.platforms, "platform", []string{"linux/amd64", "linux/arm64"}, "build for these `platforms`")
	f.BoolVar(&b.push, "push", false, "push the image, and attach its SBOM")
	f.StringVar(&b.shape, "format", "", "write an OCI `archive|layout`; archive when nothing is pushed")
	a.AddOutputFlag(f, "format")
	f.StringVar(&b.to, "to", "", "the `path` to write to (default NAME-VERSION.tar or NAME-VERSION)")
	f.StringVar(&b.sbom, "sbom", "", "write the SBOM to this `file` too")
	a.addJSONFlag(f)
	registryFlags(cmd, &b.registry)
	cmd.Flags().BoolVar(&b.registry.Overwrite, "overwrite", false, "with --push: move a tag that is published with another image")
	return cmd
}

// releaseVersion matches versions with published images.
var releaseVersion = regexp.MustCompile(`^v?[0-9]+\.[0-9]+\.[0-9]+(-(alpha|beta|rc)\.?[0-9]+)?$`)

// defaultBaseImage returns the shell image, little more than sh, cp and mkdir: the one beside this program, or that of its release.
func (a *packageCommands) defaultBaseImage() string {
	if file := findBeside("skyhook-shell.tar"); file != "" || !releaseVersion.MatchString(a.version) {
		return file
	}
	return published.Images + "/shell:" + a.version
}

func (a *packageCommands) buildPackage(ctx context.Context, b *buildOptions, dir string) error {
	if err := b.complete(os.Getenv("SOURCE_DATE_EPOCH")); err != nil {
		return err
	}
	config, err := b.validateFolder(dir)
	if err != nil {
		return err
	}
	if b.problems.Failed() {
		fmt.Fprint(a.ErrOut, b.problems.Text())
		return output.ProblemsFound()
	}
	for _, p := range b.problems {
		fmt.Fprintln(a.ErrOut, p)
	}
	idx, err := b.buildIndex(ctx, dir)
	if err != nil {
		return err
	}
	out, err := b.newResult(idx)
	if err != nil {
		return err
	}
	if err := a.writeAndPush(ctx, b, idx, config, &out); err != nil {
		return err
	}
	return a.Print(output.Answer{Value: out, Text: func(bool) string { return out.formatText() }})
}

// complete checks the flags and fills in defaults.
func (b *buildOptions) complete(epoch string) error {
	if b.shape != "" && b.shape != shapeLayout && b.shape != shapeArchive {
		return fmt.Errorf("--format %q must be archive or layout", b.shape)
	}
	if b.shape == "" && !b.push {
		b.shape = shapeArchive
	}
	if b.base == "" {
		return errors.New("--base is missing: this is a development build of the plugin, for which no base image is published; name an image with sh, cp and mkdir")
	}
	if epoch == "" {
		return nil
	}
	seconds, err := strconv.ParseInt(epoch, 10, 64)
	if err != nil || seconds < 0 {
		return fmt.Errorf("SOURCE_DATE_EPOCH %q is not a number of seconds since 1970", epoch)
	}
	b.created = time.Unix(seconds, 0)
	return nil
}

// validateFolder validates the package and determines the image's tag.
func (b *buildOptions) validateFolder(dir string) (pack.Config, error) {
	ref, tagged, err := parseReference(b.registry, b.ref)
	if err != nil {
		return pack.Config{}, err
	}
	if st, err := os.Stat(dir); err != nil || !st.IsDir() {
		return pack.Config{}, fmt.Errorf("building %s: it is not the folder of a package", dir)
	}
	want := wantFromReference(ref, tagged)
	config, problems := pack.Validate(os.DirFS(dir), want)
	raiseVersionMismatch(problems, want)
	b.problems = append(problems, lint.Scripts(os.DirFS(dir), config)...)
	b.name = ref.(name.Tag)
	if !tagged {
		b.name = b.name.Context().Tag(pkgimage.Tag(config.Version))
	}
	return config, nil
}

// buildIndex builds the image index.
func (b *buildOptions) buildIndex(ctx context.Context, dir string) (v1.ImageIndex, error) {
	var platforms []v1.Platform
	for _, text := range b.platforms {
		p, err := v1.ParsePlatform(text)
		if err != nil {
			return nil, fmt.Errorf("--platform %q: %w", text, err)
		}
		platforms = append(platforms, *p)
	}
	base, err := b.openBaseImage(ctx)
	if err != nil {
		return nil, err
	}
	recipe, err := image.Package(dir, base)
	if err != nil {
		return nil, err
	}
	recipe.Created = b.created
	idx, err := image.Build(recipe, platforms)
	if err != nil {
		return nil, fmt.Errorf("building %s on %s: %w", dir, b.base, err)
	}
	around, err := pkgimage.CheckSurroundings(idx)
	if err != nil {
		return nil, err
	}
	if err := around.Err(); err != nil {
		return nil, fmt.Errorf("building %s on %s: %w", dir, b.base, err)
	}
	return idx, nil
}

// openBaseImage opens the base image.
func (b *buildOptions) openBaseImage(ctx context.Context) (image.Named, error) {
	if _, err := os.Stat(b.base); err == nil {
		return pkgimage.ReadSingle(b.base)
	}
	idx, err := b.registry.Pull(ctx, b.base)
	if err != nil {
		return image.Named{}, fmt.Errorf("reading the base image: %w", err)
	}
	return image.Named{Name: b.base, Index: idx}, nil
}

// newResult describes the built index.
func (b *buildOptions) newResult(idx v1.ImageIndex) (buildResult, error) {
	list, err := listImages(idx)
	if err != nil {
		return buildResult{}, err
	}
	digest, err := idx.Digest()
	if err != nil {
		return buildResult{}, err
	}
	problems := append(pack.Problems{}, b.problems...)
	return buildResult{Reference: b.name.Name(), Digest: digest.String(), Images: list, Problems: problems}, nil
}

// listImages returns the images of an index.
func listImages(idx v1.ImageIndex) ([]imageListing, error) {
	lines, err := image.List(idx)
	if err != nil {
		return nil, err
	}
	var out []imageListing
	for _, l := range lines {
		if l.Platform != "" {
			out = append(out, imageListing{l.Platform, l.Digest.String(), l.Size})
		}
	}
	return out, nil
}

// writeAndPush writes and pushes the built index as requested.
func (a *packageCommands) writeAndPush(ctx context.Context, b *buildOptions, idx v1.ImageIndex, config pack.Config, out *buildResult) error {
	sbom, err := pkgimage.SBOMArtifact(idx)
	if err != nil {
		return err
	}
	if b.sbom != "" {
		if err := os.WriteFile(b.sbom, sbom.Content, 0o644); err != nil { //nolint:gosec // G306: an SBOM is for everybody to read
			return fmt.Errorf("writing the SBOM: %w", err)
		}
		out.SBOM = b.sbom
	}
	if b.shape != "" {
		if out.File, err = writeImage(b.shape, b.to, config, image.Named{Name: b.name.Name(), Index: idx}, sbom); err != nil {
			return err
		}
	}
	if !b.push {
		return nil
	}
	out.SBOM, err = a.pushWithSBOM(ctx, b.registry, b.name.Name(), idx, sbom)
	out.Pushed = err == nil
	return err
}

// writeImage writes an image as an archive or a layout and returns the path.
func writeImage(shape, to string, config pack.Config, img image.Named, sbom image.Artifact) (string, error) {
	if to == "" {
		to = config.Name + "-" + config.Version
		if shape == shapeArchive {
			to += ".tar"
		}
	}
	to = filepath.Clean(to)
	if shape == shapeArchive {
		return to, image.WriteArchiveFile(to, img)
	}
	if err := image.WriteLayout(to, img); err != nil {
		return "", err
	}
	return to, image.AttachInLayout(to, img.Index, sbom)
}

// pushWithSBOM pushes an image, attaches its SBOM and returns the reference of the SBOM.
func (a *packageCommands) pushWithSBOM(ctx context.Context, r image.Registry, ref string, idx v1.ImageIndex, sbom image.Artifact) (string, error) {
	a.Note("pushing %s", ref)
	if _, err := r.Push(ctx, ref, idx); err != nil {
		return "", err
	}
	a.Note("attaching the SBOM")
	return r.Attach(ctx, ref, idx, sbom)
}

func (p *buildResult) formatText() string {
	verb := "built"
	if p.Pushed {
		verb = "pushed"
	}
	text := fmt.Sprintf("%s %s@%s\n", verb, p.Reference, p.Digest)
	if p.File != "" {
		text += "written to " + p.File + "\n"
	}
	if p.SBOM != "" {
		text += "SBOM " + p.SBOM + "\n"
	}
	return text + "\n" + formatImages(p.Images)
}

func formatImages(images []imageListing) string {
	var rows [][]string
	for _, i := range images {
		rows = append(rows, []string{i.Platform, i.Digest, formatSize(i.Size)})
	}
	return output.FormatTable([]string{"PLATFORM", "DIGEST", "SIZE"}, rows, nil)
}

// formatSize formats a number of bytes.
func formatSize(n int64) string {
	switch {
	case n < 1000:
		return fmt.Sprintf("%d B", n)
	case n < 1000_000:
		return fmt.Sprintf("%.1f kB", float64(n)/1000)
	}
	return fmt.Sprintf("%.1f MB", float64(n)/1000_000)
}
