// SPDX-FileCopyrightText: The Skyhook authors
// SPDX-License-Identifier: Apache-2.0

package packagecli_test

import (
	"bytes"
	"context"
	"crypto/ecdsa"
	"crypto/rand"
	"crypto/sha256"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/asn1"
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"encoding/pem"
	"errors"
	"fmt"
	"io"
	"log"
	"math/big"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-containerregistry/pkg/name"
	"github.com/google/go-containerregistry/pkg/registry"
	"github.com/google/go-containerregistry/pkg/v1/random"
	"github.com/google/go-containerregistry/pkg/v1/remote"
	"github.com/sigstore/sigstore-go/pkg/root"
	"github.com/sigstore/sigstore-go/pkg/testing/ca"
	"github.com/sigstore/sigstore-go/pkg/tlog"

	"github.com/skyhook-k8s/skyhook/internal/cli"
)

const (
	keylessAuthor = "author@example.com"
	keylessIssuer = "https://issuer.example.com"
)

// entryID is the name of an entry of the log.
var entryID = strings.Repeat("e", 64)

// sigstore is a Fulcio and a Rekor behind HTTP, which know one author by one token.
type sigstore struct {
	*testing.T
	token   string
	root    *x509.Certificate
	issuing *x509.Certificate
	key     *ecdsa.PrivateKey
	rekor   *ca.VirtualSigstore
	entries int64
}

func newSigstore(t *testing.T) *sigstore {
	t.Helper()
	s := &sigstore{T: t}
	part := func(v any) string {
		raw, err := json.Marshal(v)
		s.must(err)
		return base64.RawURLEncoding.EncodeToString(raw)
	}
	s.token = part(map[string]string{"alg": "none"}) + "." + part(map[string]any{"email": keylessAuthor, "email_verified": true, "iss": keylessIssuer, "sub": "42"}) + ".x"
	authority, key, err := ca.GenerateRootCa()
	s.must(err)
	s.root = authority
	s.issuing, s.key, err = ca.GenerateFulcioIntermediate(authority, key)
	s.must(err)
	s.rekor, err = ca.NewVirtualSigstore()
	s.must(err)
	return s
}

func (s *sigstore) must(err error) {
	s.Helper()
	if err != nil {
		s.Fatal(err)
	}
}

// serve starts both services and returns their URL.
func (s *sigstore) serve() string {
	mux := http.NewServeMux()
	answer := func(status int, give func(*http.Request) (any, error)) http.HandlerFunc {
		return func(w http.ResponseWriter, r *http.Request) {
			out, err := give(r)
			if err != nil {
				http.Error(w, err.Error(), http.StatusUnauthorized)
				return
			}
			w.Header().Set("Content-Type", "application/json")
			w.Header().Set("ETag", entryID)
			w.WriteHeader(status)
			_ = json.NewEncoder(w).Encode(out)
		}
	}
	mux.HandleFunc("POST /api/v2/signingCert", answer(http.StatusOK, s.issueCertificate))
	mux.HandleFunc("POST /api/v1/log/entries", answer(http.StatusCreated, s.addEntry))
	server := httptest.NewServer(mux)
	s.Cleanup(server.Close)
	return server.URL
}

// issueCertificate gives the author a certificate for a key that he has, as Fulcio does.
func (s *sigstore) issueCertificate(r *http.Request) (any, error) {
	var request struct {
		PublicKeyRequest struct {
			PublicKey         struct{ Content string }
			ProofOfPossession []byte
		}
	}
	if err := json.NewDecoder(r.Body).Decode(&request); err != nil {
		return nil, err
	}
	if r.Header.Get("Authorization") != "Bearer "+s.token {
		return nil, errors.New("who are you?")
	}
	block, _ := pem.Decode([]byte(request.PublicKeyRequest.PublicKey.Content))
	if block == nil {
		return nil, errors.New("there is no key")
	}
	parsed, err := x509.ParsePKIXPublicKey(block.Bytes)
	if err != nil {
		return nil, err
	}
	key, isECDSA := parsed.(*ecdsa.PublicKey)
	subject := sha256.Sum256([]byte(keylessAuthor))
	if !isECDSA || !ecdsa.VerifyASN1(key, subject[:], request.PublicKeyRequest.ProofOfPossession) {
		return nil, errors.New("the key is not yours")
	}
	raw, err := x509.CreateCertificate(rand.Reader, &x509.Certificate{
		SerialNumber: big.NewInt(7), EmailAddresses: []string{keylessAuthor}, NotBefore: time.Now().Add(-time.Minute), NotAfter: time.Now().Add(10 * time.Minute),
		KeyUsage: x509.KeyUsageDigitalSignature, ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageCodeSigning},
		ExtraExtensions: []pkix.Extension{{Id: asn1.ObjectIdentifier{1, 3, 6, 1, 4, 1, 57264, 1, 1}, Value: []byte(keylessIssuer)}},
	}, s.issuing, key, s.key)
	if err != nil {
		return nil, err
	}
	text := string(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: raw}))
	return map[string]any{"signedCertificateEmbeddedSct": map[string]any{"chain": map[string]any{"certificates": []string{text}}}}, nil
}

// addEntry makes an entry in the log, as Rekor does.
func (s *sigstore) addEntry(r *http.Request) (any, error) {
	body, err := io.ReadAll(r.Body)
	if err != nil {
		return nil, err
	}
	body = bytes.TrimSpace(body)
	id, err := s.rekor.RekorLogID()
	if err != nil {
		return nil, err
	}
	proof, err := s.rekor.GetInclusionProof(body)
	if err != nil {
		return nil, err
	}
	s.entries++
	entry := tlog.RekorPayload{Body: base64.StdEncoding.EncodeToString(body), IntegratedTime: time.Now().Unix(), LogIndex: 40 + s.entries, LogID: id}
	promise, err := s.rekor.RekorSignPayload(entry)
	if err != nil {
		return nil, err
	}
	return map[string]any{entryID: map[string]any{
		"body": entry.Body, "integratedTime": entry.IntegratedTime, "logIndex": entry.LogIndex, "logID": entry.LogID,
		"verification": map[string]any{"signedEntryTimestamp": promise, "inclusionProof": proof},
	}}, nil
}

// writeRoot writes what --trusted-root reads.
func (s *sigstore) writeRoot() string {
	s.Helper()
	logs := map[string]*root.TransparencyLog{}
	for id, of := range s.rekor.RekorLogs() {
		raw, err := hex.DecodeString(id)
		s.must(err)
		of.ID = raw
		logs[id] = of
	}
	trusted, err := root.NewTrustedRoot(root.TrustedRootMediaType01, []root.CertificateAuthority{&root.FulcioCertificateAuthority{
		Root: s.root, Intermediates: []*x509.Certificate{s.issuing}, ValidityPeriodStart: time.Now().Add(-time.Hour), ValidityPeriodEnd: time.Now().Add(time.Hour), URI: "https://fulcio.localhost",
	}}, nil, nil, logs)
	s.must(err)
	raw, err := trusted.MarshalJSON()
	s.must(err)
	file := filepath.Join(s.TempDir(), "trusted_root.json")
	s.must(os.WriteFile(file, raw, 0o600))
	return file
}

// TestKeylessCommands signs keyless with package sign, by a Fulcio and a Rekor of this machine, and verifies with package verify.
func TestKeylessCommands(t *testing.T) {
	s := newSigstore(t)
	url, trusted, foreign := s.serve(), s.writeRoot(), newSigstore(t).writeRoot()
	images := httptest.NewServer(registry.New(registry.Logger(log.New(io.Discard, "", 0))))
	defer images.Close()
	image := strings.TrimPrefix(images.URL, "http://") + "/team/motd:1.2.0"
	push := func() {
		tag, err := name.NewTag(image)
		s.must(err)
		content, err := random.Image(64, 1)
		s.must(err)
		s.must(remote.Write(tag, content))
	}
	push()
	run := func(code int, want string, args ...string) {
		t.Helper()
		var out bytes.Buffer
		got := cli.Run(context.Background(), cli.Line{Args: append([]string{"package"}, append(args, image, "--plain-http")...), Stdin: strings.NewReader(""), Stdout: &out, Stderr: &out})
		if got != code || !strings.Contains(out.String(), want) {
			t.Errorf("%s: exit code %d, want %d and %q:\n%s", strings.Join(args, " "), got, code, want, out.String())
		}
	}
	sign := func(code int, want, token string) {
		t.Helper()
		run(code, want, "sign", "--fulcio-url", url, "--rekor-url", url, "--identity-token", token, "-a", "reviewed-by=ops")
	}
	verify := func(code int, want, trusted, identity string) {
		t.Helper()
		run(code, want, "verify", "--trusted-root", trusted, "--insecure-ignore-sct", "--certificate-identity", identity, "--certificate-oidc-issuer", keylessIssuer)
	}
	verify(1, "has no signature", trusted, keylessAuthor)
	sign(1, "Fulcio returned 401: who are you?", s.token+"y")
	verify(1, "has no signature", trusted, keylessAuthor)
	sign(0, "Signed ", s.token)
	verify(0, fmt.Sprintf("  by %s (%s), reviewed-by=ops", keylessAuthor, keylessIssuer), trusted, keylessAuthor)
	verify(1, "has no signature that counts", trusted, "other@example.com")
	verify(1, "has no signature that counts", foreign, keylessAuthor)
	run(1, "has no signature that counts", "verify", "--trusted-root", trusted, "--certificate-identity", keylessAuthor, "--certificate-oidc-issuer", keylessIssuer)
	push()
	verify(1, "has no signature", trusted, keylessAuthor)
}
