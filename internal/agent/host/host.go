// SPDX-FileCopyrightText: The Skyhook authors
// SPDX-License-Identifier: Apache-2.0

// Package host accesses the file system of the host.
//
// The agent sees the host's / mounted somewhere in its own tree, at /root in a pod. A plain path join is not enough to
// stay on that host: an absolute link there, say /var/lib -> /data/lib, would be followed in the agent's own root. So
// every path here is resolved as the host itself would resolve it, with the mount as the root of all links and of "..".
//
// Root resolves paths and returns a Dir, one real directory of the host; names below it cannot leave it. Dir.Write
// writes everything that must survive a power failure.
package host

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path"
	"strings"
)

// Local as a root mount means that the agent runs on the host itself.
const Local = "local"

// MaxFile bounds what ReadFile reads, and what Write and WriteUnsynced write to be read again.
const MaxFile = 16 << 20

// Root is the host's / as the agent sees it.
type Root struct {
	// Mount is where the host's / is in the agent's own tree.
	Mount string
	// Chroot is false when the agent runs on the host itself.
	Chroot bool
	// OnChange, if set, is called before every change. Tests use it to stop the agent.
	OnChange func(change, name string)

	fd *os.File
	// walk resolves paths without openat2, as on kernels before 5.6.
	walk bool
}

// A Dir is one directory of the host. Names given to it stay below it, links included.
type Dir struct {
	*os.Root
	// Path is the path of the directory on the host, for messages.
	Path  string
	watch func(change, name string)
}

// Open opens the host whose / is mounted at mount.
func Open(mount string) (*Root, error) {
	r := &Root{Mount: mount, Chroot: true}
	if mount == Local {
		r.Mount, r.Chroot = "/", false
	}
	if !path.IsAbs(r.Mount) {
		return nil, fmt.Errorf("root mount %q is not an absolute path; give the place where the host's / is mounted, /root in a pod", mount)
	}
	fd, err := os.Open(r.Mount)
	if err != nil {
		return nil, fmt.Errorf("opening the root mount: %w", err)
	}
	st, err := fd.Stat()
	if err == nil && !st.IsDir() {
		err = fmt.Errorf("%s is not a directory", r.Mount)
	}
	if err != nil {
		return nil, errors.Join(fmt.Errorf("opening the root mount: %w", err), fd.Close())
	}
	r.fd = fd
	return r, nil
}

// Close closes the root mount. Dirs stay usable.
func (r *Root) Close() error { return r.fd.Close() }

// Dir opens a directory of the host.
func (r *Root) Dir(name string) (*Dir, error) {
	fd, err := r.resolvePath(name, true)
	if err != nil {
		return nil, err
	}
	defer fd.Close()
	inner, err := os.OpenRoot(procPath(fd))
	if err != nil {
		return nil, fmt.Errorf("opening %s on the host: %w", name, stripPath(err))
	}
	return &Dir{Root: inner, Path: path.Clean(name), watch: r.OnChange}, nil
}

// MakeDir opens a directory of the host. It durably creates missing parts of its path.
func (r *Root) MakeDir(name string, mode fs.FileMode) (*Dir, error) {
	d, err := r.Dir(name)
	if !errors.Is(err, fs.ErrNotExist) {
		return d, err
	}
	name = path.Clean(name)
	parent, err := r.MakeDir(path.Dir(name), mode)
	if err != nil {
		return nil, err
	}
	defer parent.Close()
	if err := parent.Mkdir(path.Base(name), mode); err != nil && !errors.Is(err, fs.ErrExist) {
		return nil, fmt.Errorf("making %s on the host: %w", name, stripPath(err))
	}
	if err := parent.SyncDir(); err != nil {
		return nil, err
	}
	return r.Dir(name)
}

// EachEntry visits the entries of a directory of the host, by name. A missing directory has none.
func (r *Root) EachEntry(name string, see func(*Dir, fs.DirEntry) error) error {
	dir, err := r.Dir(name)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	defer dir.Close()
	list, err := dir.Names(".")
	if err != nil {
		return err
	}
	for _, e := range list {
		if err := see(dir, e); err != nil {
			return err
		}
	}
	return nil
}

// Parent opens the directory that contains a path of the host. The last element of the path is not followed.
func (r *Root) Parent(name string) (*Dir, string, error) {
	name, err := cleanPath(name)
	if err != nil {
		return nil, "", err
	}
	if name == "/" {
		return nil, "", errors.New("/ has no parent")
	}
	d, err := r.Dir(path.Dir(name))
	return d, path.Base(name), err
}

// Open opens a file of the host for reading.
func (r *Root) Open(name string) (*os.File, error) {
	fd, err := r.resolvePath(name, false)
	if err != nil {
		return nil, err
	}
	defer fd.Close()
	// Reopening through the descriptor reads the file that was found, even if it is renamed meanwhile.
	f, err := os.Open(procPath(fd))
	if err != nil {
		return nil, fmt.Errorf("opening %s on the host: %w", name, stripPath(err))
	}
	return f, nil
}

// ReadFile reads a regular file of the host.
func (r *Root) ReadFile(name string) ([]byte, error) {
	st, err := r.Stat(name)
	if err != nil {
		return nil, err
	}
	if !st.Mode().IsRegular() {
		return nil, fmt.Errorf("reading %s on the host: it is not a regular file", name)
	}
	f, err := r.Open(name)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	content, err := readBounded(f)
	if err != nil {
		return nil, fmt.Errorf("reading %s on the host: %w", name, stripPath(err))
	}
	return content, nil
}

// readBounded reads a file that is not larger than MaxFile.
func readBounded(f *os.File) ([]byte, error) {
	content, err := io.ReadAll(io.LimitReader(f, MaxFile+1))
	if err == nil && len(content) > MaxFile {
		err = fmt.Errorf("it is larger than %d MiB", MaxFile>>20)
	}
	return content, err
}

// Stat describes a file of the host, following links.
func (r *Root) Stat(name string) (fs.FileInfo, error) {
	fd, err := r.resolvePath(name, false)
	if err != nil {
		return nil, err
	}
	defer fd.Close()
	return fd.Stat()
}

// cleanPath rejects paths that are not absolute or contain "..".
func cleanPath(name string) (string, error) {
	if !path.IsAbs(name) {
		return "", fmt.Errorf("path %q is not absolute; paths on the host start with /", name)
	}
	if strings.ContainsRune(name, 0) {
		return "", fmt.Errorf("path %q contains a zero byte", name)
	}
	for part := range strings.SplitSeq(name, "/") {
		if part == ".." {
			return "", fmt.Errorf("path %q contains ..; give the path without it", name)
		}
	}
	return path.Clean(name), nil
}

// stripPath removes the agent's own path from an error, because it names a descriptor and not the file of the host.
func stripPath(err error) error {
	var pe *fs.PathError
	if errors.As(err, &pe) {
		return pe.Err
	}
	return err
}
