// SPDX-FileCopyrightText: The Skyhook authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"context"
	"io"
	"log"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/google/go-containerregistry/pkg/registry"
	v1 "github.com/google/go-containerregistry/pkg/v1"

	"github.com/skyhook-k8s/skyhook/internal/image"
)

const repository = "../.."

func noEnv(string) string { return "" }

// mk runs the command and returns the folder it wrote and what it printed.
func mk(t *testing.T, args ...string) (dir, printed string) {
	t.Helper()
	dir = t.TempDir()
	var out, progress bytes.Buffer
	if err := run(context.Background(), append([]string{"--out", dir}, args...), noEnv, &out, &progress); err != nil {
		t.Fatalf("%v\n%s", err, progress.String())
	}
	return dir, out.String()
}

func read(t *testing.T, file string) []byte {
	t.Helper()
	content, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	return content
}

// elsewhere is a copy of what the images are built from, as another person has it: another folder, another umask.
func elsewhere(t *testing.T) string {
	t.Helper()
	defer syscall.Umask(syscall.Umask(0o077))
	dir := filepath.Join(t.TempDir(), "somewhere", "else")
	for _, part := range []string{"cmd/shell", "cmd/stub", "cmd/pause", "packages"} {
		if err := os.CopyFS(filepath.Join(dir, part), os.DirFS(filepath.Join(repository, part))); err != nil {
			t.Fatal(err)
		}
	}
	for _, file := range []string{"go.mod", "go.sum", "LICENSE", "NOTICE"} {
		if err := os.WriteFile(filepath.Join(dir, file), read(t, filepath.Join(repository, file)), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	return dir
}

// TestReproducible builds in two places under two environments: every archive is the same, byte for byte.
func TestReproducible(t *testing.T) {
	const only = "shell,pause,stub,fault,packages"
	first, _ := mk(t, "--module", repository, "--only", only)
	for key, value := range map[string]string{"TZ": "Pacific/Kiritimati", "LANG": "tr_TR.UTF-8", "GOFLAGS": "-race", "GOAMD64": "v3", "USER": "someone"} {
		t.Setenv(key, value)
	}
	second, _ := mk(t, "--module", elsewhere(t), "--only", only)
	files, err := filepath.Glob(filepath.Join(first, "*"))
	if err != nil || len(files) < 6 {
		t.Fatalf("built %v, %v", files, err)
	}
	for _, file := range files {
		if !bytes.Equal(read(t, file), read(t, filepath.Join(second, filepath.Base(file)))) {
			t.Errorf("%s differs", filepath.Base(file))
		}
	}
}

// TestDigestsMove: the version of a build changes the images that bear it, and neither the shell nor a package.
func TestDigestsMove(t *testing.T) {
	digests := func(args ...string) map[string]string {
		dir, _ := mk(t, append([]string{"--module", repository, "--platform", "linux/amd64", "--only", "shell,pause,packages/shellscript"}, args...)...)
		all := map[string]string{}
		for line := range strings.Lines(string(read(t, filepath.Join(dir, "digests.txt")))) {
			f := strings.Fields(line)
			if f[1] == "index" {
				name, _, _ := strings.Cut(f[2][strings.LastIndexByte(f[2], '/')+1:], ":")
				all[name] = f[0]
			}
		}
		return all
	}
	a, b := digests("--version", "v1"), digests("--version", "v2", "--revision", "0123abc")
	if len(a) != 3 || a["shell"] != b["shell"] || a["shellscript"] != b["shellscript"] || a["pause"] == b["pause"] {
		t.Errorf("v1 %v\nv2 %v", a, b)
	}
}

// small is a repository with an operator and an agent that do nothing; the agent weighs ballast bytes more.
func small(t *testing.T, ballast int) string {
	t.Helper()
	dir := t.TempDir()
	const program = "package main\n\nimport _ \"embed\"\n\n//go:embed ballast\nvar ballast string\n\nvar version string\n\nfunc main() { println(version, len(ballast)) }\n"
	for name, content := range map[string]string{
		"go.mod":  "module example.org/small\n\ngo 1.26\n",
		"LICENSE": "the licence", "NOTICE": "the notice",
		"cmd/operator/main.go": program, "cmd/operator/ballast": "",
		"cmd/skyhook-agent/main.go": program, "cmd/skyhook-agent/ballast": strings.Repeat("x", ballast),
	} {
		file := filepath.Join(dir, name)
		if err := os.MkdirAll(filepath.Dir(file), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(file, []byte(content), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	return dir
}

func TestOperatorAndAgent(t *testing.T) {
	dir, printed := mk(t, "--module", small(t, 0), "--only", "operator,agent", "--version", "v1.2.3", "--revision", "0123abc", "--format", "layout", "--prefix", "registry.example.org/sky")
	for name, want := range map[string]struct{ user, entry string }{
		"operator": {"10001:10001", "/manager"},
		"agent":    {"0:0", "/usr/local/bin/skyhook-agent"},
	} {
		images, err := image.ReadFile(filepath.Join(dir, name))
		if err != nil || len(images) != 1 || images[0].Name != "registry.example.org/sky/"+name+":v1.2.3" {
			t.Fatalf("%s: %+v, %v", name, images, err)
		}
		for _, p := range image.DefaultPlatforms() {
			cf := configOf(t, images[0].Index, p)
			labels := cf.Config.Labels
			if cf.Config.User != want.user || len(cf.Config.Entrypoint) != 1 || cf.Config.Entrypoint[0] != want.entry ||
				labels["org.opencontainers.image.title"] != "skyhook-"+name || labels["org.opencontainers.image.version"] != "v1.2.3" ||
				labels["org.opencontainers.image.revision"] != "0123abc" || labels["org.opencontainers.image.licenses"] != "Apache-2.0" ||
				labels["org.opencontainers.image.source"] != source {
				t.Errorf("%s %s: %+v", name, p, cf.Config)
			}
		}
		if strings.Count(printed, "registry.example.org/sky/"+name+":v1.2.3 ") != 3 {
			t.Errorf("%s is not listed three times in\n%s", name, printed)
		}
	}
}

func configOf(t *testing.T, idx v1.ImageIndex, p v1.Platform) *v1.ConfigFile {
	t.Helper()
	img, err := image.ForPlatform(idx, p)
	if err != nil {
		t.Fatal(err)
	}
	cf, err := img.ConfigFile()
	if err != nil {
		t.Fatal(err)
	}
	return cf
}

func TestRefusals(t *testing.T) {
	empty := t.TempDir()
	for _, tc := range []struct {
		args []string
		env  string
		want string
	}{
		{[]string{"agent"}, "", `argument "agent" is not understood; --only names the images to build`},
		{[]string{"--only", "agnet"}, "", `--only "agnet" is none of operator, agent, shell`},
		{[]string{"--version", "a b"}, "", `--version "a b" cannot be a tag`},
		{[]string{"--platform", "amd64"}, "", `--platform "amd64" is not understood; write linux/amd64`},
		{[]string{"--module", repository, "--only", "pause", "--platform", "linux/z80"}, "", "platform linux/z80 is not one of"},
		{[]string{"--format", "zip"}, "", `--format "zip" is not known; write archive or layout`},
		{[]string{"--push", "Not A Name"}, "", `image reference "Not A Name/agent:dev" cannot be read`},
		{nil, "yesterday", `SOURCE_DATE_EPOCH "yesterday" is not a number of seconds since 1970`},
		{[]string{"--module", empty}, "", "there is no go.mod in " + empty + "; run from the root of the repository"},
		{[]string{"--module", repository, "--only", "packages/nothing"}, "", "there is no package packages/nothing"},
		{[]string{"--module", small(t, 12_000_000), "--only", "agent"}, "", "image agent: building the image for linux/amd64: the program for linux/amd64 weighs 13."},
	} {
		out := t.TempDir()
		env := func(key string) string {
			if key == "SOURCE_DATE_EPOCH" {
				return tc.env
			}
			return ""
		}
		err := run(context.Background(), append([]string{"--out", out}, tc.args...), env, io.Discard, io.Discard)
		if err == nil || !strings.Contains(err.Error(), tc.want) {
			t.Errorf("%v: %v, want %q", tc.args, err, tc.want)
		}
		if left, _ := os.ReadDir(out); len(left) > 0 {
			t.Errorf("%v: failed, and wrote %v", tc.args, left)
		}
	}
}

// TestWeight: an image that outgrows its limit is refused.
func TestWeight(t *testing.T) {
	set, err := newSettings([]string{"--module", small(t, 3_000_000), "--platform", "linux/amd64"}, noEnv, io.Discard)
	if err != nil {
		t.Fatal(err)
	}
	m, err := newImageBuilder(set, io.Discard)
	if err != nil {
		t.Fatal(err)
	}
	defer m.close()
	p := product{name: "agent", program: "cmd/skyhook-agent", file: "/agent", limit: 3}
	if _, err := m.buildProduct(context.Background(), p); err == nil || !strings.Contains(err.Error(), "more than the 3 MB they may") {
		t.Errorf("an image of more than 4 MB where 3 are allowed: %v", err)
	}
	p.limit = 10
	if _, err := m.buildProduct(context.Background(), p); err != nil {
		t.Error(err)
	}
}

func TestEpoch(t *testing.T) {
	dir := t.TempDir()
	err := run(context.Background(), []string{"--module", small(t, 0), "--only", "agent", "--platform", "linux/amd64", "--out", dir},
		func(string) string { return "1700000000" }, io.Discard, io.Discard)
	if err != nil {
		t.Fatal(err)
	}
	images, err := image.ReadFile(filepath.Join(dir, "agent.tar"))
	if err != nil {
		t.Fatal(err)
	}
	if cf := configOf(t, images[0].Index, image.DefaultPlatforms()[0]); cf.Created.Unix() != 1700000000 {
		t.Errorf("created %s", cf.Created)
	}
}

// TestPush pushes two images and pulls one back by the digest that was listed.
func TestPush(t *testing.T) {
	server := httptest.NewServer(registry.New(registry.Logger(log.New(io.Discard, "", 0))))
	defer server.Close()
	to := strings.TrimPrefix(server.URL, "http://") + "/team/sky"
	dir, _ := mk(t, "--module", repository, "--only", "pause,packages/shellscript", "--push", to, "--plain-http")
	for line := range strings.Lines(string(read(t, filepath.Join(dir, "digests.txt")))) {
		f := strings.Fields(line)
		if f[1] != "index" {
			continue
		}
		name := f[2][:strings.LastIndexByte(f[2], ':')]
		if !strings.HasPrefix(name, to) {
			t.Errorf("%s was not meant to be pushed", name)
		}
		idx, err := image.Registry{PlainHTTP: true}.Pull(context.Background(), name+"@"+f[0])
		if err != nil {
			t.Fatal(err)
		}
		lines, err := image.List(idx)
		if err != nil || len(lines) != 3 || lines[0].Digest.String() != f[0] {
			t.Errorf("%s comes back as %+v, %v", f[2], lines, err)
		}
	}
	if err := run(context.Background(), []string{"--module", small(t, 0), "--only", "agent", "--out", t.TempDir(), "--push", "127.0.0.1:1/sky", "--plain-http"},
		noEnv, io.Discard, io.Discard); err == nil || !strings.Contains(err.Error(), "pushing 127.0.0.1:1/sky/agent:dev") {
		t.Errorf("a registry that is not there: %v", err)
	}
}
