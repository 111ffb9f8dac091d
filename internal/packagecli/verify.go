// SPDX-FileCopyrightText: The Skyhook authors
// SPDX-License-Identifier: Apache-2.0

package packagecli

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"os"
	"slices"
	"strings"

	"github.com/sigstore/sigstore-go/pkg/root"
	"github.com/sigstore/sigstore-go/pkg/verify"
	"github.com/spf13/cobra"

	"github.com/skyhook-k8s/skyhook/internal/image"
	"github.com/skyhook-k8s/skyhook/internal/output"
	"github.com/skyhook-k8s/skyhook/internal/packagecli/signing"
)

// verifyOptions are the flags of package verify. They are named as those of cosign.
type verifyOptions struct {
	registry       image.Registry
	key            string
	identity       string
	identityRegexp string
	issuer         string
	issuerRegexp   string
	trustedRoot    string
	ignoreSCT      bool
}

// verifyResult is the answer of package verify.
type verifyResult struct {
	Image      string             `json:"image"` // by digest
	Signatures []signing.Verified `json:"signatures"`
}

func (a *packageCommands) verifyCommand() *cobra.Command {
	var o verifyOptions
	cmd := &cobra.Command{
		Use:   "verify IMAGE",
		Short: "Verify the signature of a package's image",
		Long: "Verify that the image of a package has a signature: with --key of whom the key belongs to, otherwise of the identity\n" +
			"that --certificate-identity and --certificate-oidc-issuer name. Signatures of cosign count too. The digest is verified\n" +
			"that a tag has now; use it as containerSHA, because a tag can be moved afterwards.\n\n" +
			"Exit code 0: at least one signature counts; 1: none does, and the message says why.",
		Example: "  kubectl skyhook package verify ghcr.io/acme/motd:1.2.0 --key cosign.pub\n" +
			"  kubectl skyhook package verify ghcr.io/acme/motd:1.2.0 --certificate-identity ops@example.org --certificate-oidc-issuer https://accounts.google.com",
		Args: output.Args("IMAGE"),
		RunE: func(cmd *cobra.Command, args []string) error { return a.verifyImage(cmd.Context(), o, args[0]) },
	}
	f := cmd.Flags()
	f.StringVar(&o.key, "key", "", "verify with the public key in this `file`")
	f.StringVar(&o.identity, "certificate-identity", "", "keyless: who signed, such as an e-mail address or the URL of a workflow")
	f.StringVar(&o.identityRegexp, "certificate-identity-regexp", "", "keyless: a regular expression that matches who signed")
	f.StringVar(&o.issuer, "certificate-oidc-issuer", "", "keyless: the identity provider that knows who signed")
	f.StringVar(&o.issuerRegexp, "certificate-oidc-issuer-regexp", "", "keyless: a regular expression that matches the identity provider")
	f.StringVar(&o.trustedRoot, "trusted-root", "", "keyless: a `file` with the certificates and logs to trust; without it those of sigstore are fetched")
	f.BoolVar(&o.ignoreSCT, "insecure-ignore-sct", false, "keyless: accept a certificate that is in no log of certificates, as those of private services")
	registryFlags(cmd, &o.registry)
	return cmd
}

func (a *packageCommands) verifyImage(ctx context.Context, o verifyOptions, ref string) error {
	if _, err := a.CheckFormat(); err != nil {
		return err
	}
	verifier, err := o.newVerifier()
	if err != nil {
		return err
	}
	img, err := o.registry.Resolve(ctx, ref)
	if err != nil {
		return err
	}
	all, err := signing.Store{Options: o.registry.RemoteOptions(ctx)}.List(ctx, img)
	if err != nil {
		return err
	}
	out := verifyResult{Image: img.Name()}
	if out.Signatures, err = signing.VerifyAll(img, all, verifier); err != nil {
		return err
	}
	return a.Print(output.Answer{Value: out, Names: []string{out.Image}, Text: func(bool) string { return out.formatText() }})
}

func (v verifyResult) formatText() string {
	var b strings.Builder
	fmt.Fprintf(&b, "%s is signed\n", v.Image)
	for _, s := range v.Signatures {
		fmt.Fprintf(&b, "  by %s", s.SignedBy)
		for _, key := range slices.Sorted(maps.Keys(s.Annotations)) {
			fmt.Fprintf(&b, ", %s=%v", key, s.Annotations[key])
		}
		b.WriteString("\n")
	}
	return b.String()
}

// newVerifier returns the verifier that the flags ask for.
func (o *verifyOptions) newVerifier() (signing.Verifier, error) {
	hasIdentity := o.identity != "" || o.identityRegexp != ""
	hasIssuer := o.issuer != "" || o.issuerRegexp != ""
	switch {
	case o.key != "" && (hasIdentity || hasIssuer):
		return nil, errors.New("--key and --certificate-… exclude each other: say who signed in one way")
	case o.key != "":
		text, err := os.ReadFile(o.key)
		if err != nil {
			return nil, fmt.Errorf("reading --key: %w", err)
		}
		verifier, err := signing.LoadPublicKey(text)
		if err != nil {
			return nil, fmt.Errorf("reading --key %s: %w", o.key, err)
		}
		return verifier, nil
	case !hasIdentity || !hasIssuer:
		return nil, errors.New("give --key, or --certificate-identity and --certificate-oidc-issuer (or their -regexp): anybody can sign, so say who must have")
	}
	identity, err := verify.NewShortCertificateIdentity(o.issuer, o.issuerRegexp, o.identity, o.identityRegexp)
	if err != nil {
		return nil, fmt.Errorf("reading who must have signed: %w", err)
	}
	trusted, err := o.loadTrustedRoot()
	if err != nil {
		return nil, err
	}
	return signing.NewKeylessVerifier(trusted, identity, o.ignoreSCT)
}

func (o *verifyOptions) loadTrustedRoot() (root.TrustedMaterial, error) {
	if o.trustedRoot != "" {
		trusted, err := root.NewTrustedRootFromPath(o.trustedRoot)
		if err != nil {
			return nil, fmt.Errorf("reading --trusted-root: %w", err)
		}
		return trusted, nil
	}
	trusted, err := root.FetchTrustedRoot()
	if err != nil {
		return nil, fmt.Errorf("fetching what sigstore trusts: %w", err)
	}
	return trusted, nil
}
