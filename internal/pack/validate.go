// SPDX-FileCopyrightText: The Skyhook authors
// SPDX-License-Identifier: Apache-2.0

package pack

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"strings"
)

// Want is what the surroundings of a package say it should be.
type Want struct {
	File    string // the description's name; ConfigFile when empty
	Name    string // the image's name; empty is not compared
	Version string // the image's tag, or the version in the Skyhook; empty is not compared
}

// Load reads a package on its way to run one mode. Faults inside step files
// are errors for that mode's steps only, so that a broken script of another
// mode does not stop this one; the executable bit is the agent's to set.
func Load(pkg fs.FS, m Mode, want Want) (Config, Problems) {
	return loadPackage(pkg, want, func(of Mode) fileChecks {
		if of == m {
			return fileChecks{content: Error}
		}
		return fileChecks{}
	}, false)
}

// Validate checks everything, for the author of the package.
func Validate(pkg fs.FS, want Want) (Config, Problems) {
	return loadPackage(pkg, want, func(Mode) fileChecks {
		return fileChecks{content: Error, executable: Error, wholeFile: true}
	}, true)
}

func loadPackage(pkg fs.FS, want Want, look func(Mode) fileChecks, wholeTree bool) (Config, Problems) {
	file := want.File
	if file == "" {
		file = ConfigFile
	}
	found := &findings{file: file}
	var content []byte
	resolved, err := resolveLinks(pkg, file)
	if err == nil {
		content, err = readAtMost(pkg, resolved, maxConfig+1)
	}
	var leaves *leavesError
	switch {
	case errors.As(err, &leaves):
		found.fail("link-leaves", "", "it is a link that leaves the package: "+leaves.reason, "put the file itself into the package")
		return Config{}, found.problems
	case errors.Is(err, fs.ErrNotExist):
		found.fail("missing-file", "", "it does not exist", "put it into the root of the package")
		return Config{}, found.problems
	case err != nil:
		found.fail("unreadable", "", "it could not be read: "+err.Error(), "")
		return Config{}, found.problems
	}
	c := parse(content, found)
	checkWant(c, want, found)
	checkFiles(pkg, c, look, found)
	if wholeTree {
		checkTree(pkg, c, found)
	}
	return c, found.problems.removeRepeated()
}

// checkWant compares the description with its surroundings. A difference is no
// error: most published packages have a version that is not their tag.
func checkWant(c Config, want Want, found *findings) {
	if want.Version != "" && c.Version != "" && !isSameVersion(c.Version, want.Version) {
		found.warn("version-mismatch", "$.package_version", fmt.Sprintf("it is %s, but the package is used as %s", quoteValue(c.Version), quoteValue(want.Version)),
			"write the same version in both places, so that upgrades see it")
	}
	if want.Name != "" && c.Name != "" && normalize(c.Name) != normalize(want.Name) {
		found.warn("name-mismatch", "$.package_name", fmt.Sprintf("it is %s, but the image is called %s", quoteValue(c.Name), quoteValue(want.Name)), "use one name")
	}
}

func isSameVersion(a, b string) bool {
	if a == b {
		return true
	}
	_, errA := ParseVersion(a)
	_, errB := ParseVersion(b)
	return errA == nil && errB == nil && CompareVersions(a, b) == 0 && buildMetadata(a) == buildMetadata(b)
}

func buildMetadata(version string) string {
	_, b, _ := strings.Cut(version, "+")
	return b
}

// readAtMost reads a file up to a maximum size.
func readAtMost(pkg fs.FS, name string, most int64) ([]byte, error) {
	f, err := pkg.Open(name)
	if err != nil {
		return nil, err
	}
	content, err := io.ReadAll(io.LimitReader(f, most))
	return content, errors.Join(err, f.Close())
}
