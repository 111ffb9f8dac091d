// SPDX-FileCopyrightText: The Skyhook authors
// SPDX-License-Identifier: Apache-2.0

package packagecli_test

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"encoding/pem"
	"os"
	"strings"

	"github.com/google/go-containerregistry/pkg/name"
	"github.com/google/go-containerregistry/pkg/v1/remote"
	"github.com/rogpeppe/go-internal/testscript"
	"github.com/secure-systems-lab/go-securesystemslib/encrypted"
)

// cosignKeyCmd writes a pair of keys as cosign generate-key-pair does: cosignkey NAME PASSWORD.
func cosignKeyCmd(ts *testscript.TestScript, _ bool, args []string) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	ts.Check(err)
	private, err := x509.MarshalPKCS8PrivateKey(key)
	ts.Check(err)
	secret, err := encrypted.Encrypt(private, []byte(args[1]))
	ts.Check(err)
	public, err := x509.MarshalPKIXPublicKey(&key.PublicKey)
	ts.Check(err)
	write := func(file, kind string, content []byte) {
		ts.Check(os.WriteFile(ts.MkAbs(file), pem.EncodeToMemory(&pem.Block{Type: kind, Bytes: content}), 0o600))
	}
	write(args[0]+".key", "ENCRYPTED SIGSTORE PRIVATE KEY", secret)
	write(args[0]+".pub", "PUBLIC KEY", public)
}

// copySignatureCmd gives the image that a tag names the signatures of another one: copysignature REPOSITORY DIGEST TAG.
func copySignatureCmd(ts *testscript.TestScript, _ bool, args []string) {
	repository, err := name.NewRepository(args[0], name.Insecure)
	ts.Check(err)
	signatures, err := remote.Image(repository.Tag(strings.Replace(args[1], ":", "-", 1) + ".sig"))
	ts.Check(err)
	target, err := remote.Head(repository.Tag(args[2]))
	ts.Check(err)
	ts.Check(remote.Write(repository.Tag(strings.Replace(target.Digest.String(), ":", "-", 1)+".sig"), signatures))
}
