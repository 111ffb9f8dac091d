// SPDX-FileCopyrightText: The Skyhook authors
// SPDX-License-Identifier: Apache-2.0

// Package kairos gives nodes that run Kairos the labels that say so. A pod on the node finds out.
package kairos

import (
	"maps"
	"regexp"
	"slices"
	"strings"

	"github.com/skyhook-k8s/skyhook/api/nodeop/v1alpha1"
	"github.com/skyhook-k8s/skyhook/internal/node"
	"github.com/skyhook-k8s/skyhook/internal/pack"
)

// Labels and annotations that describe the Kairos system of a node, by the key in its release file.
var (
	releaseLabels = map[string]string{
		"ID": "kairos.io/id", "FAMILY": "kairos.io/family", "FLAVOR": "kairos.io/flavor", "FLAVOR_RELEASE": "kairos.io/flavor-release",
		"VARIANT": "kairos.io/variant", "RELEASE": "kairos.io/release", "MODEL": "kairos.io/model", "ARCH": "kairos.io/arch",
		"TRUSTED_BOOT": "kairos.io/trusted-boot", "FIPS": "kairos.io/fips",
		"SOFTWARE_VERSION_PREFIX": labelVersionPrefix, "SOFTWARE_VERSION": labelVersion,
	}
	releaseAnnotations = map[string]string{
		"NAME": "kairos.io/name", "ID_LIKE": "kairos.io/id-like", "INIT_VERSION": "kairos.io/init-version", "VERSION": annotationVersion,
		"BUG_REPORT_URL": "kairos.io/bug-report-url", "HOME_URL": "kairos.io/home-url",
	}
)

const (
	annotationVersion  = "kairos.io/version"
	labelVersionPrefix = "kairos.io/software-version-prefix"
	labelVersion       = "kairos.io/software-version"
	labelBootState     = "kairos.io/boot-state"
	maxLabelLength     = 63
)

// The results of a probe, which AnnotationLooked holds after the boot id.
const (
	probedKairos = "kairos"
	probedOther  = "other"
)

// IsLabel reports whether a label of a node describes its Kairos system.
func IsLabel(key string) bool {
	return key == v1alpha1.LabelManaged || key == labelBootState || hasValue(releaseLabels, key)
}

// IsAnnotation reports whether an annotation of a node describes its Kairos system.
func IsAnnotation(key string) bool { return hasValue(releaseAnnotations, key) }

func hasValue(m map[string]string, value string) bool {
	return slices.Contains(slices.Collect(maps.Values(m)), value)
}

// HasOwnLabels reports whether the operator wrote the Kairos labels of a node.
func HasOwnLabels(annotations map[string]string) bool {
	return strings.HasSuffix(annotations[v1alpha1.AnnotationLooked], " "+probedKairos)
}

// editLabels writes the result of a probe to a node. Only the documented keys change; on a node that does not run Kairos only
// when the operator wrote them.
func editLabels(n *node.Node, k pack.Kairos) node.Edit {
	e := node.Edit{}
	result, managed := probedOther, ""
	if k.Runs {
		result, managed = probedKairos, "true"
	}
	if k.Runs || HasOwnLabels(n.Annotations) {
		setLabel(&e, n, v1alpha1.LabelManaged, managed)
		setLabel(&e, n, labelBootState, k.Boot)
		for key, label := range releaseLabels {
			setLabel(&e, n, label, Sanitize(k.Release[key]))
		}
		for key, annotation := range releaseAnnotations {
			if text := k.Release[key]; text != "" {
				e.SetAnnotation(n, annotation, text)
			} else {
				e.RemoveAnnotation(n, annotation)
			}
		}
	}
	e.SetAnnotation(n, v1alpha1.AnnotationLooked, n.BootID+" "+result)
	return e
}

// setLabel sets a label, or removes one that has no value.
func setLabel(e *node.Edit, n *node.Node, key, value string) {
	if value == "" {
		e.RemoveLabel(n, key)
		return
	}
	e.SetLabel(n, key, value)
}

// VersionOf is the version of Kairos that a node runs; empty when its labels do not say it, or are of an earlier boot.
func VersionOf(n *node.Node) string {
	version, probed := n.Annotations[annotationVersion], n.Annotations[v1alpha1.AnnotationLooked]
	boot, _, _ := strings.Cut(probed, " ")
	isOutdated := probed != "" && boot != n.BootID
	if version == "" || isOutdated {
		return ""
	}
	return version + "-" + n.Labels[labelVersionPrefix] + n.Labels[labelVersion]
}

// invalidInLabel matches the characters that a label value cannot have.
var invalidInLabel = regexp.MustCompile(`[^a-zA-Z0-9._-]`)

// Sanitize makes a text fit into a label value.
func Sanitize(s string) string {
	s = strings.Trim(invalidInLabel.ReplaceAllString(s, "-"), "-_.")
	return strings.Trim(s[:min(len(s), maxLabelLength)], "-_.")
}
