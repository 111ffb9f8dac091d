// SPDX-FileCopyrightText: The Skyhook authors
// SPDX-License-Identifier: Apache-2.0

package pkgimage

import (
	"bytes"
	"crypto/sha256"
	"debug/buildinfo"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
)

// Program is a program of ours, compiled for one platform.
type Program struct {
	Platform string
	Content  []byte
}

// ProgramSBOM lists what a program of ours consists of, as SPDX 2.3: the program for each platform, and the Go modules
// that were linked into it, as it says itself. The same programs give the same bytes.
func ProgramSBOM(name, version string, programs []Program) ([]byte, error) {
	all := sha256.New()
	d := spdxDocument{
		Version: "SPDX-2.3", License: "CC0-1.0", ID: documentID, Name: name + "-" + version,
		Creation: spdxCreation{Creators: []string{"Tool: mkrelease"}, Created: "1970-01-01T00:00:00Z"},
		Files:    []spdxFile{}, Relationships: []spdxRelationship{},
	}
	for _, p := range programs {
		sum := sha256.Sum256(p.Content)
		all.Write(sum[:])
		if err := d.program(name, version, p, fmt.Sprintf("%x", sum)); err != nil {
			return nil, err
		}
	}
	d.Namespace = fmt.Sprintf("https://github.com/skyhook-k8s/skyhook/spdx/%s-%s-%x", name, version, all.Sum(nil))
	raw, err := json.MarshalIndent(d, "", " ")
	if err != nil {
		return nil, err
	}
	return append(raw, '\n'), nil
}

// program adds one program and its modules. A module that several programs share is there once.
func (d *spdxDocument) program(name, version string, p Program, sum string) error {
	info, err := buildinfo.Read(bytes.NewReader(p.Content))
	if err != nil {
		return fmt.Errorf("listing what %s for %s consists of: %w", name, p.Platform, err)
	}
	id := "SPDXRef-program-" + strings.Map(plain, p.Platform)
	d.Packages = append(d.Packages, spdxPackage{
		Name: name + " (" + p.Platform + ")", ID: id, Version: version, Location: noAssertion, Checksums: sha256Of(sum),
		Concluded: noAssertion, Declared: "Apache-2.0", Copyright: noAssertion, Purpose: "APPLICATION",
	})
	d.Relationships = append(d.Relationships, spdxRelationship{documentID, "DESCRIBES", id})
	d.module(id, "std", strings.TrimPrefix(info.GoVersion, "go"))
	for _, m := range info.Deps {
		if m.Replace != nil {
			m = m.Replace
		}
		d.module(id, m.Path, m.Version)
	}
	return nil
}

func (d *spdxDocument) module(program, path, version string) {
	id := "SPDXRef-module-" + strings.Map(plain, path+"-"+version)
	if !slices.ContainsFunc(d.Packages, func(o spdxPackage) bool { return o.ID == id }) {
		d.Packages = append(d.Packages, spdxPackage{
			Name: path, ID: id, Version: version, Location: noAssertion, Concluded: noAssertion, Declared: noAssertion, Copyright: noAssertion,
			Purpose: "LIBRARY", References: []spdxReference{{"PACKAGE-MANAGER", "purl", "pkg:golang/" + path + "@" + version}},
		})
	}
	d.Relationships = append(d.Relationships, spdxRelationship{program, "CONTAINS", id})
}
