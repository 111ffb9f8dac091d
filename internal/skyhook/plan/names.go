// SPDX-FileCopyrightText: The Skyhook authors
// SPDX-License-Identifier: Apache-2.0

package plan

import (
	"crypto/sha256"
	"encoding/hex"
	"maps"
	"path"
	"slices"
	"strconv"
	"strings"

	"github.com/skyhook-k8s/skyhook/api/skyhook/v1alpha1"
	"github.com/skyhook-k8s/skyhook/internal/node"
	"github.com/skyhook-k8s/skyhook/internal/pack"
	"github.com/skyhook-k8s/skyhook/internal/rollout"
	"github.com/skyhook-k8s/skyhook/internal/skyhook/podstate"
)

// Label and annotations on frozen definitions.
const (
	LabelDefinition      = v1alpha1.Group + "/definition"     // name of the Skyhook
	AnnotationDefinition = v1alpha1.Group + "/definitionHash" // hash of the definition
)

// Paths inside the containers.
const (
	RootMount   = "/root"
	PackageDir  = pack.ImageDir
	MetadataDir = PackageDir + "/" + pack.NodeMetadataDir
	ConfigDir   = PackageDir + "/" + pack.ConfigMapDir
)

// SafeName joins parts into a valid Kubernetes name of limited length that ends in a hash of all parts, so that
// different parts give different names. Parts have dashes themselves, so the hash is of the parts separated by lines.
func SafeName(most int, parts ...string) string {
	return nameWithHash(most, strings.Join(parts, "-"), strings.Join(parts, "\n"))
}

// EarlierSafeName is safeName of earlier versions, where different parts with dashes could give one name.
func EarlierSafeName(most int, parts ...string) string {
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

// ConfigMapName returns the documented name of a package's ConfigMap. It has no hash, so the names of two packages can collide.
func ConfigMapName(skyhook, name, version string) string {
	return strings.Map(func(r rune) rune {
		if r == '+' || r == '_' {
			return '-'
		}
		return r
	}, strings.ToLower(skyhook+"-"+name+"-"+version))
}

// MetadataName is the name of the ConfigMap with the labels and annotations of a node.
func MetadataName(skyhook, node string) string { return SafeName(253, skyhook, node, "metadata") }

// DefinitionName is the name of the ConfigMap that keeps a definition.
func DefinitionName(skyhook string, d *Definition) string {
	readable := replaceInvalid(skyhook + "-" + d.Package.Name + "-" + string(d.Package.Version))
	if most := 253 - 1 - len(d.Hash); len(readable) > most {
		readable = readable[:most]
	}
	return readable + "-" + d.Hash
}

// PodName returns the name of a task's pod. It does not depend on the definition, so that the next pod of a stage cannot
// be created while the previous one terminates.
func PodName(skyhook string, st *Step, node string) string {
	return SafeName(MaxPodName, podNameParts(skyhook, st, node)...)
}

// PodNames returns the name of a task's pod, and the name that an earlier version gave it.
func PodNames(skyhook string, st *Step, node string) []string {
	return []string{PodName(skyhook, st, node), EarlierSafeName(MaxPodName, podNameParts(skyhook, st, node)...)}
}

// MaxPodName limits names of pods, because they become host names.
const MaxPodName = 63

func podNameParts(skyhook string, st *Step, node string) []string {
	if st.IsInterrupt() {
		return []string{skyhook, string(st.Stage), string(st.Payload.Type), node}
	}
	return []string{skyhook, st.Name, st.Version, string(st.Stage), node}
}

// LabelValue converts s to a valid label value: versions may have a plus sign, labels may not.
func LabelValue(s string) string {
	s = strings.ReplaceAll(s, "+", "_")
	if len(s) > 63 {
		s = s[:63]
	}
	return strings.TrimRight(s, "-_.")
}

// NodeLabel returns the name of a node as a label value, or a hash of a name that is too long.
func NodeLabel(name string) string {
	if len(name) > 63 {
		return HashID(name)
	}
	return name
}

// ConfigVolumeName returns the name of the volume with the configMap of a package: the package's own, unless another volume of
// its pods has or may have that name.
func ConfigVolumeName(name string) string {
	if name == podstate.VolumeRoot || strings.HasPrefix(name, podstate.PrefixMetadata+"-") {
		return "config-" + PackageName(name)
	}
	return PackageName(name)
}

// PackageName truncates the name of a package so that it fits into container names.
func PackageName(name string) string { return name[:min(len(name), 43)] }

// CopyDir returns the directory of a package on the host during one admission.
func (c Config) CopyDir(skyhook, uid, name, version string, generation int64) string {
	return path.Join(c.CopyDirRoot, skyhook, name+"-"+version+"-"+uid+"-"+strconv.FormatInt(generation, 10))
}

// ResourceID is the documented id of an admission of a package.
func ResourceID(skyhook, uid, name, version string, generation int64) string {
	return pack.ResourceID{Owner: skyhook + "-" + uid + "-" + strconv.FormatInt(generation, 10), Package: name, Version: version}.String()
}

// Repository returns the image without its tag; the port of a registry is not a tag.
func Repository(image string) string {
	image, _, _ = strings.Cut(image, "@")
	if colon := strings.LastIndexByte(image, ':'); colon > strings.LastIndexByte(image, '/') {
		return image[:colon]
	}
	return image
}

// ImageTag returns the tag of an image reference, or "".
func ImageTag(image string) string {
	image, _, _ = strings.Cut(image, "@")
	if colon := strings.LastIndexByte(image, ':'); colon > strings.LastIndexByte(image, '/') {
		return image[colon+1:]
	}
	return ""
}

// Ref returns the reference of a Skyhook, its rollout and its holds.
func Ref(skyhook string) rollout.Ref { return rollout.Ref{Kind: Kind, Name: skyhook} }

// SortedNames returns the keys of a map in order.
func SortedNames[V any](m map[string]V) []string { return slices.Sorted(maps.Keys(m)) }

// CutKey splits the key of a nodeState.
func CutKey(key string) (name, version string, ok bool) { return strings.Cut(key, "|") }

// WasEdited reports whether a step differs from the one whose attempts are recorded: an edit may have fixed it.
func WasEdited(st *Step, rec *node.PackageRecord) bool {
	if st.IsInterrupt() {
		return !SameInterrupt(rec.Effect, st.Effect)
	}
	return rec.Hash != st.Definition.Hash
}

// entriesOf returns the entries of the packages that a pod works for.
func (w *Diff) entriesOf(pod *podstate.Pod) []Entry {
	var out []Entry
	for _, of := range pod.Works() {
		out = append(out, w.Entries[of.Tag.Name]...)
	}
	return out
}

// IsCurrentPod reports whether a pod belongs to an entry that the node records.
func (w *Diff) IsCurrentPod(pod *podstate.Pod) bool {
	for _, e := range w.entriesOf(pod) {
		if found := FindPod(w.pods, e); found != nil && found.Outer() == pod {
			return true
		}
	}
	return false
}
