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
)

// shellImage is what packages stand on: sh, cp and mkdir, and nothing else.
const shellImage = "ghcr.io/skyhook-k8s/skyhook/shell"

// The shapes of an image that is no registry's.
const (
	shapeLayout  = "layout"
	shapeArchive = "archive"
	shapeFolder  = "folder"
)

// building is one build.
type building struct {
	registry  image.Registry
	ref       string
	base      string
	platforms []string
	push      bool
	shape, to string
	sbom      string
	asJSON    bool
	created   time.Time
	name      name.Tag // of the image
	problems  pack.Problems
}

// product is what came out of a build.
type product struct {
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

func (a *app) packageBuildCommand() *cobra.Command {
	var b building
	cmd := &cobra.Command{
		Use:   "build DIR -t REFERENCE",
		Short: "Build the image of a package from its folder",
		Long: "Build the image of a package from its folder, for several platforms at once, without Docker. The same folder, base and\n" +
			"platforms give the same digest. A reference without a tag gets the package's version as its tag.\n\n" +
			"The package stands on an image with sh, cp and mkdir: the one of this release, or --base. With --push the image goes\n" +
			"to its registry, and the list of what it consists of (SPDX) is attached to it there. Otherwise, or with -o as well,\n" +
			"it is written to a file or folder. The package is validated first; errors stop the build.\n\n" +
			"SOURCE_DATE_EPOCH in the environment sets the time of all files; without it that is 1970-01-01.",
		Example: "  kubectl skyhook package build ./motd -t ghcr.io/acme/motd --push\n" +
			"  kubectl skyhook package build ./motd -t ghcr.io/acme/motd:1.2.0 -o layout --to dist/motd --platform linux/amd64",
		Args: output.Args("DIR"),
		RunE: func(cmd *cobra.Command, args []string) error { return a.build(cmd.Context(), &b, args[0]) },
	}
	f := cmd.Flags()
	f.StringVarP(&b.ref, "tag", "t", "", "the image's `reference`; required")
	_ = cmd.MarkFlagRequired("tag")
	f.StringVar(&b.base, "base", a.defaultBase(), "the image below, as a `reference`, an OCI archive or an OCI layout folder")
	f.StringSliceVar(&b.platforms, "platform", []string{"linux/amd64", "linux/arm64"}, "build for these `platforms`")
	f.BoolVar(&b.push, "push", false, "push the image, and attach its SBOM")
	f.StringVarP(&b.shape, "output", "o", "", "write an OCI `archive|layout`; archive when nothing is pushed")
	f.StringVar(&b.to, "to", "", "the `path` to write to (default NAME-VERSION.tar or NAME-VERSION)")
	f.StringVar(&b.sbom, "sbom", "", "write the SBOM to this `file` too")
	f.BoolVar(&b.asJSON, "json", false, "print the result as JSON")
	registryFlags(cmd, &b.registry)
	return cmd
}

// release is a version that images are published for.
var release = regexp.MustCompile(`^v?[0-9]+\.[0-9]+\.[0-9]+(-(alpha|beta|rc)\.?[0-9]+)?$`)

// defaultBase is the shell image that belongs to the plugin; a development build has none.
func (a *app) defaultBase() string {
	if !release.MatchString(a.version) {
		return ""
	}
	return shellImage + ":" + a.version
}

func (a *app) build(ctx context.Context, b *building, dir string) error {
	if err := b.settle(os.Getenv("SOURCE_DATE_EPOCH")); err != nil {
		return err
	}
	config, err := b.check(dir)
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
	idx, err := b.image(ctx, dir)
	if err != nil {
		return err
	}
	out, err := b.describe(idx)
	if err != nil {
		return err
	}
	if err := a.deliver(ctx, b, idx, config, &out); err != nil {
		return err
	}
	return a.sayAs(b.asJSON, output.Answer{Value: out, Text: func(bool) string { return out.text() }})
}

// sayAs prints an answer of a command whose -o means something else.
func (a *app) sayAs(asJSON bool, ans output.Answer) error {
	a.Format = output.Table
	if asJSON {
		a.Format = output.JSON
	}
	return a.Print(ans)
}

// settle checks the flags that need no package.
func (b *building) settle(epoch string) error {
	if b.shape != "" && b.shape != shapeLayout && b.shape != shapeArchive {
		return fmt.Errorf("--output %q must be archive or layout", b.shape)
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

// check validates the folder and finds out the image's tag.
func (b *building) check(dir string) (pack.Config, error) {
	ref, tagged, err := reference(b.registry, b.ref)
	if err != nil {
		return pack.Config{}, err
	}
	if st, err := os.Stat(dir); err != nil || !st.IsDir() {
		return pack.Config{}, fmt.Errorf("building %s: it is not the folder of a package", dir)
	}
	want := wantOf(ref, tagged)
	config, problems := pack.Validate(os.DirFS(dir), want)
	drifted(problems, want)
	b.problems = append(problems, lint.Scripts(os.DirFS(dir), config)...)
	b.name = ref.(name.Tag)
	if !tagged {
		b.name = b.name.Context().Tag(pkgimage.Tag(config.Version))
	}
	return config, nil
}

// image builds the index.
func (b *building) image(ctx context.Context, dir string) (v1.ImageIndex, error) {
	var platforms []v1.Platform
	for _, text := range b.platforms {
		p, err := v1.ParsePlatform(text)
		if err != nil {
			return nil, fmt.Errorf("--platform %q: %w", text, err)
		}
		platforms = append(platforms, *p)
	}
	base, err := b.below(ctx)
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
	around, err := pkgimage.Around(idx)
	if err != nil {
		return nil, err
	}
	if err := around.Err(); err != nil {
		return nil, fmt.Errorf("building %s on %s: %w", dir, b.base, err)
	}
	return idx, nil
}

// below is the image the package stands on.
func (b *building) below(ctx context.Context) (image.Named, error) {
	if _, err := os.Stat(b.base); err == nil {
		images, err := image.ReadFile(b.base)
		if err != nil {
			return image.Named{}, fmt.Errorf("reading the image below: %w", err)
		}
		if len(images) != 1 {
			return image.Named{}, fmt.Errorf("reading the image below: %s holds %d images", b.base, len(images))
		}
		return images[0], nil
	}
	idx, err := b.registry.Pull(ctx, b.base)
	if err != nil {
		return image.Named{}, fmt.Errorf("reading the image below: %w", err)
	}
	return image.Named{Name: b.base, Index: idx}, nil
}

// describe lists what was built.
func (b *building) describe(idx v1.ImageIndex) (product, error) {
	list, err := listing(idx)
	if err != nil {
		return product{}, err
	}
	digest, err := idx.Digest()
	if err != nil {
		return product{}, err
	}
	problems := b.problems
	if problems == nil {
		problems = pack.Problems{}
	}
	return product{Reference: b.name.Name(), Digest: digest.String(), Images: list, Problems: problems}, nil
}

// listing are the images of an index.
func listing(idx v1.ImageIndex) ([]imageListing, error) {
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

// deliver writes and pushes what was built.
func (a *app) deliver(ctx context.Context, b *building, idx v1.ImageIndex, config pack.Config, out *product) error {
	sbom, err := pkgimage.Attachment(idx)
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
		if out.File, err = write(b.shape, b.to, config, image.Named{Name: b.name.Name(), Index: idx}, sbom); err != nil {
			return err
		}
	}
	if !b.push {
		return nil
	}
	out.SBOM, err = a.publish(ctx, b.registry, b.name.Name(), idx, sbom)
	out.Pushed = err == nil
	return err
}

// write writes an image as a file or folder, and returns where.
func write(shape, to string, config pack.Config, img image.Named, sbom image.Artifact) (string, error) {
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

// publish pushes an image and attaches its SBOM, and returns where that is.
func (a *app) publish(ctx context.Context, r image.Registry, ref string, idx v1.ImageIndex, sbom image.Artifact) (string, error) {
	a.Note("pushing %s", ref)
	if _, err := r.Push(ctx, ref, idx); err != nil {
		return "", err
	}
	a.Note("attaching the SBOM")
	return r.Attach(ctx, ref, idx, sbom)
}

func (p *product) text() string {
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
	return text + "\n" + imageTable(p.Images)
}

func imageTable(images []imageListing) string {
	var rows [][]string
	for _, i := range images {
		rows = append(rows, []string{i.Platform, i.Digest, size(i.Size)})
	}
	return output.FormatTable([]string{"PLATFORM", "DIGEST", "SIZE"}, rows, nil)
}

// size is a number of bytes for people.
func size(n int64) string {
	switch {
	case n < 1000:
		return fmt.Sprintf("%d B", n)
	case n < 1000_000:
		return fmt.Sprintf("%.1f kB", float64(n)/1000)
	}
	return fmt.Sprintf("%.1f MB", float64(n)/1000_000)
}
