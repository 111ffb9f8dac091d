// SPDX-FileCopyrightText: The Skyhook authors
// SPDX-License-Identifier: Apache-2.0

package delivery

import (
	"regexp"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/skyhook-k8s/skyhook/internal/agent/host"
	"github.com/skyhook-k8s/skyhook/internal/agent/record"
	"github.com/skyhook-k8s/skyhook/internal/pack"
)

// copyName matches the names of copy directories: package, version, UID and generation of the Skyhook.
var copyName = regexp.MustCompile(`^(.+)-([0-9a-fA-F]{8}(?:-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12})-([0-9]+)$`)

// FindFirstSeen returns when this package, and this release of it, was first delivered to the host: the birth time of
// its oldest copy. Without a copy it is now, so that no older flag counts.
func FindFirstSeen(state *host.Dir, resource pack.ResourceID) (first, release time.Time) {
	now := time.Now()
	first, release = now, now
	earlier := func(at *time.Time, name string) {
		if made := BirthTime(state, name); made.Before(*at) {
			*at = made
		}
	}
	if resource.Package == "" {
		return time.Time{}, time.Time{} // without a Skyhook no file is shared with other packages
	}
	list, err := state.Names(".")
	if err != nil {
		return first, release
	}
	for _, e := range list {
		parts := copyName.FindStringSubmatch(e.Name())
		if parts == nil || !e.IsDir() {
			continue
		}
		if version, ok := strings.CutPrefix(parts[1], resource.Package+"-"); ok && looksLikeVersion(version) {
			earlier(&first, e.Name())
			if version == resource.Version {
				earlier(&release, e.Name())
			}
		}
	}
	return first, release
}

// BirthTime is when a directory was created, as far as the file system knows.
func BirthTime(dir *host.Dir, name string) time.Time {
	f, err := dir.Open(name)
	if err != nil {
		return time.Now()
	}
	defer f.Close()
	var st unix.Statx_t
	if err := unix.Statx(int(f.Fd()), "", unix.AT_EMPTY_PATH, unix.STATX_BTIME|unix.STATX_MTIME, &st); err != nil {
		return time.Now()
	}
	made := time.Unix(st.Mtime.Sec, int64(st.Mtime.Nsec))
	if birth := time.Unix(st.Btime.Sec, int64(st.Btime.Nsec)); st.Mask&unix.STATX_BTIME != 0 && birth.Before(made) {
		made = birth
	}
	return made
}

// looksLikeVersion distinguishes a version from the rest of a longer package name.
func looksLikeVersion(s string) bool {
	_, err := pack.ParseVersion(s)
	return err == nil
}

// ParseStagingName returns the final directory of a staged copy.
func ParseStagingName(name string) (place string, ok bool) {
	for cut := len(name) - 1; cut > 0; cut-- {
		if name[cut] == '.' && copyName.MatchString(name[:cut]) {
			return name[:cut], true
		}
	}
	return "", false
}

// IsCopyOf reports whether a copy is of this package: by its manifest, or else by its name. Then only versions
// in the record count, because the name of another package may start with this one.
func IsCopyOf(state *host.Dir, name, place string, rec record.Package) bool {
	m, err := readManifest(state, name)
	if err == nil && m.Package != "" {
		return m.Package == rec.Name
	}
	parts := copyName.FindStringSubmatch(place)
	if parts == nil {
		return false
	}
	for _, v := range append([]record.Version{rec.Installed, rec.Previous}, rec.History...) {
		for _, version := range []string{v.Release, v.Version} {
			if version != "" && parts[1] == rec.Name+"-"+version {
				return true
			}
		}
	}
	return false
}

// FindNewest is the copy that a running pod may use.
func FindNewest(state *host.Dir, rec record.Package) string {
	if rec.Installed.Version == pack.Uninstalled {
		return ""
	}
	newest, at := "", time.Time{}
	list, _ := state.Names(".")
	for _, e := range list {
		if made := BirthTime(state, e.Name()); e.IsDir() && copyName.MatchString(e.Name()) && made.After(at) && IsCopyOf(state, e.Name(), e.Name(), rec) {
			newest, at = e.Name(), made
		}
	}
	return newest
}
