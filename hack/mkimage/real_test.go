// SPDX-FileCopyrightText: The Skyhook authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"archive/tar"
	"bytes"
	"crypto/x509"
	"debug/elf"
	"encoding/pem"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"syscall"
	"testing"

	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/mutate"

	"github.com/skyhook-k8s/skyhook/internal/image"
)

// built is the image of one archive for one platform.
func built(t *testing.T, file string, p v1.Platform) v1.Image {
	t.Helper()
	images, err := image.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	img, err := image.ForPlatform(images[0].Index, p)
	if err != nil {
		t.Fatal(err)
	}
	return img
}

// unpack extracts the layers of an image into a directory, as a runtime does.
func unpack(t *testing.T, img v1.Image) string {
	t.Helper()
	root := t.TempDir()
	flat := mutate.Extract(img)
	for in := tar.NewReader(flat); ; {
		h, err := in.Next()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			t.Fatal(err)
		}
		to := filepath.Join(root, h.Name)
		switch h.Typeflag {
		case tar.TypeDir:
			err = errors.Join(os.MkdirAll(to, 0o755), os.Chmod(to, os.FileMode(h.Mode&0o777)))
		case tar.TypeSymlink:
			err = os.Symlink(h.Linkname, to)
		default:
			var content []byte
			if content, err = io.ReadAll(in); err == nil {
				err = os.WriteFile(to, content, os.FileMode(h.Mode&0o777))
			}
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	if err := flat.Close(); err != nil {
		t.Fatal(err)
	}
	return root
}

// TestRoots: the operator's image has root certificates where Go looks for them; without them no Prometheus server with a public
// certificate could be queried.
func TestRoots(t *testing.T) {
	dir, _ := mk(t, "--module", small(t, 0), "--only", "operator", "--format", "layout", "--platform", "linux/amd64")
	images, err := image.ReadFile(filepath.Join(dir, "operator"))
	if err != nil {
		t.Fatal(err)
	}
	img, err := image.ForPlatform(images[0].Index, image.DefaultPlatforms()[0])
	if err != nil {
		t.Fatal(err)
	}
	archived, _ := mk(t, "--module", small(t, 0), "--only", "operator", "--platform", "linux/amd64")
	if list := string(read(t, filepath.Join(archived, "operator.spdx.json"))); !strings.Contains(list, `"pkg:golang/golang.org/x/crypto/x509roots/fallback@v0.`) {
		t.Error("the root certificates of the image are not in its SBOM")
	}
	rest, roots := read(t, filepath.Join(unpack(t, img), "etc/ssl/certs/ca-certificates.crt")), map[string]bool{}
	for block, more := pem.Decode(rest); block != nil; block, more = pem.Decode(more) {
		root, err := x509.ParseCertificate(block.Bytes)
		if err != nil || !root.IsCA {
			t.Errorf("%v is not the certificate of an authority: %v", root, err)
			continue
		}
		roots[root.Subject.CommonName] = true
	}
	if len(roots) < 80 || !roots["ISRG Root X1"] {
		t.Errorf("it has %d roots, ISRG Root X1 among them: %v", len(roots), roots["ISRG Root X1"])
	}
}

// TestLicenses checks that images contain our licence and those of what their programs consist of, and nothing of what others consist of.
func TestLicenses(t *testing.T) {
	dir, _ := mk(t, "--module", repository, "--only", "shell,pause", "--platform", "linux/amd64")
	for name, want := range map[string]map[string]bool{
		"shell": {"mvdan.cc/sh/v3 v3.": true, "github.com/u-root/u-root v0.": true, "std go1.": true, "k8s.io/": false},
		"pause": {"mvdan.cc/sh/v3 v3.": false, "std go1.": true},
	} {
		folder := filepath.Join(unpack(t, built(t, filepath.Join(dir, name+".tar"), image.DefaultPlatforms()[0])), "usr/share/doc/skyhook-"+name)
		texts := string(read(t, filepath.Join(folder, "THIRD_PARTY_LICENSES")))
		for module, isContained := range want {
			if strings.Contains(texts, "\n"+module) != isContained {
				t.Errorf("the licences of %s name %s: %v", name, module, !isContained)
			}
		}
		if !strings.Contains(texts, "Redistribution and use in source and binary forms") {
			t.Errorf("the licences of %s are not there as texts", name)
		}
		for _, ours := range []string{"LICENSE", "NOTICE"} {
			if !bytes.Equal(read(t, filepath.Join(folder, ours)), read(t, filepath.Join(repository, ours))) {
				t.Errorf("%s of %s is not that of the repository", ours, name)
			}
		}
	}
}

// TestForeign checks what cannot run here: the manifest says the platform, and every program is for it and static.
func TestForeign(t *testing.T) {
	dir, _ := mk(t, "--module", repository, "--only", "shell,pause,stub,fault,packages/shellscript")
	for _, p := range image.DefaultPlatforms() {
		machine := map[string]elf.Machine{"amd64": elf.EM_X86_64, "arm64": elf.EM_AARCH64}[p.Architecture]
		for name, programs := range map[string]int{"shell": 1, "pause": 1, "stub": 2, "fault": 2, "packages-shellscript": 1} {
			img := built(t, filepath.Join(dir, name+".tar"), p)
			cf, err := img.ConfigFile()
			if err != nil || cf.OS != p.OS || cf.Architecture != p.Architecture {
				t.Errorf("%s for %s says %s/%s, %v", name, p, cf.OS, cf.Architecture, err)
			}
			found := 0
			flat := mutate.Extract(img)
			for in := tar.NewReader(flat); ; {
				h, err := in.Next()
				if err != nil {
					break
				}
				content, err := io.ReadAll(in)
				if err != nil {
					t.Fatal(err)
				}
				f, err := elf.NewFile(bytes.NewReader(content))
				if err != nil {
					continue
				}
				found++
				if libs, err := f.ImportedLibraries(); f.Machine != machine || f.Section(".interp") != nil || err != nil || len(libs) > 0 || h.Mode != 0o755 {
					t.Errorf("%s for %s: /%s is for %s, needs %v, has mode %o, %v", name, p, h.Name, f.Machine, libs, h.Mode, err)
				}
				if h.Size > 6_000_000 {
					t.Errorf("%s for %s: /%s weighs %d bytes", name, p, h.Name, h.Size)
				}
			}
			if err := flat.Close(); err != nil {
				t.Fatal(err)
			}
			if found != programs {
				t.Errorf("%s for %s holds %d programs, want %d", name, p, found, programs)
			}
		}
	}
}

// TestContract runs the command of a package's init container in the unpacked image, twice, with a host mounted at
// /root and a ConfigMap at /skyhook-package/configmaps.
func TestContract(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("changing the root needs root")
	}
	p := v1.Platform{OS: "linux", Architecture: runtime.GOARCH}
	dir, _ := mk(t, "--module", repository, "--only", "packages/shellscript", "--platform", p.String())
	root := unpack(t, built(t, filepath.Join(dir, "packages-shellscript.tar"), p))
	mount := filepath.Join(root, "skyhook-package/configmaps")
	for _, err := range []error{
		os.MkdirAll(filepath.Join(mount, "..2026_11"), 0o755),
		os.WriteFile(filepath.Join(mount, "..2026_11/apply.sh"), []byte("echo hi\n"), 0o644),
		os.Symlink("..2026_11", filepath.Join(mount, "..data")),
		os.Symlink("..data/apply.sh", filepath.Join(mount, "apply.sh")),
	} {
		if err != nil {
			t.Fatal(err)
		}
	}
	const copyDir = "/var/lib/skyhook/cr/shellscript-1.2.0-uid-1"
	for range 2 {
		cmd := exec.Command("/bin/sh", "-c", "mkdir -p /root/$SKYHOOK_DIR && cp -r /skyhook-package/* /root/$SKYHOOK_DIR")
		cmd.SysProcAttr, cmd.Dir = &syscall.SysProcAttr{Chroot: root}, "/"
		cmd.Env = []string{image.SearchPath, "SKYHOOK_DIR=" + copyDir}
		if said, err := cmd.CombinedOutput(); err != nil || len(said) > 0 {
			t.Fatalf("the copy: %v\n%s", err, said)
		}
		if got := read(t, filepath.Join(root, "root", copyDir, "configmaps/apply.sh")); string(got) != "echo hi\n" {
			t.Errorf("the key is copied as %q", got)
		}
		if got := read(t, filepath.Join(root, "root", copyDir, "config.json")); !bytes.Equal(got, read(t, filepath.Join(repository, "packages/shellscript/config.json"))) {
			t.Error("config.json is copied with other content")
		}
		for _, e := range []string{"skyhook_dir", "skyhook_dir/shellscript_run.sh"} {
			st, err := os.Stat(filepath.Join(root, "root", copyDir, e))
			if err != nil || st.Mode().Perm() != 0o755 {
				t.Errorf("%s is copied as %v, %v", e, st, err)
			}
		}
	}
	for command, want := range map[string]string{
		"ls /bin": "bash\ncat\nchmod\ncp\nls\nmkdir\nmv\nrm\nsh\nsleep\n",
		"echo a; /bin/sleep 0 && /bin/cat /etc/group; /bin/bash -c 'echo $0 in'": "a\nroot:x:0:\nnobody:x:65534:\nsh in\n",
	} {
		cmd := exec.Command("/bin/sh", "-c", command)
		cmd.SysProcAttr, cmd.Dir, cmd.Env = &syscall.SysProcAttr{Chroot: root}, "/", []string{}
		if said, err := cmd.CombinedOutput(); err != nil || string(said) != want {
			t.Errorf("%s says %q, %v", command, said, err)
		}
	}
}

// TestRealAgent keeps the agent within its weight and starts it in its image. The operator is weighed whenever it is
// built; compiling it is too long for a test.
func TestRealAgent(t *testing.T) {
	if _, err := os.Stat(filepath.Join(repository, "cmd/skyhook-agent")); err != nil {
		t.Skip("there is no cmd/skyhook-agent")
	}
	dir, _ := mk(t, "--module", repository, "--only", "agent", "--version", "v1.2.3")
	if os.Geteuid() != 0 {
		t.Skip("changing the root needs root")
	}
	root := unpack(t, built(t, filepath.Join(dir, "agent.tar"), v1.Platform{OS: "linux", Architecture: runtime.GOARCH}))
	cmd := exec.Command("/usr/local/bin/skyhook-agent", "--version")
	cmd.SysProcAttr, cmd.Dir, cmd.Env = &syscall.SysProcAttr{Chroot: root}, "/", []string{image.SearchPath}
	if said, err := cmd.CombinedOutput(); err != nil || !strings.Contains(string(said), "v1.2.3") {
		t.Errorf("the agent says %q, %v", said, err)
	}
}

// TestContainerd loads archives with the containerd in PATH, every platform of them, and reads names and digests back.
func TestContainerd(t *testing.T) {
	if _, err := exec.LookPath("containerd"); err != nil || os.Geteuid() != 0 {
		t.Skip("needs root, and containerd and ctr in PATH")
	}
	ctr := containerd(t)
	dir, _ := mk(t, "--module", repository, "--only", "pause,stub,packages/shellscript")
	archives, err := filepath.Glob(filepath.Join(dir, "*.tar"))
	if err != nil || len(archives) != 3 {
		t.Fatalf("built %v, %v", archives, err)
	}
	for _, file := range archives {
		ctr("images", "import", "--local", "--all-platforms", "--no-unpack", file)
	}
	listed := ctr("images", "ls")
	for line := range strings.Lines(string(read(t, filepath.Join(dir, "digests.txt")))) {
		f := strings.Fields(line)
		if f[1] != "index" {
			continue
		}
		found := false
		for have := range strings.Lines(listed) {
			found = found || strings.HasPrefix(have, f[2]+" ") && strings.Contains(have, f[0]) && strings.Contains(have, "linux/amd64,linux/arm64")
		}
		if !found {
			t.Errorf("%s %s is not in\n%s", f[2], f[0], listed)
		}
	}
}

// containerd starts one in a folder of its own, without the parts that need more than files, and returns its ctr.
func containerd(t *testing.T) func(args ...string) string {
	t.Helper()
	dir, err := os.MkdirTemp("", "ctrd") // short: the path of a socket has a limit
	if err != nil {
		t.Fatal(err)
	}
	config := fmt.Sprintf(`version = 3
root = '%[1]s/root'
state = '%[1]s/state'
disabled_plugins = ['io.containerd.cri.v1.runtime', 'io.containerd.cri.v1.images', 'io.containerd.grpc.v1.cri', 'io.containerd.nri.v1.nri', 'io.containerd.tracing.processor.v1.otlp', 'io.containerd.internal.v1.tracing']
[grpc]
address = '%[1]s/sock'
[ttrpc]
address = '%[1]s/ttrpc'
`, dir)
	if err := os.WriteFile(filepath.Join(dir, "config.toml"), []byte(config), 0o644); err != nil {
		t.Fatal(err)
	}
	var log bytes.Buffer
	cmd := exec.Command("containerd", "--config", filepath.Join(dir, "config.toml"))
	logs, err := cmd.StderrPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	ready, gone := make(chan bool), make(chan bool)
	go func() { // it says when it serves
		defer close(gone)
		buf, told := make([]byte, 4096), false
		for {
			n, err := logs.Read(buf)
			log.Write(buf[:n])
			if !told && bytes.Contains(log.Bytes(), []byte("successfully booted")) {
				told = true
				close(ready)
			}
			if err != nil {
				return
			}
		}
	}()
	t.Cleanup(func() {
		_ = cmd.Process.Signal(syscall.SIGTERM)
		<-gone
		_ = cmd.Wait()
		if err := os.RemoveAll(dir); err != nil {
			t.Error(err)
		}
	})
	select {
	case <-ready:
	case <-gone:
		t.Fatalf("containerd did not start:\n%s", log.String())
	}
	return func(args ...string) string {
		t.Helper()
		said, err := exec.Command("ctr", append([]string{"--address", filepath.Join(dir, "sock"), "--namespace", "test"}, args...)...).CombinedOutput()
		if err != nil {
			t.Fatalf("ctr %v: %v\n%s", args, err, said)
		}
		return string(said)
	}
}
