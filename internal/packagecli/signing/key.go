// SPDX-FileCopyrightText: The Skyhook authors
// SPDX-License-Identifier: Apache-2.0

package signing

import (
	"bytes"
	"context"
	"crypto"
	"crypto/ecdsa"
	"crypto/ed25519"
	"crypto/rsa"
	"crypto/sha256"
	"crypto/x509"
	"encoding/base64"
	"encoding/pem"
	"errors"
	"fmt"

	"github.com/secure-systems-lab/go-securesystemslib/encrypted"
	protocommon "github.com/sigstore/protobuf-specs/gen/pb-go/common/v1"
	"github.com/sigstore/sigstore/pkg/cryptoutils"
	"github.com/sigstore/sigstore/pkg/signature"
)

// Key signs with a private key. It is a sign.Keypair.
type Key struct {
	signer    signature.Signer
	public    crypto.PublicKey
	publicPEM []byte
}

// LoadKey reads a private key: one that cosign generate-key-pair wrote, or one in PKCS #8 or SEC 1 without a password. The
// password is asked for when it is needed.
func LoadKey(text []byte, password func() ([]byte, error)) (*Key, error) {
	block, _ := pem.Decode(text)
	if block == nil {
		return nil, errors.New("it is not in PEM form: use the file that cosign generate-key-pair writes")
	}
	private, err := parsePrivateKey(block, password)
	if err != nil {
		return nil, err
	}
	signer, err := signature.LoadSigner(private, crypto.SHA256)
	if err != nil {
		return nil, fmt.Errorf("the key cannot sign: %w", err)
	}
	public, err := signer.PublicKey()
	if err != nil {
		return nil, fmt.Errorf("reading its public key: %w", err)
	}
	publicPEM, err := cryptoutils.MarshalPublicKeyToPEM(public)
	if err != nil {
		return nil, fmt.Errorf("reading its public key: %w", err)
	}
	return &Key{signer: signer, public: public, publicPEM: publicPEM}, nil
}

func parsePrivateKey(block *pem.Block, password func() ([]byte, error)) (crypto.PrivateKey, error) {
	switch block.Type {
	case "ENCRYPTED SIGSTORE PRIVATE KEY", "ENCRYPTED COSIGN PRIVATE KEY":
		secret, err := password()
		if err != nil {
			return nil, err
		}
		der, err := encrypted.Decrypt(block.Bytes, secret)
		if err != nil {
			return nil, fmt.Errorf("it cannot be decrypted: is the password right? %w", err)
		}
		return x509.ParsePKCS8PrivateKey(der)
	case "PRIVATE KEY":
		return x509.ParsePKCS8PrivateKey(block.Bytes)
	case "EC PRIVATE KEY":
		return x509.ParseECPrivateKey(block.Bytes)
	}
	return nil, fmt.Errorf("it is a %s, and not a private key", block.Type)
}

// GetHashAlgorithm returns the hash that is signed.
func (*Key) GetHashAlgorithm() protocommon.HashAlgorithm { return protocommon.HashAlgorithm_SHA2_256 }

// GetSigningAlgorithm returns the kind of the key for requests of certificates.
func (k *Key) GetSigningAlgorithm() protocommon.PublicKeyDetails {
	switch k.public.(type) {
	case *rsa.PublicKey:
		return protocommon.PublicKeyDetails_PKIX_RSA_PKCS1V15_2048_SHA256
	case ed25519.PublicKey:
		return protocommon.PublicKeyDetails_PKIX_ED25519
	}
	return protocommon.PublicKeyDetails_PKIX_ECDSA_P256_SHA_256
}

// GetHint identifies the key.
func (k *Key) GetHint() []byte {
	sum := sha256.Sum256(k.publicPEM)
	return []byte(base64.StdEncoding.EncodeToString(sum[:]))
}

// GetKeyAlgorithm returns the kind of the key by name.
func (k *Key) GetKeyAlgorithm() string {
	switch k.public.(type) {
	case *ecdsa.PublicKey:
		return "ECDSA"
	case *rsa.PublicKey:
		return "RSA"
	}
	return "ED25519"
}

// GetPublicKey returns the public key.
func (k *Key) GetPublicKey() crypto.PublicKey { return k.public }

// GetPublicKeyPem returns the public key in PEM form.
func (k *Key) GetPublicKeyPem() (string, error) { return string(k.publicPEM), nil }

// SignData signs, and returns the hash of the data too.
func (k *Key) SignData(_ context.Context, data []byte) (value, digest []byte, err error) {
	value, err = k.signer.SignMessage(bytes.NewReader(data))
	sum := sha256.Sum256(data)
	return value, sum[:], err
}

// KeyVerifier verifies signatures with a public key.
type KeyVerifier struct{ verifier signature.Verifier }

// LoadPublicKey reads a public key.
func LoadPublicKey(text []byte) (KeyVerifier, error) {
	public, err := cryptoutils.UnmarshalPEMToPublicKey(text)
	if err != nil {
		return KeyVerifier{}, fmt.Errorf("it is not a public key in PEM form: %w", err)
	}
	verifier, err := signature.LoadVerifier(public, crypto.SHA256)
	if err != nil {
		return KeyVerifier{}, fmt.Errorf("the key cannot verify: %w", err)
	}
	return KeyVerifier{verifier}, nil
}

// Verify reports who signed.
func (v KeyVerifier) Verify(s Signature) (signedBy string, err error) {
	if err := v.verifier.VerifySignature(bytes.NewReader(s.Value), bytes.NewReader(s.Payload)); err != nil {
		return "", errors.New("it was made with another key")
	}
	return "the key", nil
}
