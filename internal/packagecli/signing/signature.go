// SPDX-FileCopyrightText: The Skyhook authors
// SPDX-License-Identifier: Apache-2.0

// Package signing signs images and verifies them, with a key or keyless, by the libraries of sigstore. Signatures are
// stored as cosign stores them, beside the image in its registry, so that cosign and admission controllers read them.
package signing

import (
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"encoding/pem"
	"fmt"

	"github.com/google/go-containerregistry/pkg/name"
	protobundle "github.com/sigstore/protobuf-specs/gen/pb-go/bundle/v1"
	protocommon "github.com/sigstore/protobuf-specs/gen/pb-go/common/v1"
	protorekor "github.com/sigstore/protobuf-specs/gen/pb-go/rekor/v1"
	"github.com/sigstore/sigstore/pkg/signature/payload"
)

// Annotations of a layer that has a signature. They belong to the format of cosign.
const (
	annotationSignature   = "dev.cosignproject.cosign/signature"
	annotationCertificate = "dev.sigstore.cosign/certificate"
	annotationChain       = "dev.sigstore.cosign/chain"
	annotationBundle      = "dev.sigstore.cosign/bundle"
)

// Signature is one signature of an image.
type Signature struct {
	Payload     []byte // what is signed: names the digest of the image
	Value       []byte
	Certificate string // of a keyless signature, as PEM
	Chain       string // above the certificate, as PEM
	LogEntry    string // of the transparency log, as JSON; empty for none
}

// NewPayload returns what is signed for an image.
func NewPayload(image name.Digest, annotations map[string]string) ([]byte, error) {
	optional := map[string]any{}
	for key, value := range annotations {
		optional[key] = value
	}
	if len(optional) == 0 {
		optional = nil
	}
	raw, err := payload.Cosign{Image: image, Annotations: optional}.MarshalJSON()
	if err != nil {
		return nil, fmt.Errorf("writing what is signed for %s: %w", image, err)
	}
	return raw, nil
}

// claims returns the digest that a payload names, and its annotations.
func (s Signature) claims() (digest string, annotations map[string]any, err error) {
	var p payload.SimpleContainerImage
	if err := json.Unmarshal(s.Payload, &p); err != nil {
		return "", nil, fmt.Errorf("reading what is signed: %w", err)
	}
	if p.Critical.Type != payload.CosignSignatureType {
		return "", nil, fmt.Errorf("what is signed has the type %q, and not %q", p.Critical.Type, payload.CosignSignatureType)
	}
	return p.Critical.Image.DockerManifestDigest, p.Optional, nil
}

// logEntry is an entry of the transparency log, as cosign stores it.
type logEntry struct {
	SignedEntryTimestamp []byte
	Payload              struct {
		Body           string `json:"body"` // in base64
		IntegratedTime int64  `json:"integratedTime"`
		LogIndex       int64  `json:"logIndex"`
		LogID          string `json:"logID"` // in hexadecimal digits
	}
}

// fromBundle returns the signature of a bundle over a payload.
func fromBundle(signed []byte, b *protobundle.Bundle) (Signature, error) {
	out := Signature{Payload: signed, Value: b.GetMessageSignature().GetSignature()}
	if c := b.GetVerificationMaterial().GetCertificate(); c != nil {
		out.Certificate = string(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: c.GetRawBytes()}))
	}
	for _, e := range b.GetVerificationMaterial().GetTlogEntries() {
		var entry logEntry
		entry.SignedEntryTimestamp = e.GetInclusionPromise().GetSignedEntryTimestamp()
		entry.Payload.Body = base64.StdEncoding.EncodeToString(e.GetCanonicalizedBody())
		entry.Payload.IntegratedTime, entry.Payload.LogIndex = e.GetIntegratedTime(), e.GetLogIndex()
		entry.Payload.LogID = hex.EncodeToString(e.GetLogId().GetKeyId())
		raw, err := json.Marshal(entry)
		if err != nil {
			return Signature{}, fmt.Errorf("writing the entry of the transparency log: %w", err)
		}
		out.LogEntry = string(raw)
	}
	return out, nil
}

// toBundle returns a keyless signature as a bundle, which the library verifies.
func (s Signature) toBundle(digest []byte) (*protobundle.Bundle, error) {
	block, _ := pem.Decode([]byte(s.Certificate))
	if block == nil {
		return nil, fmt.Errorf("it has no certificate: it was made with a key")
	}
	chain := []*protocommon.X509Certificate{{RawBytes: block.Bytes}}
	out := &protobundle.Bundle{
		MediaType: "application/vnd.dev.sigstore.bundle+json;version=0.1",
		VerificationMaterial: &protobundle.VerificationMaterial{
			Content: &protobundle.VerificationMaterial_X509CertificateChain{X509CertificateChain: &protocommon.X509CertificateChain{Certificates: chain}},
		},
		Content: &protobundle.Bundle_MessageSignature{MessageSignature: &protocommon.MessageSignature{
			MessageDigest: &protocommon.HashOutput{Algorithm: protocommon.HashAlgorithm_SHA2_256, Digest: digest},
			Signature:     s.Value,
		}},
	}
	if s.LogEntry == "" {
		return nil, fmt.Errorf("it has no entry of a transparency log")
	}
	entry, err := readLogEntry(s.LogEntry)
	if err != nil {
		return nil, err
	}
	out.VerificationMaterial.TlogEntries = []*protorekor.TransparencyLogEntry{entry}
	return out, nil
}

func readLogEntry(text string) (*protorekor.TransparencyLogEntry, error) {
	var entry logEntry
	if err := json.Unmarshal([]byte(text), &entry); err != nil {
		return nil, fmt.Errorf("reading the entry of the transparency log: %w", err)
	}
	body, err := base64.StdEncoding.DecodeString(entry.Payload.Body)
	if err != nil {
		return nil, fmt.Errorf("reading the entry of the transparency log: %w", err)
	}
	var kind struct{ Kind, APIVersion string }
	if err := json.Unmarshal(body, &kind); err != nil {
		return nil, fmt.Errorf("reading the entry of the transparency log: %w", err)
	}
	id, err := hex.DecodeString(entry.Payload.LogID)
	if err != nil {
		return nil, fmt.Errorf("reading the entry of the transparency log: %w", err)
	}
	return &protorekor.TransparencyLogEntry{
		LogIndex: entry.Payload.LogIndex, LogId: &protocommon.LogId{KeyId: id}, IntegratedTime: entry.Payload.IntegratedTime,
		KindVersion:      &protorekor.KindVersion{Kind: kind.Kind, Version: kind.APIVersion},
		InclusionPromise: &protorekor.InclusionPromise{SignedEntryTimestamp: entry.SignedEntryTimestamp}, CanonicalizedBody: body,
	}, nil
}
