// SPDX-FileCopyrightText: The Skyhook authors
// SPDX-License-Identifier: Apache-2.0

package plan

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"maps"
	"math"
	"slices"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/skyhook-k8s/skyhook/api/skyhook/v1alpha1"
	"github.com/skyhook-k8s/skyhook/internal/node"
	"github.com/skyhook-k8s/skyhook/internal/pack"
)

// Definition is a package at one time. Nodes record its hash; an immutable ConfigMap keeps the definition for as long as a
// node records it.
type Definition struct {
	Hash    string
	Config  string           // digest of the configMap, shortened
	Package v1alpha1.Package // with Name set and the image without a tag; uninstall.apply is never set
	Text    string           // the package without its configMap, as stored
	Files   map[string]string
	PodHash string // hash of everything that reaches a pod
	program string // hash of what decides what a stage does, but for the configMap: image, agent and environment
}

// NewDefinition returns the definition of a package of the spec.
func NewDefinition(name string, p v1alpha1.Package) *Definition {
	p.Name = name
	p.Image = Repository(p.Image)
	p.Resources = canonicalResources(p.Resources)
	p.Env = canonicalEnv(p.Env)
	if p.Uninstall != nil && p.Uninstall.Apply {
		p.Uninstall = &v1alpha1.Uninstall{Enabled: p.Uninstall.Enabled}
	}
	config := make(map[string]string, len(p.ConfigMap))
	for key, value := range p.ConfigMap {
		config[key] = string(value)
	}
	bare := p
	bare.ConfigMap = nil
	text := node.EncodeJSON(bare)
	return &Definition{
		Hash: HashDefinition(text, config), Config: pack.ConfigDigest(config)[:16], Package: p, Text: text, Files: config,
		PodHash: HashPod(p), program: hashProgram(p),
	}
}

// canonicalResources writes equal quantities alike, so that 4 and 4000m, or 1Gi and 1073741824, are the same definition.
func canonicalResources(r v1alpha1.Resources) v1alpha1.Resources {
	return v1alpha1.Resources{
		CPURequest: canonicalQuantity(r.CPURequest), CPULimit: canonicalQuantity(r.CPULimit),
		MemoryRequest: canonicalQuantity(r.MemoryRequest), MemoryLimit: canonicalQuantity(r.MemoryLimit),
	}
}

// canonicalEnv does the same for the divisors of resource fields.
func canonicalEnv(env []v1alpha1.EnvVar) []v1alpha1.EnvVar {
	out := slices.Clone(env)
	for i, e := range out {
		if e.ValueFrom == nil || e.ValueFrom.ResourceFieldRef == nil {
			continue
		}
		source := e.ValueFrom.DeepCopy()
		source.ResourceFieldRef.Divisor = canonicalQuantity(source.ResourceFieldRef.Divisor)
		out[i].ValueFrom = source
	}
	return out
}

// canonicalQuantity returns the quantity in whole units if it has any, otherwise in thousandths.
func canonicalQuantity(q resource.Quantity) resource.Quantity {
	isWhole := q.Value() > math.MaxInt64/1000 || q.MilliValue()%1000 == 0
	switch {
	case q.IsZero():
		return q
	case isWhole:
		return *resource.NewQuantity(q.Value(), resource.BinarySI)
	}
	return *resource.NewMilliQuantity(q.MilliValue(), resource.DecimalSI)
}

// HashDefinition hashes the stored text, so that a later version with more fields computes the same hash.
func HashDefinition(text string, config map[string]string) string {
	sum := sha256.Sum256([]byte(text + "\n" + pack.ConfigDigest(config)))
	return hex.EncodeToString(sum[:6])
}

// HashPod hashes the fields of a package that affect its pods, without dependencies and uninstall settings.
func HashPod(p v1alpha1.Package) string {
	p.DependsOn, p.Uninstall, p.ConfigInterrupts, p.Interrupt, p.StageTimeout, p.Retries = nil, nil, nil, nil, nil, nil
	sum := sha256.Sum256([]byte(node.EncodeJSON(p)))
	return hex.EncodeToString(sum[:6])
}

// hashProgram hashes the fields of a package that decide what its stages do, without the configMap.
func hashProgram(p v1alpha1.Package) string {
	return HashID(p.Image, p.ContainerSHA, p.AgentImageOverride, node.EncodeJSON(p.Env))
}

// Key returns the package's key in a nodeState.
func (d *Definition) Key() string { return v1alpha1.PackageKey(d.Package.Name, d.Package.Version) }

// IsUninstallEnabled reports whether the package says that it is uninstalled.
func (d *Definition) IsUninstallEnabled() bool {
	return d.Package.Uninstall != nil && d.Package.Uninstall.Enabled
}

// isUninstallDisabled reports whether the package says that it is never uninstalled.
func (d *Definition) isUninstallDisabled() bool {
	return d.Package.Uninstall != nil && !d.Package.Uninstall.Enabled
}

// DocumentKey returns the key of the package itself in the ConfigMap of a definition, beside the keys of its configMap.
func DocumentKey(hash string) string { return "skyhook-package-" + hash + ".json" }

// ToConfigMap returns the immutable ConfigMap of a definition. It contains the keys of the configMap, so that a pod
// can mount them from here when the documented ConfigMap has newer content.
func (d *Definition) ToConfigMap(s *v1alpha1.Skyhook, c Config) *corev1.ConfigMap {
	files := maps.Clone(d.Files)
	if files == nil {
		files = map[string]string{}
	}
	files[DocumentKey(d.Hash)] = d.Text
	yes := true
	return &corev1.ConfigMap{
		ObjectMeta: metav1.ObjectMeta{
			Name: DefinitionName(s.Name, d), Namespace: c.Namespace, OwnerReferences: OwnerReferences(s),
			Labels:      map[string]string{LabelDefinition: s.Name},
			Annotations: map[string]string{v1alpha1.LabelName: s.Name, AnnotationDefinition: d.Hash},
		},
		Data: files, Immutable: &yes,
	}
}

// ParseDefinition reads a definition from its immutable ConfigMap. It returns false for other ConfigMaps and when the
// content does not match the hash.
func ParseDefinition(cm *corev1.ConfigMap) (*Definition, bool) {
	hash := cm.Annotations[AnnotationDefinition]
	text, ok := cm.Data[DocumentKey(hash)]
	if hash == "" || !ok || cm.Labels[LabelDefinition] == "" {
		return nil, false
	}
	config := maps.Clone(cm.Data)
	delete(config, DocumentKey(hash))
	if HashDefinition(text, config) != hash {
		return nil, false
	}
	d := &Definition{Hash: hash, Config: pack.ConfigDigest(config)[:16], Text: text, Files: config}
	if err := json.Unmarshal([]byte(text), &d.Package); err != nil || d.Package.Name == "" {
		return nil, false
	}
	if len(config) > 0 {
		d.Package.ConfigMap = make(map[string]v1alpha1.ConfigData, len(config))
		for key, value := range config {
			d.Package.ConfigMap[key] = v1alpha1.ConfigData(value)
		}
	}
	d.PodHash, d.program = HashPod(d.Package), hashProgram(d.Package)
	return d, true
}

// definitionFromState reconstructs a definition that was not kept: the package of the spec, or only its image, in the
// version that is on the node.
func definitionFromState(e v1alpha1.PackageStatus, like *Definition) *Definition {
	p := v1alpha1.Package{}
	if like != nil {
		p = like.Package
	}
	p.Version, p.Image, p.ContainerSHA = v1alpha1.PackageVersion(e.Version), e.Image, e.ContainerSHA
	return NewDefinition(e.Name, p)
}

// ChangedKeys returns the keys of the configMap that were added, removed or changed since the definition with a hash. digests
// are those of a kept package, whose definition is gone. When both are lost, every key counts as changed.
func (f *Facts) ChangedKeys(from string, digests map[string]string, to *Definition) []string {
	old := map[string]string{}
	digest := func(value string) string { return value }
	if d := f.Definition(from); d != nil {
		old = d.Files
	} else if digests != nil {
		old, digest = digests, func(value string) string { return HashID(value) }
	}
	var out []string
	for key, value := range to.Files {
		if was, ok := old[key]; !ok || was != digest(value) {
			out = append(out, key)
		}
	}
	for key := range old {
		if _, ok := to.Files[key]; !ok {
			out = append(out, key)
		}
	}
	slices.Sort(out)
	return out
}
