// SPDX-FileCopyrightText: The Skyhook authors
// SPDX-License-Identifier: Apache-2.0

package packagecli_test

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// tryToLeave is a step that looks for ways out of the host on which it runs, and tells of each that it finds.
const tryToLeave = `#!/bin/bash
out() { echo "WAY OUT: $*"; found=1; }
for p in /proc/[0-9]*; do
  if [ -e "$p/root$MARKER" ]; then out "$p/root shows the machine"; fi
  if (echo changed >"$p/root$MARKER") 2>/dev/null; then out "$p/root is the machine's"; fi
  if grep -q token-of-a-person "$p/environ" 2>/dev/null; then out "$p/environ is that of a person"; fi
done
for file in root cwd environ exe fd/0 mem; do
  if readlink "/proc/1/$file" >/dev/null || head -c 1 "/proc/1/$file" >/dev/null 2>&1; then out "/proc/1/$file can be opened"; fi
done
if (true <&3) 2>/dev/null; then out "a file that the person had open"; fi
read -ra stat </proc/self/stat
if [ -e /dev/tty ] || [ "${stat[6]}" != 0 ]; then out "the terminal ${stat[6]}"; fi
for set in Prm Eff Bnd; do
  if ! grep -q "^Cap$set:	00000000a00405ff$" /proc/self/status; then out "capabilities $(grep "^Cap$set" /proc/self/status)"; fi
done
if ! grep -q '^Seccomp:	2$' /proc/self/status; then out "system calls are not filtered"; fi
for file in kcore keys sysrq-trigger; do
  if [ -e /proc/$file ] && [ ! -c /proc/$file ]; then out "/proc/$file is the machine's"; fi
done
if [ "$(awk '$5 == "/"' /proc/$PPID/mountinfo | wc -l)" != 1 ]; then out "the root of the machine is still mounted"; fi
if [ -n "$(ls /proc/irq /proc/$PPID/root/proc/sys 2>/dev/null | grep -v :)" ]; then out "the kernel's settings"; fi
if mount -t tmpfs none /mnt 2>/dev/null; then out "mount"; fi
if umount /proc/sys 2>/dev/null; then out "umount"; fi
touch -d @1 /dev/null 2>/dev/null
[ -z "$found" ]
`

// TestStepsCannotLeave tests a package that tries to reach the machine, for root and for a person without rights who has a terminal, a secret in
// the environment and a file open.
func TestStepsCannotLeave(t *testing.T) {
	if !canCreateNamespaces() {
		t.Skip("no namespaces here")
	}
	who := map[string]*syscall.Credential{"person": nil}
	if os.Geteuid() == 0 {
		who = map[string]*syscall.Credential{"root": nil, "person": {Uid: 65534, Gid: 65534}}
	}
	agent, err := builtAgent()
	if err != nil {
		t.Fatal(err)
	}
	for name, credential := range who {
		for _, interrupt := range []string{"noop", "reboot"} { // with a reboot the host is on a disk
			t.Run(name+"/"+interrupt, func(t *testing.T) {
				dir := openFolder(t)
				marker := filepath.Join(dir, "marker")
				files := map[string]string{
					"marker": "as it was", "p/skyhook_dir/try.sh": tryToLeave, "p/skyhook_dir/true.sh": "#!/bin/sh\n",
					"p/testdata/test.yaml": fmt.Sprintf("env: {MARKER: %s}\ninterrupt: {type: %s}\n", marker, interrupt),
					"p/config.json": `{"schema_version": "v1", "package_name": "p", "package_version": "1.0.0", "expected_config_files": [], "modes": {` +
						step("apply", "try.sh") + `, ` + step("apply-check", "true.sh") + `, ` + step("uninstall", "true.sh") + `, ` + step("uninstall-check", "true.sh") + `}}`,
				}
				for file, content := range files {
					at := filepath.Join(dir, file)
					if err := os.MkdirAll(filepath.Dir(at), 0o755); err != nil {
						t.Fatal(err)
					}
					if err := os.WriteFile(at, []byte(content), 0o755); err != nil {
						t.Fatal(err)
					}
				}
				if err := os.Chmod(marker, 0o666); err != nil {
					t.Fatal(err)
				}
				cmd := exec.CommandContext(t.Context(), "/proc/self/exe")
				cmd.Args = []string{"kubectl-skyhook", "package", "test", filepath.Join(dir, "p"), "--host-like", "debian", "--agent", agent}
				cmd.Env = []string{"PATH=" + os.Getenv("PATH"), "TMPDIR=" + dir, "TOKEN=token-of-a-person"}
				open, err := os.Open(marker)
				if err != nil {
					t.Fatal(err)
				}
				defer open.Close()
				cmd.ExtraFiles = []*os.File{open}
				cmd.Stdin = terminal(t)
				cmd.SysProcAttr = &syscall.SysProcAttr{Credential: credential, Setsid: true, Setctty: true}
				said, err := cmd.CombinedOutput()
				if err != nil || !strings.Contains(string(said), "PASS: 4 stages") {
					t.Errorf("the test ended with %v:\n%s", err, said)
				}
				if content, err := os.ReadFile(marker); err != nil || string(content) != "as it was" {
					t.Errorf("a step wrote to the machine: %q, %v", content, err)
				}
			})
		}
	}
	if st, err := os.Stat("/dev/null"); err != nil || st.ModTime().Before(time.Unix(2, 0)) {
		t.Errorf("a step changed the machine's /dev/null: %v, %v", st.ModTime(), err)
	}
}

// TestFolderAboveTheHostStaysPrivate: with a reboot the hosts are on a disk of the machine, and a step can give everybody access to them, such as to
// a program with set-user-ID. The folder above them keeps the users of the machine away.
func TestFolderAboveTheHostStaysPrivate(t *testing.T) {
	if _, err := exec.LookPath("perl"); err != nil || !canCreateNamespaces() {
		t.Skip("no namespaces here, or no Perl")
	}
	agent, err := builtAgent()
	if err != nil {
		t.Fatal(err)
	}
	dir := openFolder(t)
	for file, content := range map[string]string{
		"p/skyhook_dir/open.sh": "#!/bin/sh\nperl -e 'mkdir q(/tmp/x); chroot q(/tmp/x); chdir q(..) for 1..20; chroot q(.); chmod 0777, q(/)'; sleep 2\n", "p/skyhook_dir/true.sh": "#!/bin/sh\n", "p/testdata/test.yaml": "interrupt: {type: reboot}\n",
		"p/config.json": `{"schema_version": "v1", "package_name": "p", "package_version": "1.0.0", "expected_config_files": [], "modes": {` +
			step("apply", "open.sh") + `, ` + step("apply-check", "true.sh") + `, ` + step("uninstall", "true.sh") + `, ` + step("uninstall-check", "true.sh") + `}}`,
	} {
		at := filepath.Join(dir, file)
		if err := errors.Join(os.MkdirAll(filepath.Dir(at), 0o755), os.WriteFile(at, []byte(content), 0o755)); err != nil {
			t.Fatal(err)
		}
	}
	cmd := exec.CommandContext(t.Context(), "/proc/self/exe")
	cmd.Args = []string{"kubectl-skyhook", "package", "test", filepath.Join(dir, "p"), "--host-like", "debian", "--agent", agent}
	cmd.Env = []string{"PATH=" + os.Getenv("PATH"), "TMPDIR=" + dir}
	ended := make(chan string, 1)
	go func() {
		said, _ := cmd.CombinedOutput()
		ended <- string(said)
	}()
	wasOpened := false
	for {
		select {
		case said := <-ended:
			if !wasOpened {
				t.Errorf("the step opened nothing:\n%s", said)
			}
			return
		case <-time.After(20 * time.Millisecond):
		}
		for _, pattern := range []string{"skyhook-test-*", "skyhook-test-*/*"} {
			found, _ := filepath.Glob(filepath.Join(dir, pattern))
			for _, at := range found {
				st, err := os.Stat(at)
				if err != nil || st.Mode().Perm() != 0o777 {
					continue
				}
				wasOpened = true
				if above, err := os.Stat(filepath.Dir(at)); err == nil && above.Mode().Perm() != 0o700 {
					t.Fatalf("everybody can reach %s", at)
				}
			}
		}
	}
}

func step(mode, path string) string {
	return fmt.Sprintf(`%q: [{"name": %[1]q, "path": %q, "arguments": [], "returncodes": [0], "on_host": true, "idempotence": true, "upgrade_step": false}]`,
		mode, path)
}

// openFolder makes a folder in which everybody may make files.
func openFolder(t *testing.T) string {
	t.Helper()
	dir := t.TempDir()
	for _, at := range []string{filepath.Dir(dir), dir} {
		if err := os.Chmod(at, 0o777); err != nil {
			t.Fatal(err)
		}
	}
	return dir
}

// terminal opens a new terminal.
func terminal(t *testing.T) *os.File {
	t.Helper()
	ptmx, err := os.OpenFile("/dev/ptmx", os.O_RDWR|unix.O_NOCTTY, 0)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = ptmx.Close() })
	if err := unix.IoctlSetPointerInt(int(ptmx.Fd()), unix.TIOCSPTLCK, 0); err != nil {
		t.Fatal(err)
	}
	n, err := unix.IoctlGetInt(int(ptmx.Fd()), unix.TIOCGPTN)
	if err != nil {
		t.Fatal(err)
	}
	tty, err := os.OpenFile(fmt.Sprintf("/dev/pts/%d", n), os.O_RDWR|unix.O_NOCTTY, 0)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = tty.Close() })
	return tty
}
