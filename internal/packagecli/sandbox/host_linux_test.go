// SPDX-FileCopyrightText: The Skyhook authors
// SPDX-License-Identifier: Apache-2.0

package sandbox

import (
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// tree makes files by path; a folder ends in /, a link has -> in its content.
func tree(t *testing.T, dir string, files map[string]string) {
	t.Helper()
	for name, content := range files {
		at := filepath.Join(dir, name)
		if err := os.MkdirAll(filepath.Dir(at), 0o755); err != nil {
			t.Fatal(err)
		}
		var err error
		target, isLink := strings.CutPrefix(content, "-> ")
		switch {
		case strings.HasSuffix(name, "/"):
			err = os.MkdirAll(at, 0o755)
		case isLink:
			err = os.Symlink(target, at)
		default:
			err = os.WriteFile(at, []byte(content), 0o644)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
}

func TestCopyTree(t *testing.T) {
	from, to := t.TempDir(), t.TempDir()
	tree(t, from, map[string]string{"etc/a": "x", "bin": "-> usr/bin", "usr/bin/": "", "proc/1/status": "x", "out": "-> /etc/passwd"})
	if os.Geteuid() == 0 {
		if err := os.Chown(filepath.Join(from, "etc/a"), 3, 4); err != nil {
			t.Fatal(err)
		}
	}
	for _, err := range []error{
		os.Link(filepath.Join(from, "etc/a"), filepath.Join(from, "etc/b")), os.Chmod(filepath.Join(from, "etc/a"), 0o755|os.ModeSetuid),
		os.Chmod(filepath.Join(from, "usr"), 0o700), unix.Mkfifo(filepath.Join(from, "pipe"), 0o600),
	} {
		if err != nil {
			t.Fatal(err)
		}
	}
	if err := copyTree(from, to); err != nil {
		t.Fatal(err)
	}
	look := func(dir string) snapshot {
		h := &host{dir: dir}
		tree(t, dir, map[string]string{stateDir + "/units/": ""})
		s, err := h.takeSnapshot(nil)
		if err != nil {
			t.Fatal(err)
		}
		return s
	}
	if other := look(to).diffFrom(look(from)); len(other) > 0 {
		t.Errorf("the copy differs: %+v", other)
	}
	one, err := os.Stat(filepath.Join(to, "etc/a"))
	two, err2 := os.Stat(filepath.Join(to, "etc/b"))
	if err != nil || err2 != nil || !os.SameFile(one, two) || one.Mode()&os.ModeSetuid == 0 {
		t.Errorf("the two names: %v %v %v %v", one, two, err, err2)
	}
	if _, err := os.Stat(filepath.Join(to, "proc/1")); err == nil {
		t.Error("what /proc shows was copied")
	}
	if err := copyTree(filepath.Join(from, "etc/a"), to); err == nil {
		t.Error("a file is copied as a root file system")
	}
}

// A change is seen even when size and time of the file stay.
func TestLookSeesEveryChange(t *testing.T) {
	h := &host{dir: t.TempDir()}
	tree(t, h.dir, map[string]string{stateDir + "/units/cron.service": "active\n", "etc/a": "one", "etc/l": "-> a", "etc/gone": "x", "srv/": ""})
	before, err := h.takeSnapshot(nil)
	if err != nil {
		t.Fatal(err)
	}
	at := func(name string) string { return filepath.Join(h.dir, name) }
	st, err := os.Stat(at("etc/a"))
	if err != nil {
		t.Fatal(err)
	}
	for _, err := range []error{
		os.WriteFile(at("etc/a"), []byte("two"), 0o644), os.Chtimes(at("etc/a"), time.Now(), st.ModTime()),
		os.Remove(at("etc/l")), os.Symlink("b", at("etc/l")), os.Remove(at("etc/gone")), os.Mkdir(at("etc/gone"), 0o755),
		os.Chmod(at("srv"), 0o700), os.Remove(at(stateDir + "/units/cron.service")), os.WriteFile(at("run/x"), nil, 0o644),
		os.MkdirAll(at("var/lib/skyhook/x"), 0o755),
	} {
		if err != nil {
			t.Fatal(err)
		}
	}
	after, err := h.takeSnapshot(before)
	if err != nil {
		t.Fatal(err)
	}
	var got []string
	for _, c := range after.diffFrom(before) {
		got = append(got, c.Kind+" "+c.Path+": "+c.What)
	}
	want := `changed /etc/a: content
changed /etc/gone: file is now folder 0755
changed /etc/l: link to a leads to b now
changed /srv: mode 0755 is now 0700
added /var: folder 0755
added /var/lib: folder 0755
removed service cron.service: active`
	if strings.Join(got, "\n") != want {
		t.Errorf("changes\n%s\nwant\n%s", strings.Join(got, "\n"), want)
	}
	if again, err := h.takeSnapshot(after); err != nil || len(again.diffFrom(after)) > 0 {
		t.Errorf("nothing happened, and %v changed, %v", again.diffFrom(after), err)
	}
}

// A thread is filtered, and ends with the test.
func TestCallsThatLeaveAreDenied(t *testing.T) {
	for name, call := range map[string]struct{ number, first uintptr }{
		"mount": {unix.SYS_MOUNT, ^uintptr(0)}, "umount2": {unix.SYS_UMOUNT2, ^uintptr(0)}, "setns": {unix.SYS_SETNS, ^uintptr(0)},
		"unshare": {unix.SYS_UNSHARE, ^uintptr(0)}, "ptrace": {unix.SYS_PTRACE, ^uintptr(0)}, "keyctl": {unix.SYS_KEYCTL, ^uintptr(0)},
		"bpf": {unix.SYS_BPF, ^uintptr(0)}, "open_by_handle_at": {unix.SYS_OPEN_BY_HANDLE_AT, ^uintptr(0)},
		"socket": {unix.SYS_SOCKET, unix.AF_VSOCK},
		"clone":  {unix.SYS_CLONE, unix.CLONE_NEWUSER | unix.CLONE_FS}, // which the kernel refuses with another error
	} {
		if err := callFiltered(t, call.number, call.first); err != unix.EPERM {
			t.Errorf("%s gives %v", name, err)
		}
	}
	// Programs fall back to clone only with this error.
	if err := callFiltered(t, unix.SYS_CLONE3, ^uintptr(0)); err != unix.ENOSYS {
		t.Errorf("clone3 gives %v", err)
	}
	if err := callFiltered(t, unix.SYS_SOCKET, unix.AF_UNIX); err == unix.EPERM {
		t.Errorf("a socket of the test gives %v", err)
	}
	if err := callFiltered(t, unix.SYS_GETPID, 0); err != 0 {
		t.Errorf("getpid gives %v", err)
	}
}

func callFiltered(t *testing.T, call, first uintptr) unix.Errno {
	t.Helper()
	got := make(chan unix.Errno)
	go func() {
		runtime.LockOSThread() // and never unlocked, so that nothing else runs there
		err := unix.Prctl(unix.PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0)
		if err == nil {
			err = filterCalls()
		}
		if err != nil {
			t.Error(err)
		}
		_, _, errno := unix.RawSyscall6(call, first, ^uintptr(0), ^uintptr(0), ^uintptr(0), ^uintptr(0), ^uintptr(0))
		got <- errno
	}()
	return <-got
}
