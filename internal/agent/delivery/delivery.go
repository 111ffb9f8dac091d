// SPDX-FileCopyrightText: The Skyhook authors
// SPDX-License-Identifier: Apache-2.0

// Package delivery brings a package to its directory on a host: what is there is what was delivered, and the files of its steps.
package delivery

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"path"
	"slices"
	"strings"

	"github.com/skyhook-k8s/skyhook/internal/agent/fault"
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

// Delivery is one package that is brought to its directory on a host.
type Delivery struct {
	Host *host.Root
	Log  *slog.Logger
	// CopyDir is the directory of the package on the host.
	CopyDir string
	// SourceDir is where config and metadata are mounted in this container, and the package itself unless there is an ImageDir.
	SourceDir string
	// ImageDir is where the image of the package is mounted; empty if an init container copied the package.
	ImageDir string
	Resource pack.ResourceID
	// ConfigDigest is that of the config which the stage was made for; empty if any will do.
	ConfigDigest string
	PodUID       string
	// Uninstalls is true if the stage needs no config.
	Uninstalls bool
}

// Bring makes sure that the package is on the host.
//
// The init container of a pod copies it to <copyDir>.<pod UID>; from there it is renamed into place, so that files
// which are no longer part of the package disappear, while files that steps created are kept. Older operators copy to
// the final directory; then it is used as it is. Without an init container the agent copies from its own data
// directory, or from the mounted image.
func (d *Delivery) Bring() error {
	parent, err := d.Host.MakeDir(path.Dir(path.Clean(d.CopyDir)), 0o755)
	if err != nil {
		return err
	}
	defer parent.Close()
	place := path.Base(path.Clean(d.CopyDir))
	if err := carryOverFiles(parent, place); err != nil {
		return err
	}
	if d.ImageDir != "" {
		return d.bringFromImage(parent, place)
	}
	brought, err := d.findStagedCopy(parent, place)
	switch {
	case err != nil:
	case brought != "":
		err = d.promoteCopy(parent, place, brought, "")
	case !parent.Exists(place):
		err = fmt.Errorf("the package is not on the host: there is no %s, and no %s in %s of this container",
			d.CopyDir, pack.ConfigFile, d.SourceDir)
	case d.PodUID != "" && !parent.Exists(path.Join(place, manifestFile)):
		err = d.adoptCopy(parent, place)
	}
	return err
}

// findStagedCopy returns the directory to which the init container of this pod copied the package; empty when there is
// none.
func (d *Delivery) findStagedCopy(parent *host.Dir, place string) (string, error) {
	staging := place + "." + d.PodUID
	if d.PodUID != "" && parent.Exists(staging) {
		return staging, nil
	}
	if _, err := os.Stat(path.Join(d.SourceDir, pack.ConfigFile)); err != nil {
		return "", nil
	}
	if parent.Exists(place) {
		last, err := readManifest(parent, place)
		if err != nil || d.PodUID == "" || last.Pod == d.PodUID {
			return "", err
		}
	}
	if d.PodUID == "" {
		staging = place + stagingSuffix
	}
	return staging, d.copyFromImage(parent, place, staging)
}

// copyFromImage copies the package from the container. The copy is renamed once it is complete.
func (d *Delivery) copyFromImage(parent *host.Dir, place, staging string) error {
	from, err := os.OpenRoot(d.SourceDir)
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
func (d *Delivery) promoteCopy(parent *host.Dir, place, staging, digest string) error {
	files, err := d.completeCopy(parent, staging, digest)
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
	d.Log.Info("delivered", "to", d.CopyDir, "files", files)
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
	current := BirthTime(parent, place)
	for _, e := range list {
		pod, isStaged := strings.CutPrefix(e.Name(), place+".")
		if !isStaged || !e.IsDir() || slices.Contains([]string{asideSuffix, partialSuffix, stagingSuffix}, "."+pod) || !BirthTime(parent, e.Name()).Before(current) {
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
func (d *Delivery) adoptCopy(parent *host.Dir, place string) error {
	files, err := d.completeCopy(parent, place, "")
	if err == nil {
		d.Log.Info("adopted", "at", d.CopyDir, "files", files)
	}
	return err
}

// completeCopy finishes a copy: it installs the right config, as plain private files, and writes the manifest, with the digest of the
// image's files if it is known. It returns the number of files.
func (d *Delivery) completeCopy(parent *host.Dir, name, imageDigest string) (int, error) {
	for _, dir := range []string{pack.ConfigMapDir, pack.NodeMetadataDir} {
		if err := parent.Flatten(path.Join(name, dir)); err != nil {
			return 0, err
		}
	}
	digest, err := d.ensureConfig(parent, name)
	if err == nil {
		err = parent.Chmod(name, 0o755) // steps may change their user
	}
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
		Pod: d.PodUID, Package: d.Resource.Package, Release: d.Resource.Version, ConfigDigest: digest, Digest: imageDigest, Files: files,
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
func (d *Delivery) ensureConfig(parent *host.Dir, name string) (string, error) {
	there := path.Join(name, pack.ConfigMapDir)
	digest, err := digestTree(parent, there)
	if err != nil || d.ConfigDigest == "" || digest == d.ConfigDigest {
		return digest, err
	}
	for _, dir := range []string{d.SourceDir, pack.ImageDir} {
		mounted, err := os.OpenRoot(path.Join(dir, pack.ConfigMapDir))
		if err != nil {
			continue
		}
		defer mounted.Close()
		if now, err := pack.ConfigDigestFS(mounted.FS()); err != nil || now != d.ConfigDigest {
			continue
		}
		if err := parent.DeleteAll(there); err != nil {
			return "", err
		}
		if err := parent.Copy(mounted, there); err != nil {
			return "", err
		}
		return d.ConfigDigest, parent.Flatten(there)
	}
	return "", d.newConfigFault(digest)
}

// Open opens the package on the host. It returns an error when that has another config than this stage.
func (d *Delivery) Open() (*host.Dir, error) {
	copied, err := d.Host.Dir(d.CopyDir)
	if err != nil {
		return nil, err
	}
	if err := d.requireConfig(copied); err != nil {
		return nil, errors.Join(err, copied.Close())
	}
	return copied, nil
}

// requireConfig returns an error when the package on the host has another config than that of this stage.
func (d *Delivery) requireConfig(copied *host.Dir) error {
	if copied.Exists(pack.ConfigMapDir) { // it may hold secrets, and other operators copy it world-readable
		if err := copied.Chmod(pack.ConfigMapDir, 0o700); err != nil {
			return err
		}
	}
	if d.ConfigDigest == "" || d.Uninstalls && !copied.Exists(pack.ConfigMapDir) {
		return nil
	}
	digest, err := ConfigDigest(copied)
	if err == nil && digest != d.ConfigDigest {
		err = d.newConfigFault(digest)
	}
	return err
}

func (d *Delivery) newConfigFault(digest string) error {
	return fault.New(pack.RetryLater, "the package's config on this host (digest %.12s) is not the one this stage was made for (%.12s); nothing was run, and the next attempt looks again", digest, d.ConfigDigest)
}

// ConfigDigest is the digest of the delivered config, without files that steps created beside it.
func ConfigDigest(copied *host.Dir) (string, error) {
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

// ListConfigFiles returns the names of the delivered config files. Steps may have created others beside them.
func ListConfigFiles(copied *host.Dir) ([]string, error) {
	if !copied.Exists(pack.ConfigMapDir) {
		return nil, nil
	}
	m, err := readManifest(copied, ".")
	if err != nil {
		return nil, err
	}
	var out []string
	for _, file := range m.Files {
		if name, isConfig := strings.CutPrefix(file, pack.ConfigMapDir+"/"); isConfig && !strings.Contains(name, "/") {
			out = append(out, name)
		}
	}
	return out, nil
}
