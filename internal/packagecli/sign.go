// SPDX-FileCopyrightText: The Skyhook authors
// SPDX-License-Identifier: Apache-2.0

package packagecli

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"strings"

	"github.com/google/go-containerregistry/pkg/name"
	"github.com/sigstore/sigstore-go/pkg/sign"
	"github.com/sigstore/sigstore/pkg/oauthflow"
	"github.com/spf13/cobra"
	"golang.org/x/term"

	"github.com/skyhook-k8s/skyhook/internal/image"
	"github.com/skyhook-k8s/skyhook/internal/output"
	"github.com/skyhook-k8s/skyhook/internal/packagecli/signing"
)

// Environment variables that cosign reads too.
const (
	envPassword = "COSIGN_PASSWORD"
	envIdentity = "SIGSTORE_ID_TOKEN"
)

// signOptions are the flags of package sign. They are named as those of cosign.
type signOptions struct {
	registry    image.Registry
	key         string
	token       string
	fulcio      string
	rekor       string
	issuer      string
	client      string
	useLog      bool
	annotations map[string]string
}

// signResult is the answer of package sign.
type signResult struct {
	Image     string `json:"image"` // by digest
	Signature string `json:"signature"`
	Existed   bool   `json:"existed,omitempty"` // the key had signed it before
}

func (a *packageCommands) signCommand() *cobra.Command {
	var o signOptions
	cmd := &cobra.Command{
		Use:   "sign IMAGE",
		Short: "Sign the image of a package in a registry",
		Long: "Sign the image of a package in a registry, as cosign does: with --key by a private key, otherwise keyless, by a\n" +
			"certificate that is issued for your identity and an entry in a public transparency log. The digest is signed that a\n" +
			"tag has now: a tag that is moved later has no signature. The password of a key is read from " + envPassword + ".\n\n" +
			"Admission controllers verify such signatures where package pods are created: see docs/security.md.",
		Example: "  kubectl skyhook package sign ghcr.io/acme/motd:1.2.0 --key cosign.key\n" +
			"  kubectl skyhook package sign ghcr.io/acme/motd:1.2.0 -a reviewed-by=ops",
		Args: output.Args("IMAGE"),
		RunE: func(cmd *cobra.Command, args []string) error { return a.signImage(cmd.Context(), o, args[0]) },
	}
	f := cmd.Flags()
	f.StringVar(&o.key, "key", "", "sign with the private key in this `file`; without it keyless")
	f.StringToStringVarP(&o.annotations, "annotations", "a", nil, "`KEY=VALUE` pairs that are signed too")
	f.BoolVar(&o.useLog, "tlog-upload", false, "with --key: make an entry in the transparency log too, which is public")
	f.StringVar(&o.token, "identity-token", "", "keyless: an OIDC token, or a `file` with one; otherwise "+envIdentity+", otherwise a browser opens")
	f.StringVar(&o.fulcio, "fulcio-url", "https://fulcio.sigstore.dev", "keyless: `URL` of the service that issues certificates")
	f.StringVar(&o.rekor, "rekor-url", "https://rekor.sigstore.dev", "`URL` of the transparency log")
	f.StringVar(&o.issuer, "oidc-issuer", "https://oauth2.sigstore.dev/auth", "keyless: `URL` of the identity provider that the browser opens")
	f.StringVar(&o.client, "oidc-client-id", "sigstore", "keyless: client id there")
	registryFlags(cmd, &o.registry)
	return cmd
}

func (a *packageCommands) signImage(ctx context.Context, o signOptions, ref string) error {
	if _, err := a.CheckFormat(); err != nil {
		return err
	}
	signer, verifier, err := o.newSigner()
	if err != nil {
		return err
	}
	img, err := o.registry.Resolve(ctx, ref)
	if err != nil {
		return err
	}
	signed, err := signing.NewPayload(img, o.annotations)
	if err != nil {
		return err
	}
	store := signing.Store{Options: o.registry.RemoteOptions(ctx)}
	out := signResult{Image: img.Name()}
	if verifier != nil {
		if out.Existed, err = hasSignature(ctx, store, img, signed, verifier); err != nil {
			return err
		}
	}
	if !out.Existed {
		s, err := signer.Sign(ctx, signed)
		if err != nil {
			return err
		}
		if out.Signature, err = store.Add(ctx, img, s); err != nil {
			return err
		}
	}
	return a.Print(output.Answer{Value: out, Names: []string{out.Image}, Text: func(bool) string { return out.formatText() }})
}

func (s signResult) formatText() string {
	if s.Existed {
		return s.Image + " was signed with this key before\n"
	}
	return "Signed " + s.Image + "\nSignature: " + s.Signature + "\n"
}

// newSigner returns the signer that the flags ask for, and with a key its verifier.
func (o *signOptions) newSigner() (signing.Signer, signing.Verifier, error) {
	log := sign.NewRekor(&sign.RekorOptions{BaseURL: o.rekor})
	if o.key != "" {
		return o.newKeySigner(log)
	}
	token, err := o.findToken()
	if err != nil {
		return signing.Signer{}, nil, err
	}
	key, err := sign.NewEphemeralKeypair(nil)
	if err != nil {
		return signing.Signer{}, nil, fmt.Errorf("making a key: %w", err)
	}
	return signing.Signer{Key: key, Certificate: sign.NewFulcio(&sign.FulcioOptions{BaseURL: o.fulcio}), Token: token, Log: log}, nil, nil
}

func (o *signOptions) newKeySigner(log sign.Transparency) (signing.Signer, signing.Verifier, error) {
	text, err := os.ReadFile(o.key)
	if err != nil {
		return signing.Signer{}, nil, fmt.Errorf("reading --key: %w", err)
	}
	key, err := signing.LoadKey(text, readPassword)
	if err != nil {
		return signing.Signer{}, nil, fmt.Errorf("reading --key %s: %w", o.key, err)
	}
	public, err := key.GetPublicKeyPem()
	if err != nil {
		return signing.Signer{}, nil, err
	}
	verifier, err := signing.LoadPublicKey([]byte(public))
	if err != nil {
		return signing.Signer{}, nil, err
	}
	out := signing.Signer{Key: key}
	if o.useLog {
		out.Log = log
	}
	return out, verifier, nil
}

// readPassword returns the password of a private key, from the environment or the terminal.
func readPassword() ([]byte, error) {
	if text, isSet := os.LookupEnv(envPassword); isSet {
		return []byte(text), nil
	}
	if !term.IsTerminal(int(os.Stdin.Fd())) {
		return nil, errors.New("it has a password: set " + envPassword)
	}
	fmt.Fprint(os.Stderr, "Password of the key: ")
	text, err := term.ReadPassword(int(os.Stdin.Fd()))
	fmt.Fprintln(os.Stderr)
	return text, err
}

// findToken returns the token of who signs.
func (o *signOptions) findToken() (string, error) {
	token := o.token
	if token == "" {
		token = os.Getenv(envIdentity)
	}
	if text, err := os.ReadFile(token); err == nil {
		token = strings.TrimSpace(string(text))
	}
	switch {
	case strings.Count(token, ".") == 2:
		return token, nil
	case token != "":
		return "", errors.New("--identity-token is neither an OIDC token nor a file with one")
	case !term.IsTerminal(int(os.Stdin.Fd())):
		return "", errors.New("who signs is not known: give --key, --identity-token or " + envIdentity)
	}
	found, err := oauthflow.OIDConnect(o.issuer, o.client, "", "", oauthflow.DefaultIDTokenGetter)
	if err != nil {
		return "", fmt.Errorf("signing in at %s: %w", o.issuer, err)
	}
	return found.RawString, nil
}

// hasSignature reports whether the image has a signature over the same payload already.
func hasSignature(ctx context.Context, store signing.Store, img name.Digest, signed []byte, v signing.Verifier) (bool, error) {
	all, err := store.List(ctx, img)
	if err != nil {
		return false, err
	}
	for _, s := range all {
		if _, err := v.Verify(s); err == nil && bytes.Equal(s.Payload, signed) {
			return true, nil
		}
	}
	return false, nil
}
