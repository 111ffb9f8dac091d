// SPDX-FileCopyrightText: The Skyhook authors
// SPDX-License-Identifier: Apache-2.0

package pkgimage

import (
	"cmp"
	"crypto/sha1" //nolint:gosec // G505: SPDX asks for SHA-1 of every file
	"encoding/json"
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strings"
	"time"

	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/spdx/tools-golang/spdx/v2/common"
	spdx "github.com/spdx/tools-golang/spdx/v2/v2_3"

	"github.com/skyhook-k8s/skyhook/internal/image"
)

// SBOMType is the media type of the list of what an image consists of.
const SBOMType = "application/spdx+json"

const (
	noAssertion = "NOASSERTION"

	documentID common.ElementID = "DOCUMENT"
	indexID    common.ElementID = "index"
	baseID     common.ElementID = "base"
)

// SBOM returns an SPDX 2.3 document about the images of a package: each image with the files of the package in it, and
// the base image. The same images give the same bytes.
func SBOM(idx v1.ImageIndex) ([]byte, error) {
	d, err := newImageDocument(idx)
	if err != nil {
		return nil, fmt.Errorf("creating the SBOM: %w", err)
	}
	all, err := images(idx)
	if err != nil {
		return nil, err
	}
	for _, img := range all {
		if err := d.addImage(img); err != nil {
			return nil, fmt.Errorf("creating the SBOM of the image for %s: %w", img.platform, err)
		}
	}
	return d.encode()
}

// imageDocument is the SBOM of an image index under construction.
type imageDocument struct {
	document
	title, version string
}

func newImageDocument(idx v1.ImageIndex) (*imageDocument, error) {
	manifest, err := idx.IndexManifest()
	if err != nil {
		return nil, err
	}
	digest, err := idx.Digest()
	if err != nil {
		return nil, err
	}
	label := func(key string) string { return manifest.Annotations["org.opencontainers.image."+key] }
	title, version := cmp.Or(label("title"), "package"), label("version")
	d := &imageDocument{newDocument(title, version, digest.Hex, "kubectl-skyhook"), title, version}
	index := newPackage(title, version, indexID, "CONTAINER", digest.Hex)
	index.PackageLicenseDeclared = cmp.Or(label("licenses"), noAssertion)
	d.Packages = append(d.Packages, index)
	d.relate(documentID, "DESCRIBES", indexID)
	if base := label("base.digest"); base != "" {
		d.Packages = append(d.Packages, newPackage(cmp.Or(label("base.name"), "base"), "", baseID, "CONTAINER", strings.TrimPrefix(base, "sha256:")))
		d.relate(indexID, "DESCENDANT_OF", baseID)
	}
	return d, nil
}

// document adds helpers to an SPDX document.
type document struct{ *spdx.Document }

func newDocument(title, version, digest, tool string) document {
	return document{&spdx.Document{
		SPDXVersion: spdx.Version, DataLicense: spdx.DataLicense, SPDXIdentifier: documentID, DocumentName: title + "-" + version,
		DocumentNamespace: fmt.Sprintf("https://github.com/skyhook-k8s/skyhook/spdx/%s-%s-%s", title, version, digest),
		CreationInfo:      &spdx.CreationInfo{Creators: []common.Creator{{CreatorType: "Tool", Creator: tool}}},
	}}
}

// newPackage returns a package about whose licence and copyright nothing is stated; sum is its SHA-256, if it has one.
func newPackage(name, version string, id common.ElementID, purpose, sum string) *spdx.Package {
	p := &spdx.Package{
		PackageName: name, PackageSPDXIdentifier: id, PackageVersion: version, PackageDownloadLocation: noAssertion,
		PackageLicenseConcluded: noAssertion, PackageLicenseDeclared: noAssertion, PackageCopyrightText: noAssertion,
		PrimaryPackagePurpose: purpose,
	}
	if sum != "" {
		p.PackageChecksums = []common.Checksum{{Algorithm: common.SHA256, Value: sum}}
	}
	return p
}

func (d document) relate(from common.ElementID, relation string, to common.ElementID) {
	d.Relationships = append(d.Relationships, &spdx.Relationship{
		RefA: common.DocElementID{ElementRefID: from}, Relationship: relation, RefB: common.DocElementID{ElementRefID: to},
	})
}

func (d document) encode() ([]byte, error) {
	raw, err := json.MarshalIndent(d.Document, "", " ")
	if err != nil {
		return nil, err
	}
	return append(raw, '\n'), nil
}

// SBOMArtifact returns the SBOM to attach to the image.
func SBOMArtifact(idx v1.ImageIndex) (image.Artifact, error) {
	raw, err := SBOM(idx)
	return image.Artifact{Type: SBOMType, Content: raw}, err
}

// addImage adds one image and the files of the package in it. A file that several images share is added once.
func (d *imageDocument) addImage(img onPlatform) error {
	config, err := img.ConfigFile()
	if err != nil {
		return err
	}
	digest, err := img.Digest()
	if err != nil {
		return err
	}
	c, err := readContent(img)
	if err != nil {
		return err
	}
	d.CreationInfo.Created = max(d.CreationInfo.Created, config.Created.UTC().Format(time.RFC3339))
	id := "image-" + toElementID(img.platform)
	d.relate(indexID, "CONTAINS", id)
	var sums []string
	for _, name := range slices.Sorted(maps.Keys(c.files)) {
		f := c.files[name]
		sums = append(sums, f.sha1)
		d.relate(id, "CONTAINS", d.addFile(name, f))
	}
	slices.Sort(sums)
	p := newPackage(d.title+" ("+img.platform+")", d.version, id, "CONTAINER", digest.Hex)
	p.FilesAnalyzed = true
	p.PackageVerificationCode = &common.PackageVerificationCode{Value: sha1Hex(strings.Join(sums, ""))}
	d.Packages = append(d.Packages, p)
	return nil
}

func (d *imageDocument) addFile(name string, f file) common.ElementID {
	id := common.ElementID("file-" + sha1Hex(name + "\n" + f.sha256)[:16])
	if !slices.ContainsFunc(d.Files, func(o *spdx.File) bool { return o.FileSPDXIdentifier == id }) {
		d.Files = append(d.Files, &spdx.File{
			FileName: "." + image.PackageDir + "/" + name, FileSPDXIdentifier: id,
			Checksums:        []common.Checksum{{Algorithm: common.SHA1, Value: f.sha1}, {Algorithm: common.SHA256, Value: f.sha256}},
			LicenseConcluded: noAssertion, FileCopyrightText: noAssertion,
		})
	}
	return id
}

// toElementID replaces the characters that an SPDX identifier may not have.
func toElementID(text string) common.ElementID {
	return common.ElementID(invalidInID.ReplaceAllString(text, "-"))
}

var invalidInID = regexp.MustCompile(`[^a-zA-Z0-9.]`)

// sha1Hex returns the SHA-1 that SPDX uses for verification codes.
func sha1Hex(text string) string {
	return fmt.Sprintf("%x", sha1.Sum([]byte(text))) //nolint:gosec // G401: SPDX asks for SHA-1
}
