// SPDX-FileCopyrightText: The Skyhook authors
// SPDX-License-Identifier: Apache-2.0

package pkgimage

import (
	"bytes"
	"crypto/sha256"
	"debug/buildinfo"
	"fmt"
	"slices"
	"strings"

	"github.com/spdx/tools-golang/spdx/v2/common"
	spdx "github.com/spdx/tools-golang/spdx/v2/v2_3"
)

// Program is a program of ours, compiled for one platform.
type Program struct {
	Platform string
	Content  []byte
	Data     []Module // modules whose files are beside the program in its image
}

// Module is a Go module in one version.
type Module struct{ Path, Version string }

// ProgramSBOM returns an SPDX 2.3 document about a program: its binary for each platform, and the Go modules that the build
// info of each binary lists. The same binaries give the same bytes.
func ProgramSBOM(name, version string, programs []Program) ([]byte, error) {
	all := sha256.New()
	d := newDocument(name, version, "", "mksbom")
	d.CreationInfo.Created = "1970-01-01T00:00:00Z"
	for _, p := range programs {
		sum := sha256.Sum256(p.Content)
		all.Write(sum[:])
		if err := d.addProgram(name, version, p, fmt.Sprintf("%x", sum)); err != nil {
			return nil, err
		}
	}
	d.DocumentNamespace += fmt.Sprintf("%x", all.Sum(nil))
	return d.encode()
}

// addProgram adds one binary and its modules. A module that several binaries share is added once.
func (d document) addProgram(name, version string, p Program, sum string) error {
	info, err := buildinfo.Read(bytes.NewReader(p.Content))
	if err != nil {
		return fmt.Errorf("reading the modules of %s for %s: %w", name, p.Platform, err)
	}
	id := "program-" + toElementID(p.Platform)
	program := newPackage(name+" ("+p.Platform+")", version, id, "APPLICATION", sum)
	program.PackageLicenseDeclared = "Apache-2.0"
	d.Packages = append(d.Packages, program)
	d.relate(documentID, "DESCRIBES", id)
	d.addModule(id, "std", strings.TrimPrefix(info.GoVersion, "go"))
	for _, m := range info.Deps {
		if m.Replace != nil {
			m = m.Replace
		}
		d.addModule(id, m.Path, m.Version)
	}
	for _, m := range p.Data {
		d.addModule(id, m.Path, m.Version)
	}
	return nil
}

func (d document) addModule(program common.ElementID, path, version string) {
	id := "module-" + toElementID(path+"-"+version)
	if !slices.ContainsFunc(d.Packages, func(o *spdx.Package) bool { return o.PackageSPDXIdentifier == id }) {
		module := newPackage(path, version, id, "LIBRARY", "")
		module.PackageExternalReferences = []*spdx.PackageExternalReference{{
			Category: "PACKAGE-MANAGER", RefType: "purl", Locator: "pkg:golang/" + path + "@" + version,
		}}
		d.Packages = append(d.Packages, module)
	}
	d.relate(program, "CONTAINS", id)
}
