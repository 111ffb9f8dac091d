// SPDX-FileCopyrightText: The Skyhook authors
// SPDX-License-Identifier: Apache-2.0

package delivery

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path"
	"slices"
	"strings"

	"github.com/skyhook-k8s/skyhook/internal/agent/fault"
	"github.com/skyhook-k8s/skyhook/internal/agent/host"
	"github.com/skyhook-k8s/skyhook/internal/pack"
)

// mountedFiles are the config and the metadata of the node that are mounted beside the image of the package.
type mountedFiles struct {
	names        []string // as in the copy on the host, such as configmaps/key; sorted
	files        map[string]pack.MountedFile
	configDigest string
}

// readMounted reads the files that are mounted. Another config than that of this stage is an error.
func (d *Delivery) readMounted() (*mountedFiles, error) {
	m := &mountedFiles{files: map[string]pack.MountedFile{}}
	config := map[string]string{}
	for _, dir := range mountedDirs {
		files, err := readMount(path.Join(d.SourceDir, dir))
		if err != nil {
			return nil, err
		}
		for name, f := range files {
			if dir == pack.ConfigMapDir {
				config[name] = string(f.Content)
			}
			f.Mode = host.PrivateMode(f.Mode)
			m.files[path.Join(dir, name)] = f
		}
	}
	m.names = slices.Sorted(maps.Keys(m.files))
	m.configDigest = pack.ConfigDigest(config)
	if d.ConfigDigest == "" || m.configDigest == d.ConfigDigest {
		return m, nil
	}
	return nil, fault.New(pack.RetryLater, "the package's config that is mounted (digest %.12s) is not the one this stage was made for (%.12s); nothing was run, and the next attempt looks again", m.configDigest, d.ConfigDigest)
}

func readMount(from string) (map[string]pack.MountedFile, error) {
	root, err := os.OpenRoot(from)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("reading what is mounted: %w", err)
	}
	defer root.Close()
	return pack.ReadMounted(root.FS())
}

// write writes one file to a copy of the package.
func (m *mountedFiles) write(parent *host.Dir, at, name string) error {
	dir := path.Join(at, path.Dir(name))
	if err := parent.MkdirAll(dir, 0o700); err != nil {
		return fmt.Errorf("making %s on the host: %w", path.Join(parent.Path, dir), err)
	}
	f := m.files[name]
	return parent.WriteUnsynced(path.Join(at, name), string(f.Content), f.Mode)
}

// renewMounted makes config and metadata of the copy on the host what is mounted. It changes only what differs, and lists new files in the
// manifest before they are there, so that none is ever taken for one of a step. kept is false if only a new copy can be right.
func (d *Delivery) renewMounted(mounted *mountedFiles, parent *host.Dir, place string) (kept bool, err error) {
	last, err := readManifest(parent, place)
	if err != nil {
		return false, err
	}
	next := last
	next.Files, next.ConfigDigest = mounted.listFiles(last), mounted.configDigest
	differing, isPlain := mounted.findDiffering(parent, place)
	if !isPlain {
		return false, nil
	}
	gone := slices.DeleteFunc(slices.Clone(last.Files), func(name string) bool { return slices.Contains(next.Files, name) })
	if len(differing) == 0 && len(gone) == 0 && slices.Equal(last.Files, next.Files) && last.ConfigDigest == next.ConfigDigest {
		d.Log.Info("the package is on the host already", "at", d.CopyDir, "files", len(next.Files))
		return true, nil
	}
	between := last
	between.Files = slices.Concat(next.Files, gone)
	if err := writeManifest(parent, place, between); err != nil {
		return true, err
	}
	for _, name := range differing {
		if err := mounted.write(parent, place, name); err != nil {
			return true, err
		}
	}
	for _, name := range gone {
		if err := parent.Delete(path.Join(place, name)); err != nil {
			return true, err
		}
	}
	d.Log.Info("the package is on the host already; its config or the metadata of the node are new", "at", d.CopyDir, "written", len(differing), "removed", len(gone))
	return true, writeManifest(parent, place, next)
}

// listFiles lists what is delivered: the files of the image, which are those of a copy with the same digest, and those that are mounted.
func (m *mountedFiles) listFiles(last manifest) []string {
	isMounted := func(name string) bool {
		return slices.ContainsFunc(mountedDirs, func(dir string) bool { return strings.HasPrefix(name, dir+"/") })
	}
	files := append(slices.DeleteFunc(slices.Clone(last.Files), isMounted), m.names...)
	slices.Sort(files)
	return files
}

// findDiffering lists the mounted files that the copy on the host does not have like that. isPlain is false if something else than a
// file is in the way.
func (m *mountedFiles) findDiffering(parent *host.Dir, place string) (differing []string, isPlain bool) {
	for _, dir := range mountedDirs {
		if st, err := parent.Lstat(path.Join(place, dir)); err == nil && !st.IsDir() {
			return nil, false
		}
	}
	for _, name := range m.names {
		at := path.Join(place, name)
		st, err := parent.Lstat(at)
		switch {
		case errors.Is(err, fs.ErrNotExist):
			differing = append(differing, name)
			continue
		case err != nil || !st.Mode().IsRegular():
			return nil, false
		}
		if now, err := parent.ReadFile(at); err != nil || st.Mode() != m.files[name].Mode || !bytes.Equal(now, m.files[name].Content) {
			differing = append(differing, name)
		}
	}
	return differing, true
}
