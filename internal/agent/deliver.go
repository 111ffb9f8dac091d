// SPDX-FileCopyrightText: The Skyhook authors
// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path"
	"regexp"
	"slices"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/skyhook-k8s/skyhook/internal/agent/host"
	"github.com/skyhook-k8s/skyhook/internal/pack"
)

// manifestFile, in a package on the host, says what was delivered. What else is there was made by the package's steps.
const manifestFile = pack.DeliveryFile

// asideSuffix names the previous copy while the new one takes its place.
const asideSuffix = ".old"

type manifest struct {
	Pod          string   `json:"pod,omitempty"`
	Package      string   `json:"package,omitempty"`
	Release      string   `json:"release,omitempty"`
	ConfigDigest string   `json:"configDigest"`
	Files        []string `json:"files"`
}

// deliver puts the package in its place on the host and opens it there.
//
// The init container of a pod copies it to <copyDir>.<pod UID>; from there it is moved into place whole, so that a file
// that is not part of the package any more does not linger, while files that steps made there are kept. An operator that
// knows nothing of this copies to the place itself; then it is used as it is. Without an init container the agent copies
// from its own data directory.
func (a *Agent) deliver() (*host.Dir, error) {
	parent, err := a.Host.MakeDir(path.Dir(path.Clean(a.CopyDir)), 0o755)
	if err != nil {
		return nil, err
	}
	defer parent.Close()
	place := path.Base(path.Clean(a.CopyDir))
	if err := carryOver(parent, place); err != nil {
		return nil, err
	}
	brought, err := a.brought(parent, place)
	switch {
	case err != nil:
	case brought != "":
		err = a.promote(parent, place, brought)
	case !parent.Exists(place):
		err = fmt.Errorf("the package is not on the host: there is no %s, and no %s in %s of this container",
			a.CopyDir, pack.ConfigFile, a.SourceDir)
	case a.PodUID != "" && !parent.Exists(path.Join(place, manifestFile)):
		err = a.adopt(parent, place)
	}
	if err != nil {
		return nil, err
	}
	copied, err := a.Host.Dir(a.CopyDir)
	if err != nil {
		return nil, err
	}
	if err := a.agreeing(copied); err != nil {
		return nil, errors.Join(err, copied.Close())
	}
	return copied, nil
}

// brought names the folder beside the place in which this pod brought a complete copy; empty when there is none.
func (a *Agent) brought(parent *host.Dir, place string) (string, error) {
	staging := place + "." + a.PodUID
	if a.PodUID != "" && parent.Exists(staging) {
		return staging, nil
	}
	if _, err := os.Stat(path.Join(a.SourceDir, pack.ConfigFile)); err != nil {
		return "", nil
	}
	if parent.Exists(place) {
		last, err := readManifest(parent, place)
		if err != nil || a.PodUID == "" || last.Pod == a.PodUID {
			return "", err
		}
	}
	if a.PodUID == "" {
		staging = place + ".agent"
	}
	return staging, a.copyFromImage(parent, place, staging)
}

// copyFromImage copies from the container. The copy gets its name when it is complete.
func (a *Agent) copyFromImage(parent *host.Dir, place, staging string) error {
	from, err := os.OpenRoot(a.SourceDir)
	if err != nil {
		return fmt.Errorf("opening the package in this container: %w", err)
	}
	defer from.Close()
	partial := place + ".copy"
	for _, name := range []string{partial, staging} {
		if err := parent.DeleteAll(name); err != nil {
			return err
		}
	}
	if err := parent.Copy(from, partial); err != nil {
		return errors.Join(err, parent.DeleteAll(partial))
	}
	return parent.Move(partial, staging)
}

// promote checks a complete copy and moves it into place.
func (a *Agent) promote(parent *host.Dir, place, staging string) error {
	files, err := a.complete(parent, staging)
	if err != nil {
		return err
	}
	if parent.Exists(place) {
		if err := parent.Move(place, place+asideSuffix); err != nil {
			return err
		}
	}
	if err := parent.Move(staging, place); err != nil {
		return err
	}
	a.Log.Info("delivered", "to", a.CopyDir, "files", files)
	return carryOver(parent, place)
}

// adopt makes a delivery of what the pod's init container copied straight to the place. It does that while a copy is
// there that no agent of ours delivered: another agent's, or that of a pod whose agent never got to run. From here on
// what the next pod brings replaces it whole. Keys that left the config and what steps of another agent made beside them
// cannot be told apart; the config goes by the mount then.
func (a *Agent) adopt(parent *host.Dir, place string) error {
	files, err := a.complete(parent, place)
	if err == nil {
		a.Log.Info("adopted", "at", a.CopyDir, "files", files)
	}
	return err
}

// complete makes a copy a delivery: with the right config, in plain private files, and with the list of what it consists
// of. It tells how many files that are.
func (a *Agent) complete(parent *host.Dir, name string) (int, error) {
	for _, dir := range []string{pack.ConfigMapDir, pack.NodeMetadataDir} {
		if err := parent.Flatten(path.Join(name, dir)); err != nil {
			return 0, err
		}
	}
	digest, err := a.rightConfig(parent, name)
	if err != nil {
		return 0, err
	}
	files, err := parent.Files(name)
	if err != nil {
		return 0, err
	}
	files = slices.DeleteFunc(files, func(file string) bool { return file == manifestFile || host.IsTemp(file) })
	content, err := json.Marshal(manifest{
		Pod: a.PodUID, Package: a.Resource.Package, Release: a.Resource.Version, ConfigDigest: digest, Files: files,
	})
	if err != nil {
		return 0, err
	}
	return len(files), parent.Note(path.Join(name, manifestFile), string(content), 0o600)
}

// rightConfig makes sure that a copy has the config the stage was made for. The init container may have copied while the
// kubelet still showed the previous one; this container sees the same mount, later.
func (a *Agent) rightConfig(parent *host.Dir, name string) (string, error) {
	there := path.Join(name, pack.ConfigMapDir)
	digest, err := digestOf(parent, there)
	if err != nil || a.ConfigDigest == "" || digest == a.ConfigDigest {
		return digest, err
	}
	for _, dir := range []string{a.SourceDir, pack.ImageDir} {
		mounted, err := os.OpenRoot(path.Join(dir, pack.ConfigMapDir))
		if err != nil {
			continue
		}
		defer mounted.Close()
		if now, err := pack.ConfigDigestFS(mounted.FS()); err != nil || now != a.ConfigDigest {
			continue
		}
		if err := parent.DeleteAll(there); err != nil {
			return "", err
		}
		if err := parent.Copy(mounted, there); err != nil {
			return "", err
		}
		return a.ConfigDigest, parent.Flatten(there)
	}
	return "", a.wrongConfig(digest)
}

// agreeing refuses a package in place whose config is not the one the stage was made for.
func (a *Agent) agreeing(copied *host.Dir) error {
	if copied.Exists(pack.ConfigMapDir) { // it may hold secrets, and other operators copy it open to all
		if err := copied.Chmod(pack.ConfigMapDir, 0o700); err != nil {
			return err
		}
	}
	if a.ConfigDigest == "" || a.Mode.Uninstalls() && !copied.Exists(pack.ConfigMapDir) {
		return nil
	}
	digest, err := configDigest(copied)
	if err == nil && digest != a.ConfigDigest {
		err = a.wrongConfig(digest)
	}
	return err
}

func (a *Agent) wrongConfig(digest string) error {
	return fault(pack.RetryLater, "the package's config on this host (digest %.12s) is not the one this stage was made for (%.12s); nothing was run, and the next attempt looks again", digest, a.ConfigDigest)
}

// configDigest is the digest of the config that was delivered, not of what steps made beside it.
func configDigest(copied *host.Dir) (string, error) {
	m, err := readManifest(copied, ".")
	if err != nil {
		return "", err
	}
	if m.ConfigDigest != "" {
		return m.ConfigDigest, nil
	}
	// A mount copied as it was: the keys are behind ..data, what steps made is not.
	if st, err := copied.Stat(path.Join(pack.ConfigMapDir, "..data")); err == nil && st.IsDir() {
		return digestOf(copied, path.Join(pack.ConfigMapDir, "..data"))
	}
	return digestOf(copied, pack.ConfigMapDir)
}

func digestOf(in *host.Dir, dir string) (string, error) {
	config, err := fs.Sub(in.FS(), dir)
	if err != nil {
		return "", err
	}
	return pack.ConfigDigestFS(config)
}

// carryOver ends the replacement of a copy: what steps made in the previous one moves to the new one, the rest goes. It
// picks up where a killed agent left off.
func carryOver(parent *host.Dir, place string) error {
	aside := place + asideSuffix
	if !parent.Exists(aside) {
		return nil
	}
	if !parent.Exists(place) {
		return parent.Move(aside, place) // killed before the new one came: undo
	}
	old, err := readManifest(parent, aside)
	if err != nil {
		return err
	}
	if old.Files != nil {
		files, err := parent.Files(aside)
		if err != nil {
			return err
		}
		for _, file := range files {
			_, delivered := slices.BinarySearch(old.Files, file)
			if delivered || file == manifestFile || host.IsTemp(file) || parent.Exists(path.Join(place, file)) {
				continue
			}
			if err := parent.MkdirAll(path.Join(place, path.Dir(file)), 0o755); err != nil {
				return err
			}
			if err := parent.Move(path.Join(aside, file), path.Join(place, file)); err != nil {
				return err
			}
		}
	}
	return parent.DeleteAll(aside)
}

// readManifest reads what was delivered to a copy; a copy without one gives an empty manifest.
func readManifest(dir *host.Dir, name string) (manifest, error) {
	var m manifest
	file := path.Join(name, manifestFile)
	if !dir.Exists(file) {
		return m, nil
	}
	content, err := dir.Bytes(file)
	if err != nil {
		return m, err
	}
	if json.Unmarshal(content, &m) != nil {
		return manifest{}, nil // a file of the package's own
	}
	slices.Sort(m.Files)
	return m, nil
}

// copyName is how copy directories are called: package, version, UID and generation of the Skyhook.
var copyName = regexp.MustCompile(`^(.+)-([0-9a-fA-F]{8}(?:-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12})-([0-9]+)$`)

// firstSeen tells when this package, and this release of it, first came to the host: when its oldest copy was made.
// Without any sign of that it is now, so that nothing older is taken for its own.
func (t *turn) firstSeen() (first, release time.Time) {
	now := time.Now()
	first, release = now, now
	earlier := func(at *time.Time, name string) {
		if made := born(t.state, name); made.Before(*at) {
			*at = made
		}
	}
	if t.Resource.Package == "" {
		return time.Time{}, time.Time{} // without a Skyhook nothing is shared with other packages
	}
	list, err := t.state.Names(".")
	if err != nil {
		return first, release
	}
	for _, e := range list {
		parts := copyName.FindStringSubmatch(e.Name())
		if parts == nil || !e.IsDir() {
			continue
		}
		if version, ok := strings.CutPrefix(parts[1], t.Resource.Package+"-"); ok && looksLikeVersion(version) {
			earlier(&first, e.Name())
			if version == t.Resource.Version {
				earlier(&release, e.Name())
			}
		}
	}
	return first, release
}

// born is when a directory was made, as far as the file system tells.
func born(dir *host.Dir, name string) time.Time {
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

// looksLikeVersion tells a version from the rest of a longer package name.
func looksLikeVersion(s string) bool {
	_, err := pack.ParseVersion(s)
	return err == nil
}
