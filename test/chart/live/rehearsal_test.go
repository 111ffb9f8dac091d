// SPDX-FileCopyrightText: The Skyhook authors
// SPDX-License-Identifier: Apache-2.0

package live

import (
	"archive/tar"
	"bytes"
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"io"
	stdlog "log"
	"net"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"regexp"
	"runtime"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-containerregistry/pkg/name"
	"github.com/google/go-containerregistry/pkg/registry"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-containerregistry/pkg/v1/remote"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/skyhook-k8s/skyhook/test/testenv"
)

// internet is ghcr.io and github.com on this machine: a registry, and the page of one release with its assets. Programs reach it by a
// proxy, which knows no other host, so they run as everybody runs them: with the names that are in documents and manifests.
type internet struct {
	page      string // the folder with the assets
	certs     string // the file with the authority that programs must trust
	proxy     *httptest.Server
	transport http.RoundTripper // reaches it from here
}

const repository = "/skyhook-k8s/skyhook/"

func newInternet(t *testing.T, version string) *internet {
	t.Helper()
	n := &internet{page: t.TempDir(), certs: filepath.Join(t.TempDir(), "authority.pem")}
	sites, quiet := http.NewServeMux(), stdlog.New(io.Discard, "", 0)
	sites.Handle("ghcr.io/", registry.New(registry.WithReferrersSupport(true), registry.Logger(quiet)))
	sites.HandleFunc("github.com"+repository+"releases/latest/download/{file}", func(w http.ResponseWriter, r *http.Request) {
		http.Redirect(w, r, repository+"releases/download/"+version+"/"+r.PathValue("file"), http.StatusFound)
	})
	sites.Handle("github.com"+repository+"releases/download/"+version+"/", http.StripPrefix(repository+"releases/download/"+version, http.FileServer(http.Dir(n.page))))

	trusted := newAuthority(t)
	if err := os.WriteFile(n.certs, []byte(trusted.text), 0o600); err != nil {
		t.Fatal(err)
	}
	pair, err := tls.X509KeyPair(trusted.signServer(t, &x509.Certificate{DNSNames: []string{"ghcr.io", "github.com"}}))
	if err != nil {
		t.Fatal(err)
	}
	server := httptest.NewUnstartedServer(sites)
	server.TLS, server.Config.ErrorLog = &tls.Config{Certificates: []tls.Certificate{pair}}, quiet
	server.StartTLS()
	t.Cleanup(server.Close)
	n.proxy = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Method != http.MethodConnect || r.Host != "ghcr.io:443" && r.Host != "github.com:443" {
			http.Error(w, "there is no "+r.Host+" in a rehearsal", http.StatusForbidden)
			return
		}
		connect(w, server.Listener.Addr().String())
	}))
	t.Cleanup(n.proxy.Close)
	roots := x509.NewCertPool()
	if !roots.AppendCertsFromPEM([]byte(trusted.text)) {
		t.Fatal("the authority has no certificate")
	}
	through, err := url.Parse(n.proxy.URL)
	if err != nil {
		t.Fatal(err)
	}
	n.transport = &http.Transport{Proxy: http.ProxyURL(through), TLSClientConfig: &tls.Config{RootCAs: roots, MinVersion: tls.VersionTLS12}}
	return n
}

// connect joins a client of the proxy with a server.
func connect(w http.ResponseWriter, to string) {
	server, err := net.Dial("tcp", to)
	if err != nil {
		http.Error(w, err.Error(), http.StatusBadGateway)
		return
	}
	client, _, err := http.NewResponseController(w).Hijack()
	if err != nil {
		_ = server.Close()
		return
	}
	_, _ = io.WriteString(client, "HTTP/1.1 200 OK\r\n\r\n") // who has gone reads nothing
	go func() { _, _ = io.Copy(server, client); _ = server.Close() }()
	go func() { _, _ = io.Copy(client, server); _ = client.Close() }()
}

// person is somebody with a home of their own, programs, and this internet.
type person struct {
	*testing.T
	home string
	env  []string
}

func (n *internet) newPerson(t *testing.T, programs map[string]string, env ...string) *person {
	t.Helper()
	p := &person{T: t, home: t.TempDir()}
	bin := filepath.Join(p.home, "bin")
	if err := os.Mkdir(bin, 0o700); err != nil {
		t.Fatal(err)
	}
	for name, file := range programs {
		if err := os.Symlink(file, filepath.Join(bin, name)); err != nil {
			t.Fatal(err)
		}
	}
	p.env = append([]string{
		"HOME=" + p.home, "PATH=" + bin + ":" + filepath.Join(p.home, ".krew/bin") + ":/usr/local/bin:/usr/bin:/bin", "COSIGN_PASSWORD=",
		"HTTPS_PROXY=" + n.proxy.URL, "HTTP_PROXY=" + n.proxy.URL, "NO_PROXY=127.0.0.1", "SSL_CERT_FILE=" + n.certs, "CURL_CA_BUNDLE=" + n.certs,
	}, env...)
	return p
}

// start begins to run commands in the person's home, or in dir.
func (p *person) start(dir, commands string) (end func() (string, error)) {
	p.Helper()
	p.Logf("$ %s", strings.TrimSpace(commands))
	cmd := exec.Command("bash", "-euo", "pipefail", "-c", commands)
	cmd.Dir, cmd.Env = dir, p.env
	var said bytes.Buffer
	cmd.Stdout, cmd.Stderr = &said, &said
	if err := cmd.Start(); err != nil {
		p.Fatal(err)
	}
	return func() (string, error) { err := cmd.Wait(); return said.String(), err }
}

func (p *person) run(commands string) string {
	p.Helper()
	return p.runIn(p.home, commands)
}

func (p *person) runIn(dir, commands string) string {
	p.Helper()
	said, err := p.start(dir, commands)()
	if err != nil {
		p.Fatalf("%v\n%s", err, said)
	}
	p.Log(said)
	return said
}

// TestRehearsal publishes the release in dist/release as the workflow does, to a registry and a release page of this machine, and signs it
// with a key. Then a stranger without a checkout verifies and installs it by the commands of release-process.md and of the README, onto an
// API server whose nodes are simulated. The operator that runs is the one in the published image. make rehearse runs it.
func TestRehearsal(t *testing.T) {
	version, tools := os.Getenv("SKYHOOK_REHEARSAL"), os.Getenv("SKYHOOK_REHEARSAL_TOOLS")
	if version == "" {
		t.Skip("make rehearse makes a release, and says in SKYHOOK_REHEARSAL which version it has")
	}
	n := newInternet(t, version)
	stranger := n.newPerson(t, map[string]string{
		"helm": helms["v4"], "oras": goOutput(t, "tool", "-n", "oras.land/oras/cmd/oras"), "kubectl": plane.Kubectl(),
		"cosign": filepath.Join(tools, "cosign"), "kubectl-krew": filepath.Join(tools, "krew"),
	}, "KUBECONFIG="+plane.Kubeconfig(t))
	n.publish(t, stranger.home, version, filepath.Join(tools, "cosign"))
	n.verify(t, stranger, version)

	removeCRDs(t)
	w := testenv.New(t, plane, 1)
	w.Namespace = "skyhook"
	kubelet := w.StartKubelet()
	n.takeOperator(t, version)
	steps := quickStart(t)
	if want := []string{"helm install", "kubectl apply", "kubectl label", "kubectl get", "kubectl krew", "kubectl skyhook ui", "kubectl delete"}; !slices.EqualFunc(steps, want, strings.HasPrefix) {
		t.Fatalf("the quick start of the README has the steps %q, and this test knows %q", steps, want)
	}
	withHelm, withKubectl, rollOut, look, plugin, remove := steps[0], steps[1], steps[2], steps[3], steps[4], steps[6] // the page of step 5 never ends
	stranger.run(withHelm)
	awaitCRDs(t)
	stop := n.runOperator(t, version)
	stranger.run(rollOut)
	stranger.run(look)
	n.submitToKrew(t, stranger)
	if said := stranger.run(plugin); !strings.Contains(said, "demo") {
		t.Error("the plugin does not know the Skyhook")
	}
	if said := stranger.run("kubectl skyhook --help && kubectl skyhook --version"); !strings.Contains(said, version) {
		t.Errorf("the plugin is not of %s", version)
	}
	for _, pulled := range kubelet.Pulled() {
		_, ref, _ := strings.Cut(pulled, " ")
		n.requirePublished(t, ref)
	}
	stranger.run(remove)
	stop()

	stranger.run("kubectl delete crd --all --timeout=2m") // another stranger has another cluster
	stranger.run(withKubectl)
	awaitCRDs(t)
	stop = n.runOperator(t, version)
	stranger.run(rollOut)
	stranger.run("kubectl delete skyhooks --all --timeout=2m")
	stop()
}

func goOutput(t *testing.T, args ...string) string {
	t.Helper()
	out, err := output(filepath.Join(root, "test", "chart"), args...)
	if err != nil {
		t.Fatal(err)
	}
	return strings.TrimSpace(out)
}

// publish makes what the workflow makes of dist/release, in its order, twice: a publication that was interrupted is repeated.
func (n *internet) publish(t *testing.T, keys, version, cosign string) {
	t.Helper()
	github := filepath.Join(t.TempDir(), "gh")
	if err := os.WriteFile(github, []byte(`#!/bin/bash
# Stands for GitHub: a release has assets without folders, each name once.
[ "$1 $2 $3" = "release create $VERSION" ] || exit 2
shift 3
while [ $# -gt 0 ]; do
  case $1 in
    --title | --notes-file) shift 2 ;;
    --*) shift ;;
    *) cp --no-clobber "$1" "$PAGE/" && cmp "$1" "$PAGE/$(basename "$1")" || exit; shift ;;
  esac
done
`), 0o700); err != nil {
		t.Fatal(err)
	}
	// Nothing is recorded in the public log, which a rehearsal must not reach.
	config := filepath.Join(keys, "signing-config.json")
	if err := os.WriteFile(config, []byte(`{"mediaType":"application/vnd.dev.sigstore.signingconfig.v0.2+json"}`), 0o600); err != nil {
		t.Fatal(err)
	}
	maintainer := n.newPerson(t, map[string]string{"gh": github, "cosign": cosign, "go": filepath.Join(goOutput(t, "env", "GOROOT"), "bin", "go")},
		"GOCACHE="+goOutput(t, "env", "GOCACHE"), "GOPATH="+goOutput(t, "env", "GOPATH"), "GOPROXY=off", "GOSUMDB=off", "VERSION="+version, "PAGE="+n.page)
	maintainer.runIn(keys, "cosign generate-key-pair")
	for range 2 {
		maintainer.runIn(root, "make publish")
	}
	maintainer.runIn(root, "make sign COSIGN=cosign ARGS='--key "+filepath.Join(keys, "cosign.key")+" --signing-config "+config+"'")
	maintainer.runIn(root, "make github-release VERSION="+version)
	if err := os.Remove(filepath.Join(keys, "cosign.key")); err != nil {
		t.Fatal(err)
	}
}

var (
	shellBlock  = regexp.MustCompile("(?ms)^```sh[^\n]*\n(.*?)^```$")
	certificate = regexp.MustCompile(`--certificate-identity \S+ \\\n +--certificate-oidc-issuer \S+`)
)

// verify runs what the documentation says, and downloads all assets of the release. A rehearsal is signed with a key, not with the
// identity of the workflow.
func (n *internet) verify(t *testing.T, stranger *person, version string) {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(root, "docs", "release-process.md"))
	if err != nil {
		t.Fatal(err)
	}
	_, section, _ := strings.Cut(string(text), "\n## Verify a release\n")
	blocks := shellBlock.FindAllStringSubmatch(section, -1)
	if len(blocks) < 3 {
		t.Fatalf("release-process.md has %d blocks about verification", len(blocks))
	}
	for _, block := range blocks[:2] {
		commands := strings.ReplaceAll(block[1], "v1.2.3", version)
		if !certificate.MatchString(commands) {
			t.Fatalf("release-process.md verifies no identity in %q", commands)
		}
		stranger.run(certificate.ReplaceAllString(commands, "--key cosign.pub --insecure-ignore-tlog=true"))
	}
	stranger.run("cut -c67- SHA256SUMS | while read -r file; do curl -fsSLO https://github.com" + repository + "releases/download/" + version + "/$file; done")
	if said := stranger.run("sha256sum --check --strict SHA256SUMS"); strings.Count(said, ": OK") < 20 {
		t.Error("the release has too few files")
	}
	stranger.run("cosign verify ghcr.io/skyhook-k8s/charts/skyhook-operator:" + strings.TrimPrefix(version, "v") + " --key cosign.pub --insecure-ignore-tlog=true")
	refused := "cp SHA256SUMS other && echo >>other && cosign verify-blob other --bundle SHA256SUMS.sigstore.json --key cosign.pub --insecure-ignore-tlog=true"
	if said, err := stranger.start(stranger.home, refused)(); err == nil {
		t.Errorf("cosign accepts other checksums than those that were signed:\n%s", said)
	}
}

// quickStart returns the commands of the README's section, by their blocks.
func quickStart(t *testing.T) (blocks []string) {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(root, "README.md"))
	if err != nil {
		t.Fatal(err)
	}
	_, section, _ := strings.Cut(string(text), "\n## Quick start\n")
	section, _, _ = strings.Cut(section, "\n## ")
	for _, block := range shellBlock.FindAllStringSubmatch(section, -1) {
		blocks = append(blocks, block[1])
	}
	return blocks
}

// submitToKrew makes the index of krew, with the manifest of the release in it, as krew.yaml offers it.
func (n *internet) submitToKrew(t *testing.T, stranger *person) {
	t.Helper()
	index := t.TempDir()
	stranger.env = append(stranger.env, "KREW_DEFAULT_INDEX_URI="+index)
	stranger.runIn(index, "git init -q && mkdir plugins && cp "+filepath.Join(n.page, "skyhook.yaml")+` plugins/ && git add . &&
git -c user.name=index -c user.email=index@example.com commit -qm skyhook`)
}

// image finds an image of this machine's architecture in the registry.
func (n *internet) image(t *testing.T, ref string) v1.Image {
	t.Helper()
	r, err := name.ParseReference(ref)
	if err != nil {
		t.Fatal(err)
	}
	img, err := remote.Image(r, remote.WithTransport(n.transport), remote.WithPlatform(v1.Platform{OS: "linux", Architecture: runtime.GOARCH}))
	if err != nil {
		t.Fatalf("%s is not published: %v", ref, err)
	}
	return img
}

func (n *internet) requirePublished(t *testing.T, ref string) {
	t.Helper()
	if strings.HasPrefix(ref, "ghcr.io/") {
		n.image(t, ref)
	}
}

// takeOperator has these tests run the operator of the published image.
func (n *internet) takeOperator(t *testing.T, version string) {
	t.Helper()
	img := n.image(t, "ghcr.io"+repository+"operator:"+version)
	config, err := img.ConfigFile()
	if err != nil {
		t.Fatal(err)
	}
	files := mutate.Extract(img)
	defer func() { _ = files.Close() }()
	for r := tar.NewReader(files); ; {
		h, err := r.Next()
		if errors.Is(err, io.EOF) {
			t.Fatalf("the image has no %s", config.Config.Entrypoint[0])
		}
		if err != nil {
			t.Fatal(err)
		}
		if path.Join("/", h.Name) != config.Config.Entrypoint[0] {
			continue
		}
		content, err := io.ReadAll(r)
		if err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(programs, "operator"), content, 0o700); err != nil {
			t.Fatal(err)
		}
		return
	}
}

// runOperator runs the operator that was installed, after it has looked whether its images are published.
func (n *internet) runOperator(t *testing.T, version string) (stop func()) {
	t.Helper()
	found, err := newClientset(t).AppsV1().Deployments("skyhook").List(context.Background(), metav1.ListOptions{})
	if err != nil || len(found.Items) != 1 {
		t.Fatalf("installed are %v, %v", found, err)
	}
	c := found.Items[0].Spec.Template.Spec.Containers[0]
	refs := []string{c.Image}
	for _, e := range c.Env {
		if e.Name == "AGENT_IMAGE" {
			refs = append(refs, e.Value)
		}
	}
	for _, ref := range refs {
		if !strings.HasSuffix(ref, ":"+version) {
			t.Errorf("installed is %s, not %s", ref, version)
		}
		n.requirePublished(t, ref)
	}
	_, stop = startDeployment(t, "skyhook", found.Items[0].Name)
	return stop
}
