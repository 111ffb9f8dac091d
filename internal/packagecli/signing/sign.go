// SPDX-FileCopyrightText: The Skyhook authors
// SPDX-License-Identifier: Apache-2.0

package signing

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"

	"github.com/google/go-containerregistry/pkg/name"
	"github.com/sigstore/sigstore-go/pkg/bundle"
	"github.com/sigstore/sigstore-go/pkg/root"
	"github.com/sigstore/sigstore-go/pkg/sign"
	"github.com/sigstore/sigstore-go/pkg/verify"
)

// Signer makes signatures.
type Signer struct {
	Key         sign.Keypair             // for a keyless signature one that is used once
	Certificate sign.CertificateProvider // for a keyless signature, otherwise nil
	Token       string                   // of whom the certificate is for
	Log         sign.Transparency        // nil for none
}

// Sign signs a payload.
func (s Signer) Sign(ctx context.Context, signed []byte) (Signature, error) {
	o := sign.BundleOptions{Context: ctx}
	if s.Certificate != nil {
		o.CertificateProvider, o.CertificateProviderOptions = s.Certificate, &sign.CertificateProviderOptions{IDToken: s.Token}
	}
	if s.Log != nil {
		o.TransparencyLogs = []sign.Transparency{s.Log}
	}
	b, err := sign.Bundle(&sign.PlainData{Data: signed}, s.Key, o)
	if err != nil {
		return Signature{}, fmt.Errorf("signing: %w", err)
	}
	return fromBundle(signed, b)
}

// Verifier verifies one signature, and returns who made it.
type Verifier interface {
	Verify(s Signature) (signedBy string, err error)
}

// KeylessVerifier verifies signatures with certificates.
type KeylessVerifier struct {
	verifier *verify.Verifier
	identity verify.CertificateIdentity
}

// NewKeylessVerifier returns a verifier for signatures of an identity. A certificate must be in a log of certificates too,
// unless withoutSCT is set.
func NewKeylessVerifier(trusted root.TrustedMaterial, identity verify.CertificateIdentity, withoutSCT bool) (KeylessVerifier, error) {
	options := []verify.VerifierOption{verify.WithTransparencyLog(1), verify.WithIntegratedTimestamps(1)}
	if !withoutSCT {
		options = append(options, verify.WithSignedCertificateTimestamps(1))
	}
	verifier, err := verify.NewVerifier(trusted, options...)
	if err != nil {
		return KeylessVerifier{}, err
	}
	return KeylessVerifier{verifier: verifier, identity: identity}, nil
}

// Verify reports who signed.
func (v KeylessVerifier) Verify(s Signature) (signedBy string, err error) {
	digest := sha256.Sum256(s.Payload)
	raw, err := s.toBundle(digest[:])
	if err != nil {
		return "", err
	}
	entity, err := bundle.NewBundle(raw)
	if err != nil {
		return "", err
	}
	result, err := v.verifier.Verify(entity, verify.NewPolicy(verify.WithArtifactDigest("sha256", digest[:]), verify.WithCertificateIdentity(v.identity)))
	if err != nil {
		return "", err
	}
	if result.Signature == nil || result.Signature.Certificate == nil {
		return "", errors.New("it has no certificate")
	}
	c := result.Signature.Certificate
	return c.SubjectAlternativeName + " (" + c.Issuer + ")", nil
}

// Verified is a signature that was verified.
type Verified struct {
	SignedBy    string         `json:"signedBy"`
	Annotations map[string]any `json:"annotations,omitempty"`
}

// VerifyAll returns the signatures that are of this image and of whom the verifier trusts. Without one it is an error that
// says what is wrong with each.
func VerifyAll(image name.Digest, all []Signature, v Verifier) ([]Verified, error) {
	if len(all) == 0 {
		return nil, fmt.Errorf("%s has no signature", image)
	}
	var out []Verified
	var errs []error
	for i, s := range all {
		signedBy, err := v.Verify(s)
		if err != nil {
			errs = append(errs, fmt.Errorf("signature %d: %w", i+1, err))
			continue
		}
		digest, annotations, err := s.claims()
		if err == nil && digest != image.DigestStr() {
			err = fmt.Errorf("it is for %s", digest)
		}
		if err != nil {
			errs = append(errs, fmt.Errorf("signature %d: %w", i+1, err))
			continue
		}
		out = append(out, Verified{SignedBy: signedBy, Annotations: annotations})
	}
	if len(out) == 0 {
		return nil, fmt.Errorf("%s has no signature that counts: %w", image, errors.Join(errs...))
	}
	return out, nil
}
