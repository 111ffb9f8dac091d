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

// manifestFile lists the files of a package on the host that were delivered. All other files there were created by its
// steps.
const manifestFile = pack.DeliveryFile

// asideSuffix is the suffix of the previous copy while the new one is moved into place.
const asideSuffix = ".old"

type manifest struct {
	Pod          string `json:"pod,omitempty"`
	Package      string `json:"package,omitempty"`
	Release      string `json:"release,omitempty"`
	ConfigDigest string `json:"configDigest"`
	// Digest is that of the package's files in the image from which the agent copied them; empty if an init container did.
	Digest string   `json:"digest,omitempty"`
	Files  []string `json:"files"`
}

// deliverPackage copies the package to its directory on the host and opens it. The check that follows a stage finds it as the stage left it.
func (a *Agent) deliverPackage() (*host.Dir, error) {
	if !a.result.Checked {
		if err := a.bringPackage(); err != nil {
			return nil, err
		}
	}
	copied, err := a.Host.Dir(a.CopyDir)
	if err != nil {
		return nil, err
	}
	if err := a.requireConfig(copied); err != nil {
		return nil, errors.Join(err, copied.Close())
	}
	return copied, nil
}

// bringPackage makes sure that the package is on the host.
//
// The init container of a pod copies it to <copyDir>.<pod UID>; from there it is renamed into place, so that files
// which are no longer part of the package disappear, while files that steps created are kept. Older operators copy to
// the final directory; then it is used as it is. Without an init container the agent copies from its own data
// directory, or from the mounted image.
func (a *Agent) bringPackage() error {
	parent, err := a.Host.MakeDir(path.Dir(path.Clean(a.CopyDir)), 0o755)
	if err != nil {
		return err
	}
	defer parent.Close()
	place := path.Base(path.Clean(a.CopyDir))
	if err := carryOverFiles(parent, place); err != nil {
		return err
	}
	if a.ImageDir != "" {
		return a.bringFromImage(parent, place)
	}
	brought, err := a.findStagedCopy(parent, place)
	switch {
	case err != nil:
	case brought != "":
		err = a.promoteCopy(parent, place, brought, "")
	case !parent.Exists(place):
		err = fmt.Errorf("the package is not on the host: there is no %s, and no %s in %s of this container",
			a.CopyDir, pack.ConfigFile, a.SourceDir)
	case a.PodUID != "" && !parent.Exists(path.Join(place, manifestFile)):
		err = a.adoptCopy(parent, place)
	}
	return err
}

// findStagedCopy returns the directory to which the init container of this pod copied the package; empty when there is
// none.
func (a *Agent) findStagedCopy(parent *host.Dir, place string) (string, error) {
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
		staging = place + stagingSuffix
	}
	return staging, a.copyFromImage(parent, place, staging)
}

// copyFromImage copies the package from the container. The copy is renamed once it is complete.
func (a *Agent) copyFromImage(parent *host.Dir, place, staging string) error {
	from, err := os.OpenRoot(a.SourceDir)
	if err != nil {
		return fmt.Errorf("opening the package in this container: %w", err)
	}
	defer from.Close()
	partial := place + partialSuffix
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

// promoteCopy checks a complete copy and moves it into place.
func (a *Agent) promoteCopy(parent *host.Dir, place, staging, digest string) error {
	files, err := a.completeCopy(parent, staging, digest)
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
	if err := carryOverFiles(parent, place); err != nil {
		return err
	}
	return removeReplaced(parent, place)
}

// removeReplaced removes staged copies that are older than the one that was moved into place: their pods were deleted or lost before
// their agent ran, and may have left a config with secrets. A newer one belongs to the next pod.
func removeReplaced(parent *host.Dir, place string) error {
	list, err := parent.Names(".")
	if err != nil {
		return err
	}
	current := birthTime(parent, place)
	for _, e := range list {
		pod, isStaged := strings.CutPrefix(e.Name(), place+".")
		if !isStaged || !e.IsDir() || slices.Contains([]string{asideSuffix, partialSuffix, stagingSuffix}, "."+pod) || !birthTime(parent, e.Name()).Before(current) {
			continue
		}
		if err := parent.DeleteAll(e.Name()); err != nil {
			return err
		}
	}
	return nil
}

// adoptCopy writes a manifest for a copy that the init container wrote to the final directory. That is a copy of
// another agent, or of a pod whose agent never ran. From then on the next copy replaces it as a whole. Removed keys of
// the config cannot be told from files of steps there, so the config is taken from the mount.
func (a *Agent) adoptCopy(parent *host.Dir, place string) error {
	files, err := a.completeCopy(parent, place, "")
	if err == nil {
		a.Log.Info("adopted", "at", a.CopyDir, "files", files)
	}
	return err
}

// completeCopy finishes a copy: it installs the right config, as plain private files, and writes the manifest, with the digest of the
// image's files if it is known. It returns the number of files.
func (a *Agent) completeCopy(parent *host.Dir, name, imageDigest string) (int, error) {
	for _, dir := range []string{pack.ConfigMapDir, pack.NodeMetadataDir} {
		if err := parent.Flatten(path.Join(name, dir)); err != nil {
			return 0, err
		}
	}
	digest, err := a.ensureConfig(parent, name)
	if err != nil {
		return 0, err
	}
	files, err := parent.Files(name)
	if err != nil {
		return 0, err
	}
	files = slices.DeleteFunc(files, func(file string) bool { return file == manifestFile || host.IsTemp(file) })
	slices.Sort(files)
	return len(files), writeManifest(parent, name, manifest{
		Pod: a.PodUID, Package: a.Resource.Package, Release: a.Resource.Version, ConfigDigest: digest, Digest: imageDigest, Files: files,
	})
}

func writeManifest(parent *host.Dir, name string, m manifest) error {
	content, err := json.Marshal(m)
	if err != nil {
		return err
	}
	return parent.WriteUnsynced(path.Join(name, manifestFile), string(content), 0o600)
}

// ensureConfig makes sure that a copy has the config of this stage. The init container may have copied an earlier
// version that the kubelet still mounted; this container sees the same mount later.
func (a *Agent) ensureConfig(parent *host.Dir, name string) (string, error) {
	there := path.Join(name, pack.ConfigMapDir)
	digest, err := digestTree(parent, there)
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
	return "", a.newConfigFault(digest)
}

// requireConfig returns an error when the package on the host has another config than that of this stage.
func (a *Agent) requireConfig(copied *host.Dir) error {
	if copied.Exists(pack.ConfigMapDir) { // it may hold secrets, and other operators copy it world-readable
		if err := copied.Chmod(pack.ConfigMapDir, 0o700); err != nil {
			return err
		}
	}
	if a.ConfigDigest == "" || a.Mode.Uninstalls() && !copied.Exists(pack.ConfigMapDir) {
		return nil
	}
	digest, err := configDigest(copied)
	if err == nil && digest != a.ConfigDigest {
		err = a.newConfigFault(digest)
	}
	return err
}

func (a *Agent) newConfigFault(digest string) error {
	return newFault(pack.RetryLater, "the package's config on this host (digest %.12s) is not the one this stage was made for (%.12s); nothing was run, and the next attempt looks again", digest, a.ConfigDigest)
}

// configDigest is the digest of the delivered config, without files that steps created beside it.
func configDigest(copied *host.Dir) (string, error) {
	m, err := readManifest(copied, ".")
	if err != nil {
		return "", err
	}
	if m.ConfigDigest != "" {
		return m.ConfigDigest, nil
	}
	// An unchanged copy of a mount: the keys are behind ..data, files of steps are not.
	if st, err := copied.Stat(path.Join(pack.ConfigMapDir, "..data")); err == nil && st.IsDir() {
		return digestTree(copied, path.Join(pack.ConfigMapDir, "..data"))
	}
	return digestTree(copied, pack.ConfigMapDir)
}

func digestTree(in *host.Dir, dir string) (string, error) {
	config, err := fs.Sub(in.FS(), dir)
	if err != nil {
		return "", err
	}
	return pack.ConfigDigestFS(config)
}

// carryOverFiles completes the replacement of a copy: it moves files that steps created from the previous copy to the
// new one and deletes the rest. It continues after an agent that was killed.
func carryOverFiles(parent *host.Dir, place string) error {
	aside := place + asideSuffix
	if !parent.Exists(aside) {
		return nil
	}
	if !parent.Exists(place) {
		return parent.Move(aside, place) // killed before the new copy was in place: undo
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

// readManifest reads the manifest of a copy; it is empty when there is none.
func readManifest(dir *host.Dir, name string) (manifest, error) {
	var m manifest
	file := path.Join(name, manifestFile)
	if !dir.Exists(file) {
		return m, nil
	}
	content, err := dir.ReadFile(file)
	if err != nil {
		return m, err
	}
	if json.Unmarshal(content, &m) != nil {
		return manifest{}, nil // a file of the package
	}
	slices.Sort(m.Files)
	return m, nil
}

// copyName matches the names of copy directories: package, version, UID and generation of the Skyhook.
var copyName = regexp.MustCompile(`^(.+)-([0-9a-fA-F]{8}(?:-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12})-([0-9]+)$`)

// findFirstSeen returns when this package, and this release of it, was first delivered to the host: the birth time of
// its oldest copy. Without a copy it is now, so that no older flag counts.
func (t *stageRun) findFirstSeen() (first, release time.Time) {
	now := time.Now()
	first, release = now, now
	earlier := func(at *time.Time, name string) {
		if made := birthTime(t.state, name); made.Before(*at) {
			*at = made
		}
	}
	if t.Resource.Package == "" {
		return time.Time{}, time.Time{} // without a Skyhook no file is shared with other packages
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

// birthTime is when a directory was created, as far as the file system knows.
func birthTime(dir *host.Dir, name string) time.Time {
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
