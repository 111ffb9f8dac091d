// SPDX-FileCopyrightText: The Skyhook authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"fmt"
	"regexp"
	"strings"

	"sigs.k8s.io/yaml"
)

// mostHubChanges is how many changes Artifact Hub shows. Helm stores Chart.yaml in the cluster with each revision of a release, so it
// stays small; the rest is in the changelog, which the chart links to.
const mostHubChanges = 20

var markdownLink = regexp.MustCompile(`\[([^\]]*)\]\([^)]*\)`)

// addHubChanges adds the changes of the version to the annotations of Chart.yaml, which are the last thing in it.
func addHubChanges(about []byte, changes string) ([]byte, error) {
	all := listHubChanges(changes)
	if len(all) == 0 {
		return about, nil
	}
	if len(all) > mostHubChanges {
		all = append(all[:mostHubChanges], "More changes are in CHANGELOG.md")
	}
	list, err := yaml.Marshal(all)
	if err != nil {
		return nil, fmt.Errorf("listing changes for Artifact Hub: %w", err)
	}
	var out bytes.Buffer
	out.Write(about)
	out.WriteString("  artifacthub.io/changes: |\n")
	for line := range strings.Lines(string(list)) {
		out.WriteString("    " + line)
	}
	return out.Bytes(), nil
}

// listHubChanges returns the first sentence of each change, as plain text.
func listHubChanges(changes string) []string {
	var all []string
	isInChange := false
	for line := range strings.Lines(changes) {
		text, isFirstLine := strings.CutPrefix(strings.TrimRight(line, "\n"), "- ")
		switch {
		case isFirstLine:
			all, isInChange = append(all, text), true
		case isInChange && strings.HasPrefix(text, "  "):
			all[len(all)-1] += " " + strings.TrimSpace(text)
		default:
			isInChange = false
		}
	}
	for i, text := range all {
		text = markdownLink.ReplaceAllString(text, "$1")
		first, _, hasMore := strings.Cut(text, ". ")
		if hasMore {
			text = first
		}
		all[i] = strings.TrimSuffix(text, ".")
	}
	return all
}
