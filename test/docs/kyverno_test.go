// SPDX-FileCopyrightText: The Skyhook authors
// SPDX-License-Identifier: Apache-2.0

package docs

import (
	"errors"
	"fmt"
	"io"
	"log"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/google/go-containerregistry/pkg/name"
	"github.com/google/go-containerregistry/pkg/registry"
	"github.com/google/go-containerregistry/pkg/v1/random"
	"github.com/google/go-containerregistry/pkg/v1/remote"
)

// kyverno runs Kyverno's own engine, as its command line has it, in a folder. "make kyverno" builds it and says where it is.
func kyverno(t *testing.T, folder string, args ...string) string {
	t.Helper()
	program := os.Getenv("SKYHOOK_KYVERNO")
	if program == "" {
		t.Skip(`SKYHOOK_KYVERNO does not name Kyverno's program: run "make kyverno", which builds it`)
	}
	cmd := exec.Command(program, append(args, "--remove-color")...)
	cmd.Dir = folder
	out, err := cmd.CombinedOutput()
	var hasFailed *exec.ExitError
	if err != nil && !errors.As(err, &hasFailed) {
		t.Fatal(err)
	}
	return string(out)
}

// TestKyvernoRestricts has Kyverno admit and refuse the Skyhooks of kyverno/skyhooks.yaml and the pods of kyverno/pods.yaml. A policy that Kyverno finds invalid is
// skipped by it, and counts as passed: it fails here.
func TestKyvernoRestricts(t *testing.T) {
	for _, file := range []string{"kyverno-test.yaml", "kyverno-test-administrator.yaml", "kyverno-test-pods.yaml", "kyverno-test-leaving.yaml"} {
		out := kyverno(t, "kyverno", "test", ".", "--file-name", file, "--detailed-results")
		if !strings.Contains(out, " and 0 tests failed") || strings.Contains(out, "Invalid Policy") {
			t.Errorf("%s:\n%s", file, out)
		}
	}
}

// examplePublicKey is the key in docs/kyverno/verify-images.yaml.
var examplePublicKey = regexp.MustCompile(`(?s)-----BEGIN PUBLIC KEY-----.*?-----END PUBLIC KEY-----`)

// signImages starts a registry and pushes images: one that is signed by a key, one that is not, one that others signed, and
// one whose tag moved after it was signed. It returns the registry's host and the public key.
func signImages(t *testing.T, folder string) (s signer, host, public string) {
	t.Helper()
	server := httptest.NewServer(registry.New(registry.Logger(log.New(io.Discard, "", 0))))
	t.Cleanup(server.Close)
	host = strings.TrimPrefix(server.URL, "http://")
	s = signer{T: t, folder: folder}
	public = s.createKey("ours")
	s.createKey("theirs")
	at := host + "/"
	for _, image := range []string{"signed", "unsigned", "by-others", "moved"} {
		s.push(at + image + ":1.0.0")
	}
	s.sign(at+"signed:1.0.0", "ours")
	s.sign(at+"by-others:1.0.0", "theirs")
	s.sign(at+"moved:1.0.0", "ours")
	s.push(at + "moved:1.0.0")
	return s, host, public
}

// TestKyvernoVerifiesSignatures has Kyverno check pods of packages and NodeOps with the policy of docs/kyverno, whose
// key and trusted registry are replaced, after cosign has signed some of the images.
func TestKyvernoVerifiesSignatures(t *testing.T) {
	folder := t.TempDir()
	kyverno(t, folder, "version")
	s, host, public := signImages(t, folder)
	text, err := os.ReadFile("../../docs/kyverno/verify-images.yaml")
	if err != nil {
		t.Fatal(err)
	}
	indented := strings.ReplaceAll(strings.TrimSpace(public), "\n", "\n"+strings.Repeat(" ", 22))
	s.push(host + "/ours/agent:1")
	trusted := strings.NewReplacer("ghcr.io/skyhook-k8s/*", host+"/ours/*").Replace(string(text))
	policy := examplePublicKey.ReplaceAllString(trusted, indented)
	s.write("policy.yaml", policy)

	const ofPackage, ofNodeOp = "namespace: skyhook, labels: {skyhook.nvidia.com/name: demo}", "namespace: team, labels: {kairos.io/node: n1}"
	for _, c := range []struct {
		what, metadata, image string
		want                  string // the rule counts twice: it checks the image and fixes its digest
	}{
		{"a signed package", ofPackage, "signed:1.0.0", "pass: 2, fail: 0"},
		{"an unsigned package, by another name of the registry", ofPackage, strings.Replace(host, "127.0.0.1", "localhost", 1) + "/unsigned:1.0.0", "pass: 0, fail: 2"},
		{"an unsigned package, in upper case", ofPackage, strings.Replace(host, "127.0.0.1", "LOCALHOST", 1) + "/unsigned:1.0.0", "pass: 0, fail: 2"},
		{"an unsigned package", ofPackage, "unsigned:1.0.0", "pass: 0, fail: 2"},
		{"a package that others signed", ofPackage, "by-others:1.0.0", "pass: 0, fail: 2"},
		{"a package whose tag moved after it was signed", ofPackage, "moved:1.0.0", "pass: 0, fail: 2"},
		{"a signed NodeOp", ofNodeOp, "signed:1.0.0", "pass: 2, fail: 0"},
		{"an unsigned NodeOp", ofNodeOp, "unsigned:1.0.0", "pass: 0, fail: 2"},
		{"an unsigned pod of somebody else", "namespace: team", "unsigned:1.0.0", "pass: 0, fail: 0"},
	} {
		for layout, spec := range map[string]string{
			"Compatible": `initContainers: [{name: package-init, image: "%s"}], containers: [{name: pause, image: "` + host + `/ours/agent:1"}]`,
			"Compact": `containers: [{name: package-apply, image: "` + host + `/ours/agent:1"}],
  volumes: [{name: root, hostPath: {path: /}}, {name: image-package, image: {reference: "%s"}}]`,
			"prepull": `containers: [{name: package-image, image: "%s"}]`,
		} {
			image := c.image
			if !strings.Contains(image, "/") {
				image = host + "/" + image
			}
			s.write("pod.yaml", fmt.Sprintf("apiVersion: v1\nkind: Pod\nmetadata: {name: p, %s}\nspec: {"+spec+"}\n", c.metadata, image))
			out := kyverno(t, folder, "apply", "policy.yaml", "--resource", "pod.yaml", "--registry")
			if !strings.Contains(out, c.want+", warn: 0, ") || !strings.Contains(c.want, "fail: 2") && !strings.Contains(out, "error: 0, ") {
				t.Errorf("%s, %s: want %s:\n%s", c.what, layout, c.want, out)
			}
		}
	}
}

// signer makes keys and images, and signs images as users do.
type signer struct {
	*testing.T
	folder string
}

// cosign runs cosign as docs/security.md has it. "make kyverno" says what it is.
func (s signer) cosign(args ...string) {
	s.Helper()
	words := append(strings.Fields(os.Getenv("SKYHOOK_COSIGN")), args...)
	cmd := exec.Command(words[0], words[1:]...)
	cmd.Env = append(os.Environ(), "COSIGN_PASSWORD=")
	if out, err := cmd.CombinedOutput(); err != nil {
		s.Fatalf("cosign %v: %v\n%s", args, err, out)
	}
}

func (s signer) write(file, text string) {
	s.Helper()
	if err := os.WriteFile(filepath.Join(s.folder, file), []byte(text), 0o600); err != nil {
		s.Fatal(err)
	}
}

// createKey writes the private key NAME.key and returns the public one.
func (s signer) createKey(name string) (public string) {
	s.Helper()
	prefix := filepath.Join(s.folder, name)
	s.cosign("generate-key-pair", "--output-key-prefix", prefix)
	text, err := os.ReadFile(prefix + ".pub")
	if err != nil {
		s.Fatal(err)
	}
	return string(text)
}

// push pushes an image that no other is like.
func (s signer) push(reference string) {
	s.Helper()
	tag, err := name.NewTag(reference)
	if err != nil {
		s.Fatal(err)
	}
	image, err := random.Image(64, 1)
	if err != nil {
		s.Fatal(err)
	}
	if err := remote.Write(tag, image); err != nil {
		s.Fatal(err)
	}
}

// sign signs what the tag points to now.
func (s signer) sign(reference, key string) {
	s.Helper()
	tag, err := name.NewTag(reference)
	if err != nil {
		s.Fatal(err)
	}
	d, err := remote.Head(tag)
	if err != nil {
		s.Fatal(err)
	}
	s.cosign("sign", "--yes", "--key", filepath.Join(s.folder, key+".key"), "--new-bundle-format=false", "--use-signing-config=false",
		"--tlog-upload=false", tag.Context().Digest(d.Digest.String()).Name())
}
