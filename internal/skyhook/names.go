// SPDX-FileCopyrightText: The Skyhook authors
// SPDX-License-Identifier: Apache-2.0

package skyhook

import (
	"crypto/sha256"
	"encoding/hex"
	"path"
	"strconv"
	"strings"

	"github.com/skyhook-k8s/skyhook/api/skyhook/v1alpha1"
	"github.com/skyhook-k8s/skyhook/internal/pack"
	"github.com/skyhook-k8s/skyhook/internal/rollout"
)

// Annotations on pods that only we read.
const (
	annotationRun      = v1alpha1.Group + "/run"      // SKYHOOK_RUN_ID of the admission the pod belongs to
	annotationContent  = v1alpha1.Group + "/content"  // hash of what the pod was made from
	annotationAttempts = v1alpha1.Group + "/attempts" // failed attempts before this pod
	annotationStages   = v1alpha1.Group + "/stages"   // of a compact pod: its stages in order, see podStage
	annotationQueue    = v1alpha1.Group + "/queue"    // of a compact pod with several: node.Queue.ID
)

// AnnotationStop on a compact pod says why it ends before its next stage. Its containers read it.
const AnnotationStop = v1alpha1.Group + "/stop"

// Label and annotations on frozen definitions.
const (
	labelDefinition      = v1alpha1.Group + "/definition"     // name of the Skyhook
	annotationDefinition = v1alpha1.Group + "/definitionHash" // hash of the definition
)

// Container and volume names of the pods; other programs look for the first three.
const (
	containerInterrupt = "interrupt"
	suffixCopy         = "-init"
	suffixCheck        = "check"
	containerPause     = "pause"
	volumeRoot         = "root-mount"
	prefixMetadata     = "metadata" // of the volume with the metadata of a node
)

// Paths inside the containers.
const (
	rootMount   = "/root"
	packageDir  = pack.ImageDir
	metadataDir = packageDir + "/" + pack.NodeMetadataDir
	configDir   = packageDir + "/" + pack.ConfigMapDir
)

// safeName joins parts into a valid Kubernetes name of limited length that ends in a hash of all parts, so that
// different parts give different names. Parts have dashes themselves, so the hash is of the parts separated by lines.
func safeName(most int, parts ...string) string {
	return nameWithHash(most, strings.Join(parts, "-"), strings.Join(parts, "\n"))
}

// earlierSafeName is safeName of earlier versions, where different parts with dashes could give one name.
func earlierSafeName(most int, parts ...string) string {
	joined := strings.Join(parts, "-")
	return nameWithHash(most, joined, joined)
}

func nameWithHash(most int, joined, hashed string) string {
	sum := sha256.Sum256([]byte(hashed))
	readable := replaceInvalid(joined)
	if len(readable) > most-9 {
		readable = readable[:most-9]
	}
	return readable + "-" + hex.EncodeToString(sum[:4])
}

// replaceInvalid converts s to lower case and replaces invalid characters by dashes.
func replaceInvalid(s string) string {
	return strings.Map(func(r rune) rune {
		if r >= 'a' && r <= 'z' || r >= '0' && r <= '9' || r == '-' {
			return r
		}
		return '-'
	}, strings.ToLower(s))
}

// configMapName returns the documented name of a package's ConfigMap. It has no hash, so the names of two packages can collide.
func configMapName(skyhook, name, version string) string {
	return strings.Map(func(r rune) rune {
		if r == '+' || r == '_' {
			return '-'
		}
		return r
	}, strings.ToLower(skyhook+"-"+name+"-"+version))
}

func metadataName(skyhook, node string) string { return safeName(253, skyhook, node, "metadata") }

func definitionName(skyhook string, d *Definition) string {
	readable := replaceInvalid(skyhook + "-" + d.Package.Name + "-" + string(d.Package.Version))
	if most := 253 - 1 - len(d.Hash); len(readable) > most {
		readable = readable[:most]
	}
	return readable + "-" + d.Hash
}

// podName returns the name of a task's pod. It does not depend on the definition, so that the next pod of a stage cannot
// be created while the previous one terminates.
func podName(skyhook string, st *step, node string) string {
	return safeName(maxPodName, podNameParts(skyhook, st, node)...)
}

// podNames returns the name of a task's pod, and the name that an earlier version gave it.
func podNames(skyhook string, st *step, node string) []string {
	return []string{podName(skyhook, st, node), earlierSafeName(maxPodName, podNameParts(skyhook, st, node)...)}
}

// maxPodName limits names of pods, because they become host names.
const maxPodName = 63

func podNameParts(skyhook string, st *step, node string) []string {
	if st.isInterrupt() {
		return []string{skyhook, string(st.stage), string(st.payload.Type), node}
	}
	return []string{skyhook, st.name, st.version, string(st.stage), node}
}

// labelValue converts s to a valid label value: versions may have a plus sign, labels may not.
func labelValue(s string) string {
	s = strings.ReplaceAll(s, "+", "_")
	if len(s) > 63 {
		s = s[:63]
	}
	return strings.TrimRight(s, "-_.")
}

// nodeLabel returns the name of a node as a label value, or a hash of a name that is too long.
func nodeLabel(name string) string {
	if len(name) > 63 {
		return hashID(name)
	}
	return name
}

// configVolumeName returns the name of the volume with the configMap of a package: the package's own, unless another volume of
// its pods has or may have that name.
func configVolumeName(name string) string {
	if name == volumeRoot || strings.HasPrefix(name, prefixMetadata+"-") {
		return "config-" + packageName(name)
	}
	return packageName(name)
}

// packageName truncates the name of a package so that it fits into container names.
func packageName(name string) string { return name[:min(len(name), 43)] }

// copyDir returns the directory of a package on the host during one admission.
func (c Config) copyDir(skyhook, uid, name, version string, generation int64) string {
	return path.Join(c.CopyDirRoot, skyhook, name+"-"+version+"-"+uid+"-"+strconv.FormatInt(generation, 10))
}

func resourceID(skyhook, uid, name, version string, generation int64) string {
	return pack.ResourceID{Owner: skyhook + "-" + uid + "-" + strconv.FormatInt(generation, 10), Package: name, Version: version}.String()
}

// repository returns the image without its tag; the port of a registry is not a tag.
func repository(image string) string {
	image, _, _ = strings.Cut(image, "@")
	if colon := strings.LastIndexByte(image, ':'); colon > strings.LastIndexByte(image, '/') {
		return image[:colon]
	}
	return image
}

// imageTag returns the tag of an image reference, or "".
func imageTag(image string) string {
	image, _, _ = strings.Cut(image, "@")
	if colon := strings.LastIndexByte(image, ':'); colon > strings.LastIndexByte(image, '/') {
		return image[colon+1:]
	}
	return ""
}

// Ref returns the reference of a Skyhook, its rollout and its holds.
func Ref(skyhook string) rollout.Ref { return rollout.Ref{Kind: Kind, Name: skyhook} }
