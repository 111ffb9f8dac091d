// SPDX-FileCopyrightText: The Skyhook authors
// SPDX-License-Identifier: Apache-2.0

package overlay

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/skyhook-k8s/skyhook/internal/agent/fault"
	"github.com/skyhook-k8s/skyhook/internal/agent/host"
	"github.com/skyhook-k8s/skyhook/internal/agent/record"
	"github.com/skyhook-k8s/skyhook/internal/pack"
)

// overlayHost is a host with the copy of a package.
type overlayHost struct {
	*Overlay
	t      *testing.T
	dir    string
	copied *host.Dir
}

func newOverlayHost(t *testing.T) *overlayHost {
	h := &overlayHost{t: t, dir: t.TempDir()}
	root, err := host.Open(h.dir)
	h.check(err)
	t.Cleanup(func() { _ = root.Close() })
	held, err := record.LockPackage(context.Background(), root, "/state", "tuning", nil)
	h.check(err)
	t.Cleanup(held.Release)
	h.copied, err = root.MakeDir("/copy", 0o755)
	h.check(err)
	t.Cleanup(func() { _ = h.copied.Close() })
	h.Overlay = &Overlay{Host: root, Log: slog.New(slog.DiscardHandler), Record: &record.Package{Schema: record.Schema, Name: "tuning"}, Held: held}
	return h
}

func (h *overlayHost) check(err error) {
	h.t.Helper()
	if err != nil {
		h.t.Fatal(err)
	}
}

// write writes a file of the host.
func (h *overlayHost) write(name, content string) {
	h.t.Helper()
	at := filepath.Join(h.dir, name)
	h.check(os.MkdirAll(filepath.Dir(at), 0o755))
	h.check(os.WriteFile(at, []byte(content), 0o644))
}

// deliver writes a file of the package.
func (h *overlayHost) deliver(name string) {
	h.write(filepath.Join("copy", pack.OverlayDir, name), "ours")
}

// TestTooManyFilesChangeNothing delivers files whose record could not be read again: the host stays as it is.
func TestTooManyFilesChangeNothing(t *testing.T) {
	h := newOverlayHost(t)
	long := strings.Repeat(strings.Repeat("\x01", 200)+"/", 15) // each byte has six in the record
	for i := range host.MaxFile / 2 / (6 * len(long)) * 11 / 10 {
		h.deliver(fmt.Sprint("etc/", long, i))
	}
	h.deliver("etc/replaced")
	h.write("etc/replaced", "theirs")
	err := h.Converge(h.copied)
	if err == nil || fault.Classify(err).Class != pack.InvalidPackage || !strings.Contains(err.Error(), "larger than 16 MiB") {
		t.Errorf("%v", err)
	}
	for dir, want := range map[string]int{"etc": 1, "state/records/tuning": 1} { // the file, and the lock
		if list, err := os.ReadDir(filepath.Join(h.dir, dir)); len(list) != want || err != nil {
			t.Errorf("%s: %v %v", dir, list, err)
		}
	}
	if len(h.Record.Overlay.Files) != 0 {
		t.Errorf("%d files are recorded", len(h.Record.Overlay.Files))
	}
}

// TestLinksOfUsersAreNotFollowed delivers to a directory of a user who has replaced it by a link to one of root's, and takes away what was
// delivered before the link was there.
func TestLinksOfUsersAreNotFollowed(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("changes owners: needs root")
	}
	const user = 1234
	h := newOverlayHost(t)
	h.deliver("home/u/.ssh/authorized_keys")
	h.check(os.MkdirAll(filepath.Join(h.dir, "home/u"), 0o755))
	h.check(os.Chown(filepath.Join(h.dir, "home/u"), user, user))
	h.check(os.MkdirAll(filepath.Join(h.dir, "root/.ssh"), 0o700))
	link := filepath.Join(h.dir, "home/u/.ssh")
	h.check(h.Converge(h.copied))
	h.check(h.Converge(h.copied)) // into the directory that it made there
	h.check(os.Rename(link, link+".old"))
	h.check(os.Symlink("/root/.ssh", link))
	h.check(os.Lchown(link, user, user))

	err := h.Converge(h.copied)
	if list, _ := os.ReadDir(filepath.Join(h.dir, "root/.ssh")); !errors.Is(err, host.ErrUnsafe) || fault.Classify(err).Class != pack.HostProblem || len(list) > 0 {
		t.Errorf("%v, and root has %v", err, list)
	}
	h.write("root/.ssh/authorized_keys", "ours") // as the overlay would write it
	h.check(os.Chmod(filepath.Join(h.dir, "root/.ssh/authorized_keys"), 0o644))
	h.check(h.Converge(nil))
	if _, err := os.Stat(filepath.Join(h.dir, "root/.ssh/authorized_keys")); err != nil || len(h.Record.Overlay.Files) != 0 {
		t.Errorf("%v, and %d files are recorded", err, len(h.Record.Overlay.Files))
	}
}

// TestTimeGrowsWithFiles: sixteen times as many files take about sixteen times as long, on a busy machine more, and not 256 times.
func TestTimeGrowsWithFiles(t *testing.T) {
	measure := func(files int) time.Duration {
		fastest := time.Hour
		for range 5 {
			o := &Overlay{Record: &record.Package{}}
			var changes []Change
			for i := range files {
				name := fmt.Sprintf("/usr/share/doc/package/%08d", files-i)
				changes = append(changes, Change{Path: name, from: name, want: &record.Content{Digest: name}})
			}
			began := time.Now()
			next, _ := o.planRecord(changes, nil)
			for _, c := range changes {
				if f := findFile(next.Overlay, c.Path); f == nil || f.Wrote.Digest != c.Path {
					t.Fatalf("%s is recorded as %v", c.Path, f)
				}
			}
			fastest = min(fastest, time.Since(began))
		}
		return fastest
	}
	few, many := measure(3000), measure(48000)
	if t.Logf("%s and %s", few, many); many > 100*few {
		t.Errorf("3000 files take %s, and 48000 take %s", few, many)
	}
}
