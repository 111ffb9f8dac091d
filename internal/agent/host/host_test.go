// SPDX-FileCopyrightText: The Skyhook authors
// SPDX-License-Identifier: Apache-2.0

package host

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// openBoth opens a root with openat2 and without.
func openBoth(t *testing.T, dir string) map[string]*Root {
	t.Helper()
	roots := map[string]*Root{}
	for _, name := range []string{"kernel", "walk"} {
		r, err := Open(dir)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = r.Close() })
		r.walk = name == "walk"
		roots[name] = r
	}
	return roots
}

func TestPathsStayOnTheHost(t *testing.T) {
	outside := t.TempDir()
	root := filepath.Join(outside, "root")
	write := func(name, content string) {
		t.Helper()
		at := filepath.Join(outside, name)
		if err := errors.Join(os.MkdirAll(filepath.Dir(at), 0o755), os.WriteFile(at, []byte(content), 0o644)); err != nil {
			t.Fatal(err)
		}
	}
	write("secret", "outside")
	write("root/data/lib/file", "inside")
	write("root/secret", "the host's secret")
	for link, target := range map[string]string{
		"var":      "/data",                          // absolute
		"up":       "../../../../../../../secret",    // above the root
		"far":      outside + "/secret",              // a path of the agent's own
		"loop":     "loop",                           // for ever
		"chain":    "var/lib/../lib/./file",          // through another
		"dangling": "nowhere",                        // nothing
		"procself": "/proc/self/root/" + outside[1:], // no such folder in this root
		"data/abs": "/secret",                        // absolute, from below
		"data/rel": "../var/lib",                     // relative, through a link
	} {
		if err := os.Symlink(target, filepath.Join(root, link)); err != nil {
			t.Fatal(err)
		}
	}
	for _, c := range []struct{ path, want string }{
		{"/var/lib/file", "inside"},
		{"/up", "the host's secret"},
		{"/far", "no such file"},
		{"/loop", "too many levels"},
		{"/chain", "inside"},
		{"/dangling", "no such file"},
		{"/procself/secret", "no such file"},
		{"/data/abs", "the host's secret"},
		{"/data/rel/file", "inside"},
		{"/data/lib/file/x", "not a directory"},
		{"/data/lib", "not a regular file"},
		{"data/lib/file", "not absolute"},
		{"/data/../data/lib/file", "contains .."},
		{"/data\x00/lib", "zero byte"},
	} {
		for how, r := range openBoth(t, root) {
			got, err := r.ReadFile(c.path)
			text := string(got)
			if err != nil {
				text = err.Error()
			}
			if !strings.Contains(text, c.want) {
				t.Errorf("%s %s: %q, want %q", how, c.path, text, c.want)
			}
			if strings.Contains(text, outside) {
				t.Errorf("%s %s: the error names a path of the agent's own: %s", how, c.path, text)
			}
		}
	}
}

// TestWalkAgreesWithKernel creates random trees of links and resolves paths both ways.
func TestWalkAgreesWithKernel(t *testing.T) {
	for seed := range uint64(40) {
		luck := rand.New(rand.NewPCG(seed, 2))
		root := filepath.Join(t.TempDir(), "a/b/root")
		dirs := []string{"/"}
		for i := range 12 {
			dir := filepath.Join(dirs[luck.IntN(len(dirs))], fmt.Sprintf("d%d", i))
			if err := os.MkdirAll(root+dir, 0o755); err != nil {
				t.Fatal(err)
			}
			dirs = append(dirs, dir)
		}
		names := slices.Clone(dirs)
		for i := range 20 {
			at := filepath.Join(dirs[luck.IntN(len(dirs))], fmt.Sprintf("l%d", i))
			target := names[luck.IntN(len(names))]
			if luck.IntN(2) == 0 {
				target = strings.Repeat("../", luck.IntN(8)) + "." + target
			}
			if err := os.Symlink(target, root+at); err != nil {
				t.Fatal(err)
			}
			names = append(names, at)
		}
		roots := openBoth(t, root)
		for range 200 {
			name := names[luck.IntN(len(names))]
			for range luck.IntN(3) {
				name += "/" + filepath.Base(names[luck.IntN(len(names))])
			}
			one, oneErr := resolveByKernel(roots["kernel"], name)
			for how, r := range roots {
				two, twoErr := resolveTarget(r, name)
				if one != two || !errors.Is(twoErr, errno(oneErr)) {
					t.Fatalf("seed %d, %s: the kernel says %q %v, %s %q %v", seed, name, one, oneErr, how, two, twoErr)
				}
			}
			if oneErr == nil && one != root && !strings.HasPrefix(one, root+"/") {
				t.Fatalf("seed %d, %s leads to %s", seed, name, one)
			}
		}
	}
}

// resolveByKernel resolves a path with openat2 alone.
func resolveByKernel(r *Root, name string) (string, error) {
	rel := strings.TrimPrefix(filepath.Clean(name), "/")
	how := &unix.OpenHow{Flags: unix.O_PATH, Resolve: unix.RESOLVE_IN_ROOT | unix.RESOLVE_NO_MAGICLINKS}
	fd, err := unix.Openat2(int(r.fd.Fd()), cmp.Or(rel, "."), how)
	for errors.Is(err, unix.EAGAIN) { // something is renamed at the same time
		fd, err = unix.Openat2(int(r.fd.Fd()), cmp.Or(rel, "."), how)
	}
	if err != nil {
		return "", err
	}
	f := os.NewFile(uintptr(fd), name)
	defer f.Close()
	return os.Readlink(procPath(f))
}

func resolveTarget(r *Root, name string) (string, error) {
	fd, err := r.resolvePath(filepath.Clean(name), false)
	if err != nil {
		return "", err
	}
	defer fd.Close()
	return os.Readlink(procPath(fd))
}

func errno(err error) error {
	var n unix.Errno
	if errors.As(err, &n) {
		return n
	}
	return err
}

// TestLinksOfUsersAreNotFollowed resolves paths with links that a user owns, or that are in a directory of a user.
func TestLinksOfUsersAreNotFollowed(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("changes owners: needs root")
	}
	const user = 1234
	root := t.TempDir()
	for _, dir := range []string{"home/u/dir/made", "tmp/victim", "tmp/mine", "root/.ssh", "data"} {
		if err := os.MkdirAll(filepath.Join(root, dir), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	for _, link := range []struct {
		name, target string
		isRoots      bool
	}{
		{"home/u/abs", "/root/.ssh", false}, {"home/u/rel", "../../root/.ssh", false}, {"home/u/own", "dir", false}, {"home/u/home", "/home/u/dir", false},
		{"home/u/roots", "dir", true}, {"tmp/sibling", "victim", false}, {"tmp/here", ".", false}, {"tmp/own", "mine", false},
		{"tmp/via", "mine/../victim", false}, {"var", "/data", true}, {"etc", "/home/u/own", true},
	} {
		at := filepath.Join(root, link.name)
		if err := os.Symlink(link.target, at); err != nil {
			t.Fatal(err)
		}
		if !link.isRoots {
			if err := os.Lchown(at, user, user); err != nil {
				t.Fatal(err)
			}
		}
	}
	for _, dir := range []string{"home/u", "home/u/dir", "tmp/mine"} {
		if err := os.Chown(filepath.Join(root, dir), user, user); err != nil {
			t.Fatal(err)
		}
	}
	for name, want := range map[string]error{
		"/home/u/abs": ErrUnsafe, "/home/u/rel": ErrUnsafe, "/home/u/home": ErrUnsafe, "/home/u/roots": ErrUnsafe,
		"/tmp/sibling": ErrUnsafe, "/tmp/here": ErrUnsafe, "/tmp/here/victim": ErrUnsafe, "/tmp/via": ErrUnsafe,
		"/home/u/own": nil, "/home/u/own/made": nil, "/home/u/dir/made": nil, "/tmp/own": nil, "/var": nil, "/etc/made": nil,
	} {
		for how, r := range openBoth(t, root) {
			if dir, err := r.MakeDir(name, 0o755); !errors.Is(err, want) {
				t.Errorf("%s %s: %v, want %v", how, name, err, want)
			} else if err == nil {
				_ = dir.Close()
			}
		}
	}
}

func TestWriteIsAtomic(t *testing.T) {
	root := t.TempDir()
	r := openBoth(t, root)["kernel"]
	dir, err := r.MakeDir("/a/b", 0o700)
	if err != nil {
		t.Fatal(err)
	}
	var changes []string
	dir.watch = func(change, name string) { changes = append(changes, change+" "+name) }
	if err := os.WriteFile(filepath.Join(root, "target"), []byte("not ours"), 0o644); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink("/target", filepath.Join(root, "a/b/file")); err != nil {
		t.Fatal(err)
	}
	// A file of a killed agent does no harm.
	if err := os.Symlink("/target", filepath.Join(root, "a/b", tempName("file"))); err != nil {
		t.Fatal(err)
	}
	if err := dir.Write("file", []byte("new"), 0o640); err != nil {
		t.Fatal(err)
	}
	if got, _ := os.ReadFile(filepath.Join(root, "target")); string(got) != "not ours" {
		t.Errorf("the link was written through: %q", got)
	}
	st, err := os.Lstat(filepath.Join(root, "a/b/file"))
	if err != nil || st.Mode() != 0o640 {
		t.Errorf("mode %v, error %v", st.Mode(), err)
	}
	if want := []string{"write /a/b/file", "rename /a/b/file", "sync /a/b/file"}; !slices.Equal(changes, want) {
		t.Errorf("changes %v, want %v", changes, want)
	}
	// A failing source leaves the old content and no other file.
	err = dir.WriteOwned("file", io.MultiReader(strings.NewReader("half"), failingReader{}), 0o600, os.Geteuid(), os.Getegid())
	if err == nil || !strings.Contains(err.Error(), "writing /a/b/file on the host: it broke") {
		t.Errorf("error %v", err)
	}
	if got, _ := os.ReadFile(filepath.Join(root, "a/b/file")); string(got) != "new" {
		t.Errorf("content %q", got)
	}
	if list, _ := os.ReadDir(filepath.Join(root, "a/b")); len(list) != 1 {
		t.Errorf("left behind: %v", list)
	}
}

type failingReader struct{}

func (failingReader) Read([]byte) (int, error) { return 0, errors.New("it broke") }

func TestLockWaits(t *testing.T) {
	r := openBoth(t, t.TempDir())["kernel"]
	dir, err := r.MakeDir("/state", 0o700)
	if err != nil {
		t.Fatal(err)
	}
	release, err := dir.Lock(context.Background(), "lock", nil)
	if err != nil {
		t.Fatal(err)
	}
	gone, cancel := context.WithCancelCause(context.Background())
	cancel(errors.New("no time"))
	waited := false
	if _, err := dir.Lock(gone, "lock", func() { waited = true }); err == nil || !strings.Contains(err.Error(), "waiting for the lock /state/lock on the host: no time") || !waited {
		t.Errorf("waited %v, error %v", waited, err)
	}
	freed := make(chan struct{})
	again, stop := context.WithTimeout(context.Background(), time.Minute)
	defer stop()
	go func() {
		defer close(freed)
		if release, err := dir.Lock(again, "lock", release); err != nil { // given back as soon as it is waited for
			t.Error(err)
		} else {
			release()
		}
	}()
	<-freed
}

func TestCopyRejectsSpecialFiles(t *testing.T) {
	from := t.TempDir()
	if err := unix.Mkfifo(filepath.Join(from, "pipe"), 0o600); err != nil {
		t.Fatal(err)
	}
	source, err := os.OpenRoot(from)
	if err != nil {
		t.Fatal(err)
	}
	defer source.Close()
	r := openBoth(t, t.TempDir())["kernel"]
	dir, err := r.MakeDir("/to", 0o700)
	if err != nil {
		t.Fatal(err)
	}
	if err := dir.Copy(source, "copy"); err == nil || !strings.Contains(err.Error(), "pipe is neither a file nor a directory nor a link") {
		t.Errorf("error %v", err)
	}
}

func TestBootID(t *testing.T) {
	root := t.TempDir()
	r := openBoth(t, root)["kernel"]
	own, err := r.BootID() // a root without /proc: the machine's own
	if err != nil || len(own) != 36 {
		t.Errorf("%q, %v", own, err)
	}
	at := filepath.Join(root, bootFile)
	if err := errors.Join(os.MkdirAll(filepath.Dir(at), 0o755), os.WriteFile(at, []byte("the-host\n"), 0o444)); err != nil {
		t.Fatal(err)
	}
	if id, err := r.BootID(); id != "the-host" || err != nil {
		t.Errorf("%q, %v", id, err)
	}
	if found, err := r.DetectKairos(); found.BootID != "the-host" || err != nil {
		t.Errorf("%+v, %v", found, err)
	}
	if err := os.WriteFile(at, nil, 0o644); err != nil {
		t.Fatal(err)
	}
	if id, err := r.BootID(); err == nil {
		t.Errorf("an empty boot id counts as %q", id)
	}
	if _, err := r.Stat("/proc/none"); !errors.Is(err, fs.ErrNotExist) {
		t.Error(err)
	}
}
