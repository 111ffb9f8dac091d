// SPDX-FileCopyrightText: The Skyhook authors
// SPDX-License-Identifier: Apache-2.0

package retain

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/skyhook-k8s/skyhook/internal/pack"
)

// TestWriteTails: the newest log of each step and mode is printed, of whatever version, its last 4 KiB, and nothing is written.
func TestWriteTails(t *testing.T) {
	h := newFullHost(t)
	long := "2026-01-03T00:00:00Z apply: run.sh\n" + strings.Repeat("a line of a long log\n", 400) + "the last line\n"
	for name, text := range map[string]string{
		"1.9.0/run.sh-2026-01-01-000000.000000000.log":             "2026-01-01T00:00:00Z apply: run.sh\nold\n",
		"1.10.0/run.sh-2026-01-03-000000.000000000.log":            long,
		"1.10.0/run.sh-2026-01-03-000100.000000000.log":            "2026-01-03T00:01:00Z apply-check: run.sh\nchecked\n",
		"1.10.0/steps/config.sh-2026-01-02-000000.000000000.log":   "2026-01-02T00:00:00Z config: steps/config.sh\nfirst part\n",
		"1.10.0/steps/config.sh-2026-01-02-000001.000000000.log":   "of 16 MiB and further\n",
		"1.10.0/interrupts/reboot-2026-01-04-000000.000000000.log": "2026-01-04T00:00:00Z interrupt reboot  id x\n",
		"1.10.0/old.sh-2025-01-01-000000.log":                      "as an earlier agent wrote it\n",
		"1.10.0/old.sh-2025-01-01-000000.log.err":                  "errors\n",
		"1.10.0/notes.txt": "no log\n",
		"../other/1.0.0/run.sh-2026-01-05-000000.000000000.log":     "2026-01-05T00:00:00Z apply: run.sh\n",
		"1.10.0/empty.sh-2026-01-03-000200.000000000.log":           "",
		"1.10.0/interrupts/broken-name-2026-01-05-000000.00000.log": "",
	} {
		file := filepath.Join(h.dir, "logs", name)
		if err := os.MkdirAll(filepath.Dir(file), 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	printTails := func(mode pack.Mode) (string, int) {
		var out strings.Builder
		n, err := WriteTails(&out, h.root, "/logs", mode)
		if err != nil {
			t.Fatal(err)
		}
		return out.String(), n
	}
	all, n := printTails("")
	var heads []string
	for line := range strings.Lines(all) {
		if strings.HasPrefix(line, "==> ") {
			heads = append(heads, line)
		}
	}
	want := "==> 1.10.0/old.sh-2025-01-01-000000.log [unknown] <==\n" +
		"==> 1.10.0/steps/config.sh-2026-01-02-000001.000000000.log [config] <==\n" +
		"==> 1.10.0/run.sh-2026-01-03-000000.000000000.log [apply] <==\n" +
		"==> 1.10.0/run.sh-2026-01-03-000100.000000000.log [apply-check] <==\n" +
		"==> 1.10.0/empty.sh-2026-01-03-000200.000000000.log [unknown] <==\n" +
		"==> 1.10.0/interrupts/reboot-2026-01-04-000000.000000000.log [interrupt] <==\n"
	if got := strings.Join(heads, ""); got != want || n != 6 {
		t.Errorf("%d logs:\n%swant\n%s", n, got, want)
	}
	apply, n := printTails("apply")
	if n != 2 || !strings.Contains(apply, "\na line of a long log\nthe last line\n==> ") || !strings.HasSuffix(apply, "\nchecked\n") || len(apply) > 5000 {
		t.Errorf("%d logs of apply, %d bytes:\n%s", n, len(apply), apply)
	}
	if text, n := printTails("uninstall"); n != 0 || text != "" {
		t.Errorf("of a mode that did not run: %s", text)
	}
	if _, err := WriteTails(&strings.Builder{}, h.root, "/none", ""); err == nil {
		t.Error("a folder that does not exist is no error")
	}
	var others strings.Builder
	if n, err := WriteTailsOf(&others, h.root, "/", "other", "apply"); err != nil || n != 1 || strings.Contains(others.String(), "package_name") {
		t.Errorf("of the package other: %d, %v:\n%s", n, err, others.String())
	}
	if n, err := WriteTailsOf(&others, h.root, "/", "tuning", "config"); err != nil || n != 1 || !strings.Contains(others.String(), "package_name logs <==\n==> 1.10.0/steps/config.sh") {
		t.Errorf("of a package with another package_name: %d, %v:\n%s", n, err, others.String())
	}
}
