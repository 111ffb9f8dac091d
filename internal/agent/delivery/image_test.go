// SPDX-FileCopyrightText: The Skyhook authors
// SPDX-License-Identifier: Apache-2.0

package delivery

import (
	"fmt"
	"io/fs"
	"log/slog"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/skyhook-k8s/skyhook/internal/agent/host"
	"github.com/skyhook-k8s/skyhook/internal/pack"
)

// imageHost is a host, an image and what is mounted beside it, in temporary directories.
type imageHost struct {
	t                   *testing.T
	host, image, mounts string
	config              map[string]string
	changes             int // of the host
	killAt              int // before this change the agent is killed; 0 for never
	pods                int
}

const imageCopy = "/state/tuning"

func newImageHost(t *testing.T) *imageHost {
	t.Helper()
	dir := t.TempDir()
	h := &imageHost{t: t, host: filepath.Join(dir, "host"), image: filepath.Join(dir, "image"), mounts: filepath.Join(dir, "mounts"), config: map[string]string{}}
	for _, at := range []string{h.host, filepath.Join(h.image, "skyhook-package")} {
		h.check(os.MkdirAll(at, 0o755))
	}
	return h
}

func (h *imageHost) check(err error) {
	h.t.Helper()
	if err != nil {
		h.t.Fatal(err)
	}
}

func (h *imageHost) write(at, content string, mode fs.FileMode) {
	h.t.Helper()
	h.check(os.RemoveAll(at))
	h.check(os.MkdirAll(filepath.Dir(at), 0o755))
	h.check(os.WriteFile(at, []byte(content), mode))
	h.check(os.Chmod(at, mode))
}

func (h *imageHost) inImage(name string) string {
	return filepath.Join(h.image, "skyhook-package", name)
}

func (h *imageHost) onHost(name string) string { return filepath.Join(h.host, imageCopy, name) }

// setConfig mounts a ConfigMap.
func (h *imageHost) setConfig(config map[string]string) {
	h.t.Helper()
	h.config = config
	h.check(os.RemoveAll(filepath.Join(h.mounts, pack.ConfigMapDir)))
	for key, value := range config {
		h.write(filepath.Join(h.mounts, pack.ConfigMapDir, key), value, 0o644)
	}
}

type killed struct{}

// deliver runs the delivery of a new agent to a place of the host. It reports false if the agent was killed.
func (h *imageHost) deliver(place string) (done bool) {
	h.t.Helper()
	h.pods++
	root, err := host.Open(h.host)
	h.check(err)
	defer root.Close()
	d := &Delivery{
		Host: root, Log: slog.New(slog.DiscardHandler), CopyDir: place, SourceDir: h.mounts, ImageDir: h.image, PodUID: fmt.Sprint("pod-", h.pods), ConfigDigest: pack.ConfigDigest(h.config),
	}
	h.changes = 0
	root.OnChange = func(string, string) {
		if h.changes++; h.changes == h.killAt {
			panic(killed{})
		}
	}
	defer func() {
		if crash := recover(); crash != nil {
			if _, isKill := crash.(killed); !isKill {
				panic(crash)
			}
			done = false
		}
	}()
	h.check(d.Bring())
	copied, err := d.Open()
	h.check(err)
	h.check(copied.Close())
	return true
}

// tree describes the files at a place of the host, without the manifest and what a killed agent was writing.
func (h *imageHost) tree(place string) []string {
	h.t.Helper()
	root := filepath.Join(h.host, place)
	var out []string
	h.check(filepath.WalkDir(root, func(name string, e fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		rel, err := filepath.Rel(root, name)
		if err != nil || rel == manifestFile || host.IsTemp(rel) {
			return err
		}
		st, err := e.Info()
		if err != nil {
			return err
		}
		content := ""
		switch {
		case st.Mode().IsRegular():
			text, err := os.ReadFile(name)
			if err != nil {
				return err
			}
			content = string(text)
		case st.Mode()&fs.ModeSymlink != 0:
			if content, err = os.Readlink(name); err != nil {
				return err
			}
		}
		out = append(out, fmt.Sprintf("%s %s %q", rel, st.Mode(), content))
		return nil
	}))
	return out
}

func (h *imageHost) writeImage() {
	h.t.Helper()
	h.write(h.inImage("config.json"), `{"schema_version":"v1","package_name":"tuning","package_version":"1.0.0","expected_config_files":[],"modes":{"config":[`+
		`{"name":"a","path":"a.sh","arguments":[],"returncodes":[0],"on_host":true,"idempotence":false,"upgrade_step":false},`+
		`{"name":"l","path":"link","arguments":[],"returncodes":[0],"on_host":true,"idempotence":false,"upgrade_step":false}]}}`, 0o644)
	h.write(h.inImage("skyhook_dir/a.sh"), "#!/bin/sh\n", 0o644)
	h.write(h.inImage("skyhook_dir/helper.sh"), "#!/bin/sh\n", 0o644)
	h.write(h.inImage("skyhook_dir/sub/b.sh"), "#!/bin/sh\n", 0o644)
	h.write(h.inImage("root_dir/etc/x"), "x\n", 0o600)
	h.write(h.inImage("configmaps/of-the-image"), "x\n", 0o600)
	h.check(os.RemoveAll(h.inImage("skyhook_dir/link")))
	h.check(os.Symlink("sub/b.sh", h.inImage("skyhook_dir/link")))
}

// change changes something of the image, of what is mounted, or of the copy on the host.
func (h *imageHost) change(luck *rand.Rand) {
	h.t.Helper()
	names := []string{"config.json", "skyhook_dir/a.sh", "skyhook_dir/helper.sh", "skyhook_dir/sub/b.sh", "root_dir/etc/x", "skyhook_dir/link", "configmaps/k1", "configmaps/k2", "node-metadata/labels.json"}
	at := h.onHost(names[luck.IntN(len(names))])
	isThere := func() bool { _, err := os.Lstat(at); return err == nil }()
	switch luck.IntN(10) {
	case 0:
		h.setConfig(map[string]string{fmt.Sprint("k", luck.IntN(3)): fmt.Sprint(luck.IntN(3)), fmt.Sprint("k", luck.IntN(3)): "x"})
	case 1:
		h.write(filepath.Join(h.mounts, pack.NodeMetadataDir, "labels.json"), fmt.Sprint(luck.IntN(5)), 0o644)
	case 2:
		h.write(h.inImage("skyhook_dir/helper.sh"), fmt.Sprint(luck.IntN(3)), []fs.FileMode{0o644, 0o755}[luck.IntN(2)])
	case 3:
		h.check(os.RemoveAll(at))
	case 4:
		if isThere {
			h.write(at, "somebody else's", 0o644)
		}
	case 5:
		if isThere && filepath.Base(at) != "link" {
			h.check(os.Chmod(at, 0o711))
		}
	case 6:
		h.check(os.RemoveAll(at))
		if isThere {
			h.check(os.Symlink("/etc/passwd", at))
		}
	case 7:
		if h.check(os.RemoveAll(at)); isThere {
			h.check(os.MkdirAll(filepath.Join(at, "sub"), 0o755))
		}
	case 8:
		more := h.inImage("skyhook_dir/more/x")
		if _, err := os.Lstat(more); err == nil {
			h.check(os.RemoveAll(filepath.Dir(more)))
		} else {
			h.write(more, "more", 0o644)
		}
	}
}

// TestRandomDeliveries: whatever happened to the copy on the host, and wherever agents before were killed, it is afterwards like a new copy,
// but for the files that steps created. When nothing differs, nothing is changed.
func TestRandomDeliveries(t *testing.T) {
	kills := 0
	for seed := range uint64(80) {
		luck := rand.New(rand.NewPCG(seed, 2))
		h := newImageHost(t)
		h.writeImage()
		h.setConfig(map[string]string{"k1": "a"})
		h.write(filepath.Join(h.mounts, pack.NodeMetadataDir, "labels.json"), "1", 0o644)
		h.deliver(imageCopy)
		h.write(h.onHost("skyhook_dir/of-a-step"), "made", 0o644)
		h.write(h.onHost("configmaps/of-a-step"), "made", 0o644)
		for range 6 {
			for range luck.IntN(3) {
				h.change(luck)
			}
			if h.killAt = luck.IntN(25); h.deliver(imageCopy) {
				h.killAt = 0
			} else {
				kills++
			}
		}
		h.killAt = 0
		h.deliver(imageCopy)
		h.deliver("/state/fresh")
		h.write(filepath.Join(h.host, "state/fresh/skyhook_dir/of-a-step"), "made", 0o644)
		h.write(filepath.Join(h.host, "state/fresh/configmaps/of-a-step"), "made", 0o644)
		if diff := cmp.Diff(h.tree("/state/fresh"), h.tree(imageCopy)); diff != "" {
			t.Fatalf("seed %d: a new copy (-) and this one (+):\n%s", seed, diff)
		}
		for _, step := range []string{"skyhook_dir/a.sh", "skyhook_dir/link"} { // which would change when they run
			if st, err := os.Stat(h.onHost(step)); err != nil || st.Mode().Perm()&0o111 != 0o111 {
				t.Fatalf("seed %d: %s is not executable: %v", seed, step, err)
			}
		}
		if h.deliver(imageCopy); h.changes != 0 {
			t.Fatalf("seed %d: a copy that is right was changed", seed)
		}
		left, err := os.ReadDir(filepath.Join(h.host, "state"))
		h.check(err)
		if len(left) != 2 {
			t.Fatalf("seed %d: %v is left", seed, left)
		}
	}
	if kills < 80 {
		t.Errorf("only %d kills", kills)
	}
}

// TestMountedFilesAreBounded: a config that is larger than any ConfigMap is not read.
func TestMountedFilesAreBounded(t *testing.T) {
	dir := t.TempDir()
	for _, name := range []string{"a", "b"} {
		if err := os.WriteFile(filepath.Join(dir, name), make([]byte, pack.MaxConfig/2+1), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := readMount(dir); err == nil || !strings.Contains(err.Error(), "more than 4 MiB") {
		t.Errorf("%v", err)
	}
}

// TestKilledWhileRenewing: a key that an agent wrote before it was killed goes when the next ConfigMap does not have it.
func TestKilledWhileRenewing(t *testing.T) {
	for at := 1; ; at++ {
		h := newImageHost(t)
		h.writeImage()
		h.setConfig(map[string]string{"k1": "a", "k2": "a"})
		h.deliver(imageCopy)
		h.setConfig(map[string]string{"k1": "b", "k3": "b"})
		h.killAt = at
		done := h.deliver(imageCopy)
		h.killAt = 0
		h.setConfig(map[string]string{"k1": "a"})
		h.deliver(imageCopy)
		h.deliver("/state/fresh")
		if diff := cmp.Diff(h.tree("/state/fresh"), h.tree(imageCopy)); diff != "" {
			t.Fatalf("killed before change %d: a new copy (-) and this one (+):\n%s", at, diff)
		}
		if done {
			if at < 9 {
				t.Errorf("only %d changes", at-1)
			}
			return
		}
	}
}
