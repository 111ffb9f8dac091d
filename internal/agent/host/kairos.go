// SPDX-FileCopyrightText: The Skyhook authors
// SPDX-License-Identifier: Apache-2.0

package host

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"strings"

	"github.com/skyhook-k8s/skyhook/internal/pack"
)

// cmdline is the kernel command line; it is the same in every container, unless the host is itself a container.
const cmdline = "/proc/cmdline"

// DetectKairos reports whether the host runs Kairos, and which, and in which boot it is. It reads only /etc and /proc.
func (r *Root) DetectKairos() (pack.Kairos, error) {
	out := pack.Kairos{}
	out.BootID, _ = r.BootID() // empty if it is unknown
	release, err := r.ReadFile("/etc/kairos-release")
	switch {
	case err == nil:
		out.Runs, out.Release = true, pack.KairosRelease(string(release))
	case !errors.Is(err, fs.ErrNotExist):
		return out, fmt.Errorf("looking for Kairos: %w", err)
	default: // old images have it there
		older, err := r.ReadFile("/etc/os-release")
		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			return out, fmt.Errorf("looking for Kairos: %w", err)
		}
		out.Runs = strings.Contains(strings.ToLower(pack.ReadRelease(string(older))["ID"]), "kairos")
	}
	if !out.Runs {
		return out, nil
	}
	line, err := r.ReadFile(cmdline)
	if errors.Is(err, fs.ErrNotExist) {
		line, err = os.ReadFile(cmdline)
	}
	if err == nil { // otherwise it is unknown
		out.Boot = pack.KairosBoot(string(line))
	}
	return out, nil
}
