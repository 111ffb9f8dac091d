// SPDX-FileCopyrightText: The Skyhook authors
// SPDX-License-Identifier: Apache-2.0

package licenses

import (
	"fmt"
	"strings"
)

// Texts returns the texts of all licences and notices, each once, with the modules it is for. Images and archives contain it.
func Texts(modules []Module) []byte {
	var order []string
	users := map[string][]string{}
	for _, m := range modules {
		for _, f := range m.Files {
			text := strings.TrimSpace(strings.ReplaceAll(f.Text, "\r\n", "\n"))
			if users[text] == nil {
				order = append(order, text)
			}
			users[text] = append(users[text], m.Path+" "+m.Version+" ("+f.Name+")")
		}
	}
	var out strings.Builder
	out.WriteString("This program contains the Go modules below, which have these licences and notices.\n")
	for _, text := range order {
		fmt.Fprintf(&out, "\n%s\n", strings.Repeat("=", 80))
		for _, user := range users[text] {
			fmt.Fprintln(&out, user)
		}
		fmt.Fprintf(&out, "%s\n\n%s\n", strings.Repeat("-", 80), text)
	}
	return []byte(out.String())
}

// Table returns THIRD_PARTY.md: each module with its licences and the programs that contain it. Versions are left out, so that an update
// changes the page only when it changes a licence.
func Table(modules []Module) []byte {
	var out strings.Builder
	out.WriteString(`# Third-party licences

Go modules that the released programs contain, with their licences as SPDX identifiers. ` + "`make generate`" + ` writes this page, and fails on a module whose
licence is unknown or not allowed. The texts are in ` + "`THIRD_PARTY_LICENSES`" + `, in archives of the plugin and in the folder ` + "`/usr/share/doc/skyhook-*`" + ` of images, with the
versions.

| Module | Licences | Programs |
|---|---|---|
`)
	for _, m := range modules {
		name := m.Path
		if name == StandardLibrary {
			name = "Go's standard library"
		}
		fmt.Fprintf(&out, "| %s | %s | %s |\n", name, strings.Join(m.Licenses, ", "), strings.Join(m.Programs, ", "))
	}
	return []byte(out.String())
}
