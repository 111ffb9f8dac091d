// SPDX-FileCopyrightText: The Skyhook authors
// SPDX-License-Identifier: Apache-2.0

package observer

import (
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strings"
)

// End is the state in which work leaves a node.
type End struct {
	Files      map[string]string // what each file of the host is, by path; without what differs between any two runs
	Marks      map[string]string // annotations and labels of the product on the node, likewise
	Interrupts map[string]int    // how many were carried out, by type
}

// FullFile fills the disk of the agent's records.
const FullFile = "/var/lib/skyhook/.chaos-full"

const treeDirs = "/etc /opt /root /usr/local /var/lib/skyhook /var/lib/chaos"

// TreeScript lists the files of a host. ParseTree reads the output. What the nodes of a cluster, systemd and apt write for themselves is
// left out, and logs.
const TreeScript = `
mountpoint -q /var/lib/chaos && exit # a full disk hides the files of the packages
test -e ` + FullFile + ` && exit
dirs="` + treeDirs + `"
find $dirs -xdev \( -path /opt/kubernetes -o -path /opt/containerd -o -path /etc/kubernetes -o -path /etc/cni -o -name .cache \) -prune -o -printf '%y %m %u %g %p %l\n' 2>/dev/null
find $dirs -xdev \( -path /opt/kubernetes -o -path /opt/containerd -o -path /etc/kubernetes -o -path /var/lib/skyhook \) -prune -o -type f -print0 2>/dev/null | xargs -0 -r sha256sum
echo end`

// What differs between any two runs: UIDs, names made of digests, random ends of names, numbers of generations.
var (
	anyUID    = regexp.MustCompile(`[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}`)
	anyDigest = regexp.MustCompile(`\b[0-9a-f]{12,64}\b`)
	anySuffix = regexp.MustCompile(`-[bcdfghjklmnpqrstvwxz2456789]{5}(-<digest>)`)
	anyNumber = regexp.MustCompile(`(<uid>[^/]*)[-_]\d+(/|$)`)
)

func mask(text string) string {
	text = anyUID.ReplaceAllString(text, "<uid>")
	text = anyDigest.ReplaceAllString(text, "<digest>")
	text = anySuffix.ReplaceAllString(text, "-<suffix>$1")
	return anyNumber.ReplaceAllString(text, "$1-<number>$2")
}

// ParseTree reads the output of TreeScript.
func ParseTree(text string) (map[string]string, error) {
	files := map[string]string{}
	text, isComplete := strings.CutSuffix(strings.TrimSpace(text), "end")
	if !isComplete {
		return nil, fmt.Errorf("listing the files of a host: it told only a part")
	}
	for line := range strings.Lines(text) {
		line = strings.TrimSpace(line)
		words := strings.SplitN(line, " ", 5)
		if len(words) == 5 {
			path, target, _ := strings.Cut(words[4], " ")
			files[mask(path)] = strings.TrimSpace(strings.Join(words[:4], " ") + " " + target)
			continue
		}
		if digest, path, isSum := strings.Cut(line, "  "); isSum && len(digest) == 64 {
			files[mask(path)] += " " + digest
		}
	}
	return files, nil
}

// restarts says how often the last stage of a package failed, which faults may make it do.
var restarts = regexp.MustCompile(`,"restarts":[0-9]+`)

// Marks returns the annotations and labels of the product on a node. The values of records hold times and UIDs, so that only
// their keys count.
func Marks(maps ...map[string]string) map[string]string {
	marks := map[string]string{}
	for _, m := range maps {
		for key, value := range m {
			isState := strings.HasPrefix(key, "skyhook.nvidia.com/nodeState_") || strings.HasPrefix(key, "skyhook.nvidia.com/status_")
			isOurs := strings.HasPrefix(key, "skyhook.nvidia.com/") || strings.HasPrefix(key, "operator.kairos.io/")
			switch {
			case isState:
				marks[key] = restarts.ReplaceAllString(value, "")
			case isOurs:
				marks[mask(key)] = "present"
			}
		}
	}
	return marks
}

// Differences lists how the end of a disturbed run differs from that of an undisturbed one.
func Differences(undisturbed, disturbed End) (differences []string) {
	counts := func(m map[string]int) map[string]string {
		text := map[string]string{}
		for key, n := range m {
			text[key] = fmt.Sprint(n)
		}
		return text
	}
	differences = append(differences, differ("file", undisturbed.Files, disturbed.Files)...)
	differences = append(differences, differ("mark", undisturbed.Marks, disturbed.Marks)...)
	return append(differences, differ("number of interrupts", counts(undisturbed.Interrupts), counts(disturbed.Interrupts))...)
}

func differ(what string, want, got map[string]string) (differences []string) {
	keys := maps.Clone(want)
	if keys == nil {
		keys = map[string]string{}
	}
	maps.Copy(keys, got)
	for _, key := range slices.Sorted(maps.Keys(keys)) {
		w, isWanted := want[key]
		g, isThere := got[key]
		switch {
		case !isThere:
			differences = append(differences, fmt.Sprintf("%s %s is missing; it was %q", what, key, w))
		case !isWanted:
			differences = append(differences, fmt.Sprintf("%s %s should not be there: %q", what, key, g))
		case w != g:
			differences = append(differences, fmt.Sprintf("%s %s is %q instead of %q", what, key, g, w))
		}
	}
	return differences
}
