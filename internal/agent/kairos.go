// SPDX-FileCopyrightText: The Skyhook authors
// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"strings"

	"github.com/skyhook-k8s/skyhook/internal/agent/host"
	"github.com/skyhook-k8s/skyhook/internal/pack"
)

// cmdline is the same in every container of a host, unless that host is itself a container.
const cmdline = "/proc/cmdline"

// LookForKairos tells whether the host runs Kairos, and which. It reads /etc and the kernel's command line only.
func LookForKairos(h *host.Root) (pack.Kairos, error) {
	out := pack.Kairos{}
	release, err := h.ReadFile("/etc/kairos-release")
	switch {
	case err == nil:
		out.Runs, out.Release = true, pack.KairosRelease(string(release))
	case !errors.Is(err, fs.ErrNotExist):
		return out, fmt.Errorf("looking for Kairos: %w", err)
	default: // images of long ago said it there
		older, err := h.ReadFile("/etc/os-release")
		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			return out, fmt.Errorf("looking for Kairos: %w", err)
		}
		out.Runs = strings.Contains(strings.ToLower(pack.ReadRelease(string(older))["ID"]), "kairos")
	}
	if !out.Runs {
		return out, nil
	}
	line, err := h.ReadFile(cmdline)
	if errors.Is(err, fs.ErrNotExist) {
		line, err = os.ReadFile(cmdline)
	}
	if err == nil { // otherwise nobody can tell
		out.Boot = pack.KairosBoot(string(line))
	}
	return out, nil
}

// ShowKairos leaves behind whether the host whose / is mounted there runs Kairos, and says it on out.
func ShowKairos(mount string, set Settings, out io.Writer) error {
	h, err := host.Open(mount)
	if err != nil {
		return err
	}
	defer func() { _ = h.Close() }()
	found, err := LookForKairos(h)
	if err != nil {
		return err
	}
	if err := leaveBehind(set.MessageFile, found.Encode()); err != nil {
		return fmt.Errorf("leaving behind what was found: %w", err)
	}
	_, err = fmt.Fprintf(out, "%s\n", found.Encode())
	return err
}
