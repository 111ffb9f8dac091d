// SPDX-FileCopyrightText: The Skyhook authors
// SPDX-License-Identifier: Apache-2.0

package pkgimage

import (
	"cmp"
	"crypto/sha1" //nolint:gosec // G505: SPDX asks for SHA-1 of every file
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	v1 "github.com/google/go-containerregistry/pkg/v1"

	"github.com/skyhook-k8s/skyhook/internal/image"
)

// SBOMType is the media type of the list of what an image consists of.
const SBOMType = "application/spdx+json"

// The parts of an SPDX 2.3 document that we write.
type (
	spdxDocument struct {
		Version       string             `json:"spdxVersion"`
		License       string             `json:"dataLicense"`
		ID            string             `json:"SPDXID"`
		Name          string             `json:"name"`
		Namespace     string             `json:"documentNamespace"`
		Creation      spdxCreation       `json:"creationInfo"`
		Packages      []spdxPackage      `json:"packages"`
		Files         []spdxFile         `json:"files"`
		Relationships []spdxRelationship `json:"relationships"`
	}
	spdxCreation struct {
		Created  string   `json:"created"`
		Creators []string `json:"creators"`
	}
	spdxPackage struct {
		Name             string            `json:"name"`
		ID               string            `json:"SPDXID"`
		Version          string            `json:"versionInfo,omitempty"`
		Location         string            `json:"downloadLocation"`
		FilesAnalyzed    bool              `json:"filesAnalyzed"`
		VerificationCode *spdxVerification `json:"packageVerificationCode,omitempty"`
		Checksums        []spdxChecksum    `json:"checksums,omitempty"`
		Concluded        string            `json:"licenseConcluded"`
		Declared         string            `json:"licenseDeclared"`
		Copyright        string            `json:"copyrightText"`
		Purpose          string            `json:"primaryPackagePurpose,omitempty"`
		References       []spdxReference   `json:"externalRefs,omitempty"`
	}
	spdxReference struct {
		Category string `json:"referenceCategory"`
		Type     string `json:"referenceType"`
		Locator  string `json:"referenceLocator"`
	}
	spdxVerification struct {
		Value string `json:"packageVerificationCodeValue"`
	}
	spdxFile struct {
		Name      string         `json:"fileName"`
		ID        string         `json:"SPDXID"`
		Checksums []spdxChecksum `json:"checksums"`
		Concluded string         `json:"licenseConcluded"`
		Copyright string         `json:"copyrightText"`
	}
	spdxChecksum struct {
		Algorithm string `json:"algorithm"`
		Value     string `json:"checksumValue"`
	}
	spdxRelationship struct {
		From string `json:"spdxElementId"`
		Type string `json:"relationshipType"`
		To   string `json:"relatedSpdxElement"`
	}
)

const (
	noAssertion = "NOASSERTION"
	documentID  = "SPDXRef-DOCUMENT"
	indexID     = "SPDXRef-index"
	baseID      = "SPDXRef-base"
)

// SBOM lists what the images of a package consist of, as SPDX 2.3: each image with the files of the package in it, and
// the image they stand on. It is made from the images alone, so the same images give the same bytes.
func SBOM(idx v1.ImageIndex) ([]byte, error) {
	manifest, err := idx.IndexManifest()
	if err != nil {
		return nil, fmt.Errorf("listing what the image consists of: %w", err)
	}
	digest, err := idx.Digest()
	if err != nil {
		return nil, fmt.Errorf("listing what the image consists of: %w", err)
	}
	label := func(key string) string { return manifest.Annotations["org.opencontainers.image."+key] }
	title, version := cmp.Or(label("title"), "package"), label("version")
	d := spdxDocument{
		Version: "SPDX-2.3", License: "CC0-1.0", ID: documentID, Name: title + "-" + version,
		Namespace: fmt.Sprintf("https://github.com/skyhook-k8s/skyhook/spdx/%s-%s-%s", title, version, digest.Hex),
		Creation:  spdxCreation{Creators: []string{"Tool: kubectl-skyhook"}},
		Packages: []spdxPackage{{
			Name: title, ID: indexID, Version: version, Location: noAssertion, Checksums: sha256Of(digest.Hex),
			Concluded: noAssertion, Declared: cmp.Or(label("licenses"), noAssertion), Copyright: noAssertion, Purpose: "CONTAINER",
		}},
		Files: []spdxFile{}, Relationships: []spdxRelationship{{documentID, "DESCRIBES", indexID}},
	}
	if base := label("base.digest"); base != "" {
		d.Packages = append(d.Packages, spdxPackage{
			Name: cmp.Or(label("base.name"), "base"), ID: baseID, Location: noAssertion, Checksums: sha256Of(strings.TrimPrefix(base, "sha256:")),
			Concluded: noAssertion, Declared: noAssertion, Copyright: noAssertion, Purpose: "CONTAINER",
		})
		d.Relationships = append(d.Relationships, spdxRelationship{indexID, "DESCENDANT_OF", baseID})
	}
	all, err := images(idx)
	if err != nil {
		return nil, err
	}
	for _, img := range all {
		if err := d.image(img, title, version); err != nil {
			return nil, fmt.Errorf("listing what the image for %s consists of: %w", img.platform, err)
		}
	}
	raw, err := json.MarshalIndent(d, "", " ")
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

func sha256Of(hex string) []spdxChecksum { return []spdxChecksum{{"SHA256", hex}} }

// image adds one image and the files of the package in it. A file that several images share is there once.
func (d *spdxDocument) image(img onPlatform, title, version string) error {
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
	if created := config.Created.UTC().Format(time.RFC3339); created > d.Creation.Created {
		d.Creation.Created = created
	}
	id := "SPDXRef-image-" + strings.Map(plain, img.platform)
	var sums []string
	contained := []spdxRelationship{{indexID, "CONTAINS", id}}
	for _, name := range slices.Sorted(maps.Keys(c.files)) {
		f := c.files[name]
		sums = append(sums, f.sha1)
		fileID := "SPDXRef-file-" + hexSum(name + "\n" + f.sha256)[:16]
		contained = append(contained, spdxRelationship{id, "CONTAINS", fileID})
		if !slices.ContainsFunc(d.Files, func(o spdxFile) bool { return o.ID == fileID }) {
			d.Files = append(d.Files, spdxFile{
				Name: "." + image.PackageDir + "/" + name, ID: fileID, Checksums: []spdxChecksum{{"SHA1", f.sha1}, {"SHA256", f.sha256}},
				Concluded: noAssertion, Copyright: noAssertion,
			})
		}
	}
	slices.Sort(sums)
	d.Packages = append(d.Packages, spdxPackage{
		Name: title + " (" + img.platform + ")", ID: id, Version: version, Location: noAssertion, FilesAnalyzed: true,
		VerificationCode: &spdxVerification{hexSum(strings.Join(sums, ""))}, Checksums: sha256Of(digest.Hex),
		Concluded: noAssertion, Declared: noAssertion, Copyright: noAssertion, Purpose: "CONTAINER",
	})
	d.Relationships = append(d.Relationships, contained...)
	return nil
}

// plain keeps what an SPDX identifier may have.
func plain(r rune) rune {
	if r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z' || r >= '0' && r <= '9' || r == '.' {
		return r
	}
	return '-'
}

// hexSum is the SHA-1 that SPDX verification codes are made of.
func hexSum(s string) string {
	sum := sha1.Sum([]byte(s)) //nolint:gosec // G401: SPDX asks for SHA-1
	return fmt.Sprintf("%x", sum[:])
}
