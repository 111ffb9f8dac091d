// SPDX-FileCopyrightText: The Skyhook authors
// SPDX-License-Identifier: Apache-2.0

package delivery

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path"
	"slices"
	"strings"

	"github.com/skyhook-k8s/skyhook/internal/agent/fault"
	"github.com/skyhook-k8s/skyhook/internal/agent/host"
	"github.com/skyhook-k8s/skyhook/internal/pack"
)

// mountedDirs are mounted beside the image of the package. What the image has of them is not delivered.
var mountedDirs = []string{pack.ConfigMapDir, pack.NodeMetadataDir}

// Suffixes of a copy that is not complete, and of one that is to be moved into place.
const partialSuffix, stagingSuffix = ".copy", ".agent"

// imagePackage is a package in the mounted image.
type imagePackage struct {
	root *os.Root
	// names are its files, links and directories, each after the directory that it is in.
	names []string
	// steps are the files of its steps, which are delivered executable: images often lose these bits.
	steps  map[string]bool
	digest string
}

// openImage opens the package in the mounted image.
func (d *Delivery) openImage() (*os.Root, error) {
	image, err := os.OpenRoot(d.ImageDir)
	if err != nil {
		return nil, fault.New(pack.BadUsage, "%s: the image of the package is not mounted: %w", pack.EnvImageDir, err)
	}
	below := strings.TrimPrefix(pack.ImageDir, "/")
	if inner, err := image.OpenRoot(below); err == nil {
		if _, err := inner.Stat(pack.ConfigFile); err == nil {
			_ = image.Close()
			return inner, nil
		}
		_ = inner.Close()
	}
	if _, err := image.Stat(pack.ConfigFile); err == nil {
		return image, nil
	}
	_ = image.Close()
	return nil, fault.New(pack.InvalidPackage, "the image has no package: there is no %s in its directory %s, and none in its root", pack.ConfigFile, below)
}

// ReadConfig reads the config.json of the package in this container.
func (d *Delivery) ReadConfig() ([]byte, error) {
	if d.ImageDir == "" {
		return pack.ReadConfig(os.DirFS(d.SourceDir))
	}
	image, err := d.openImage()
	if err != nil {
		return nil, err
	}
	defer image.Close()
	return pack.ReadConfig(image.FS())
}

// readImage reads the package in the mounted image.
func (d *Delivery) readImage() (*imagePackage, error) {
	root, err := d.openImage()
	if err != nil {
		return nil, err
	}
	p := &imagePackage{root: root, steps: map[string]bool{}}
	if err := p.read(); err != nil {
		_ = root.Close()
		return nil, fmt.Errorf("reading the image of the package: %w", err)
	}
	return p, nil
}

func (p *imagePackage) read() error {
	content, err := pack.ReadConfig(p.root.FS())
	if err != nil {
		return err
	}
	err = fs.WalkDir(p.root.FS(), ".", func(name string, e fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return err
		case name == ".", name == manifestFile:
		case slices.Contains(mountedDirs, name):
			if e.IsDir() {
				return fs.SkipDir
			}
		default:
			p.names = append(p.names, name)
		}
		return nil
	})
	if err != nil {
		return err
	}
	config, _ := pack.Parse(content) // its problems are reported when it is loaded from the host
	for _, steps := range config.Modes {
		for _, step := range steps {
			p.addStep(path.Join(pack.StepDir, step.File()))
		}
	}
	p.digest, err = p.digestIn(p.root)
	return err
}

// addStep notes the file of a step. The target of a link is the one that is executable.
func (p *imagePackage) addStep(name string) {
	for range len(p.names) {
		st, err := p.root.Lstat(name)
		switch {
		case err != nil || !slices.Contains(p.names, name):
			return // it is reported when the package is loaded
		case st.Mode().IsRegular():
			p.steps[name] = true
			return
		case st.Mode()&fs.ModeSymlink == 0:
			return
		}
		target, err := p.root.Readlink(name)
		if err != nil {
			return
		}
		name = path.Join(path.Dir(name), target)
	}
}

// digestIn is the digest of the package's files in a directory: the image, or the copy on the host. It includes the modes of files, and is
// an error if one is missing.
func (p *imagePackage) digestIn(dir *os.Root) (string, error) {
	sum := sha256.New()
	for _, name := range p.names {
		st, err := dir.Lstat(name)
		if err != nil {
			return "", err
		}
		mode, content := st.Mode(), ""
		switch {
		case mode.IsDir():
			mode = fs.ModeDir // as it is delivered, whatever its mode
		case mode&fs.ModeSymlink != 0:
			mode = fs.ModeSymlink
			content, err = dir.Readlink(name)
		case mode.IsRegular():
			if p.steps[name] {
				mode |= 0o111
			}
			content, err = digestFile(dir, name)
		default:
			err = fmt.Errorf("%s is neither a file nor a directory nor a link", name)
		}
		if err != nil {
			return "", err
		}
		pack.WriteFramed(sum, name, mode.String(), content)
	}
	return "sha256:" + hex.EncodeToString(sum.Sum(nil)), nil
}

func digestFile(dir *os.Root, name string) (string, error) {
	f, err := dir.Open(name)
	if err != nil {
		return "", err
	}
	defer f.Close()
	sum := sha256.New()
	if _, err := io.Copy(sum, f); err != nil {
		return "", err
	}
	return hex.EncodeToString(sum.Sum(nil)), nil
}

// bringFromImage makes the package on the host what it is in the mounted image, with the config and the metadata that are mounted
// beside it. A copy on the host that has the same files is kept.
func (d *Delivery) bringFromImage(parent *host.Dir, place string) error {
	image, err := d.readImage()
	if err != nil {
		return err
	}
	defer image.root.Close()
	mounted, err := d.readMounted()
	if err != nil {
		return err
	}
	for _, suffix := range []string{partialSuffix, stagingSuffix} { // of an agent that was killed: the lock is held
		if name := place + suffix; parent.Exists(name) {
			if err := parent.DeleteAll(name); err != nil {
				return err
			}
		}
	}
	if d.isDelivered(image, parent, place) {
		kept, err := d.renewMounted(mounted, parent, place)
		if kept || err != nil {
			return err
		}
	}
	return d.copyImage(image, mounted, parent, place)
}

// isDelivered reports whether the copy on the host has exactly the files of the image.
func (d *Delivery) isDelivered(image *imagePackage, parent *host.Dir, place string) bool {
	last, err := readManifest(parent, place)
	if err != nil || last.Digest != image.digest {
		return false
	}
	copied, err := d.Host.Dir(d.CopyDir)
	if err != nil {
		return false
	}
	defer copied.Close()
	digest, err := image.digestIn(copied.Root)
	switch {
	case err != nil:
		d.Log.Warn("the package on the host is not complete, and is copied again", "at", d.CopyDir, "error", err)
	case digest != image.digest:
		d.Log.Warn("the package on the host was changed, and is copied again", "at", d.CopyDir)
	}
	return err == nil && digest == image.digest
}

// copyImage copies the package beside its directory on the host and moves it into place.
func (d *Delivery) copyImage(image *imagePackage, mounted *mountedFiles, parent *host.Dir, place string) error {
	partial, staging := place+partialSuffix, place+stagingSuffix
	if err := parent.CopyNames(image.root, image.names, partial); err != nil {
		return err
	}
	for step := range image.steps {
		if err := MakeExecutable(parent, path.Join(partial, step)); err != nil {
			return err
		}
	}
	for _, name := range mounted.names {
		if err := mounted.write(parent, partial, name); err != nil {
			return err
		}
	}
	if err := parent.Move(partial, staging); err != nil {
		return err
	}
	return d.promoteCopy(parent, place, staging, image.digest)
}

// MakeExecutable sets the executable bits of a step file, because images often lose them.
func MakeExecutable(dir *host.Dir, file string) error {
	st, err := dir.Stat(file)
	if err != nil {
		return fault.New(pack.InvalidPackage, "step file %s: %w", path.Join(dir.Path, file), err)
	}
	if st.Mode().Perm()&0o111 == 0o111 {
		return nil
	}
	return dir.Chmod(file, st.Mode().Perm()|0o111)
}
