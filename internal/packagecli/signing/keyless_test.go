// SPDX-FileCopyrightText: The Skyhook authors
// SPDX-License-Identifier: Apache-2.0

package signing

import (
	"encoding/base64"
	"encoding/hex"
	"io"
	"log"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/google/go-containerregistry/pkg/name"
	"github.com/google/go-containerregistry/pkg/registry"
	protobundle "github.com/sigstore/protobuf-specs/gen/pb-go/bundle/v1"
	protocommon "github.com/sigstore/protobuf-specs/gen/pb-go/common/v1"
	protorekor "github.com/sigstore/protobuf-specs/gen/pb-go/rekor/v1"
	"github.com/sigstore/sigstore-go/pkg/testing/ca"
	"github.com/sigstore/sigstore-go/pkg/tlog"
	"github.com/sigstore/sigstore-go/pkg/verify"
)

const (
	author = "author@example.com"
	issuer = "https://issuer.example.com"
)

// signKeyless signs as Fulcio and Rekor of a sigstore in memory do.
func signKeyless(t *testing.T, sigstore *ca.VirtualSigstore, signed []byte) Signature {
	t.Helper()
	entity, err := sigstore.Sign(author, issuer, signed)
	if err != nil {
		t.Fatal(err)
	}
	content, err := entity.SignatureContent()
	if err != nil {
		t.Fatal(err)
	}
	verification, err := entity.VerificationContent()
	if err != nil {
		t.Fatal(err)
	}
	entries, err := entity.TlogEntries()
	if err != nil {
		t.Fatal(err)
	}
	entry := entries[0].TransparencyLogEntry()
	promise, err := sigstore.RekorSignPayload(tlog.RekorPayload{
		Body: base64.StdEncoding.EncodeToString(entry.GetCanonicalizedBody()), IntegratedTime: entry.GetIntegratedTime(),
		LogIndex: entry.GetLogIndex(), LogID: hex.EncodeToString(entry.GetLogId().GetKeyId()),
	})
	if err != nil {
		t.Fatal(err)
	}
	entry.InclusionPromise = &protorekor.InclusionPromise{SignedEntryTimestamp: promise}
	out, err := fromBundle(signed, &protobundle.Bundle{
		VerificationMaterial: &protobundle.VerificationMaterial{
			Content:     &protobundle.VerificationMaterial_Certificate{Certificate: &protocommon.X509Certificate{RawBytes: verification.Certificate().Raw}},
			TlogEntries: []*protorekor.TransparencyLogEntry{entry},
		},
		Content: &protobundle.Bundle_MessageSignature{MessageSignature: &protocommon.MessageSignature{Signature: content.Signature()}},
	})
	if err != nil {
		t.Fatal(err)
	}
	return out
}

// TestKeyless stores a keyless signature in a registry as cosign does, and verifies what comes back.
func TestKeyless(t *testing.T) {
	server := httptest.NewServer(registry.New(registry.Logger(log.New(io.Discard, "", 0))))
	defer server.Close()
	image, err := name.NewDigest(strings.TrimPrefix(server.URL, "http://")+"/team/motd@sha256:"+strings.Repeat("a", 64), name.Insecure)
	if err != nil {
		t.Fatal(err)
	}
	sigstore, err := ca.NewVirtualSigstore()
	if err != nil {
		t.Fatal(err)
	}
	signed, err := NewPayload(image, map[string]string{"reviewed-by": "ops"})
	if err != nil {
		t.Fatal(err)
	}
	store := Store{}
	if _, err := store.Add(t.Context(), image, signKeyless(t, sigstore, signed)); err != nil {
		t.Fatal(err)
	}
	all, err := store.List(t.Context(), image)
	if err != nil || len(all) != 1 {
		t.Fatalf("listed %d signatures: %v", len(all), err)
	}

	other, err := ca.NewVirtualSigstore()
	if err != nil {
		t.Fatal(err)
	}
	for what, c := range map[string]struct {
		sigstore         *ca.VirtualSigstore
		identity, issuer string
		change           func(*Signature)
		want             string // in the error; empty for none
	}{
		"the right identity":     {sigstore: sigstore, identity: author, issuer: issuer},
		"another identity":       {sigstore: sigstore, identity: "other@example.com", issuer: issuer, want: "no matching CertificateIdentity"},
		"another issuer":         {sigstore: sigstore, identity: author, issuer: "https://other.example.com", want: "no matching CertificateIdentity"},
		"another sigstore":       {sigstore: other, identity: author, issuer: issuer, want: "signature 1:"},
		"another payload":        {sigstore: sigstore, identity: author, issuer: issuer, change: func(s *Signature) { s.Payload = append(s.Payload, ' ') }, want: "signature 1:"},
		"no entry of the log":    {sigstore: sigstore, identity: author, issuer: issuer, change: func(s *Signature) { s.LogEntry = "" }, want: "no entry of a transparency log"},
		"an entry of no log":     {sigstore: sigstore, identity: author, issuer: issuer, change: func(s *Signature) { s.LogEntry = "{" }, want: "reading the entry"},
		"a signature with a key": {sigstore: sigstore, identity: author, issuer: issuer, change: func(s *Signature) { s.Certificate = "" }, want: "made with a key"},
	} {
		t.Run(what, func(t *testing.T) {
			identity, err := verify.NewShortCertificateIdentity(c.issuer, "", c.identity, "")
			if err != nil {
				t.Fatal(err)
			}
			v, err := NewKeylessVerifier(c.sigstore, identity, true)
			if err != nil {
				t.Fatal(err)
			}
			s := all[0]
			s.Payload = append([]byte(nil), s.Payload...)
			if c.change != nil {
				c.change(&s)
			}
			got, err := VerifyAll(image, []Signature{s}, v)
			switch {
			case c.want == "" && (err != nil || got[0].SignedBy != author+" ("+issuer+")" || got[0].Annotations["reviewed-by"] != "ops"):
				t.Errorf("verified %+v: %v", got, err)
			case c.want != "" && (err == nil || !strings.Contains(err.Error(), c.want)):
				t.Errorf("got %+v and %v, want an error with %q", got, err, c.want)
			}
		})
	}
}

// TestKeylessNeedsCertificateLog checks that a certificate that is in no log does not count by default.
func TestKeylessNeedsCertificateLog(t *testing.T) {
	image, err := name.NewDigest("registry.example/team/motd@sha256:" + strings.Repeat("a", 64))
	if err != nil {
		t.Fatal(err)
	}
	sigstore, err := ca.NewVirtualSigstore()
	if err != nil {
		t.Fatal(err)
	}
	signed, err := NewPayload(image, nil)
	if err != nil {
		t.Fatal(err)
	}
	identity, err := verify.NewShortCertificateIdentity(issuer, "", author, "")
	if err != nil {
		t.Fatal(err)
	}
	v, err := NewKeylessVerifier(sigstore, identity, false)
	if err != nil {
		t.Fatal(err)
	}
	if got, err := VerifyAll(image, []Signature{signKeyless(t, sigstore, signed)}, v); err == nil {
		t.Errorf("verified %+v", got)
	}
}
