// SPDX-FileCopyrightText: The Skyhook authors
// SPDX-License-Identifier: Apache-2.0

package nodeop

import (
	"strings"

	"github.com/skyhook-k8s/skyhook/api/nodeop/v1alpha1"
	"github.com/skyhook-k8s/skyhook/internal/pack"
)

// Labels and annotations that say which Kairos a node runs, by the key of its release file.
var (
	releaseLabels = map[string]string{
		"ID": "kairos.io/id", "FAMILY": "kairos.io/family", "FLAVOR": "kairos.io/flavor", "FLAVOR_RELEASE": "kairos.io/flavor-release",
		"VARIANT": "kairos.io/variant", "RELEASE": "kairos.io/release", "MODEL": "kairos.io/model", "ARCH": "kairos.io/arch",
		"TRUSTED_BOOT": "kairos.io/trusted-boot", "FIPS": "kairos.io/fips",
		"SOFTWARE_VERSION_PREFIX": labelPrefix, "SOFTWARE_VERSION": labelSoftware,
	}
	releaseAnnotations = map[string]string{
		"NAME": "kairos.io/name", "ID_LIKE": "kairos.io/id-like", "INIT_VERSION": "kairos.io/init-version", "VERSION": annotationVersion,
		"BUG_REPORT_URL": "kairos.io/bug-report-url", "HOME_URL": "kairos.io/home-url",
	}
)

const (
	annotationVersion  = "kairos.io/version"
	labelPrefix        = "kairos.io/software-version-prefix"
	labelSoftware      = "kairos.io/software-version"
	labelBoot          = "kairos.io/boot-state"
	mostLabelledLength = 63
)

// What AnnotationLooked says beside the boot id.
const (
	lookedKairos = "kairos"
	lookedOther  = "other"
)

// KairosLabel says that a label of a node is one of those that say which Kairos it runs.
func KairosLabel(key string) bool {
	for _, known := range releaseLabels {
		if key == known {
			return true
		}
	}
	return key == v1alpha1.LabelManaged || key == labelBoot
}

// KairosAnnotation is the same for annotations.
func KairosAnnotation(key string) bool {
	for _, known := range releaseAnnotations {
		if key == known {
			return true
		}
	}
	return false
}

// LabelledByUs says that the labels of a node that say which Kairos it runs are ours.
func LabelledByUs(annotations map[string]string) bool {
	return strings.HasSuffix(annotations[v1alpha1.AnnotationLooked], " "+lookedKairos)
}

// labelled is what changes on a node that was found to run Kairos, or not to. Only the documented keys are touched; on a
// node that runs something else only when they are ours.
func labelled(n *Node, k pack.Kairos) Edit {
	e := Edit{}
	if k.Runs || LabelledByUs(n.Annotations) {
		value := func(key string) string { return k.Release[key] }
		managed := ""
		if k.Runs {
			managed = "true"
		}
		e.label(n, v1alpha1.LabelManaged, managed)
		e.label(n, labelBoot, k.Boot)
		for key, label := range releaseLabels {
			e.label(n, label, sanitise(value(key)))
		}
		for key, annotation := range releaseAnnotations {
			if text := value(key); text != "" {
				e.annotate(n, annotation, text)
			} else {
				e.strip(n, annotation)
			}
		}
	}
	what := lookedOther
	if k.Runs {
		what = lookedKairos
	}
	e.annotate(n, v1alpha1.AnnotationLooked, n.BootID+" "+what)
	return e
}

// label sets a label, or takes one away that has no value.
func (e *Edit) label(n *Node, key, value string) {
	if value == "" {
		unset(&e.Labels, n.Labels, key)
		return
	}
	set(&e.Labels, n.Labels, key, value)
}

// versionOf is the version of Kairos that a node runs, as its labels say; empty when they do not, or speak of a boot that
// is over.
func versionOf(n *Node) string {
	version, looked := n.Annotations[annotationVersion], n.Annotations[v1alpha1.AnnotationLooked]
	if boot, _, _ := strings.Cut(looked, " "); version == "" || looked != "" && boot != n.BootID {
		return ""
	}
	return version + "-" + n.Labels[labelPrefix] + n.Labels[labelSoftware]
}

// sanitise is a text as a label can carry it.
func sanitise(s string) string {
	s = strings.Map(func(r rune) rune {
		if r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z' || r >= '0' && r <= '9' || strings.ContainsRune("-_.", r) {
			return r
		}
		return '-'
	}, s)
	s = strings.Trim(s, "-_.")
	if len(s) > mostLabelledLength {
		s = strings.Trim(s[:mostLabelledLength], "-_.")
	}
	return s
}
